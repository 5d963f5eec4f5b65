"""The picture of heads' importance: a row for each outcome.

Left, a point is a head: what its gradient says against what zeroing it alone costs. In the middle the costliest heads,
each with its harm under every intervention: how far apart they lie is how much of a harm is the replacement's own.
Right, the loss as heads are zeroed together, in several orders, over the band of random ones.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, INK, QUIET, caption
from analyses.importance.result import IMPORTANCE, INTERVENTIONS, INVERSE, ORDERS, RECOMPUTED, TRUE, Judged, Result
from interp.places import Intervention, head

_ZERO = INTERVENTIONS.index(Intervention.ZERO)
_GRADIENT, _ALONE = "importance I (nats; symlog)", "harm of zero, alone (nats; symlog)"
_EACH, _TOGETHER = "harm, alone (nats; symlog)", "harm, together (nats)"
"""Titles of axes; every layer states them, as one without would take them away."""

_TOP = 10
_NAMED = 4
"""How many points of a scatter bear their name: the costliest."""
_HEIGHT = 190
_SCALE = alt.Scale(type="symlog", constant=0.02)
"""Linear near zero, logarithmic beyond: harms of heads differ by orders of magnitude, and some help."""
_AXIS = alt.Axis(values=[-1, -0.1, 0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10], format=".2~f")
_HOW_COLOURS = (CATEGORIES[4], CATEGORIES[0], CATEGORIES[1], CATEGORIES[2])
_ORDER_COLOURS = {IMPORTANCE: CATEGORIES[0], RECOMPUTED: CATEGORIES[5], TRUE: CATEGORIES[2], INVERSE: CATEGORIES[4]}


def draw(result: Result) -> Any:
    """The whole figure."""
    rows = [
        alt.hconcat(_scatter(result, each), _harms(result, each), _curves(each), spacing=34)
        .resolve_scale(color="independent", shape="independent")
        .properties(title=alt.TitleParams(_named(each), fontSize=12))
        for each in result.judged
    ]
    return (
        alt.vconcat(*rows, spacing=26)
        .resolve_scale(color="independent", shape="independent")
        .properties(title=alt.TitleParams(_title(result), subtitle=_subtitle(result)))
    )


def _named(judged: Judged) -> str:
    return f"{judged.subject}: the {judged.meaning}"


def _title(result: Result) -> str:
    """How many heads can go on held-out text, where that can be said."""
    judged = result.judged[-1]
    gone = judged.dispensable(IMPORTANCE, result.config.tolerance)
    if gone is None:
        return "What each head is worth by its gradient, and what it costs to take it out"
    share = f"{result.config.tolerance:.0%} of what the model gains over token frequencies"
    return f"{gone} of {judged.n_heads} heads can go from {judged.subject} for {share}"


def _subtitle(result: Result) -> list[str]:
    judged = result.judged[-1]
    n, seed = judged.importance.n, result.config.seed
    facts = caption(n=n, seed=seed, step=result.step, run=result.run, period=result.period)
    ordered = f"heads ordered and constants fitted on {judged.n_reference} others"
    return [facts, f"{ordered}; lines are 95% bootstrap intervals over sequences"]


def scatter_rows(result: Result, judged: Judged) -> pd.DataFrame:
    """One row for each head: importance and zero harm, with intervals, and the same at step 0."""
    start = judged.at_step_zero
    return pd.DataFrame(
        [
            {
                "head": head(*each).label, "layer": f"L{each[0]}", "importance": size.mean, "harm": harm.mean,
                "low": harm.low, "high": harm.high, "left": size.low, "right": size.high,
                "text": f"{harm:.3f}",
                "importance_0": None if start is None else float(start.importance[each]),
                "harm_0": None if start is None else float(start.zero[each]),
            }
            for each in result.heads
            for size, harm in [(judged.importance[each], judged.harm[_ZERO, each[0], each[1]])]
        ]
    )  # fmt: skip


def _scatter(result: Result, judged: Judged) -> Any:
    rows = scatter_rows(result, judged)
    base = alt.Chart(rows)
    x = alt.X("importance:Q", title=_GRADIENT, axis=_AXIS, scale=_SCALE)
    y = alt.Y("harm:Q", title=_ALONE, axis=_AXIS, scale=_SCALE)
    colour = alt.Color("layer:N", legend=alt.Legend(title=None, orient="bottom"))
    tips = ["head:N", alt.Tooltip("importance:Q", format=".3f"), alt.Tooltip("text:N", title="harm, nats")]
    dots = base.mark_point(filled=True, size=42, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips)
    up = base.mark_rule(strokeWidth=1.2).encode(
        x=x, y=alt.Y("low:Q", title=_ALONE, scale=_SCALE), y2="high:Q", color=colour
    )
    zero = alt.Chart(pd.DataFrame({"harm": [0.0]})).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(y=y)
    names = (
        alt.Chart(rows.nlargest(_NAMED, "harm"))
        .mark_text(align="right", dx=-7, fontSize=9, color=INK)
        .encode(x=x, y=y, text="head:N")
    )
    layers = [zero, up, dots, names]
    if judged.at_step_zero is not None:
        before = base.mark_point(filled=False, size=18, color=QUIET, opacity=0.8)
        layers.insert(
            1,
            before.encode(
                x=alt.X("importance_0:Q", title=_GRADIENT), y=alt.Y("harm_0:Q", title=_ALONE), tooltip=["head:N"]
            ),
        )
    rho = judged.spearman("importance", "size of zero")
    note = "grey rings: step 0" if judged.at_step_zero is not None else ""
    return alt.layer(*layers).properties(
        width=190,
        height=_HEIGHT,
        title=alt.TitleParams(f"Does the gradient know? rank correlation {rho:.2f}", subtitle=note, fontSize=11),
    )


def harm_rows(result: Result, judged: Judged) -> pd.DataFrame:
    """One row for each of the heads that zero shows as costliest and each intervention."""
    zero = judged.harm.mean[_ZERO].flatten()
    top = [result.heads[place] for place in zero.argsort(descending=True)[:_TOP].tolist()]
    return pd.DataFrame(
        [
            {
                "head": head(*each).label, "by": how.value, "harm": harm.mean, "low": harm.low, "high": harm.high,
                "text": f"{harm:.3f}",
            }
            for each in top
            for number, how in enumerate(INTERVENTIONS)
            for harm in [judged.harm[number, each[0], each[1]]]
        ]
    )  # fmt: skip


def _harms(result: Result, judged: Judged) -> Any:
    rows = harm_rows(result, judged)
    names = [how.value for how in INTERVENTIONS]
    base = alt.Chart(rows).encode(
        y=alt.Y("head:N", sort=list(dict.fromkeys(rows["head"])), title=None, axis=alt.Axis(ticks=False, domain=False)),
        color=alt.Color(
            "by:N",
            scale=alt.Scale(domain=names, range=list(_HOW_COLOURS)),
            legend=alt.Legend(title=None, orient="bottom", symbolOpacity=1),
        ),
        tooltip=["head:N", alt.Tooltip("by:N", title="replaced by"), alt.Tooltip("text:N", title="harm, nats")],
    )
    x = alt.X("harm:Q", title=_EACH, axis=_AXIS, scale=_SCALE)
    zero = alt.Chart(pd.DataFrame({"harm": [0.0]})).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x=x)
    whiskers = base.mark_rule(strokeWidth=1, opacity=0.5).encode(x=alt.X("low:Q", title=_EACH), x2="high:Q")
    ratio = next(each for each in judged.ratios if each.of is Intervention.ZERO)
    share = "" if ratio.n_heads == 0 else f": optimal is {ratio.median.mean:.0%} of zero"
    return alt.layer(zero, whiskers, base.mark_point(filled=True, size=34, opacity=1).encode(x=x)).properties(
        width=200,
        height=_HEIGHT,
        title=alt.TitleParams(
            f"What stands there instead{share}",
            subtitle=f"the {len(rows) // len(names)} costliest by zero; share: median over {ratio.n_heads} heads",
            fontSize=11,
        ),
    )


def curve_rows(judged: Judged) -> pd.DataFrame:
    """One row for each order and point."""
    return pd.DataFrame(
        [
            {
                "order": curve.order, "share": n_removed / judged.n_heads, "removed": n_removed, "harm": harm.mean,
                "low": harm.low, "high": harm.high, "text": f"{harm:.3f}",
            }
            for curve in judged.curves
            for point, n_removed in enumerate(judged.n_removed)
            for harm in [curve.harm[point]]
        ]
    )  # fmt: skip


def band_rows(judged: Judged) -> pd.DataFrame:
    """One row for each point: the lowest, middle and highest random order."""
    return pd.DataFrame(
        {
            "share": [n / judged.n_heads for n in judged.n_removed],
            "low": judged.random.amin(0).tolist(),
            "middle": judged.random.quantile(0.5, dim=0).tolist(),
            "high": judged.random.amax(0).tolist(),
        }
    )


def _curves(judged: Judged) -> Any:
    x = alt.X("share:Q", title="share of heads zeroed together", axis=alt.Axis(format="%", tickCount=5))
    band = alt.Chart(band_rows(judged))
    shade = band.mark_area(color=QUIET, opacity=0.18).encode(x=x, y=alt.Y("low:Q", title=_TOGETHER), y2="high:Q")
    middle = band.mark_line(color=QUIET, strokeDash=[4, 3], strokeWidth=1.2).encode(
        x=x, y=alt.Y("middle:Q", title=_TOGETHER)
    )
    rows = alt.Chart(curve_rows(judged)).encode(
        x=x,
        color=alt.Color(
            "order:N",
            scale=alt.Scale(domain=list(ORDERS), range=[_ORDER_COLOURS[each] for each in ORDERS]),
            legend=alt.Legend(title=None, orient="bottom", columns=2, labelLimit=200),
        ),
    )
    y = alt.Y("harm:Q", title=_TOGETHER, axis=alt.Axis(tickCount=5))
    tips = ["order:N", "removed:Q", alt.Tooltip("text:N", title="harm, nats")]
    layers = [
        shade,
        middle,
        rows.mark_line().encode(y=y),
        rows.mark_point(size=20, opacity=1).encode(y=y, tooltip=tips),
    ]
    if judged.gain is not None:
        whole = pd.DataFrame({"harm": [judged.gain]})
        layers.insert(0, alt.Chart(whole).mark_rule(color=INK, strokeDash=[1, 3]).encode(y=y))
    note = f"grey: {len(judged.random)} random orders" + ("; dotted: token frequencies" if judged.gain else "")
    return alt.layer(*layers).properties(
        width=250,
        height=_HEIGHT,
        title=alt.TitleParams("How many can go", subtitle=note, fontSize=11),
    )
