"""Activation patching: what happens when a place holds what it held in another run (Zhang and Nanda 2024).

Two prompts of one shape: *clean*, on which the model does something, and *corrupted*, on which the same is impossible.

    denoising   a clean activation in the corrupted run: does it suffice to bring the behaviour back?
    noising     a corrupted activation in the clean run: is it needed?

The two are no mirror images: of two heads that do the same thing either suffices and neither is needed. Effects are
per sequence, and normalised as

    (patched - corrupted) / (clean - corrupted)        1: as in the clean run, 0: as in the corrupted one

Corrupt by replacing tokens with others of their kind (`redrawn_first_copy` does it for repeated
tokens), not by noise: noise breaks what the model does inside, and then measures that.

Cost: two forward passes, and for each cell the layers from its own on. Both runs of a difference take the same
attention path. What it does not show: by which way a place acts (`interp.path_patching`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.harm import Counted
from interp.interventions import hooks_of
from interp.metrics import Logits, Metric, Sequences, on_cpu, split_rows
from interp.outcomes import fitting_batch
from interp.places import head
from interp.replacements import patch
from interp.requirements import require_deterministic
from interp.stats import Intervals, bootstrap_ratios
from interp.stimuli import Ids, copy_start, pool_of
from model.config import GPTConfig
from model.errors import InputError, UnknownSiteError
from model.settings import as_enum
from model.sites import Tap, sites

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import ActivationCache

Others = Int[Tensor, "other_sequence other_pos"]
"""What should have the same shape; said in a sentence where it has not."""

_SQUARE = (Tap.ATTN_SCORES, Tap.PATTERN)


class Direction(StrEnum):
    """Which run is changed, and with what."""

    NOISING = "noising"
    """Corrupted activations in the clean run: what is needed."""

    DENOISING = "denoising"
    """Clean activations in the corrupted run: what suffices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One thing that is patched."""

    tap: Tap
    layer: int | None
    component: int | None
    """Which head, key-value head or memory; None: all together."""
    positions: tuple[int, ...] | None
    """Absolute positions (of queries, for scores and patterns); None: all together."""

    @property
    def label(self) -> str:
        """The cell in words, such as `L1H2 hook_z` or `blocks.0.hook_resid_pre at 3`."""
        name = str(self.tap.at(self.layer))
        if self.component is not None and self.layer is not None:
            axis = self.tap.axes[self.tap.component_axis or 0]
            short = name.rpartition(".")[2]
            place = (
                head(self.layer, self.component).label if axis == "head" else f"L{self.layer} {axis} {self.component}"
            )
            name = f"{place} {short}"
        return name if self.positions is None else f"{name} at {', '.join(map(str, self.positions))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchGrid:
    """Cells to patch one by one: layers by components by groups of positions."""

    tap: Tap
    layers: tuple[int | None, ...]
    components: tuple[int | None, ...]
    position_groups: tuple[tuple[int, ...] | None, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many layers, components and groups of positions; 1 where they are patched together."""
        return len(self.layers), len(self.components), len(self.position_groups)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[Cell]:
        """The cells, layer by layer."""
        for layer, component, positions in product(self.layers, self.components, self.position_groups):
            yield Cell(tap=self.tap, layer=layer, component=component, positions=positions)


def patch_grid(
    config: GPTConfig,
    tap: Tap,
    *,
    layers: Sequence[int] | None = None,
    each_component: bool = True,
    positions: Sequence[int | Sequence[int]] | None = None,
) -> PatchGrid:
    """Every place of one kind, in all `layers` or in those named.

    Args:
        config: of the model to patch.
        tap: the kind of place: Tap.Z for heads, Tap.RESID_PRE, Tap.ATTN_OUT, Tap.MLP_OUT, Tap.PATTERN, ...
        layers: which layers; None: all.
        each_component: whether heads (or memories) are patched one by one, where the place has them.
        positions: patched one by one; an element that is itself a list is patched together. None: all at once.
    """
    if not any(site.tap is tap for site in sites(config).values()):
        raise UnknownSiteError(f"this model has no place of the kind Tap.{tap.name}; docs/sites.md lists those it has.")
    if layers is not None and not tap.per_layer:
        raise InputError(f"Tap.{tap.name} is in no layer; leave layers out.")
    chosen = tuple(range(config.n_layers) if layers is None else layers) if tap.per_layer else (None,)
    if not chosen or any(layer is not None and not 0 <= layer < config.n_layers for layer in chosen):
        raise InputError(f"layers={layers} are none of this model's layers; choose from 0 to {config.n_layers - 1}.")
    sizes = {"head": config.n_heads, "kv_head": config.kv_heads, "memory": config.ffn_width}
    axis = None if tap.component_axis is None else tap.axes[tap.component_axis]
    components = (None,) if axis is None or not each_component else tuple(range(sizes[axis]))
    groups = None if positions is None else tuple((at,) if isinstance(at, int) else tuple(at) for at in positions)
    if groups is not None and not all((groups, *groups)):
        raise InputError("positions name no position, or hold a group of none; give some, or None for all at once.")
    return PatchGrid(
        tap=tap, layers=chosen, components=components, position_groups=(None,) if groups is None else groups
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Patched:
    """What patching each cell of a grid did, sequence by sequence; float64 on the CPU, in units of the metric."""

    grid: PatchGrid
    direction: Direction

    clean: Float[Tensor, " sequence"]
    """The metric of the clean run."""

    corrupted: Float[Tensor, " sequence"]
    """The metric of the corrupted run."""

    patched: Float[Tensor, "sequence layer component group"]
    """The metric of each patched run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", as_enum(Direction, self.direction, "direction"))

    @property
    def effect(self) -> Float[Tensor, "sequence layer component group"]:
        """What each patch changes: patched minus the run that was patched."""
        base = self.corrupted if self.direction is Direction.DENOISING else self.clean
        return self.patched - base[:, None, None, None]

    def normalised(self, *, seed: int = 0) -> Intervals:
        """(patched - corrupted) / (clean - corrupted), [layer, component, group]: 1 as clean, 0 as corrupted.

        A ratio of means over sequences, as those without a gap would make ratios of single sequences infinite; NaN
        where there is no gap at all.
        """
        moved = self.patched - self.corrupted[:, None, None, None]
        gap = (self.clean - self.corrupted)[:, None, None, None].expand_as(moved)
        return bootstrap_ratios(moved, gap, seed=seed)


@torch.no_grad()
def activation_patching(
    gpt: GPT,
    clean: Sequences,
    corrupted: Others,
    grid: PatchGrid,
    metric: Metric,
    *,
    direction: Direction | str = Direction.NOISING,
    batch_size: int | None = None,
    counted: Counted | None = None,
) -> Patched:
    """Patch every cell of `grid`, one after the other, on every pair of prompts.

    Args:
        gpt: the model, its dropout off.
        clean: prompts on which it does something, of one length, without padding.
        corrupted: one for each of them, of the same shape.
        grid: what is patched (`patch_grid`).
        metric: what is measured (`interp.metrics`).
        direction: noising, or denoising.
        batch_size: pairs at a time.
        counted: told of every run.

    Raises:
        InputError: prompts of unequal shape; dropout is on; positions that the prompts do not have.
    """
    direction = as_enum(Direction, direction, "direction")
    require_pairs(gpt, clean, corrupted)
    require_deterministic(gpt)
    _require_within(grid, clean.shape[1])
    noising, kept = direction is Direction.NOISING, on_cpu(metric)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    batches = split_rows(len(clean), batch_size or fitting_batch(gpt, clean.shape[1]))
    with gpt.explicit_attention() if grid.tap in _SQUARE else nullcontext():
        for rows in batches:
            runs = [_Run.of(gpt, tokens[rows].to(gpt.device), grid) for tokens in (clean, corrupted)]
            base, source = runs if noising else reversed(runs)
            found = []
            for cell in grid:
                found.append(kept(base.patched(gpt, cell, source.held), rows))
                if counted is not None:
                    counted(len(found) + len(parts) * len(grid), len(grid) * len(batches))
            parts.append((kept(runs[0].logits, rows), kept(runs[1].logits, rows), torch.stack(found, dim=1)))
    first, second, patched = (torch.cat(part) for part in zip(*parts, strict=True))
    return Patched(
        grid=grid, direction=direction, clean=first, corrupted=second, patched=patched.unflatten(1, grid.shape)
    )


def redrawn_first_copy(tokens: Sequences, period: int, ids: Ids, *, seed: int) -> Sequences:
    """`tokens`, two copies of one segment, with another random one for the first, so that the second repeats nothing.

    Of more copies the third would still repeat the second, and what it says would be no measure of copying; they are
    refused. A symmetric replacement: every sequence keeps its length, its kind, and the tokens that are to be
    predicted. The new segment has none of the old one's tokens as long as the vocabulary lasts, and no token twice;
    where it must use them, it has them in a new random order.
    """
    pool = pool_of(ids, period)
    start = copy_start(tokens.shape[1], period)
    if tokens.shape[1] - start != 2 * period:
        raise InputError(
            f"{tokens.shape[1] - start} tokens are {(tokens.shape[1] - start) // period} copies of {period}; with "
            "another first copy the third would still repeat the second. Give two copies."
        )
    generator = torch.Generator().manual_seed(seed)
    old = tokens[:, start : start + period].cpu()
    used = (pool[None, :, None] == old[:, None, :]).any(2)
    last = torch.rand(len(tokens), len(pool), generator=generator) + used
    drawn = pool[last.argsort(1)[:, :period]]
    order = torch.rand(drawn.shape, generator=generator).argsort(1)
    first = drawn.gather(1, order).to(tokens)
    return torch.cat([tokens[:, :start], first, tokens[:, start + period :]], dim=1)


def require_pairs(gpt: GPT, clean: Sequences, corrupted: Others) -> None:
    """Refuse prompts that do not stand in pairs, position for position."""
    for tokens in (clean, corrupted):
        gpt.check_tokens(tokens)
    if clean.shape != corrupted.shape:
        raise InputError(
            f"clean prompts have shape {tuple(clean.shape)} and corrupted ones {tuple(corrupted.shape)}; a patch goes "
            "from a position to the same one, so give as many of one length."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """A batch's run: its logits, and what the patched places and the streams that enter their layers held."""

    tokens: Sequences
    logits: Logits
    held: ActivationCache

    @classmethod
    def of(cls, gpt: GPT, tokens: Tensor, grid: PatchGrid) -> _Run:
        wanted = [str(grid.tap.at(layer)) for layer in grid.layers]
        entering = [str(Tap.RESID_PRE.at(layer)) for layer in grid.layers if layer is not None]
        logits, held = gpt.run_with_cache(tokens, [*wanted, *entering])
        return cls(tokens=tokens, logits=logits, held=held)

    def patched(self, gpt: GPT, cell: Cell, held: ActivationCache) -> Logits:
        """The logits with one cell as the other run had it."""
        site = cell.tap.at(cell.layer)
        edits = hooks_of(gpt, patch(site, held, positions=cell.positions, components=cell.component))
        if cell.layer is None:
            return gpt.run_with_hooks(self.tokens, edits)
        return gpt.run_with_hooks(self.held[Tap.RESID_PRE.at(cell.layer)], edits, start_at_layer=cell.layer)


def _require_within(grid: PatchGrid, n_pos: int) -> None:
    """Every named position is one of the prompts'."""
    named = [at for group in grid.position_groups for at in group or ()]
    beyond = [at for at in named if not 0 <= at < n_pos]
    if beyond:
        raise InputError(f"position {beyond[0]} is none of the prompts' {n_pos}; choose from 0 to {n_pos - 1}.")
