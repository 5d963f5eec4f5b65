"""What a study of an FFN layer's composition asks and answers (for `analyses.ffn_composition`)."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from analyses.config_rules import SEED, at_least, between, require
from analyses.ffn.config import Split
from interp.stats import Interval, Intervals
from model.errors import ConfigError
from model.settings import as_enum


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """What is varied."""

    seed: int = 0
    """Draws the prefixes, the dealt values, the random memories and the resamples."""
    split: Split = Split.HELD_OUT
    """Which documents the prefixes are of; held out, as the validation text of Geva et al. 2021."""
    text: str = ""
    """A text file to take them from instead; read with the run's tokenizer."""
    n_prefixes: int = 4000
    """Random prefixes, about; 4,000 in Geva et al. 2021. All of them where the text has no more."""
    per_window: int = 4
    """How many are read from one window, which is one pass."""
    longest: int | None = None
    """Longest prefix, in tokens; the model's context where it is left out."""
    ks: tuple[int, ...] = (1, 3, 10, 30, 100)
    """Of how many memories together it is asked what they carry; those beyond a layer's width are left out."""
    strong: float = 0.1
    """A memory is strong above this share of its largest |m| on the sample."""
    alpha: float = 0.05
    """Level of the claims about layers, after Holm's correction over them."""
    batch_size: int = 64
    """Windows at a time; fewer where a large vocabulary would not fit."""
    step_zero: bool = True
    """Whether step 0 of the run is taken apart as well."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", as_enum(Split, self.split, "split"))
        require(self, seed=SEED, n_prefixes=at_least(2), per_window=at_least(1), longest=at_least(1), ks=at_least(1))
        require(self, strong=between(0, 1), alpha=between(0, 1), batch_size=at_least(2))
        if not self.ks or list(self.ks) != sorted(set(self.ks)):
            raise ConfigError(f"ks={self.ks} is not in rising order; give numbers of memories such as 1,3,10,30,100.")


@dataclass(frozen=True, kw_only=True)
class FirstShares:
    """What the first k memories of a layer carry, of what all of them write.

    Means over the prefixes at which the layer writes anything, so that no prefix with a huge update decides alone; of
    effects, which have either sign, a ratio of sums.
    """

    norm_share: Intervals
    """|u_k| over |u|, [k layer]."""
    cosine: Intervals
    """u_k . u over |u_k| |u|, [k layer]."""
    r_squared: Intervals
    """1 - |u - u_k|^2 / |u|^2, [k layer]; below 0 where the largest cancel against others."""
    effect_share: Intervals
    """Of the effect on the final token's logit less the vocabulary's mean, [k layer]; without ends where that may be
    of either sign."""


@dataclass(frozen=True, kw_only=True)
class SubUpdateShares:
    """The largest sub-updates, and as many at random."""

    ks: tuple[int, ...]
    top: FirstShares
    random: FirstShares
    effect: Intervals
    """On the final token's logit less the vocabulary's mean, of all of a layer's memories, [layer]; in logits, the
    final norm's scale held."""
    n_half: Int[Tensor, " layer"]
    """The least of `ks` with an r_squared of a half; -1 where none has."""
    p_half: Float[Tensor, " layer"]
    """Two-sided p that ten memories (the most of `ks` up to ten) have an r_squared of a half, Holm."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Which of a layer's tokens some active memory agrees with, beside all of them; prefixes and layers pooled."""

    n: int
    """Pairs of a prefix and a layer."""
    n_agreeing: int
    """Those with an active memory that agrees."""
    kinds: tuple[str, ...]
    """Sorts of tokens (`interp.token_kinds`)."""
    agreeing: Float[Tensor, " kind"]
    """Shares of the tokens that some memory agrees with; NaN where there are none."""
    every: Float[Tensor, " kind"]
    """Shares of all layers' tokens."""
    n_common: int
    """How many tokens make up half of the text that was read: the common ones."""
    common: tuple[Interval, Interval] | None
    """Share of common tokens among those with an agreeing memory, and among all; None where none agrees."""
    short: tuple[Interval, Interval] | None
    """Share of prefixes with fewer than five tokens, likewise."""
    p_common: float
    """Two-sided p that agreeing makes no difference to the share of common tokens."""


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What FFNs do where they bring the model's token to the top for good (`interp.sub_updates`).

    Logits less the vocabulary's mean, [whose], in the order of `interp.sub_updates.WHOSE`.
    """

    n_events: int
    by_layer: Int[Tensor, " layer"]
    """Events of each layer's FFN."""
    total: Intervals
    """What the update adds."""
    raised: Intervals
    """What the memories add that raise the token."""
    lowered: Intervals
    """What those add that lower it."""
    dominant: Intervals
    """The mean of the ten largest sub-updates."""
    random: Intervals
    """The mean of ten at random."""
    promoted_share: Interval
    """Rises of the final token, as a share of those and the displaced token's falls: what promotion makes up of both.

    Between 0 and 1, for at every event one of the two is there: where both tokens rise all of it is promotion, where
    both fall elimination. At step 0 it is above a half: the token that comes up has been chosen by its rise.
    """
    p_promoted: float
    """Two-sided p that it is a half."""
    p_another: float
    """Two-sided p that the final token rises as much as another prefix's."""
    p_dominant: float
    """Two-sided p that the dominant raise the final token as much as random ones."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured at one checkpoint; intervals are over units (`Result.unit`), the last axis is the layer."""

    step: int

    active: Intervals
    """Share of a layer's memories with m > 0, [layer]."""
    active_quartiles: Float[Tensor, "quartile layer"]
    """25%, 50% and 75% of prefixes."""
    p_active: Float[Tensor, " layer"]
    """Two-sided p that half of them are, Holm-corrected over layers (`interp.ratio_tests`, as every p here)."""
    strong: Intervals
    """Share with |m| above a tenth (`Config.strong`) of the memory's largest on the sample."""
    strong_quartiles: Float[Tensor, "quartile layer"]
    carrying: Intervals
    """The fewest memories, as a share, that hold 90% of the sum of |m||v|."""
    carrying_quartiles: Float[Tensor, "quartile layer"]
    dead: Int[Tensor, " layer"]
    """Memories whose |m| never exceeds 1e-6 on the sample."""

    zero_agreement: Intervals
    """Share of prefixes at which no memory has the layer's token, [counted layer] in the order of
    `interp.ffn_composed.Counted`."""
    zero_agreement_dealt: Intervals
    """The same with the layer's values dealt to its memories, and the update made of them."""
    n_agreeing: Float[Tensor, "counted layer"]
    """Mean number of memories that have it, where any has; NaN where none ever has."""
    p_zero: Float[Tensor, " layer"]
    """Two-sided p that half of the prefixes have no active memory that agrees, Holm-corrected over layers."""
    p_zero_dealt: Float[Tensor, " layer"]
    """The same that as many have none with values dealt."""
    targets: Targets

    residual_agreement: Intervals
    """Share of prefixes at which the stream that the FFN reads has the model's token on top, [layer]."""
    residual_probability: Intervals
    """Mean probability of the model's token there."""
    output_agreement: Intervals
    """The same of the stream behind the FFN; 1 behind the last."""
    output_probability: Intervals
    steps: Intervals
    """Residual agreement at the next FFN (after the last: 1) less that at this one, [layer]."""
    p_steps: Float[Tensor, " layer"]
    """Two-sided p that it does not change, Holm-corrected."""
    rise: Interval | None
    """From the first FFN to the last; None where there is one."""
    saturation: Int[Tensor, "place count"]
    """Prefixes by the first layer from which on the model's token stays on top: before FFNs (the number of layers where
    only the last makes it), and behind them."""

    breakdown: Intervals
    """Share of prefixes of each case, [case layer] in the order of `interp.ffn_composed.Case`."""
    breakdown_other: Intervals
    """Had the update been the layer's at a prefix of another window."""
    breakdown_dealt: Intervals
    """Had it been made of dealt values."""
    p_kept: Float[Tensor, " layer"]
    """Two-sided p that residual and agreement are 60% of cases, Holm-corrected."""
    p_kept_other: Float[Tensor, " layer"]
    """The same that they are as many with the update of another prefix."""
    p_ffn: Float[Tensor, " layer"]
    """Two-sided p that ffn is 10%, Holm-corrected."""
    p_ffn_other: Float[Tensor, " layer"]
    """The same that it is as many with the update of another prefix."""
    composed_changes: Interval
    """Of the cases in which the FFN changes the stream's token, all layers, the share in which it becomes a third."""
    composed_changes_other: Interval
    """With the update of another prefix."""
    p_composed: float
    """Two-sided p that it is a half of changes."""
    p_composed_other: float
    """The same that it is as much of them with the update of another prefix."""

    sub_updates: SubUpdateShares
    promotion: Promotion | None
    """None where fewer than two units have an event."""


@dataclass(frozen=True, kw_only=True)
class SinceStart:
    """What training has made of it: two-sided p that a number is that of step 0, prefix by prefix."""

    p_active: Float[Tensor, " layer"]
    """Of the share of active memories, Holm-corrected over layers."""
    p_carried: Float[Tensor, " layer"]
    """Of the r_squared of ten memories, Holm-corrected over layers."""
    p_rise: float
    """Of the rise of the residual agreement; 1 where there is one layer."""
    p_common: float
    """Of the difference that agreeing makes to the share of common tokens."""
    p_promoted: float
    """Of `Promotion.promoted_share`; 1 where either has no events."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How FFN layers' predictions are composed at one checkpoint, and at step 0."""

    config: Config
    run: str
    step: int
    norm: str
    ffn: str
    text: str
    """Whose text the prefixes are of."""
    n_layers: int
    n_memories: int
    """Per layer."""
    d_vocab: int
    n_prefixes: int
    n_windows: int
    """Passes that they were read from."""
    unit: str
    """What is resampled: documents, or windows where fewer than twelve documents have a prefix."""
    n_units: int
    linear: bool
    """Whether a sum's logits are in the order of summed logits, so that the impossible case cannot occur."""
    now: Measured
    at_step_zero: Measured | None
    """None where this is step 0, or it is not kept or was not asked for."""
    since_start: SinceStart | None
    """None likewise."""
