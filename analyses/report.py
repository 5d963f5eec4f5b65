"""One page that says what was found in a run: sentences, figures, tables, and where each comes from.

The page is a single file without scripts that asks nothing of any network. Its prose is what the studies' `findings`
say of their results, so it cannot claim what the numbers deny. Needs no model: everything is drawn from what is
saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from analyses import html, training_curve
from analyses.figures import to_svg
from analyses.registry import Finding, get_study
from analyses.results import SavedResult, saved_results
from model.files import read_json, write_atomically

READINGS = {
    "attention-patterns": "A square is a head, a row a layer. The darker, the more attention goes where the kind of "
    "head named above would put it; chance is what evenly spread attention would score.",
    "head-ablation": "A square is a head, its colour what the loss gains when that head is replaced: orange hurts, "
    "blue helps, and the neutral middle is no effect. Lines are 95% intervals over sequences.",
    "ffn-memories": "Each row is a memory: on the left the ends of the contexts that excite it most, on the right the "
    "tokens that it promotes. Agreement compares the two with what shuffled memories reach.",
    "gradient-flow": "The horizontal axis is depth. A flat line means that every layer receives gradients of the same "
    "size; the vertical axis is logarithmic, so a slope is a factor per layer.",
}
"""How to read each study's figure, for somebody who sees its kind for the first time."""

CURVE_READING = (
    "Falling is learning. The dashed line is the loss of a model that gives every token the same probability; the gap "
    "between it and a curve is what was learned. A sudden drop of the second copy's curve is the birth of induction."
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a report is made of; all of it is saved with the run."""

    name: str
    """The run's name."""

    record: dict[str, Any]
    """run.json."""

    metrics: Sequence[dict[str, Any]]
    """The rows of metrics.jsonl."""

    results: Sequence[SavedResult]
    """The results to show; a study's last checkpoint is the one it is about, its first the comparison."""

    @property
    def config(self) -> dict[str, Any]:
        """Model, data, optimizer and training settings, as plain data."""
        return self.record["config"]


def gathered(run_dir: Path, results: Sequence[SavedResult] | None = None) -> Report:
    """A report on a run: its own record and metrics, and `results` (all that are saved, if none are given)."""
    from model.lab import read_metrics

    record = read_json(run_dir / "run.json")
    shown = list(results) if results is not None else saved_results(run_dir)
    return Report(name=run_dir.name, record=record, metrics=read_metrics(run_dir), results=shown)


def write_report(report: Report, path: Path) -> Path:
    """Write the page whole or not at all, and give back where."""
    write_atomically(path, page(report).encode("utf-8"))
    return path


def page(report: Report) -> str:
    """The report as the text of one HTML file."""
    d_vocab = int(report.config["model"]["d_vocab"])
    studies = answers(report.results)
    learned = training_curve.findings(report.metrics, d_vocab=d_vocab, name=report.name)
    body = [
        _opening(report, learned, studies),
        _training(report, d_vocab, learned),
        *(_study_section(name, said) for name, said in studies.items()),
        _closing(report),
    ]
    return _PAGE.format(title=escape(f"Cutaway: {report.name}"), style=_style(), body="\n".join(body))


@dataclass(frozen=True)
class Answers:
    """What one study said of a run: at the checkpoint it is about, and at the first one for comparison."""

    last: list[SavedResult]
    """One result per config, all at the last step that was studied."""

    first: SavedResult | None
    """The earliest other checkpoint, if the study ran on several."""

    def findings(self) -> list[Finding]:
        """What is said of the last checkpoint, each sentence once."""
        return list({finding.sentence: finding for saved in self.last for finding in saved.findings()}.values())


def answers(results: Sequence[SavedResult]) -> dict[str, Answers]:
    """Results by study, in the order in which studies first appear."""
    return {name: _answers([r for r in results if r.study == name]) for name in dict.fromkeys(r.study for r in results)}


def _answers(results: Sequence[SavedResult]) -> Answers:
    latest = max(_step(result) for result in results)
    earlier = [result for result in results if _step(result) < latest]
    return Answers([r for r in results if _step(r) == latest], min(earlier, key=_step) if earlier else None)


def _step(result: SavedResult) -> int:
    return -1 if result.provenance.step is None else result.provenance.step


def _opening(report: Report, learned: Sequence[Finding], studies: Mapping[str, Answers]) -> str:
    """Title, what was found in short, and a table of contents."""
    said = [*learned, *(finding for each in studies.values() for finding in each.findings())]
    affirmed = sum(finding.found for finding in said)
    standfirst = f"{_count(affirmed)} found, {len(said) - affirmed} looked for and not found."
    links = "".join(f'<li><a href="#{name}">{escape(get_study(name).question)}</a></li>' for name in studies)
    return (
        f'<header><p class="kicker">Cutaway report</p><h1>What was found in {escape(report.name)}</h1>'
        f'<p class="standfirst">{standfirst}</p>{html.facts(_facts(report))}</header>'
        f'<nav aria-label="Contents"><ol><li><a href="#training">Did it learn?</a></li>{links}'
        f'<li><a href="#provenance">Where this comes from</a></li></ol></nav>'
        f'<section id="summary"><h2>In short</h2>{html.findings_list(said)}</section>'
    )


def _count(affirmed: int) -> str:
    return {0: "Nothing was", 1: "One thing was"}.get(affirmed, f"{affirmed} things were")


def _facts(report: Report) -> dict[str, Any]:
    """What the page says of the run before anything else."""
    record, model, data, train = report.record, *(report.config[part] for part in ("model", "data", "train"))
    tokens = train["steps"] * record["tokens_per_step"]
    return {
        "Model": f"{model['n_layers']} layers of {model['n_heads']} heads, d_model {model['d_model']}, "
        f"context {model['n_ctx']}, norm {model['norm']} ({model['norm_kind']}), positions {model['positions']}, "
        f"FFN {model['ffn']}",
        "Parameters": f"{record['n_params']:,}",
        "Data": f"{', '.join(data['sources'])}; {data['tokenizer']}, vocabulary {model['d_vocab']}",
        "Budget": f"{train['steps']:,} steps of {record['tokens_per_step']:,} tokens: {tokens:,} in all",
        "Seed": train["seed"],
        "Started": f"{record['started']}, on {record['device']}",
    }


def _training(report: Report, d_vocab: int, learned: Sequence[Finding]) -> str:
    if not report.metrics:
        return '<section id="training"><h2>Did it learn?</h2><p>The run has logged nothing.</p></section>'
    svg = to_svg(training_curve.figure(report.metrics, d_vocab=d_vocab, name=report.name))
    seed = report.config["train"]["seed"]
    drawn = html.figure(svg, name="curve", reading=CURVE_READING, caption=f"One run, seed {seed}.")
    began = html.paragraphs(training_curve.start(report.metrics, d_vocab=d_vocab))
    return f'<section id="training"><h2>Did it learn?</h2>{html.findings_list(learned)}{began}{drawn}</section>'


def _study_section(name: str, said: Answers) -> str:
    """A study: question, what its last checkpoint shows, the pictures, the same before training, the numbers."""
    before = _before_training(said.first) if said.first else ""
    return (
        f'<section id="{escape(name)}"><h2>{escape(get_study(name).question)}</h2>{html.findings_list(said.findings())}'
        f"{''.join(_drawn(saved) for saved in said.last)}{before}</section>"
    )


def _drawn(saved: SavedResult) -> str:
    """One result: its figure, its table, where it comes from."""
    reading = READINGS.get(saved.study, "")
    name = f"{saved.study}-{saved.provenance.config_hash}"
    drawn = html.figure(to_svg(saved.figure()), name=name, reading=reading, caption=_rests_on(saved))
    return f"{drawn}<details><summary>The numbers</summary>{html.table(saved.table())}</details>{_provenance(saved)}"


def _before_training(first: SavedResult) -> str:
    """The same study of an earlier checkpoint: what the numbers look like when there is nothing to find."""
    step = first.provenance.step
    when = "before training (step 0)" if step == 0 else f"at step {step:,}"
    return f"<details><summary>The same, {when}</summary>{html.findings_list(first.findings())}</details>"


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
    versions = report.results[-1].provenance.versions if report.results else {}
    commands = "\n".join(f"cutaway run {name} runs/{report.name}" for name in answers(report.results))
    return (
        '<section id="provenance"><h2>Where this comes from</h2>'
        "<p>Every number is read from the run's folder. These commands compute them again; "
        "the same seed and versions give the same numbers on a CPU.</p>"
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
