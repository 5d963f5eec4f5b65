"""What feeds the copying heads, in sentences that stand alone and deny what was not found.

What an interval leaves open is called not shown, and found is None; "not" alone is said, and found is False, only where
the whole interval speaks for it.
"""

from __future__ import annotations

import math

import torch

from analyses.head_circuits_result import COPY_LOSS, PATHS, Corruption, Estimated, Measured, Paths, Result, Weights
from analyses.registry import Finding
from interp.attribution_patching import Method
from interp.patching import Direction
from interp.paths import FFNs
from interp.places import head
from interp.wording import nats, nothing_earlier, number, with_interval

_K = PATHS.index("K")
_AGREES = 0.8
"""The rank correlation from which an estimate is said to order heads as the true effects do."""


def sentences(result: Result) -> list[Finding]:
    """The corruption, the previous-token head, the other heads, the weights, and the estimates."""
    return [_corruption(result), _feeding(result), *_others(result), *_weights(result), _estimates(result)]


def copies(result: Result) -> bool | None:
    """Whether another first copy makes copying worse by more than the floor; None where the interval holds it."""
    return result.gap.above(result.config.floor)


def _where(result: Result) -> str:
    return f"{result.run}@{result.step}, period {result.period}, n = {result.gap.n}, seed {result.config.seed}"


def _at_start(result: Result, said: str | None) -> str:
    """The same at step 0, or why there is nothing to say."""
    if said is not None:
        return f"{said} at step 0"
    return nothing_earlier(result.step)


def _corruption(result: Result) -> Finding:
    start = None if result.at_step_zero is None else with_interval(result.at_step_zero.gap)
    cost = f"the second copy costs {with_interval(result.clean)} nats"
    more = f"{with_interval(result.gap)} more when the first copy is another random segment"
    tail = f"({_at_start(result, start)}; {_where(result)})."
    found = copies(result)
    sentence = {
        True: f"There is copying to take apart: {cost}, and {more} {tail}",
        False: f"There is no copying to take apart: {cost}, and only {more} {tail}",
        None: f"That there is copying to take apart is not shown: {cost}, and {more} {tail}",
    }[found]
    return Finding(sentence=sentence, found=found)


def _feeding(result: Result) -> Finding:
    """Whether the previous-token head feeds the induction heads, and by which way."""
    paths = result.by(COPY_LOSS)
    if paths is None:
        return _nothing_patched(result)
    if not result.has_previous:
        return _no_previous(result, paths)
    found, verdict = _verdict(result, paths)
    ways = ", ".join(
        f"{way} {with_interval(paths.effect[0, column])}{_share(paths, column)}" for column, way in enumerate(PATHS)
    )
    parts = [
        f"{verdict}: what {result.senders[0]} writes replaced by {_replacement(result)} costs copying "
        f"{nats(paths.total[0])} where everything reads it, and by single ways {ways}",
        f"the K inputs leave {float(paths.unexplained[0, _K]):.0%} of the effect unexplained, sequence by sequence",
        _control(result, paths),
        _at_start(result, _paths_at_start(result)),
    ]
    return Finding(sentence=f"{'; '.join(parts)} ({_where(result)}; {_held(result)}).", found=found)


def _verdict(result: Result, paths: Paths) -> tuple[bool | None, str]:
    """Found: the effect is there, most of it goes through K, little of it another way, and no control does as much."""
    config, sender = result.config, f"the previous-token head {result.senders[0]}"
    receivers = _receivers(result)
    total, share = paths.total[0], paths.share[0, _K]
    if not copies(result):
        return copies(result), f"That {sender} feeds {receivers} is not said, as there is no copying shown"
    if total.high < config.floor:
        return False, f"{_upper(sender)} does not feed {receivers}"
    if total.low < config.floor:
        return None, f"That {sender} feeds {receivers} is not shown"
    if share.high < config.least_share:
        return False, f"{_upper(sender)} does not feed {receivers} {_through_keys(result)}"
    others_small = all(paths.share[0, column].high < config.least_share for column in range(len(PATHS)) if column != _K)
    leads = paths.lead is None or paths.lead[_K].low > 0
    if share.low < config.least_share or not others_small or not leads:
        return None, f"That {sender} feeds {receivers} {_through_keys(result)}, and more than other heads, is not shown"
    return True, f"{_upper(sender)} feeds {receivers} {_through_keys(result)}"


def _control(result: Result, paths: Paths) -> str:
    """The largest effect by the same way among the other senders."""
    if len(result.senders) == 1:
        return "there is no other head in an earlier layer to compare with"
    row = 1 + int(paths.effect.mean[1:, _K].argmax())
    lead = "" if paths.lead is None else f", {with_interval(paths.lead[_K])} less"
    several = len(result.senders) - 1
    left_out = result.n_senders - len(result.senders)
    of = f"{several} other {'head' if several == 1 else 'heads'} of earlier layers"
    of += f" ({left_out} more were not tried)" if left_out else ""
    return f"of {of}, {result.senders[row]} does most by K: {nats(paths.effect[row, _K])}{lead}"


def _paths_at_start(result: Result) -> str | None:
    start = None if result.at_step_zero is None else result.at_step_zero.by(COPY_LOSS)
    if start is None:
        return None
    return f"{with_interval(start.total[0])} by everything and {with_interval(start.effect[0, _K])} by K"


def _share(paths: Paths, column: int) -> str:
    share = paths.share[0, column]
    if not all(math.isfinite(end) for end in (share.mean, share.low, share.high)):
        return ""  # a total that may be nothing is no whole to have shares of
    return f" ({_percent(share.mean)} [{_percent(share.low)}, {_percent(share.high)}])"


def _percent(share: float) -> str:
    """Whole per cent; zero has no sign."""
    text = f"{share:.0%}"
    return "0%" if text == "-0%" else text


def _replacement(result: Result) -> str:
    if result.config.corruption is Corruption.REDRAWN:
        return "what it writes after another first copy"
    return "its mean over other sequences"


def _held(result: Result) -> str:
    """What was held fixed, and who reads along."""
    ffns = "frozen" if result.config.ffns is FFNs.FROZEN else "recomputed"
    verbs = ("shares", "reads") if len(result.shared) == 1 else ("share", "read")
    along = f"; {', '.join(result.shared)} {verbs[0]} keys and values with them and {verbs[1]} along"
    along = along if result.shared else ""
    return f"other heads held, FFNs in between {ffns}{along}"


def _receivers(result: Result) -> str:
    names = result.receivers
    if len(names) == 1:
        return f"the induction head {names[0]}"
    n_found = len(result.discovery.induction_heads)
    of = f"the {len(names)} strongest of {n_found}" if n_found > len(names) else f"the {n_found}"
    return f"{of} induction heads"


def _through_keys(result: Result) -> str:
    return f"through {'its' if len(result.receivers) == 1 else 'their'} keys"


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _nothing_patched(result: Result) -> Finding:
    """No path was patched: no induction head, none before it, or a stream that has no paths."""
    roles, rule = result.discovery, result.config.rule
    if result.receivers:
        said = f"No path into {_receivers(result)} was patched: {result.no_paths}".rstrip(".")
        return Finding(sentence=f"{said} ({_where(result)}).", found=None)
    layer, index = divmod(int(roles.induction.argmax()), result.n_heads)
    highest = f"the highest score is {float(roles.induction[layer, index]):.2f}, of {head(layer, index).label}"
    if not rule.can_decide(roles.induction_chance):
        sentence = (
            f"Whether a head is an induction head cannot be told at so short a period: the rule asks for "
            f"{rule.times_chance:g} times chance, which is {rule.times_chance * roles.induction_chance:.2f} here, more "
            f"than all of a head's attention; {highest} ({_where(result)}). So no path was patched."
        )
        return Finding(sentence=sentence, found=None)
    sentence = (
        f"No head is an induction head by the rule ({rule}): {highest}, where chance is "
        f"{roles.induction_chance:.3f} ({_where(result)}). So there is nothing to feed."
    )
    return Finding(sentence=sentence, found=False)


def _no_previous(result: Result, paths: Paths) -> Finding:
    """No head looks at the token before; what the strongest sender does is said, and not that it is one."""
    roles = result.discovery
    layer, index = divmod(int(roles.previous.argmax()), result.n_heads)
    by_k = paths.effect.mean[:, _K]
    row = int(by_k.argmax())
    where = "" if (layer, index) != roles.previous_head else ", which is in no layer before the induction heads"
    start = None if result.at_step_zero is None else result.at_step_zero.by(COPY_LOSS)
    before = _at_start(result, None if start is None else with_interval(start.effect[row, _K]))
    sentence = (
        f"No previous-token head feeds {_receivers(result)}: the highest previous-token score is "
        f"{float(roles.previous[layer, index]):.2f}, of {head(layer, index).label}{where}; chance is "
        f"{roles.previous_chance:.3f}. The head that does most {_through_keys(result)} is {result.senders[row]}: "
        f"{nats(paths.effect[row, _K])} ({before}; {_where(result)}; {_held(result)})."
    )
    return Finding(sentence=sentence, found=False)


def _others(result: Result) -> list[Finding]:
    """The control heads that move copying through the receivers' inputs, after Holm's correction."""
    paths, config = result.by(COPY_LOSS), result.config
    first = 1 if result.has_previous else 0
    if paths is None or len(result.senders) <= first or not copies(result):
        return []
    mean, p = paths.effect.mean[first:], paths.p[first:]
    feeds = (mean >= config.floor) & (p < config.alpha)
    feeds[:, PATHS.index("logits")] = False
    several = len(mean)
    rule = f"by {config.floor:g} nats or more through an input of {_receivers(result)}"
    rule += f", Holm-corrected at {config.alpha:g}"
    kind = "other heads of earlier layers" if several > 1 else "other head of earlier layers"
    before = _control_start(result, first)
    if not feeds.any():
        none = bool((paths.effect.high[first:, :3] < config.floor).all())
        moves = "moves" if none else "is shown to move"
        sentence = f"Of {several} {kind}, none {moves} copying {rule} ({before}; {_where(result)})."
        return [Finding(sentence=sentence, found=False if none else None)]
    rows = [int(row) for row in feeds.any(1).nonzero()[:, 0]]
    rows.sort(key=lambda row: -float(mean[row].max()))
    named = [_named(result, paths, first + row, feeds[row]) for row in rows[:4]]
    more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    sentence = (
        f"Of {several} {kind}, {len(rows)} also {'moves' if len(rows) == 1 else 'move'} copying {rule}: "
        f"{'; '.join(named)}{more} ({before}; {_where(result)})."
    )
    return [Finding(sentence=sentence, found=True)]


def _named(result: Result, paths: Paths, row: int, feeds: torch.Tensor) -> str:
    ways = [f"{PATHS[column]} {with_interval(paths.effect[row, column])}" for column in range(3) if bool(feeds[column])]
    return f"{result.senders[row]} by {' and '.join(ways)} of {with_interval(paths.total[row])} by everything"


def _control_start(result: Result, first: int) -> str:
    start = None if result.at_step_zero is None else result.at_step_zero.by(COPY_LOSS)
    largest = None if start is None else number(float(start.effect.mean[first:, :3].max()))
    return _at_start(result, None if largest is None else f"at most {largest}")


def _weights(result: Result) -> list[Finding]:
    """Whether the weights say the same: K-composition of the previous-token head with the receivers."""
    weights = result.weights
    if not result.senders or not result.has_previous:
        return []
    if weights is None:
        said = f"What the weights say is not known: {result.no_weights}".rstrip(".")
        return [Finding(sentence=f"{said} ({_where(result)}).", found=None)]
    there = ~weights.z[_K, 0].isnan()
    z, score, rank = (each[_K, 0][there] for each in (weights.z, weights.score, weights.rank))
    least, passing = result.config.least_z, int((z >= result.config.least_z).sum())
    found = True if passing == len(z) else False if not passing else None
    verdict = {
        True: f"The weights agree: {result.senders[0]} K-composes with {_receivers(result)}",
        False: f"The weights do not show it: {result.senders[0]} does not K-compose with {_receivers(result)}",
        None: f"The weights show it in part: {result.senders[0]} K-composes with {passing} of {len(z)} receivers",
    }[found]
    parts = [
        f"{verdict} by {least:g} standard deviations of the null ({result.config.null.value}) or more: z {_range(z)}, "
        f"score {_range(score)} where unrelated heads have {result.d_model**-0.5:.3f}, rank {int(rank.min()) + 1} of "
        f"{weights.n_pairs} pairs at best",
        f"by Q its z is {_range(weights.z[0, 0])}, by V {_range(weights.z[2, 0])}",
        _other_weights(result, weights),
        _at_start(result, _weights_at_start(result.at_step_zero)),
    ]
    rests = f"{result.run}@{result.step}, seed {result.config.seed}"
    return [Finding(sentence=f"{'; '.join(parts)} ({rests}).", found=found)]


def _other_weights(result: Result, weights: Weights) -> str:
    if len(result.senders) == 1:
        return "there is no other head in an earlier layer"
    others = weights.z[_K, 1:].nan_to_num(nan=-torch.inf)
    row, column = divmod(int(others.argmax()), others.shape[1])
    return f"of the other heads {result.senders[1 + row]} comes highest by K, z {number(float(others[row, column]))}"


def _weights_at_start(start: Measured | None) -> str | None:
    if start is None or start.weights is None:
        return None
    return f"z {_range(start.weights.z[_K, 0])} by K"


def _range(values: torch.Tensor) -> str:
    known = values[~values.isnan()]
    if not len(known):
        return "of no pair"
    low, high = number(float(known.min())), number(float(known.max()))
    return low if low == high else f"{low} to {high}"


def _estimates(result: Result) -> Finding:
    """Whether attribution patching stands in for true patching of heads' outputs; other places are in the table."""
    of_heads = {each: result.estimated("z", Method.LINEAR, each).agreement for each in Direction}
    agrees = [each.value for each, agreement in of_heads.items() if agreement.spearman >= _AGREES]
    found: bool | None = True if len(agrees) == len(of_heads) else None if agrees else False
    opening = {
        True: "Attribution patching orders the heads as true patching does",
        None: f"Attribution patching orders the heads as true patching does when {' '.join(agrees)}, not otherwise",
        False: "Attribution patching does not order the heads as true patching does",
    }[found]
    if not copies(result):
        found = copies(result)
        opening = "Whether attribution patching can be relied on is not said, as there is no copying shown"
    start = None if result.at_step_zero is None else _of_outputs(result.at_step_zero)
    first = result.estimates[0]
    layers = "one layer" if len(first.layers) == 1 else f"{len(first.layers)} layers"
    rests = f"{first.agreement.n} heads of {layers}, on the logit of the right token"
    sentence = (
        f"{opening}: Spearman for what they write is {_of_outputs(result)}, where {_AGREES:g} is asked for"
        f"{_least(result)} ({_at_start(result, start)}; {rests}; {_where(result)})."
    )
    return Finding(sentence=sentence, found=found)


def _of_outputs(measured: Measured) -> str:
    """The rank correlation at z, in either direction."""
    return " and ".join(
        f"{number(measured.estimated('z', Method.LINEAR, each).agreement.spearman)} {each.value}" for each in Direction
    )


def _least(result: Result) -> str:
    """The place whose order is told worst, and what is overlooked there."""
    known = [each for each in result.estimates if not math.isnan(each.agreement.spearman)]
    if not known:
        return ""
    worst = min(known, key=lambda each: each.agreement.spearman)
    agreement = worst.agreement
    return (
        f"; worst is {_place(worst)} {worst.direction.value}, {number(agreement.spearman)}, with "
        f"{len(agreement.missed)} of the {agreement.top} largest effects overlooked"
    )


def _place(each: Estimated) -> str:
    return f"{each.place} with the QK fix" if each.method is Method.QK_FIX else each.place
