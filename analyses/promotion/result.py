"""What a study of promotion asks and answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from jaxtyping import Float, Int
from torch import Tensor

from analyses.config_rules import SEED, Rule, at_least, between, require
from interp.stats import Interval, Intervals
from model.errors import ConfigError
from model.settings import as_enum

ALIVE = 1e-6
"""A memory whose coefficient is never above that on the reference text has no strength of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    concept: str = ""
    """What is promoted: the name of a concept ("digits", see `interp.concept_kinds`), or "text:" and a text, whose
    tokens it is. Left out, the concept of 1% to 25% of the reference text that the model's values are most about."""
    n_memories: int = 10
    """Memories that are turned on: those whose values stand out most for it, in all layers."""
    strength: float = 1.0
    """Their coefficients, as a multiple of the largest that each reaches on the reference text."""
    strengths: tuple[float, ...] = (0.25, 0.5, 2.0)
    """Other multiples, for the dose curve; 0 (turned off) is always tried."""
    n_prompts: int = 48
    """Held-out rows that are continued, at most."""
    n_prompt_tokens: int | None = None
    """Their first tokens, which are read; left out, half of the context, and at most 32."""
    n_new_tokens: int | None = None
    """Tokens that are generated; left out, what is left of the context, and at most 24."""
    n_generations: int = 1
    """Texts for each prompt."""
    temperature: float = 1.0
    """Of sampling; 0 takes the likeliest token."""
    n_sets: int = 20
    """Sets of each control; 20 allow no p below 0.048. 0 for no controls, and then nothing can be found."""
    floor: float = 0.02
    """The change of the share of tokens that matters."""
    loss_floor: float = 0.05
    """The change of the loss that matters, in nats."""
    alpha: float = 0.05
    """Level of the ranks among controls."""
    seed: int = 0
    """Draws prompts, texts, control sets, directions and resamples."""

    def __post_init__(self) -> None:
        require(self, n_memories=at_least(1), n_prompts=at_least(2), n_prompt_tokens=at_least(1), seed=SEED)
        require(self, n_new_tokens=at_least(1), n_generations=at_least(1), temperature=at_least(0), n_sets=at_least(0))
        require(self, strength=Rule(lambda strength: strength > 0, "a number above 0"), strengths=at_least(0))
        require(self, floor=at_least(0), loss_floor=at_least(0), alpha=between(0, 1))
        if len(set(self.strengths)) < len(self.strengths):
            raise ConfigError(f"strengths={','.join(map(str, self.strengths))} is not allowed; name each once.")
        least = math.ceil(1 / self.alpha - 1 - 1e-9)
        if 0 < self.n_sets < least:
            raise ConfigError(
                f"n_sets={self.n_sets} allows no p below {1 / (1 + self.n_sets):.2g}, so nothing could be told from "
                f"controls at alpha={self.alpha:g}; give {least} or more, or 0 for no controls."
            )

    @property
    def doses(self) -> tuple[float, ...]:
        """Every strength that is tried, from 0 up."""
        return tuple(sorted({0.0, self.strength, *self.strengths}))


class ControlKind(StrEnum):
    """What the memories are held against."""

    RANDOM = "random"
    """As many other memories of each layer, each at that multiple of its own largest coefficient."""

    MATCHED = "matched"
    """As many of each layer that usually write about as much (|m| |v|), made to write exactly as much as these."""

    DIRECTION = "direction"
    """The same memories at the same coefficients, with random directions of the same length for values."""

    OFF = "off"
    """Memories that usually write about as much, turned off, beside these turned off."""


@dataclass(frozen=True, kw_only=True)
class Promoter:
    """One memory that is turned on."""

    label: str
    """As in `L1M37`."""
    standout: float
    """How far its value stands out for the concept (`interp.concept_memories.standout`)."""
    largest: float
    """Its largest coefficient on the reference text."""
    firing: float
    """Share of the reference positions where its coefficient is above zero."""
    top: tuple[str, ...]
    """The tokens that its value promotes most, printable."""


@dataclass(frozen=True, kw_only=True)
class Doses:
    """The model at each strength; intervals are over prompts."""

    strengths: tuple[float, ...]
    share: Intervals
    """Share of generated tokens that are of the concept, [dose]."""
    share_change: Intervals
    """The same, less that of the model as it is, paired by prompt."""
    mass_by_step: Float[Tensor, "dose new_token"]
    """Probability of the concept at each step, mean over prompts."""
    mass_change: Intervals
    """Change of that, averaged over steps."""
    first_change: Intervals
    """Change of that at the first step, where all read the same."""
    loss_change: Intervals
    """Change of the loss of the text under the model as it is, nats per token."""
    distinct_change: Intervals
    """Change of the share of distinct tokens."""
    p: Float[Tensor, " dose"]
    """Two-sided sign-flip p over prompts that the share does not change; Holm over doses."""

    def at(self, strength: float) -> int:
        """Which dose a strength is."""
        return self.strengths.index(strength)


@dataclass(frozen=True, kw_only=True)
class Control:
    """What sets of one kind do on the same prompts."""

    kind: ControlKind
    note: str
    """What the sets are, or why there are none."""
    share_change: Float[Tensor, " set"]
    mass_change: Float[Tensor, " set"]
    first_change: Float[Tensor, " set"]
    """Change of the probability at the first new token."""
    loss_change: Float[Tensor, " set"]
    slope: Float[Tensor, " curve"]
    """Change of the share per unit of strength, of each set; none but for matched sets, which alone are tried at every
    strength."""
    p: float | None
    """Share of sets that change the share of tokens as much (off: lower it as much), the memories counted among them;
    None without sets."""
    p_first: float | None
    """The same by the probability at the first new token."""
    p_slope: float | None
    """The same by the slope; None where that was not measured."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_enum(ControlKind, self.kind, "kind"))

    @property
    def smallest_p(self) -> float | None:
        """The smallest p that so many sets allow."""
        return 1 / (1 + len(self.share_change)) if len(self.share_change) else None


@dataclass(frozen=True, kw_only=True)
class Start:
    """The same at step 0, with the memories that stand out for the concept there.

    A lead is by how much the change at this step exceeds that at step 0, paired by prompt.
    """

    share: float
    """Of the model as it is there."""
    share_change: Interval
    share_lead: Interval
    first_change: Interval
    first_lead: Interval
    slope: Interval
    slope_lead: Interval
    off_change: Interval
    """Of the share, with the memories turned off."""
    off_lead: Interval
    standout: float
    """Mean standing out of the memories there."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One prompt, and what is written behind it, as printable tokens; the first prompts, not chosen ones."""

    prompt: tuple[str, ...]
    plain: tuple[str, ...]
    promoted: tuple[str, ...]
    in_concept: tuple[bool, ...]
    """Of the promoted text, whether each token is of the concept."""
    plain_in_concept: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Whether turning on what promotes a concept makes a model write it."""

    config: Config
    run: str
    step: int
    tokens_seen: int
    concept: str
    tokens: Int[Tensor, " token"]
    """Of the concept."""
    is_chosen: bool
    """Whether the model's values chose it."""
    use: float
    """Its share of the reference text."""
    kind: str
    """What prompts and reference are, in words."""
    n_reference: int
    """Positions of the reference text."""
    n_prompts: int
    n_prompt_tokens: int
    n_new_tokens: int
    memories: tuple[Promoter, ...]
    """The one that stands out most first."""
    plain_share: Interval
    """Share of the concept in what the model writes as it is."""
    plain_mass: Float[Tensor, " new_token"]
    """Probability of the concept at each step, as it is."""
    plain_loss: float
    """Loss of that text, nats per token."""
    plain_distinct: float
    doses: Doses
    slope: Interval
    """Change of the share per unit of strength: a line through all doses of each prompt."""
    controls: tuple[Control, ...]
    samples: tuple[Sample, ...]
    start: Start | None
    """None if this is step 0, or it was not kept."""

    def control(self, kind: ControlKind | str) -> Control:
        """The control of one kind: random, matched, direction or off."""
        wanted = as_enum(ControlKind, kind, "control")
        return next(each for each in self.controls if each.kind is wanted)
