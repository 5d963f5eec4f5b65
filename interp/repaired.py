"""What came out of taking an ablation's effect on a logit apart, and what it says over tokens and sequences.

Two choices of tokens are usual. Rushing and Nanda 2024 look at the top 2 % of tokens by the component's direct effect,
where it matters (`top_targets`); or the targets of a task, such as those that a repeat determines. Numbers are sums
over tokens, resampled by sequence; a share is a ratio of such sums, so that tokens without a direct effect cannot run
away with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.line_fits import Lines, fit_lines
from interp.stats import Intervals, bootstrap_ratios
from model.errors import InputError
from model.settings import as_enum


class Part(StrEnum):
    """Who makes good what an ablation took away."""

    HEADS = "heads"
    """Later heads, by what they write now."""
    FFNS = "FFNs"
    """Later FFNs, the one in the head's own layer among them."""
    OUTPUT_NORMS = "output norms"
    """The scales that attention is written through (sandwich, reordered); 0 under other placements."""
    FINAL_NORM = "final norm"
    """The scale before the unembedding: a smaller stream is divided by less, which raises all that is left."""


PARTS = tuple(Part)
"""The parts, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """Something whose direct effect can change."""

    label: str
    layer: int
    part: Part

    def __post_init__(self) -> None:
        object.__setattr__(self, "part", as_enum(Part, self.part, "part"))


@dataclass(frozen=True, kw_only=True, eq=False)
class SelfRepair:
    """What several ablations did to the logit of each next token, taken apart; in logits, fp64 on the CPU.

    Negative where the logit falls. A target t is tokens[:, t + 1], read at position t.
    """

    ablations: tuple[str, ...]
    """What was put where, in the grammar of places."""

    components: tuple[Component, ...]
    """Heads, FFNs and output norms, layer by layer."""

    ablated: Bool[Tensor, "ablation component"]
    """Which of the components each ablation replaces."""

    clean: Float[Tensor, "sequence target"]
    """The logit of the intact model, less the vocabulary's mean."""

    clean_direct: Float[Tensor, "sequence ablation target"]
    """The direct effect of what is ablated, in the intact model: what makes it matter at a token."""

    total: Float[Tensor, "sequence ablation target"]
    """Change of the logit (Delta ablate)."""

    direct: Float[Tensor, "sequence ablation target"]
    """Change of the direct effect of what was ablated (Delta unembed)."""

    by_part: Float[Tensor, "sequence ablation part target"]
    """What others add to it, in the order of PARTS."""

    by_component: Float[Tensor, "sequence ablation component"]
    """Change of each component's direct effect, the ablated ones' too; the mean over the targets that were chosen."""

    chosen: Bool[Tensor, "sequence target"]
    """The targets over which `by_component` is a mean; the other numbers are there for every target."""

    @property
    def repaired(self) -> Float[Tensor, "sequence ablation target"]:
        """Total minus direct effect: positive where the fall was made good."""
        return self.total - self.direct

    @property
    def repaired_frozen(self) -> Float[Tensor, "sequence ablation target"]:
        """The same with the final norm's scale held at the intact run's."""
        return self.repaired - self.by_part[:, :, PARTS.index(Part.FINAL_NORM)]

    @property
    def residual(self) -> Float[Tensor, "sequence ablation target"]:
        """What the decomposition leaves over: nothing but rounding."""
        return self.repaired - self.by_part.sum(2)


@dataclass(frozen=True, kw_only=True, eq=False)
class RepairSummary:
    """Means over the chosen tokens of each ablation, in logits, with intervals over sequences; negative: a fall."""

    n_tokens: tuple[int, ...]
    """How many tokens were looked at, for each ablation."""

    total: Intervals
    """Change of the logit, [ablation]."""

    direct: Intervals
    """Change of the direct effect of what was ablated, [ablation]."""

    repaired: Intervals
    """Total minus direct, [ablation]: positive where the fall was made good."""

    by_part: Intervals
    """What the others add to that, [ablation, part], in the order of PARTS."""

    share: Intervals
    """Repaired over minus direct, [ablation]: 1 where the logit does not move at all, 0 where it falls by the direct
    effect, negative where it falls by more; NaN or without ends where the direct effect is zero or has either sign."""

    share_by_part: Intervals
    """The same of each part, [ablation, part]; they add up to `share`."""

    line: Lines
    """Total on direct effect over tokens, [ablation] (McGrath et al. 2023): slope 1 without repair."""


def top_targets(found: SelfRepair, share: float = 0.02) -> Bool[Tensor, "sequence ablation target"]:
    """For each ablation, the share of all targets on which what is ablated has the largest direct effect."""
    if not 0 < share <= 1:
        raise InputError(f"share={share} of the tokens cannot be taken; give a number above 0 and at most 1.")
    direct = found.clean_direct.transpose(1, 2).flatten(0, 1)
    n = max(1, round(share * len(direct)))
    top = torch.zeros_like(direct, dtype=torch.bool).scatter_(0, direct.topk(n, dim=0).indices, value=True)
    return top.unflatten(0, (len(found.clean_direct), -1)).transpose(1, 2)


def summarise(
    found: SelfRepair,
    tokens: Bool[Tensor, "sequence target"] | Bool[Tensor, "sequence ablation target"] | None = None,
    *,
    seed: int = 0,
) -> RepairSummary:
    """The numbers over the same `tokens` for every ablation, or over each one's own; by default the chosen ones."""
    picked = found.chosen if tokens is None else tokens
    if picked.ndim == 2:
        picked = picked[:, None].expand_as(found.total)
    if picked.shape != found.total.shape or not bool(picked.any(2).any(0).all()):
        raise InputError(
            f"tokens have shape {tuple(picked.shape)} or leave an ablation without any; give a mask of shape "
            f"{tuple(found.total.shape)}, or one for all ablations, with at least one token for each."
        )
    n = picked.sum(2).double()
    total, direct = (found.total * picked).sum(2), (found.direct * picked).sum(2)
    parts = (found.by_part * picked[:, :, None]).sum(3)

    def mean(sums: Tensor) -> Intervals:
        return bootstrap_ratios(sums, n if sums.ndim == 2 else n[..., None].expand_as(sums), seed=seed)

    return RepairSummary(
        n_tokens=tuple(int(each) for each in n.sum(0)),
        total=mean(total),
        direct=mean(direct),
        repaired=mean(total - direct),
        by_part=mean(parts),
        share=bootstrap_ratios(total - direct, -direct, seed=seed),
        share_by_part=bootstrap_ratios(parts, -direct[..., None].expand_as(parts), seed=seed),
        line=fit_lines(found.direct, found.total, picked, seed=seed),
    )
