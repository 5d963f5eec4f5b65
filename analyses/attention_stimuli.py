"""What the heads are shown: repeated random tokens of several periods, a re-ordered control, and held-out text.

The periods follow from the run: the one at which it is judged (`interp.periods.deciding_period`, the same in every
study), the longest that training did not show, and one that it showed, if it showed any. The control is made of the
sequences of the period that *decides*, and so says later which one that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from interp.periods import deciding_period, longest_fitting, trained_periods
from interp.stimuli import check_period, ordinary_ids, reordered, repeated_tokens
from interp.trials import HELD_OUT_TEXT, held_out_kind
from model.settings import as_enum

if TYPE_CHECKING:
    from model.lab import Lab


class Stimulus(StrEnum):
    """What the model was shown."""

    REPEATS = "repeats"
    """A random segment of distinct tokens, twice."""
    CONTROL = "control"
    """The same, the second copy in another order: what a fixed distance finds there is no match."""
    TEXT = "text"
    """Held-out text of the run."""


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Sequences to read from, and what is known about them."""

    stimulus: Stimulus
    tokens: Int[Tensor, "sequence pos"]
    period: int | None = None
    """Tokens per copy; None for text."""
    trained: bool | None = None
    """Whether training showed repeats of this period; None for text."""
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


def sequences_for(
    lab: Lab, *, periods: Sequence[int], n_sequences: int, n_text: int, seed: int
) -> tuple[Sequences, ...]:
    """Repeats of every period (of suitable ones where `periods` is empty), the control, and text if there is enough.

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
    return (*repeats, _control(main, seed), *_text(lab, n_text))


def choose_periods(judged_at: int, longest: int, trained: range) -> tuple[int, ...]:
    """The period `judged_at`, the longest that training did not show, and one that it showed; none above `longest`.

    >>> choose_periods(28, 31, range(6, 25))
    (15, 28, 31)
    >>> choose_periods(5, 16, range(6, 25))
    (5, 15)
    """
    if not trained:
        return tuple(sorted({max(2, longest // 2), judged_at, longest}))
    unseen = longest if longest not in trained else trained.start - 1
    shown = min((trained.start + trained.stop - 1) // 2, longest)
    return tuple(sorted({judged_at} | {period for period in (unseen, shown) if period >= 2}))


def decisive(shown: Sequence[P]) -> P:
    """The repeats that decide: those of the period that was re-ordered for the control."""
    (period,) = (each.period for each in shown if each.stimulus is Stimulus.CONTROL)
    return next(each for each in shown if each.stimulus is Stimulus.REPEATS and each.period == period)


def _text(lab: Lab, n_text: int) -> tuple[Sequences, ...]:
    """Held-out text; nothing where the run holds out fewer than two rows of text."""
    rows = lab.eval_tokens[:n_text].cpu()
    if len(rows) < 2 or held_out_kind(lab) != HELD_OUT_TEXT:
        return ()
    return (Sequences(stimulus=Stimulus.TEXT, tokens=rows, bos=lab.tokenizer.bos),)


def _control(main: Sequences, seed: int) -> Sequences:
    return Sequences(
        stimulus=Stimulus.CONTROL,
        tokens=reordered(main.tokens, main.period or 0, seed=seed + 1),
        period=main.period,
        trained=main.trained,
        bos=main.bos,
    )
