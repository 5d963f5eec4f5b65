"""What the heads are shown: repeated random tokens of several periods, re-ordered controls, and held-out text.

The periods follow from the run: the one at which it is judged (`interp.periods.deciding_period`, the same in every
study), the longest that training did not show, at least one more of those where the context has room for two, and one
that it showed, if it showed any. Every unseen period has its control; the *first* control is that of the period that
decides, and so says later which one that was.

Two further kinds are those of Olsson et al. 2022 (appendix, head activation evaluators), for their scores alone: 25
random tokens four times, for prefix matching, and 25 random tokens once, for copying; fewer where fewer fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from interp.periods import deciding_period, longest_fitting, trained_periods
from interp.stimuli import (
    check_period,
    longest_period,
    ordinary_ids,
    random_tokens,
    reordered,
    repeated_tokens,
)
from interp.trials import HELD_OUT_TEXT, held_out_kind
from model.settings import as_enum

if TYPE_CHECKING:
    from model.lab import Lab


OLSSON_TOKENS = 25
"""Random tokens of a segment in the sequences of Olsson et al. 2022."""


class Stimulus(StrEnum):
    """What the model was shown."""

    REPEATS = "repeats"
    """A random segment of distinct tokens, twice."""
    CONTROL = "control"
    """The same, the second copy in another order: what a fixed distance finds there is no match."""
    FOUR = "four"
    """A random segment of distinct tokens, four times (Olsson et al. 2022: prefix matching)."""
    ONCE = "once"
    """A random segment of distinct tokens, once (Olsson et al. 2022: copying)."""
    TEXT = "text"
    """Held-out text of the run."""


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Sequences to read from, and what is known about them."""

    stimulus: Stimulus
    tokens: Int[Tensor, "sequence pos"]
    period: int | None = None
    """Distinct tokens of a segment; None for text."""
    trained: bool | None = None
    """Whether training showed repeats of this period; None for what is not repeated."""
    bos: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "stimulus", as_enum(Stimulus, self.stimulus, "stimulus"))


@runtime_checkable
class Periodic(Protocol):
    """Sequences, or what was read from them."""

    @property
    def stimulus(self) -> Stimulus: ...  # noqa: D102
    @property
    def period(self) -> int | None: ...  # noqa: D102


P = TypeVar("P", bound=Periodic)


def period_of(shown: Periodic) -> int:
    """The period of what has one."""
    if shown.period is None:
        raise ValueError(f"{shown.stimulus.value} has no period")
    return shown.period


def sequences_for(
    lab: Lab, *, periods: Sequence[int], n_sequences: int, n_text: int, seed: int
) -> tuple[Sequences, ...]:
    """Repeats of every period (of suitable ones where `periods` is empty), controls, Olsson's two kinds, and text.

    Of the periods given, the run's own decides; where that is not among them, the longest that training did not show.
    """
    bos, n_ctx, trained, judged_at = lab.tokenizer.bos, lab.config.n_ctx, trained_periods(lab), deciding_period(lab)
    chosen = sorted(set(periods)) or choose_periods(judged_at, longest_fitting(lab), trained)
    for period in chosen:
        check_period(period, n_ctx, bos=bos)
    ids = ordinary_ids(lab.tokenizer)
    repeats = [
        Sequences(
            stimulus=Stimulus.REPEATS,
            tokens=repeated_tokens(n_sequences, period, ids, seed=seed, bos=bos),
            period=period,
            trained=period in trained,
            bos=bos,
        )
        for period in chosen
    ]
    by_period = {each.period: each for each in repeats}
    main = by_period.get(judged_at) or max(repeats, key=lambda each: (not each.trained, each.period))
    others = [each for each in repeats if each is not main and not each.trained]
    controls = [_control(each, seed) for each in (main, *others)]
    return (*repeats, *controls, *_as_in_olsson(lab, n_sequences, seed, trained), *_text(lab, n_text))


def choose_periods(judged_at: int, longest: int, trained: range) -> tuple[int, ...]:
    """The period `judged_at`, unseen ones until there are two, and one that training showed; none above `longest`.

    Unseen ones are tried in this order: the longest, the shortest above those of training, those below, longest first.

    >>> choose_periods(28, 31, range(6, 25))
    (15, 28, 31)
    >>> choose_periods(31, 31, range(6, 25))
    (15, 25, 31)
    >>> choose_periods(5, 16, range(6, 25))
    (4, 5, 15)
    """
    if not trained:
        return tuple(sorted({max(2, longest // 2), judged_at, longest}))
    unseen = [period for period in range(2, longest + 1) if period not in trained]
    above = [period for period in unseen if period >= trained.stop]
    below = [period for period in unseen if period < trained.start]
    chosen = {judged_at, min((trained.start + trained.stop - 1) // 2, longest)}
    for period in (*above[-1:], *above[:1], *reversed(below)):
        if len(chosen.intersection(unseen)) < 2:
            chosen.add(period)
    return tuple(sorted(period for period in chosen if period >= 2))


def decisive(shown: Sequence[P]) -> P:
    """The repeats that decide: those of the period of the first control."""
    period = next(each.period for each in shown if each.stimulus is Stimulus.CONTROL)
    return next(each for each in shown if each.stimulus is Stimulus.REPEATS and each.period == period)


def _as_in_olsson(lab: Lab, n_sequences: int, seed: int, trained: range) -> Iterator[Sequences]:
    """Random tokens four times and once, in segments of 25 or as many as fit; nothing where two do not fit."""
    bos, ids = lab.tokenizer.bos, ordinary_ids(lab.tokenizer)
    for stimulus, n_copies in ((Stimulus.FOUR, 4), (Stimulus.ONCE, 1)):
        length = min(OLSSON_TOKENS, longest_period(lab.config.n_ctx, bos=bos, n_copies=n_copies), len(ids))
        if length >= 2:
            repeats = n_copies > 1
            tokens = (
                repeated_tokens(n_sequences, length, ids, n_copies=n_copies, seed=seed, bos=bos)
                if repeats
                else random_tokens(n_sequences, length, ids, seed=seed, bos=bos)
            )
            shown = length in trained if repeats else None
            yield Sequences(stimulus=stimulus, tokens=tokens, period=length, trained=shown, bos=bos)


def _text(lab: Lab, n_text: int) -> tuple[Sequences, ...]:
    """Held-out text; nothing where the run holds out fewer than two rows of text."""
    rows = lab.eval_tokens[:n_text].cpu()
    if len(rows) < 2 or held_out_kind(lab) != HELD_OUT_TEXT:
        return ()
    return (Sequences(stimulus=Stimulus.TEXT, tokens=rows, bos=lab.tokenizer.bos),)


def _control(main: Sequences, seed: int) -> Sequences:
    return Sequences(
        stimulus=Stimulus.CONTROL,
        tokens=reordered(main.tokens, period_of(main), seed=seed + 1),
        period=main.period,
        trained=main.trained,
        bos=main.bos,
    )
