"""The audit of a run on disk: its files, then the model that they hold.

Where a file is damaged, that is the answer, and the model is not opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from interp.audit.measure import audited, sample_shape
from interp.audit.record import Audit, Ledger
from model.checkpoint import checkpoint_path, load_checkpoint, verify_checkpoint
from model.errors import CheckpointError
from model.lab import TOKENIZER, Lab, open_run, parse_run_spec, read_run
from model.manifest import read_manifest
from model.settings import to_plain
from model.tokenizer import load_tokenizer
from model.training import eval_rows
from model.training.eval_rows import EvalRows


def audit_run(spec: str | Path, device: str | torch.device = "cpu", *, seed: int = 0) -> Audit:
    """Check the files of RUN or RUN@STEP, and the model on the run's own held-out tokens.

    Raises:
        UnknownNameError: there is no such run or step.
        InputError: the specification names every checkpoint, or there is no such device.
    """
    ledger = Ledger()
    folder = _existing(spec)
    if folder is None:
        open_run(spec, device)  # says what there is instead
        raise RuntimeError(f"{spec} opens, and its folder was not found")
    if not _check_files(folder, ledger):
        return _unopened(folder, ledger)
    try:
        lab = open_run(spec, device)
    except CheckpointError as fault:
        ledger.failed(_culprit(folder), str(fault))
        return _unopened(folder, ledger)
    _check_run(lab, ledger)
    rows, n_pos = sample_shape(lab.gpt)
    tokens, kind = lab.eval_tokens[:rows, :n_pos], "held-out tokens"
    if any(check.name == "tokenizer" and not check.passed for check in ledger.checks()):
        generator = torch.Generator().manual_seed(seed)
        tokens, kind = torch.randint(lab.config.d_vocab, (rows, n_pos), generator=generator), f"random ids, seed {seed}"
    report = audited(lab.gpt, tokens, kind, seed=seed, ledger=ledger)
    return replace(report, subject=f"{lab.name}@{lab.step}: {report.subject}")


def _existing(spec: str | Path) -> Path | None:
    """The folder of the checkpoint that is meant, if it is there, whatever its state."""
    path, step = parse_run_spec(spec)
    if step is None:  # the newest, not the newest whole one, which is what opening takes
        return max(path.glob("checkpoints/step-*"), default=None)
    folder = None if step == "all" else checkpoint_path(path, step)
    return folder if folder is not None and folder.is_dir() else None


def _check_files(folder: Path, ledger: Ledger) -> bool:
    """Whether everything that opening needs can be read."""
    run = folder.parent.parent
    looks: tuple[tuple[str, str, Callable[[], Any]], ...] = (
        ("checkpoint files", "files that are missing or altered", lambda: verify_checkpoint(folder)),
        ("run config", "", lambda: read_run(run)),
        ("tokenizer", "", lambda: (load_tokenizer(run / TOKENIZER), EvalRows.load(run / eval_rows.FILE_NAME))),
    )
    is_whole = True
    for name, counted, look in looks:
        try:
            look()
        except CheckpointError as fault:
            ledger.failed(name, str(fault))
            is_whole = False
        else:
            if counted:
                ledger.measured(name, 0.0, 0.0, reason=counted)
    return is_whole


def _culprit(folder: Path) -> str:
    """What keeps whole files from being opened: weights of another model, or a tokenizer of another run."""
    try:
        load_checkpoint(folder)
    except CheckpointError:
        return "weights"
    return "tokenizer"


def _check_run(lab: Lab, ledger: Ledger) -> None:
    """Whether the parts of an opened run belong together."""
    recorded, loaded = read_manifest(lab.checkpoint_path).weights_sha256, lab.weights_sha256
    ledger.measured(
        "weights",
        float(recorded != loaded),
        0.0,
        reason=f"recorded {recorded[:12]}, loaded {loaded[:12]}",
    )
    settings = lab.run_config.get("config")
    said = settings.get("model") if isinstance(settings, dict) else None
    if not isinstance(said, dict):
        ledger.failed("run config", "run.json does not say what the model is")
    else:
        own = to_plain(lab.config)
        different = sorted(key for key in own.keys() | said.keys() if own.get(key) != said.get(key))
        ledger.measured(
            "run config", float(len(different)), 0.0, where=", ".join(different), reason="settings that differ"
        )
    tokens = lab.eval_tokens
    strangers = int(((tokens < 0) | (tokens >= lab.tokenizer.d_vocab)).sum())
    missing = abs(lab.tokenizer.d_vocab - lab.config.d_vocab)
    ledger.measured("tokenizer", float(strangers + missing), 0.0, reason="tokens that one of the two does not know")


def _unopened(folder: Path, ledger: Ledger) -> Audit:
    return Audit(checks=ledger.checks(), subject=f"{folder}, not opened", tokens="nothing", seconds=0.0)
