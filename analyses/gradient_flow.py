"""Study: how gradients flow through depth, by where the norms stand (Xiong et al. 2020, 2002.04745; docs/studies).

Three looks, each left out where there is nothing to look at:

* at initialization, placements by depths over seeds, on models drawn for the purpose;
* over training, what the run and a twin with another placement logged, side by side, with what else differs said;
* at the checkpoint, on held-out text, beside step 0 of the same run.

What a small decoder shows of the paper is stated as measured: the depth laws hold, "pre-norm is flat over layers" does
not. A small gradient is not a small update under Adam, so none of this says by itself which placement trains better.
And dL/dx depends on how large x is: where a norm reads the stream, twice the stream has half the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from analyses.gradient_checkpoint import CheckpointGradients, measured_checkpoint
from analyses.gradient_initialization import Initialization, Sweep, measured_initialization
from analyses.gradient_runs import Pair, TrainingMap, paired, training_map
from analyses.registry import Finding, Progress
from model.errors import ConfigError, InputError

if TYPE_CHECKING:
    import altair as alt

    from model.lab import Lab

QUESTION = "How do gradients flow through depth, and what does the placement of the norms change?"


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


def run(subject: Lab | None, config: Config, progress: Progress | None = None) -> Result:
    """Take the three looks; without a subject, the first alone."""
    if subject is None and config.twin is not None:
        raise InputError(f'twin="{config.twin}" is the twin of no run; name the run to compare it with.')
    maps = None if subject is None else training_map(Path(subject.path), subject.run_config)
    pair = None
    if subject is not None and config.twin is not None:
        pair = paired(Path(subject.path), subject.run_config, config.twin)
    checkpoint = None
    if subject is not None:
        checkpoint = measured_checkpoint(subject, n_sequences=config.n_sequences, n_groups=config.n_groups)
    drawn = measured_initialization(config.sweep, config.seed, progress) if config.initialization else None
    return Result(seed=config.seed, initialization=drawn, run=maps, pair=pair, checkpoint=checkpoint)


def table(result: Result) -> pd.DataFrame:
    """One row per model: placement, depth, and how the last layer's gradients compare with the first's."""
    from analyses.gradient_tables import summary

    return summary(result)


def figure(result: Result) -> alt.VConcatChart:
    """Depth laws at initialization, layer by step maps of run and twin on one colour scale, and the checkpoint."""
    from analyses.gradient_figure import drawn

    return drawn(result)


def findings(result: Result) -> list[Finding]:
    """What agrees with Xiong et al. 2020 and what does not, and what training changed."""
    from analyses.gradient_findings import spoken

    return spoken(result)


if __name__ == "__main__":
    from analyses.study import main

    raise SystemExit(main("gradient-flow"))
