"""The features of a probe: what a place held at chosen positions, streamed with bounded memory.

A place is named by its hook (`blocks.0.hook_resid_post`), by its short name for every layer (`resid_post`, `z`), or in
the grammar of `interp.places`: a head (`L0H3`: its z), a memory (`L0M37`: its coefficient) or a sublayer (`L0.attn`,
`L0.ffn`: what it adds to the stream). Axes beyond batch and position are laid out as one vector. Only chosen positions
are kept, and of many places only as many at a time as fit; more places take more forward passes, not more memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.places import Place, PlaceKind, parse_place
from interp.requirements import require_deterministic
from interp.resolved_places import resolve_places
from model.errors import InputError, UnknownSiteError, closest
from model.sites import Site, Tap, site_named, sites

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT

EMBED = "embed"
"""The short name of the embedding: what the token alone tells."""
_KEPT = 64_000_000
"""Largest number of features kept at once, 256 MB."""
_PASSED = 16_000_000
"""Largest number of activations that one batch caches."""


@dataclass(frozen=True, slots=True)
class ProbeSite:
    """A place to probe: a hook, or one head or memory of it."""

    site: Site
    index: int | None = None
    """Which head or memory; None for all that the hook holds."""

    @property
    def label(self) -> str:
        """Its name in tables and figures: `embed`, `resid_post 0`, `z 1`, `L1H3`, `L1M37`.

        >>> ProbeSite(Tap.RESID_POST.at(0)).label, ProbeSite(Tap.Z.at(1), 3).label
        ('resid_post 0', 'L1H3')
        """
        if self.index is not None:
            return f"L{self.site.layer}{'M' if self.site.tap is Tap.MLP_POST else 'H'}{self.index}"
        short = _short(self.site.tap)
        return short if self.site.layer is None else f"{short} {self.site.layer}"

    def of(self, activation: Float[Tensor, " sample *axes"]) -> Float[Tensor, "sample feature"]:
        """The features of samples, from the hook's activation at them."""
        kept = activation if self.index is None else activation[:, self.index, None]
        return kept.flatten(1).float()


def probe_sites(config: GPTConfig, wanted: str | Sequence[str]) -> tuple[ProbeSite, ...]:
    """The places meant by one name or several, in forward order; the embedding is always the first of them."""
    known = sites(config)
    order = list(known)
    names = [wanted] if isinstance(wanted, str) else wanted
    found = {ProbeSite(Tap.EMBED.at()), *(place for name in names for place in _named(name, known, config))}
    return tuple(
        sorted(found, key=lambda place: (order.index(str(place.site)), -1 if place.index is None else place.index))
    )


@torch.no_grad()
def stream_features(
    gpt: GPT,
    tokens: Int[Tensor, "window pos"],
    places: Int[Tensor, "sample 2"],
    wanted: Sequence[ProbeSite],
    *,
    counted: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[ProbeSite, Float[Tensor, "sample feature"]]]:
    """Each place with its features, in fp32 on the CPU.

    Args:
        gpt: a model without active dropout.
        tokens: rows of one length.
        places: window and position of every sample, by rising window.
        wanted: the places.
        counted: called with (sites done, sites) before each pass.
    """
    require_deterministic(gpt)
    widths = _widths(gpt, wanted)
    done = 0
    for group in _groups(wanted, widths, max(1, _KEPT // max(1, len(places)))):
        if counted is not None:
            counted(done, len(wanted))
        yield from _read(gpt, tokens, places, group, widths).items()
        done += len(group)


def _read(
    gpt: GPT, tokens: Tensor, places: Tensor, group: Sequence[ProbeSite], widths: dict[ProbeSite, int]
) -> dict[ProbeSite, Tensor]:
    names = list(dict.fromkeys(str(place.site) for place in group))
    layers = [place.site.layer for place in group]
    inside = [layer for layer in layers if layer is not None]
    after = any(place.site.layer is None and place.site.tap not in (Tap.EMBED, Tap.POS_EMBED) for place in group)
    size = max(1, min(64, _PASSED // (tokens.shape[1] * sum(widths[place] for place in group))))
    parts: dict[ProbeSite, list[Tensor]] = {place: [] for place in group}
    for start in range(0, len(tokens), size):
        here = places[(places[:, 0] >= start) & (places[:, 0] < start + size)]
        if not len(here):
            continue
        batch = tokens[start : start + size].to(gpt.device)
        stop = None if after else max(inside, default=0) + 1
        _, cache = gpt.run_with_cache(batch, names, return_type=None, stop_at_layer=stop)
        for place in group:
            at = cache[str(place.site)][here[:, 0] - start, here[:, 1]]
            parts[place].append(place.of(at).cpu())
    return {place: torch.cat(rows) for place, rows in parts.items()}


def _groups(wanted: Sequence[ProbeSite], widths: dict[ProbeSite, int], room: int) -> Iterator[list[ProbeSite]]:
    """The places in order, as many at a time as have no more than `room` features together; at least one."""
    group: list[ProbeSite] = []
    for place in wanted:
        if group and sum(widths[each] for each in group) + widths[place] > room:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _widths(gpt: GPT, wanted: Sequence[ProbeSite]) -> dict[ProbeSite, int]:
    """How many features each place has: seen in a pass over one token."""
    token = torch.zeros(1, 1, dtype=torch.int64, device=gpt.device)
    names = list(dict.fromkeys(str(place.site) for place in wanted))
    _, cache = gpt.run_with_cache(token, names, return_type=None)
    return {place: math.prod(place.of(cache[str(place.site)][0]).shape[1:]) for place in wanted}


def _named(name: str, known: dict[str, Site], config: GPTConfig) -> list[ProbeSite]:
    """What one entry means: a hook, a short name in every layer that has it, or a place of the model."""
    if name in known:
        return [_readable(known[name])]
    short = [site for site in known.values() if _short(site.tap) == name]
    if short:
        return [_readable(site) for site in short]
    if _is_place(name):
        return [_of_place(place) for place in resolve_places(name, config)]
    raise UnknownSiteError(
        f'This model has nothing called "{name}" to probe.{closest(name, [*known, *map(_short, Tap)])} Give a hook '
        "name (blocks.0.hook_resid_post), a short name for all layers (resid_post, z), or a place (L0H3, L0.ffn)."
    )


def _is_place(name: str) -> bool:
    try:
        parse_place(name)
    except InputError:
        return False
    return True


def _of_place(place: Place) -> ProbeSite:
    taps = {
        PlaceKind.HEAD: Tap.Z,
        PlaceKind.MEMORY: Tap.MLP_POST,
        PlaceKind.ATTENTION: Tap.ATTN_OUT,
        PlaceKind.FFN: Tap.MLP_OUT,
    }
    return ProbeSite(taps[place.kind].at(place.layer), place.index)


def _readable(site: Site) -> ProbeSite:
    if site.tap.axes[:2] != ("batch", "pos"):
        raise UnknownSiteError(
            f"{site} goes by {', '.join(site.tap.axes)}, and a probe reads one vector per position; take z or "
            "attn_out of that layer instead."
        )
    return ProbeSite(site_named(site))


def _short(tap: Tap) -> str:
    """`resid_post`; norms keep their own name, since each has a scale and an output: `ln1.normalized`."""
    *_, norm, hook = ("", *tap.template.split("."))
    short = hook.removeprefix("hook_")
    return f"{norm}.{short}" if norm.startswith("ln") else short
