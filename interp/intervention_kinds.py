"""The ways to fill the place of something that is taken out, by name.

A name says over what a mean is taken, so that the wrong axis cannot be met by accident: `mean` over the sequences and
positions of stated tokens, `mean@pos` over their sequences at each position, `mean@seq` over the past of the sequence
itself. There is no mean over the positions of a sequence that looks ahead. Which assumption each one makes, and how far
each overstates what a component does: Li and Janson 2024, "Optimal ablation for interpretability" (2409.09951).
"""

from __future__ import annotations

from enum import StrEnum

from model.errors import InputError, closest


class Intervention(StrEnum):
    """What an ablation puts in a place. Only mean@seq and counterfactual know the sequence under study."""

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


_AXES = (
    " A mean is over the sequences and positions of other tokens (mean), over their sequences at each position "
    "(mean@pos), or over the past of the sequence itself (mean@seq)."
)
