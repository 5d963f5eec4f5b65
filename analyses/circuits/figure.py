"""The picture of head circuits: composition of senders with receivers, every sender's effect by each way, estimates.

Above on the left, a square is a sender (row) and a receiver (column): how far its composition score lies above the
null, for the receiver's Q, K and V. On the right, in the same rows, what each sender does to copying by each way, with
intervals, beside its total effect (open diamond). Below, attribution patching beside true patching, a point a head.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd
import torch

from analyses.circuits.result import COPY_LOSS, PATHS, Estimated, Measured, Paths, Result
from analyses.figures import CATEGORIES, DIVERGING, INK, QUIET, about_zero, caption
from interp.attribution_patching import Method
from interp.patching import Direction
from interp.paths import FFNs, Input
from interp.wording import number

_K = PATHS.index("K")
_WAYS = ("by Q", "by K", "by V", "to the logits")
_COLOURS = (CATEGORIES[0], CATEGORIES[4], CATEGORIES[2], CATEGORIES[3])
_SCATTERS = {
    ("z", Method.LINEAR, Direction.NOISING): "z, noising",
    ("z", Method.LINEAR, Direction.DENOISING): "z, denoising",
    ("k", Method.LINEAR, Direction.DENOISING): "keys, denoising",
    ("k", Method.QK_FIX, Direction.DENOISING): "the same, QK fix",
}
_PALE = "#dde3ea"
"""What lies below the null."""
_ROW = 22
"""Height of a sender's row in pixels."""


def draw(result: Result) -> Any:
    """The whole figure."""
    parts = [_estimates(result)]
    paths = result.by(COPY_LOSS)
    if paths is not None:
        above = [_weights(result)] if result.weights is not None else []
        above.append(_paths(result, paths))
        parts.insert(0, alt.hconcat(*above, spacing=24).resolve_scale(color="independent"))
    return (
        alt.vconcat(*parts, spacing=30)
        .resolve_scale(color="independent", shape="independent")
        .properties(title=alt.TitleParams(_title(result, paths), subtitle=_subtitle(result)))
    )


def _title(result: Result, paths: Paths | None) -> str:
    if paths is None:
        return "What feeds the copying heads: no path was patched"
    row = int(paths.effect.mean[:, _K].argmax())
    n = len(result.receivers)
    kind = "" if result.trained else "the induction head "
    kinds = "heads" if result.trained else "induction heads"
    into = f"{kind}{result.receivers[0]}" if n == 1 else f"the {n} {kinds}"
    effect, total = paths.effect[row, _K].mean, paths.total[row].mean
    return f"{result.senders[row]} into the keys of {into}: {number(effect)} of its {number(total)} nats"


def _subtitle(result: Result) -> list[str]:
    facts = caption(n=result.gap.n, seed=result.config.seed, step=result.step, run=result.run, period=result.period)
    ffns = "frozen" if result.config.ffns is FFNs.FROZEN else "recomputed"
    held = f"other heads held, FFNs in between {ffns}; lines are 95% bootstrap intervals over sequences"
    return [facts, held] if result.no_paths is None else [facts, result.no_paths]


# --- weights ----------------------------------------------------------------------------------------------------------


def weight_rows(result: Result) -> pd.DataFrame:
    """One row for each pair of heads and input."""
    weights = result.weights
    start = None if result.at_step_zero is None else result.at_step_zero.weights
    if weights is None:
        return pd.DataFrame()
    return pd.DataFrame(
        [
            {
                "input": each.name, "sender": sender, "receiver": receiver, "z": float(weights.z[number, row, column]),
                "score": float(weights.score[number, row, column]),
                "step_0": None if start is None else float(start.z[number, row, column]),
                "pairs": f"{int(weights.rank[number, row, column]) + 1} of {weights.n_pairs}",
            }
            for number, each in enumerate(Input)
            for row, sender in enumerate(result.senders)
            for column, receiver in enumerate(result.receivers)
            if not math.isnan(float(weights.z[number, row, column]))
        ]
    )  # fmt: skip


def _weights(result: Result) -> Any:
    rows = weight_rows(result)
    largest = max(1.0, max(abs(z) for z in rows["z"].tolist()))
    cell = int(min(22, max(9, 190 / len(result.receivers))))
    base = alt.Chart().encode(
        x=alt.X("receiver:N", title=None, sort=list(result.receivers), axis=_plain(labelAngle=-90)),
        y=alt.Y("sender:N", title=None, sort=list(result.senders), axis=_plain()),
        tooltip=[
            "sender:N", "receiver:N", "input:N", alt.Tooltip("z:Q", format=".1f"), alt.Tooltip("score:Q", format=".3f"),
            alt.Tooltip("pairs:N", title="rank"), alt.Tooltip("step_0:Q", title="z at step 0", format=".1f"),
        ],
    )  # fmt: skip
    colour = alt.Color(
        "z:Q",
        scale=_above(largest),
        legend=alt.Legend(title="z above the null; pale: below it", orient="bottom", format=".0f"),
    )
    layers = [base.mark_rect(stroke="white", strokeWidth=0.5).encode(color=colour)]
    if cell >= 18:
        light = alt.condition(f"datum.z > {0.6 * largest}", alt.value("white"), alt.value(INK))
        said = base.mark_text(fontSize=9).encode(text=alt.Text("z:Q", format=".0f"), color=light)
        layers.append(said.transform_filter(f"datum.z >= {result.config.least_z}"))
    return (
        alt.layer(*layers, data=rows)
        .properties(width=cell * len(result.receivers), height=_ROW * len(result.senders))
        .facet(
            column=alt.Column(
                "input:N",
                title=None,
                sort=[each.name for each in Input],
                header=alt.Header(labelFontSize=11, labelFontWeight="normal", labelExpr="'into ' + datum.value"),
            ),
            spacing=10,
        )
        .properties(
            title=alt.TitleParams(
                "What the weights say",
                subtitle=f"rows: senders, columns: receivers; null: {result.config.null.value}",
                fontSize=12,
            )
        )
    )


def _above(largest: float) -> alt.Scale:
    """Full colour above the null alone: below it a head reads the sender less than a random one, which is pale."""
    zero, *above = DIVERGING[len(DIVERGING) // 2 :]
    domain = [-largest, 0.0, *(largest * (1 + place) / len(above) for place in range(len(above)))]
    return alt.Scale(domain=domain, range=[_PALE, zero, *above], clamp=True, interpolate="lab")


def _plain(**settings: Any) -> alt.Axis:
    return alt.Axis(ticks=False, domain=False, labelFontSize=10, **settings)


# --- paths ------------------------------------------------------------------------------------------------------------


def path_rows(result: Result) -> pd.DataFrame:
    """One row for each sender and way, on copy loss."""
    paths = result.by(COPY_LOSS)
    start = None if result.at_step_zero is None else result.at_step_zero.by(COPY_LOSS)
    if paths is None:
        return pd.DataFrame()
    return pd.DataFrame(
        [
            {
                "sender": sender, "way": way, "effect": cell.mean, "low": cell.low, "high": cell.high,
                "interval": f"{cell:.3f}", "share": f"{paths.share[row, column].mean:.0%}",
                "step_0": None if start is None else start.effect[row, column].mean,
            }
            for row, sender in enumerate(result.senders)
            for column, way in enumerate(_WAYS)
            for cell in [paths.effect[row, column]]
        ]
    )  # fmt: skip


def total_rows(result: Result) -> pd.DataFrame:
    """One row for each sender: its effect where everything reads it."""
    paths = result.by(COPY_LOSS)
    start = None if result.at_step_zero is None else result.at_step_zero.by(COPY_LOSS)
    rows = () if paths is None else enumerate(result.senders)
    return pd.DataFrame(
        [
            {
                "sender": sender, "effect": cell.mean, "low": cell.low, "high": cell.high, "interval": f"{cell:.3f}",
                "step_0": None if start is None else start.total[row].mean,
            }
            for row, sender in rows
            for cell in [paths.total[row]]  # type: ignore[union-attr]
        ]
    )  # fmt: skip


def _paths(result: Result, paths: Paths) -> Any:
    del paths
    order = list(result.senders)
    y = alt.Y("sender:N", sort=order, title=None, axis=_plain(), scale=alt.Scale(type="band", paddingInner=0.15))
    x = alt.X("effect:Q", title="harm to copying (nats)", axis=alt.Axis(tickCount=5))
    colour = alt.Color(
        "way:N",
        scale=alt.Scale(domain=list(_WAYS), range=list(_COLOURS)),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    base = alt.Chart(path_rows(result)).encode(
        y=y,
        yOffset=alt.YOffset("way:N", sort=list(_WAYS)),
        color=colour,
        tooltip=["sender:N", "way:N", alt.Tooltip("interval:N", title="nats"), alt.Tooltip("share:N"),
                 alt.Tooltip("step_0:Q", title="step 0", format=".3f")],
    )  # fmt: skip
    totals = alt.Chart(total_rows(result)).encode(
        y=y, tooltip=["sender:N", alt.Tooltip("interval:N", title="by everything, nats"),
                      alt.Tooltip("step_0:Q", title="step 0", format=".3f")],
    )  # fmt: skip
    zero = alt.Chart(pd.DataFrame({"effect": [0.0]})).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x="effect:Q")
    layers = [
        zero,
        totals.mark_rule(color=QUIET, strokeWidth=1).encode(x="low:Q", x2="high:Q"),
        totals.mark_point(filled=False, shape="diamond", color=INK, size=70, opacity=1).encode(x=x),
        base.mark_rule(strokeWidth=1.6).encode(x="low:Q", x2="high:Q"),
        base.mark_point(filled=True, size=34, opacity=1).encode(x=x),
    ]
    if result.at_step_zero is not None and result.at_step_zero.by(COPY_LOSS) is not None:
        tick = totals.mark_tick(color=QUIET, thickness=2, size=10, opacity=0.9)
        layers.append(tick.encode(x=alt.X("step_0:Q", title="harm to copying (nats)")))
    marks = "open diamond: everything reads the sender" + ("; bar: that at step 0" if len(layers) > 5 else "")
    return alt.layer(*layers).properties(
        width=300,
        height=_ROW * len(order),
        title=alt.TitleParams("What each sender does, by each way", subtitle=marks, fontSize=12),
    )


# --- estimates --------------------------------------------------------------------------------------------------------


def estimate_rows(measured: Measured, senders: tuple[str, ...], receivers: tuple[str, ...]) -> pd.DataFrame:
    """One row for each patched head and estimate shown."""
    rows = []
    for each in measured.estimates:
        panel = _SCATTERS.get((each.place, each.method, each.direction))
        if panel is None:
            continue
        for row, layer in enumerate(each.layers):
            for index in range(each.true.shape[1]):
                name, heads = each.name(layer, index), {*each.heads(layer, index)}
                role = "receiver" if heads & {*receivers} else "sender" if heads & {*senders[:1]} else "other head"
                rows.append(
                    {
                        "panel": panel, "name": name, "role": role, "true": float(each.true[row, index]),
                        "estimate": float(each.estimate[row, index]),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def _told(each: Estimated) -> list[str]:
    """How well the estimate orders the places, or why that is not told."""
    agreement = each.agreement
    if not each.is_told:
        why = "not defined" if math.isnan(agreement.spearman) else "not told"
        return [f"Spearman {why}, n = {agreement.n}"]
    missed = f"overlooks {len(agreement.missed)} of the {agreement.top} largest"
    return [f"Spearman {number(agreement.spearman)}, n = {agreement.n}", missed]


def _estimates(result: Result) -> Any:
    senders = result.senders if result.has_previous else ()
    rows = estimate_rows(result, senders, result.receivers)
    roles = ("receiver", "sender", "other head")
    colour = alt.Color(
        "role:N",
        scale=alt.Scale(domain=list(roles), range=[CATEGORIES[4], CATEGORIES[0], "#9aa0a8"]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    panels = []
    for (place, method, direction), panel in _SCATTERS.items():
        here = rows[rows["panel"] == panel]
        values = torch.tensor([*here["true"], *here["estimate"]])
        low, high = float(values.min()), float(values.max())
        scale, axis = about_zero(low, high)
        line = alt.Chart(pd.DataFrame({"true": [low, high], "estimate": [low, high]}))
        told = _told(result.estimated(place, method, direction))
        points = alt.Chart(here).mark_point(filled=True, size=40, opacity=0.85)
        panels.append(
            alt.layer(
                line.mark_line(color=QUIET, strokeDash=[3, 3], strokeWidth=1).encode(x="true:Q", y="estimate:Q"),
                points.encode(
                    x=alt.X("true:Q", title="true effect (logits)", scale=scale, axis=axis),
                    y=alt.Y("estimate:Q", title="estimate", scale=scale, axis=axis),
                    color=colour,
                    tooltip=["name:N", "role:N", alt.Tooltip("true:Q", format=".3f"),
                             alt.Tooltip("estimate:Q", format=".3f")],
                ),
            ).properties(
                width=140,
                height=140,
                title=alt.TitleParams(
                    panel,
                    subtitle=told,
                    fontSize=11,
                ),
            )
        )  # fmt: skip
    return alt.hconcat(*panels, spacing=24).properties(
        title=alt.TitleParams(
            "Attribution patching beside true patching",
            subtitle="a point is a head; dashed: equal; axes: linear near 0, then logarithmic",
            fontSize=12,
        )
    )
