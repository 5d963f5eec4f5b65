"""One page that says what was found in a run: sentences, figures, tables, and where each comes from.

A single file without scripts that asks nothing of any network. Its prose is what the studies' `findings` say of their
results, so it cannot claim what the numbers deny.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from analyses import html, training_curve
from analyses.figures import to_svg
from analyses.registry import Finding, get_study
from analyses.report import Answers, Report, answers, found_in_short
from analyses.results import SavedResult
from model.files import write_atomically

READINGS = {
    "attention-patterns": (
        "Blocks in a row are one kind of head, blocks in a column one kind of text; a square is a head, and the "
        "darker it is, the more of its attention lands where that kind of head would put it. An induction head is "
        "dark at an unseen period and pale where the copy is re-ordered. In the middle each head has a line: its "
        "attention, whether its weights copy, what is lost without it, how far back it looks; behind its label stands "
        "what it attends like (no kind: like none looked for), and whether that is disputed, open or without effect. "
        "Below: the strongest head's "
        "pattern, and which head reads which."
    ),
    "head-ablation": (
        "A point is the loss that replacing one head, or one set of heads, adds: right of the dashed line the "
        "model misses it. Lines are 95% intervals. The squares show the same by place, orange for harm, blue for "
        "help."
    ),
    "head-circuits": (
        "Rows are heads of earlier layers. Left, weights: orange squares read more of that head than chance would have "
        "it. Right, what copying loses when only one input of the induction heads reads what that head writes on "
        "another first copy: a head that feeds the keys has its orange point under its diamond, which is where "
        "everything reads it. Below, a point is a head: on the dashed line a gradient tells its effect."
    ),
    "head-importance": (
        "A row for copying and one for text. Left, a point is a head: to the right, its gradient says that it matters; "
        "up, zeroing it alone costs more. In the middle the costliest heads by what stands in their place: where green "
        "lies far left of red, most of the harm was the zero's own. Right, heads are zeroed together, more and more: "
        "an order is good where its line stays low, below the grey of random orders; past the dotted line the model "
        "does worse than one that knows token frequencies only."
    ),
    "self-repair": (
        "An open dot is how far the right token's logit would fall if a head were replaced and nothing else changed; "
        "the full dot is how far it falls. The bar between them is what the others make good (or make worse), and "
        "beside it stands who does: later heads, FFNs, the final norm. On the right, what two heads cost beyond the "
        "sum of both: orange, they stand in for each other; blue, they work through each other."
    ),
    "ffn-memories": (
        "Above, by layer: how often a memory's value promotes what follows its top trigger, against permutations "
        "(grey) and step 0 (orange); how alike its triggers end; how often it fires. Below, a row is a memory: "
        "the ends of its top triggers, the token that followed, and the tokens that its value promotes."
    ),
    "ffn-composition": (
        "Layers stand from left to right. Above: the share of memories that are active; how often none of those has "
        "the layer's own top token; how often the stream that the layer reads has the model's token already. Blue is "
        "this checkpoint, orange step 0, grey a control. Below, blue is where the stream's token stays on top and "
        "orange where it changes: to the FFN's own (dark) or to a third one that neither had on top (light). Beside it "
        "the same with the update of another prefix: what differs is what the layer does for this one. Right, how much "
        "of the update its largest parts explain."
    ),
    "memory-promotion": (
        "Left, how much of a concept the model writes when the memories that promote it are turned on, further and "
        "further to the right, and in ticks what it writes with as many other memories: only where the points stand "
        "clear of the ticks is it these memories that do it. In the middle when it comes, on the right what it costs."
    ),
    "gradient-flow": (
        "Lines are gradients by depth on a logarithmic scale: flat means that all layers are treated alike. Maps "
        "show the same over training, layer by step; a row that stays pale hardly learns."
    ),
    "probes": (
        "One panel for each thing that a linear probe is asked for. Blue points are its accuracy at each place, lines "
        "95% intervals over documents. It says something only where it stands clear of the dotted line (the best from "
        "the token alone) and of the orange ring (the same probe before training). Grey crosses are labels that can "
        "only be learned by heart."
    ),
    "training-dynamics": (
        "Steps run from left to right; a point is a checkpoint, and the line between two points is no measurement. "
        "Above: what the second copy of random tokens costs falls away from the first where copying forms, and late "
        "minus early loss on text falls where more context comes to help. Below, a line is a head: those that came to "
        "attend as the title says are coloured, the others grey, and the dashed line is even attention. What rises in "
        "the shaded stretch formed together with copying; which of them the other needs is for ablation to say."
    ),
}
"""How to read each study's figure, for somebody who sees its kind for the first time."""

EXAMPLES = {
    "attention-patterns": (
        "The boxed token is the query, and what follows it is pale. Shading is value-weighted attention: how much each "
        "earlier token moves, of all that the head moves there. Beside the places where a head writes most stand some "
        "from the middle and some drawn anywhere, for the strongest examples alone mislead."
    ),
}
"""How to read each study's examples in text."""

CURVE_READING = (
    "Falling is learning. The dashed line is the loss of a model that gives every token the same probability; the gap "
    "between it and a curve is what was learned. A sudden drop of the second copy's curve is the birth of induction."
)


def write_report(report: Report, path: Path) -> Path:
    """Write the page whole or not at all, and give back where."""
    write_atomically(path, page(report).encode("utf-8"))
    return path


def page(report: Report) -> str:
    """The report as the text of one HTML file."""
    studies, learned = answers(report.results), _learned(report)
    body = [
        _opening(report, learned, studies),
        _training(report, learned),
        *(_study_section(name, said) for name, said in studies.items()),
        _closing(report),
    ]
    return _PAGE.format(title=escape(f"Cutaway: {report.name}"), style=_style(), body="\n".join(body))


def _learned(report: Report) -> Sequence[Finding]:
    """Whether the run learned anything."""
    if report.imported_from is not None:
        return (Finding(sentence=training_curve.untold(report.name, report.imported_from), found=None),)
    return training_curve.findings(
        report.metrics, d_vocab=_d_vocab(report), name=report.name, seed=_seed(report), n=report.n_judged
    )


def _d_vocab(report: Report) -> int:
    return int(report.config["model"]["d_vocab"])


def _seed(report: Report) -> int:
    """Of the training, which is the seed of the weights as well."""
    return int(report.config["train"]["seed"])


def _of_training(report: Report) -> dict[str, Any]:
    """Facts that only a run has that was trained here; of an imported one, where it came from."""
    record = report.record
    if report.imported_from is not None:
        return {"Imported from": report.imported_from, "Notes": " ".join(record["imported"].get("notes", ()))}
    train, per_step = report.config["train"], record["tokens_per_step"]
    return {
        "Budget": f"{train['steps']:,} steps of {per_step:,} tokens: {train['steps'] * per_step:,} in all",
        "Seed": train["seed"],
        "Started": f"{record['started']}, on {record['device']}",
    }


def _opening(report: Report, learned: Sequence[Finding], studies: Mapping[str, Answers]) -> str:
    """Title, what was found in short, and a table of contents."""
    standfirst = found_in_short([*learned, *(finding for each in studies.values() for finding in each.findings())])
    links = "".join(f'<li><a href="#{name}">{escape(get_study(name).question)}</a></li>' for name in studies)
    return (
        f'<header><p class="kicker">Cutaway report</p><h1>What was found in {escape(report.name)}</h1>'
        f'<p class="standfirst">{standfirst}{_counted_more_than_once(studies)}</p>{html.facts(_facts(report))}</header>'
        f'<nav aria-label="Contents"><ol><li><a href="#training">Did it learn?</a></li>{links}'
        f'<li><a href="#provenance">Where this comes from</a></li></ol></nav>'
        f"{_in_short(learned, studies, report.faults)}"
    )


def _counted_more_than_once(studies: Mapping[str, Answers]) -> str:
    """Which studies were asked with several settings, so that one effect may be counted several times."""
    several = [f"{name} ({len(said.last)})" for name, said in studies.items() if len(said.last) > 1]
    return f" Counted for each of several settings: {escape(', '.join(several))}." if several else ""


def _in_short(learned: Sequence[Finding], studies: Mapping[str, Answers], faults: Sequence[str]) -> str:
    """The first thing that each study found in the run; the rest is said in its section."""
    every = [learned, *(said.findings() for said in studies.values())]
    headlines = [headline for findings in every if (headline := _headline(findings))]
    listed = html.findings_list(headlines) if headlines else f"<p>{_NOTHING}</p>"
    laws = sum(not finding.of_run for findings in every for finding in findings)
    beside = f" {laws} more sentences are about models drawn for a study, and are not counted." if laws else ""
    return (
        f'<section id="summary"><h2>In short</h2>{listed}'
        f"<p>Everything that was looked for is said below, with its numbers.{beside}</p>{_left_out(faults)}</section>"
    )


def _left_out(faults: Sequence[str]) -> str:
    """The results that are not on the page since they can no longer be read, a sentence each."""
    listed = "".join(f"<li>{html.inline(fault)}</li>" for fault in faults)
    return f"<p>Saved, but not on this page, as it can no longer be read:</p><ul>{listed}</ul>" if faults else ""


def _headline(findings: Sequence[Finding]) -> Finding | None:
    return next((finding for finding in findings if finding.found and finding.of_run), None)


_NOTHING = "Nothing was found: every effect that the studies look for is absent, or too small to claim."


def _facts(report: Report) -> dict[str, Any]:
    """What the page says of the run before anything else."""
    model, data = report.config["model"], report.config["data"]
    tokenizer = data.get("tokenizer", "the model's own tokenizer")
    return {
        "Model": f"{model['n_layers']} layers of {model['n_heads']} heads, d_model {model['d_model']}, "
        f"context {model['n_ctx']}, norm {model['norm']} ({model['norm_kind']}), positions {model['positions']}, "
        f"FFN {model['ffn']}",
        "Parameters": f"{report.record['n_params']:,}",
        "Data": f"{', '.join(data['sources'])}; {tokenizer}, vocabulary {model['d_vocab']}",
        **_of_training(report),
    }


def _training(report: Report, learned: Sequence[Finding]) -> str:
    d_vocab = _d_vocab(report)
    if not report.metrics:
        return f'<section id="training"><h2>Did it learn?</h2>{html.findings_list(learned)}</section>'
    svg = to_svg(training_curve.figure(report.metrics, d_vocab=d_vocab, name=report.name))
    drawn = html.figure(svg, name="curve", reading=CURVE_READING, caption=_of_curve(report))
    began = html.paragraphs(training_curve.start(report.metrics, d_vocab=d_vocab))
    return f'<section id="training"><h2>Did it learn?</h2>{html.findings_list(learned)}{began}{drawn}</section>'


def _of_curve(report: Report) -> str:
    """What the curve rests on."""
    rows = "" if report.n_judged is None else f"; on held-out text n = {report.n_judged} rows, the run's eval batch"
    return f"One run, seed {_seed(report)}{rows}."


def _study_section(name: str, said: Answers) -> str:
    """A study: question, what its last checkpoint shows, the pictures, the same before training, the numbers."""
    before = _before_training(said.first) if said.first else ""
    shown = "".join(_shown(saved, titled=len(said.last) > 1) for saved in said.last)
    return f'<section id="{escape(name)}"><h2>{escape(get_study(name).question)}</h2>{shown}{before}</section>'


def _shown(saved: SavedResult, *, titled: bool) -> str:
    """One result: what it says, its figure, its table, where it comes from."""
    title = f"<h3>{escape(_settings(saved))}</h3>" if titled else ""
    name = f"{saved.study}-{saved.provenance.config_hash}"
    drawn = html.figure(
        to_svg(saved.figure()), name=name, reading=READINGS.get(saved.study, ""), caption=_rests_on(saved)
    )
    more = "".join(
        f"<details><summary>The {escape(name)}, one by one</summary>{html.table(rows)}</details>"
        for name, rows in saved.more_tables().items()
    )
    numbers = f"<details><summary>The numbers</summary>{html.table(saved.table())}</details>"
    return f"{title}{html.findings_list(saved.findings())}{drawn}{_examples(saved)}{more}{numbers}{_provenance(saved)}"


def _examples(saved: SavedResult) -> str:
    """Text with its tokens shaded, where the study shows some."""
    shown, reading = saved.passages(), html.paragraphs(EXAMPLES.get(saved.study, ""))
    return f"<details><summary>Examples in text</summary>{reading}{html.passages(shown)}</details>" if shown else ""


def _settings(saved: SavedResult) -> str:
    """In what the result's config differs from the study's default."""
    return f"With {', '.join(saved.settings)}" if saved.settings else "As by default"


def _before_training(first: SavedResult) -> str:
    """The same study of an earlier checkpoint: what the numbers look like when there is nothing to find."""
    when, said = _when(first.provenance.step), html.findings_list(first.findings())
    return f"<details><summary>The same, {when}</summary>{said}</details>"


def _when(step: int | None) -> str:
    match step:
        case None:
            return "of models drawn for it (no run)"
        case 0:
            return "before training (step 0)"
        case _:
            return f"at step {step:,}"


def _rests_on(saved: SavedResult) -> str:
    where = saved.provenance
    step = "initial weights" if where.step is None else f"{where.run}, step {where.step:,}"
    return f"{step}; seed {where.seed}."


def _provenance(saved: SavedResult) -> str:
    where = saved.provenance
    parts = [
        f"study {where.study}, config {where.config_hash}",
        None if where.weights_sha256 is None else f"weights {where.weights_sha256[:12]}",
        None if where.corpus_sha256 is None else f"corpus {where.corpus_sha256[:12]}",
        f"{where.seconds:.1f} s on {where.device}, {where.created}",
    ]
    return f'<p class="provenance">{escape("; ".join(part for part in parts if part))}</p>'


def _closing(report: Report) -> str:
    """How to get every number again, and what one run cannot say."""
    shown = report.shown
    versions = shown[-1].provenance.versions if shown else {}
    commands = "\n".join(saved.command for saved in shown)
    return (
        '<section id="provenance"><h2>Where this comes from</h2>'
        "<p>Every number is read from the run's folder. These commands, typed in the folder where the report was "
        "asked for, compute them again; the same seed and versions give the same numbers on a CPU.</p>"
        f"<pre>{escape(commands)}</pre>{html.facts(versions)}"
        "<p>What this page does not show: it is one model, one seed, one corpus. Intervals are over sequences, so they "
        "say how certain a number is for this model, not how it would come out for another one. An ablation shows that "
        "a part is used, not that it is the only part that could be.</p></section>"
        "<footer>Written by Cutaway. This file needs no network and runs no scripts.</footer>"
    )


def _style() -> str:
    return (files("analyses") / "static" / "report.css").read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""
