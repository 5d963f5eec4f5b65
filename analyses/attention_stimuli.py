"""What the heads are shown: repeated random tokens of several periods, a re-ordered control, and held-out text.

The periods follow from the run: one that training showed, if it showed any, and up to two that it did not. The period
that *decides* is the longest unseen one; the control is made of its sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from interp.stimuli import check_period, longest_period, reordered, repeated_tokens

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


@runtime_checkable
class Periodic(Protocol):
    """Sequences, or what was read from them."""

    @property
    def stimulus(self) -> Stimulus: ...  # noqa: D102
    @property
    def period(self) -> int | None: ...  # noqa: D102
    @property
    def trained(self) -> bool | None: ...  # noqa: D102


P = TypeVar("P", bound=Periodic)


def sequences_for(
    lab: Lab, *, periods: Sequence[int], n_sequences: int, n_text: int, seed: int
) -> tuple[Sequences, ...]:
    """Repeats of every period (of suitable ones where `periods` is empty), the control, and text if there is enough."""
    bos, n_ctx, trained = lab.tokenizer.bos, lab.config.n_ctx, trained_periods(lab)
    longest = min(longest_period(n_ctx, bos=bos), lab.config.d_vocab - (bos is not None))
    chosen = sorted(set(periods)) or choose_periods(longest, trained)
    for period in chosen:
        check_period(period, n_ctx, bos=bos)
    repeats = [
        Sequences(
            stimulus=Stimulus.REPEATS,
            tokens=repeated_tokens(n_sequences, period, lab.config.d_vocab, seed=seed, bos=bos),
            period=period,
            trained=trained is not None and trained[0] <= period <= trained[1],
            bos=bos,
        )
        for period in chosen
    ]
    text = Sequences(stimulus=Stimulus.TEXT, tokens=lab.eval_tokens[:n_text].cpu(), bos=bos)
    return (*repeats, _control(decisive(repeats), seed), *((text,) if len(text.tokens) >= 2 else ()))


def trained_periods(lab: Lab) -> tuple[int, int] | None:
    """Shortest and longest period of the run's `repeats` source; None if it has none."""
    data = lab.run_config["config"]["data"]
    if not any(source.partition("=")[0] == "repeats" for source in data["sources"]):
        return None
    return int(data["min_period"]), int(data["max_period"])


def choose_periods(longest: int, trained: tuple[int, int] | None) -> tuple[int, ...]:
    """One period that training showed and up to two that it did not, none above `longest`.

    >>> choose_periods(31, (6, 24))
    (15, 28, 31)
    >>> choose_periods(16, (6, 24))
    (5, 15)
    """
    if trained is None:
        return tuple(sorted({max(2, longest // 2), longest}))
    shortest, most = trained
    inside = min((shortest + most) // 2, longest)
    above = {longest, (most + longest + 1) // 2} if longest > most else set()
    below = {shortest - 1} if not above and shortest > 2 else set()
    return tuple(sorted({inside} | above | below))


def decisive(shown: Sequence[P]) -> P:
    """The repeats that decide: the longest period that training did not show, else the longest."""
    repeats = [each for each in shown if each.stimulus is Stimulus.REPEATS]
    return max(repeats, key=lambda each: (not each.trained, each.period or 0))


def _control(main: Sequences, seed: int) -> Sequences:
    return Sequences(
        stimulus=Stimulus.CONTROL,
        tokens=reordered(main.tokens, main.period or 0, seed=seed + 1),
        period=main.period,
        trained=main.trained,
        bos=main.bos,
    )
