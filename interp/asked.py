"""What is asked of a batch, whatever is ablated: its outcomes, read off the stream that leaves the last layer.

Logits are formed only at targets that an outcome weighs, a block of positions at a time, and never kept; those of the
intact model once for each block and for all ablations side by side. A function of whole logits sees whole sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.measures import Measure, UserMeasure, read
from interp.outcomes import Outcome

if TYPE_CHECKING:
    from model.gpt import GPT

Final = Float[Tensor, "row pos d_model"]
"""The stream that leaves the last layer, for every sequence of a batch under one ablation after another."""
Intact = Float[Tensor, "sequence pos d_model"] | None
"""The same of the intact model, or nothing if it is that one's own answers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """The outcomes of a batch under some ablations, side by side; float64 on the CPU."""

    values: Float[Tensor, "member sequence outcome"]

    by_token: Float[Tensor, "member sequence target"] | None
    """What the first outcome reads at each target that it weighs, NaN at the others; None unless asked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """The outcomes of one batch."""

    tokens: Int[Tensor, "sequence pos"]
    outcomes: Sequence[Outcome]
    weights: Float[Tensor, "outcome sequence target"]
    wanted: Bool[Tensor, "sequence target"]
    """Targets that a built-in measure is read at."""
    by_token: bool

    @classmethod
    def of(cls, tokens: Int[Tensor, "sequence pos"], outcomes: Sequence[Outcome], *, by_token: bool) -> Asked:
        """What `outcomes` weigh in these tokens."""
        weights = torch.stack([outcome.weights(tokens).double() for outcome in outcomes])
        built_in = [not isinstance(outcome.measure, UserMeasure) for outcome in outcomes]
        wanted = (weights[built_in] != 0).any(0)
        return cls(tokens=tokens, outcomes=outcomes, weights=weights, wanted=wanted, by_token=by_token)

    @property
    def needs_intact(self) -> bool:
        """Whether an outcome is a distance from the intact model."""
        return any(outcome.measure is Measure.KL for outcome in self.outcomes)

    def answers(self, gpt: GPT, final: Final, *, intact: Intact, n_rows: int) -> Answers:
        """Every outcome, from streams that no hook stands behind; `intact` is the intact model's, None if `final` is.

        Forms at most `n_rows` rows of logits at a time.
        """
        n_members = len(final) // len(self.tokens)
        read_at = self._read(gpt, final.unflatten(0, (n_members, -1)), intact, n_rows)
        found = []
        for outcome in self.outcomes:
            if isinstance(outcome.measure, UserMeasure):
                values = self._by_function(gpt, final, outcome.measure, n_rows)
                found.append(values.unflatten(0, (n_members, -1)).double())
            else:
                found.append(self._spread(read_at[_Reading(outcome.measure, outcome.distractors)]))
        return self._answers(found)

    def of_logits(self, logits: Float[Tensor, "sequence pos d_vocab"], intact: Tensor) -> Answers:
        """Every outcome, from logits formed elsewhere, past whatever hooks."""
        found = []
        for outcome in self.outcomes:
            if isinstance(outcome.measure, UserMeasure):
                found.append(outcome.measure.read(logits, self.tokens).double()[None])
            else:
                found.append(outcome.by_token(logits, self.tokens, intact=intact).double()[None])
        return self._answers(found)

    def _answers(self, found: Sequence[Tensor]) -> Answers:
        """From each outcome's numbers, [member, sequence] or [member, sequence, target]."""
        values = [
            numbers if numbers.ndim == 2 else torch.where(weights != 0, numbers * weights, 0).sum(-1)
            for numbers, weights in zip(found, self.weights, strict=True)
        ]
        by_token = None
        if self.by_token:
            if found[0].ndim == 2:
                raise self.outcomes[0].per_sequence_only
            by_token = torch.where(self.weights[0] != 0, found[0], torch.nan).cpu()
        return Answers(values=torch.stack(values, dim=-1).cpu(), by_token=by_token)

    def _read(
        self, gpt: GPT, final: Float[Tensor, "member sequence pos d_model"], intact: Intact, n_rows: int
    ) -> dict[_Reading, Float[Tensor, "member wanted"]]:
        """Everything that built-in measures ask for, at the targets that are wanted."""
        asked = [
            _Reading(each.measure, each.distractors)
            for each in self.outcomes
            if not isinstance(each.measure, UserMeasure)
        ]
        readings = {each: each.distractors_at(self.tokens, self.wanted) for each in asked}
        compared = intact if self.needs_intact else None
        found: dict[_Reading, list[Tensor]] = {each: [] for each in readings}
        targets, picked = self.tokens[:, 1:][self.wanted], final[:, :, :-1][:, self.wanted]
        before = None if compared is None else compared[:, :-1][self.wanted]
        for block in _blocks(len(targets), n_rows // (len(final) + (before is not None))):
            logits = gpt.unembed_stream(picked[:, block])
            known = None if before is None else gpt.unembed_stream(before[block])
            for reading, distractors in readings.items():
                if reading.measure is Measure.KL and known is None:
                    found[reading].append(torch.zeros(logits.shape[:-1], dtype=torch.float64, device=logits.device))
                    continue
                beside = None if distractors is None else distractors[block]
                values = read(reading.measure, logits, targets[block], distractors=beside, intact=known)
                found[reading].append(values.double())
        return {reading: torch.cat(parts, dim=1) for reading, parts in found.items()}

    def _spread(self, values: Float[Tensor, "member wanted"]) -> Float[Tensor, "member sequence target"]:
        """Values back where they were read; 0 elsewhere."""
        spread = values.new_zeros(len(values), *self.wanted.shape)
        spread[:, self.wanted] = values
        return spread

    def _by_function(self, gpt: GPT, final: Final, measure: UserMeasure, n_rows: int) -> Tensor:
        """A function's numbers of whole sequences, as many at a time as their logits allow."""
        tokens = self.tokens.repeat(len(final) // len(self.tokens), 1)
        n = max(1, n_rows // tokens.shape[1])
        pairs = zip(final.split(n), tokens.split(n), strict=True)
        return torch.cat([measure.read(gpt.unembed_stream(rows), of_rows) for rows, of_rows in pairs])


@dataclass(frozen=True)
class _Reading:
    """What outcomes may share: a measure, and what targets are held against."""

    measure: Measure
    distractors: Callable[[Tensor], Tensor] | None

    def distractors_at(self, tokens: Tensor, wanted: Tensor) -> Tensor | None:
        return None if self.distractors is None else self.distractors(tokens)[wanted]


def _blocks(n: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    return (slice(start, start + size) for start in range(0, n, size))
