"""Ablation: put nothing, or a mean, in the place of heads, memories or whole sublayers, and run the rest of the model.

A head is replaced at z, before W_O, and a memory at its coefficient, before W_out. So the output biases stay, every
norm placement runs on as it is, and removing all heads of a layer leaves exactly b_O. Means are those of stated tokens:
a replacement never depends on the sequence under study, and so cannot carry its future to its past (a mean over the
positions of the same sequence would). How far each intervention overstates a component's importance: Li and Janson
2024, "Optimal ablation for interpretability" (2409.09951).

The places of the grammar (`interp.places`) become replacements of `interp.interventions`, which see to positions,
padding and the key-value cache. Cost: one forward pass for each ablation; `interp.harm` shares the layers below between
many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxtyping import Bool, Int
from torch import Tensor

from interp.interventions import Edits, Replacement, hooks_of, mean, mean_per_position, zero
from interp.places import Intervention, Place, Places, parse_intervention, resolve_places
from interp.recordings import Means, mean_held
from interp.site_names import Where
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT


def site_of(place: Place) -> str:
    """The hook where a place is replaced: z for attention, the memories' coefficients for the FFN."""
    tap = Tap.Z if place.in_attention else Tap.MLP_POST
    return str(tap.at(place.layer))


def sites_of(gpt: GPT) -> list[str]:
    """Every hook where something can be replaced in this model, in forward order."""
    endings = ("attn.hook_z", "mlp.hook_post")
    return [name for name in gpt.named_sites() if name.endswith(endings)]


def mean_activations(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    *,
    source: str,
    places: Sequence[Place] | None = None,
    sites: Sequence[Where] = (),
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
    batch_size: int = 32,
) -> Means:
    """Average what `places` and `sites` hold over the sequences of `tokens`, at each position; padding counts nowhere.

    Where neither is given, every head and memory. `source` says in words what the tokens are. Refuses active dropout.
    """
    wanted = [*{site_of(place): None for place in places or ()}, *sites] or sites_of(gpt)
    return mean_held(gpt, tokens, wanted, source=source, attention_mask=attention_mask, batch_size=batch_size)


def hooks_for(
    gpt: GPT,
    places: Places,
    means: Means | None = None,
    intervention: Intervention | str = Intervention.MEAN,
) -> Edits:
    """Hooks that replace `places`: one for each site they touch, for `gpt.hooks` or `gpt.run_with_hooks`.

    A place with an intervention of its own keeps it; the others take `intervention`. Both means need `means`.
    """
    alike: dict[tuple[str, Intervention], list[Place]] = {}
    fallback = parse_intervention(intervention)
    for place in resolve_places(places, gpt.config, fallback):
        alike.setdefault((site_of(place), place.intervention or fallback), []).append(place)
    return hooks_of(gpt, [_replacement(site, kind, found, means) for (site, kind), found in alike.items()])


@contextmanager
def ablated(
    gpt: GPT,
    places: Places,
    means: Means | None = None,
    intervention: Intervention | str = Intervention.MEAN,
) -> Iterator[GPT]:
    """The model with `places` replaced until the `with` ends, also for `gpt.generate`.

    with ablated(gpt, "L1H3:zero"):
        logits = gpt(tokens)
    """
    with gpt.hooks(fwd_hooks=hooks_for(gpt, places, means, intervention)):
        yield gpt


def _replacement(site: str, intervention: Intervention, places: Sequence[Place], means: Means | None) -> Replacement:
    """One replacement for all places of a site that are replaced alike."""
    first = places[0]
    components = None if first.index is None else [place.index for place in places if place.index is not None]
    if intervention is Intervention.ZERO:
        return zero(site, components=components)
    if means is None:
        raise InputError(
            f"{first} needs means. Pass means=mean_activations(gpt, tokens, source=...), or use {first.label}:zero."
        )
    made = mean if intervention is Intervention.MEAN else mean_per_position
    return replace(made(site, means, components=components), label=str(first))
