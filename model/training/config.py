"""What a training run is: model, data, optimizer and length, each a frozen config of its own.

A `RunConfig` together with a torch build determines the run: the same config gives the same weights, bit for bit on a
CPU. Sources of the defaults: AdamW with decoupled decay (Loshchilov & Hutter 2019), Muon (Jordan et al. 2024), the
warm-up, constant, decay schedule (Hu et al. 2024, MiniCPM), log-spaced checkpoints (Pythia, Biderman et al. 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import no_type_check

from model.config import AttentionKind, GPTConfig
from model.settings import as_enum
from model.training.checks import refuse, refuse_unless_finite
from model.training.corpus import DataConfig


class Optimizer(StrEnum):
    """What turns gradients into updates."""

    ADAMW = "adamw"
    """AdamW on every parameter."""
    MUON = "muon"
    """Muon on the matrices inside the blocks; AdamW on embeddings, unembedding, norms and biases."""


class Schedule(StrEnum):
    """How the learning rate goes down after its warm-up."""

    WSD = "wsd"
    """Constant, then a straight line down over the last `decay_share` of the steps."""
    COSINE = "cosine"
    """Half a cosine from the peak to the end."""


@no_type_check  # at run time enums may be given by their value; `__post_init__` checks them
@dataclass(frozen=True, kw_only=True, slots=True)
class OptimConfig:
    """The optimizer and its schedule."""

    optimizer: Optimizer = Optimizer.ADAMW
    lr: float = 3e-3
    """Peak learning rate of AdamW."""
    muon_lr: float = 0.02
    """Peak learning rate of Muon, for the matrices it has: about the largest singular value of an update."""
    schedule: Schedule = Schedule.WSD
    warmup_steps: int = 50
    """Steps of straight-line warm-up; the first step already moves."""
    decay_share: float = 0.2
    """Share of all steps in which a wsd schedule decays."""
    final_lr: float = 0.1
    """Learning rate of the last step, as a share of the peak."""
    weight_decay: float = 0.1
    """Decoupled decay, on matrices only (embeddings are matrices; norms and biases are not)."""
    clip: float | None = 1.0
    """Largest allowed norm of the whole gradient; none switches clipping off."""
    beta1: float = 0.9
    beta2: float = 0.95

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimizer", as_enum(Optimizer, self.optimizer, "optim.optimizer"))
        object.__setattr__(self, "schedule", as_enum(Schedule, self.schedule, "optim.schedule"))
        refuse_unless_finite(self, "optim")
        shares = {name: getattr(self, name) for name in ("decay_share", "final_lr")}
        betas = {name: getattr(self, name) for name in ("beta1", "beta2")}
        refuse(
            (not self.lr > 0, f"optim.lr={self.lr} must be a positive number."),
            (not self.muon_lr > 0, f"optim.muon_lr={self.muon_lr} must be a positive number."),
            (self.warmup_steps < 0, f"optim.warmup_steps={self.warmup_steps} must not be negative."),
            (self.weight_decay < 0, f"optim.weight_decay={self.weight_decay} must not be negative."),
            (
                self.clip is not None and self.clip <= 0,
                f"optim.clip={self.clip} must be positive, or none for no clipping.",
            ),
            *(
                (not 0 <= x <= 1, f"optim.{name}={x} is not a share; give a number from 0 to 1.")
                for name, x in shares.items()
            ),
            *(
                (not 0 <= x < 1, f"optim.{name}={x} must lie from 0 up to, not including, 1.")
                for name, x in betas.items()
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How long a run is, what one step is, and when it is looked at."""

    steps: int
    """Optimizer steps; checkpoint N holds the weights after N of them."""
    batch_size: int = 32
    """Sequences per step, over all micro-batches and all processes together."""
    accumulate: int = 1
    """Micro-batches a step is cut into; changes memory, not the gradient."""
    seed: int = 0
    """Draws the initial weights, the data order and dropout."""
    checkpoint_every: int = 500
    """After step 512, a checkpoint every this many steps (before: 0, 1, 2, 4, ..., 512)."""
    log_every: int = 50
    """A row of metrics every this many steps, and at 0, 1, 2, 4, ..., 512."""
    full_states: int = 2
    """The last checkpoints that keep the optimizer state, from which a run can be resumed."""
    eval_sequences: int = 32
    """Held-out text sequences, and fresh repeated sequences, that each row's eval losses are over."""
    probe_sequences: int = 8
    """Held-out sequences on which the residual norms and their gradients are read."""
    copy_period: int | None = None
    """Period of the fresh repeated tokens; left out, the longest that fits and was not trained on."""

    def __post_init__(self) -> None:
        refuse_unless_finite(self, "train")
        sizes = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("seed", "copy_period")}
        refuse(
            *((x < 1, f"train.{name}={x} must be a whole number of at least 1.") for name, x in sizes.items()),
            (self.seed < 0, f"train.seed={self.seed} must not be negative."),
        )
        refuse(
            (
                self.batch_size % self.accumulate != 0,
                f"train.batch_size={self.batch_size} does not divide into train.accumulate={self.accumulate} equal "
                "micro-batches; take a multiple.",
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything that determines a training run."""

    model: GPTConfig
    data: DataConfig
    train: TrainConfig
    optim: OptimConfig = field(default_factory=OptimConfig)

    def __post_init__(self) -> None:
        longest, period = (self.model.n_ctx - 1) // 2, self.train.copy_period
        refuse(
            (
                self.model.attention is not AttentionKind.CAUSAL,
                f"model.attention={self.model.attention.value} sees the token it should predict, so next-token "
                "training would learn nothing; take model.attention=causal.",
            ),
            (
                period is not None and not 2 <= period <= longest,
                f"train.copy_period={period} does not fit twice into n_ctx={self.model.n_ctx}; take 2 to {longest}.",
            ),
        )

    @property
    def copy_period(self) -> int | None:
        """The period of the fresh repeated tokens: `train.copy_period`, or one that training never shows.

        The longest that fits twice behind a BOS with no token twice in it; where training shows that one too
        (`data.sources` with `repeats`), the next one below what it shows; None where no period of 2 or more is left.
        """
        if self.train.copy_period is not None:
            return self.train.copy_period
        longest = min((self.model.n_ctx - 1) // 2, self.model.d_vocab - 1)
        trained = self.data.trained_periods
        period = trained.start - 1 if longest in trained else longest
        return period if period >= 2 else None

    @property
    def tokens_per_step(self) -> int:
        """Tokens predicted, and learned from, in one optimizer step."""
        return self.train.batch_size * self.model.n_ctx
