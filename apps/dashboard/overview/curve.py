"""How the run learned, and the compared run over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from analyses import training_curve
from analyses.results import from_here
from analyses.training_curve import Row
from apps.dashboard import components, data, panels
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.overview.inventory import seed_of
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared


def draw(run: Run, step: int | None, other: Compared | None) -> None:
    """The losses over tokens seen, or why there are none."""
    rows = data.metrics(run)
    if not rows or run.model is None:
        if run.imported_from:
            components.missing(training_curve.untold(run.name, run.imported_from))
        else:
            components.missing(f"{run.name} has logged nothing: there is no metrics.jsonl to draw.")
        return
    theirs = None if other is None or other.run.name == run.name else (other.run.name, data.metrics(other.run))
    theirs = theirs if theirs is not None and theirs[1] else None
    runs = {run.name: rows} | ({} if theirs is None else dict([theirs]))
    paths = {run.name: run.path} | ({} if theirs is None or other is None else {other.run.name: other.run.path})
    seed = seed_of(run)
    panel = Panel(
        key="curve",
        title=f"The loss of {' and '.join(runs)}",
        rows=lambda: training_curve.tables(runs),
        about=panels.about_live(run, step, n=len(rows), unit="logged steps", seed=seed),
        python=_python(paths),
    )
    stamps = tuple((str(path), data.stamp(path / "metrics.jsonl")) for path in paths.values())
    figure = _figure(rows, theirs, stamps, run.model.d_vocab, run.name)
    judged = training_curve.n_judged(run.path, run.settings)
    said = training_curve.findings(rows, d_vocab=run.model.d_vocab, name=run.name, seed=seed, n=judged)
    pins.offer(title=panel.title, sentences=[each.sentence for each in said], panel=panel, figure=figure)
    panels.chart(panel, figure, alt=f"{panel.title} over training tokens", width="stretch")
    components.findings(said)
    if theirs is not None and other is not None and other.run.model is not None:
        n, their_seed = training_curve.n_judged(other.run.path, other.run.settings), seed_of(other.run)
        components.findings(
            training_curve.findings(theirs[1], d_vocab=other.run.model.d_vocab, name=theirs[0], seed=their_seed, n=n)
        )
    components.caption(
        f"{len(rows):,} logged steps",
        None if judged is None else f"held-out text: n = {judged} rows, its eval batch (studies measure on more)",
        None if seed is None else f"seed {seed}",
        f"{'one run' if theirs is None else 'one seed a run'}: no interval over seeds",
        "metrics.jsonl",
    )  # fmt: skip


@st.cache_resource(max_entries=16, show_spinner=False)
def _figure(
    _rows: Sequence[Row], _theirs: tuple[str, Sequence[Row]] | None, stamps: tuple[tuple[str, int], ...], d_vocab: int,
    name: str,
) -> dict[str, Any]:  # fmt: skip
    """The figure as Vega-Lite, built once: Altair takes longer to check it than a click should."""
    del stamps
    return training_curve.figure(_rows, d_vocab=d_vocab, name=name, other=_theirs).to_dict()


def _python(paths: dict[str, Path]) -> str:
    lines = [f"    {name!r}: read_metrics(Path({str(from_here(path))!r}))," for name, path in paths.items()]
    opening = [
        "from pathlib import Path",
        "",
        "from analyses import training_curve",
        "from model.lab import read_metrics",
    ]
    return "\n".join([*opening, "", "runs = {", *lines, "}", "rows = training_curve.tables(runs)", ""])
