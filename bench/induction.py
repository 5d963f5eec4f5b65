"""Do the models of the literature on induction come out here? `python -m bench.induction --seeds 0 1 2`.

Trains the preset `induction` and three variants of it for each seed (a minute and a half of processor time a seed; runs
that are there already are taken as they are), measures them, prints what was measured beside each target, writes it to
bench/results/induction.json, and draws docs/img/induction.svg. docs/induction.md says what each row means.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from analyses.figures import save_svg
from bench.induction_figure import figure
from bench.induction_runs import Found, Kind, measured
from bench.induction_targets import TARGETS, Row
from bench.timing import write_results
from model.settings import to_plain

FIGURE = Path(__file__).parents[1] / "docs/img/induction.svg"


def rows_of(found: Sequence[Found]) -> list[Row]:
    """Every target that some of the models bear on."""
    kinds = {each.kind for each in found}
    return [target.row(found) for target in TARGETS if target.kind in kinds]


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    seeds = rows[0].seeds
    lines = [
        f"| target | model | what | bar | {' | '.join(f'seed {seed}' for seed in seeds)} | met |",
        f"|---|---|---|---|{'---|' * len(seeds)}---|",
    ]
    for row in rows:
        values = " | ".join(_written(value) for value in row.values)
        target = row.target
        name = target.kind.run_name.replace("-", " ")
        lines.append(f"| {target.name} | {name} | {target.claim} | {target.bar} | {values} | {row.verdict} |")
    return "\n".join(lines)


def plain(found: Found) -> dict[str, Any]:
    """One model's numbers, as JSON holds them."""
    parts = {name: getattr(found, name) for name in ("copying", "course", "change", "circuit")}
    heads = {name: getattr(found.attention, name).tolist() for name in ("previous", "induction", "control")}
    alone = {"copy_loss_at_trained_period": found.copy_loss_at_trained_period, "ln_vocabulary": found.ln_vocabulary}
    return {"kind": found.kind.run_name, "seed": found.seed, **alone, "attention": heads} | to_plain(parts)


def _written(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 20 else f"{value:.2f}"


def main() -> None:
    """Train, measure, print, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/induction"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = [measured(kind, seed, given.runs) for seed in given.seeds for kind in Kind]
    rows = rows_of(found)
    print(table(rows))
    models = {f"{each.kind.run_name}-{each.seed}": plain(each) for each in found}
    targets = [{**_named(row), "seeds": row.seeds, "values": row.values, "met": row.met} for row in rows]
    print(f"\nWritten to {write_results('induction', {'models': models, 'targets': targets})}", end=" ")
    print(f"and {save_svg(figure(found), FIGURE)}.")


def _named(row: Row) -> dict[str, str]:
    return {
        "target": row.target.name,
        "kind": row.target.kind.run_name,
        "claim": row.target.claim,
        "bar": row.target.bar,
    }


if __name__ == "__main__":
    main()
