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

from pathlib import Path

import altair as alt
import pandas as pd

from analyses.checkpoints import first_checkpoint_file, held_out_file
from analyses.gradients.checkpoint import measured_checkpoint
from analyses.gradients.figure import drawn
from analyses.gradients.findings import spoken
from analyses.gradients.initialization import measured_initialization
from analyses.gradients.result import Config, Result
from analyses.gradients.runs import log_files, paired, training_map
from analyses.gradients.tables import summary
from analyses.registry import Finding, Progress
from model.errors import InputError
from model.lab import Lab, resolve_run

__all__ = ["NEEDS_RUN", "QUESTION", "Config", "Result", "figure", "findings", "inputs", "run", "table"]

QUESTION = "How do gradients flow through depth, and what does the placement of the norms change?"
NEEDS_RUN = False
"""Whether there is nothing to look at without a run."""


def run(subject: Lab | None, config: Config, *, progress: Progress | None = None, device: str = "cpu") -> Result:
    """Take the three looks; without a subject, the first alone. Models drawn for it run on `device`."""
    if subject is None and config.twin is not None:
        raise InputError(f'twin="{config.twin}" is the twin of no run; name the run to compare it with.')
    maps = None if subject is None else training_map(Path(subject.path), subject.run_config)
    pair = None
    if subject is not None and config.twin is not None:
        pair = paired(Path(subject.path), subject.run_config, config.twin)
    checkpoint = None
    if subject is not None:
        checkpoint = measured_checkpoint(subject, n_sequences=config.n_sequences, n_groups=config.n_groups)
    initial = None
    if config.initialization:
        initial = measured_initialization(config.sweep, config.seed, progress=progress, device=device)
    return Result(seed=config.seed, initialization=initial, run=maps, pair=pair, checkpoint=checkpoint)


def inputs(subject: Lab | None, config: Config) -> list[Path]:
    """What is read beside the checkpoint: the run's log, settings, held-out rows and step 0, and a twin's log."""
    if subject is None:
        return []
    twin = [] if config.twin is None else log_files(resolve_run(config.twin))
    return [*log_files(Path(subject.path)), held_out_file(subject), first_checkpoint_file(subject), *twin]


def table(result: Result) -> pd.DataFrame:
    """One row per model: placement, depth, and how the last layer's gradients compare with the first's."""
    return summary(result)


def figure(result: Result) -> alt.VConcatChart:
    """Depth laws at initialization, layer by step maps of run and twin on one colour scale, and the checkpoint."""
    return drawn(result)


def findings(result: Result) -> list[Finding]:
    """What agrees with Xiong et al. 2020 and what does not, and what training changed."""
    return spoken(result)


if __name__ == "__main__":
    from analyses.study import main

    raise SystemExit(main("gradient-flow"))
