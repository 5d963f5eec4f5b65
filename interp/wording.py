"""Effects in words, the same in the command, the report and the dashboard.

A sentence denies what was not found, and tells three cases apart: a change, evidence that there is none (the whole
interval is small), and no evidence either way.
"""

from __future__ import annotations

from interp.effect_parts import CONTROL_LEVEL, AblationEffect, Control, OutcomeEffect
from interp.sequential import Decision
from interp.stats import Interval


def effect_sentences(effect: AblationEffect, *, floor: float = 0.05) -> tuple[str, ...]:
    """What an ablation did, with n, seed and checkpoint, its control, its effect at step 0, and its effect on text.

    A harm whose interval holds zero, or that is smaller than `floor` (in its outcome's unit), is not called an effect;
    it is called none only where its whole interval is smaller.
    """
    n, seed = effect.harm.n, effect.seed
    where = f"{effect.checkpoint}, n = {n} sequences, seed {seed}"
    lines = [f"With {effect.ablation} ablated, {harm_phrase(effect.effect, floor=floor)} ({where})."]
    if effect.decision is not None:
        lines.append(decision_sentence(effect.decision, effect.effect.unit))
    lines.append(f"Control: {control_phrase(effect.control, effect.effect.unit)}.")
    start = effect.at_start(effect.metric)
    if start is not None:
        lines.append(f"At step 0 the same ablation costs {amount(start.harm, start.unit)} (n = {start.harm.n}).")
    for name, opening in (("text_loss", "At the same time "), ("new_token_loss", "And ")):
        if effect.has(name) and name != effect.metric:
            beside = effect.on(name)
            lines.append(f"{opening}{harm_phrase(beside, floor=floor)} (n = {beside.harm.n}).")
    if effect.sources:
        lines.append(f"Replacements: {'; '.join(effect.sources)}.")
    return (*lines, *effect.notes)


def decision_sentence(decision: Decision, unit: str) -> str:
    """After how many sequences a harm was told from its bounds, or that it was not."""
    bounds = " and ".join(f"{bound:g}" for bound in decision.bounds)
    what = f"the side of {bounds} {unit}"
    chance = f"each look has its share of an error of {decision.alpha:g}"
    times = f"{len(decision.looks)} {'look' if len(decision.looks) == 1 else 'looks'}"
    if decision.is_decided:
        of_most = f"{decision.n} of {decision.most} sequences"
        return f"Decided: {what} was known after {of_most} ({times}; {chance})."
    return f"Not decided: {what} is not known after all {decision.most} sequences ({times}; {chance})."


def is_effect(outcome: OutcomeEffect, floor: float) -> bool:
    """Whether the interval leaves out zero and the mean is at least `floor`, in either direction."""
    return outcome.harm.excludes(0.0) and abs(outcome.harm.mean) >= floor


def harm_phrase(outcome: OutcomeEffect, *, floor: float) -> str:
    """As in "the loss on held-out text rises by 0.61 nats [0.55, 0.66], from 1.20 to 1.81".

    A fall is given as its size; what is neither rise nor fall keeps its sign.
    """
    harm, unit = outcome.harm, outcome.unit
    if harm.within(floor):
        return f"the {outcome.meaning} does not change by {floor:g} {unit} or more: {_change(outcome)}"
    if not is_effect(outcome, floor):
        return f"no change of the {outcome.meaning} by {floor:g} {unit} or more could be shown: {_change(outcome)}"
    rises = (harm.mean > 0) is outcome.lower_is_better
    ends = (harm.mean, harm.low, harm.high) if harm.mean > 0 else (-harm.mean, -harm.high, -harm.low)
    size = f"{'rises' if rises else 'falls'} by {_amount(*ends, unit)}"
    phrase = f"the {outcome.meaning} {size}, from {outcome.clean:.2f} to {outcome.ablated:.2f}"
    return phrase + ("" if outcome.share is None else f" ({share_phrase(outcome.share)})")


def _change(outcome: OutcomeEffect) -> str:
    """How much more or less there is of it, with its sign."""
    harm = outcome.harm
    ends = (harm.mean, harm.low, harm.high) if outcome.lower_is_better else (-harm.mean, -harm.high, -harm.low)
    return _amount(*ends, outcome.unit)


def nats(harm: Interval) -> str:
    """A harm with its sign and its interval, such as "0.61 nats [0.55, 0.66]"."""
    return amount(harm, "nats")


def amount(harm: Interval, unit: str) -> str:
    """A number with its unit, its sign and its interval, such as "0.61 nats [0.55, 0.66]"."""
    return _amount(harm.mean, harm.low, harm.high, unit)


def _amount(mean: float, low: float, high: float, unit: str) -> str:
    return f"{number(mean)} {unit} [{number(low)}, {number(high)}]"


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


def control_phrase(control: Control, unit: str = "nats") -> str:
    """How matched sets fared, and whether they can decide anything; or why there are none."""
    if control.p is None or control.median is None or control.largest is None:
        return control.note
    return (
        f"{control.note} cost {number(control.median)} {unit} (median) and at most {number(control.largest)}"
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
