"""Going on from the middle of a run: what comes before an edit need not be computed again for every edit.

    final, kept = kept_at(gpt, tokens, [Entry(layer=1, part=Part.Z)])
    with gpt.hooks(fwd_hooks=edits_at_or_after_z_of_layer_1):
        changed = resumed(gpt, kept[0])

A run that is resumed at z takes the queries, keys, values and patterns of that layer for granted, at resid_mid its
attention too. It visits the hooks from there on; those before it are not reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from jaxtyping import Float, Int
from torch import Tensor

from model.errors import InputError
from model.sites import Site, Tap

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import ActivationCache

Stream = Float[Tensor, "batch pos d_model"]


class Part(StrEnum):
    """Where in a layer a run goes on."""

    Z = "z"
    """With what the heads hold before W_O."""

    MID = "resid_mid"
    """With the stream between attention and FFN."""


@dataclass(frozen=True, kw_only=True, order=True)
class Entry:
    """A place in the model from which runs go on."""

    layer: int
    part: Part

    @property
    def sites(self) -> tuple[Site, ...]:
        """What has to be kept of a run, to go on from here."""
        if self.part is Part.MID:
            return (Tap.RESID_MID.at(self.layer),)
        return (Tap.RESID_PRE.at(self.layer), Tap.Z.at(self.layer))


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """What was kept of a run at one entry."""

    entry: Entry
    stream: Stream
    """Entering the layer, or between its attention and its FFN."""
    z: Float[Tensor, "batch pos head d_head"] | None

    @classmethod
    def of(cls, entry: Entry, cache: ActivationCache) -> Kept:
        """Out of a cache that holds the entry's sites."""
        stream, *z = (cache[site] for site in entry.sites)
        return cls(entry=entry, stream=stream, z=z[0] if z else None)

    def repeated(self, n: int) -> Kept:
        """The same batch n times, one after another."""
        if n == 1:
            return self
        z = None if self.z is None else self.z.repeat(n, 1, 1, 1)
        return replace(self, stream=self.stream.repeat(n, 1, 1), z=z)


def kept_at(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], entries: Iterable[Entry]
) -> tuple[Stream, Mapping[Entry, Kept]]:
    """The stream that leaves the last layer, and what to keep for each entry, from one run of `tokens`."""
    entries = list(entries)
    last = Tap.RESID_POST.at(gpt.config.n_layers - 1)
    names = dict.fromkeys(site for entry in entries for site in entry.sites)
    _, cache = gpt.run_with_cache(tokens, [last, *names], return_type=None)
    return cache[last], {entry: Kept.of(entry, cache) for entry in entries}


def resumed(gpt: GPT, kept: Kept) -> Stream:
    """The stream that leaves the last layer, run on from what was kept, under the hooks in force here."""
    layer = kept.entry.layer
    if not 0 <= layer < gpt.config.n_layers:
        raise InputError(f"there is no layer {layer} to go on from; this model has {gpt.config.n_layers}.")
    run = gpt.new_pass(kept.stream)
    block = gpt.layers[layer]
    x = block.from_mid(kept.stream, run) if kept.z is None else block.from_z(kept.stream, kept.z, run)
    for later in gpt.layers[layer + 1 :]:
        x = later(x, run)
    return x
