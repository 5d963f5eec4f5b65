"""The picture of self-repair: what goes, what is lost, who makes it good; and heads two by two.

Left, on copied tokens and on top tokens, the heads that add most (FFNs are in the table): the open dot is how far the
logit would fall if nothing else changed (direct), the full one how far it falls (total), and the line between them is
what is made good (or made worse). In the middle the same length in parts. On the right what two heads cost beyond the
sum of both.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, INK, QUIET, caption, categorical, diverging
from analyses.repair.findings import percent_of
from analyses.repair.result import COPIED, TOP, Repairs, Result
from interp.repaired import PARTS, Part
from interp.wording import number, with_interval

_MOST = 10
_ROW = 18
_TITLES = {COPIED: "Copied tokens", TOP: "Held-out tokens where it adds most"}


def draw(result: Result) -> Any:
    """The whole figure."""
    rows = [alt.hconcat(*_panels(each), spacing=24).resolve_scale(color="independent") for each in result.repairs]
    left = alt.vconcat(*rows, spacing=22).resolve_scale(color="independent")
    parts = [left] if result.pairs is None else [left, _pairs(result)]
    return (
        alt.hconcat(*parts, spacing=40)
        .resolve_scale(color="independent")
        .properties(title=alt.TitleParams(_title(result), subtitle=_subtitle(result)))
    )


def _title(result: Result) -> str:
    repairs = result.on(COPIED)
    top = shown(repairs)[0]
    share, label = repairs.numbers.share[top], repairs.components[top].label
    if repairs.numbers.direct[top].high >= 0:
        return "No head is shown to add to copied tokens by itself, so what is made good is not asked"
    return f"Of what {label} adds to copied tokens, the others make good {percent_of(share)}"


def _subtitle(result: Result) -> list[str]:
    config = result.config
    facts = caption(
        n=result.repairs[0].n_sequences, seed=config.seed, step=result.step, run=result.run, period=result.period,
        replaced_by=config.intervention.value,
    )  # fmt: skip
    return [
        facts,
        "logits of the right token, less the vocabulary's mean; lines are 95% bootstrap intervals over sequences",
    ]


def shown(repairs: Repairs) -> list[int]:
    """The heads with the largest direct effects, the largest first; FFNs' are larger by far, and hide them."""
    return sorted(repairs.heads(), key=lambda row: -abs(float(repairs.numbers.direct.mean[row])))[:_MOST]


def effect_rows(repairs: Repairs) -> pd.DataFrame:
    """One row for each ablation shown and each of direct and total."""
    numbers = repairs.numbers
    return pd.DataFrame(
        [
            {
                "ablated": repairs.components[row].label, "what": what, "change": interval.mean, "low": interval.low,
                "high": interval.high, "interval": with_interval(interval),
                "made good": with_interval(numbers.repaired[row]),
            }
            for row in shown(repairs)
            for what, interval in (("direct", numbers.direct[row]), ("total", numbers.total[row]))
        ]
    )  # fmt: skip


def part_rows(repairs: Repairs) -> pd.DataFrame:
    """One row for each ablation shown and each part that makes something good."""
    numbers = repairs.numbers
    there = [
        place
        for place, part in enumerate(PARTS)
        if part is not Part.OUTPUT_NORMS or numbers.by_part.mean[:, place].any()
    ]
    return pd.DataFrame(
        [
            {
                "ablated": repairs.components[row].label, "by": PARTS[place].value,
                "made_good": numbers.by_part.mean[row, place].item(),
                "interval": with_interval(numbers.by_part[row, place]),
            }
            for row in shown(repairs)
            for place in there
        ]
    )  # fmt: skip


def _panels(repairs: Repairs) -> list[Any]:
    rows, parts = effect_rows(repairs), part_rows(repairs)
    order = rows["ablated"].drop_duplicates().tolist()
    y = alt.Y("ablated:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False))
    zero = alt.Chart(pd.DataFrame({"x": [0.0]})).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x="x:Q")
    x = alt.X("change:Q", title="change of the logit", axis=alt.Axis(tickCount=5))
    tips = ["ablated:N", "what:N", alt.Tooltip("interval:N", title="logits"), "made good:N"]
    base = alt.Chart(rows).encode(y=y, tooltip=tips)
    wide = (
        alt.Chart(rows)
        .transform_pivot("what", groupby=["ablated"], value="change")
        .mark_rule(color=CATEGORIES[1], strokeWidth=3)
    )
    between = wide.encode(y=y, x=alt.X("direct:Q", title="change of the logit"), x2="total:Q")
    full, open_ = (base.transform_filter(f"datum.what == '{what}'") for what in ("total", "direct"))
    whiskers = full.mark_rule(color=CATEGORIES[0], strokeWidth=1.2).encode(x="low:Q", x2="high:Q")
    dots = [
        open_.mark_point(filled=False, size=46, color=INK, opacity=1).encode(x=x),
        full.mark_point(filled=True, size=40, color=CATEGORIES[0], opacity=1).encode(x=x),
    ]
    size = {"height": _ROW * len(order)}
    effects = alt.layer(zero, between, whiskers, *dots).properties(
        width=210,
        title=alt.TitleParams(
            _TITLES[repairs.tokens], subtitle="open: direct, full: total; bar: made good", fontSize=12
        ),
        **size,
    )
    names = parts["by"].drop_duplicates().tolist()
    bars = (
        alt.Chart(parts)
        .mark_bar()
        .encode(
            y=alt.Y("ablated:N", sort=order, title=None, axis=None),
            x=alt.X("made_good:Q", title="made good (logits)", axis=alt.Axis(tickCount=4)),
            color=alt.Color("by:N", scale=categorical(names), legend=alt.Legend(title=None, orient="bottom")),
            tooltip=["ablated:N", "by:N", alt.Tooltip("interval:N", title="logits")],
        )
    )
    by = alt.layer(bars, zero).properties(
        width=150, title=alt.TitleParams("By whom", subtitle="right: made good", fontSize=12), **size
    )
    return [effects, by]


def pair_rows(result: Result) -> pd.DataFrame:
    """One row for each ordered pair, so that the map is whole."""
    pairs = result.pairs
    if pairs is None:
        return pd.DataFrame()
    labels = [each.partition(":")[0] for each in pairs.places]
    return pd.DataFrame(
        [
            {
                "one": labels[one], "other": labels[other], "interaction": float(pairs.interaction.mean[row]),
                "interval": with_interval(pairs.interaction[row]), "joint": with_interval(pairs.joint[row]),
                "text": number(float(pairs.interaction.mean[row])),
            }
            for row, pair in enumerate(pairs.pairs)
            for one, other in (pair, pair[::-1])
        ]
    )  # fmt: skip


def _pairs(result: Result) -> Any:
    rows = pair_rows(result)
    largest = max(abs(each) for each in rows["interaction"].tolist())
    names = sorted(set(rows["one"].tolist()))
    base = alt.Chart(rows).encode(
        x=alt.X("one:N", sort=names, title=None, axis=alt.Axis(ticks=False, domain=False, labelAngle=0)),
        y=alt.Y("other:N", sort=names, title=None, axis=alt.Axis(ticks=False, domain=False)),
        tooltip=[
            "one:N",
            "other:N",
            alt.Tooltip("interval:N", title="beyond the sum"),
            alt.Tooltip("joint:N", title="joint"),
        ],
    )
    colour = alt.Color(
        "interaction:Q", scale=diverging(largest), legend=alt.Legend(title="nats", orient="bottom", format=".2~f")
    )
    light = alt.condition(f"abs(datum.interaction) > {0.6 * largest}", alt.value("white"), alt.value(INK))
    cells = base.mark_rect(stroke="white", strokeWidth=0.5).encode(color=colour)
    layers = [cells, base.mark_text(fontSize=9).encode(text="text:N", color=light)] if len(names) <= _MOST else [cells]
    side = 34 * len(names) if len(names) <= _MOST else 340
    return alt.layer(*layers).properties(
        width=side,
        height=side,
        title=alt.TitleParams("Two at once", subtitle="harm to copying beyond the sum of both", fontSize=12),
    )
