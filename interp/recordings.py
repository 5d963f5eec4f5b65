"""What runs held at named places, by absolute position: in one run (`record`), or averaged over stated tokens.

Along every axis that goes by position (pos; query and key for scores and patterns) index p is absolute position p of
the sequence, wherever padding stood in the run. So a value finds its place again in another batch, with other padding,
and while generating. Everything asked for is held at once: name the places that are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.requirements import require_deterministic
from interp.site_names import Where, as_site, names_in
from model.errors import InputError
from model.hooks import ActivationCache
from model.sites import Site, Tap, site_named
from model.sites import sites as sites_of_model

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """What each sequence of one run held at some places."""

    source: str
    """What was run, in words."""

    n_positions: Int[Tensor, " batch"]
    """How many tokens each sequence has: its positions 0 to that minus one are recorded, what lies beyond is not."""

    by_site: Mapping[str, Float[Tensor, "batch ..."]] = field(repr=False)
    """Hook name -> what it held, the position axes by absolute position."""

    def at(self, site: Where) -> Float[Tensor, "batch ..."]:
        """What `site` held; InputError when it was not recorded."""
        return _found(self.by_site, site, "recording of", "Record every place you patch.")

    def sequences(self, rows: Sequence[int]) -> Recording:
        """These sequences only, in this order; a recording of one serves every batch."""
        kept = list(rows)
        by_site = {name: held[kept] for name, held in self.by_site.items()}
        return Recording(source=self.source, n_positions=self.n_positions[kept], by_site=by_site)


@dataclass(frozen=True, kw_only=True, eq=False)
class Means:
    """Mean activations of stated tokens, by position."""

    source: str
    """What the tokens were, in words: printed beside every number made with these means."""

    n_sequences: int
    """How many sequences were averaged."""

    n_at: Int[Tensor, " pos"]
    """How many of them reach each position."""

    by_site: Mapping[str, Float[Tensor, "*axes"]] = field(repr=False)
    """Hook name -> mean over the sequences, by position: [pos, head, d_head] at z, [head, query, key] at patterns."""

    def overall(self, site: Where) -> Float[Tensor, "*component"]:
        """The mean over sequences and positions, every token counting once."""
        if len(as_site(site).tap.position_axes) > 1:
            raise InputError(
                f"{as_site(site)} has no mean over positions: a query would look at keys after it. "
                "Use the mean per position."
            )
        by_position = self.at(site)
        weights = self.n_at.double() / self.n_at.sum()
        return torch.tensordot(weights, by_position.double(), dims=1).to(by_position.dtype)

    def at(self, site: Where) -> Float[Tensor, "*axes"]:
        """The mean over sequences at each position; InputError when this site was not averaged."""
        return _found(self.by_site, site, "mean of", "Average every place you ablate.")


@torch.no_grad()
def record(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    sites: Where | Sequence[Where],
    *,
    source: str,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
) -> Recording:
    """What `sites` hold when `tokens` run, under whatever hooks are in force here; refuses active dropout."""
    require_deterministic(gpt)
    known = sites_of_model(gpt.config)
    names = names_in(sites, known, gpt.config.n_layers)
    stop = _end([known[name] for name in names])
    _, cache = gpt.run_with_cache(tokens, names, stop_at_layer=stop, attention_mask=attention_mask, return_type=None)
    if attention_mask is None or bool(attention_mask.all()):
        n_positions = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        return Recording(source=source, n_positions=n_positions, by_site={name: cache[name] for name in names})
    mask = attention_mask.bool()
    real_first = (~mask).long().argsort(dim=1, stable=True)[:, : int(mask.sum(1).max())]
    by_site = {name: _aligned(cache[name], known[name], real_first) for name in names}
    return Recording(source=source, n_positions=mask.sum(1), by_site=by_site)


@torch.no_grad()
def mean_held(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    sites: Where | Sequence[Where],
    *,
    source: str,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
    batch_size: int = 32,
) -> Means:
    """Average what `sites` hold over the sequences of `tokens`, at each position; padding counts nowhere.

    `source` says in words what the tokens are. Sums run in fp64. Refuses active dropout.
    """
    if tokens.ndim != 2 or not len(tokens):
        raise InputError(f"means need tokens [batch, pos] with at least one sequence; got shape {tuple(tokens.shape)}.")
    mask = torch.ones_like(tokens, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    if mask.shape != tokens.shape:
        raise InputError(f"attention_mask has shape {tuple(mask.shape)}; it must cover {tuple(tokens.shape)}.")
    sums: dict[str, Tensor] = {}
    formats: dict[str, torch.dtype] = {}
    n_at = torch.zeros(int(mask.sum(1).max()), dtype=torch.long, device=gpt.device)
    for batch, real in zip(tokens.split(batch_size), mask.split(batch_size), strict=True):
        run = record(gpt, batch.to(gpt.device), sites, source=source, attention_mask=real.to(gpt.device))
        reached = torch.arange(len(n_at), device=gpt.device) < run.n_positions[:, None]
        n_at += reached.sum(0)
        for name, held in run.by_site.items():
            total = _summed(held, site_named(name), reached)
            sums[name] = sums[name] + total if name in sums else total
            formats[name] = held.dtype
    means = {name: (total / _count(n_at, site_named(name))).to(formats[name]) for name, total in sums.items()}
    return Means(source=source, n_sequences=len(tokens), n_at=n_at, by_site=means)


def past_means(recording: Recording) -> Recording:
    """At each position of each sequence, the mean over its positions from 0 to that one: never of a later one.

    Sums run in fp64. Places that go by query and key have no such mean.
    """
    by_site = {}
    for name, held in recording.by_site.items():
        if len(site_named(name).tap.position_axes) > 1:
            raise InputError(f"{name} has no mean over its past: it goes by query and key.")
        counts = torch.arange(1, held.shape[1] + 1, device=held.device).view(1, -1, *(1,) * (held.ndim - 2))
        by_site[name] = (held.double().cumsum(dim=1) / counts).to(held.dtype)
    return Recording(source=recording.source, n_positions=recording.n_positions, by_site=by_site)


def as_recording(held: Recording | ActivationCache, site: Site) -> Recording:
    """A recording as it is, or what a cache holds at `site`, if its positions are those of every sequence from 0 on."""
    if isinstance(held, Recording):
        return held
    if not isinstance(held, ActivationCache):
        what = "a tensor does not say whose positions it holds" if isinstance(held, Tensor) else f"not {held!r:.60}"
        raise InputError(
            f"{site} is patched with a recording or a cache; {what}. Take record(gpt, tokens, site, source=...)."
        )
    values = held[site]
    if not held.whole or values.ndim != len(site.tap.axes):
        raise InputError(
            f"the cache of {site} was cut or padded (pos_slice, remove_batch_dim, attention_mask), so its positions "
            "are not known; use record(gpt, tokens, site, source=..., attention_mask=...)."
        )
    n_positions = torch.full((len(values),), values.shape[site.tap.position_axis], device=values.device)
    return Recording(source="a cache", n_positions=n_positions, by_site={str(site): values})


def _end(wanted: Sequence[Site]) -> int | None:
    """The layer before which a run may stop that reads these places; None where it has to go on to the end."""
    layers = [0 if site.tap in (Tap.EMBED, Tap.POS_EMBED) else site.layer for site in wanted]
    known = [layer for layer in layers if layer is not None]
    return 1 + max(known) if len(known) == len(layers) else None


def _found(by_site: Mapping[str, Tensor], site: Where, kind: str, advice: str) -> Tensor:
    name = str(as_site(site))
    if name not in by_site:
        raise InputError(f"no {kind} {name} was taken (only of {', '.join(by_site)}). {advice}")
    return by_site[name]


def _aligned(held: Tensor, site: Site, real_first: Int[Tensor, "batch real_pos"]) -> Tensor:
    """Without padding: index p of each position axis is the sequence's token p."""
    for axis in site.tap.position_axes:
        held = held.take_along_dim(_along(real_first, axis, held.ndim), dim=axis)
    return held


def _summed(held: Tensor, site: Site, reached: Bool[Tensor, "batch pos"]) -> Tensor:
    """The sum over sequences in fp64; what a sequence does not reach adds nothing."""
    for axis in site.tap.position_axes:
        within = _along(reached[:, : held.shape[axis]], axis, held.ndim)
        held = held.where(within, 0)
    total = held.double().sum(0)
    for axis in site.tap.position_axes:
        missing = reached.shape[1] - total.shape[axis - 1]
        shape = (*total.shape[: axis - 1], missing, *total.shape[axis:])
        total = torch.cat((total, total.new_zeros(shape)), dim=axis - 1)
    return total


def _count(n_at: Int[Tensor, " pos"], site: Site) -> Int[Tensor, "*axes"]:
    """How many sequences reach each place of a sum over them, to divide it by."""
    if len(site.tap.position_axes) > 1:
        return torch.minimum(n_at[:, None], n_at[None, :])
    return n_at.view(-1, *(1,) * (len(site.tap.axes) - 2))


def _along(values: Tensor, axis: int, ndim: int) -> Tensor:
    """Numbers [batch, pos] shaped to stand along axis 0 and `axis` of a tensor with `ndim` axes."""
    shape = [1] * ndim
    shape[0], shape[axis] = values.shape
    return values.view(shape)
