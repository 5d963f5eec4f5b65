"""Opening a run for training: its data, its probe and its model, from the beginning or from its last good checkpoint.

Everything that a user can get wrong (a vocabulary that does not fit, an empty corpus, a changed setting) is found
here, before the first file is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.checkpoint import checkpoint_path, checkpoint_steps, load_checkpoint, load_train_state
from model.config import GPTConfig
from model.errors import CheckpointError, ConfigError, TrainingError
from model.files import write_json
from model.gpt import GPT
from model.tokenizer import Tokenizer, load_tokenizer
from model.training import run_files
from model.training.batches import BatchSource
from model.training.clock import Clock
from model.training.config import RunConfig
from model.training.corpus import Split, build_corpus, build_tokenizer
from model.training.distributed import World
from model.training.eval_rows import FILE_NAME as EVAL_ROWS
from model.training.eval_rows import EvalRows
from model.training.probe import Probe, build_probe
from model.training.step import BatchAt, Stepper

TOKENIZER = "tokenizer.json"
NEVER_DRAWN_SHARE = 0.01
"""Share of the training text that may stand in documents too short to be drawn before it is said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A run opened for training."""

    config: RunConfig
    stepper: Stepper
    probe: Probe
    start: int
    """The step to begin at."""
    resumed: bool
    """Whether that step was loaded from a checkpoint."""
    clock: Clock


def open_session(
    config: RunConfig, out: Path, device: torch.device, world: World, say: Callable[[str], None]
) -> Session:
    """Build the parts of the run in `out`, checking them against what the folder already holds."""
    saved = _saved(config, out, say)
    tokenizer = build_tokenizer(config.data) if saved is None else load_tokenizer(out / TOKENIZER)
    check_vocabulary(config.model, tokenizer)
    corpus = build_corpus(config.data, tokenizer)
    if saved is not None and saved["corpus_sha256"] != corpus.sha256:
        raise TrainingError(
            f"The text that {out} was started on has changed (its hash is {corpus.sha256[:12]}, then "
            f"{saved['corpus_sha256'][:12]}); restore the sources, or start another run."
        )
    batches = BatchSource(config.data, corpus, tokenizer, config.model.n_ctx)
    rows = batches.eval_rows()
    found = _last_state(out, device, say) if saved is not None else None
    gpt = GPT(config.model, seed=config.train.seed).to(device) if found is None else found.gpt
    stepper = Stepper(gpt.train(), config, _share(batches, config, world), world)
    if found is not None:
        stepper.optimizers.load_state(found.tensors)
    if saved is None and world.leads:
        _tell_if_much(batches.never_drawn, corpus.train, config.model.n_ctx, say)
        said = corpus.describe()
        said["corpus"]["n_tokens_never_drawn"] = batches.never_drawn.n_tokens
        _write_setup(out, tokenizer, rows, run_files.describe(config, said, device, world.size))
    world.wait()
    return Session(
        config=config,
        stepper=stepper,
        probe=build_probe(config, tokenizer, rows, device),
        start=0 if found is None else found.step,
        resumed=found is not None,
        clock=Clock() if found is None else Clock(**found.clock),
    )


def check_vocabulary(config: GPTConfig, tokenizer: Tokenizer) -> None:
    """Refuse a model whose vocabulary is not the tokenizer's."""
    if config.d_vocab != tokenizer.d_vocab:
        raise ConfigError(
            f"model.d_vocab={config.d_vocab}, but the {tokenizer.kind} tokenizer has {tokenizer.d_vocab} tokens; "
            f"set model.d_vocab={tokenizer.d_vocab}."
        )


def _saved(config: RunConfig, out: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """run.json of the run that is resumed, whose settings must be these; None for a run that starts."""
    if not (out / run_files.FILE_NAME).exists():
        return None
    run_files.refuse_changes(run_files.saved_config(out), config, out)
    saved = run_files.read_description(out)
    then, now = saved.get("versions", {}).get("torch"), run_files.versions()["torch"]
    if then != now:
        say(f"This run was started with torch {then} and goes on with {now}: the same training, but not bit for bit.")
    return saved


def _tell_if_much(never_drawn: Split, train: Split, n_ctx: int, say: Callable[[str], None]) -> None:
    """Say so where many of the training tokens stand in documents too short for a window."""
    share = never_drawn.n_tokens / max(train.n_tokens, 1)
    if share > NEVER_DRAWN_SHARE:
        say(
            f"{len(never_drawn.spans)} of the {len(train.spans)} training documents ({share:.1%} of the training text) "
            f"are too short for a row at model.n_ctx={n_ctx} and are never drawn; join them into longer files, or "
            "lower model.n_ctx."
        )


def _write_setup(out: Path, tokenizer: Tokenizer, rows: EvalRows, description: dict[str, Any]) -> None:
    """What a run consists of besides checkpoints and metrics; run.json last, for it says that the rest is there."""
    tokenizer.save(out / TOKENIZER)
    rows.save(out / EVAL_ROWS)
    write_json(out / run_files.FILE_NAME, description)


def _share(batches: BatchSource, config: RunConfig, world: World) -> BatchAt:
    """This process's rows of each step."""
    n_rows, seed = world.share_of(config.train.batch_size), config.train.seed
    return lambda step: batches.batch(step, n_rows, seed, world.rank, world.size)


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """A checkpoint from which training can go on."""

    gpt: GPT
    step: int
    tensors: dict[str, Tensor]
    clock: dict[str, float]


def _last_state(out: Path, device: torch.device, say: Callable[[str], None]) -> _State | None:
    """The last checkpoint that holds a whole training state and is undamaged; None if nothing was saved yet."""
    steps = checkpoint_steps(out)
    for step in reversed(steps):
        path = checkpoint_path(out, step)
        try:
            state = load_train_state(path)
            if state is None:
                continue
            gpt = load_checkpoint(path, device=str(device))
        except CheckpointError as damage:
            say(f"Checkpoint {step} cannot be used: {damage} Looking for an earlier one.")
            continue
        tensors, content = state
        say(f"Going on from step {step}.")
        return _State(gpt=gpt, step=step, tensors=dict(tensors), clock=content["clock"])
    if steps:
        raise CheckpointError(
            f"None of the checkpoints in {out} holds an undamaged optimizer state, so the run cannot be resumed; "
            "its weights can still be studied. Start another run."
        )
    say("Nothing was saved yet; beginning at step 0.")
    return None
