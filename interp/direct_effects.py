"""Runs compared by direct effects: what each head and FFN adds to the next token's logit, with and without an ablation.

The directions are those of the intact run: the final norm's scale, and those of output norms, are held there. So what
changes in another run is a sum of changes, one for each component, and a term for the scales (`interp.self_repair`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.linear_norms import before_norm
from interp.places import Place, PlaceKind, head
from interp.repaired import PARTS, Component, Part
from model.config import OUTPUT_NORMS, FFNKind, GPTConfig
from model.sites import Site, Tap, sites

if TYPE_CHECKING:
    from interp.interventions import Edits
    from model.gpt import GPT
    from model.hooks import ActivationCache

Numbers = dict[str, Tensor]
"""Fields of `SelfRepair`, by name."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IntactRun:
    """A batch of the intact run, with the directions that what is written is read along."""

    gpt: GPT
    tokens: Int[Tensor, "batch pos"]
    cache: ActivationCache
    logit: Float[Tensor, "batch target"]

    towards: Float[Tensor, "batch target d_model"]
    """What a unit of the stream adds to the target's logit, less the mean's, behind the final norm."""

    direction: Float[Tensor, "batch target d_model"]
    """The same before the final norm, with its scale held."""

    per_unit: Sequence[Float[Tensor, "batch target head d_head"]]
    """The same for a unit of each head's z, layer by layer."""

    @classmethod
    def of(cls, gpt: GPT, tokens: Tensor, first_layers: Sequence[int]) -> IntactRun:
        """Run `tokens`, and keep the streams that enter `first_layers`, where ablations begin."""
        entered = [Tap.RESID_PRE.at(layer) for layer in first_layers]
        logits, cache = gpt.run_with_cache(tokens, [*entered, *_read(gpt.config)])
        matrix = gpt.unembed.weight.to(torch.promote_types(gpt.dtype, torch.float32))
        towards = matrix[tokens[:, 1:]] - matrix.mean(0)
        scale = None if gpt.ln_final is None else cache[Tap.LN_FINAL_SCALE.at()][:, :-1]
        direction = towards if gpt.ln_final is None or scale is None else before_norm(gpt.ln_final, scale, towards)
        per_unit = []
        for layer, block in enumerate(gpt.layers):
            written = direction
            if block.ln1_post is not None:
                written = before_norm(block.ln1_post, cache[Tap.LN1_POST_SCALE.at(layer)][:, :-1], direction)
            per_unit.append(torch.einsum("hem,bpm->bphe", block.attn.W_O.to(written.dtype), written))
        logit = _centred_logit(logits, tokens)
        return cls(
            gpt=gpt, tokens=tokens, cache=cache, logit=logit, towards=towards, direction=direction, per_unit=per_unit
        )

    def taken_apart(
        self, edits: Edits, start: int, ablated: Bool[Tensor, " component"], chosen: Bool[Tensor, "batch target"]
    ) -> Numbers:
        """What an ablation by `edits` from layer `start` on does; fp64 on the CPU."""
        with self.gpt.hooks(fwd_hooks=edits):
            stream = self.cache[Tap.RESID_PRE.at(start)]
            logits, run = self.gpt.run_with_cache(stream, _read(self.gpt.config, start), start_at_layer=start)
        changes = torch.stack([each.double().cpu() for each in self._changes(run, start)], dim=1)
        kinds = [each.part for each in components_of(self.gpt.config)]
        others = [torch.tensor([kind is part for kind in kinds]) & ~ablated for part in PARTS]
        by_part = torch.stack([changes[:, each].sum(1) for each in others], dim=1)
        by_part[:, PARTS.index(Part.FINAL_NORM)] = self._final_norm(run).double().cpu()
        weights = chosen.double() / chosen.sum(1, keepdim=True)
        return {
            "total": (_centred_logit(logits, self.tokens) - self.logit).double().cpu(),
            "direct": changes[:, ablated].sum(1),
            "clean_direct": self.direct[:, ablated].sum(1),
            "by_part": by_part,
            "by_component": (changes * weights[:, None]).sum(2),
        }

    @cached_property
    def direct(self) -> Float[Tensor, "batch component target"]:
        """Each component's direct effect in the intact run; fp64 on the CPU."""
        return torch.stack([each.double().cpu() for each in self._directs()], dim=1)

    def _directs(self) -> Iterator[Float[Tensor, "batch target"]]:
        """Each component's direct effect in the intact run."""
        for layer in range(self.gpt.config.n_layers):
            added = (self.cache[Tap.Z.at(layer)][:, :-1].to(self.direction.dtype) * self.per_unit[layer]).sum(-1)
            yield from added.unbind(-1)
            if self.gpt.layers[layer].mlp is not None:
                yield self._along(self.cache[Tap.MLP_OUT.at(layer)])
            if self.gpt.layers[layer].ln1_post is not None:
                yield torch.zeros_like(self.logit)

    def _changes(self, run: ActivationCache, start: int) -> Iterator[Float[Tensor, "batch target"]]:
        """How each component's direct effect changes, layer by layer; those below `start` are as they were."""
        none = torch.zeros_like(self.logit)
        for layer, block in enumerate(self.gpt.layers):
            same = layer < start
            z = none[..., None].expand(*none.shape, self.gpt.config.n_heads)
            if not same:
                z = (self._moved(run, Tap.Z.at(layer)) * self.per_unit[layer]).sum(-1)
            yield from z.unbind(-1)
            if block.mlp is not None:
                yield none if same else (self._moved(run, Tap.MLP_OUT.at(layer)) * self.direction).sum(-1)
            if block.ln1_post is not None:
                whole = none if same else (self._moved(run, Tap.ATTN_OUT.at(layer)) * self.direction).sum(-1)
                yield whole - z.sum(-1)

    def _final_norm(self, run: ActivationCache) -> Float[Tensor, "batch target"]:
        """What a changed scale does to all that leaves the last layer."""
        if self.gpt.ln_final is None:
            return torch.zeros_like(self.logit)
        site = Tap.LN_FINAL_SCALE.at()
        shrinks = (self.cache[site] / run[site])[:, :-1, 0] - 1
        return self._along(run[Tap.RESID_POST.at(self.gpt.config.n_layers - 1)]) * shrinks

    def _moved(self, run: ActivationCache, site: Site) -> Tensor:
        return (run[site] - self.cache[site])[:, :-1].to(self.direction.dtype)

    def _along(self, written: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch target"]:
        return (written[:, :-1].to(self.direction.dtype) * self.direction).sum(-1)


def components_of(config: GPTConfig) -> Iterator[Component]:
    """Everything whose direct effect can change, in the order of `IntactRun.direct`."""
    for layer in range(config.n_layers):
        for index in range(config.n_heads):
            yield Component(label=head(layer, index).label, layer=layer, part=Part.HEADS)
        if config.ffn is not FFNKind.NONE:
            yield Component(label=f"L{layer}.ffn", layer=layer, part=Part.FFNS)
        if config.norm in OUTPUT_NORMS:
            yield Component(label=f"L{layer}.ln1_post", layer=layer, part=Part.OUTPUT_NORMS)


def covered(places: Sequence[Place], components: Sequence[Component]) -> Bool[Tensor, " component"]:
    """The components that are replaced; a whole attention sublayer takes its output norm along."""
    layers = {place.layer for place in places if place.kind is PlaceKind.ATTENTION}
    labels = {place.label for place in places}
    return torch.tensor(
        [
            each.label in labels or (each.layer in layers and each.part in (Part.HEADS, Part.OUTPUT_NORMS))
            for each in components
        ]
    )


def _read(config: GPTConfig, start: int = 0) -> list[Site]:
    """The places that are compared: what is written, and the scales it is read through."""
    taps = {Tap.Z, Tap.MLP_OUT, Tap.LN_FINAL_SCALE}
    taps |= {Tap.ATTN_OUT, Tap.LN1_POST_SCALE} if config.norm in OUTPUT_NORMS else set()
    found = [
        site for site in sites(config).values() if site.tap in taps and (site.layer is None or site.layer >= start)
    ]
    return [*found, Tap.RESID_POST.at(config.n_layers - 1)]


def _centred_logit(logits: Float[Tensor, "batch pos d_vocab"], tokens: Tensor) -> Float[Tensor, "batch target"]:
    """The logit of each next token, less the vocabulary's mean."""
    logits = logits[:, :-1].to(torch.promote_types(logits.dtype, torch.float32))
    return logits.gather(2, tokens[:, 1:, None])[..., 0] - logits.mean(-1)
