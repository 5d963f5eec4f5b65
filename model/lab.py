"""A run opened for study: the model of one checkpoint, its tokenizer, and the text it was trained and evaluated on.

    lab = open_run("runs/demo@512")
    logits = lab.gpt(lab.tokens("def main():"))

A run is named by its folder, or by its name under runs/, and a step behind an @; without a step, the last checkpoint is
opened. Everything that is read is verified against the hashes the run recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from model.checkpoint import load_checkpoint, weights_sha256
from model.config import GPTConfig
from model.errors import CheckpointError, InputError
from model.gpt import GPT
from model.manifest import read_manifest
from model.run_folders import (
    RUN,
    RUNS,
    checkpoint_path,
    checkpoint_steps,
    existing_step,
    imported_from,
    list_runs,
    parse_run_spec,
    read_run,
    resolve_run,
)
from model.settings import from_plain
from model.tokenizer import Tokenizer, Tokens, load_tokenizer
from model.training import eval_rows
from model.training.corpus import Corpus, build_corpus
from model.training.distributed import pick_device
from model.training.eval_rows import EvalRows
from model.training.metrics_log import FILE_NAME as METRICS
from model.training.metrics_log import read_rows
from model.training.sources import DataConfig

__all__ = [
    "METRICS", "RUN", "RUNS", "TOKENIZER", "Lab", "first_checkpoint", "imported_from", "list_runs", "open_run",
    "parse_run_spec", "read_metrics", "read_run", "resolve_run",
]  # fmt: skip

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class Lab:
    """One checkpoint of one run, opened."""

    gpt: GPT
    """The model, in evaluation mode."""
    tokenizer: Tokenizer
    path: Path
    """The run's folder."""
    step: int
    """Optimizer steps behind the weights."""
    tokens_seen: int
    """Training tokens behind the weights."""
    run_config: dict[str, Any]
    """run.json: the settings under "config", and what else the run recorded."""

    @property
    def name(self) -> str:
        """The run's name, which is its folder's."""
        return self.path.resolve().name

    @property
    def config(self) -> GPTConfig:
        """The model's config."""
        return self.gpt.config

    @property
    def imported_from(self) -> str | None:
        """What the model was imported from, in words; None for a run that was trained here."""
        return imported_from(self.run_config)

    @property
    def checkpoint_path(self) -> Path:
        """The folder of the opened checkpoint."""
        return checkpoint_path(self.path, self.step)

    @property
    def weights_sha256(self) -> str:
        """Hash of the weights as they are now: an edited model does not pass for the trained one."""
        return weights_sha256(self.gpt)

    def tokens(self, text: str) -> Int[Tensor, "1 pos"]:
        """The tokens of a text, behind BOS if the tokenizer has one, as every row in training was."""
        bos = [] if self.tokenizer.bos is None else [self.tokenizer.bos]
        return torch.tensor([bos + self.tokenizer.encode(text)], dtype=torch.int64, device=self.gpt.device)

    def str_tokens(self, tokens: Tokens | str) -> list[str]:
        """One printable string per token of a text or of tokens [pos] or [1, pos]; different ones never look alike."""
        return self.tokenizer.str_tokens(self._one_sequence(tokens))

    def text(self, tokens: Tokens) -> str:
        """The text of tokens [pos] or [1, pos], without BOS."""
        return self.tokenizer.decode(self._one_sequence(tokens))

    @cached_property
    def corpus(self) -> Corpus:
        """The text the run was trained (imported: is studied) on, read again; refused if it is no longer the same."""
        settings = self.run_config.get("config")
        if not isinstance(settings, dict) or not isinstance(settings.get("data"), dict):
            raise CheckpointError(
                f"{self.path / RUN} does not say what the run was trained on; restore its config.data."
            )
        config = from_plain(DataConfig, settings["data"], "data")
        corpus = build_corpus(config, self.tokenizer)
        recorded = self.run_config.get("corpus_sha256", corpus.sha256)
        if corpus.sha256 != recorded:
            done = "trained" if self.imported_from is None else "imported to be studied"
            raise InputError(
                f"The text that {self.name} was {done} on has changed: its hash is {corpus.sha256[:12]}, and was "
                f"{recorded[:12]}. Restore the files, or use the Python version of that time (stdlib is its source)."
            )
        return corpus

    @cached_property
    def eval_rows(self) -> EvalRows:
        """The run's held-out rows, with their offsets in the corpus."""
        return EvalRows.load(self.path / eval_rows.FILE_NAME)

    @property
    def eval_tokens(self) -> Int[Tensor, "row pos"]:
        """The run's held-out rows of n_ctx tokens, BOS first: the same for every checkpoint."""
        return self.eval_rows.tokens.to(self.gpt.device)

    def _one_sequence(self, tokens: Tokens | str) -> Tokens:
        if isinstance(tokens, str):
            return self.tokens(tokens)
        if isinstance(tokens, Tensor) and tokens.ndim > 1 and tokens.shape[0] != 1:
            raise InputError(
                f"Tokens of shape {list(tokens.shape)} are {tokens.shape[0]} sequences; give one, such as tokens[0]."
            )
        return tokens


def open_run(spec: str | Path, device: str | torch.device = "cpu") -> Lab:
    """Open a checkpoint: `runs/demo@512`, `runs/demo` or `demo` (the last step).

    Args:
        spec: the run's folder or name, and a step.
        device: where the model goes: `cpu`, `cuda`, `auto`, or a device of torch.

    Raises:
        UnknownNameError: there is no such run or step.
        CheckpointError: a file of the run is damaged.
    """
    path, step = parse_run_spec(spec)
    if step == "all":
        raise InputError(f'"{spec}" names every checkpoint, and one is opened at a time; write {path}@STEP.')
    step = existing_step(path, step)
    run = read_run(path)
    folder = checkpoint_path(path, step)
    gpt = load_checkpoint(folder, _device(device))
    tokenizer = load_tokenizer(path / TOKENIZER)
    if tokenizer.d_vocab != gpt.config.d_vocab:
        raise CheckpointError(
            f"The files of {path} are of different runs: the tokenizer has {tokenizer.d_vocab} tokens, "
            f"the model {gpt.config.d_vocab}."
        )
    seen = read_manifest(folder).tokens_seen
    return Lab(gpt=gpt, tokenizer=tokenizer, path=path, step=step, tokens_seen=seen, run_config=run)


def first_checkpoint(lab: Lab) -> Lab | None:
    """The same run's step 0, opened on the same device; None where it is not kept, and where `lab` is step 0."""
    if lab.step == 0 or 0 not in checkpoint_steps(lab.path):
        return None
    return open_run(f"{lab.path}@0", device=lab.gpt.device)


def read_metrics(run_dir: str | Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl by step; none if nothing was logged yet.

    A last line that is still being written is left out; of rows of one step (a run continued twice), the last counts.
    """
    rows = {row["step"]: row for _, row in read_rows(Path(run_dir) / METRICS)}
    return [rows[step] for step in sorted(rows)]


def _device(name: str | torch.device) -> torch.device:
    if name in ("auto", "cpu", "cuda"):
        return pick_device(str(name))
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f'There is no device "{name}"; take auto, cpu or cuda.') from None
    if device.type == "cuda":
        pick_device("cuda")  # refuses where torch sees none
    return device
