"""What two training runs logged about their gradients, and whether they may be compared (for `analyses.gradient_flow`).

A pair is matched when every setting that influences training is the same in both but the norm's placement: then the
seed, and with it the data order, is the same too. Where more differs, all of it is listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.gradients import MATRICES
from model.dotted import dotted
from model.errors import InputError
from model.lab import RUN, read_metrics, read_run, resolve_run
from model.training.metrics_log import FILE_NAME as METRICS

BOOKKEEPING = frozenset({"train.checkpoint_every", "train.full_states", "train.log_every"})
"""Settings that say when a run is looked at, and leave the weights alone."""

_MATRIX = re.compile(r"L\d+\.W_\w+")
_LOGGED = ("grad_norms", "resid_grad_norms", "resid_norms")


@dataclass(frozen=True, kw_only=True)
class TrainingMap:
    """One run's gradient norms over its steps."""

    run: str
    """Its folder's name."""

    norm: str
    """Where its norms stand."""

    steps: Int[Tensor, " step"]

    loss: Float[Tensor, " step"]
    """Training loss in nats per token."""

    matrices: tuple[str, ...]
    """"L0.W_Q" and so on, layer by layer."""

    matrix_norms: Float[Tensor, "step matrix"]
    """Norm of dL/dW on the training batch, before clipping."""

    places: tuple[str, ...]
    """Places of the residual stream, by hook name, in forward order."""

    stream_norms: Float[Tensor, "step place"]
    """Norm of dL/dx on a fixed held-out batch."""

    stream_rms: Float[Tensor, "step place"]
    """Root mean square of x there."""

    @property
    def n_layers(self) -> int:
        """Layers of the run's model."""
        return 1 + max(int(place.split(".")[1]) for place in self.places)

    def of_layers(self, matrix: str) -> Float[Tensor, "step layer"]:
        """One kind of matrix over the layers."""
        return torch.stack(
            [self.matrix_norms[:, self.matrices.index(f"L{layer}.{matrix}")] for layer in range(self.n_layers)], dim=1
        )


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that two runs do not share."""

    setting: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.setting} ({self.first} and {self.second})"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A run and its twin, side by side."""

    first: TrainingMap
    second: TrainingMap
    differences: tuple[Difference, ...]
    """Every setting that is not the same, the norm's placement included, bookkeeping excluded."""
    seed: int
    """The first run's seed."""

    @property
    def unmatched(self) -> tuple[Difference, ...]:
        """Differences other than the norm's placement."""
        return tuple(d for d in self.differences if d.setting != "model.norm")

    @property
    def matched(self) -> bool:
        """Whether the placement differs and nothing else does."""
        return len(self.differences) == 1 and not self.unmatched

    def spoken(self) -> str:
        """Whether the runs may be compared, in words."""
        names = f"{self.first.run} ({self.first.norm}) and {self.second.run} ({self.second.norm})"
        if self.matched:
            return f"{names} share seed {self.seed}, data, and every setting but the norm's placement"
        if not self.differences:
            return f"{names} do not differ in any setting, so there is no placement to compare"
        beyond = ", ".join(map(str, self.unmatched))
        same_norm = "" if len(self.unmatched) < len(self.differences) else "; the norm's placement is the same"
        return f"{names} are not a matched pair: they differ in {beyond}{same_norm}"


def log_files(run_dir: Path) -> list[Path]:
    """The files of a run that its map and its comparison with a twin are read from."""
    return [run_dir / RUN, run_dir / METRICS]


def training_map(run_dir: Path, record: Mapping[str, Any]) -> TrainingMap | None:
    """The logged norms of the run in `run_dir`, with its run.json as `record`; None where it logged none."""
    rows = [row for row in read_metrics(run_dir) if all(row.get(key) for key in _LOGGED)]
    if not rows:
        return None
    matrices = sorted((name for name in rows[0]["grad_norms"] if _MATRIX.fullmatch(name)), key=_matrix_order)
    places = sorted(rows[0]["resid_norms"], key=_place_order)
    return TrainingMap(
        run=run_dir.resolve().name,
        norm=str(record["config"]["model"]["norm"]),
        steps=torch.tensor([row["step"] for row in rows]),
        loss=torch.tensor([float(row["loss"]) for row in rows]),
        matrices=tuple(matrices),
        matrix_norms=_numbers(rows, "grad_norms", matrices),
        places=tuple(places),
        stream_norms=_numbers(rows, "resid_grad_norms", places),
        stream_rms=_numbers(rows, "resid_norms", places),
    )


def paired(run_dir: Path, record: Mapping[str, Any], twin: str) -> Pair:
    """The maps of a run and of the run called `twin`; raises `InputError` where either has logged nothing."""
    twin_dir = resolve_run(twin)
    if twin_dir.resolve() == run_dir.resolve():
        raise InputError(f'twin="{twin}" is the run itself; name a run with another placement of the norms.')
    twin_record = read_run(twin_dir)
    return Pair(
        first=_required_map(run_dir, record),
        second=_required_map(twin_dir, twin_record),
        differences=differing_settings(record, twin_record),
        seed=int(record["config"]["train"]["seed"]),
    )


def _required_map(run_dir: Path, record: Mapping[str, Any]) -> TrainingMap:
    found = training_map(run_dir, record)
    if found is None:
        raise InputError(f"{run_dir} has logged no gradient norms in metrics.jsonl, so it has no map; train it again.")
    return found


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The settings of model, data, optimizer, training and corpus in which two runs differ."""
    left, right = _settings(first), _settings(second)
    names = [name for name in {**left, **right} if name not in BOOKKEEPING and left.get(name) != right.get(name)]
    return tuple(
        Difference(setting=n, first=str(left.get(n, "absent")), second=str(right.get(n, "absent"))) for n in names
    )


def _settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a run was made of, by dotted names."""
    return dotted(record["config"]) | {"corpus": record.get("corpus_sha256")}


def _numbers(rows: Sequence[Mapping[str, Any]], key: str, names: Sequence[str]) -> Tensor:
    return torch.tensor([[float(row[key].get(name, float("nan"))) for name in names] for row in rows])


def _matrix_order(name: str) -> tuple[int, int]:
    layer, _, matrix = name[1:].partition(".")
    return int(layer), MATRICES.index(matrix)


def _place_order(name: str) -> tuple[int, int]:
    _, layer, tap = name.split(".")
    return int(layer), ("hook_resid_pre", "hook_resid_mid", "hook_resid_post").index(tap)
