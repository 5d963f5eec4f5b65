"""What the head ablations say, in sentences that stand alone and deny what was not found."""

from __future__ import annotations

from analyses.head_ablation import INTERVENTIONS, Result, SetAblation
from analyses.registry import Finding
from interp.places import Intervention, head
from interp.wording import control_phrase, harm_phrase, is_effect, nats, number, share_phrase, with_interval

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


def copies(result: Result) -> bool:
    """Whether the intact model predicts the second copy better than the first, by more than the floor."""
    return result.copying.low > result.config.floor


def _where(result: Result) -> str:
    return f"{result.run}@{result.step}, period {result.period}, n = {result.copying.n}, seed {result.config.seed}"


def _copying(result: Result) -> Finding:
    cost = f"the second copy of random tokens costs {number(result.single('copy_loss').clean)} nats"
    gain = with_interval(result.copying)
    if copies(result):
        return Finding(sentence=f"The model copies: {cost}, {gain} less than the first ({_where(result)}).", found=True)
    floor = f"{result.config.floor:g}"
    return Finding(
        sentence=f"The model does not copy: {cost}, not surely {floor} less than the first ({gain}; {_where(result)}).",
        found=False,
    )


def _single_heads(result: Result) -> Finding:
    """Heads that cost something alone: after Holm's correction, above the floor, and only where there is copying."""
    single, config = result.single("copy_loss"), result.config
    mean = single.harm.mean[_MEAN]
    matter = (single.p[_MEAN] < config.alpha) & (mean >= config.floor) & copies(result)
    layer, index = divmod(int(mean.argmax()), result.n_heads)
    top = f"{head(layer, index).label} costs most: {with_interval(single.harm[_MEAN, layer, index])} nats"
    n_heads = mean.numel()
    tail = f"when it is replaced by its mean ({_where(result)})."
    rule = f"by {config.floor:g} nats or more, Holm-corrected over {n_heads} heads at {config.alpha:g}"
    if not copies(result):
        return Finding(sentence=f"Without copying there is nothing for a head to carry; {top} {tail}", found=False)
    if not matter.any():
        return Finding(sentence=f"No head alone makes copying worse {rule}; {top} {tail}", found=False)
    share = single.share(_MEAN, layer, index)
    worth = "" if share is None else f", {share_phrase(share)},"
    verb = "makes" if int(matter.sum()) == 1 else "make"
    count = f"{int(matter.sum())} of {n_heads} heads"
    return Finding(sentence=f"Alone, {count} {verb} copying worse {rule}; {top}{worth} {tail}", found=True)


def _role(result: Result, role: str) -> Finding:
    ablated, noun = result.set_of(role), f"{role} head"
    if ablated is None:
        return Finding(sentence=_none_found(result, role), found=False)
    effect, floor = ablated.effect.effect, result.config.floor
    parts = [
        f"With {_named(ablated, noun)} replaced by the mean, {harm_phrase(effect, floor=floor)} ({_where(result)})",
        control_phrase(ablated.effect.control),
        *_beside(result, ablated),
    ]
    doubt = _doubt(result, ablated)
    return Finding(sentence="; ".join(parts) + "." + (f" {doubt}" if doubt else ""), found=doubt is None)


def _doubt(result: Result, ablated: SetAblation) -> str | None:
    """Why the set does not count as carrying the copying; None if it does."""
    effect = ablated.effect.effect
    which = "this head" if len(ablated.heads) == 1 else "these heads"
    if not copies(result):
        return "But the model does not copy, so this is no evidence of a copying circuit."
    if not is_effect(effect, result.config.floor) or effect.harm.mean < 0:
        return f"So copying does not rest on {which}."
    if ablated.effect.control.is_beaten is False:
        return f"Other sets cost as much, so the effect is not special to {which}."
    return None


def _named(ablated: SetAblation, noun: str) -> str:
    if len(ablated.heads) == 1:
        return f"the {noun} {ablated.heads[0]}"
    return f"the {len(ablated.heads)} {noun}s {', '.join(ablated.heads)} together"


def _beside(result: Result, ablated: SetAblation) -> list[str]:
    """Zero ablation, the scores on fresh sequences, and step 0."""
    parts = []
    zero = result.set_of(ablated.role, Intervention.ZERO)
    if zero is not None:
        parts.append(f"replaced by zero they cost {nats(zero.effect.effect)}")
    parts.append(_confirmed(result, ablated))
    if ablated.at_step_zero is not None:
        parts.append(f"at step 0 the same cost {nats(ablated.at_step_zero)}")
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


def _none_found(result: Result, role: str) -> str:
    roles, rule = result.discovery, result.config.rule
    scores = roles.induction if role == "induction" else roles.previous
    chance = roles.induction_chance if role == "induction" else roles.previous_chance
    layer, index = divmod(int(scores.argmax()), result.n_heads)
    needed = str(rule) if role == "induction" else f"a previous-token score of at least {rule.least_score:g}"
    return (
        f"No head is an {role} head by the rule ({needed}): the highest score is {float(scores[layer, index]):.2f}, of "
        f"{head(layer, index).label}, where chance is {chance:.3f} ({_where(result)}). So none was ablated as such."
    ).replace("an previous", "a previous")


def _selectivity(result: Result) -> list[Finding]:
    """Whether the induction heads cost text without repeats much less than copying."""
    ablated = result.set_of("induction")
    if ablated is None:
        return []
    effect, new = ablated.effect.effect, ablated.effect.new_token
    hurts = is_effect(effect, result.config.floor) and effect.harm.mean > 0 and copies(result)
    spared = hurts and new.harm.high < effect.harm.low / 4
    phrase = harm_phrase(new, floor=result.config.floor)
    whole = f"on all held-out text {nats(ablated.effect.text)}"
    verdict = "Text without repeats is spared" if spared else "That is not special to copying"
    tail = f"({result.run}@{result.step}, n = {new.harm.n}, seed {result.config.seed})"
    return [Finding(sentence=f"{verdict}: with the same heads ablated, {phrase}; {whole} {tail}.", found=spared)]
