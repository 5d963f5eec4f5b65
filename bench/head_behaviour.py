"""What does it cost to watch every head over a corpus? `python -m bench.head_behaviour --run runs/demo`.

Two comparisons on a run's own text. Time: a plain forward pass on the explicit attention path against the streaming
pass of `interp.head_behaviour` over the same batches, in interleaved rounds; the fused pass stands beside them. Memory:
what a fresh process that streams few tokens holds between batches at most, and one that streams many.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bench.timing import milliseconds, print_table, write_results
from interp.head_behaviour import behaviour_of, empty_stream, fitting_batch, stream_windows
from interp.prefixes import Windows, cut_windows, sampled_windows, window_batches
from model.lab import Lab, open_run

BATCH = 64


def windows_of(lab: Lab, n_tokens: int) -> Windows:
    """Stretches of the run's own text, drawn without replacement."""
    spans = sorted([*lab.corpus.train.spans.tolist(), *lab.corpus.held_out.spans.tolist()])
    room = lab.config.n_ctx - (lab.tokenizer.bos is not None)
    return sampled_windows(cut_windows([(start, stop) for start, stop in spans], room), n_tokens, seed=0)


@torch.no_grad()
def passes(lab: Lab, n_tokens: int, rounds: int) -> dict[str, Any]:
    """The same batches, read plainly and watched."""
    gpt, size = lab.gpt, fitting_batch(lab.config, BATCH)
    batches = list(window_batches(lab.corpus.tokens, windows_of(lab, n_tokens), bos=lab.tokenizer.bos, batch_size=size))

    def fused() -> None:
        for tokens, _ in batches:
            gpt(tokens.to(gpt.device))

    def explicit() -> None:
        with gpt.explicit_attention():
            fused()

    def watched() -> None:
        stream = empty_stream(gpt)
        for tokens, ends in batches:
            stream_windows(gpt, tokens, ends, stream)

    return milliseconds({"explicit attention": explicit, "every head watched": watched, "fused": fused}, rounds=rounds)


def peak_of(lab: Lab, n_tokens: int) -> dict[str, float]:
    """Stream so many tokens here and now: resident memory before, the largest seen between batches, and seconds."""
    windows, seen = windows_of(lab, n_tokens), [_resident_mib()]
    started = time.perf_counter()
    found = behaviour_of(
        lab.gpt,
        lab.corpus.tokens,
        windows,
        bos=lab.tokenizer.bos,
        batch_size=BATCH,
        progress=lambda done, total: seen.append(_resident_mib()),
    )
    seconds = time.perf_counter() - started
    return {"tokens": found.n_queries, "seconds": seconds, "before_mib": seen[0], "largest_mib": max(seen)}


def memory(run: str, device: str, sizes: list[int]) -> list[dict[str, float]]:
    """`peak_of` for each size, in a process of its own."""
    rows = []
    for n_tokens in sizes:
        command = [
            sys.executable,
            "-m",
            "bench.head_behaviour",
            "--run",
            run,
            "--device",
            device,
            "--peak-of",
            str(n_tokens),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def _resident_mib() -> float:
    """Memory of this process that is in use now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Print the tables and write them to bench/results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="runs/demo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=32_768, help="read in each round of the timing")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[65_536, 1_048_576], help="read for the comparison of memory"
    )
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    lab = open_run(given.run, given.device)
    if given.peak_of is not None:
        print(json.dumps(peak_of(lab, given.peak_of)))
        return
    timed = passes(lab, given.tokens, given.rounds)
    print_table(f"{lab.name}@{lab.step}, {given.tokens} tokens of its text", timed)
    rows = memory(given.run, given.device, given.sizes)
    print(f"\n{'tokens':>10}{'seconds':>10}{'before, MiB':>14}{'largest, MiB':>14}")
    for row in rows:
        print(f"{row['tokens']:>10}{row['seconds']:>10.1f}{row['before_mib']:>14.0f}{row['largest_mib']:>14.0f}")
    print(f"\nWritten to {write_results('head_behaviour', {'passes': timed, 'memory': rows})}")


if __name__ == "__main__":
    main()
