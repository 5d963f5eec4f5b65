"""Estimates of edges: what each head's output does through one input of each later head, all edges at once.

    EAP     score(u -> v) = (z_u' - z_u) W_O . dM/d(input of v) at the clean run   (Syed et al. 2023, 2310.10348)
    EAP-IG  the same, the gradient a mean on the way from corrupted embeddings   (Hanna et al. 2024, 2403.17806)

A divergence from the clean run is flat at the clean run itself: its gradient there is zero, and so is every EAP score.
Integrated gradients see the slope on the way. True effects of edges are those of `interp.path_patching`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.gradients import fitting_rows
from interp.metrics import Metric, Sequences, split_rows
from interp.patching import Others, require_pairs
from interp.patching_gradients import differentiated, gradients_in, integrated, require_steps
from interp.paths import Input, require_edges
from interp.requirements import require_deterministic
from model.errors import UndefinedError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

SplitTaps = {Input.Q: Tap.Q_INPUT, Input.K: Tap.K_INPUT, Input.V: Tap.V_INPUT}


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeEstimates:
    """Estimated effects of patching edges between heads, mean over sequences; FFNs and other heads held (EAP)."""

    by_input: Mapping[Input, Float[Tensor, "sender_layer sender receiver_layer receiver"]]
    """NaN where the receiver is not in a later layer; receivers are key-value heads at K and V."""


def edge_attribution(
    gpt: GPT,
    clean: Sequences,
    corrupted: Others,
    metric: Metric,
    *,
    n_steps: int | None = None,
    batch_size: int | None = None,
) -> EdgeEstimates:
    """Estimate the effect of every edge from a head to an input of a later head: the sender corrupted, the rest clean.

    Without `n_steps` by the gradient of the clean run (EAP); with it, by the mean gradient over so many runs from the
    corrupted to the clean embeddings, the clean one included (EAP-IG; the paper takes 5). Scores are summed over
    positions, and the mean over sequences. Needs heads that write into the stream as they are.
    """
    require_edges(gpt.config)
    require_steps(1 if n_steps is None else n_steps)
    if gpt.config.n_layers == 1:
        said = "a model of one layer has no later head that could read an earlier one; there is no edge."
        raise UndefinedError(said, setting="n_layers=1")
    require_pairs(gpt, clean, corrupted)
    require_deterministic(gpt)
    layers = range(gpt.config.n_layers)
    writes = [str(Tap.Z.at(layer)) for layer in layers]
    reads = [str(tap.at(layer)) for tap in SplitTaps.values() for layer in layers]
    sums: dict[Input, Tensor] = {}
    for rows in split_rows(len(clean), batch_size or fitting_rows(gpt.config, clean.shape[1])):
        base, source = (each[rows].to(gpt.device) for each in (clean, corrupted))
        with torch.no_grad():
            _, other = gpt.run_with_cache(source, writes, return_type=None)
        own = differentiated(gpt, base, [*writes, *reads], metric, rows)
        slopes = gradients_in(own, reads)
        if n_steps is not None:
            slopes = integrated(gpt, base, source, reads, metric, rows, n_steps=n_steps)
        change = torch.stack([other[name] - own[name] for name in writes])
        sent = torch.einsum("lbphe,lhem->lbphm", change, gpt.W_O)
        for each, tap in SplitTaps.items():
            gradient = torch.stack([slopes[str(tap.at(layer))] for layer in layers])
            score = torch.einsum("sbpum,rbpvm->surv", sent, gradient).double().cpu()
            sums[each] = sums[each] + score if each in sums else score
    later = torch.tensor([[receiver > sender for receiver in layers] for sender in layers])[:, None, :, None]
    return EdgeEstimates(by_input={each: (total / len(clean)).where(later, math.nan) for each, total in sums.items()})
