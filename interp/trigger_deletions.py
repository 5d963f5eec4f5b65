"""What a trigger's tokens are to its memory: how far the coefficient falls when one is taken away (Geva et al. 2021).

Their section 3 deletes the first, the last or a random token of each trigger of a key, and finds that the coefficient
falls most without the last, in low layers almost to nothing. Here the same is done to the strongest few triggers of a
sample of memories of each layer: the fall is (m - m') / m, with m' read at the last token that is left. It is 1 where
nothing is left of the coefficient, above 1 where it turns negative, below 0 where it grows.

A deletion does two things: the token is gone, and all behind it stand one position further to the front. BOS stays
where the tokenizer has one, so that the first token's deletion is not that of a beginning. Two controls leave every
position as it is: the first or the last token is replaced by one drawn from the corpus. Where replacing the first token
does little and deleting it does much, the shift did it.

Triggers of fewer than three tokens, which have no token between first and last, are left out. Each trigger takes five
passes through the layers up to its own: the last token's deletion is read off the intact one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from interp.row_readings import read_ends
from model.errors import InputError
from model.settings import as_enum
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

SHORTEST = 3
"""Tokens of the shortest trigger that is cut."""


class Deletion(StrEnum):
    """What is done to a trigger."""

    FIRST = "first"
    """Its first token is deleted; BOS stays, the others move one position to the front."""
    LAST = "last"
    """Its last token is deleted."""
    RANDOM = "random"
    """A token between the two is deleted, drawn evenly."""
    FIRST_REPLACED = "first_replaced"
    """Its first token gives way to another one drawn from the corpus; no position changes."""
    LAST_REPLACED = "last_replaced"
    """Its last token gives way to another one drawn from the corpus; no position changes."""


@dataclass(frozen=True, kw_only=True)
class TriggerDeletions:
    """Falls of coefficients, for a sample of memories of each layer."""

    memory: Int[Tensor, "layer sampled"]
    """Numbers of the sampled memories in rising order; -1 where a layer has fewer that can be measured."""

    n_triggers: Int[Tensor, "layer sampled"]
    """Triggers of each that were measured."""

    fall: Float[Tensor, "layer sampled change"]
    """Mean over the memory's triggers of (m - m') / m, in the order of `Deletion`; NaN where nothing was measured."""

    def of(self, change: Deletion | str) -> Float[Tensor, "layer sampled"]:
        """Falls under one change."""
        return self.fall[..., tuple(Deletion).index(as_enum(Deletion, change, "change"))]

    def last_beats_first(self, layer: int) -> Bool[Tensor, " measured"]:
        """For each measured memory of a layer, whether it falls further without the last token than without the first.

        Geva et al. 2021 find this of most keys.
        """
        last, first = self.of(Deletion.LAST)[layer], self.of(Deletion.FIRST)[layer]
        return (last > first)[self.n_triggers[layer] > 0]

    def measured(self, layer: int) -> Int[Tensor, " measured"]:
        """Numbers of the memories of a layer of which a trigger could be cut."""
        return self.memory[layer][self.n_triggers[layer] > 0]


def trigger_deletions(
    gpt: GPT,
    tokens: Integer[np.ndarray, " corpus"],
    offset: Int[Tensor, "layer memory trigger"],
    length: Int[Tensor, "layer memory trigger"],
    *,
    bos: int | None,
    n_memories: int,
    n_triggers: int,
    most_tokens: int,
    seed: int,
) -> TriggerDeletions:
    """Cut the top `n_triggers` triggers of `n_memories` memories of each layer; length is 0 where there is none.

    The memories are the first that can be measured in an order that depends on seed and layer alone. All layers
    together feed about `most_tokens` tokens: where triggers are long fewer memories are taken, but at least two.
    """
    parts = []
    for layer in range(len(length)):
        of_layer = length[layer, :, :n_triggers]
        rng = np.random.default_rng([seed, layer])
        chosen = _sampled(of_layer, rng.permutation(len(of_layer)), n_memories, most_tokens // len(length))
        parts.append(_layer_falls(gpt, layer, tokens, offset[layer], of_layer, chosen, bos, rng))
    widest = max(len(memory) for memory, _, _ in parts)
    memory, n_measured, fall = zip(*parts, strict=True)
    return TriggerDeletions(
        memory=_stacked(memory, widest, -1),
        n_triggers=_stacked(n_measured, widest, 0),
        fall=_stacked(fall, widest, torch.nan),
    )


def _sampled(length: Tensor, order: np.ndarray, n_memories: int, most_tokens: int) -> list[int]:
    """The sample of a layer, in rising order."""
    cost = torch.where(length >= SHORTEST, length, 0).sum(-1) * _FED
    able = [int(memory) for memory in order if cost[memory] > 0][:n_memories]
    fed = np.cumsum([int(cost[memory]) for memory in able])
    return sorted(able[: max(2, int((fed <= most_tokens).sum()))])


def memory_deletions(
    gpt: GPT,
    tokens: Integer[np.ndarray, " corpus"],
    layer: int,
    memory: int,
    offset: Int[Tensor, " trigger"],
    length: Int[Tensor, " trigger"],
    *,
    bos: int | None,
    n_triggers: int,
    seed: int,
) -> tuple[int, Float[Tensor, " change"]]:
    """How many of one memory's top triggers could be cut, and their mean falls in the order of `Deletion`."""
    cut = [_Trigger(memory, int(first), int(n)) for first, n in zip(offset[:n_triggers], length, strict=False)]
    able = [trigger for trigger in cut if trigger.length >= SHORTEST]
    fires, falls = _falls(gpt, layer, tokens, able, bos, np.random.default_rng([seed, layer, memory]))
    return int(fires.sum()), falls[fires].mean(0)


@dataclass(frozen=True)
class _Trigger:
    memory: int
    offset: int
    length: int


def _layer_falls(
    gpt: GPT,
    layer: int,
    tokens: np.ndarray,
    offset: Tensor,
    length: Tensor,
    chosen: list[int],
    bos: int | None,
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the chosen memories of a layer: their numbers, how many triggers were measured, and their mean falls."""
    cut = [
        _Trigger(memory, int(offset[memory, rank]), int(length[memory, rank]))
        for memory in chosen
        for rank in range(length.shape[1])
        if length[memory, rank] >= SHORTEST
    ]
    fires, falls = _falls(gpt, layer, tokens, cut, bos, rng)
    memories = torch.tensor(chosen, dtype=torch.int32)
    owner = torch.searchsorted(memories, torch.tensor([each.memory for each in cut], dtype=torch.int32))[fires]
    n_measured = torch.bincount(owner, minlength=len(chosen))
    total = torch.zeros(len(chosen), len(Deletion), dtype=torch.float64).index_add_(0, owner, falls[fires].double())
    return memories, n_measured.int(), (total / n_measured[:, None]).float()


def _falls(
    gpt: GPT, layer: int, tokens: np.ndarray, cut: Sequence[_Trigger], bos: int | None, rng: np.random.Generator
) -> tuple[Bool[Tensor, " trigger"], Float[Tensor, "trigger change"]]:
    """Which triggers fire their memory when they are fed again, and how far its coefficient falls without tokens."""
    start = [] if bos is None else [bos]
    rows, units = [], []
    for trigger in cut:
        text = [int(token) for token in tokens[trigger.offset : trigger.offset + trigger.length]]
        rows += [start + row for row in _changed(text, tokens, rng)]
        units += [trigger.memory] * _FED
    read = read_ends(gpt, layer, [Tap.MLP_POST], rows, units)[0].view(len(cut), _FED, 2)
    intact = read[:, 0, 0]
    left = {
        Deletion.FIRST: read[:, 1, 0],
        Deletion.LAST: read[:, 0, 1],  # what stands before the last token does not see it
        Deletion.RANDOM: read[:, 2, 0],
        Deletion.FIRST_REPLACED: read[:, 3, 0],
        Deletion.LAST_REPLACED: read[:, 4, 0],
    }
    falls = torch.stack([(intact - left[change]) / intact for change in Deletion], dim=-1)
    return intact > 0, falls  # but for rounding, where a trigger hardly fires, all do


def _changed(trigger: list[int], tokens: np.ndarray, rng: np.random.Generator) -> list[list[int]]:
    """The inputs that are fed for one trigger: intact, then without its first and a random token, then replaced."""
    inner = int(rng.integers(1, len(trigger) - 1))
    return [
        trigger,
        trigger[1:],
        trigger[:inner] + trigger[inner + 1 :],
        [_another(trigger[0], tokens, rng), *trigger[1:]],
        [*trigger[:-1], _another(trigger[-1], tokens, rng)],
    ]


def _another(token: int, tokens: np.ndarray, rng: np.random.Generator) -> int:
    """A token of the corpus that is not the given one, as often as it occurs there."""
    for _ in range(_TRIES):
        if (drawn := int(tokens[rng.integers(len(tokens))])) != token:
            return drawn
    raise InputError(f"Nearly all of the corpus is token {token}, so that no other can be drawn to replace it.")


def _stacked(parts: Sequence[Tensor], widest: int, filling: int | float) -> Tensor:
    """Parts of all layers in one tensor, filled up where a layer has fewer memories."""
    filled = [torch.full((widest, *part.shape[1:]), filling, dtype=part.dtype) for part in parts]
    for whole, part in zip(filled, parts, strict=True):
        whole[: len(part)] = part
    return torch.stack(filled)


_FED = 5
"""Inputs fed for one trigger."""

_TRIES = 1000
"""Draws of another token before the corpus is called all one token."""
