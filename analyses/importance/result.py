"""What a study of heads' importance asks and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from analyses.config_rules import SEED, at_least, between, require, within
from interp.controls import control_p
from interp.donors import LEAST_DONORS
from interp.optimal import Fitting
from interp.outcomes import share_of_scale
from interp.places import Head, Intervention, parse_intervention
from interp.pruning import MatchedDraws
from interp.stats import Interval, Intervals

INTERVENTIONS = (Intervention.ZERO, Intervention.MEAN, Intervention.RESAMPLE, Intervention.OPTIMAL)
"""What stands in a head's place, from the crudest on."""

IMPORTANCE, RECOMPUTED, TRUE, INVERSE = "importance", "importance, recomputed", "true harm alone", "inverse"
"""The orders in which heads go, beside random ones."""

ORDERS = (IMPORTANCE, RECOMPUTED, TRUE, INVERSE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    n_sequences: int = 32
    """Sequences of each kind to measure on, at most; a run may keep less held-out text."""
    n_reference: int = 40
    """Other sequences of each kind, at most, on which heads are ordered and constants fitted; donors, too."""
    period: int | None = None
    """Period of the repeated tokens; left out, the one at which the run is judged (`interp.periods`)."""
    n_random: int = 19
    """Random orders beside the others: so many as a p of 0.05 takes."""
    n_controls: int = 40
    """Layer-matched sets beside the first fifth of the heads, at most; all, where so few exist."""
    fitting: Fitting = field(default_factory=lambda: Fitting(n_steps=20, n_looks=1))
    """How optimal constants are learned."""
    tolerance: float = 0.05
    """Share of what the model gains over token frequencies that removing heads may cost."""
    least_agreement: float = 0.7
    """Rank correlation from which on a gradient is said to know which heads matter."""
    seed: int = 0
    """Draws the sequences, the resamples, the random orders and the control sets."""

    def __post_init__(self) -> None:
        require(self, n_sequences=at_least(2), n_reference=at_least(LEAST_DONORS), period=at_least(2))
        require(self, n_random=at_least(2), n_controls=at_least(1))
        require(self, tolerance=between(0, 1), least_agreement=within(-1, 1), seed=SEED)


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """How alike two measures order the heads."""

    one: str
    other: str
    spearman: Interval
    """Rank correlation over heads, its interval over sequences."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Optimal harm as a share of another's."""

    of: Intervention
    """What the optimal constant is held against."""
    median: Interval
    """Over heads of the ratio of mean harms, on the measured sequences; its interval is over sequences."""
    fitted: float
    """The same on the reference sequences, a single number: constants were fitted and heads chosen there, which
    flatters it."""
    n_heads: int
    """Heads that zero (or the mean, where it is held against the mean or resampling) surely harms on the reference
    sequences; the rest have no ratio."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", parse_intervention(self.of))


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one order costs as heads go, all zeroed together."""

    order: str
    harm: Intervals
    """In nats, [point]."""
    area: Interval
    """Mean harm over all shares of heads, in nats."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """The same at the run's first checkpoint, as far as it is measured there."""

    clean: float
    importance: Float[Tensor, "layer head"]
    zero: Float[Tensor, "layer head"]
    """Mean harm of zeroing each head alone, in nats."""
    spearman: Interval
    """Of importance with the size of that harm."""
    curve: Curve
    """In the order of its own importance."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Every head on one outcome: what a gradient says, what taking it out costs, and what many cost together."""

    outcome: str
    meaning: str
    kind: str
    """What the sequences are, in words."""
    n_reference: int
    """Sequences on which heads were ordered and constants fitted; others were measured."""
    clean: float
    """Mean loss of the intact model, in nats."""
    scale: float | None
    """Loss of a model that knows token frequencies only, in nats."""
    importance: Intervals
    """I_h of every head in nats, [layer, head]."""
    ffns: Intervals | None
    """The same of the FFN sublayers, [layer]; None where there are none."""
    harm: Intervals
    """Ablated minus clean loss in nats, [intervention, layer, head], in the order of INTERVENTIONS."""
    fitted: Float[Tensor, "constant layer head"]
    """Harm of zero, the mean and the optimal constant on the sequences it was fitted on."""
    slope_left: Float[Tensor, "layer head"]
    """The loss's slope at each optimal constant as a share of that at the mean: how far fitting had come."""
    ranked: tuple[Ranked, ...]
    ratios: tuple[Ratio, ...]
    n_removed: tuple[int, ...]
    """How many heads are gone at each point of a curve."""
    curves: tuple[Curve, ...]
    """In the order of ORDERS."""
    random: Float[Tensor, "order point"]
    """Mean harm of each random order, in nats."""
    random_areas: Float[Tensor, " order"]
    """Mean area under each, in nats."""
    beaten_share: float
    """The share of the random orders whose area is larger than that of importance."""
    lead_over_random: Interval
    """Mean area of the random orders minus that of importance, in nats: positive is better."""
    lead_over_inverse: Interval
    matched: MatchedDraws
    """The fifth of the heads that importance lets go first, beside layer-matched sets."""
    at_step_zero: Start | None

    @property
    def n_heads(self) -> int:
        """Heads of the whole model."""
        return self.importance.mean.numel()

    @property
    def subject(self) -> str:
        """What the outcome is about, in a word or two."""
        return "copying" if self.outcome == "copy_loss" else self.kind

    @property
    def p_random(self) -> float:
        """The share of orders with an area as small, the order by importance counted among the random ones."""
        return control_p(-self.curve(IMPORTANCE).area.mean, -self.random_areas)

    @property
    def gain(self) -> float | None:
        """What the intact model gains over token frequencies, in nats; None where it gains too little to be a scale."""
        if self.scale is None or share_of_scale(0.0, self.clean, self.scale) is None:
            return None
        return self.scale - self.clean

    def curve(self, order: str) -> Curve:
        """The curve of one order."""
        return next(each for each in self.curves if each.order == order)

    def spearman(self, one: str, other: str) -> Interval:
        """How alike two measures order the heads."""
        return next(each.spearman for each in self.ranked if (each.one, each.other) == (one, other))

    def dispensable(self, order: str, tolerance: float) -> int | None:
        """The most heads at a point whose whole interval, and those of all points before, cost at most `tolerance`.

        A share of the gain over token frequencies; None where the model has none.
        """
        if self.gain is None:
            return None
        within = (self.curve(order).harm.high <= tolerance * self.gain).tolist()
        within[0] = True
        return self.n_removed[within.index(False) - 1] if False in within else self.n_removed[-1]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What heads are worth by gradients and by ablation, at one checkpoint."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    period: int
    """Of the repeated tokens."""
    judged: tuple[Judged, ...]
    """On copying, then on held-out text."""

    def on(self, outcome: str) -> Judged:
        """Every head on the outcome called `outcome`."""
        return next(each for each in self.judged if each.outcome == outcome)

    @property
    def heads(self) -> list[Head]:
        """Every head, layer by layer."""
        n_layers, n_heads = self.judged[0].importance.mean.shape
        return [(layer, index) for layer in range(n_layers) for index in range(n_heads)]
