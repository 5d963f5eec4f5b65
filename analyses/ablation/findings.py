"""What the head ablations say, in sentences that stand alone and deny what was not found.

What an interval leaves open is called not shown, and found is None; "not" alone is said, and found is False, only where
the whole interval speaks for it.
"""

from __future__ import annotations

from analyses.ablation.result import INTERVENTIONS, Result, SetAblation
from analyses.registry import Finding
from interp.effects import CONTROL_LEVEL, Control
from interp.places import Intervention, head
from interp.stats import Interval
from interp.wording import (
    control_phrase,
    harm_phrase,
    is_effect,
    nats,
    nothing_earlier,
    number,
    share_phrase,
    with_interval,
)

_MEAN = INTERVENTIONS.index(Intervention.MEAN)


def sentences(result: Result) -> list[Finding]:
    """Copying, single heads, the induction heads together, what else they cost, and the previous-token head."""
    return [
        _copying(result),
        _single_heads(result),
        _role(result, "induction"),
        *_selectivity(result),
        _role(result, "previous-token"),
    ]


def copies(result: Result) -> bool | None:
    """Whether the intact model predicts the second copy better than the first, by more than the floor.

    None where the interval holds the floor.
    """
    return result.copying.above(result.config.floor)


def _where(result: Result) -> str:
    return f"{result.run}@{result.step}, period {result.period}, n = {result.copying.n}, seed {result.config.seed}"


def _before(result: Result, start: Interval | None) -> str:
    """The same number at step 0, or why there is none."""
    if start is not None:
        return f"{with_interval(start)} at step 0"
    return nothing_earlier(result.step)


def _copying(result: Result) -> Finding:
    before = _before(result, None if result.at_step_zero is None else result.at_step_zero.copying)
    cost = f"the second copy of random tokens costs {number(result.single('copy_loss').clean)} nats"
    gain = with_interval(result.copying)
    less = f"{result.config.floor:g} less than the first ({gain}; {before}; {_where(result)})"
    found = copies(result)
    sentence = {
        True: f"The model copies: {cost}, {gain} less than the first ({before}; {_where(result)}).",
        False: f"The model does not copy: {cost}, not {less}.",
        None: f"That the model copies is not shown: {cost}, not surely {less}.",
    }[found]
    return Finding(sentence=sentence, found=found)


def _single_heads(result: Result) -> Finding:
    """Heads that cost something alone: after Holm's correction, above the floor, and only where there is copying.

    It is denied only where the whole interval of every head lies below the floor.
    """
    single, config = result.single("copy_loss"), result.config
    mean = single.harm.mean[_MEAN]
    matter = (single.p[_MEAN] < config.alpha) & (mean >= config.floor)
    layer, index = divmod(int(mean.argmax()), result.n_heads)
    start = None if result.at_step_zero is None else result.at_step_zero.single("copy_loss").harm[_MEAN, layer, index]
    before = _before(result, start)
    top = f"{head(layer, index).label} costs most: {with_interval(single.harm[_MEAN, layer, index])} nats ({before})"
    n_heads = mean.numel()
    tail = f"when it is replaced by its mean ({_where(result)})."
    rule = f"by {config.floor:g} nats or more, Holm-corrected over {n_heads} heads at {config.alpha:g}"
    if not copies(result):
        opening = "No head is said to carry copying, as the model is not shown to copy"
        return Finding(sentence=f"{opening}; {top} {tail}", found=copies(result))
    if not matter.any():
        none = bool((single.harm.high[_MEAN] < config.floor).all())
        verb = "makes" if none else "is shown to make"
        return Finding(
            sentence=f"No head alone {verb} copying worse {rule}; {top} {tail}", found=False if none else None
        )
    share = single.share(_MEAN, layer, index)
    worth = "" if share is None else f", {share_phrase(share)},"
    verb = "makes" if int(matter.sum()) == 1 else "make"
    count = f"{int(matter.sum())} of {n_heads} heads"
    return Finding(sentence=f"Alone, {count} {verb} copying worse {rule}; {top}{worth} {tail}", found=True)


def _role(result: Result, role: str) -> Finding:
    ablated, noun = result.set_of(role), f"{role} head"
    if ablated is None:
        return _none_found(result, role)
    effect, floor = ablated.effect.effect, result.config.floor
    parts = [
        f"With {_named(ablated, noun)} replaced by the mean, {harm_phrase(effect, floor=floor)} ({_where(result)})",
        control_phrase(ablated.effect.control),
        *_beside(result, ablated),
    ]
    found, verdict = _verdict(result, ablated)
    return Finding(sentence=" ".join(["; ".join(parts) + ".", *verdict]), found=found)


def _verdict(result: Result, ablated: SetAblation) -> tuple[bool | None, list[str]]:
    """Whether the set counts as carrying the copying, and what has to be said about that."""
    effect, control, floor = ablated.effect.effect, ablated.effect.control, result.config.floor
    if not copies(result):
        return copies(result), ["But the model is not shown to copy, so this is no evidence of a copying circuit."]
    if effect.harm.high < floor:
        return False, [f"So copying does not rest on {_which(ablated)}."]
    if not is_effect(effect, floor):
        return None, [f"So it is not shown that copying rests on {_which(ablated)}."]
    if control.is_beaten is False or control.is_exceeded is False:
        return False, [f"Other sets cost as much, so the effect is not shown to be special to {_which(ablated)}."]
    undecided = _undecided(control, _which(ablated))
    return True, [] if undecided is None else [undecided]


def _undecided(control: Control, which: str) -> str | None:
    """What the control leaves open about an effect; None if it decides."""
    if control.is_beaten is not None:
        return None
    if control.smallest_p is None:
        return f"Without a control, that the effect is special to {which} is not shown."
    return (
        f"The effect is larger than that of all {len(control.harm)} matched sets, but so few sets cannot decide at "
        f"{CONTROL_LEVEL:g} whether it is special to {which} (the smallest p is {control.smallest_p:.3g})."
    )


def _which(ablated: SetAblation) -> str:
    return "this head" if len(ablated.heads) == 1 else "these heads"


def _named(ablated: SetAblation, noun: str) -> str:
    if len(ablated.heads) == 1:
        return f"the {noun} {ablated.heads[0]}"
    return f"the {len(ablated.heads)} {noun}s {', '.join(ablated.heads)} together"


def _beside(result: Result, ablated: SetAblation) -> list[str]:
    """Zero ablation, the scores on fresh sequences, and step 0."""
    parts = []
    zero = result.set_of(ablated.role, Intervention.ZERO)
    if zero is not None:
        they = "it costs" if len(ablated.heads) == 1 else "they cost"
        parts.append(f"replaced by zero {they} {nats(zero.effect.harm)}")
    parts.append(_confirmed(result, ablated))
    if ablated.at_step_zero is not None:
        parts.append(f"at step 0 the same cost {nats(ablated.at_step_zero.harm)}")
    return parts


def _confirmed(result: Result, ablated: SetAblation) -> str:
    """The heads were found on other sequences; whether they pass on these too."""
    again = result.confirmation
    if ablated.role == "induction":
        labels = {head(*each).label for each in again.induction_heads}
    else:
        labels = set() if again.previous_head is None else {head(*again.previous_head).label}
    kept = sum(each in labels for each in ablated.heads)
    return f"found on {result.config.n_sequences} other sequences, {kept} of {len(ablated.heads)} pass again on these"


def _none_found(result: Result, role: str) -> Finding:
    """No head of the role; or, where the rule cannot decide, that this is not known."""
    roles, rule = result.discovery, result.config.rule
    scores = roles.induction if role == "induction" else roles.previous
    chance = roles.induction_chance if role == "induction" else roles.previous_chance
    layer, index = divmod(int(scores.argmax()), result.n_heads)
    needed = str(rule) if role == "induction" else f"a previous-token score of at least {rule.least_previous(chance):g}"
    highest = f"the highest score is {float(scores[layer, index]):.2f}, of {head(layer, index).label}"
    if role == "induction" and not rule.can_decide(chance):
        sentence = (
            f"Whether a head is an induction head cannot be told at so short a period: the rule asks for "
            f"{rule.times_chance:g} times chance, which is {rule.times_chance * chance:.2f} here, more than all of a "
            f"head's attention; {highest} ({_where(result)}). So none was ablated as such."
        )
        return Finding(sentence=sentence, found=None)
    sentence = (
        f"No head is {'an' if role == 'induction' else 'a'} {role} head by the rule ({needed}): {highest}, where "
        f"chance is {chance:.3f} ({_where(result)}). So none was ablated as such."
    )
    return Finding(sentence=sentence, found=False)


def _selectivity(result: Result) -> list[Finding]:
    """Whether what holds nothing to copy loses less than a quarter of what copying does without the induction heads."""
    ablated = result.set_of("induction")
    if ablated is None:
        return []
    effect, new = ablated.effect.effect, ablated.effect.new_token
    hurts = bool(copies(result)) and is_effect(effect, result.config.floor) and effect.harm.mean > 0
    spared = hurts and new.harm.high < effect.harm.low / 4
    as_much = hurts and new.harm.low > effect.harm.high / 4
    phrase = harm_phrase(new, floor=result.config.floor)
    whole = f"the {ablated.effect.text.meaning} changes by {nats(ablated.effect.text.harm)}"
    verdict = (
        "Text with nothing to copy loses less than a quarter of what copying loses"
        if spared
        else "That this is special to copying is not shown"
    )
    verdict = "This is not special to copying" if as_much else verdict
    tail = f"({result.run}@{result.step}, n = {new.harm.n}, seed {result.config.seed})"
    sentence = f"{verdict}: with the same heads ablated, {phrase}; {whole} {tail}."
    return [Finding(sentence=sentence, found=True if spared else False if as_much else None)]
