"""What a study of head ablation asks and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from analyses.config_rules import SEED, at_least, between, require, require_role_rule
from interp.effects import AblationEffect, OutcomeEffect
from interp.head_roles import HeadRoles, RoleRule
from interp.places import Intervention, parse_intervention
from interp.stats import Interval, Intervals

INTERVENTIONS = (Intervention.MEAN, Intervention.ZERO)
"""What stands in a head's place; claims are made on the mean, zero is shown beside it."""

SHOWN = ("copy_loss", "text_loss", "new_token_loss")
"""The outcomes on which every head is tried alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    n_sequences: int = 64
    """Sequences of each kind, at most; a run may keep less held-out text."""
    period: int | None = None
    """Period of the repeated tokens; left out, the one at which the run is judged (`interp.periods`)."""
    n_controls: int = 100
    """Layer-matched sets for each set, at most; all, where so few exist."""
    rule: RoleRule = field(default_factory=RoleRule)
    """What makes an induction head or a previous-token head."""
    floor: float = 0.05
    """Harm in nats below which nothing is claimed."""
    alpha: float = 0.05
    """Level of the claims about single heads, after Holm's correction."""
    seed: int = 0
    """Draws the sequences, the resamples and the control sets."""

    def __post_init__(self) -> None:
        require(self, n_sequences=at_least(2), period=at_least(2), n_controls=at_least(1), seed=SEED)
        require(self, floor=at_least(0), alpha=between(0, 1))
        require_role_rule(self.rule)


@dataclass(frozen=True, kw_only=True)
class SingleHeads:
    """Every head ablated alone, on one outcome."""

    outcome: str
    meaning: str
    clean: float
    """Mean loss of the intact model, in nats."""
    scale: float
    """Loss of a model that knows token frequencies only, in nats."""
    harm: Intervals
    """Ablated minus clean loss in nats, [intervention, layer, head], in the order of INTERVENTIONS."""
    p: Float[Tensor, "intervention layer head"]
    """Two-sided sign-flip p, Holm-corrected over the heads of each intervention."""

    shares: Intervals | None
    """The harm as a share of what the intact model gains over token frequencies, [intervention, layer, head]; None
    where that gain is not surely there."""

    def share(self, intervention: int, layer: int, index: int) -> Interval | None:
        """The share of one head."""
        return None if self.shares is None else self.shares[intervention, layer, index]


@dataclass(frozen=True, kw_only=True)
class SetAblation:
    """Heads of one role ablated together."""

    role: str
    """"induction" or "previous-token"."""
    heads: tuple[str, ...]
    intervention: Intervention
    effect: AblationEffect
    """On every outcome, with layer-matched sets on copying."""
    at_step_zero: OutcomeEffect | None
    """The same heads' effect on copying at step 0; None if this is step 0, or the run kept none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "intervention", parse_intervention(self.intervention))


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What copying earns at one checkpoint, and what every head alone is worth to it and to text."""

    copying: Interval
    """First-copy minus second-copy loss of the intact model, in nats: what copying earns."""
    singles: tuple[SingleHeads, ...]
    """One for each of SHOWN."""

    def single(self, outcome: str) -> SingleHeads:
        """Every head alone, on the outcome called `outcome`."""
        return next(single for single in self.singles if single.outcome == outcome)


@dataclass(frozen=True, kw_only=True)
class Result(Alone):
    """What ablating heads costs at one checkpoint."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    period: int
    """Period of the repeated tokens: the one that decides."""
    discovery: HeadRoles
    """Scores on the discovery sequences, and the heads that pass the rule there."""
    confirmation: HeadRoles
    """The same on the sequences on which heads are ablated."""
    sets: tuple[SetAblation, ...]
    """For each role that some head has, one for each intervention."""
    at_step_zero: Alone | None
    """The same sequences and heads at the run's first checkpoint; None if this is it, or it was not kept."""

    def set_of(self, role: str, intervention: Intervention | str = Intervention.MEAN) -> SetAblation | None:
        """The set of one role; None if no head has it."""
        wanted = (role, parse_intervention(intervention))
        return next((each for each in self.sets if (each.role, each.intervention) == wanted), None)

    @property
    def n_layers(self) -> int:
        """Layers of the model."""
        return self.discovery.induction.shape[0]

    @property
    def n_heads(self) -> int:
        """Heads of each layer."""
        return self.discovery.induction.shape[1]
