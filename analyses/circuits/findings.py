"""What feeds the copying heads, in sentences that stand alone and deny what was not found.

What an interval leaves open is called not shown, and found is None; "not" alone is said, and found is False, only where
the whole interval speaks for it.
"""

from __future__ import annotations

import math

import torch

from analyses.circuits.result import (
    COPY_LOSS,
    MIN_PLACES,
    PATHS,
    Corruption,
    Estimated,
    Measured,
    Paths,
    Result,
    Weights,
)
from analyses.registry import Finding
from interp.attribution_patching import Method
from interp.composition import Null
from interp.patching import Direction
from interp.paths import FFNs, Input
from interp.places import head
from interp.wording import nats, nothing_earlier, number, with_interval

_K = PATHS.index("K")
_UNTOLD = "at a period that training showed, a learned distance cannot be told from finding the earlier copy"
_BELOW = 2.0
"""So many standard deviations below its null, a writer is called less read than that."""
_AGREES = 0.8
"""The rank correlation from which an estimate is said to order heads as the true effects do."""


def sentences(result: Result) -> list[Finding]:
    """The corruption, the previous-token head, the other heads, the weights, and the estimates."""
    return [_corruption(result), _feeding(result), *_others(result), *_weights(result), *_estimates(result)]


def copies(result: Result) -> bool | None:
    """Whether the second copy is told better than by chance, and by the match: all three by more than the floor.

    Another first copy takes its tokens away with the match; the same tokens in another order take the match alone.
    None where an interval leaves one of them open.
    """
    floor = result.config.floor
    known = result.clean.above(result.chance - floor)
    asked = (None if known is None else not known, result.gap.above(floor), result.gap_reordered.above(floor))
    if False in asked:
        return False
    return None if None in asked else True


def _where(result: Result) -> str:
    known = result.trained_periods
    trained = f" ({'among' if result.trained else 'outside'} training's {known[0]} to {known[1]})" if known else ""
    return f"{result.run}@{result.step}, period {result.period}{trained}, n = {result.gap.n}, seed {result.config.seed}"


def _at_start(result: Result, said: str | None) -> str:
    """The same at step 0, or why there is nothing to say."""
    if said is not None:
        return f"{said} at step 0"
    return nothing_earlier(result.step)


def _corruption(result: Result) -> Finding:
    found, start = copies(result), None if result.at_step_zero is None else _more(result.at_step_zero)
    opening = {
        True: "There is copying to take apart",
        False: "There is no copying to take apart",
        None: "That there is copying to take apart is not shown",
    }[found]
    sentence = (
        f"{opening}: the second copy costs {with_interval(result.clean)} nats, where a uniform guess costs "
        f"{number(result.chance)}; with the first copy re-ordered it costs {_more(result)} with another random segment "
        f"({_at_start(result, start)}; {_where(result)})."
    )
    return Finding(sentence=sentence, found=found)


def _more(measured: Measured) -> str:
    return f"{with_interval(measured.gap_reordered)} more, and {with_interval(measured.gap)} more"


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
        return None, f"That {sender} feeds {receivers} is not said, as there is no copying shown"
    if result.trained:
        return None, f"That {sender} feeds induction heads is not said: {_UNTOLD}"
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
    if result.trained:  # no head has the name there
        several = f"the {len(names)} heads that attend to the token after the earlier copy"
        return names[0] if len(names) == 1 else several
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
    effect, p = paths.effect, paths.p[first:]
    feeds = (effect.low[first:] >= config.floor) & (p < config.alpha)
    feeds[:, PATHS.index("logits")] = False
    mean, several = effect.mean[first:], len(p)
    rule = f"by {config.floor:g} nats or more through an input of {_receivers(result)}"
    rule += f", Holm-corrected at {config.alpha:g} over {len(result.senders)} senders and {len(Input)} inputs"
    kind = "other heads of earlier layers" if several > 1 else "other head of earlier layers"
    before = _control_start(result, first)
    none = bool((effect.high[first:, : len(Input)] < config.floor).all())
    if result.smallest_p >= config.alpha and not none:
        return [Finding(sentence=_too_few(result, f"{several} {kind}", before), found=None)]
    if not feeds.any():
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


def _too_few(result: Result, heads: str, before: str) -> str:
    """Why no head can be shown to do anything, however much it does."""
    paths, first = result.by(COPY_LOSS), 1 if result.has_previous else 0
    largest = math.nan if paths is None else float(paths.effect.mean[first:, : len(Input)].max())
    several = len(result.senders) * len(Input)
    return (
        f"Whether any of {heads} moves copying cannot be told: {result.gap.n} sequences are too few for any p below "
        f"{result.config.alpha:g}, as their smallest is {result.smallest_p:.2g} when corrected over {several} effects; "
        f"the largest effect by one input is {number(largest)} nats ({before}; {_where(result)}). Give more "
        "n_sequences."
    )


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
        *(f"by {each.name} its z is {_range(z)}{_read_less(result, z)}" for each, z in _not_by_keys(weights)),
        _other_weights(result, weights),
        _at_start(result, _weights_at_start(result.at_step_zero)),
    ]
    rests = f"{result.run}@{result.step}, seed {result.config.seed}"
    return [Finding(sentence=f"{'; '.join(parts)} ({rests}).", found=found)]


def _other_weights(result: Result, weights: Weights) -> str:
    if len(result.senders) == 1:
        return "there is no other head in an earlier layer"
    others = weights.z[_K, 1:].nan_to_num(nan=-torch.inf)
    if not bool(others.isfinite().any()):
        return "the other heads' composition is not defined"
    row, column = divmod(int(others.argmax()), others.shape[1])
    return f"of the other heads {result.senders[1 + row]} comes highest by K, z {number(float(others[row, column]))}"


def _weights_at_start(start: Measured | None) -> str | None:
    if start is None or start.weights is None:
        return None
    return f"z {_range(start.weights.z[_K, 0])} by K"


def _not_by_keys(weights: Weights) -> list[tuple[Input, torch.Tensor]]:
    """The first sender's z by the other inputs."""
    return [(each, weights.z[place, 0]) for place, each in enumerate(Input) if each is not Input.K]


_OF_NULL = {
    Null.ROTATION: "the same writer turned at random",
    Null.GAUSSIAN: "random weights",
}
"""What a score below the null is less than."""


def _read_less(result: Result, z: torch.Tensor) -> str:
    """What a z far below the null means, where all are."""
    known = z[~z.isnan()]
    if not len(known) or float(known.max()) > -_BELOW:
        return ""
    return f", less than {_OF_NULL[result.config.null]}: not read there"


def _range(values: torch.Tensor) -> str:
    known = values[~values.isnan()]
    if not len(known):
        return "of no pair"
    low, high = number(float(known.min())), number(float(known.max()))
    return low if low == high else f"{low} to {high}"


def _estimates(result: Result) -> list[Finding]:
    """Whether attribution patching stands in for true patching, one finding for each direction."""
    return [_estimates_when(result, direction) for direction in Direction]


def _estimates_when(result: Result, direction: Direction) -> Finding:
    """Affirmed where every place passes, denied where none can, and else each place is told with what it is."""
    here = [each for each in result.estimates if each.direction is direction]
    start = None if result.at_step_zero is None else result.at_step_zero.estimated("z", Method.LINEAR, direction)
    before = _at_start(result, None if start is None else f"z {_spearman(start)}")
    layers = "one layer" if len(here[0].layers) == 1 else f"{len(here[0].layers)} layers"
    rests = (
        f"Spearman, {_AGREES:g} asked for; {before}; {_sizes(here)} of {layers}, effects on the logit of the right "
        f"token; {_by_chance(here[0])}; {_where(result)}"
    )
    if all(each.agreement.n < MIN_PLACES for each in here):
        said = f"Whether attribution patching orders heads as true patching does when {direction.value} cannot be told"
        few = f"{_sizes(here)} are too few for a rank correlation, which could be 1 by chance"
        return Finding(sentence=f"{said}: {few} ({_where(result)}).", found=None)
    if not copies(result):
        said = f"Whether to rely on attribution patching when {direction.value} is not said, as no copying is shown"
        return Finding(sentence=f"{said}: {_places(here)} ({rests}).", found=None)
    groups = {verdict: [each for each in here if _orders(each) is verdict] for verdict in _ORDERS}
    said = [
        f"{_ORDERS[verdict]} at {len(places)} of {len(here)} kinds of place: {_places(places)}"
        for verdict, places in groups.items()
        if places
    ]
    said[0] = f"When {direction.value}, {said[0]}"
    whole = next((verdict for verdict, places in groups.items() if len(places) == len(here)), None)
    return Finding(sentence=f"{'; '.join(said)} ({rests}).", found=whole, lines=(*said, f"({rests})"))


_ORDERS = {
    True: "attribution patching orders heads as true patching does",
    False: "attribution patching does not order heads as true patching does",
    None: "whether attribution patching orders heads as true patching does cannot be told",
}
"""What is said of the places that pass, of those that cannot, and of those left open."""


def _orders(each: Estimated) -> bool | None:
    """Whether the whole interval lies above the bar; None where it holds it, and where there is nothing to tell by."""
    if not each.is_told:
        return None
    return each.spearman.low >= _AGREES if each.spearman.excludes(_AGREES) else None


def _places(here: list[Estimated]) -> str:
    return ", ".join(f"{_place(each)} {_spearman(each)}{_overlooked(each)}" for each in here)


def _spearman(each: Estimated) -> str:
    """The rank correlation with its interval, or why there is none."""
    if math.isnan(each.spearman.mean):
        return "not defined, as effects or estimates are all equal"
    if not each.is_told:
        return f"not told, as {each.agreement.n} are too few"
    return with_interval(each.spearman)


def _overlooked(each: Estimated) -> str:
    """How many of the largest true effects the estimate misses."""
    return f" (overlooks {len(each.agreement.missed)} of {each.agreement.top})" if each.is_told else ""


def _by_chance(each: Estimated) -> str:
    """How many of them a random order would."""
    top, n = each.agreement.top, each.agreement.n
    return f"of the {top} largest effects of {n} a random order overlooks {top * (1 - top / n):.1f}"


def _sizes(here: list[Estimated]) -> str:
    """How many places were compared; k and v have fewer where heads share them."""
    fewest, most = (end(each.agreement.n for each in here) for end in (min, max))
    return f"{most} places" if fewest == most else f"{most} places ({fewest} of shared keys and values)"


def _place(each: Estimated) -> str:
    return f"{each.place} with the QK fix" if each.method is Method.QK_FIX else each.place
