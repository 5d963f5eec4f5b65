"""What `cutaway ablate --json` prints: every number with its unit, n, seed and split, under names that stay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.ablation import Ablation
    from interp.dose import DoseResponse
    from interp.effects import AblationEffect, Control, OutcomeEffect
    from interp.sequential import Decision
    from interp.stats import Interval
    from interp.token_harms import Group, TokenHarms

FORMAT = 1
"""Raised whenever a name goes away or changes its meaning; new names do not raise it."""


def record(
    effect: AblationEffect, *, period: int, curve: DoseResponse | None = None, tokens: TokenHarms | None = None
) -> dict[str, Any]:
    """The whole answer as plain data; what has no number is null."""
    asked = effect.effect
    return {
        "format": FORMAT,
        "checkpoint": effect.checkpoint,
        "places": effect.places,
        "ablation": _ablation(effect.ablation),
        "metric": effect.metric,
        "meaning": asked.meaning,
        "unit": asked.unit,
        "n": asked.harm.n,
        "seed": effect.seed,
        "period": period,
        "split": {"measured": list(effect.kinds), "replacements": list(effect.sources)},
        "harm": _interval(asked.harm),
        "p": asked.p,
        "share": asked.share,
        "share_interval": _share(asked),
        "share_of": "advantage: scale (what token frequencies alone give) minus clean, in the unit of the outcome",
        "outcomes": [_outcome(each, effect.at_start(each.name)) for each in effect.outcomes],
        "control": _control(effect.control),
        "decision": None if effect.decision is None else _decision(effect.decision),
        "dose": None if curve is None else _curve(curve),
        "tokens": None if tokens is None else _tokens(tokens),
        "notes": list(effect.notes),
    }


def _ablation(ablation: Ablation) -> dict[str, Any]:
    return {
        "text": str(ablation),
        "gate": ablation.gate,
        "positions": None if ablation.positions is None else list(ablation.positions),
        "frozen": ablation.frozen.value,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "mean": _number(interval.mean),
        "low": _number(interval.low),
        "high": _number(interval.high),
        "n": interval.n,
        "level": interval.level,
        "method": interval.method,
    }


def _number(value: float | None) -> float | None:
    """A number as JSON has it: null where there is none, or no end."""
    return value if value is not None and math.isfinite(value) else None


def _outcome(effect: OutcomeEffect, start: OutcomeEffect | None) -> dict[str, Any]:
    return {
        "name": effect.name,
        "meaning": effect.meaning,
        "unit": effect.unit,
        "lower_is_better": effect.lower_is_better,
        "clean": _number(effect.clean),
        "ablated": _number(effect.ablated),
        "harm": _interval(effect.harm),
        "p": effect.p,
        "scale": _number(effect.scale),
        "advantage": None if effect.scale is None else _number(effect.scale - effect.clean),
        "share": _number(effect.share),
        "share_interval": _share(effect),
        "step_0": None if start is None else {"clean": _number(start.clean), "harm": _interval(start.harm)},
    }


def _share(effect: OutcomeEffect) -> dict[str, Any] | None:
    return None if effect.share_interval is None else _interval(effect.share_interval)


def _control(control: Control) -> dict[str, Any]:
    return {
        "note": control.note,
        "n_possible": control.n_possible,
        "n_sets": len(control.harm),
        "n": control.n,
        "own": control.own,
        "gains": control.gains,
        "p": control.p,
        "smallest_p": control.smallest_p,
        "median": control.median,
        "largest": control.largest,
        "harm": control.harm.tolist(),
        "shared": control.shared.tolist(),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "bounds": list(decision.bounds),
        "above": list(decision.sides),
        "decided": decision.is_decided,
        "n": decision.n,
        "most": decision.most,
        "alpha": decision.alpha,
        "looks": [
            {"n": look.n, "spent": look.spent, "interval": _interval(look.interval), "p": list(look.p)}
            for look in decision.looks
        ],
    }


def _curve(curve: DoseResponse) -> dict[str, Any]:
    return {
        "unit": curve.unit,
        "gates": [
            {
                "gate": gate,
                "harm": _interval(curve.harm[number]),
                "p": float(curve.p[number]),
                "bend": _interval(curve.bend[number]),
            }
            for number, gate in enumerate(curve.gates)
        ],
    }


def _tokens(tokens: TokenHarms) -> dict[str, Any]:
    return {
        "unit": tokens.unit,
        "harm": tokens.harm,
        "n_sequences": tokens.n_sequences,
        "n_targets": tokens.n_targets,
        "top_share": tokens.top_share,
        "positions": tokens.positions,
        "by_position": [_group(group) for group in tokens.by_position],
        "by_kind": [_group(group) for group in tokens.by_kind],
        "by_history": [_group(group) for group in tokens.by_history],
        "worst": [
            {
                "sequence": each.sequence,
                "position": each.position,
                "before": list(each.before),
                "token": each.token,
                "clean": _number(each.clean),
                "harm": _number(each.harm),
            }
            for each in tokens.worst
        ],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "label": group.label,
        "n_targets": group.n_targets,
        "harm": _interval(group.harm),
        "share": group.share,
    }
