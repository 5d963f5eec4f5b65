"""A run's folder: who may write to it, what run.json says, and what a resumed run must agree with.

run.json holds every resolved setting, so that two runs can be compared key by key, and what else decides the numbers:
versions, source hashes, device. Writers hold a lock on the folder that dies with them, so that a killed run can be
resumed at once and a running one cannot be written to twice.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from model.dotted import dotted
from model.errors import ConfigError, TrainingError
from model.files import PARTIAL, REPLACED, clean_leftovers, clear_os_errors, read_json, write_json
from model.locks import try_lock
from model.settings import from_plain, to_plain
from model.training.config import RunConfig

FORMAT = 1
FILE_NAME = "run.json"
_BEFORE_RUN_JSON = frozenset({"tokenizer.json", "eval.safetensors"})
"""What a run killed while it was being set up may have written."""


def refuse_unless_free(out: Path, *, resume: bool) -> None:
    """Refuse, with a sentence, a folder in which this run cannot be started (or resumed); touches nothing."""
    with clear_os_errors("read", out, TrainingError):
        exists = out.exists()
        if exists and not out.is_dir():
            raise TrainingError(f"{out} is a file, not a folder; choose another --out.")
        found = {path.name for path in out.iterdir()} if exists else set()
    names = {name for name in found if not name.startswith((PARTIAL, REPLACED))}
    if resume and not exists:
        raise TrainingError(f"There is no run at {out} to resume; check the name, or leave --resume out to start one.")
    if resume and FILE_NAME not in names and names - _BEFORE_RUN_JSON:
        raise TrainingError(f"{out} is not a run: it holds other files and no {FILE_NAME}. Choose another folder.")
    if not resume and FILE_NAME in names:
        raise TrainingError(f"{out} already holds a run; add --resume to go on with it, or choose another --out.")
    if not resume and names - _BEFORE_RUN_JSON:
        raise TrainingError(f"{out} is not empty, and a run needs a folder of its own; choose another --out.")


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Hold the run folder `out`, created where needed, for writing; no other process can until the `with` ends."""
    with clear_os_errors("written", out, TrainingError):
        is_new = not out.exists()
        out.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out, os.O_RDONLY)
    try:
        _lock(descriptor, out)
        for folder in (out, out / "checkpoints"):
            if folder.is_dir():
                clean_leftovers(folder)
        yield
    finally:
        os.close(descriptor)
        if is_new:
            with suppress(OSError):
                out.rmdir()  # Only if nothing was written: a refused run leaves no empty folder behind.


def describe(config: RunConfig, corpus: Mapping[str, Any], device: torch.device, world_size: int) -> dict[str, Any]:
    """The content of run.json for a run that starts now; `loss_at_step_0` is still to come."""
    return {
        "format": FORMAT,
        "config": to_plain(config),
        "seed": config.train.seed,
        "n_params": config.model.n_params,
        "n_params_non_embedding": config.model.n_params_non_embedding,
        "flops_per_token": config.model.flops_per_token(),
        "tokens_per_step": config.tokens_per_step,
        "copy_period": config.copy_period,
        **corpus,
        "loss_at_step_0": None,
        "ln_d_vocab": math.log(config.model.d_vocab),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": str(device.type),
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "processes": world_size,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What computed the numbers."""
    try:
        own = version("cutaway")
    except PackageNotFoundError:
        own = "not installed"
    return {"cutaway": own, "python": platform.python_version(), "torch": torch.__version__, "platform": sys.platform}


def read_description(out: Path) -> dict[str, Any]:
    """run.json of the run in `out`, with the parts that resuming relies on; a `TrainingError` where it lacks them."""
    if not (out / FILE_NAME).exists():
        raise TrainingError(f"{out} holds no run ({FILE_NAME} is missing); start it without --resume.")
    content = read_json(out / FILE_NAME, TrainingError)
    if isinstance(content, dict) and isinstance(content.get("imported"), dict):
        raise TrainingError(
            f"{out} was imported from {content['imported'].get('source')}, so there is no training here to go on with; "
            "train another run with another --out."
        )
    parts = (("config", dict), ("corpus_sha256", str))
    if isinstance(content, dict) and all(isinstance(content.get(key), kind) for key, kind in parts):
        return content
    raise TrainingError(f"{out / FILE_NAME} is not what training wrote; restore it, or start another run.")


def saved_config(out: Path) -> RunConfig:
    """The configuration a run was started with."""
    return from_plain(RunConfig, read_description(out)["config"])


def refuse_changes(saved: RunConfig, asked: RunConfig, out: Path) -> None:
    """Refuse to resume with settings other than the saved ones, naming the first that differs."""
    before, now = dotted(to_plain(saved)), dotted(to_plain(asked))
    for key in before:
        if before[key] != now.get(key):
            raise ConfigError(
                f"{out} was started with {key}={_spoken(before[key])}, and now {key}={_spoken(now.get(key))} is asked "
                "for; resume it with the settings it was started with, or start another run with another --out."
            )


def note(out: Path, **values: Any) -> None:
    """Put values into run.json."""
    write_json(out / FILE_NAME, read_json(out / FILE_NAME, TrainingError) | values)


def _lock(descriptor: int, folder: Path) -> None:
    """Keep other trainings out of the folder; where there are no locks, that is the user's to do."""
    if not try_lock(descriptor):
        raise TrainingError(f"Another process is training in {folder}; wait for it, or choose another --out.")


def _spoken(value: Any) -> str:
    """A value as `--set` spells it."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return "none" if value is None else str(value)
