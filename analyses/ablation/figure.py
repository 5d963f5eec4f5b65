"""The picture of head ablation: each head's harm with its interval, maps of the harms, sets beside their controls.

Above, the heads that cost copying most, each replaced by its mean (full dot) and by zero (open). Beside them the same
harms as maps, for copying, for held-out rows, and where those hold nothing to copy, on one colour scale, so that what
is special to copying is seen. Below, the heads of a role ablated together, and one tick for every layer-matched set.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import altair as alt
import pandas as pd

from analyses.ablation.result import INTERVENTIONS, Result, SetAblation
from analyses.figures import CATEGORIES, INK, QUIET, about_zero, caption, diverging, index_axis
from interp.places import Intervention, head
from interp.stats import Interval
from interp.wording import p_phrase, with_interval

_MEAN = INTERVENTIONS.index(Intervention.MEAN)
_ROLES = ("induction head", "previous-token head", "other head")
_MAPS = {"copy_loss": "copying", "text_loss": "held-out rows", "new_token_loss": "held-out, nothing to copy"}
_TOP = 16
_LINEAR = 0.1
"""Nats; among heads alone, smaller harms are drawn to a linear scale."""
_MOST_READABLE_HEADS = 12
_NOTE = 58
"""Characters in a line under a panel's title."""

_ROLE_COLOURS = (CATEGORIES[4], CATEGORIES[0], "#9aa0a8")
_BAND = alt.Scale(type="band", paddingInner=0.2)


def draw(result: Result) -> Any:
    """The whole figure."""
    above = alt.hconcat(_ranking(result), _maps(result), spacing=40).resolve_scale(color="independent")
    parts = [above] if not result.sets else [above, _sets(result)]
    return (
        alt.vconcat(*parts, spacing=30)
        .resolve_scale(color="independent", shape="independent")
        .properties(title=alt.TitleParams(_title(result), subtitle=_subtitle(result)))
    )


def _title(result: Result) -> str:
    ablated = result.set_of("induction")
    if ablated is None:
        return "What each head is worth to copying; no head is an induction head by the rule"
    heads = "induction head" if len(ablated.heads) == 1 else f"{len(ablated.heads)} induction heads"
    return f"Copying loses {with_interval(ablated.effect.harm)} nats without the {heads}"


def _subtitle(result: Result) -> list[str]:
    single = result.single("copy_loss")
    facts = caption(n=single.harm.n, seed=result.config.seed, step=result.step, run=result.run, period=result.period)
    scale = f"clean copy loss {single.clean:.2f} nats; token frequencies alone {single.scale:.2f}"
    return [facts, f"{scale}; lines are 95% bootstrap intervals over sequences"]


def _role_of(result: Result, layer: int, index: int) -> str:
    if (layer, index) in result.discovery.induction_heads:
        return _ROLES[0]
    return _ROLES[1] if (layer, index) == result.discovery.previous_head else _ROLES[2]


def ranking_rows(result: Result) -> pd.DataFrame:
    """One row for each of the costliest heads and each intervention, the costliest by its mean first."""
    harm, first = result.single("copy_loss").harm, result.at_step_zero
    before = None if first is None else first.single("copy_loss").harm.mean
    order = harm.mean[_MEAN].flatten().argsort(descending=True)[:_TOP].tolist()
    return pd.DataFrame(
        [
            {
                "head": head(layer, index).label, "role": _role_of(result, layer, index), "by": intervention.value,
                "harm": cell.mean, "low": cell.low, "high": cell.high, "interval": f"{cell:.3f}",
                "step_0": None if before is None else float(before[number, layer, index]),
            }
            for layer, index in (divmod(place, result.n_heads) for place in order)
            for number, intervention in enumerate(INTERVENTIONS)
            for cell in [harm[number, layer, index]]
        ]
    )  # fmt: skip


def _ranking(result: Result) -> Any:
    rows = ranking_rows(result)
    colour = alt.Color(
        "role:N",
        scale=alt.Scale(domain=list(_ROLES), range=list(_ROLE_COLOURS)),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    base = alt.Chart(rows).encode(
        y=alt.Y(
            "head:N", sort=rows["head"].tolist(), title=None, axis=alt.Axis(ticks=False, domain=False), scale=_BAND
        ),
        yOffset=alt.YOffset("by:N", sort=[each.value for each in INTERVENTIONS]),
        color=colour,
        tooltip=["head:N", "role:N", alt.Tooltip("by:N", title="replaced by"), alt.Tooltip("interval:N", title="nats")],
    )
    along = _harms_alone(rows)
    x = along("harm")
    dots = (
        base.transform_filter("datum.by == 'mean'").mark_point(filled=True, size=44, opacity=1).encode(x=x),
        base.transform_filter("datum.by == 'zero'").mark_point(filled=False, size=30, opacity=1).encode(x=x),
    )
    zero = alt.Chart(pd.DataFrame({"harm": [0.0]})).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x="harm:Q")
    whiskers = base.mark_rule(strokeWidth=1.6).encode(x="low:Q", x2="high:Q")
    start = [] if result.at_step_zero is None else [_at_start(base, along("step_0"))]
    shown = f"the {len(rows) // 2} costliest" if result.n_layers * result.n_heads > _TOP else "all heads"
    marks = f"full: mean, open: zero{', bar: step 0' if start else ''}; dashed: no harm"
    return alt.layer(zero, *start, whiskers, *dots).properties(
        width=250,
        height=18 * (len(rows) // 2),
        title=alt.TitleParams("One head at a time", subtitle=f"{shown}; {marks}", fontSize=12),
    )


def _harms_alone(rows: pd.DataFrame) -> Callable[[str], alt.X]:
    """An x for each column of harms, of which the largest may be a hundred times the others."""
    columns = rows[["harm", "low", "high", "step_0"]].astype(float)
    scale, axis = about_zero(float(columns.min().min()), float(columns.max().max()), linear=_LINEAR)
    title = f"harm to copying, alone (nats; symlog, linear below {_LINEAR:g})"
    return lambda column: alt.X(f"{column}:Q", title=title, scale=scale, axis=axis)


def _at_start(base: alt.Chart, x: alt.X) -> alt.Chart:
    """A short bar at the harm of the same head at step 0."""
    return base.mark_tick(thickness=2, size=7, opacity=0.9).encode(x=x, color=alt.value(QUIET))


def map_rows(result: Result) -> pd.DataFrame:
    """One row for each head and map: the harm of mean ablation."""
    return pd.DataFrame(
        [
            {
                "map": title, "layer": layer, "head": index, "name": head(layer, index).label, "harm": cell.mean,
                "interval": f"{cell:.3f}", "text": f"{cell.mean:.1f}", "role": _role_of(result, layer, index),
            }
            for outcome, title in _MAPS.items()
            for layer in range(result.n_layers)
            for index in range(result.n_heads)
            for cell in [result.single(outcome).harm[_MEAN, layer, index]]
        ]
    )  # fmt: skip


def _maps(result: Result) -> Any:
    rows = map_rows(result)
    largest = max(abs(harm) for harm in rows["harm"].tolist())
    cell = int(min(26, max(4, 250 / result.n_heads)))
    base = alt.Chart().encode(
        x=alt.X("head:O", title=None, axis=index_axis("H", result.n_heads, cell)),
        y=alt.Y("layer:O", title=None, sort="descending", axis=index_axis("L", result.n_layers, cell)),
        tooltip=["name:N", "role:N", alt.Tooltip("interval:N", title="harm, nats")],
    )
    colour = alt.Color(
        "harm:Q", scale=diverging(largest), legend=alt.Legend(title="harm, nats", orient="bottom", format=".2~f")
    )
    layers = [base.mark_rect(stroke="white", strokeWidth=0.5).encode(color=colour), _ring(base)]
    if result.n_heads <= _MOST_READABLE_HEADS:
        light = alt.condition(f"abs(datum.harm) > {0.6 * largest}", alt.value("white"), alt.value(INK))
        worth_saying = f"abs(datum.harm) >= {max(0.05, 0.02 * largest)}"
        layers.append(base.mark_text(fontSize=9).encode(text="text:N", color=light).transform_filter(worth_saying))
    return (
        alt.layer(*layers, data=rows)
        .properties(width=cell * result.n_heads, height=cell * result.n_layers)
        .facet(
            row=alt.Row(
                "map:N",
                title=None,
                sort=list(_MAPS.values()),
                header=alt.Header(labelOrient="top", labelAnchor="start", labelFontSize=11, labelFontWeight="normal"),
            ),
            spacing=8,
        )
        .properties(title=alt.TitleParams("Where it is", subtitle="replaced by the mean", fontSize=12))
    )


def _ring(base: alt.Chart) -> alt.Chart:
    """A ring round the heads that have a role."""
    ring = base.mark_rect(fill=None, strokeWidth=1.8).transform_filter(f"datum.role != '{_ROLES[2]}'")
    return ring.encode(
        stroke=alt.Stroke("role:N", scale=alt.Scale(domain=list(_ROLES), range=list(_ROLE_COLOURS)), legend=None)
    )


_LANES = ("copying", "copying, at step 0", "held-out rows", "held-out, nothing to copy")
_LANE_COLOURS = (CATEGORIES[4], CATEGORIES[1], CATEGORIES[0], CATEGORIES[2])


def set_rows(ablated: SetAblation) -> pd.DataFrame:
    """One row for each thing measured on a set."""
    effect, start = ablated.effect, ablated.at_step_zero
    harms: dict[str, Interval | None] = {
        _LANES[0]: effect.harm,
        _LANES[1]: None if start is None else start.harm,
        _LANES[2]: effect.text.harm,
        _LANES[3]: effect.new_token.harm,
    }
    return pd.DataFrame(
        [
            {"what": what, "harm": harm.mean, "low": harm.low, "high": harm.high, "interval": f"{harm:.3f}"}
            for what, harm in harms.items()
            if harm is not None
        ]
    )


def control_rows(ablated: SetAblation) -> pd.DataFrame:
    """One row for each layer-matched set."""
    control = ablated.effect.control
    return pd.DataFrame({"what": _LANES[0], "harm": control.harm.tolist(), "shared": control.shared.tolist()})


def _sets(result: Result) -> Any:
    shown = [each for each in result.sets if each.intervention is Intervention.MEAN]
    return alt.hconcat(*map(_set, shown), spacing=30).properties(
        title=alt.TitleParams("The heads of a role together", subtitle="replaced by their means", fontSize=12)
    )


def _set(ablated: SetAblation) -> Any:
    rows = set_rows(ablated)
    y = alt.Y("what:N", title=None, sort=list(_LANES), axis=alt.Axis(ticks=False, domain=False), scale=_BAND)
    x = alt.X("harm:Q", title="harm, together (nats)", axis=alt.Axis(tickCount=5))
    colour = alt.Color("what:N", scale=alt.Scale(domain=list(_LANES), range=list(_LANE_COLOURS)), legend=None)
    ticks = (
        alt.Chart(control_rows(ablated))
        .mark_tick(color=QUIET, opacity=0.6, thickness=1.5, size=16)
        .encode(
            x=x, y=y, tooltip=[alt.Tooltip("harm:Q", format=".3f"), alt.Tooltip("shared:Q", title="heads in common")]
        )
    )
    base = alt.Chart(rows).encode(y=y, color=colour)
    marks = base.mark_point(filled=True, size=70, opacity=1, shape="diamond").encode(
        x=x, tooltip=["what:N", alt.Tooltip("interval:N", title="harm, nats")]
    )
    whiskers = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    zero = alt.Chart(pd.DataFrame({"harm": [0.0]})).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x="harm:Q")
    return alt.layer(zero, ticks, whiskers, marks).properties(
        width=220,
        height=22 * len(rows),
        title=alt.TitleParams(_heads_of(ablated), subtitle=_control_note(ablated), fontSize=11),
    )


def _heads_of(ablated: SetAblation) -> str:
    n, most = len(ablated.heads), 4
    names = ", ".join(ablated.heads[:most]) + (f" and {n - most} more" if n > most else "")
    return f"{ablated.role} {'head' if n == 1 else 'heads'} {names}"


def _control_note(ablated: SetAblation) -> list[str]:
    """What the ticks are, in lines short enough for the panel."""
    control = ablated.effect.control
    if control.p is None or control.smallest_p is None:
        return textwrap.wrap(control.note, _NOTE)
    return [*textwrap.wrap(f"ticks: {control.note}", _NOTE), _p_note(control.p, control.smallest_p)]


def _p_note(p: float, smallest: float) -> str:
    at_best = "the smallest possible" if p <= smallest else f"at best {smallest:.3g}"
    return f"{p_phrase(p, smallest)}, {at_best}"
