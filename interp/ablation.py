"""Ablation: put nothing, or a mean, in the place of heads, memories or whole sublayers, and run the rest of the model.

A head is replaced at z, before W_O, and a memory at its coefficient, before W_out. So the output biases stay, every
norm placement runs on as it is, and removing all heads of a layer leaves exactly b_O. Means are those of stated tokens:
a replacement never depends on the sequence under study, and so cannot carry its future to its past (a mean over the
positions of the same sequence would). How far each intervention overstates a component's importance: Li and Janson
2024, "Optimal ablation for interpretability" (2409.09951).

Replacements go by absolute position, so generation gives the same logits with and without the key-value cache. Cost:
one forward pass for each ablation; `interp.harm` shares the layers below between many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.places import Intervention, Place, resolve_places
from interp.requirements import require_deterministic
from model.errors import InputError
from model.hooks import Hook, HookFunction
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

Edits = list[tuple[str, HookFunction]]
"""Hook names with the function for each, as `gpt.hooks(fwd_hooks=...)` takes them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Means:
    """Mean activations of stated tokens, by position."""

    source: str
    """What the tokens were, in words: printed beside every number made with these means."""

    n_sequences: int
    """How many sequences were averaged."""

    by_site: Mapping[str, Float[Tensor, "pos ..."]] = field(repr=False)
    """Hook name -> mean over the sequences: [pos, head, d_head] at z, [pos, d_ff] at the FFN's coefficients."""

    def overall(self, site: str) -> Float[Tensor, "*component"]:
        """The mean over sequences and positions."""
        return self.at(site).mean(dim=0)

    def at(self, site: str) -> Float[Tensor, "pos ..."]:
        """The mean over sequences at each position; InputError when this site was not averaged."""
        if site not in self.by_site:
            raise InputError(
                f"no mean of {site} was taken (only of {', '.join(self.by_site)}). Average every place you ablate."
            )
        return self.by_site[site]


def site_of(place: Place) -> str:
    """The hook where a place is replaced: z for attention, the memories' coefficients for the FFN."""
    tap = Tap.Z if place.in_attention else Tap.MLP_POST
    return str(tap.at(place.layer))


def sites_of(gpt: GPT) -> list[str]:
    """Every hook where something can be replaced in this model, in forward order."""
    endings = ("attn.hook_z", "mlp.hook_post")
    return [name for name in gpt.named_sites() if name.endswith(endings)]


@torch.no_grad()
def mean_activations(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    *,
    source: str,
    places: Sequence[Place] | None = None,
    batch_size: int = 32,
) -> Means:
    """Average what `places` (default: every head and memory) hold over the sequences of `tokens`, at each position.

    `source` says in words what the tokens are. Sums run in fp64. Refuses active dropout.
    """
    require_deterministic(gpt)
    if tokens.ndim != 2 or not len(tokens):
        raise InputError(f"means need tokens [batch, pos] with at least one sequence; got shape {tuple(tokens.shape)}.")
    sites = sites_of(gpt) if places is None else sorted({site_of(place) for place in places})
    sums: dict[str, Tensor] = {}
    for batch in tokens.split(batch_size):
        _, cache = gpt.run_with_cache(batch.to(gpt.device), names_filter=sites, return_type=None)
        for site in sites:
            total = cache[site].double().sum(dim=0)
            sums[site] = sums[site] + total if site in sums else total
    means = {site: (total / len(tokens)).to(gpt.dtype) for site, total in sums.items()}
    return Means(source=source, n_sequences=len(tokens), by_site=means)


def hooks_for(
    gpt: GPT,
    places: str | Sequence[Place],
    means: Means | None = None,
    intervention: Intervention = Intervention.MEAN,
) -> Edits:
    """Hooks that replace `places`: one for each site they touch, for `gpt.hooks` or `gpt.run_with_hooks`.

    A place with an intervention of its own keeps it; the others take `intervention`. Both means need `means`.
    """
    by_site: dict[str, list[Place]] = {}
    for place in resolve_places(places, gpt.config, intervention):
        by_site.setdefault(site_of(place), []).append(place)
    return [(site, _replacing(site, found, means)) for site, found in by_site.items()]


@contextmanager
def ablated(
    gpt: GPT,
    places: str | Sequence[Place],
    means: Means | None = None,
    intervention: Intervention = Intervention.MEAN,
) -> Iterator[GPT]:
    """The model with `places` replaced until the `with` ends, also for `gpt.generate`.

    with ablated(gpt, "L1H3:zero"):
        logits = gpt(tokens)
    """
    with gpt.hooks(fwd_hooks=hooks_for(gpt, places, means, intervention)):
        yield gpt


Positions = Int[Tensor, "batch pos"]
_Slot = tuple[int | slice, Callable[[Positions], Tensor | float]]


def _replacing(site: str, places: Sequence[Place], means: Means | None) -> HookFunction:
    """One hook function that fills each place's slot along the component axis: heads of z, memories of the FFN."""
    slots: list[_Slot] = [_slot(site, place, means) for place in places]

    def replace_places(activation: Tensor, hook: Hook) -> Tensor:
        for component, value_at in slots:  # the activation is the hook's own copy
            activation[:, :, component] = value_at(hook.positions)
        return activation

    return replace_places


def _slot(site: str, place: Place, means: Means | None) -> _Slot:
    component = slice(None) if place.index is None else place.index
    if place.intervention is Intervention.ZERO:
        return component, lambda positions: 0.0
    if means is None:
        raise InputError(
            f"{place} needs means. Pass means=mean_activations(gpt, tokens, source=...), or use {place.label}:zero."
        )
    if place.intervention is Intervention.MEAN:
        value = means.overall(site)[component]
        return component, lambda positions: value
    by_position = means.at(site)[:, component]
    return component, lambda positions: by_position[_covered(positions, len(by_position), place)]


def _covered(positions: Positions, n_positions: int, place: Place) -> Positions:
    """The positions as indices into the means; padding (-1), which nothing reads, takes any."""
    last = int(positions.max())
    if last >= n_positions:
        raise InputError(
            f"{place} was asked at position {last}, but its means cover positions 0 to {n_positions - 1}. "
            f"Take the means from longer sequences, or use {place.label}:mean."
        )
    return positions.clamp(min=0)
