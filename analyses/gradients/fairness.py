"""May two runs be compared? What they share and where they differ, group by group (for `analyses.gradient_flow`).

The settings are read from both runs' records; whether the weights began alike is not taken from the seed but looked up
in both checkpoints of step 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError, safe_open

from analyses.gradients.runs import BOOKKEEPING, differing_settings
from model.checkpoint import WEIGHTS, checkpoint_path
from model.dotted import as_typed, dotted
from model.lab import read_run

GROUPS: dict[str, tuple[str, ...]] = {
    "text": ("corpus", "data.sources", "data.stdlib_bytes", "data.tokenizer", "data.held_out"),
    "data order": ("data.", "train.seed", "train.batch_size", "train.accumulate"),
    "budget": ("train.steps",),
    "learning rate": (
        "optim.lr", "optim.muon_lr", "optim.schedule", "optim.warmup_steps", "optim.decay_share", "optim.final_lr",
    ),
    "optimizer": ("optim.",),
    "placement of the norms": ("model.norm",),
    "rest of the model": ("model.",),
    "other settings": ("",),
}  # fmt: skip
"""Which settings belong together; a setting belongs to the first group that names it, or the beginning of its name."""

SAME, DIFFERS, WANTED, UNKNOWN = "same", "differs", "differs, as it should", "not known"
MOST_BYTES = 400_000_000
"""Of weights that are compared tensor by tensor."""

_THE_SAME = "the same"

COLUMNS = ("what", "verdict", "first", "second")


def fairness_rows(first: Path | str, second: Path | str) -> pd.DataFrame:
    """One row for each group: whether two runs agree in it, and the settings in which they do not, or that they share.

    Args:
        first: folder of a run.
        second: folder of its twin.
    """
    one, other = read_run(Path(first)), read_run(Path(second))
    rows = [_row(group, one, other) for group in GROUPS]
    rows.insert(2, _initial_row(Path(first), Path(second)))
    return pd.DataFrame([row for row in rows if row is not None], columns=list(COLUMNS))


def unfair(rows: pd.DataFrame) -> list[str]:
    """The groups in which the runs differ though they should not, or could not be compared."""
    same_norm = rows.loc[(rows["what"] == "placement of the norms") & (rows["verdict"] == SAME), "what"]
    return [*rows.loc[rows["verdict"].isin([DIFFERS, UNKNOWN]), "what"], *same_norm]


def _row(group: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, str] | None:
    settings = [_settings(record) for record in (one, other)]
    names = [name for name in {**settings[0], **settings[1]} if _group_of(name) == group and name not in BOOKKEEPING]
    if not names:
        return None
    differing = {each.setting for each in differing_settings(one, other)} & set(names)
    shown = sorted(differing) or names
    verdict = SAME if not differing else WANTED if group == "placement of the norms" else DIFFERS
    words = [", ".join(f"{_short(name)} {_said(each.get(name))}" for name in shown) for each in settings]
    words[1] = words[1] if differing else _THE_SAME
    return dict(zip(COLUMNS, (group, verdict, *words), strict=True))


def _settings(record: Mapping[str, Any]) -> dict[str, Any]:
    return dotted(record["config"]) | {"corpus": record.get("corpus_sha256")}


def _group_of(name: str) -> str:
    exact = (group for group, names in GROUPS.items() if name in names)
    return next(exact, None) or next(
        group for group, names in GROUPS.items() if any(name.startswith(each) for each in names if each[-1:] in ".")
    )


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _said(value: Any) -> str:
    text = as_typed(value)
    return text[:8] if len(text) == 64 else text  # of a hash its beginning


def _initial_row(first: Path, second: Path) -> dict[str, str]:
    """Whether the tensors that both models have were the same, bit for bit, before the first step."""
    files = [checkpoint_path(run, 0) / WEIGHTS for run in (first, second)]
    row = {"what": "initial weights", "verdict": UNKNOWN, "first": "", "second": ""}
    if not all(file.is_file() for file in files):
        return row | {"first": "step 0 is not saved by both"}
    if max(file.stat().st_size for file in files) > MOST_BYTES:
        return row | {"first": "too large to be compared here"}
    try:
        equal, shared, alone = _shared_tensors(*files)
    except SafetensorError as error:
        return row | {"first": f"step 0 cannot be read: {error}"}
    said = f"{equal} of {shared} shared tensors are equal at step 0"
    return row | {"verdict": SAME if equal == shared else DIFFERS, "first": said, "second": alone}


def _shared_tensors(first: Path, second: Path) -> tuple[int, int, str]:
    with safe_open(first, "pt") as one, safe_open(second, "pt") as other:
        mine, theirs = set(one.keys()), set(other.keys())
        both = sorted(mine & theirs)
        equal = sum(torch.equal(one.get_tensor(name), other.get_tensor(name)) for name in both)
    alone = sorted(mine ^ theirs)
    return equal, len(both), f"in one of them only: {', '.join(alone)}" if alone else ""
