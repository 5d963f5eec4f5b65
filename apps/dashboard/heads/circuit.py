"""What a head reads and writes: its tokens, its OV circuit, the heads that it reads and those that read it."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from analyses.heads.tables import partner_rows, path_rows, probe_rows
from analyses.results import SavedResult
from apps.dashboard import components, data, panels, passes, snippets
from apps.dashboard.data import Run
from apps.dashboard.heads import corpus, sources
from apps.dashboard.panels import Panel
from apps.dashboard.state import Selection, head_name
from interp.places import Head
from model.errors import CutawayError

N_PARTNERS = 3
"""Heads listed for each input and direction."""


def draw(results: Mapping[str, SavedResult], run: Run, chosen: Selection, head: Head) -> None:
    """All of it, from the corpus to the weights to the paths."""
    saved = results.get("attention-patterns")
    if saved is None:
        components.missing("This needs a result of attention-patterns.", _command("attention-patterns", run, chosen))
        return
    corpus.favoured(saved, run, chosen.spec, head)
    left, right = st.columns([9, 11], gap="large")
    with left:
        _raised(saved, run, chosen, head)
    with right:
        _partners(saved, head)
    _paths(results, run, chosen, head)
    _probed(results, head)


def _raised(saved: SavedResult, run: Run, chosen: Selection, head: Head) -> None:
    """Which logits its OV circuit raises for the tokens that it attends to most."""
    st.subheader("What it would write: OV")
    copying, place = saved.result.weights.copying, head_name(*head)
    if saved.result.behaviour is None:
        components.caption("Which tokens it attends to is not known without a text.")
        return
    try:
        rows = passes.raised_tokens(run, chosen.step, saved, head)
    except CutawayError as error:
        components.unasked(error)
        return
    panel = Panel(
        key="ov",
        title=f"Logits that the OV circuit of {place} raises",
        rows=lambda: rows,
        about=panels.about_saved(saved, n=1, unit="set of weights", head=place),
        python=snippets.opened_with(
            saved, run, chosen.step, f"rows = raised_tokens(lab, result.behaviour, {tuple(head)})",
            imports=["from analyses.heads.text import raised_tokens"],
        ),
    )  # fmt: skip
    grouped = rows.groupby("attended", sort=False)
    shown = grouped.agg({"raises": "  ".join, "logit": "max", "own rank": "first"}).reset_index()
    shown = shown.rename(columns={"raises": "raises most", "logit": "by, at most", "own rank": "own logit's rank"})
    panels.table(panel, alt=panel.title, height="content", shown=shown)
    score = None if copying is None else f"eigenvalue copying score {float(copying.score[head]):.2f}"
    null = None if copying is None else f"random heads {copying.null_mean:.2f} ± {copying.null_sd:.2f} (sd)"
    components.caption("logits less the vocabulary's mean, of the tokens attended to most", score, null,
                       f"of {int(rows['of'].iloc[0]):,} tokens" if len(rows) else None, chosen.spec)  # fmt: skip


def _partners(saved: SavedResult, head: Head) -> None:
    """By composition of weights, whom it reads and who reads it."""
    st.subheader("Whom it reads, and who reads it: weights")
    result, name = saved.result, head_name(*head)
    if not result.weights.composition:
        components.caption(*(known.reason for known in list(result.weights.missing.values())[:1]))
        return
    start = None if result.weights_at_step_zero is None else result.weights_at_step_zero
    panel = Panel(
        key="partners",
        title=f"Composition of {name} with other heads",
        rows=lambda: partner_rows(result.weights, start, head, N_PARTNERS),
        about=panels.about_saved(saved, n=1, unit="set of weights", head=name, null="rotation"),
        python=sources.one(
            saved, f"rows = partner_rows(result.weights, result.weights_at_step_zero, {tuple(head)}, {N_PARTNERS})",
            imports=["from analyses.heads.tables import partner_rows"],
        ),
    )  # fmt: skip
    rows = panel.rows()
    if rows.empty:
        components.caption(f"{name} has no head before it to read, and none after it.")
        return
    panels.table(panel, alt=panel.title, height=300, shown=rows.rename(columns={"other": "head"}), pick="head")
    components.caption("z: beside the same writer turned at random; p corrected over all pairs of the input",
                       f"{saved.provenance.run}@{saved.provenance.step}", "click a row to go to that head")  # fmt: skip


def _paths(results: Mapping[str, SavedResult], run: Run, chosen: Selection, head: Head) -> None:
    """By path patching, how much of what it does for copying goes through which input of the induction heads."""
    st.subheader("Whom it feeds when the model copies: paths")
    saved, name = results.get("head-circuits"), head_name(*head)
    if saved is None:
        components.missing(
            "By which inputs the induction heads read it comes from head-circuits.",
            _command("head-circuits", run, chosen),
        )
        return
    result = saved.result
    if result.no_paths is not None:
        components.caption(result.no_paths)
        return
    if name not in result.senders:
        feeds = f"the induction heads {', '.join(result.receivers)}" if result.receivers else "induction heads"
        receives = "it is one of them" if name in result.receivers else "it was not tried"
        components.caption(f"Senders to {feeds} are heads of earlier layers; {name} is none: {receives}.")
        return
    panel = Panel(
        key="paths",
        title=f"What replacing {name} changes, by each way to {', '.join(result.receivers)}",
        rows=lambda: path_rows(result, head),
        about=panels.about_saved(saved, n=result.gap.n, unit="sequences", head=name, receivers=list(result.receivers)),
        python=sources.one(
            saved, f"rows = path_rows(result, {tuple(head)})", imports=["from analyses.heads.tables import path_rows"]
        ),
    )
    panels.table(panel, alt=panel.title, height="content")
    components.provenance(
        saved, f"n = {result.gap.n} sequences", f"to {', '.join(result.receivers)}",
        f"{name} replaced by what it writes after another first copy ({result.config.corruption.value})",
        "p corrected over senders and inputs (Holm)",
    )  # fmt: skip


def _probed(results: Mapping[str, SavedResult], head: Head) -> None:
    """By probes, what can be read off the heads of its layer, where that was asked."""
    saved = results.get("probes")
    rows = None if saved is None else data.head_probes(saved, head)
    if saved is None or rows is None or rows.empty:
        return
    st.subheader("What can be read off the heads of its layer: probes")
    panel = Panel(
        key="probed",
        title=f"What linear probes read off the heads of layer {head[0]}",
        rows=lambda: probe_rows(saved.result, head),
        about=panels.about_saved(saved, n=int(rows["n test"].iloc[0]), unit="test positions", layer=head[0]),
        python=sources.one(
            saved, f"rows = probe_rows(result, {tuple(head)})", imports=["from analyses.heads.tables import probe_rows"]
        ),
    )
    panels.table(panel, alt=panel.title, height="content", shown=rows)
    components.provenance(saved, "95% intervals over test units", "token table: the token alone tells as much",
                          "untrained: the same probe of the untrained model")  # fmt: skip


def _command(study: str, run: Run, chosen: Selection) -> str:
    return f"cutaway run {study} {data.spelled(run, chosen.step)}"
