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
from model.checkpoint import checkpoint_path, load_checkpoint, step_of, verify_checkpoint
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
    return replace(report, subject=f"{lab.name}@{lab.step}: {report.subject}", checkpoint=_spec_of(folder))


def _existing(spec: str | Path) -> Path | None:
    """The folder of the checkpoint that is meant, if it is there, whatever its state."""
    path, step = parse_run_spec(spec)
    if step is None:  # the newest, not the newest whole one, which is what opening takes
        begun = (step_of(folder) for folder in path.glob("checkpoints/*") if folder.is_dir())
        return max((checkpoint_path(path, each) for each in begun if each is not None), default=None)
    folder = None if step == "all" else checkpoint_path(path, step)
    return folder if folder is not None and folder.is_dir() else None


def _check_files(folder: Path, ledger: Ledger) -> bool:
    """Whether everything that opening needs can be read."""
    run = folder.parent.parent
    looks: tuple[tuple[str, str, Callable[[], Any]], ...] = (
        ("checkpoint files", "files missing or altered", lambda: verify_checkpoint(folder)),
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
                ledger.measured(name, 0.0, 0.0, unit=counted)
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
        reason=f"Recorded {recorded[:12]}, loaded {loaded[:12]}",
    )
    settings = lab.run_config.get("config")
    said = settings.get("model") if isinstance(settings, dict) else None
    if not isinstance(said, dict):
        ledger.failed("run config", "run.json does not say what the model is")
    else:
        own = to_plain(lab.config)
        different = sorted(key for key in own.keys() | said.keys() if own.get(key) != said.get(key))
        ledger.measured(
            "run config", float(len(different)), 0.0, where=", ".join(different), unit="settings that differ"
        )
    _check_tokenizer(lab, ledger)


def _check_tokenizer(lab: Lab, ledger: Ledger) -> None:
    """An id that a padded vocabulary has and the tokenizer has no token for may not be held out either."""
    tokens, size = lab.eval_tokens, lab.tokenizer.d_vocab
    empty: tuple[int, ...] = getattr(lab.tokenizer, "ids_without_token", ())
    strangers = (tokens < 0) | (tokens >= size) | torch.isin(tokens, torch.tensor(empty).to(tokens))
    ledger.measured(
        "tokenizer",
        float(int(strangers.sum()) + abs(size - lab.config.d_vocab)),
        0.0,
        unit="tokens that one of the two does not know",
        reason=f"{size:,} ids, of which {size - len(empty):,} stand for a token" if empty else f"{size:,} ids",
    )


def _unopened(folder: Path, ledger: Ledger) -> Audit:
    return Audit(
        checks=ledger.checks(),
        subject=f"{folder}, not opened",
        tokens="",
        seconds=0.0,
        checkpoint=_spec_of(folder),
    )


def _spec_of(folder: Path) -> str:
    """The folder of a checkpoint as RUN@STEP."""
    return f"{folder.parent.parent}@{int(folder.name.rpartition('-')[2])}"
