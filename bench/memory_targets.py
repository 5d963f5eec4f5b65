"""Do FFN memories trained here do what Geva et al. 2021 report? `python -m bench.memory_targets runs/memories`.

Reads what `cutaway run ffn-memories RUN` and `cutaway run ffn-composition RUN` saved of a run's last checkpoint, prints
each target beside the same number at step 0 and by chance, and writes bench/results/memory_targets.json. Seconds;
nothing is run through a model. Several runs, of several seeds, may be given. docs/studies/ffn-memories.md says what
each row means.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.memory_bars import TARGETS, Row
from bench.memory_found import Found, found_of, surest
from bench.memory_measures import Measurement
from bench.timing import write_results


def table(rows: Sequence[Row]) -> str:
    """The rows of one run as a Markdown table."""
    lines = ["| target | what | bar | trained | n | step 0 | chance | verdict |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        trained, n = (
            ("", "") if row.trained is None else (_interval(row.trained), f"{row.trained.n:,} {row.trained.unit}")
        )
        zero = "" if row.at_zero is None else _number(row.at_zero.value)
        chance = "" if row.chance is None else _number(row.chance)
        target = row.target
        lines.append(
            f"| {' | '.join((target.name, target.claim, target.bar, trained, n, zero, chance, row.verdict))} |"
        )
    return "\n".join(lines)


def layer_table(rows: Sequence[Row]) -> str:
    """What each layer has, for the targets that ask every layer."""
    shown = [(row.target, row.trained.layers) for row in rows if row.trained is not None and row.trained.layers]
    n = max(len(layers) for _, layers in shown)
    head = [f"| by layer | {' | '.join(f'L{layer}' for layer in range(n))} |", f"|---|{'---|' * n}"]
    return "\n".join(head + [f"| {target.claim} | {' | '.join(map(_number, layers))} |" for target, layers in shown])


def _surest(found: Found) -> str:
    by_layer, n_agreeing = surest(found)
    where = ", ".join(f"L{layer} {n}" for layer, n in enumerate(by_layer))
    kept = found.memories.config.n_triggers
    return (
        f"The {sum(by_layer)} values that are surest of their top token, by layer: {where}. "
        f"In {n_agreeing} it follows one of the key's {kept} triggers."
    )


def plain(row: Row) -> dict[str, Any]:
    """A row as JSON holds it; what is not a number is null."""
    target = row.target
    named = {"target": target.name, "claim": target.claim, "bar": target.bar, "met": row.met, "verdict": row.verdict}
    chance = None if row.chance is None else _finite(row.chance)
    return named | {"trained": _plain(row.trained), "step_zero": _plain(row.at_zero), "chance": chance}


def _plain(measured: Measurement | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    fields = {name: _finite(value) for name, value in asdict(measured).items()}
    return fields | {"layers": [_finite(value) for value in measured.layers]}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _interval(measured: Measurement) -> str:
    ends = "" if math.isnan(measured.low) else f" [{_number(measured.low)}, {_number(measured.high)}]"
    return _number(measured.value) + ends + ("" if measured.p is None else f", p = {measured.p:.2g}")


def _number(value: float) -> str:
    if math.isnan(value):
        return "none"
    return f"{value:.3g}" if abs(value) >= 10 else f"{value:.3f}"


def main() -> None:
    """Read, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    written = {}
    for run in parser.parse_args().runs:
        found = found_of(run)
        rows = [target.row(found) for target in TARGETS]
        at = f"{run}@{found.step}"
        print(f"{at}\n\n{table(rows)}\n\n{layer_table(rows)}\n\n{_surest(found)}\n")
        written[at] = [plain(row) for row in rows]
    print(f"Written to {write_results('memory_targets', written)}.")


if __name__ == "__main__":
    main()
