"""Effects in words, the same in the command, the report and the dashboard.

A sentence denies what was not found, and tells three cases apart: a change, evidence that there is none (the whole
interval is small), and no evidence either way.
"""

from __future__ import annotations

from interp.effects import CONTROL_LEVEL, AblationEffect, Control, OutcomeEffect
from interp.stats import Interval


def effect_sentences(effect: AblationEffect, *, floor: float = 0.05) -> tuple[str, ...]:
    """What an ablation did, with n, seed and checkpoint, its control, and its effect on text.

    A harm whose interval holds zero, or that is smaller than `floor` nats, is not called an effect; it is called none
    only where its whole interval is smaller.
    """
    n, seed = effect.harm.n, effect.seed
    where = f"{effect.checkpoint}, n = {n} sequences, seed {seed}"
    lines = [f"With {effect.places} ablated, {harm_phrase(effect.effect, floor=floor)} ({where})."]
    lines.append(f"Control: {control_phrase(effect.control)}.")
    if effect.metric != "text_loss":
        lines.append(f"At the same time {harm_phrase(effect.text, floor=floor)} (n = {effect.text.harm.n}).")
    if effect.metric != "new_token_loss":
        lines.append(f"And {harm_phrase(effect.new_token, floor=floor)} (n = {effect.new_token.harm.n}).")
    if effect.means:
        lines.append(f"Means come from {' and '.join(effect.means)}.")
    return tuple(lines)


def is_effect(outcome: OutcomeEffect, floor: float) -> bool:
    """Whether the interval leaves out zero and the mean is at least `floor` nats, in either direction."""
    return outcome.harm.excludes(0.0) and abs(outcome.harm.mean) >= floor


def harm_phrase(outcome: OutcomeEffect, *, floor: float) -> str:
    """As in "the loss on held-out text rises by 0.61 nats [0.55, 0.66], from 1.20 to 1.81".

    A fall is given as its size; what is neither rise nor fall keeps its sign.
    """
    harm = outcome.harm
    if harm.within(floor):
        return f"the {outcome.meaning} does not change by {floor:g} nats or more: {nats(harm)}"
    if not is_effect(outcome, floor):
        return f"no change of the {outcome.meaning} by {floor:g} nats or more could be shown: {nats(harm)}"
    size = f"rises by {nats(harm)}" if harm.mean > 0 else f"falls by {_nats(-harm.mean, -harm.high, -harm.low)}"
    phrase = f"the {outcome.meaning} {size}, from {outcome.clean:.2f} to {outcome.ablated:.2f}"
    return phrase + ("" if outcome.share is None else f" ({share_phrase(outcome.share)})")


def nats(harm: Interval) -> str:
    """A harm with its sign and its interval, such as "0.61 nats [0.55, 0.66]"."""
    return _nats(harm.mean, harm.low, harm.high)


def _nats(mean: float, low: float, high: float) -> str:
    return f"{number(mean)} nats [{number(low)}, {number(high)}]"


def with_interval(interval: Interval) -> str:
    """A mean with its interval, such as "0.61 [0.55, 0.66]"."""
    return f"{number(interval.mean)} [{number(interval.low)}, {number(interval.high)}]"


def number(value: float) -> str:
    """Two decimals; zero has no sign.

    >>> number(-0.001), number(-0.01)
    ('0.00', '-0.01')
    """
    text = f"{value:.2f}"
    return text.removeprefix("-") if float(text) == 0 else text


def nothing_earlier(step: int) -> str:
    """Why no number of step 0 stands beside that of this step."""
    return "nothing earlier, this being step 0" if step == 0 else "no step 0, which this run does not have"


def share_phrase(share: float) -> str:
    """As in "14% of the model's advantage over token frequencies"."""
    if abs(share) > 1:
        return "more than the model's whole advantage over token frequencies"
    return f"{abs(share):.0%} of the model's advantage over token frequencies"


def control_phrase(control: Control) -> str:
    """How matched sets fared, and whether they can decide anything; or why there are none."""
    if control.p is None or control.median is None or control.largest is None:
        return control.note
    return (
        f"{control.note} cost {number(control.median)} nats (median) and at most {number(control.largest)}"
        f"{_disjoint(control)} (p = {control.p:.3g}{_smallest(control)})"
    )


def _smallest(control: Control) -> str:
    """What so many sets allow, where that is what p is, or where it decides nothing."""
    n = len(control.harm)
    if control.is_beaten is None:
        allowed = f"{n} {'allows' if n == 1 else 'allow'} no p below {control.smallest_p:.3g}"
        return f"; {allowed}, too few to decide at {CONTROL_LEVEL:g}"
    return f", the smallest that {n} allow" if control.is_exceeded else ""


def _disjoint(control: Control) -> str:
    """Where some sets share components with the ablated one: what those cost that share none."""
    apart = control.harm[control.shared == 0]
    return (
        f", those that share none of these {number(float(apart.max()))}" if 0 < len(apart) < len(control.harm) else ""
    )
