"""The training loop: from a `RunConfig` and a folder to a run.

At a step boundary, and only there, the loop saves, measures, stops. What it does at step s it does to the weights
after s updates: the row of metrics at s holds their loss on batch s, the gradient of it, and the update that follows.
Nothing about the past is remembered outside the checkpoint (the data order, the schedule and dropout are functions of
the step), so that a resumed run equals an uninterrupted one bit for bit on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.checkpoint import STATE_RECORD, checkpoint_path, checkpoint_steps, drop_train_state, save_checkpoint
from model.errors import CutawayError, TrainingError
from model.training.config import RunConfig
from model.training.distributed import World, connected, pick_device
from model.training.interrupts import Interrupted, stop_requests
from model.training.metrics_log import MetricsLog
from model.training.progress import Progress, Silent
from model.training.run_files import claimed, note, refuse_unless_free
from model.training.schedule import steps_to_log, steps_to_save
from model.training.setup import Session, open_session


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSummary:
    """What a finished run came to."""

    path: Path
    steps: int
    resumed_at: int
    """The step this call began at."""
    tokens: int
    """Tokens learned from since step 0."""
    seconds: float
    """Time since step 0, without the time between sessions."""
    measuring_seconds: float
    """The part of it spent on the probe's batches."""
    last_row: Mapping[str, Any]
    """The metrics of the last step."""

    def __str__(self) -> str:
        row, tokens_per_s = self.last_row, self.tokens / max(self.seconds, 1e-9)
        losses = [
            f"{words} {row[key]:.3f}"
            for key, words in (("loss", "loss"), ("eval_loss", "held out"), ("copy_loss", "copying"))
            if key in row
        ]
        return (
            f"{self.steps:,} steps, {self.tokens:,} tokens in {self.seconds:.0f} s ({tokens_per_s:,.0f} tokens/s, "
            f"{self.measuring_seconds / max(self.seconds, 1e-9):.1%} of the time measuring); "
            f"{', '.join(losses)} nats per token."
        )


def train(
    run_config: RunConfig,
    out: Path | str,
    *,
    resume: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> TrainSummary:
    """Train, leaving in `out` run.json, metrics.jsonl, tokenizer.json, eval.safetensors and checkpoints.

    Ctrl-C and SIGTERM save at the next step boundary and raise `Interrupted`; killed outright, the run resumes from
    its last checkpoint. A loss or gradient that is not finite raises `TrainingError` before it reaches what is saved.
    """
    out, place = Path(out), pick_device(device)
    with connected(place) as world, flushed_denormals():
        watcher = progress if progress is not None and world.leads else Silent()
        if world.leads:
            refuse_unless_free(out, resume=resume)
        with claimed(out) if world.leads else nullcontext():
            session = open_session(run_config, out, place, world, watcher.message)
            with (
                _told_how_to_go_on(),
                MetricsLog(out, keep_below=session.start) if world.leads else nullcontext() as log,
                stop_requests() as stop,
            ):
                return _Loop(session, out, world, log, watcher, stop).run()


class _Loop:
    """One session of a run, from its first step to its last."""

    def __init__(
        self,
        session: Session,
        out: Path,
        world: World,
        log: MetricsLog | None,
        progress: Progress,
        stop: Callable[[], bool],
    ) -> None:
        train = session.config.train
        self._session, self._stepper, self._clock = session, session.stepper, session.clock
        self._out, self._world, self._log, self._progress, self._stop = out, world, log, progress, stop
        self._steps = train.steps
        self._save_at = frozenset(steps_to_save(train.steps, train.checkpoint_every))
        self._log_at = frozenset(steps_to_log(train.steps, train.log_every))
        self._last_saved = session.start if session.resumed else None
        self._last_row: dict[str, Any] = {}
        self._speed_since = (session.start, session.clock.training)

    def run(self) -> TrainSummary:
        """Every step that is left; step `steps` is looked at and saved, not updated."""
        for step in range(self._session.start, self._steps + 1):
            row = self._take(step)
            self._progress.on_step(step, self._steps, row)
        return TrainSummary(
            path=self._out,
            steps=self._steps,
            resumed_at=self._session.start,
            tokens=self._steps * self._session.config.tokens_per_step,
            seconds=self._clock.seconds,
            measuring_seconds=self._clock.measuring,
            last_row=self._last_row,
        )

    def _take(self, step: int) -> dict[str, Any] | None:
        """Everything that happens at the weights of `step`, and the update that leaves it."""
        loss = self._stepper.gradients(step)
        wants_row = step in self._log_at and self._log is not None
        norms = self._stepper.gradient_norms() if wants_row else {}
        norm = self._stepper.clip()
        stopping = self._world.any(self._stop(), self._stepper.gpt.device) and step < self._steps
        wants_save = stopping or step in self._save_at
        # Asking for a number makes a GPU wait, so there it is asked only before something is written.
        if loss.device.type == "cpu" or step in self._log_at or wants_save:
            self._refuse_unless_finite(step, loss, norm)
        if wants_save:
            self._save(step)
        if stopping:
            raise Interrupted(
                f"Stopped at step {step} of {self._steps}; everything is saved in {self._out}. "
                "Go on with the same command and --resume."
            )
        if not wants_row:
            self._update(step)
            return None
        return self._look(step, {"loss": loss.item(), "grad_norm": norm.item(), "grad_norms": norms})

    def _update(self, step: int) -> None:
        if step < self._steps:
            self._stepper.update(step)

    def _look(self, step: int, found: dict[str, Any]) -> dict[str, Any]:
        """Measure, update, and write the row of `step`."""
        row = {"step": step, "tokens": step * self._session.config.tokens_per_step, "loss": found.pop("loss")}
        speed = self._tokens_per_second(step)
        gpt, probe = self._stepper.gpt, self._session.probe
        with self._clock.aside("measuring"):
            gpt.eval()
            row |= probe.losses(gpt) | self._stepper.rates(step) | speed | found | probe.stream_norms(gpt)
            gpt.train()
        if step < self._steps:
            row["update_ratio"] = self._stepper.measured_update(step)
        row |= {"seconds": self._clock.seconds, "measuring_seconds": self._clock.measuring}
        if self._log is not None:
            self._log.add(row)
        if step == 0:
            note(self._out, loss_at_step_0=row["loss"])
        self._last_row = row
        return row

    def _tokens_per_second(self, step: int) -> dict[str, float]:
        """Training speed since the last row, without what measuring and saving took."""
        (since, before), now = self._speed_since, self._clock.training
        self._speed_since = (step, now)
        tokens = (step - since) * self._session.config.tokens_per_step
        return {"tokens_per_s": tokens / (now - before)} if tokens else {}

    def _save(self, step: int) -> None:
        """Write checkpoint `step`, unless it is the one that this session was loaded from."""
        if step == self._last_saved or self._log is None:
            return
        with self._clock.aside("saving"):
            self._log.sync()
            save_checkpoint(
                self._out,
                self._stepper.gpt,
                step=step,
                tokens_seen=step * self._session.config.tokens_per_step,
                train_state=(self._stepper.optimizers.state(), {"step": step, "clock": self._clock.state()}),
            )
            self._drop_old_states()
        self._last_saved = step

    def _drop_old_states(self) -> None:
        """Keep the optimizer state of the last few checkpoints only: it is twice as large as the weights."""
        for step in checkpoint_steps(self._out)[: -self._session.config.train.full_states]:
            path = checkpoint_path(self._out, step)
            if (path / STATE_RECORD).exists():
                drop_train_state(path)

    def _refuse_unless_finite(self, step: int, loss: Tensor, norm: Tensor) -> None:
        if bool(loss.isfinite() & norm.isfinite()):
            return
        what = f"The loss became {loss.item()}" if not loss.isfinite() else f"The gradient's norm became {norm.item()}"
        kept = (
            "nothing had been saved"
            if self._last_saved is None
            else f"checkpoint {self._last_saved} is the last good one"
        )
        lr = self._stepper.rates(max(step - 1, 0))["lr"]
        raise TrainingError(
            f"{what} at step {step} (learning rate {lr:.3g}), so training stopped; {kept} in {self._out}. "
            "Train again with a lower optim.lr, a longer optim.warmup_steps or a smaller optim.clip."
        )


@contextmanager
def _told_how_to_go_on() -> Iterator[None]:
    """Add to the sentence about a full disk, and the like, what to do about the run."""
    try:
        yield
    except CutawayError as fault:
        if not isinstance(fault.__cause__, OSError):
            raise
        raise TrainingError(f"{fault} Then go on with the same command and --resume.") from fault.__cause__


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat numbers too small for full precision as zero: computing with them is many times slower on a CPU."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
