"""The picture of promotion: how much of the concept at every strength, when it comes, and what it costs.

Left, the share of the concept at every strength with its interval, and beside it what control sets do at the strength
in question, one tick for each set. In the middle its probability at every step. On the right the price.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from analyses.figures import CATEGORIES, INK, QUIET, SEQUENTIAL, caption
from analyses.promotion.result import ControlKind, Result
from analyses.promotion.verdicts import ON, promoted
from interp.wording import with_interval

_SIDE, _MORE = 230, "nats per token above its own text"
_SHORT = {ControlKind.RANDOM: "others", ControlKind.MATCHED: "as much", ControlKind.DIRECTION: "directions"}


def draw(result: Result) -> Any:
    """The whole figure."""
    shares = alt.hconcat(_shares(result), _sets(result), spacing=6).resolve_scale(y="shared")
    panels = [shares, _steps(result), _price(result)]
    return (
        alt.hconcat(*panels, spacing=36)
        .resolve_scale(color="independent", y="independent")
        .properties(title=alt.TitleParams(_title(result), subtitle=_subtitle(result)))
    )


def _title(result: Result) -> str:
    row = result.doses.at(result.config.strength)
    n = len(result.memories)
    change = f"{100 * result.plain_share.mean:.0f}% to {100 * float(result.doses.share.mean[row]):.0f}%"
    which = f"{n} {'memory' if n == 1 else 'memories'} turned on"
    judged = promoted(result)
    says = {
        True: "more than with any control",
        False: "less than what matters",
        None: "too few control sets to tell" if judged.lacks_sets else "not shown to be promotion",
    }[judged.found]
    name = f"{result.concept[:1].upper()}{result.concept[1:]}"
    return f"{name}, {which}: {change} of what is written, {says}"


def _subtitle(result: Result) -> list[str]:
    facts = caption(
        n=result.n_prompts, unit="prompts", seed=result.config.seed, run=result.run, step=result.step,
        strength=f"{result.config.strength:g} x the largest coefficient of each",
    )  # fmt: skip
    drawn = (
        "bars are 95% bootstrap intervals over prompts; dashed and grey: the model as it is; a tick is one control set"
    )
    return [facts, drawn]


def dose_rows(result: Result) -> pd.DataFrame:
    """One row for each strength."""
    doses = result.doses
    return pd.DataFrame(
        [
            {
                "strength": strength, "share": float(doses.share.mean[row]), "low": float(doses.share.low[row]),
                "high": float(doses.share.high[row]), "share with interval": with_interval(doses.share[row]),
                "loss": float(doses.loss_change.mean[row]), "loss low": float(doses.loss_change.low[row]),
                "loss high": float(doses.loss_change.high[row]), "loss with interval":
                with_interval(doses.loss_change[row]), "distinct": float(doses.distinct_change.mean[row]),
            }
            for row, strength in enumerate(doses.strengths)
        ]
    )  # fmt: skip


def set_rows(result: Result) -> pd.DataFrame:
    """One row for each control set of memories that are turned on."""
    return pd.DataFrame(
        [
            {"control": _SHORT[kind], "set": number, "share": result.plain_share.mean + float(change)}
            for kind in ON
            for number, change in enumerate(result.control(kind).share_change)
        ],
        columns=pd.Index(["control", "set", "share"]),
    )


def step_rows(result: Result) -> pd.DataFrame:
    """One row for each step of each strength, and of the model as it is."""
    lines = [("as it is", result.plain_mass), *zip(_names(result), result.doses.mass_by_step, strict=True)]
    return pd.DataFrame(
        [
            {"strength": name, "token": step + 1, "probability": float(mass)}
            for name, masses in lines
            for step, mass in enumerate(masses)
        ]
    )


def _names(result: Result) -> list[str]:
    return [f"{strength:g} x" for strength in result.doses.strengths]


def _shares(result: Result) -> Any:
    rows = dose_rows(result)
    base = alt.Chart(rows).encode(x=alt.X("strength:Q", title="strength", axis=alt.Axis(tickCount=5)))
    axis = alt.Axis(format="%", values=[0, 0.2, 0.4, 0.6, 0.8, 1])
    scale = alt.Scale(domain=[0, 1.03])  # room for the point at the top, so that all panels' titles stand at one height
    y = alt.Y("share:Q", title="share of generated tokens", scale=scale, axis=axis)
    tips = ["strength:Q", alt.Tooltip("share with interval:N", title="share")]
    plain = alt.Chart(pd.DataFrame({"share": [result.plain_share.mean]}))
    layers = [
        plain.mark_rule(color=QUIET, strokeDash=[3, 3]).encode(y=y),
        base.mark_line(color=CATEGORIES[0]).encode(y=y),
        base.mark_rule(color=CATEGORIES[0], strokeWidth=1.4).encode(
            y=alt.Y("low:Q", title="share of generated tokens"), y2="high:Q"
        ),
        base.mark_point(filled=True, size=50, color=CATEGORIES[0], opacity=1).encode(y=y, tooltip=tips),
    ]
    return alt.layer(*layers).properties(width=_SIDE, height=_SIDE, title=alt.TitleParams("How much", fontSize=12))


def _sets(result: Result) -> Any:
    rows = set_rows(result)
    dots = (
        alt.Chart(rows)
        .mark_tick(color=INK, opacity=0.45, thickness=1.5)
        .encode(
            x=alt.X("control:N", sort=list(_SHORT.values()), title=None, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("share:Q", title=None, axis=alt.Axis(labels=False, ticks=False)),
            tooltip=["control:N", "set:Q", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    return dots.properties(width=70, height=_SIDE, title=alt.TitleParams("Controls", fontSize=12))


def _steps(result: Result) -> Any:
    rows, names = step_rows(result), ["as it is", *_names(result)]
    lines = (
        alt.Chart(rows)
        .mark_line(point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("token:Q", title="new token", axis=alt.Axis(tickCount=6)),
            y=alt.Y("probability:Q", title="probability of the concept", axis=alt.Axis(format="%", labelFlush=True)),
            color=alt.Color("strength:N", sort=names, scale=_by_strength(names), legend=alt.Legend(title=None)),
            tooltip=["strength:N", "token:Q", alt.Tooltip("probability:Q", format=".1%")],
        )
    )
    return lines.properties(width=_SIDE, height=_SIDE, title=alt.TitleParams("When", fontSize=12))


def _by_strength(names: list[str]) -> alt.Scale:
    """Grey for the model as it is, then the stronger the darker; the palest shades are not seen on white."""
    n = len(names) - 1
    first, last = 2, len(SEQUENTIAL) - 1
    shades = [_between(first + (last - first) * place / max(1, n - 1)) for place in range(n)]
    return alt.Scale(domain=names, range=[QUIET, *shades])


def _between(place: float) -> str:
    """The colour at a place of the scale of magnitudes, which may lie between two of its steps."""
    below = min(int(place), len(SEQUENTIAL) - 2)
    one, other = (bytes.fromhex(SEQUENTIAL[step].removeprefix("#")) for step in (below, below + 1))
    mixed = (round(a + (b - a) * (place - below)) for a, b in zip(one, other, strict=True))
    return "#" + bytes(mixed).hex()


def _price(result: Result) -> Any:
    rows = dose_rows(result)
    base = alt.Chart(rows).encode(x=alt.X("strength:Q", title="strength", axis=alt.Axis(tickCount=5)))
    y = alt.Y("loss:Q", title=_MORE, axis=alt.Axis(labelFlush=True))
    layers = [
        base.mark_line(color=CATEGORIES[4]).encode(y=y),
        base.mark_rule(color=CATEGORIES[4], strokeWidth=1.4).encode(
            y=alt.Y("loss low:Q", title=_MORE), y2="loss high:Q"
        ),
        base.mark_point(filled=True, size=50, color=CATEGORIES[4], opacity=1).encode(
            y=y,
            tooltip=[
                "strength:Q",
                alt.Tooltip("loss with interval:N", title="nats more"),
                alt.Tooltip("distinct:Q", title="distinct tokens", format="+.1%"),
            ],
        ),
    ]
    return alt.layer(*layers).properties(width=_SIDE, height=_SIDE, title=alt.TitleParams("The price", fontSize=12))
