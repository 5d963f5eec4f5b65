"""How agreement goes with confidence and with depth (Geva et al. 2021, section 4).

They found that values which are surer of their top token agree more often with their key's triggers, that agreement
rises with depth, and that the next token of a key's top trigger ranks better and better in its value's order. Each is
held here against a permutation:

* by confidence: memories in bins of equal count, each beside the agreement of next tokens dealt within layer and bin.
  Over all layers a rise may only say that sure values sit in late layers; so it is also asked within layers.
* by depth: Spearman's rank correlation of a number per layer with the layer, against all orders of the layers. Few
  layers cannot say much: of three, even a perfect trend has p = 1/6.

The unit is the memory, or the layer; what the memories of one model share is not resampled.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.agreement import Agreement, dealt, measured_agreement
from interp.approximation import correlation
from model.errors import InputError

EXACT_LAYERS = 8
"""With no more layers than this all orders are tried; else some are drawn."""


@dataclass(frozen=True, kw_only=True)
class ConfidenceBin:
    """Memories of similar confidence, and how often they agree."""

    low: float
    """Smallest confidence among them."""

    high: float
    """Largest confidence among them."""

    agreement: Agreement
    """Beside next tokens dealt among memories of the same layer and bin."""


@dataclass(frozen=True, kw_only=True)
class ConfidenceTrend:
    """Whether surer values agree more often."""

    n: int
    """Memories."""

    n_agreeing: int

    rho: float
    """Spearman's correlation of confidence with agreeing (0 or 1), over all memories; NaN where either is constant."""

    chance: float
    """Its mean when next tokens are dealt within layers: sure values may promote frequent tokens."""

    p: float
    """(1 + deals with a correlation at least as high) / (1 + deals)."""

    within: float
    """Chance that of two memories of one layer, of which one agrees, that one is the surer; NaN where there are none.
    0.5 is no relation."""

    within_p: float
    """(1 + shuffles, within layers, of which memories agree that do at least as well) / (1 + shuffles)."""

    n_permutations: int


@dataclass(frozen=True, kw_only=True)
class DepthTrend:
    """Whether a number rises or falls from layer to layer."""

    rho: float
    """Spearman's correlation with depth; NaN for fewer than two layers, and where all numbers are equal."""

    p_rises: float
    """Share of orders of the layers whose correlation is at least as high; drawn ones count themselves in."""

    p_falls: float
    """The same for at least as low."""

    n: int
    """Layers that have a number."""

    n_orders: int
    """Orders that were tried."""

    exact: bool
    """Whether these were all orders there are."""


def agreement_by_confidence(
    promoted: Int[Tensor, " memory"],
    followed: Int[Tensor, " memory"],
    confidence: Float[Tensor, " memory"],
    layers: Int[Tensor, " memory"],
    *,
    n_bins: int = 10,
    n_permutations: int,
    seed: int,
) -> tuple[ConfidenceBin, ...]:
    """Agreement in bins of equal count, from the least sure values to the surest.

    There are as many bins as memories at most; counts differ by one where they do not divide.
    """
    if n_bins < 1:
        raise InputError(f"n_bins={n_bins} holds nothing; take at least 1 bin.")
    order = confidence.argsort(stable=True)
    bins = []
    for own in order.tensor_split(min(n_bins, max(1, len(order)))):
        if len(own):
            found = measured_agreement(
                promoted[own], followed[own], n_permutations=n_permutations, seed=seed, layers=layers[own]
            )
            bins.append(ConfidenceBin(low=float(confidence[own[0]]), high=float(confidence[own[-1]]), agreement=found))
    return tuple(bins)


def confidence_trend(
    promoted: Int[Tensor, " memory"],
    followed: Int[Tensor, " memory"],
    confidence: Float[Tensor, " memory"],
    layers: Int[Tensor, " memory"],
    *,
    n_permutations: int,
    seed: int,
) -> ConfidenceTrend:
    """Whether agreement rises with confidence, over all layers and within them."""
    agrees, places = (promoted == followed).double(), _midranks(confidence)
    in_layer, pairs, shift = _places_in_layers(agrees, confidence, layers)
    rho, surer = correlation(places, agrees), float(in_layer @ agrees)
    rhos, as_sure = [], 0
    for order in dealt(layers, n_permutations, seed):
        rhos.append(correlation(places, (promoted == followed[order]).double()))
        as_sure += float(in_layer @ agrees[order]) >= surer - 1e-9
    dealt_rhos = torch.tensor(rhos, dtype=torch.float64).nan_to_num(0.0)  # where nothing agrees, nothing is related
    told = not math.isnan(rho)
    return ConfidenceTrend(
        n=len(promoted),
        n_agreeing=int(agrees.sum()),
        rho=rho,
        chance=float(dealt_rhos.mean()),
        p=(1 + int((dealt_rhos >= rho - 1e-12).sum())) / (1 + n_permutations) if told else 1.0,
        within=(surer - shift) / pairs if pairs else math.nan,
        within_p=(1 + as_sure) / (1 + n_permutations) if pairs else 1.0,
        n_permutations=n_permutations,
    )


def depth_trend(per_layer: Float[Tensor, " layer"], *, n_permutations: int = 9999, seed: int = 0) -> DepthTrend:
    """Whether a number per layer rises or falls with depth; layers without one (NaN) are left out.

    >>> found = depth_trend(torch.tensor([9.0, 5.0, 5.5, 2.0]))
    >>> round(found.rho, 2), round(found.p_falls, 3), found.n_orders
    (-0.8, 0.167, 24)
    """
    values = per_layer[~per_layer.isnan()].double()
    n = len(values)
    places, depth = _midranks(values), torch.arange(n, dtype=torch.float64)
    rho = correlation(places, depth) if n > 1 else math.nan
    exact = n <= EXACT_LAYERS
    if math.isnan(rho):
        return DepthTrend(rho=rho, p_rises=1.0, p_falls=1.0, n=n, n_orders=0, exact=exact)
    products = _orders(n, n_permutations, seed).double() @ places  # the one part of a correlation that an order changes
    found = float(depth @ places)
    rises, falls = int((products >= found - 1e-9).sum()), int((products <= found + 1e-9).sum())
    own = 0 if exact else 1  # among all orders is the one that was found
    total = len(products) + own
    return DepthTrend(
        rho=rho, p_rises=(rises + own) / total, p_falls=(falls + own) / total, n=n, n_orders=len(products), exact=exact
    )


def _orders(n: int, n_drawn: int, seed: int) -> Int[Tensor, "order layer"]:
    """All orders of a few layers, or some of many."""
    if n <= EXACT_LAYERS:
        return torch.tensor(list(itertools.permutations(range(n))))
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n_drawn, n, generator=generator).argsort(dim=1)


def _places_in_layers(
    agrees: Float[Tensor, " memory"], confidence: Float[Tensor, " memory"], layers: Int[Tensor, " memory"]
) -> tuple[Float[Tensor, " memory"], int, float]:
    """Mann and Whitney's count, over layers: what to sum over agreeing memories, for how many pairs, less what.

    The sum of the places of those that agree, less what it is if they take the lowest places, counts the pairs of one
    layer, of which one agrees, in which that one is the surer; a tie counts half.
    """
    places, pairs, shift = torch.zeros_like(agrees), 0, 0.0
    for layer in layers.unique():
        own = layers == layer
        n, n_agreeing = int(own.sum()), int(agrees[own].sum())
        places[own] = _midranks(confidence[own])
        pairs += n_agreeing * (n - n_agreeing)
        shift += n_agreeing * (n_agreeing - 1) / 2
    return places, pairs, shift


def _midranks(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The rank of each value from 0 up, equal values sharing the mean of theirs, without comparing all pairs."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts.double() + 1) / 2)[place]
