"""Several ablations at once: side by side on the batch axis, and no more of them than a stated memory holds.

Ablations that begin at the same layer run on from the same stream. So the stream is repeated once for each of them, and
each one's hooks see their own rows only, with the positions of those rows: what a hook does there is what it does in a
run of its own. What is computed does not change, only how much of it at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.interventions import Edits
from model.config import GPTConfig
from model.hooks import Hook, HookFunction

MEMORY = 2**28
"""Bytes that a sweep works in unless told otherwise: 256 MiB."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much a sweep does at a time, so that the streams it keeps and the passes it makes fit into a memory.

    Half of the memory is for the streams kept at every layer, half for a pass: its activations, then logits in blocks.
    At least one sequence runs at a time, one ablation, and one row of logits.
    """

    n_sequences: int
    """Sequences run together."""

    n_ablations: int
    """Ablations side by side, each on all of those sequences."""

    n_rows: int
    """Positions whose logits are formed together."""

    @classmethod
    def within(
        cls, memory: int, config: GPTConfig, *, dtype: torch.dtype, n_pos: int, n_layers: int, most: int
    ) -> Room:
        """What fits for sequences of `n_pos` tokens whose stream is kept at `n_layers` layers; at most `most` of them.

        A pass holds at most some six streams, four times the heads' width, and four times the FFN's, for each token.
        """
        number, half = max(4, dtype.itemsize), memory // 2
        kept = number * n_pos * config.d_model * (1 + n_layers)
        heads = config.n_heads * config.head_width
        passed = number * n_pos * (6 * config.d_model + 4 * heads + 4 * config.ffn_width)
        n_sequences = max(1, min(most, half // max(kept, passed)))
        return cls(
            n_sequences=n_sequences,
            n_ablations=max(1, half // (n_sequences * passed)),
            n_rows=max(1, min(_LOGITS, half) // (3 * number * config.d_vocab)),
        )


_LOGITS = 2**26
"""Bytes beyond which a block of logits only gets slower."""


def stacked(edits_of_each: Sequence[Edits], n_rows: int) -> Edits:
    """The hooks of several ablations, for a batch that holds `n_rows` rows for each of them in turn."""
    by_site: dict[str, list[tuple[slice, HookFunction]]] = {}
    for member, edits in enumerate(edits_of_each):
        rows = slice(member * n_rows, (member + 1) * n_rows)
        for name, function in edits:
            by_site.setdefault(name, []).append((rows, function))
    return [(name, _each_in_its_rows(found)) for name, found in by_site.items()]


def _each_in_its_rows(functions: Sequence[tuple[slice, HookFunction]]) -> HookFunction:
    def edit(activation: Tensor, hook: Hook) -> Tensor:
        for rows, function in functions:
            here = replace(hook, positions=hook.positions[rows], key_positions=hook.key_positions[rows])
            answer = function(activation[rows], here)
            if answer is not None:
                activation[rows] = answer
        return activation

    return edit


def begun_together(first_layers: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers of ablations that begin at the same layer, at most so many at a time; the order within a layer is kept.

    >>> list(begun_together([0, 1, 0, 0], most=2))
    [[0, 2], [3], [1]]
    """
    for layer in sorted(set(first_layers)):
        alike = [number for number, first in enumerate(first_layers) if first == layer]
        yield from (alike[start : start + most] for start in range(0, len(alike), most))
