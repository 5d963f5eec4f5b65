"""The models of docs/induction.md: how each is trained, and everything that is measured of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.induction_course import Change, Course, change_in, course_of
from bench.induction_measures import Attention, Circuit, Copying, Measured, circuit_of
from interp.stimuli import ordinary_ids
from model.checkpoint import checkpoint_path
from model.lab import open_run
from model.presets import induction
from model.settings import with_settings
from model.training.config import RunConfig
from model.training.loop import train
from model.training.run_files import FILE_NAME

TRAINED_PERIOD = 16
"""A period that every kind trains on."""


class Kind(Enum):
    """A variant of the preset `induction`: the name of its runs, and its settings."""

    TWO = ("two-layers", ())
    ONE = ("one-layer", ("model.n_layers=1",))
    DISTANCE = (
        "one-layer-fixed-period",
        (
            "model.n_layers=1",
            f"data.min_period={TRAINED_PERIOD}",
            f"data.max_period={TRAINED_PERIOD}",
            "train.steps=1000",
        ),
    )
    SMEARED = ("one-layer-smeared-keys", ("model.n_layers=1", "model.smeared_keys=true", "train.steps=800"))

    @property
    def run_name(self) -> str:
        """How its runs are called, before the seed."""
        return self.value[0]

    def config(self, seed: int) -> RunConfig:
        """The preset with this kind's settings."""
        return with_settings(induction(), [*self.value[1], f"train.seed={seed}"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """One trained model, measured after its last step."""

    kind: Kind
    seed: int
    ln_vocabulary: float
    """The loss of knowing nothing, in nats."""
    copying: Copying
    copy_loss_at_trained_period: float
    attention: Attention
    course: Course
    change: Change
    circuit: Circuit | None
    """None where there is no layer to compose with, or no head that attends like an induction head."""

    @property
    def the_circuit(self) -> Circuit:
        """The circuit; an error where there is none."""
        if self.circuit is None:
            raise LookupError(f"{self.kind.run_name}-{self.seed} has no induction head to ablate or to patch into")
        return self.circuit


def trained(kind: Kind, seed: int, out: Path) -> Path:
    """The run of this kind and seed in the folder `out`: as it is, finished, or trained now."""
    run, config = out / f"{kind.run_name}-{seed}", kind.config(seed)
    if not checkpoint_path(run, config.train.steps).is_dir():
        train(config, run, device="cpu", resume=(run / FILE_NAME).exists())
    return run


def measured(kind: Kind, seed: int, out: Path) -> Found:
    """Everything about one model, trained first where it is not."""
    run = trained(kind, seed, out)
    lab = open_run(str(run))
    now, course = Measured(lab), course_of(run)
    composes = lab.config.n_layers > 1 and bool(now.attention.induction_heads)
    return Found(
        kind=kind,
        seed=seed,
        ln_vocabulary=math.log(len(ordinary_ids(lab.tokenizer))),
        copying=now.copying,
        copy_loss_at_trained_period=Measured(lab, periods=(TRAINED_PERIOD,)).copying.loss,
        attention=now.attention,
        course=course,
        change=change_in(course),
        circuit=circuit_of(lab, now.attention) if composes else None,
    )
