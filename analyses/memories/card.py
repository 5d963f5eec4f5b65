"""Everything that a saved result says of one memory, as plain data (for `cutaway memories RUN L1M37`).

Nothing is computed here: fields are gathered, each beside its control and step 0. What was not measured is None.
"""

from __future__ import annotations

import math
import shlex
from typing import Any, SupportsIndex

import numpy as np

from analyses.memories.choice import unusual_settings
from analyses.memories.index import MemoryIndex
from analyses.memories.matches import concept_of, require_memory
from analyses.memories.search import pattern_of
from interp.pattern_kinds import TriggerPattern

FORMAT = 1
"""Of the record; raised whenever a field changes its meaning."""

MEASURES = (
    "last_token_share", "last_bigram_share", "last_trigram_share", "covered_share", "region_share", "position_share",
    "copied_share", "suffix_share", "prefix_share", "suffix_length", "majority_suffix", "prefix_length", "n_patterns",
    "n_documents", "n_distinct",
)  # fmt: skip
"""`interp.trigger_patterns.MEASURES`, for an answer that does not wait for torch; a test holds them equal."""

CHANGES = ("first", "last", "random", "first_replaced", "last_replaced")
"""The values of `interp.trigger_deletions.Deletion`, likewise."""

SHARED = (
    "last_token_share", "last_bigram_share", "last_trigram_share", "region_share", "position_share", "copied_share",
)  # fmt: skip
"""Shares of triggers that are told."""


def memory_record(index: MemoryIndex, layer: int, memory: int) -> dict[str, Any]:
    """All that is known of a memory, as JSON can hold it; every text can be printed."""
    require_memory(index, layer, memory)
    at = layer, memory
    return {
        "format": FORMAT,
        "checkpoint": index.checkpoint,
        "corpus": corpus_record(index),
        "notes": list(index.notes),
        "memory": f"L{layer}M{memory}",
        "activity": _activity(index, at),
        "triggers": _triggers(index, "triggers", at),
        "negative": _triggers(index, "negative", at),
        "pattern": pattern_of(index, layer, memory).value,
        "patterns": [
            kind.value
            for kind, holds in zip(TriggerPattern, _of(index, "summary.evidence.holds", at), strict=True)
            if holds
        ],
        "shares": _shares(index, at),
        "deletions": _deletions(index, at),
        "value": _value(index, at),
        "agreement": _agreement(index, at),
        "deciles": _deciles(index, at),
        "ablate": None if index.dead[at] else ablate_command(index.spec, layer, memory),
        "cut": None if index.dead[at] else cut_command(index, layer, memory),
    }


def corpus_record(index: MemoryIndex) -> dict[str, Any]:
    """Which text was read, how much of it, and with which settings that are not the study's own."""
    config = index.plain("config")
    return {
        "text": config["text"] or None,
        "split": None if config["text"] else config["split"],
        "n_prefixes": int(index.plain("n_prefixes")),
        "seed": config["seed"],
        "settings": list(unusual_settings(config)),
    }


def ablate_command(spec: str, layer: int, memory: int) -> str:
    """The command that tests what a memory does: the same wherever one is suggested."""
    return f"cutaway ablate {shlex.quote(spec)} L{layer}M{memory}:zero --metric text_loss"


def cut_command(index: MemoryIndex, layer: int, memory: int) -> str:
    """The command that measures what its triggers lose with a token, on the result that this is."""
    chosen = "".join(f" --set {shlex.quote(setting)}" for setting in unusual_settings(index.plain("config")))
    return f"cutaway memories {shlex.quote(index.spec)} L{layer}M{memory}{chosen} --cut"


def _of(index: MemoryIndex, field: str, at: tuple[int, int]) -> Any:
    return index.array(f"reading.{field}")[at]


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if math.isfinite(value) else None


def _activity(index: MemoryIndex, at: tuple[int, int]) -> dict[str, Any]:
    kinds = {"dead": index.dead, "never above zero": ~index.alive, "dense": _rate(index) > 0.5}
    return {
        "state": next((name for name, holds in kinds.items() if holds[at]), "alive"),
        "prefixes": int(index.plain("n_prefixes")),
        "firing rate": float(_rate(index)[at]),
        "step 0 firing rate": float(index.array("initial.firing_rate")[at]) if index.has("initial") else None,
        **{
            name.replace("_", " "): float(_of(index, f"activity.{name}", at))
            for name in ("strong_rate", "negative_rate", "largest", "lowest", "mean", "std")
        },
    }


def _rate(index: MemoryIndex) -> np.ndarray:
    return index.array("reading.activity.firing_rate")


def _triggers(index: MemoryIndex, side: str, at: tuple[int, int]) -> list[dict[str, Any]]:
    n_stored = index.array(f"reading.{side}.context").shape[2]
    n_there = int((_of(index, f"{side}.length", at) > 0).sum())
    return [trigger_record(index, *at, rank, side=side) for rank in range(min(n_stored, n_there))]


def trigger_record(index: MemoryIndex, layer: int, memory: int, rank: int, side: str = "triggers") -> dict[str, Any]:
    """One stored trigger: its coefficient, its end as text, what follows, and where it stands in the corpus."""
    at = layer, memory
    context, length = _of(index, f"{side}.context", at)[rank], int(_of(index, f"{side}.length", at)[rank])
    return {
        "coefficient": float(_of(index, f"{side}.coefficient", at)[rank]),
        **_ended(index, context, _of(index, f"{side}.next_token", at)[rank]),
        "length": length,
        "cut": length > int((context >= 0).sum()),
        "offset": int(_of(index, f"{side}.offset", at)[rank]),
        "document": int(_of(index, f"{side}.document", at)[rank]),
    }


def _ended(index: MemoryIndex, context: np.ndarray, following: SupportsIndex) -> dict[str, str]:
    """A context as text before its last token, that token, and what follows."""
    tokens = context[context >= 0]
    return {"before": index.text(tokens[:-1]), "last": index.text(tokens[-1:]), "next": index.spelled(following)}


def _shares(index: MemoryIndex, at: tuple[int, int]) -> dict[str, Any]:
    """Per measure: of the triggers, of as many random prefixes on average, and at step 0."""
    n = int(_of(index, "summary.evidence.n", at))
    levels = index.array("reading.summary.evidence.random.mean")[:, n]
    start = "initial.evidence" if index.has("initial") else None
    return {
        "n": n,
        **{
            name: {
                "triggers": _number(_of(index, f"summary.evidence.{name}", at)),
                "random": _number(levels[MEASURES.index(name)]),
                "step 0": None if start is None else _number(index.array(f"{start}.{name}")[at]),
            }
            for name in SHARED
        },
    }


def _deletions(index: MemoryIndex, at: tuple[int, int]) -> dict[str, Any] | None:
    """Mean fall of the coefficient on each change; None where this memory is not in the sample."""
    if not index.has("reading.summary.deletions"):
        return None
    layer, memory = at
    place = np.flatnonzero(index.array("reading.summary.deletions.memory")[layer] == memory)
    if not len(place):
        return None
    falls = index.array("reading.summary.deletions.fall")[layer, place[0]]
    n = int(index.array("reading.summary.deletions.n_triggers")[layer, place[0]])
    return {"n": n, **dict(zip(CHANGES, map(_number, falls), strict=True))}


def _value(index: MemoryIndex, at: tuple[int, int]) -> dict[str, Any]:
    ends = {
        verb: [
            {"token": index.spelled(token), "score": float(score)}
            for token, score in zip(_of(index, f"values.{end}", at), _of(index, f"values.{end}_score", at), strict=True)
        ]
        for verb, end in (("promotes", "promoted"), ("suppresses", "suppressed"))
    }
    name = concept_of(index, *at)
    covered, p = int(_of(index, "values.concept_covered", at)), float(_of(index, "values.concept_p", at))
    return {
        **ends,
        "concept": None if name is None else {"name": name, "covered": covered, "p": p},
        "norm": float(_of(index, "values.norm", at)),
        "key norm": float(_of(index, "values.key_norm", at)),
        "cosine": _number(_of(index, "values.key_value_cosine", at)),
        "linear cosine": _number(_of(index, "values.linear_value_cosine", at)),
        "confidence": float(_of(index, "values.confidence", at)),
        "skew": _number(_of(index, "values.skew", at)),
        "kurtosis": _number(_of(index, "values.kurtosis", at)),
    }


def _agreement(index: MemoryIndex, at: tuple[int, int]) -> dict[str, Any]:
    following = _of(index, "triggers.next_token", at)
    top = int(_of(index, "values.promoted", at)[0])
    of_layer = index.plain("reading.summary.layers")[at[0]]["agreement"]
    rank = int(_of(index, "values.next_rank", at))
    return {
        "next": index.spelled(following[0]) if following[0] >= 0 else None,
        "rank": rank if rank >= 0 else None,
        "d_vocab": index.d_vocab,
        "agrees": bool(index.agrees[at]),
        "n_triggers": int((following >= 0).sum()),
        "n_agreeing": int((following == top).sum()),
        "layer share": _number(float(of_layer["share"])),
        "layer chance": _number(float(of_layer["chance"])),
    }


def _deciles(index: MemoryIndex, at: tuple[int, int]) -> list[dict[str, Any]]:
    """One prefix from each tenth of the memory's coefficients, smallest first, where the sample has one."""
    found = []
    for tenth, example in enumerate(_of(index, "examples.decile", at).tolist()):
        if example >= 0:
            context = index.array("reading.examples.context")[example]
            found.append(
                {
                    "tenth": tenth,
                    "coefficient": _number(_of(index, "examples.decile_coefficient", at)[tenth]),
                    "rank": _number(_of(index, "examples.decile_rank", at)[tenth]),
                    **_ended(index, context, index.array("reading.examples.next_token")[example]),
                }
            )
    return found
