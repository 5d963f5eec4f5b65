"""An ablation's effect in words and as JSON. The numbers are interp's; this only says them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from torch import Tensor

from interp.effects import AblationEffect, Control, OutcomeEffect


def effect_in_words(effect: AblationEffect) -> str:
    """What was done, what it costs on each outcome, and what other sets of the same shape cost."""
    lines = [f"{effect.checkpoint}: {effect.places}", ""]
    lines += [_outcome_line(outcome, chosen=outcome.name == effect.metric) for outcome in effect.outcomes]
    lines += ["", _control_line(effect.control, effect.metric)]
    lines += [f"Means are over {source}." for source in effect.means]
    lines.append("* 95% bootstrap over sequences, paired; p by sign flips. Harm is ablated minus clean loss; nats.")
    return "\n".join(lines)


def effect_as_json(effect: AblationEffect) -> str:
    """The same as one object, every number in it."""
    derived = {"metric_harm": asdict(effect.harm), "beats_control": effect.control.is_beaten}
    return json.dumps(_plain(asdict(effect)) | derived, indent=1, allow_nan=False)


def _outcome_line(outcome: OutcomeEffect, *, chosen: bool) -> str:
    losses = f"{outcome.clean:.3f} -> {outcome.ablated:.3f}"
    mark = "*" if chosen else " "
    harm = outcome.harm
    return (
        f"{mark} {outcome.name:<16} {losses:>18}   harm {harm.mean:+.3f} [{harm.low:+.3f}, {harm.high:+.3f}], "
        f"n = {harm.n}, p = {outcome.p:.2g}   ({outcome.meaning})"
    )


def _control_line(control: Control, metric: str) -> str:
    if control.p is None:
        return f"There is {control.note}." if control.note.startswith("no") else control.note
    return (
        f"Control on {metric}: {control.note} cost {control.median:+.3f} (median), {control.largest:+.3f} at most; "
        f"p = {control.p:.2g}, of at best {control.smallest_p:.2g}. "
        f"{'The set stands out.' if control.is_beaten else 'The set does not stand out.'}"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
