"""What gradient flow is asked and what it answers (for `analyses.gradient_flow`, its figure, findings and tables)."""

from __future__ import annotations

from dataclasses import dataclass, field

from analyses.config_rules import SEED, require
from analyses.gradients.checkpoint import CheckpointGradients
from analyses.gradients.initialization import Initialization, Sweep
from analyses.gradients.runs import Pair, TrainingMap
from model.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is looked at."""

    seed: int = 0
    """The first of the sweep's seeds."""

    initialization: bool = True
    """Off, only the run is looked at (for RUN@all, where the sweep would be repeated at every checkpoint)."""

    sweep: Sweep = field(default_factory=Sweep)
    """The models drawn at initialization."""

    twin: str | None = None
    """Folder of a run that is the same but for the norm's placement, for the maps over training."""

    n_sequences: int = 32
    """Held-out sequences for the gradient at the checkpoint."""

    n_groups: int = 8
    """Groups they are cut into: one gradient each, for an interval."""

    def __post_init__(self) -> None:
        require(self, seed=SEED)
        if not 2 <= self.n_groups <= self.n_sequences:
            raise ConfigError(
                f"n_groups={self.n_groups} cannot cut n_sequences={self.n_sequences} into groups for an interval; "
                "take 2 groups or more, and at least one sequence for each."
            )


@dataclass(frozen=True, kw_only=True)
class Result:
    """Gradient norms at initialization, over training, and at a checkpoint."""

    seed: int

    initialization: Initialization | None
    """None where it was switched off."""

    run: TrainingMap | None
    """What the run logged; None without a run, or where it logged no norms."""

    pair: Pair | None
    """The run beside its twin; None where no twin was named."""

    checkpoint: CheckpointGradients | None
    """Gradients on held-out text; None without a run, or where it holds no text out."""

    @property
    def maps(self) -> list[TrainingMap]:
        """The logged maps there are: the pair's, else the run's own."""
        if self.pair is not None:
            return [self.pair.first, self.pair.second]
        return [] if self.run is None else [self.run]
