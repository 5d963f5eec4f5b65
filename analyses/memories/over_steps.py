"""One memory at several checkpoints, or in two models: what fires it, what it promotes, and how much of that is kept.

Over the checkpoints of one run a memory is the same place in the weights. In two runs it is not: what the memory L1M37
of one does, any memory of the other may do, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analyses.ffn.result import Result
from analyses.ffn.tables import joined, trigger_text
from model.errors import InputError

N_TOKENS, N_PROMOTED = 8, 5
"""Tokens told of the end of a trigger, and of those promoted most."""


def over_steps(results: Sequence[Result], memory: tuple[int, int]) -> pd.DataFrame:
    """A memory at every step, and what share of its stored triggers and promoted tokens the last of them shares.

    Raises:
        InputError: results of several runs or texts, in which triggers cannot be told to be the same.
    """
    if len({(each.run, each.n_prefixes, each.config) for each in results}) > 1:
        raise InputError("a memory can be followed over results of one run with the same settings only")
    ordered = sorted(results, key=lambda each: each.step)
    last = ordered[-1]
    return pd.DataFrame(
        [
            {
                "step": each.step,
                **at_one_step(each, memory),
                "triggers kept": _shared(_triggers(each, memory), _triggers(last, memory)),
                "promoted kept": _shared(_promoted(each, memory), _promoted(last, memory)),
            }
            for each in ordered
        ]
    )


def side_by_side(results: Mapping[str, Result], memory: tuple[int, int]) -> pd.DataFrame:
    """What is told of the memory with the same name in several models: a row for each, by the models' names.

    Raises:
        InputError: a model that has no such memory.
    """
    for name, each in results.items():
        n_layers, n_memories = each.reading.activity.firing_rate.shape
        if memory[0] >= n_layers or memory[1] >= n_memories:
            raise InputError(
                f"{name} has no L{memory[0]}M{memory[1]}: it has {n_layers} layers of {n_memories} memories"
            )
    return pd.DataFrame([{"model": name, **at_one_step(each, memory)} for name, each in results.items()])


def at_one_step(result: Result, memory: tuple[int, int]) -> dict[str, Any]:
    """What is told of a memory of one checkpoint."""
    activity, values = result.reading.activity, result.reading.values
    alive = bool(activity.alive[memory])
    layer, index = memory
    return {
        "firing rate": float(activity.firing_rate[memory]),
        "largest": float(activity.largest[memory]),
        "pattern": result.reading.evidence.kind_of(layer, index).value,
        "top trigger ends in": trigger_text(result, layer, index, 0, N_TOKENS) if alive else "",
        "then": joined(result, [int(result.reading.triggers.next_token[layer, index, 0])]) if alive else "",
        "promotes": joined(result, values.promoted[memory].tolist()[:N_PROMOTED], " "),
        "agrees": alive and int(values.next_rank[memory]) == 0,
    }


def _triggers(result: Result, memory: tuple[int, int]) -> set[tuple[int, int]]:
    """The stored triggers, each by where it stands in the corpus."""
    found = result.reading.triggers
    there = zip(found.offset[memory].tolist(), found.length[memory].tolist(), strict=True)
    return {(offset, length) for offset, length in there if length}


def _promoted(result: Result, memory: tuple[int, int]) -> set[int]:
    return set(result.reading.values.promoted[memory].tolist())


def _shared(some: set[Any], last: set[Any]) -> float:
    """Share of the last one's that are among `some`; NaN where it has none."""
    return len(some & last) / len(last) if last else float("nan")
