"""The ways to fill a place with something else than it holds, by name.

A name says over what a mean is taken, so that the wrong axis cannot be met by accident: `mean` over the sequences and
positions of stated tokens, `mean@pos` over their sequences at each position, `mean@seq` over the past of the sequence
itself. There is no mean over the positions of a sequence that looks ahead. Which assumption each one makes, and how far
each overstates what a component does: Li and Janson 2024, "Optimal ablation for interpretability" (2409.09951).

Three take nothing out and change what is there: `set=2.5` puts a memory's coefficient at that number, `times=2` doubles
what a place holds, and `swap` lets components of a layer exchange what they hold. Their numbers stand in the name, so
that whatever reads places, a claim's file or an address, reads them too.
"""

from __future__ import annotations

import math
from enum import StrEnum

from model.errors import InputError, closest


class Intervention(StrEnum):
    """What is put in a place. mean@seq, counterfactual, times and swap know the sequence under study."""

    ZERO = "zero"
    """Nothing: zeros. Assumes that the rest of the model takes zeros as a sign of nothing; it may never have met them,
    and then breaks for that reason."""

    MEAN = "mean"
    """The mean over the sequences and positions of stated tokens (BOS counts like any other). Assumes that what is
    always there is not what the component does; several modes may average to a value that none of them has."""

    MEAN_PER_POSITION = "mean@pos"
    """The mean over the sequences of stated tokens, one for each position. Assumes as much, and keeps what depends on
    the position alone: a head that does nothing else seems to do nothing."""

    MEAN_OF_PAST = "mean@seq"
    """The mean over positions 0 to t of the same sequence, in the intact run: never of the future. Assumes that what
    the component holds all along the sequence (its topic, say) is not what it does at t; at position 0 it takes nothing
    out."""

    RESAMPLE = "resample"
    """What another sequence of stated tokens held at the same position, averaged over what several such donors do.
    Assumes that a likely value of elsewhere says nothing here; it does say something wrong, which counts as harm."""

    COUNTERFACTUAL = "counterfactual"
    """What the corrupted twin of the same sequence held at the same position. Assumes that the twin differs in what is
    asked about and in nothing else; what both share stays."""

    OPTIMAL = "optimal"
    """The constant under which the model does best without the component, fitted on stated tokens. Assumes only that
    what the component does depends on the sequence; by construction the least harm of any constant, on those tokens."""

    SET = "set"
    """A stated number, as in set=2.5: the coefficient of a memory, at every position alike. Assumes that the number is
    one that the rest of the model could meet; what made the memory fire no longer matters."""

    TIMES = "times"
    """What was there, times a stated number: times=2 is twice as much (Dai et al. 2022 double knowledge neurons so),
    times=-1 the opposite. Assumes that more of it means more of the same; norms and later layers need not agree."""

    SWAP = "swap"
    """What the next of the swapped components holds, and for the last what the first does: two memories exchange their
    coefficients, which is the same as exchanging their values; more go in a cycle, in the order in which they are
    named. Assumes that what matters is which is which: as much is written as before, by others."""

    @property
    def takes_number(self) -> bool:
        """Whether a number belongs to it."""
        return self in (Intervention.SET, Intervention.TIMES)

    @property
    def stands_alone(self) -> bool:
        """Whether it needs nothing but the run that it changes: no other sequences, and no other run."""
        return self is Intervention.ZERO or not self.removes

    @property
    def removes(self) -> bool:
        """Whether it takes out what was there."""
        return self not in (Intervention.SET, Intervention.TIMES, Intervention.SWAP)


def parse_intervention(text: Intervention | str) -> Intervention:
    """The intervention with this name; InputError lists the known ones, and the axes of means where one was meant.

    >>> parse_intervention("mean@pos") is Intervention.MEAN_PER_POSITION
    True
    """
    try:
        return Intervention(text)
    except ValueError:
        known = ", ".join(Intervention)
        help_ = _AXES if str(text).startswith("mean") else closest(str(text), list(Intervention))
        raise InputError(f'no intervention "{text}"; known are {known}.{help_}') from None


def parse_stated(text: Intervention | str) -> tuple[Intervention, float | None]:
    """An intervention by name, with its number where it takes one; InputError where that is missing or no number.

    >>> parse_stated("set=2.5") == (Intervention.SET, 2.5), parse_stated("zero") == (Intervention.ZERO, None)
    (True, True)
    """
    name, equals, written = str(text).partition("=")
    kind = parse_intervention(name.strip() if equals else text)
    try:
        amount = float(written) if equals else None
    except ValueError:
        raise InputError(f'"{written.strip()}" is no number; write {kind}={_EXAMPLES.get(kind, "2")}.') from None
    require_amount(kind, amount)
    return kind, amount


def print_stated(kind: Intervention | str, amount: float | None) -> str:
    """The same as text, which `parse_stated` reads back as it was.

    >>> print_stated(Intervention.SET, 2.0), print_stated(Intervention.TIMES, 1e22)
    ('set=2', 'times=1e22')
    """
    kind = parse_intervention(kind)
    if amount is None:
        return str(kind)
    written = repr(float(amount)).removesuffix(".0").replace("e+", "e")  # in an address, a plus is a blank
    return f"{kind}={written}"


def require_amount(kind: Intervention | str, amount: float | None) -> None:
    """Refuse an intervention without its number, one with a number too many, or a number that no model could hold."""
    kind = parse_intervention(kind)
    if not kind.takes_number:
        if amount is not None:
            raise InputError(f"{kind} takes no number; write {kind}.")
        return
    if amount is None:
        raise InputError(f"{kind} needs a number; write {kind}={_EXAMPLES[kind]}.")
    if isinstance(amount, bool) or not math.isfinite(amount) or abs(amount) > _LARGEST:
        raise InputError(f"{kind}={amount} is no number that a model can hold; write such as {kind}={_EXAMPLES[kind]}.")
    if kind is Intervention.TIMES and amount == 1:
        raise InputError("times=1 leaves all as it is; write how much of it there shall be, such as times=2.")


_EXAMPLES = {Intervention.SET: "2.5", Intervention.TIMES: "2"}

_LARGEST = 1e30
"""Beyond that, sums overflow."""

_AXES = (
    " A mean is over the sequences and positions of other tokens (mean), over their sequences at each position "
    "(mean@pos), or over the past of the sequence itself (mean@seq)."
)
