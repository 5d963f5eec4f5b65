"""The picture of a training run: losses, in-context learning, and the heads that formed, above one axis of steps."""

from __future__ import annotations

from typing import Any

import altair as alt

from analyses.attention.kinds import Kind
from analyses.dynamics.formation import formed
from analyses.dynamics.lines import Time, heads_figure, losses_figure, score_figure
from analyses.dynamics.losses import change
from analyses.dynamics.result import Result
from analyses.dynamics.wording import unseen
from analyses.figures import caption
from interp.places import Head
from model.settings import as_enum

MOST = 6
"""Heads of a kind that are coloured and named, at most."""


def draw(result: Result) -> Any:
    """The whole figure."""
    stretch = change(result)
    time = Time(stretch=None if stretch is None else (stretch.start, stretch.end))
    panels = [_titled(losses_figure(result, time), "Loss")]
    if "icl_score" in result.losses:
        panels.append(_titled(score_figure(result, time), "In-context learning on text: late minus early loss"))
    for kind, what in _HEADS.items():
        panels.append(_titled(heads_figure(result, kind, time, top=highlighted(result, kind)), what))
    facts = caption(
        n=result.repeats.n_sequences,
        unit=f"sequences of period {result.repeats.period}{unseen(result)}",
        seed=result.config.seed,
        checkpoints=len(result.steps),
        training_seed=result.training_seed,
    )
    shaded = [] if stretch is None else [f"shaded: {stretch.share:.0%} of what copying earned at the end"]
    title = alt.TitleParams(
        f"What formed when in {result.run}, up to step {result.step:,}",
        subtitle=[facts, " · ".join(["bands: 95% over sequences", "points: checkpoints", *shaded])],
    )
    return alt.vconcat(*panels, spacing=18).resolve_scale(color="independent").properties(title=title)


_HEADS = {
    Kind.INDUCTION: "Induction: attention to the token after the earlier copy, every head",
    Kind.PREVIOUS: "Previous token: attention to the token before, every head",
}


def highlighted(result: Result, kind: Kind | str, most: int = MOST) -> list[Head]:
    """The heads to name: those that are found at the last checkpoint, else the one that came highest there."""
    kind = as_enum(Kind, kind, "kind")
    found = formed(result, kind)
    if found or kind.value not in result.repeats.scores:
        return found[:most]
    mean = result.repeats.scores[kind.value].mean[-1]
    layer, index = divmod(int(mean.argmax()), mean.shape[1])
    return [(layer, index)]


def _titled(chart: alt.LayerChart, text: str) -> alt.LayerChart:
    return chart.properties(title=alt.TitleParams(text, fontSize=12))
