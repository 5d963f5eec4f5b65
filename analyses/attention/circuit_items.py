"""Evidence from the weights and from a corpus: does a head copy, whose output does it read, what does it do on text?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyses.attention.behaviour import Behaviour
from analyses.attention.evidence import Bearing, Evidence, Source
from analyses.attention.readings import Kind
from analyses.attention.result import Result
from analyses.attention.stimuli import Stimulus
from analyses.attention.weights import INPUTS, Weights
from interp.composition import Composition, Pair
from interp.places import Head, head
from interp.stats import Interval, surely
from interp.wording import number
from model.settings import as_enum

COPIERS = (Kind.INDUCTION, Kind.LATER)
"""The kinds whose name says that the head copies what it attends to."""


def copying_items(result: Result, main: Kind | str | None, place: Head) -> Iterator[Evidence]:
    """Whether it copies: by the eigenvalues of its OV circuit, by the rank of each token's own logit, and in use.

    The first bears on kinds that are called copiers. In use it depends on where a head attends, and on random tokens
    that come once an induction head has nothing to attend to.
    """
    kind = None if main is None else as_enum(Kind, main, "main")
    yield from _copying_by_weights(result, kind, place)
    yield from _copying_in_use(result, place)


def _copying_by_weights(result: Result, main: Kind | None, place: Head) -> Iterator[Evidence]:
    copying, diagonal = result.weights.copying, result.weights.diagonal
    if copying is None or diagonal is None:
        said = f"whether its weights copy is not defined ({result.weights.missing['copying'].setting})"
        yield Evidence(source=Source.COPYING, what=_EIGEN, bearing=Bearing.ABSENT, said=said)
        return
    score, z, first = float(copying.score[place]), float(copying.z[place]), result.weights_at_step_zero
    before = None if first is None or first.copying is None else float(first.copying.score[place])
    least = surely(copying.score.numel(), result.config.alpha)
    verb = _verb_of_copying(score, z, least)
    at_start = "" if before is None else f", {number(before)} at step 0"
    yield Evidence(
        source=Source.COPYING,
        what=_EIGEN,
        bearing=_bearing_of_copying(score, z, least) if main in COPIERS else Bearing.OPEN,
        said=f"its weights {verb} (eigenvalue score {number(score)}, z {z:.1f}{at_start})",
        value=score,
        null=copying.null_mean,
        z=z,
        rank=1 + int((copying.score > copying.score[place]).sum()),
        n_heads=copying.score.numel(),
        step_0=before,
    )
    own, by_chance = float(diagonal.topk[place]), f"{diagonal.chance_topk:.1%} by chance"
    yield Evidence(
        source=Source.COPYING,
        what=f"tokens that raise themselves among the first {diagonal.k}",
        bearing=Bearing.OPEN,
        said=f"{own:.0%} of tokens raise themselves into the first {diagonal.k} ({by_chance})",
        value=own,
        null=diagonal.chance_topk,
        decides=False,
    )


_EIGEN = "eigenvalue copying score"


def _copying_in_use(result: Result, place: Head) -> Iterator[Evidence]:
    """Whether its writes raise the tokens that it attends to more than others of the context (Olsson et al. 2022)."""
    reading = next((each for each in result.readings if each.stimulus is Stimulus.ONCE and Kind.COPYING in each), None)
    if reading is None:
        return
    measure, first = reading[Kind.COPYING], result.first(reading)
    score, chance = measure.intervals[place], measure.chance
    in_use = _in_use(score, chance)
    yield Evidence(
        source=Source.COPYING,
        what=f"copying score, {reading.title}",
        bearing=Bearing.OPEN,
        said=f"in use it {in_use} (copying score {score:.2f}, {number(chance)} by chance)",
        value=score.mean,
        low=score.low,
        high=score.high,
        null=chance,
        decides=False,
        rank=int(measure.ranks[place]),
        n_heads=measure.n_heads,
        step_0=None if first is None or Kind.COPYING not in first else float(first[Kind.COPYING].intervals.mean[place]),
    )


def _in_use(score: Interval, chance: float) -> str:
    """A score below 0 says that most of what a head raises is something else, also where chance is less."""
    above = score.above(chance)
    if above and score.high < 0:
        return "raises other tokens more than what it attends to, though this more than an even write would"
    verb = {True: "raises", False: "does not raise", None: "is not seen to raise"}[above]
    return f"{verb} what it attends to"


NO_COPYING = 0.1
"""Eigenvalue score below which a head's weights do not copy, however many heads random ones are compared with."""


def _bearing_of_copying(score: float, z: float, least: float) -> Bearing:
    """A head that is called a copier has to copy; what random heads may score, and is more than little, is open."""
    if z >= least:
        return Bearing.FOR
    return Bearing.AGAINST if z <= -least or score < NO_COPYING else Bearing.OPEN


def _verb_of_copying(score: float, z: float, least: float) -> str:
    if z <= -least:
        return "write against what it attends to"
    return {Bearing.FOR: "copy", Bearing.AGAINST: "do not copy", Bearing.OPEN: "are not seen to copy"}[
        _bearing_of_copying(score, z, least)
    ]


def composition_items(result: Result, place: Head) -> Iterator[Evidence]:
    """For each input the earlier head that it reads most surely, and the later head that reads this one most surely.

    Only what is more than chance would give among all pairs and inputs of the model, and more than untrained weights
    give, is put into words.
    """
    weights, label = result.weights, head(*place).label
    reads, is_read = (
        place[0] > 0,
        place[0] < result.heads[-1][0],
    )  # the first layer reads no head, the last is read by none
    yield from _not_composed(weights)
    for name, known in weights.composition.items():
        for pair in known.strongest(name, n=1, reader=label) if reads else ():
            said = f"its {_PLURAL[name]} read {pair.writer}"
            yield _pair_item(result, pair, f"{name} reads {pair.writer}", said)
        for pair in known.strongest(name, n=1, writer=label) if is_read else ():
            said = f"the {_PLURAL[name]} of {pair.reader} read it"
            yield _pair_item(result, pair, f"{name} of {pair.reader} reads it", said)


def _not_composed(weights: Weights) -> Iterator[Evidence]:
    """The inputs of which no composition is defined, together."""
    names = [name for name in INPUTS if name in weights.missing]
    if names:
        *others, last = (_PLURAL[name] for name in names)
        inputs = f"{', '.join(others)} and {last}" if others else last
        said = f"whose output its {inputs} read is not defined ({weights.missing[names[0]].setting})"
        yield Evidence(source=Source.COMPOSITION, what=f"{', '.join(names)} read", bearing=Bearing.ABSENT, said=said)


_PLURAL = {"q": "queries", "k": "keys", "v": "values"}


def _pair_item(result: Result, pair: Pair, what: str, said: str) -> Evidence:
    """One pair of heads: how much the later reads the earlier, beside the same earlier head turned at random.

    Whichever head is told, the pair is one of all pairs and inputs of the model, and may be the largest of them.
    """
    z = pair.z if pair.null_sd > 0 else None  # a head that writes nothing has nothing to be read
    first = result.weights_at_step_zero
    untrained = None if first is None else first.composition.get(pair.kind)
    least = surely(pair.n_pairs * len(result.weights.composition), result.config.alpha)
    sure = z is not None and z >= max(least, _largest_z(untrained, pair))
    before = None if untrained is None else _same_pair(untrained, pair)
    score = f"{pair.kind.upper()}-composition {number(pair.score)}, {number(pair.null_mean)} by chance, z {z or 0:.1f}"
    score += "" if before is None else f", {number(before)} at step 0"
    return Evidence(
        source=Source.COMPOSITION,
        what=what,
        bearing=Bearing.OPEN,
        said=f"{said} ({score})" if sure else "",
        value=pair.score,
        null=pair.null_mean,
        z=z,
        step_0=before,
    )


def _largest_z(untrained: Composition | None, pair: Pair) -> float:
    """The largest z of any pair by the same input at step 0: what untrained weights do is no reading."""
    return -math.inf if untrained is None else untrained.largest_z(pair.kind)


def _same_pair(untrained: Composition, pair: Pair) -> float | None:
    same = untrained.strongest(pair.kind, n=1, reader=pair.reader, writer=pair.writer)
    return same[0].score if same else None


def behaviour_item(result: Result, place: Head) -> Evidence:
    """How far back it looks on the corpus, what it favours there, and where it writes most."""
    known, what = result.behaviour, "median distance on the corpus, in tokens"
    if known is None:
        said = "what it does on its corpus could not be seen"
        return Evidence(source=Source.BEHAVIOUR, what=what, bearing=Bearing.ABSENT, said=said)
    seen = known.seen
    distance = float(seen.median_distance[place])
    at = " ".join(map(quoted, known.tokens(seen.query_tokens, place, 3)))
    within = f"half of its attention lies within {distance:.0f} {'token' if distance == 1 else 'tokens'}"
    return Evidence(
        source=Source.BEHAVIOUR,
        what=what,
        bearing=Bearing.OPEN,
        said=(
            f"over {seen.n_queries:,} tokens of its corpus {'it rests' if math.isnan(distance) else within}, "
            f"{_favoured(known, place)}and writes most at {at}"
        ),
        value=None if math.isnan(distance) else distance,
    )


FAVOURED = 2.0
"""Times even attention from which a head is said to favour a token."""


def _favoured(known: Behaviour, place: Head) -> str:
    """The tokens that receive most over even attention, of the first three those that receive much more."""
    listed = known.seen.attended_lift
    spelled = zip(known.tokens(listed, place, 3), listed.lift[place].tolist(), strict=False)
    much = [(quoted(token), lift) for token, lift in spelled if lift >= FAVOURED]
    if not much:
        return ""
    tokens, lifts = " ".join(token for token, _ in much), ", ".join(f"{lift:.1f}" for _, lift in much)
    return f"it favours {tokens} ({lifts} times even attention), "


def quoted(token: str) -> str:
    """A token between quotes that it does not hold.

    >>> print(quoted("a"), quoted('"'))
    "a" '"'
    """
    return f"'{token}'" if '"' in token else f'"{token}"'
