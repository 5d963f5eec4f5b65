"""Timing things side by side, fairly: the same inputs, interleaved rounds, medians, minima, the spread beside them."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).with_name("results")


def wall() -> float:
    """Seconds on the clock, everything that was asked of a GPU done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds(
    cases: Mapping[str, Callable[[], Any]], *, rounds: int, warm_up: int = 2, clock: Callable[[], float] = wall
) -> dict[str, dict[str, float]]:
    """Median, lower and upper quartile and minimum of each case's time in ms, by the wall clock unless told otherwise.

    Every round runs all cases once, so that a machine that is busy for a while is busy for all of them. With one thread
    `time.process_time` leaves out what other processes take.
    """
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(warm_up + rounds):
        for name, case in cases.items():
            started = clock()
            case()
            if turn >= warm_up:
                taken[name].append((clock() - started) * 1e3)
    return {name: _summary(times) for name, times in taken.items()}


def _summary(times: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(times, n=4)
    return {"median": median, "low": low, "high": high, "least": min(times), "rounds": len(times)}


def print_table(title: str, rows: Mapping[str, Mapping[str, float]], *, by: str = "median") -> None:
    """One line for each case: median or another number, quartiles, and how many times the first case it takes."""
    base = next(iter(rows.values()))[by]
    print(f"\n{title}\n{'':<34}{'ms':>9}{'quartiles':>20}{'x':>8}")
    for name, row in rows.items():
        spread = f"{row['low']:.2f} to {row['high']:.2f}"
        print(f"{name:<34}{row[by]:>9.2f}{spread:>20}{row[by] / base:>8.2f}")


def write_results(name: str, tables: Mapping[str, Any]) -> Path:
    """Everything as JSON, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    machine = {
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine, "tables": tables}, indent=1) + "\n", encoding="utf-8")
    return path
