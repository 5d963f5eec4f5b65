"""From single prefixes to shares with their intervals (for `analyses.ffn_composition`).

Prefixes of one document are not independent. So every share is a ratio of sums, and what is resampled are whole
documents (or windows), with as many prefixes as each has; p-values are those of `interp.ratio_tests`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analyses.composition.result import FirstShares, Promotion, SinceStart, SubUpdateShares, Targets
from interp.ffn_composed import Composed, Counted
from interp.ratio_tests import Ratio, ratio_ps
from interp.stats import Interval, Intervals, bootstrap_ratios, holm
from interp.sub_updates import N_DOMINANT, FirstMemories, Saturations, SubUpdates
from interp.token_kinds import TokenKind, token_kinds

if TYPE_CHECKING:
    from model.tokenizer import Tokenizer

SHORT = 5
"""A prefix is short with fewer tokens than this, as in Geva et al. 2021."""


@dataclass(frozen=True)
class Units:
    """Which unit each prefix is of; units are what is resampled."""

    of_prefix: Int[Tensor, " prefix"]
    n: int
    seed: int

    def sums(self, values: Float[Tensor, " prefix *axes"]) -> Float[Tensor, " unit *axes"]:
        """Sums over each unit's prefixes, fp64."""
        return values.new_zeros(self.n, *values.shape[1:], dtype=torch.float64).index_add_(
            0, self.of_prefix, values.double()
        )

    def ratio(self, part: Float[Tensor, " prefix *axes"], whole: Float[Tensor, " prefix *axes"]) -> Intervals:
        """The sum of `part` over that of `whole`, with its interval."""
        return bootstrap_ratios(self.sums(part), self.sums(whole), seed=self.seed)

    def share(self, values: Float[Tensor, " prefix *axes"]) -> Intervals:
        """The mean over prefixes with its interval."""
        return self.ratio(values, torch.ones_like(values))

    def one_ratio(self, part: Float[Tensor, " prefix"], whole: Float[Tensor, " prefix"]) -> Interval:
        """The same of one number for each prefix."""
        return self.ratio(part[:, None], whole[:, None])[0]

    def ps(self, values: Float[Tensor, "prefix layer"], level: float) -> Float[Tensor, " layer"]:
        """Two-sided p over units that the mean is `level`, Holm-corrected over layers."""
        return holm(ratio_ps([self.mean_of(values)], level=level, seed=self.seed))

    def apart_ps(self, values: Float[Tensor, "prefix layer"], other: Float[Tensor, "prefix layer"]) -> Tensor:
        """Two-sided p over units that two means are the same, [layer], Holm-corrected."""
        return holm(ratio_ps([self.mean_of(values)], less=[self.mean_of(other)], seed=self.seed))

    def p(self, ratios: Sequence[Ratio], *, less: Sequence[Ratio] = (), level: float = 0.0) -> float:
        """The p of one number (`interp.ratio_tests.ratio_ps`)."""
        return float(ratio_ps(ratios, less=less, level=level, seed=self.seed)[0])

    def mean_of(self, values: Float[Tensor, "prefix layer"]) -> Ratio:
        """A mean over prefixes, as a ratio of sums over units."""
        return self.part_of(values, torch.ones_like(values))

    def part_of(self, part: Float[Tensor, "prefix layer"], whole: Float[Tensor, "prefix layer"]) -> Ratio:
        """A share, as a ratio of sums over units."""
        return Ratio(self.sums(part), self.sums(whole))

    def some(self, chosen: Bool[Tensor, " prefix"]) -> Units:
        """Those of the chosen prefixes; units without one are gone."""
        left, of_prefix = self.of_prefix[chosen].unique(return_inverse=True)
        return Units(of_prefix, len(left), self.seed)


def common_tokens(tokens: Int[Tensor, " token"], d_vocab: int) -> Bool[Tensor, " d_vocab"]:
    """The fewest tokens that make up half of a text.

    >>> common_tokens(torch.tensor([2, 2, 2, 1, 0, 3]), 5).tolist()
    [False, False, True, False, False]
    """
    counts = tokens.bincount(minlength=d_vocab)
    order = counts.argsort(descending=True, stable=True)
    behind = counts[order].cumsum(0)
    n = 1 + int((behind * 2 < behind[-1]).sum())
    return torch.zeros(d_vocab, dtype=torch.bool).index_fill_(0, order[:n], value=True)


def targets(
    tokenizer: Tokenizer,
    found: Composed,
    common: Bool[Tensor, " d_vocab"],
    lengths: Int[Tensor, " prefix"],
    units: Units,
) -> Targets:
    """Which of the layers' tokens an active memory agrees with."""
    asked, agrees = found.update_token >= 0, _agrees(found)
    names, kinds = list(TokenKind), token_kinds(tokenizer)
    number = torch.tensor([names.index(kind) for kind in kinds])[found.update_token.clamp_min(0)]

    def shares(chosen: Tensor) -> Tensor:
        counts = number[chosen].bincount(minlength=len(names)).double()
        return (counts / counts.sum()).float()

    def both(holds: Tensor) -> tuple[Interval, Interval] | None:
        if not bool(agrees.any()):
            return None
        own, every = (units.one_ratio((holds & each).double().sum(1), each.double().sum(1)) for each in (agrees, asked))
        return own, every

    own, every = _common(found, common, units)
    return Targets(
        n=int(asked.sum()),
        n_agreeing=int(agrees.sum()),
        kinds=tuple(name.value for name in names),
        agreeing=shares(agrees),
        every=shares(asked),
        n_common=int(common.sum()),
        common=both(common[found.update_token.clamp_min(0)]),
        p_common=units.p([own], less=[every]),
        short=both((lengths < SHORT)[:, None].expand_as(asked)),
    )


def _agrees(found: Composed) -> Bool[Tensor, "prefix layer"]:
    """Whether an active memory has the layer's token."""
    return found.n_agreeing[list(Counted).index(Counted.ACTIVE)] > 0


def _common(found: Composed, common: Bool[Tensor, " d_vocab"], units: Units) -> tuple[Ratio, Ratio]:
    """Common tokens among those with an agreeing memory, and among all; prefixes and layers pooled."""
    asked, holds = found.update_token >= 0, common[found.update_token.clamp_min(0)]
    own, every = (
        units.part_of(*((one & each).double().sum(1, keepdim=True) for one in (holds, each)))
        for each in (_agrees(found), asked)
    )
    return own, every


Taken = tuple[Composed, SubUpdates, Saturations]
"""Layers taken apart at every prefix, to be held against those of another checkpoint."""


def since_start(
    now: Taken,
    start: Taken,
    ks: Sequence[int],
    common: Bool[Tensor, " d_vocab"],
    units: Units,
) -> SinceStart:
    """What training has made of it: the same prefixes at two checkpoints."""
    (layers, updates, events), (layers_before, updates_before, events_before) = now, start
    rise, rise_before = (units.mean_of(_rise(each)) for each in (layers, layers_before))
    (own, every), (own_before, every_before) = (_common(each, common, units) for each in (layers, layers_before))
    return SinceStart(
        p_active=units.apart_ps(layers.active.double(), layers_before.active.double()),
        p_carried=units.apart_ps(carried(updates, ks), carried(updates_before, ks)),
        p_rise=units.p([rise], less=[rise_before]),
        p_common=units.p([own, every_before], less=[every, own_before]),
        p_promoted=units.p([_promoted(events, units)], less=[_promoted(events_before, units)]),
    )


def _rise(found: Composed) -> Float[Tensor, "prefix one"]:
    """Of the residual agreement, from the first FFN to the last."""
    agrees = (found.stream_token == found.final_token[:, None]).double()
    return agrees[:, -1:] - agrees[:, :1]


def carried(found: SubUpdates, ks: Sequence[int]) -> Float[Tensor, "prefix layer"]:
    """R^2 of the most of `ks` up to ten memories; a half, and so for neither side, where the layer writes nothing."""
    ten = max((place for place, k in enumerate(ks) if k <= N_DOMINANT), default=0)
    return torch.where(found.norm > 0, r_squared(found, found.top)[:, ten], 0.5)


def sub_update_shares(found: SubUpdates, ks: Sequence[int], units: Units) -> SubUpdateShares:
    """What the first k of a layer's memories carry."""
    top = _first(found, found.top, units)
    halved = top.r_squared.mean >= 0.5
    sizes = torch.tensor(list(ks))
    return SubUpdateShares(
        ks=tuple(ks),
        top=top,
        random=_first(found, found.random, units),
        effect=units.share(found.effect),
        n_half=torch.where(halved.any(0), sizes[halved.long().argmax(0)], -1),
        p_half=units.ps(carried(found, ks), 0.5),
    )


def _first(found: SubUpdates, some: FirstMemories, units: Units) -> FirstShares:
    norm, inner, effect = (each.double().movedim(0, 1) for each in (some.norm, some.inner, some.effect))
    whole = found.norm.double()[:, None]
    there = (whole > 0).double().expand_as(norm)
    return FirstShares(
        norm_share=units.ratio(_over(norm, whole), there),
        cosine=units.ratio(_over(inner, norm * whole), there),
        r_squared=units.ratio(r_squared(found, some), there),
        effect_share=units.ratio(effect, found.effect.double()[:, None].expand_as(effect)),
    )


def r_squared(found: SubUpdates, some: FirstMemories) -> Float[Tensor, "prefix k layer"]:
    """1 - |u - u_k|^2 / |u|^2; 0 where the layer writes nothing."""
    whole = found.norm.double()[:, None].square()
    return _over(whole - some.missed.double().movedim(0, 1), whole)


def _over(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / whole.where(whole > 0, 1.0), 0.0)


def promotion(found: Saturations, n_layers: int, units: Units) -> Promotion | None:
    """What FFNs do at saturation events; None where fewer than two units have one."""
    there = found.layer >= 0
    some = units.some(there)
    if some.n < 2:
        return None
    parts = ("total", "raised", "lowered", "dominant", "random")
    values = {name: getattr(found, name)[there] for name in parts}
    promoted = _promoted(found, units)
    own, another = (some.mean_of(values["total"][:, place, None]) for place in (0, 2))
    dominant, random = (some.mean_of(values[name][:, :1]) for name in ("dominant", "random"))
    return Promotion(
        n_events=int(there.sum()),
        by_layer=found.layer[there].bincount(minlength=n_layers),
        promoted_share=bootstrap_ratios(promoted.part, promoted.whole, seed=units.seed)[0],
        p_promoted=units.p([promoted], level=0.5),
        p_another=some.p([own], less=[another]),
        p_dominant=some.p([dominant], less=[random]),
        **{name: some.share(each) for name, each in values.items()},
    )


def _promoted(found: Saturations, units: Units) -> Ratio:
    """Rises of the final token, of those and the displaced token's falls; nothing of either without an event."""
    total = found.total[:, :2].double().nan_to_num(0.0)
    rise, fall = total[:, :1].clamp_min(0), -total[:, 1:].clamp_max(0)
    return units.part_of(rise, rise + fall)
