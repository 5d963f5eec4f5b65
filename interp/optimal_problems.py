"""Several ablations by constants side by side: their losses, and the gradients at their constants, in one pass.

The batch axis holds the sequences once for each ablation (a *member*). At every place where something is ablated the
members' constants stand in one tensor, beside a mask of what is theirs; what a member does not ablate passes through.
Nothing is written in place, so one backward pass gives every member's gradient, and no member reaches another's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.ablation import mean_activations
from interp.ablation_plan import site_of
from interp.loss_gradients import AtTheEnd, GradientRoom, at_the_end, final_stream
from interp.outcomes import Outcome
from interp.places import Place
from model.hooks import Hook, HookFunction
from model.resume import Entry, Kept, Part, resumed

if TYPE_CHECKING:
    from model.gpt import GPT

Values = Mapping[str, Tensor]
"""Hook name -> every member's constant there: [member, head, d_head] at z, [member, memory] at memories."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Where components are and how far they move over sequences and positions, by hook name."""

    mean: Mapping[str, Float[Tensor, "*component"]]
    deviation: Mapping[str, Float[Tensor, "*component"]]
    """Standard deviation, at least a little above zero, so that a component that never moved can."""


@torch.no_grad()
def measured_spread(
    gpt: GPT, tokens: Int[Tensor, "sequence pos"], ablations: Sequence[Sequence[Place]], *, source: str
) -> Spread:
    """The mean (that of `interp.ablation`) and the spread of what the ablated places hold."""
    places = [place for each in ablations for place in each]
    means = mean_activations(gpt, tokens, source=source, places=places)
    names = list(dict.fromkeys(site_of(place) for place in places))
    mean = {name: means.overall(name).to(gpt.device) for name in names}
    sums = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in mean.items()}
    for batch in tokens.split(32):
        _, cache = gpt.run_with_cache(batch.to(gpt.device), names, return_type=None)
        for name in names:
            sums[name] += (cache[name] - mean[name]).double().square().sum((0, 1))
    deviation = {}
    for name, total in sums.items():
        each = (total / tokens.numel()).sqrt().to(gpt.dtype)
        deviation[name] = each.clamp_min(max(1e-6, float(each.mean()) / 100))
    return Spread(mean=mean, deviation=deviation)


@dataclass(frozen=True, kw_only=True, eq=False)
class Problems:
    """Ablations that begin at the same place, on the same sequences."""

    gpt: GPT
    tokens: Int[Tensor, "sequence pos"]
    outcome: Outcome
    members: Sequence[Sequence[Place]]
    entry: Entry
    memory: int
    """Bytes for passes, and for what is kept of the intact run."""

    @staticmethod
    def most(gpt: GPT, n_pos: int, entries: Iterable[Entry], n_sequences: int, *, memory: int) -> int:
        """How many problems fit side by side where each step takes so many sequences."""
        return max(1, _room(gpt, n_pos, min(entries), memory).n_rows // n_sequences)

    @property
    def n_sequences(self) -> int:
        """How many sequences the constants are fitted on."""
        return len(self.tokens)

    @cached_property
    def room(self) -> GradientRoom:
        """How much is run at a time."""
        return _room(self.gpt, self.tokens.shape[1], self.entry, self.memory)

    @cached_property
    def masks(self) -> Mapping[str, Bool[Tensor, "member component"]]:
        """Hook name -> which components each member ablates there."""
        config, masks = self.gpt.config, {}
        for member, places in enumerate(self.members):
            for place in places:
                size = config.n_heads if place.in_attention else config.ffn_width
                blank = torch.zeros(len(self.members), size, dtype=torch.bool, device=self.gpt.device)
                mask = masks.setdefault(site_of(place), blank)
                mask[member, slice(None) if place.index is None else place.index] = True
        return masks

    def laid_out(self, by_site: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same numbers for every member, at the places of this stack."""
        return {name: by_site[name].expand(len(self.members), *by_site[name].shape).clone() for name in self.masks}

    def values_of(self, member: int, values: Values) -> dict[str, Tensor]:
        """One member's constants by the labels of its places; on the CPU."""
        found = {}
        for place in self.members[member]:
            there = values[site_of(place)][member].detach()
            found[place.label] = (there if place.index is None else there[place.index]).clone().cpu()
        return found

    def gradients(self, values: Values, rows: Int[Tensor, " drawn"]) -> dict[str, Tensor]:
        """d(mean outcome of these sequences)/d(constant), of every member at once."""
        leaves = {name: each.detach().requires_grad_() for name, each in values.items()}
        totals = {name: torch.zeros_like(each) for name, each in leaves.items()}
        for several in rows.split(self._at_once):
            with torch.enable_grad():
                final = self._final(leaves, several)
                end = self._end(final, several)
            found = torch.autograd.grad(final, list(leaves.values()), end.gradient / len(rows))
            for name, each in zip(leaves, found, strict=True):
                totals[name] += each
        return totals

    def slope(self, values: Values, scales: Values) -> Float[Tensor, " member"]:
        """The norm of every member's gradient over all sequences, in outcome per spread; float64 on the CPU."""
        found = self.gradients(values, torch.arange(self.n_sequences))
        squares = torch.zeros(len(self.members), dtype=torch.float64, device=self.gpt.device)
        for name, each in found.items():
            squares += (each * scales[name]).double().square().flatten(1).sum(1)
        return squares.sqrt().cpu()

    @torch.no_grad()
    def losses(self, values: Values) -> Float[Tensor, " member"]:
        """Mean outcome over all sequences under each member; float64 on the CPU."""
        totals = torch.zeros(len(self.members), dtype=torch.float64)
        for several in torch.arange(self.n_sequences).split(self._at_once):
            value = self._end(self._final(values, several), several).value
            totals += value.cpu().unflatten(0, (len(self.members), len(several))).sum(1)
        return totals / self.n_sequences

    @property
    def _at_once(self) -> int:
        """How many sequences run under every member together."""
        return max(1, self.room.n_rows // len(self.members))

    def _final(self, values: Values, rows: Int[Tensor, " drawn"]) -> Float[Tensor, "row pos d_model"]:
        """The stream that leaves the last layer, for each member in turn."""
        edits = [(name, _constant(mask, values[name])) for name, mask in self.masks.items()]
        kept = self._kept(rows).repeated(len(self.members))  # before the edits are in force
        with self.gpt.hooks(fwd_hooks=edits):
            return resumed(self.gpt, kept)

    def _end(self, final: Float[Tensor, "row pos d_model"], rows: Int[Tensor, " drawn"]) -> AtTheEnd:
        return at_the_end(self.gpt, final, self.tokens[rows], self.outcome, n_rows=self.room.n_logits)

    def _kept(self, rows: Int[Tensor, " drawn"]) -> Kept:
        """What the intact run holds where the ablations begin."""
        if self._all_kept is None:
            return self._intact(self.tokens[rows])
        there = rows.to(self.gpt.device)
        z = None if self._all_kept.z is None else self._all_kept.z[there]
        return replace(self._all_kept, stream=self._all_kept.stream[there], z=z)

    @cached_property
    def _all_kept(self) -> Kept | None:
        """The same for all sequences, where that takes no more than a quarter of the memory."""
        config = self.gpt.config
        width = config.d_model + config.n_heads * config.head_width
        if self.tokens.numel() * width * max(4, self.gpt.dtype.itemsize) > self.memory // 4:
            return None
        parts = [self._intact(batch) for batch in self.tokens.split(self.room.n_rows)]
        z = [each.z for each in parts if each.z is not None]
        return replace(parts[0], stream=torch.cat([each.stream for each in parts]), z=torch.cat(z) if z else None)

    @torch.no_grad()
    def _intact(self, batch: Int[Tensor, "sequence pos"]) -> Kept:
        sites, stop = list(self.entry.sites), self.entry.layer + 1
        _, cache = self.gpt.run_with_cache(batch.to(self.gpt.device), sites, stop_at_layer=stop, return_type=None)
        return Kept.of(self.entry, cache)


@torch.no_grad()
def intact_loss(gpt: GPT, tokens: Int[Tensor, "sequence pos"], outcome: Outcome, *, memory: int) -> float:
    """Mean outcome of the model as it is."""
    room, total = _room(gpt, tokens.shape[1], Entry(layer=0, part=Part.Z), memory), 0.0
    for batch in tokens.split(room.n_rows):
        final = final_stream(gpt, batch.to(gpt.device), [])
        total += float(at_the_end(gpt, final, batch, outcome, n_rows=room.n_logits).value.sum())
    return total / len(tokens)


def _constant(mask: Bool[Tensor, "member component"], values: Tensor) -> HookFunction:
    """Every member's constants in its own rows, where it ablates something."""

    def edit(activation: Tensor, hook: Hook) -> Tensor:
        del hook
        by_member = activation.unflatten(0, (len(mask), -1))
        where = mask.view(*mask.shape, *(1,) * (activation.ndim - 3))[:, None, None]
        put = values[:, None, None].to(activation.dtype)
        return torch.where(where, put, by_member).flatten(0, 1)

    return edit


def _room(gpt: GPT, n_pos: int, entry: Entry, memory: int) -> GradientRoom:
    return GradientRoom.within(memory, gpt.config, dtype=gpt.dtype, n_pos=n_pos, first_layer=entry.layer)
