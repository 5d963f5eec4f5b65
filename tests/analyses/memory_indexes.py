"""Indexes of made-up memories, for the tests of the search: every array is known, nothing was trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from analyses.memories.index import MemoryIndex
from interp.pattern_kinds import TriggerPattern
from model.token_bytes import printable

CONCEPTS = ("digits", "Python keywords", "same stem import")


def made_index(
    token_bytes: list[bytes],
    context: np.ndarray,
    promoted: np.ndarray,
    suppressed: np.ndarray | None = None,
    **arrays: np.ndarray,
) -> MemoryIndex:
    """An index over contexts [layer, memory, shown, token] and promoted tokens [layer, memory, rank].

    The last token of `token_bytes` is BOS where it has no bytes. What is not given is the same for every memory.
    """
    shape = context.shape[:2]
    there = (context >= 0).sum(-1).astype(np.int32)
    flat: dict[str, np.ndarray] = {
        "reading.values.promoted": promoted.astype(np.int32),
        "reading.values.suppressed": (promoted if suppressed is None else suppressed).astype(np.int32),
        "reading.values.confidence": np.linspace(0.1, 0.9, shape[0] * shape[1]).reshape(shape).astype(np.float32),
        "reading.values.concept": np.full(shape, -1, dtype=np.int32),
        "reading.values.concept_covered": np.zeros(shape, dtype=np.int32),
        "reading.values.concept_p": np.ones(shape),
        "reading.triggers.context": context.astype(np.int32),
        "reading.triggers.length": there,
        "reading.triggers.next_token": np.where(there > 0, 0, -1).astype(np.int32),
        "reading.activity.firing_rate": np.full(shape, 0.1, dtype=np.float32),
        "reading.activity.largest": np.ones(shape, dtype=np.float32),
        "reading.activity.lowest": np.zeros(shape, dtype=np.float32),
        "reading.summary.evidence.kind": np.full(
            shape, list(TriggerPattern).index(TriggerPattern.NONE), dtype=np.int32
        ),
        "reading.summary.evidence.holds": np.zeros((*shape, len(TriggerPattern)), dtype=bool),
    }
    known = flat | {f"reading.{name.replace('__', '.')}": array for name, array in arrays.items()}
    vocabulary = [printable(raw) if raw else "<bos>" for raw in token_bytes]
    tree: dict[str, Any] = {"run": "made", "step": 7, "vocabulary": vocabulary}
    return MemoryIndex(tree=tree | {"reading": {"values": {"concepts": list(CONCEPTS)}}}, arrays=known)


def random_index(
    token_bytes: list[bytes], shape: tuple[int, int], seed: int, *, shown: int = 4, n: int = 6
) -> MemoryIndex:
    """Random contexts, some of them short, and random promoted and suppressed tokens."""
    chance = np.random.default_rng(seed)
    context = chance.integers(0, len(token_bytes), (*shape, shown, n))
    context[np.arange(n) < chance.integers(0, n + 1, (*shape, shown, 1))] = -1
    promoted, suppressed = (
        np.argsort(chance.random((*shape, len(token_bytes))), axis=-1)[..., :5].astype(np.int32) for _ in range(2)
    )
    return made_index(token_bytes, context, promoted, suppressed)
