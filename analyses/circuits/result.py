"""What a study of head circuits asks and answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from jaxtyping import Float, Int
from torch import Tensor

from analyses.config_rules import SEED, at_least, between, require, require_role_rule, within
from interp.approximation import Approximation
from interp.attribution_patching import Method
from interp.composition import Null
from interp.head_roles import HeadRoles, RoleRule
from interp.patching import Direction
from interp.paths import FFNs, Input
from interp.places import head
from interp.stats import Interval, Intervals, smallest_sign_flip_p
from model.errors import ConfigError
from model.settings import as_enum

COPY_LOSS, COPY_LOGIT = "copy_loss", "copy_logit"

METRICS = {
    COPY_LOSS: "loss on the second copy of random tokens, nats",
    COPY_LOGIT: "logit of the right token minus the vocabulary's mean, on the second copy",
}
"""What effects are measured by; claims are made on the first."""

MIN_PLACES = 8
"""Of fewer places a rank correlation is told nothing by: a random order has one of standard deviation 1/sqrt(n - 1)."""

PATHS = ("Q", "K", "V", "logits")
"""The ways from a sender, in the order of every table: three inputs of the receivers, and straight to the logits."""


class Corruption(StrEnum):
    """What a sender writes instead."""

    REDRAWN = "redrawn"
    """What it writes when the first copy is another random segment: a symmetric replacement, paired by sequence."""

    MEAN = "mean@pos"
    """Its mean over other sequences of the same kind, one for each position."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    n_sequences: int = 32
    """Sequences of each draw."""
    period: int | None = None
    """Period of the repeated tokens; left out, the one at which the run is judged (`interp.periods`)."""
    corruption: Corruption = Corruption.REDRAWN
    """What senders write instead."""
    ffns: FFNs = FFNs.FROZEN
    """What FFNs between sender and receiver do: frozen, only the direct edge counts."""
    null: Null = Null.ROTATION
    """What composition scores are compared with: rotation or gaussian."""
    most_senders: int = 24
    """At most so many, those with the highest previous-token score on the discovery sequences."""
    most_receivers: int = 8
    """At most so many induction heads, those with the highest score on the discovery sequences."""
    most_patched: int = 64
    """Heads that are truly patched, at most: those of evenly spaced layers where there are more."""
    most_offsets: int = 16
    """Offsets over which composition is averaged, evenly spaced over the context (rope only)."""
    n_top: int = 5
    """The largest true effects that an estimate must not overlook; never more than a third of the places."""
    rule: RoleRule = field(default_factory=RoleRule)
    """What makes an induction head or a previous-token head."""
    floor: float = 0.05
    """Effect in nats below which nothing is claimed."""
    least_share: float = 0.5
    """The share of its total effect that must go one way, to call it the way."""
    least_z: float = 5.0
    """How many standard deviations of its null a composition score must be above it."""
    alpha: float = 0.05
    """Level of the claims about other heads, after Holm's correction."""
    seed: int = 0
    """Draws the sequences, the other first copies and the resamples."""

    def __post_init__(self) -> None:
        for name, choices in (("corruption", Corruption), ("ffns", FFNs), ("null", Null)):
            object.__setattr__(self, name, as_enum(choices, getattr(self, name), name))
        require(self, n_sequences=at_least(2), period=at_least(2), seed=SEED)
        require(self, most_senders=at_least(1), most_receivers=at_least(1), most_patched=at_least(1))
        require(self, most_offsets=at_least(1), n_top=at_least(1), floor=at_least(0), least_z=at_least(0))
        require(self, least_share=within(0, 1), alpha=between(0, 1))
        require_role_rule(self.rule)
        if self.null is Null.UNTRAINED:
            raise ConfigError(
                "null=untrained needs a second model; step 0 stands beside anyway. Give rotation or gaussian."
            )
        if self.null is Null.PERMUTED:
            raise ConfigError(
                "null=permuted ranks the few writers of each reader and has no z for least_z to be held against. "
                "Give rotation or gaussian."
            )


@dataclass(frozen=True, kw_only=True)
class Paths:
    """What replacing each sender's output changes, by each way, on one metric."""

    metric: str
    total: Intervals
    """Change where everything reads the sender, [sender]."""
    effect: Intervals
    """Change where only the path reads it, [sender, path], in the order of PATHS."""
    share: Intervals
    """Effect over total, ratio of means, [sender, path]."""
    unexplained: Float[Tensor, "sender path"]
    """E |total - effect| / E |total|."""
    p: Float[Tensor, "sender path"]
    """Two-sided sign-flip p, Holm-corrected over senders and inputs together; of the logits, over senders."""
    lead: Intervals | None
    """By each path, the first sender's effect minus the largest of the others' in its direction, paired by sequence,
    [path]; None where there is one sender. Which is the largest is chosen on the same sequences, so the lead is rather
    too small, and its interval is not one for a chosen maximum."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Composition of senders with receivers from weights alone, [input, sender, receiver], inputs Q, K and V."""

    score: Float[Tensor, "input sender receiver"]
    """In [0, 1]; 1/sqrt(d_model) for unrelated heads."""
    z: Float[Tensor, "input sender receiver"]
    """(score - null mean) / null sd; NaN where the sender is in no earlier layer, or a head's weights are zero."""
    rank: Int[Tensor, "input sender receiver"]
    """How many of all pairs of the model have a larger z by that input: 0 is the largest; `n_pairs` where z is NaN."""
    n_pairs: int
    note: str
    """What was folded, and over what was averaged."""


@dataclass(frozen=True, kw_only=True)
class Estimated:
    """Attribution patching of one kind of place beside true patching, means over sequences, on COPY_LOGIT."""

    place: str
    """z, q, k or v; k and v by key-value head."""
    method: Method
    direction: Direction
    """Whether clean activations were put into the corrupted run, or the other way round."""
    layers: tuple[int, ...]
    """Layers compared."""
    group: int
    """Heads that share their keys and values; 1 where each has its own."""
    estimate: Float[Tensor, "layer component"]
    true: Float[Tensor, "layer component"]
    agreement: Approximation
    spearman: Interval
    """The rank correlation of `agreement` with an interval: estimates and true effects over resampled sequences.
    Without ends (infinite) where a resample has none."""

    @property
    def is_told(self) -> bool:
        """Whether the rank correlation says anything: it is defined, and there are places enough for it."""
        return self.agreement.n >= MIN_PLACES and not math.isnan(self.spearman.mean)

    def name(self, layer: int, component: int) -> str:
        """What a component is called: L1H3, or `L1 kv 0` where heads share keys and values."""
        shares = self.place in ("k", "v") and self.group > 1
        return f"L{layer} kv {component}" if shares else head(layer, component).label

    def heads(self, layer: int, component: int) -> tuple[str, ...]:
        """The heads that it belongs to."""
        if self.place not in ("k", "v"):
            return (head(layer, component).label,)
        return tuple(head(layer, component * self.group + member).label for member in range(self.group))

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", as_enum(Method, self.method, "method"))
        object.__setattr__(self, "direction", as_enum(Direction, self.direction, "direction"))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything that is measured at one checkpoint."""

    clean: Interval
    """Copy loss on the clean sequences, in nats."""
    gap: Interval
    """Copy loss when the first copy is another one, minus that, paired by sequence, in nats."""
    gap_reordered: Interval
    """Copy loss when the first copy has the same tokens in another order, minus that, paired by sequence, in nats."""
    paths: tuple[Paths, ...]
    """By metric; empty where `no_paths` says why."""
    no_paths: str | None
    weights: Weights | None
    """None where `no_weights` says why."""
    no_weights: str | None
    estimates: tuple[Estimated, ...]

    def by(self, metric: str) -> Paths | None:
        """The path effects on one metric; None where there are none."""
        return next((paths for paths in self.paths if paths.metric == metric), None)

    def estimated(self, place: str, method: Method | str, direction: Direction | str) -> Estimated:
        """The estimates of one kind of place, by one method, in one direction."""
        wanted = (place, as_enum(Method, method, "method"), as_enum(Direction, direction, "direction"))
        return next(each for each in self.estimates if (each.place, each.method, each.direction) == wanted)


@dataclass(frozen=True, kw_only=True)
class Result(Measured):
    """Which heads feed the copying heads at one checkpoint, and through which input."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    period: int
    trained_periods: tuple[int, int] | None
    """Shortest and longest period of the repeats in training; None if there were none."""
    chance: float
    """Copy loss of guessing evenly among the tokens that segments are drawn from, in nats."""
    d_model: int
    discovery: HeadRoles
    """Scores on the discovery sequences, and the heads that pass the rule there."""
    senders: tuple[str, ...]
    """Heads of layers before the last receiver's: the previous-token head first, if there is one, then the controls."""
    n_senders: int
    """How many such heads there are."""
    receivers: tuple[str, ...]
    """Induction heads, by layer."""
    shared: tuple[str, ...]
    """Heads that read along with the receivers, as they share their keys and values."""
    has_previous: bool
    """Whether the first sender is the previous-token head."""
    at_step_zero: Measured | None
    """The same sequences and heads at the run's first checkpoint; None if this is it, or it was not kept."""

    @property
    def trained(self) -> bool:
        """Whether training showed repeats of this period; then a learned distance cannot be told from a match."""
        return self.trained_periods is not None and self.trained_periods[0] <= self.period <= self.trained_periods[1]

    @property
    def smallest_p(self) -> float:
        """The smallest p that so few sequences allow one sender and input, after the correction over all."""
        return min(1.0, smallest_sign_flip_p(self.gap.n) * len(self.senders) * len(Input))

    @property
    def n_heads(self) -> int:
        """Heads of each layer."""
        return self.discovery.induction.shape[1]
