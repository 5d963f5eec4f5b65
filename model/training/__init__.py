"""Training: what a run is (`RunConfig`), and `train`, which makes one."""

from __future__ import annotations

from model.training.config import OptimConfig, Optimizer, RunConfig, Schedule, TrainConfig
from model.training.corpus import DataConfig
from model.training.interrupts import Interrupted
from model.training.loop import TrainSummary, train
from model.training.progress import Progress
from model.training.run_files import saved_config

__all__ = [
    "DataConfig",
    "Interrupted",
    "OptimConfig",
    "Optimizer",
    "Progress",
    "RunConfig",
    "Schedule",
    "TrainConfig",
    "TrainSummary",
    "saved_config",
    "train",
]
