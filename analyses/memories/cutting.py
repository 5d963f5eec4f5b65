"""What one memory's triggers lose with a token, measured when it is asked for (`cutaway memories RUN L1M37 --cut`).

The study cuts the triggers of a sample of memories (`interp.trigger_deletions`); this does the same for any other one,
through the first layers of the model: some dozens of short rows. The text is read again, and must be what it was.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.corpus_text import StudyText, study_text
from analyses.ffn.reading import CUT_TRIGGERS
from analyses.memories.card import CHANGES
from analyses.memories.index import MemoryIndex
from analyses.memories.matches import require_memory
from interp.trigger_deletions import memory_deletions
from model.errors import InputError
from model.lab import open_run

if TYPE_CHECKING:
    from analyses.ffn.result import Result
    from model.lab import Lab


def cut_triggers(index: MemoryIndex, layer: int, memory: int) -> dict[str, Any]:
    """Mean fall of a memory's coefficient on each change of its triggers, as `memories.card` has it: `n` and `CHANGES`.

    Raises:
        InputError: the memory never fired, or the text is no longer the one that was read.
    """
    require_memory(index, layer, memory)
    if not index.alive[layer, memory]:
        raise InputError(f"L{layer}M{memory} of {index.checkpoint} never fired, so it has no triggers to cut.")
    lab, config = open_run(index.spec), index.plain("config")
    text = study_text(lab, config["split"], config["text"])
    _require_same(index, layer, memory, text)
    n, falls = memory_deletions(
        lab.gpt,
        text.tokens,
        layer,
        memory,
        torch.from_numpy(index.array("reading.triggers.offset")[layer, memory]),
        torch.from_numpy(index.array("reading.triggers.length")[layer, memory]),
        bos=lab.tokenizer.bos,
        n_triggers=CUT_TRIGGERS,
        seed=config["seed"],
    )
    return {"n": n, **{name: fall if math.isfinite(fall) else None
                       for name, fall in zip(CHANGES, falls.tolist(), strict=True)}}  # fmt: skip


def falls_now(lab: Lab, result: Result, memory: tuple[int, int]) -> tuple[int, Float[Tensor, " change"]]:
    """The same on a result and a checkpoint that are open: how many triggers could be cut, and the mean falls.

    Falls are in the order of `interp.trigger_deletions.Deletion`.
    """
    config, triggers = result.config, result.reading.triggers
    text = study_text(lab, config.split, config.text)
    return memory_deletions(
        lab.gpt, text.tokens, *memory, triggers.offset[memory], triggers.length[memory],
        bos=lab.tokenizer.bos, n_triggers=CUT_TRIGGERS, seed=config.seed,
    )  # fmt: skip


def _require_same(index: MemoryIndex, layer: int, memory: int, text: StudyText) -> None:
    """Refuse a text in which the stored ends of the triggers do not stand where they stood."""
    at = layer, memory
    offsets, lengths = (index.array(f"reading.triggers.{name}")[at].tolist() for name in ("offset", "length"))
    for context, offset, length in zip(index.array("reading.triggers.context")[at], offsets, lengths, strict=False):
        stored = context[context >= 0].tolist()
        if length and text.tokens[offset : offset + length].tolist()[-len(stored) :] != stored:
            raise InputError(
                f"{text.name} is not what it was when {index.checkpoint} was read; run the study again before its "
                "triggers are cut."
            )
