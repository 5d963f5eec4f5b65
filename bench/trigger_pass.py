"""What does it cost to find every memory's triggers? `python -m bench.trigger_pass --run runs/demo`.

Three things, on a run's own text. Exactness: on a small part of it, every top and bottom k, count and sample of the
pass against sorting all coefficients. Time: a plain forward pass (tokens to logits, no hook) against the pass that
keeps all that `interp.memory_stream` says, over the same batches in interleaved stretches; each stretch goes on with
the stream of the one before, so that a round is one whole corpus. The ratio is plain seconds over trigger seconds, that
is the trigger pass's throughput as a share of the plain pass's. Memory: the most that a fresh process holds that reads
few tokens, and one that reads many.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.timing import write_results
from interp.memory_pass import Batch, stream_prefixes
from interp.memory_stream import CoefficientStream, empty_stream, fitting_windows
from interp.position_sample import hashed
from interp.prefixes import Windows, cut_windows, sampled_windows, window_batches
from interp.topk import positions_of, values_of
from model.lab import Lab, open_run

N_TRIGGERS, N_NEGATIVE, N_SAMPLED = 25, 10, 512  # as the study keeps them
STRETCH = 16
"""Batches of one pass before the other one's turn."""


def windows_of(lab: Lab, n_tokens: int) -> Windows:
    """Stretches of the run's own text, drawn without replacement."""
    spans = sorted([*lab.corpus.train.spans.tolist(), *lab.corpus.held_out.spans.tolist()])
    room = lab.config.n_ctx - (lab.tokenizer.bos is not None)
    return sampled_windows(cut_windows([(start, stop) for start, stop in spans], room), n_tokens, seed=0)


def batches_of(lab: Lab, windows: Windows, most: int) -> Iterator[Batch]:
    """The batches that the study would read."""
    size = fitting_windows(lab.config, lab.config.n_ctx, most)
    return window_batches(lab.corpus.tokens, windows, bos=lab.tokenizer.bos, batch_size=size)


def empty(lab: Lab) -> tuple[CoefficientStream, ...]:
    """Streams that keep what the study keeps."""
    return tuple(
        empty_stream(lab.config.ffn_width, N_TRIGGERS, n_negative=N_NEGATIVE, n_sampled=N_SAMPLED)
        for _ in range(lab.config.n_layers)
    )


@torch.no_grad()
def differences(lab: Lab, n_tokens: int, most: int) -> int:
    """How many numbers of the pass differ from those found by keeping and sorting every coefficient."""
    batches = list(batches_of(lab, windows_of(lab, n_tokens), most))
    streams, wrong = stream_prefixes(lab.gpt, batches, empty(lab)), 0
    ends = torch.cat([ends[ends >= 0] for _, ends in batches])
    for layer, stream in enumerate(streams):
        name = f"blocks.{layer}.mlp.hook_post"
        rows = [_cached(lab, tokens, name)[ends >= 0] for tokens, ends in batches]
        coefficients = torch.cat(rows)
        for keys, sign in ((stream.top, 1), (stream.bottom, -1)):
            found = (sign * coefficients).sort(dim=0, descending=True, stable=True)
            k = min(keys.shape[1], len(coefficients))
            wrong += int((values_of(keys)[:, :k] != found.values[:k].T).sum())
            wrong += int((positions_of(keys)[:, :k] != ends[found.indices[:k].T]).sum())
        wrong += int((stream.n_active != (coefficients > 0).sum(0)).sum())
        wrong += int((stream.n_negative != (coefficients < 0).sum(0)).sum())
        drawn = hashed(ends, 0).argsort()[:N_SAMPLED]
        wrong += int((stream.sample.values != coefficients[drawn].T).sum())
        wrong += int(((stream.total - coefficients.double().sum(0)).abs() > 1e-9 * len(coefficients)).sum())
    return wrong


@torch.no_grad()
def a_round(lab: Lab, windows: Windows, most: int) -> dict[str, float]:
    """Processor seconds (on a GPU, seconds) of both passes over all windows."""
    clock = _gpu_clock if lab.gpt.device.type == "cuda" else time.process_time
    plain = watched = 0.0
    streams, batches = empty(lab), batches_of(lab, windows, most)
    while stretch := [batch for _, batch in zip(range(STRETCH), batches, strict=False)]:
        started = clock()
        for tokens, _ in stretch:
            lab.gpt(tokens.to(lab.gpt.device))
        turned = clock()
        streams = stream_prefixes(lab.gpt, stretch, streams)
        plain, watched = plain + turned - started, watched + clock() - turned
    return {"tokens": streams[0].n_prefixes, "plain": plain, "triggers": watched, "ratio": plain / watched}


def peak_of(lab: Lab, n_tokens: int, most: int) -> dict[str, float]:
    """Memory of this process as it begins to read so many tokens, and the most by the end (Linux), in MiB."""
    windows = windows_of(lab, n_tokens)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on, not from reading the text
    before = _peak_mib()
    streams = stream_prefixes(lab.gpt, batches_of(lab, windows, most), empty(lab))
    return {"tokens": streams[0].n_prefixes, "before_mib": before, "peak_mib": _peak_mib()}


def in_own_process(given: argparse.Namespace, n_tokens: int) -> dict[str, float]:
    """`peak_of`, where nothing else has happened."""
    options = [
        "--run",
        given.run,
        "--device",
        given.device,
        "--windows",
        str(given.windows),
        "--peak-of",
        str(n_tokens),
    ]
    command = [sys.executable, "-m", "bench.trigger_pass", *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _cached(lab: Lab, tokens: Tensor, name: str) -> Tensor:
    return lab.gpt.run_with_cache(tokens.to(lab.gpt.device), name, return_type=None)[1][name].cpu()


def _gpu_clock() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def main() -> None:
    """Print what was found and write it to bench/results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="runs/demo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=2_000_000, help="read in each round of the timing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=64, help="windows at a time, as the study's batch_size")
    parser.add_argument("--checked", type=int, default=20_000, help="tokens over which every number is checked")
    parser.add_argument("--sizes", type=int, nargs="*", default=[200_000, 2_000_000], help="for the memory")
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lab = open_run(given.run, given.device)
    if given.peak_of is not None:
        print(json.dumps(peak_of(lab, given.peak_of, given.windows)))
        return
    wrong = differences(lab, given.checked, given.windows)
    print(f"{lab.name}@{lab.step}: {wrong} numbers differ from a sort of all coefficients ({given.checked} tokens)")
    windows, rounds = windows_of(lab, given.tokens), []
    print(f"\n{'tokens':>10}{'plain, s':>12}{'triggers, s':>13}{'ratio':>8}")
    for _ in range(given.rounds):
        row = a_round(lab, windows, given.windows)
        rounds.append(row)
        print(f"{row['tokens']:>10}{row['plain']:>12.2f}{row['triggers']:>13.2f}{row['ratio']:>8.2f}")
    memory = [in_own_process(given, size) for size in given.sizes]
    print(f"\n{'tokens':>10}{'before, MiB':>14}{'peak, MiB':>12}")
    for row in memory:
        print(f"{row['tokens']:>10}{row['before_mib']:>14.0f}{row['peak_mib']:>12.0f}")
    tables: dict[str, Any] = {"run": f"{lab.name}@{lab.step}", "differences": wrong, "rounds": rounds, "memory": memory}
    print(f"\nWritten to {write_results('trigger_pass', tables)}")


if __name__ == "__main__":
    main()
