"""What the study of probes is asked and answers (for `analyses.probes`, its figure and findings)."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from analyses.config_rules import SEED, at_least, require
from interp.probe_labels import TASKS, get_task
from interp.probe_text import Amounts
from interp.probes import LONGEST, SITES, Reading
from interp.stats import Interval, bootstrap_mean
from model.errors import ConfigError

EMBEDDING = 0
"""Index of the embedding among the sites: it is always probed, and always the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is asked for, where, and on how much text."""

    seed: int = 0
    """Draws documents, windows, positions, the control's labels and the resamples."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Of position, previous-token, bracket-depth, indentation-depth."""
    sites: tuple[str, ...] = SITES
    """Hook names, short names for all layers (resid_post, z), or places (L0H3, L0.ffn); the embedding is added."""
    n_train: int = 3000
    """Positions a probe is fitted on, about: as many of each document."""
    n_validation: int = 1000
    """Positions that its regularisation and the best site are chosen on."""
    n_test: int = 2000
    """Positions it is judged by; fewer where documents are short."""
    per_window: int = 8
    """Positions taken from one window on average."""
    window: int = LONGEST
    """Longest window that is fed, in tokens; no longer than the context."""
    untrained: bool = True
    """Whether step 0 is probed as well; random weights of the same shape, where a run has not kept it."""

    def __post_init__(self) -> None:
        require(self, seed=SEED, n_train=at_least(50), n_validation=at_least(20), n_test=at_least(20))
        require(self, per_window=at_least(1), window=at_least(8))
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ConfigError(f"tasks={','.join(self.tasks)} is not allowed; name each once, of {', '.join(TASKS)}.")
        for name in self.tasks:
            get_task(name)

    @property
    def amounts(self) -> Amounts:
        """The numbers of positions, together."""
        return Amounts(train=self.n_train, validation=self.n_validation, test=self.n_test, per_window=self.per_window)


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """What probes of one task score; n and positions are the same for every site, control and model."""

    name: str
    meaning: str
    """What was asked for, in words that follow "the"."""

    types: str
    """What has one random label for good in the control task: token, or position."""

    classes: tuple[str, ...]
    """The labels, in words."""

    n_commonest: int | None
    """Only positions with one of so many labels were asked; None: all."""

    labelled_share: float
    """Share of all positions that were asked."""

    n_train: int
    n_validation: int
    n_test: int

    majority: Float[Tensor, " unit"]
    """Accuracy per test unit of always saying the commonest label of the training part."""

    test_majority: Float[Tensor, " unit"]
    """Of always saying the commonest label of the test part: known to no guess, and 1 where there is one label only."""

    by_token: Float[Tensor, " unit"]
    """Of saying each token's commonest label."""

    here: Reading
    """The checkpoint's probes."""

    untrained: Reading | None
    """The same of step 0, or of random weights; None where it was not probed."""

    @property
    def n_units(self) -> int:
        """Test units: what intervals resample."""
        return len(self.majority)

    @property
    def has_one_label(self) -> bool:
        """Whether all positions of the test part have one label, so that nothing could be told from another."""
        return bool((self.test_majority == 1).all())

    @property
    def n_unconverged(self) -> int:
        """How many of the probes that are shown did not converge."""
        return sum(int((~each.converged).sum() + (~each.controls_converged).sum()) for each in self._readings)

    @property
    def n_probes(self) -> int:
        """How many probes are shown, controls included."""
        return sum(each.converged.numel() + each.controls_converged.numel() for each in self._readings)

    @property
    def _readings(self) -> tuple[Reading, ...]:
        return (self.here,) if self.untrained is None else (self.here, self.untrained)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What linear probes read off one checkpoint, beside an untrained model."""

    config: Config

    run: str
    step: int

    sites: tuple[str, ...]
    """In forward order; the embedding first."""

    units: str
    """What the test units are, in words."""

    is_imported: bool
    """Whether the model was imported, so that what it was trained on is not known."""

    untrained: str | None
    """What the untrained model is, in words: step 0, or random weights of the same shape; None where there is none."""

    n_windows: int
    """Windows of text that were fed."""

    tasks: tuple[TaskResult, ...]

    skipped: tuple[str, ...]
    """Why a task was not probed, one sentence each."""

    def interval(self, values: Float[Tensor, " unit"]) -> Interval:
        """A mean over test units with its interval."""
        return bootstrap_mean(values, seed=self.config.seed)
