"""What an ablation's further questions found, as tables: one row for each set, pair, gate, group of tokens or head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from analyses.ablation.result import INTERVENTIONS, SingleHeads
from interp.ablation import Ablation, Frozen
from interp.dose import DoseResponse
from interp.effects import AblationEffect
from interp.interactions import Interactions
from interp.pattern_changes import PatternChanges, PatternMoves
from interp.places import head
from interp.side_by_side import SideBySide
from interp.stats import Interval
from interp.token_effects import TokenEffects
from interp.token_harms import Group, TokenHarms

OWN = "the ablated set"


def single_rows(single: SingleHeads) -> pd.DataFrame:
    """What every head alone costs on one outcome, under every intervention of the study; p after Holm's correction."""
    return pd.DataFrame(
        {
            "head": head(layer, index).label,
            "intervention": str(intervention),
            **_interval("harm", single.harm[row, layer, index]),
            "p": float(single.p[row, layer, index]),
            "n": single.harm.n,
        }
        for row, intervention in enumerate(INTERVENTIONS)
        for layer in range(single.p.shape[1])
        for index in range(single.p.shape[2])
    )


def control_rows(effect: AblationEffect) -> pd.DataFrame:
    """The ablated set and every matched set, by their mean harm on the metric; `shared`: places it has in common."""
    control = effect.control
    rows = pd.DataFrame(
        {
            "set": [f"matched set {number}" for number in range(1, len(control.harm) + 1)],
            "harm": control.harm.tolist(),
            "shared": control.shared.tolist(),
        }
    )
    own = pd.DataFrame(
        {"set": [OWN], "harm": [effect.harm.mean if control.own is None else control.own]}
        | {"shared": [len(effect.ablation.places)]}
    )
    return pd.concat([own, rows], ignore_index=True)


def side_by_side_rows(found: SideBySide) -> pd.DataFrame:
    """The harm under each intervention, on the same sequences."""
    return pd.DataFrame(
        {
            "put there": _filling(ablation),
            **_interval("harm", effect.harm),
            "unit": effect.unit,
            "share": effect.share,
            "p": effect.p,
            "n": effect.harm.n,
        }
        for ablation, effect in zip(found.ablations, found.effects, strict=True)
    )


def _filling(ablation: Ablation) -> str:
    kinds = sorted({str(place.stated) for place in ablation.places})
    held = ", later patterns held" if ablation.frozen is Frozen.PATTERNS else ""
    return ", ".join(kinds) + held


def pair_rows(found: Interactions) -> pd.DataFrame:
    """Every two places: what each costs alone, what both cost, and by how much that is more (Holm over the pairs)."""
    return pd.DataFrame(
        {
            "first": found.places[one],
            "second": found.places[other],
            "first alone": found.alone[one].mean,
            "second alone": found.alone[other].mean,
            "both": found.joint[row].mean,
            **_interval("interaction", found.interaction[row]),
            "Holm p": float(found.holm[row]),
            "n": found.interaction.n,
        }
        for row, (one, other) in enumerate(found.pairs)
    )


def dose_rows(found: DoseResponse) -> pd.DataFrame:
    """The harm at each gate (the share that stays), and how far it lies from a straight line."""
    return pd.DataFrame(
        {
            "stays": gate,
            **_interval("harm", found.harm[row]),
            "p": float(found.p[row]),
            "off the line": found.bend[row].mean,
            "off low": found.bend[row].low,
            "off high": found.bend[row].high,
            "n": found.harm.n,
        }
        for row, gate in enumerate(found.gates)
    )


def token_group_rows(found: TokenHarms) -> pd.DataFrame:
    """The harm by position, by kind of token and by history; the shares of each grouping add up to the whole."""
    groupings: list[tuple[str, Sequence[Group]]] = [
        (f"position ({found.positions})", found.by_position),
        ("kind of token", found.by_kind),
        ("history", found.by_history),
    ]
    return pd.DataFrame(
        [
            {
                "by": by,
                "group": group.label,
                **_interval("harm", group.harm),
                "share": group.share,
                "targets": group.n_targets,
            }
            for by, groups in groupings
            for group in groups
        ]
    )


def hurt_rows(found: TokenHarms) -> pd.DataFrame:
    """The targets that lose most, each with what stands before it: large by selection, and no claim."""
    return pd.DataFrame(
        {
            "before": "".join(each.before[-_CONTEXT:]),
            "token": each.token,
            "clean": each.clean,
            "harm": each.harm,
            "position": each.position,
            "sequence": each.sequence,
        }
        for each in found.worst
    )


def move_rows(found: PatternMoves) -> pd.DataFrame:
    """Heads of later layers by the share of their attention that the ablation moves."""
    return pd.DataFrame(
        {"rank": rank, "head": head(*place).label, **_interval("moved", moved), "n": moved.n}
        for rank, (place, moved) in enumerate(zip(found.heads, found.moved, strict=True), start=1)
    )


def change_rows(found: PatternChanges) -> pd.DataFrame:
    """The same on one text, where nothing has an interval."""
    return pd.DataFrame(
        {"rank": rank, "head": head(*place).label, "moved": float(found.moved[place])}
        for rank, place in enumerate(found.ranked, start=1)
    )


def text_rows(effects: TokenEffects) -> pd.DataFrame:
    """Every token of a text: its loss in both runs, and what each run finds likeliest in its place."""
    return pd.DataFrame(
        {
            "position": range(1, len(effects.strings)),
            "token": effects.strings[1:],
            "clean loss": effects.clean.tolist(),
            "ablated loss": effects.ablated.tolist(),
            "harm": effects.harm.tolist(),
            "clean top": effects.clean_top[:-1],
            "ablated top": effects.ablated_top[:-1],
        }
    )


def next_token_rows(
    effects: TokenEffects, position: int, spell: Callable[[list[int]], list[str]]
) -> pd.DataFrame:  # fmt: skip
    """The likeliest tokens after one position, intact and ablated, the most likely of either first."""
    clean, ablated = effects.clean_chance[position].tolist(), effects.ablated_chance[position].tolist()
    target = int(effects.tokens[position + 1]) if position + 1 < len(effects.tokens) else -1
    ids = effects.candidates[position].tolist()
    return pd.DataFrame(
        {
            "token": spell(ids),
            "id": ids,
            "intact": clean,
            "ablated": ablated,
            "change": [after - before for before, after in zip(clean, ablated, strict=True)],
            "is next": [each == target for each in ids],
        }
    )


def _interval(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.mean, "low": interval.low, "high": interval.high}


_CONTEXT = 12
"""Tokens before a target that are listed."""
