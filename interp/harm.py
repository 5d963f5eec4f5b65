"""What many ablations cost on the same sequences: ablated minus clean loss, in nats, one number per sequence.

An ablation leaves the layers below it as they were. So each batch runs once, keeps the stream that enters every ablated
layer, and each ablation starts from there: over all layers this saves about half of the work, and it changes no number
(a test holds it against whole runs). No more than one batch of streams is held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation import Edits, Means, hooks_for
from interp.outcomes import Outcome, fitting_batch, token_losses
from interp.places import Intervention, Place, resolve_places
from interp.requirements import require_deterministic, require_next_token
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

Counted = Callable[[int, int], None]
"""Called as counted(runs done, runs in all) after each batch of each ablation; may raise to stop the work."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Harms:
    """Losses with and without each of several ablations."""

    clean: Float[Tensor, "sequence outcome"]
    """Loss of the intact model, in nats."""

    ablated: Float[Tensor, "sequence ablation outcome"]
    """Loss under each ablation, in nats."""

    @property
    def harm(self) -> Float[Tensor, "sequence ablation outcome"]:
        """Ablated minus clean loss, in nats; negative means that the place hurt."""
        return self.ablated - self.clean[:, None]


@torch.no_grad()
def measure_harms(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    ablations: Sequence[Sequence[Place]],
    outcomes: Sequence[Outcome],
    *,
    means: Means | None = None,
    batch_size: int | None = None,
    counted: Counted | None = None,
) -> Harms:
    """Run `tokens` intact and under each ablation (a set of places replaced together); float64 on the CPU.

    Places without an intervention of their own are replaced by their mean; without a `batch_size`, batches are small
    where logits are many. Raises InputError where dropout is active: two runs would then differ by chance.
    """
    require_next_token(gpt)
    require_deterministic(gpt)
    prepared = [_prepare(gpt, places, means) for places in ablations]
    batches = tokens.to(gpt.device).split(batch_size or fitting_batch(gpt, tokens.shape[1]))
    clean, ablated, done = [], [], 0
    for batch in batches:
        logits, streams = _clean_run(gpt, batch, {layer for layer, _ in prepared})
        clean.append(_outcomes(logits, batch, outcomes))
        rows = []
        for layer, edits in prepared:
            rows.append(_outcomes(_resume(gpt, streams[layer], layer, edits), batch, outcomes))
            done += 1
            if counted is not None:
                counted(done, len(batches) * len(prepared))
        ablated.append(
            torch.stack(rows, dim=1) if rows else torch.empty(len(batch), 0, len(outcomes), dtype=torch.float64)
        )
    return Harms(clean=torch.cat(clean), ablated=torch.cat(ablated))


_Prepared = tuple[int, Edits]
"""The first layer an ablation touches, and its hooks."""


def _prepare(gpt: GPT, places: Sequence[Place], means: Means | None) -> _Prepared:
    resolved = resolve_places(places, gpt.config, Intervention.MEAN)
    return min(place.layer for place in resolved), hooks_for(gpt, resolved, means)


def _clean_run(gpt: GPT, batch: Tensor, layers: set[int]) -> tuple[Tensor, dict[int, Tensor]]:
    """Clean logits, and the stream that enters each of `layers`."""
    if not layers:
        return gpt(batch), {}
    logits, cache = gpt.run_with_cache(batch, names_filter=[str(Tap.RESID_PRE.at(layer)) for layer in layers])
    return logits, {layer: cache[Tap.RESID_PRE.at(layer)] for layer in layers}


def _resume(
    gpt: GPT, stream: Float[Tensor, "batch pos d_model"], layer: int, edits: Edits
) -> Float[Tensor, "batch pos d_vocab"]:
    """Logits of the model run from `layer` on, with `edits`."""
    return gpt.run_with_hooks(stream, fwd_hooks=edits, start_at_layer=layer)


def _outcomes(logits: Tensor, batch: Tensor, outcomes: Sequence[Outcome]) -> Float[Tensor, "sequence outcome"]:
    losses = token_losses(logits, batch)
    return torch.stack([outcome.of_losses(losses, batch) for outcome in outcomes], dim=1).double().cpu()
