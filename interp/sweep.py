"""Several ablations at once: side by side on the batch axis, and no more of them than a stated memory holds.

Ablations that begin at the same place run on from the same run (`model.resume`). So what was kept of it is repeated
once for each of them, and each one's hooks see their own rows only, with the positions of those rows: what a hook does
there is what it does in a run of its own. What is computed does not change, only how much of it at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.ablation_plan import Ablation, Frozen
from interp.interventions import Edits
from interp.supplies import stock_bytes
from model.config import GPTConfig
from model.hooks import Hook, HookFunction
from model.resume import Entry, Part

MEMORY = 2**28
"""Bytes that a sweep works in unless told otherwise: 256 MiB."""


def entry_of(ablation: Ablation) -> Entry:
    """Where a run begins to differ: at z of the first layer that is touched, or at its FFN if only that is."""
    layer = ablation.first_layer
    attention = any(place.in_attention for place in ablation.places if place.layer == layer)
    return Entry(layer=layer, part=Part.Z if attention else Part.MID)


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much a sweep does at a time, so that what it keeps and the passes it makes fit into a memory.

    Half of the memory is for what is kept of the intact run and for the replacements, half for a pass: its activations,
    then logits in blocks. At least one sequence runs at a time, one ablation, and one row of logits.
    """

    n_sequences: int
    """Sequences run together."""

    n_ablations: int
    """Ablations side by side, each on all of those sequences."""

    n_rows: int
    """Positions whose logits are formed together."""

    @classmethod
    def within(
        cls,
        memory: int,
        config: GPTConfig,
        ablations: Sequence[Ablation],
        *,
        dtype: torch.dtype,
        device: torch.device,
        n_pos: int,
        most: int,
        exactly: int | None = None,
        whole: bool = False,
    ) -> Room:
        """What fits for sequences of `n_pos` tokens; at most `most` of them, or `exactly` so many.

        A pass holds at most some six streams, four times the heads' width, and four times the FFN's, for each token;
        and five patterns of a layer, where patterns are held. A `whole` pass may form those, and forms all logits. On a
        CPU the widest tensor stays below what its caches and its allocator take well.
        """
        number, half = max(4, dtype.itemsize), memory // 2
        heads = config.n_heads * config.head_width
        at_z = len({entry for entry in map(entry_of, ablations) if entry.part is Part.Z})
        at_mid = len({entry for entry in map(entry_of, ablations) if entry.part is Part.MID})
        kept = number * n_pos * (config.d_model * (1 + at_z + at_mid) + heads * at_z)
        kept += stock_bytes(config, ablations, n_pos, number)
        passed = number * n_pos * (6 * config.d_model + 4 * heads + 4 * config.ffn_width)
        if whole or any(each.frozen is Frozen.PATTERNS for each in ablations):
            passed += number * 5 * config.n_heads * n_pos**2
        if whole:
            passed += number * 6 * config.d_vocab * n_pos
        widest = number * n_pos * max(config.ffn_width, heads, config.d_model)
        at_once = half // passed if device.type == "cuda" else min(half // passed, _WIDEST // widest)
        n_sequences = exactly or max(1, min(most, half // kept, max(1, half // passed)))
        n_rows = max(2, min(_LOGITS, half) // (4 * number * config.d_vocab))
        return cls(n_sequences=n_sequences, n_ablations=max(1, min(at_once // n_sequences, n_rows - 1)), n_rows=n_rows)


_LOGITS = 2**26
"""Bytes beyond which a block of logits only gets slower."""

_WIDEST = 2**22
"""Bytes of one tensor beyond which a pass on a CPU takes longer per token (bench/ablation_sweep.py)."""


def stacked(edits_of_each: Sequence[Edits], n_rows: int) -> Edits:
    """The hooks of several ablations, for a batch that holds `n_rows` rows for each of them in turn."""
    if len(edits_of_each) == 1:
        return edits_of_each[0]
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


def begun_together(begins: Sequence[Hashable], most: int) -> Iterator[list[int]]:
    """Numbers of ablations that begin at the same place, at most so many at a time; the order within one is kept.

    >>> list(begun_together(["a", "b", "a", "a"], most=2))
    [[0, 2], [3], [1]]
    """
    for place in dict.fromkeys(begins):
        alike = [number for number, begin in enumerate(begins) if begin == place]
        yield from (alike[start : start + most] for start in range(0, len(alike), most))
