"""What many ablations cost on the same sequences: ablated minus clean loss, in nats, one number per sequence.

An ablation leaves the layers below it as they were. So each batch runs once, keeps the stream that enters every ablated
layer, and each ablation starts from there, beside others that start there too (`interp.sweep`): over all layers this
saves about half of the work. Logits are formed only at positions that an outcome looks at, in blocks, and never kept.
It changes no number (a test holds it against whole runs), and works in a stated memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.ablation import Edits, Means, hooks_for
from interp.measures import Measure, read
from interp.outcomes import Outcome, token_losses
from interp.places import Intervention, Place, resolve_places
from interp.requirements import require_deterministic, require_next_token
from interp.sweep import MEMORY, Room, begun_together, stacked
from model.errors import InputError
from model.sites import Site, Tap

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
    memory: int = MEMORY,
    counted: Counted | None = None,
) -> Harms:
    """Run `tokens` intact and under each ablation (a set of places replaced together); float64 on the CPU.

    Places without an intervention of their own are replaced by their mean. Sequences and ablations run together as far
    as `memory` bytes hold what that takes beside the model and the means; `batch_size` sequences where it is given.
    Hooks that are in force here see one ablation at a time, as in a run of its own. Raises InputError where dropout is
    active (two runs would then differ by chance), and without any outcome.
    """
    require_next_token(gpt)
    require_deterministic(gpt)
    if not outcomes:
        raise InputError("outcomes is empty, so nothing would be measured; give at least one (interp.outcomes).")
    prepared = [_prepare(gpt, places, means) for places in ablations]
    first_layers = [layer for layer, _ in prepared]
    n_layers, most = len(set(first_layers)), batch_size or min(32, len(tokens))
    room = Room.within(memory, gpt.config, dtype=gpt.dtype, n_pos=tokens.shape[1], n_layers=n_layers, most=most)
    batches = tokens.to(gpt.device).split(batch_size or room.n_sequences)
    clean, ablated, done = [], [], 0
    for batch in batches:
        asked = _Asked.of(batch, outcomes)
        final, streams = _clean_run(gpt, batch, set(first_layers))
        clean.append(asked.answers(gpt, final, room.n_rows)[0])
        found = torch.empty(len(prepared), len(batch), len(outcomes), dtype=torch.float64)
        for members in begun_together(first_layers, 1 if gpt.hooked else room.n_ablations):
            layer = first_layers[members[0]]
            edits = stacked([prepared[member][1] for member in members], len(batch))
            found[members] = asked.answers(gpt, _resumed(gpt, streams[layer], layer, edits, len(members)), room.n_rows)
            if counted is not None:
                for number in range(done + 1, done + 1 + len(members)):
                    counted(number, len(batches) * len(prepared))
            done += len(members)
        ablated.append(found.transpose(0, 1))
    return Harms(clean=torch.cat(clean), ablated=torch.cat(ablated))


_Prepared = tuple[int, Edits]
"""The first layer an ablation touches, and its hooks."""


def _prepare(gpt: GPT, places: Sequence[Place], means: Means | None) -> _Prepared:
    resolved = resolve_places(places, gpt.config, Intervention.MEAN)
    return min(place.layer for place in resolved), hooks_for(gpt, resolved, means)


def _clean_run(gpt: GPT, batch: Tensor, layers: set[int]) -> tuple[Tensor, dict[int, Tensor]]:
    """The stream that leaves the last layer, and the one that enters each of `layers`."""
    names = [_last(gpt), *(Tap.RESID_PRE.at(layer) for layer in layers)]
    _, cache = gpt.run_with_cache(batch, names, return_type=None)
    return cache[_last(gpt)], {layer: cache[Tap.RESID_PRE.at(layer)] for layer in layers}


def _resumed(
    gpt: GPT, stream: Float[Tensor, "sequence pos d_model"], layer: int, edits: Edits, n_members: int
) -> Float[Tensor, "row pos d_model"]:
    """The stream that leaves the last layer, run on from `layer`, for each ablation in turn."""
    with gpt.hooks(fwd_hooks=edits):
        repeated = stream.repeat(n_members, 1, 1)
        _, cache = gpt.run_with_cache(repeated, _last(gpt), start_at_layer=layer, return_type=None)
    return cache[_last(gpt)]


def _last(gpt: GPT) -> Site:
    return Tap.RESID_POST.at(gpt.config.n_layers - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Asked:
    """What is asked of a batch, whatever is ablated: which targets each outcome looks at."""

    tokens: Int[Tensor, "sequence pos"]
    outcomes: Sequence[Outcome]
    chosen: Sequence[Bool[Tensor, "sequence target"]]
    """For each outcome."""

    @classmethod
    def of(cls, tokens: Tensor, outcomes: Sequence[Outcome]) -> _Asked:
        return cls(tokens=tokens, outcomes=outcomes, chosen=[outcome.targets(tokens) for outcome in outcomes])

    def answers(
        self, gpt: GPT, final: Float[Tensor, "row pos d_model"], n_rows: int
    ) -> Float[Tensor, "member sequence outcome"]:
        """Every outcome of every sequence, from the stream that leaves the last layer; float64 on the CPU."""
        n_members = len(final) // len(self.tokens)
        tokens = self.tokens.repeat(n_members, 1)
        losses = self._every_loss(gpt, final, tokens) if gpt.hooked else self._losses(gpt, final, tokens, n_rows)
        by_member = losses.unflatten(0, (n_members, len(self.tokens)))
        means = [each.of_values(by_member, self.tokens) for each in self.outcomes]
        return torch.stack(means, dim=-1).double().cpu()

    def _losses(self, gpt: GPT, final: Tensor, tokens: Tensor, n_rows: int) -> Float[Tensor, "row target"]:
        """The losses that an outcome looks at; 0 where none does."""
        wanted = torch.stack(list(self.chosen)).any(0).repeat(len(tokens) // len(self.tokens), 1)
        rows = zip(final[:, :-1][wanted].split(n_rows), tokens[:, 1:][wanted].split(n_rows), strict=True)
        found = torch.cat([read(Measure.LOSS, gpt.unembed_stream(row), target) for row, target in rows])
        return torch.zeros(wanted.shape, dtype=found.dtype, device=found.device).masked_scatter(wanted, found)

    def _every_loss(self, gpt: GPT, final: Tensor, tokens: Tensor) -> Float[Tensor, "row target"]:
        """All losses, past hooks that may stand on the final norm or on the logits."""
        return token_losses(gpt.run_with_hooks(final, start_at_layer=gpt.config.n_layers), tokens)
