"""How long a search among memories takes: the memories of a run, and as many as SmolLM2-135M has, made up.

    python bench/memory_search.py [RUN[@STEP] ...] [--json FILE]

Of a run with a saved result of ffn-memories, each query is timed from reading the result's files to its printed rows,
as the command does it, and again where the result is kept; torch is never imported. The made-up index has 30 layers of
1,536 memories, a vocabulary of 49,152 tokens, and 10 contexts of 32 tokens for each memory; it is made once, as a page
keeps it, and queries follow.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analyses.memories.index import MemoryIndex, saved_index
from analyses.memories.search import Query, rows
from model.token_bytes import printable

QUERIES = {
    "a promoted token": Query(promotes="self"),
    "a text in triggers": Query(trigger="import os"),
    "one letter, everywhere": Query(text="e"),
    "one space, everywhere": Query(text=" "),
    "two letters in one layer": Query(trigger="th", layer=1),
    "all memories": Query(),
}
REPEATS = 7


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="*", help="runs with a saved result of ffn-memories")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    given = parser.parse_args()
    told = {}
    for run in given.run:
        told[f"{run}, files read anew"] = _timed(lambda query, run=run: rows(saved_index(run), query))
        kept = saved_index(run)
        told[f"{run}, kept"] = _timed(lambda query, kept=kept: rows(kept, query))
    index = made_up()
    began = time.process_time()
    n_bytes = len(index.contexts.folded)
    print(f"{n_bytes / 1e6:.0f} MB of made-up text laid out in {time.process_time() - began:.1f} s of processor time")
    told["46,080 made up, kept"] = _timed(lambda query: rows(index, query))
    _print(told)
    if given.json:
        given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print("torch was imported" if "torch" in sys.modules else "torch was not imported")


def made_up(n_layers: int = 30, n_memories: int = 1536, d_vocab: int = 49_152) -> MemoryIndex:
    """An index of random contexts; tokens have one to eight letters, those of frequent ones are few."""
    chance = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu_.()=,:\n    "))
    lengths = chance.integers(1, 9, d_vocab)
    words = ["".join(chance.choice(letters, size)) for size in lengths]
    words[:3] = ["self", " self", "import"]
    shape = (n_layers, n_memories)
    drawn = (d_vocab * chance.random((*shape, 10, 32), dtype=np.float32) ** 3).astype(np.int32)
    promoted = chance.integers(0, d_vocab, (*shape, 10), dtype=np.int32)
    there = np.ones(shape, dtype=np.float32)
    arrays = {
        "reading.values.promoted": promoted,
        "reading.values.suppressed": promoted[..., ::-1],
        "reading.values.confidence": chance.random(shape, dtype=np.float32),
        "reading.values.concept": np.full(shape, -1, dtype=np.int32),
        "reading.values.concept_p": there,
        "reading.triggers.context": drawn,
        "reading.triggers.length": np.full((*shape, 25), 32, dtype=np.int32),
        "reading.triggers.next_token": chance.integers(0, d_vocab, (*shape, 25), dtype=np.int32),
        "reading.activity.firing_rate": chance.random(shape, dtype=np.float32),
        "reading.activity.largest": there,
        "reading.activity.lowest": 0 * there,
        "reading.summary.evidence.kind": np.zeros(shape, dtype=np.int32),
    }
    tree = {"run": "made-up", "step": 0, "vocabulary": [printable(word.encode()) for word in words]}
    return MemoryIndex(tree=tree, arrays=arrays)


def _timed(work: Callable[[Query], object]) -> dict[str, dict[str, float]]:
    """What each query takes."""
    return {name: _milliseconds(lambda query=query: work(query)) for name, query in QUERIES.items()}


def _milliseconds(work: Callable[[], object]) -> dict[str, float]:
    """Least and median wall time, and least processor time, which leaves out what other processes take."""
    wall, processor = [], []
    for _ in range(REPEATS):
        began = time.perf_counter(), time.process_time()
        work()
        wall.append(1000 * (time.perf_counter() - began[0]))
        processor.append(1000 * (time.process_time() - began[1]))
    return {"least": min(wall), "median": float(np.median(wall)), "processor": min(processor)}


def _print(told: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    for name, times in told.items():
        print(f"\n{name:<34}" + "".join(f"{column:>11}" for column in ("least", "median", "processor")) + "  ms")
        for query, taken in times.items():
            print(f"{query:<34}" + "".join(f"{each:>11.1f}" for each in taken.values()))


if __name__ == "__main__":
    main()
