"""Effects in words, the same in the command, the report and the dashboard.

A sentence denies what was not found, and tells three cases apart: a change, evidence that there is none (the whole
interval is small), and no evidence either way.
"""

from __future__ import annotations

import math

from interp.effect_parts import CONTROL_LEVEL, AblationEffect, Control, OutcomeEffect
from interp.intervention_kinds import Intervention
from interp.places import PlaceKind
from interp.sequential import Decision
from interp.stats import Interval, smallest_sign_flip_p

FLOOR = 0.05
"""The change that matters where nobody says otherwise, in the outcome's unit."""


def effect_sentences(effect: AblationEffect, *, floor: float = FLOOR) -> tuple[str, ...]:
    """What an ablation did, with n, seed and checkpoint, its controls, and its effect at step 0 and on text.

    `floor` is the change that matters, in the metric's unit. It is held against outcomes in that unit on the same
    sequences only; others have `FLOOR`. A change that is surely there is said with its size, be it smaller or not; none
    is said to be there only where the whole interval is smaller and holds zero.
    """
    asked = effect.effect
    about = [effect.checkpoint, f"n = {asked.harm.n} sequences", f"seed {effect.seed}", _level(asked.harm)]
    about += [] if asked.name.endswith("_kl") else [f"{_sign_flip_phrase(effect)} by sign flips"]
    done = "ablated" if effect.ablation.removes else "in force"
    lines = [f"With {effect.ablation} {done}, {harm_phrase(asked, floor=floor)} ({', '.join(about)})."]
    if effect.decision is not None:
        lines.append(decision_sentence(effect.decision, asked.unit))
    lines.append(_control_sentence(effect))
    start = effect.at_start(effect.metric)
    if start is not None:
        same = "the same ablation" if effect.ablation.removes else "the same"
        lines.append(f"At step 0 {same} costs {amount(start.harm, start.unit)} ({_at_start(effect, start)}).")
    for name, opening in _BESIDE:
        if effect.has(name) and name != effect.metric:
            beside = effect.on(name)
            phrase = harm_phrase(beside, floor=floor if _alike(beside, asked) else FLOOR)
            lines.append(f"{opening} {phrase} ({_sequences(beside, asked)}).")
    if effect.sources:
        lines.append(f"Replacements: {'; '.join(effect.sources)}.")
    return (*lines, *effect.notes)


def _sign_flip_phrase(effect: AblationEffect) -> str:
    """The p of the metric's harm; after several looks it was multiplied by alpha over what its look may spend."""
    asked, decision = effect.effect, effect.decision
    times = 1.0 if decision is None else decision.alpha / decision.last.spent
    return p_phrase(asked.p, times * smallest_sign_flip_p(asked.harm.n), ".2g")


_BESIDE = (
    ("text_loss", "At the same time"),
    ("new_token_loss", "Second control, where nothing can be copied:"),
)


def _level(harm: Interval) -> str:
    return f"{100 * harm.level:.4g}% intervals"


def _alike(beside: OutcomeEffect, asked: OutcomeEffect) -> bool:
    """Whether a bound on one is a bound on the other: the same unit, and both on text."""
    on_text = {"text_loss", "new_token_loss", "icl_score"}
    return beside.unit == asked.unit and {beside.name, asked.name} <= on_text


def _sequences(beside: OutcomeEffect, asked: OutcomeEffect) -> str:
    """How many sequences, why it is another number than that of the metric, and the level where it is another."""
    n = beside.harm.n
    why = ", half of the held-out rows, as the other half gives the replacements" if n < asked.harm.n else ""
    level = "" if beside.harm.level == asked.harm.level else f", {_level(beside.harm)}"
    return f"n = {n}{why}{level}"


def _at_start(effect: AblationEffect, start: OutcomeEffect) -> str:
    n = f"n = {start.harm.n}"
    fixed = "" if start.harm.n == effect.harm.n else ", fixed beforehand"
    level = "" if start.harm.level == effect.harm.level else f", {_level(start.harm)}"
    fitted = "; constants fitted anew there" if effect.ablation.takes(Intervention.OPTIMAL) else ""
    return n + fixed + level + fitted


def _control_sentence(effect: AblationEffect) -> str:
    phrase = control_phrase(effect.control, effect.effect.unit, noun=_noun(effect))
    if effect.control.p is None:
        return f"{phrase[:1].upper()}{phrase[1:]}."
    return f"Control: {phrase}{_elsewhere(effect)}."


def _noun(effect: AblationEffect) -> str:
    """What is ablated, in the plural."""
    nouns = {PlaceKind.MEMORY: "memories", PlaceKind.HEAD: "heads"}
    kinds = {place.kind for place in effect.ablation.places}
    return nouns.get(effect.ablation.places[0].kind, "") if len(kinds) == 1 else "components"


def decision_sentence(decision: Decision, unit: str) -> str:
    """After how many sequences a harm was told from its bounds, or that it was not."""
    bounds = " and ".join(f"{bound:g}" for bound in decision.bounds)
    what = f"the side of {bounds} {unit}"
    chance = f"each look has its share of an error of {decision.alpha:g}"
    times = f"{len(decision.looks)} {'look' if len(decision.looks) == 1 else 'looks'}"
    if not decision.is_decided:
        return f"Not decided: {what} is not known after all {decision.most} sequences ({times}; {chance})."
    of_most = f"all {decision.n}" if decision.n == decision.most else f"{decision.n} of {decision.most}"
    return f"Decided: {what} was known after {of_most} sequences ({times}; {chance})."


def is_effect(outcome: OutcomeEffect, floor: float) -> bool:
    """Whether the interval leaves out zero and the mean is at least `floor`, in either direction."""
    return outcome.harm.excludes(0.0) and abs(outcome.harm.mean) >= floor


def harm_phrase(outcome: OutcomeEffect, *, floor: float) -> str:
    """As in "the loss on held-out text rises by 0.61 nats [0.55, 0.66], from 1.20 to 1.81".

    A fall is given as its size, and what is less than `floor` is said to be; what may be neither rise nor fall keeps
    its sign.
    """
    harm, unit = outcome.harm, outcome.unit
    decimals = len(fine(harm.mean, harm.low, harm.high)[0].partition(".")[2])
    clean, ablated = (fine(each, decimals=decimals)[0] for each in (outcome.clean, outcome.ablated))
    ends = f", from {clean} to {ablated}{_share(outcome)}"
    if not harm.excludes(0.0):
        none = f"the {outcome.meaning} does not change by {floor:g} {unit} or more"
        open_ = f"no change of the {outcome.meaning} by {floor:g} {unit} or more could be shown"
        return f"{none if harm.within(floor) else open_}: {_change(outcome)}{ends}"
    rises = (harm.mean > 0) is outcome.lower_is_better
    size = (harm.mean, harm.low, harm.high) if harm.mean > 0 else (-harm.mean, -harm.high, -harm.low)
    less = f", less than the {floor:g} that matters" if harm.within(floor) else ""
    if not less and abs(harm.mean) < floor:
        less = f", not shown to reach the {floor:g} that matters"
    return f"the {outcome.meaning} {'rises' if rises else 'falls'} by {_amount(*size, unit)}{less}{ends}"


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
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{fine(mean)[0]} {unit} (no interval)"
    mean_, *ends = fine(mean, low, high)
    return f"{mean_} {unit} [{', '.join(ends)}]"


def with_interval(interval: Interval) -> str:
    """A mean with its interval, such as "0.61 [0.55, 0.66]"."""
    if not has_ends(interval):
        return f"{number(interval.mean)} (no interval)"
    return f"{number(interval.mean)} [{number(interval.low)}, {number(interval.high)}]"


def has_ends(interval: Interval) -> bool:
    """Whether an interval says anything: that of a share has no ends where its whole may be nothing."""
    return math.isfinite(interval.low) and math.isfinite(interval.high)


NO_ENDS = "no interval: what it is a share of may be nothing"


def p_phrase(p: float, smallest: float, spec: str = ".3g") -> str:
    """As in "p = 0.03"; "p <= 0.0001" where no smaller one can come out, however large the effect.

    >>> p_phrase(0.03, 0.0001), p_phrase(0.0001, 0.0001)
    ('p = 0.03', 'p <= 0.0001')
    """
    return f"p {'<=' if p <= smallest * (1 + 1e-9) else '='} {p:{spec}}"


def number(value: float) -> str:
    """Two decimals; zero has no sign.

    >>> number(-0.001), number(-0.01)
    ('0.00', '-0.01')
    """
    text = f"{value:.2f}"
    return text.removeprefix("-") if float(text) == 0 else text


def fine(mean: float, low: float | None = None, high: float | None = None, *, decimals: int = 2) -> tuple[str, ...]:
    """A number, or a mean with its ends: two decimals, and more where a small effect that is surely there would read 0.

    >>> fine(0.014), fine(-0.0042), fine(-1e-9)
    (('0.01',), ('-0.004',), ('0.00',))
    >>> fine(0.0008, 0.0002, 0.0014), fine(0.0001, -0.2, 0.2)
    (('0.0008', '0.0002', '0.0014'), ('0.00', '-0.20', '0.20'))
    """
    values = [mean] if low is None or high is None else [mean, low, high]
    shown = max(abs(values[0]), *((abs(values[-1] - values[1]) / 2,) if len(values) > 1 else (0.0,)))
    least = min(map(abs, values)) if min(values) > 0 or max(values) < 0 else shown
    if _ROUNDING < least < 0.5 * 0.1**decimals:
        decimals = -math.floor(math.log10(least))
    texts = (f"{value:.{decimals}f}" for value in values)
    return tuple(text if float(text) else text.removeprefix("-") for text in texts)


_ROUNDING = 1e-6
"""What is no larger is left of adding up in another order."""


def nothing_earlier(step: int) -> str:
    """Why no number of step 0 stands beside that of this step."""
    return "nothing earlier, this being step 0" if step == 0 else "no step 0, which this run does not have"


def share_phrase(share: Interval) -> str:
    """As in "14% [12%, 15%] of the model's advantage over token frequencies"; a fall that is surely there as its size.

    >>> share_phrase(Interval(mean=0.14, low=0.12, high=0.15, n=8, level=0.95, method="bca"))
    "14% [12%, 15%] of the model's advantage over token frequencies"
    """
    if not has_ends(share):
        mean, *_ = fine(100 * share.mean, decimals=int(abs(share.mean) < 0.1))
        return f"{mean}% of the model's advantage over token frequencies ({NO_ENDS})"
    mean, ends, more = _percents(share, sign=-1 if share.high < 0 else 1)
    return f"{mean} [{ends}] of the model's advantage over token frequencies{more}"


def _share(outcome: OutcomeEffect) -> str:
    """The same with its interval and the advantage: " (14% [12%, 15%] of the model's advantage of 5.4 nats over ...)".

    What may be neither rise nor fall keeps its sign here as well.
    """
    share = outcome.share_interval
    if share is None or outcome.scale is None:
        return ""
    sign = -1 if share.mean < 0 and outcome.harm.excludes(0.0) else 1
    advantage = f"advantage of {number(outcome.scale - outcome.clean)} {outcome.unit} over token frequencies"
    if not has_ends(share):
        mean, *_ = fine(100 * sign * share.mean, decimals=int(abs(share.mean) < 0.1))
        return f" ({mean}% of the model's {advantage}, {NO_ENDS})"
    mean, ends, more = _percents(share, sign=sign)
    return f" ({mean} [{ends}] of the model's {advantage}{more})"


def _percents(share: Interval, *, sign: int) -> tuple[str, str, str]:
    """The mean and the ends of `sign` times a share, and what is added where it is more than the whole."""
    ends = sorted((sign * share.low, sign * share.high))
    mean, *within = fine(100 * sign * share.mean, *(100 * end for end in ends), decimals=int(abs(share.mean) < 0.1))
    more = ", more than all of it" if sign * share.mean > 1 else ""
    return f"{mean}%", ", ".join(f"{end}%" for end in within), more


def control_phrase(control: Control, unit: str = "nats", *, noun: str = "heads") -> str:
    """How matched sets fared, and whether they can decide anything; or why there are none."""
    if control.p is None or control.median is None or control.largest is None or control.smallest_p is None:
        return control.note
    verb, (median, sets_do) = _direction(control)[1], _sized(control.median)
    return (
        f"{control.note} {sets_do} {median} {unit} (median) and {_at_most(control, control.largest, sets_do)}"
        f"{_disjoint(control, noun)} ({p_phrase(control.p, control.smallest_p)}, "
        f"the share of sets that {verb} at least as much, this one counted{_smallest(control)})"
    )


def shared_phrase(effect: AblationEffect) -> str:
    """How many of the matched sets hold some of what was ablated, as "12 of them share heads with it"; else empty."""
    n = int((effect.control.shared > 0).sum())
    return f"{n} of them {'shares' if n == 1 else 'share'} {_noun(effect)} with it" if n else ""


def _sized(harm: float) -> tuple[str, str]:
    """The size of a harm and what sets do that have it: they cost, or gain, that much."""
    size = fine(abs(harm))[0]
    return size, "gain" if harm < 0 and float(size) else "cost"


def _at_most(control: Control, harm: float, said: str) -> str:
    """How far the sets go at the end that p is about; `said` is the verb that stands before."""
    verb, (size, sets_do) = _direction(control)[1], _sized(harm)
    sets_do = sets_do if float(size) else verb
    return f"{'' if sets_do == said else f'{sets_do} '}{'at most' if sets_do == verb else 'at least'} {size}"


def _direction(control: Control) -> tuple[int, str]:
    """What a harm is multiplied by, and what sets do: they cost, or gain where the ablated set is a gain."""
    return (-1, "gain") if control.gains else (1, "cost")


def _elsewhere(effect: AblationEffect) -> str:
    """On how many sequences the sets were tried, where the harm itself chose another number."""
    control = effect.control
    if control.own is None or control.n == effect.harm.n:
        return ""
    sign, verb = _direction(control)
    own = f"{verb}s {fine(sign * control.own)[0]} {effect.effect.unit}"
    return f", on {control.n} sequences, fixed beforehand, where the ablated set {own}"


def _smallest(control: Control) -> str:
    """What so many sets allow, where that is what p is, or where it decides nothing."""
    n = len(control.harm)
    if control.is_beaten is None:
        allowed = f"{n} {'allows' if n == 1 else 'allow'} no p below {control.smallest_p:.3g}"
        return f"; {allowed}, too few to decide at {CONTROL_LEVEL:g}"
    return f"; the smallest that {n} allow" if control.is_exceeded else ""


def _disjoint(control: Control, noun: str) -> str:
    """Where some sets share components with the ablated one: how many share none, and what those cost."""
    (sign, verb), apart = _direction(control), control.harm[control.shared == 0]
    if not 0 < len(apart) < len(control.harm):
        return ""
    sets = "the one set that contains" if len(apart) == 1 else f"the {len(apart)} sets that contain"
    return f", {sets} none of these {noun} {_at_most(control, sign * float((sign * apart).max()), verb)}"
