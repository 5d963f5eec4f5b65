"""What a study of self-repair asks and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from analyses.config_rules import SEED, at_least, between, require, require_role_rule
from interp.head_roles import HeadRoles, RoleRule
from interp.interactions import Interactions
from interp.places import Intervention, parse_intervention
from interp.repaired import Component, Part, RepairSummary
from interp.stats import Interval
from model.errors import ConfigError

COPIED, TOP = "copied", "top"
"""The tokens that are looked at: what a repeat determines; and those on which a component adds most by itself."""

ALLOWED = (Intervention.MEAN, Intervention.MEAN_PER_POSITION, Intervention.ZERO, Intervention.RESAMPLE)
"""What can be put in a head's place here: what there is on held-out text, too, and needs no fitting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    n_sequences: int = 64
    """Sequences of each kind, at most; a run may keep less held-out text."""
    period: int | None = None
    """Period of the repeated tokens; left out, the one at which the run is judged (`interp.periods`)."""
    intervention: Intervention = Intervention.MEAN
    """What stands in a component's place: mean, mean@pos, zero or resample (the mean over eight donors)."""
    top_share: float = 0.02
    """Of held-out tokens, for each component, the share on which it adds most by itself (Rushing and Nanda 2024)."""
    n_paired: int = 6
    """How many heads are ablated two by two: those that cost copying most on the discovery sequences."""
    rule: RoleRule = field(default_factory=RoleRule)
    """What makes an induction head."""
    floor: float = 0.05
    """In logits and in nats; below it nothing is claimed."""
    alpha: float = 0.05
    """Level of the claims about single heads and pairs, after Holm's correction."""
    seed: int = 0
    """Draws the sequences, donors and resamples."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "intervention", parse_intervention(self.intervention))
        if self.intervention not in ALLOWED:
            raise ConfigError(
                f"intervention={self.intervention.value} is not for this study; give {', '.join(ALLOWED)}."
            )
        require(self, n_sequences=at_least(2), period=at_least(2), n_paired=at_least(2), seed=SEED)
        require(self, floor=at_least(0), alpha=between(0, 1), top_share=between(0, 1))
        require_role_rule(self.rule)


@dataclass(frozen=True, kw_only=True)
class Repairs:
    """Every head and FFN ablated alone, on one choice of tokens."""

    tokens: str
    """COPIED or TOP."""
    meaning: str
    """What the tokens are, in words."""
    n_sequences: int
    components: tuple[Component, ...]
    """What is ablated, one by one: heads and FFNs, layer by layer."""
    numbers: RepairSummary
    """Changes of the right token's logit (less the vocabulary's mean), by ablation."""
    p: Float[Tensor, " ablation"]
    """Two-sided sign-flip p that nothing is made good, or made worse, over sequences; Holm-corrected over heads, and
    over FFNs."""
    p_norm: Float[Tensor, " ablation"]
    """The same of what the final norm makes good."""
    p_slope: Float[Tensor, " ablation"]
    """The same that the slope of total on direct effects is 1, so that nothing more is made good where more is lost."""
    largest_residual: float
    """The most that the decomposition leaves over at any token, in logits: rounding."""

    def row(self, label: str) -> int:
        """Which ablation is that of the component called `label`."""
        return [each.label for each in self.components].index(label)

    def heads(self) -> list[int]:
        """The ablations of heads."""
        return [row for row, each in enumerate(self.components) if each.part is Part.HEADS]

    def share(self, row: int, floor: float) -> Interval | None:
        """The share made good; None where the direct effect is not surely beyond the floor, in either direction."""
        direct = self.numbers.direct[row]
        return self.numbers.share[row] if direct.high < -floor or direct.low > floor else None


@dataclass(frozen=True, kw_only=True)
class SetRepair:
    """The induction heads together, and one by one."""

    heads: tuple[str, ...]
    in_nats: Interval
    """Harm to copying of all at once over the sum of the harms alone (super-additivity)."""
    in_logits: Interval
    """The same of the copied token's logit, which no loss bends."""
    together: Interval
    """Harm of all at once, in nats."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured at one checkpoint."""

    repairs: tuple[Repairs, ...]
    """On copied tokens, then on top ones."""
    pairs: Interactions | None
    """Of the heads that cost copying most; None for a model with one head."""
    induction: SetRepair | None
    """None where fewer than two heads pass the rule."""

    def on(self, tokens: str) -> Repairs:
        """The repairs on COPIED or TOP tokens."""
        return next(each for each in self.repairs if each.tokens == tokens)


@dataclass(frozen=True, kw_only=True)
class Result(Measured):
    """What the others make good at one checkpoint."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    period: int
    discovery: HeadRoles
    """Scores on the discovery sequences, and the heads that pass the rule there."""
    at_step_zero: Measured | None
    """The same heads, pairs and sequences at the run's first checkpoint (its top tokens are its own); None if this is
    it, or it was not kept."""
