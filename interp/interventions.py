"""Putting something else in a named place: nothing, a mean, or what another run held there.

    with intervened(gpt, [zero(Tap.Z.at(0), components=3), patch(Tap.RESID_PRE.at(1), clean, positions=5)]):
        logits = gpt(tokens)

Replacements go by absolute position (scores and patterns by query and key position). So padding shifts them with the
tokens, and generation gives the same logits with and without the key-value cache. Cost: one look at the place, and
another at its means or recording.

No replacement lets the future reach the past: what a query cannot see is never written (masked scores stay -inf), a
mean is one of stated tokens, and what is patched in at position p is what another run held at p. Padding is never
written. An effect is the difference of two runs on the same attention path (`gpt.explicit_attention`): replacing scores
or a pattern makes its layer take the explicit one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.recordings import Means, Recording, mean_held, record
from interp.replacements import (
    Constant,
    Exchanged,
    Held,
    Replacement,
    mean,
    mean_per_position,
    patch,
    require_components,
    zero,
)
from model.config import AttentionKind, GPTConfig
from model.errors import InputError
from model.hooks import Hook, HookFunction
from model.sites import resolve, sites

if TYPE_CHECKING:
    from model.gpt import GPT

__all__ = [
    "Edits",
    "Means",
    "Recording",
    "Replacement",
    "hooks_of",
    "intervened",
    "mean",
    "mean_held",
    "mean_per_position",
    "patch",
    "record",
    "zero",
]

Edits = list[tuple[str, HookFunction]]
"""Hook names with the function for each, as `gpt.hooks(fwd_hooks=...)` takes them."""

Reached = Bool[Tensor, "batch pos"] | Bool[Tensor, "batch query key"]


@contextmanager
def intervened(gpt: GPT, replacements: Replacement | Sequence[Replacement]) -> Iterator[GPT]:
    """The model with `replacements` in force until the `with` ends, also for `gpt.generate`."""
    with gpt.hooks(fwd_hooks=hooks_of(gpt, replacements)):
        yield gpt


def hooks_of(gpt: GPT, replacements: Replacement | Sequence[Replacement]) -> Edits:
    """Hooks that carry out `replacements`, one for each place, for `gpt.hooks` or `gpt.run_with_hooks`.

    Of two replacements of the same numbers the later one counts.

    Raises:
        UnknownSiteError: a place that the model does not have.
        InputError: positions or components that it does not have, or numbers of a model of other sizes.
    """
    known = sites(gpt.config)
    by_site: dict[str, list[Replacement]] = {}
    for each in _checked(replacements):
        (name,) = resolve(each.site, known, gpt.config.n_layers)
        _require_fit(each, gpt.config)
        here = replace(each, values=each.values.to(gpt.device))
        by_site.setdefault(name, []).append(here)
    causal = gpt.config.attention is AttentionKind.CAUSAL
    return [(name, _replacing(found, causal=causal)) for name, found in by_site.items()]


def _checked(replacements: Replacement | Sequence[Replacement]) -> Sequence[Replacement]:
    several = (replacements,) if isinstance(replacements, Replacement) else tuple(replacements)
    for each in several:
        if not isinstance(each, Replacement):
            raise InputError(f"{each!r:.60} is no replacement; make one with zero, mean, mean_per_position or patch.")
    return several


def _require_fit(each: Replacement, config: GPTConfig) -> None:
    """The model has these positions and components, and as many numbers there as are to be put."""
    beyond = [position for position in each.named_positions if position >= config.n_ctx]
    if beyond:
        raise InputError(f"{each.label} names position {beyond[0]}; this model has 0 to {config.n_ctx - 1}.")
    sizes = {"head": config.n_heads, "kv_head": config.kv_heads, "memory": config.ffn_width, "one": 1}
    sizes |= {"d_model": config.d_model, "d_head": config.head_width, "d_vocab": config.d_vocab}
    tap = each.site.tap
    if each.components is not None and tap.component_axis is not None:
        component = tap.axes[tap.component_axis]
        require_components(each.components, sizes[component], each.label)
        sizes[component] = len(each.components)
    expected = tuple(sizes[axis] for axis in tap.axes if axis in sizes)
    found = each.values.sizes(each.site)
    if found not in (None, expected):
        raise InputError(
            f"{each.label} brings numbers of shape {found} where this model has {expected}; take them from a model of "
            "the same sizes."
        )


def _replacing(replacements: Sequence[Replacement], *, causal: bool) -> HookFunction:
    def replace_values(activation: Tensor, hook: Hook) -> Tensor:
        for each in _checked(replacements):
            activation = _replaced(activation, each, hook, _reached(each, hook, causal=causal))
        return activation

    return replace_values


def _reached(each: Replacement, hook: Hook, *, causal: bool) -> Reached:
    """Which of this pass's real tokens a replacement is for; of pairs, those whose query sees the key."""
    queries = _among(hook.positions, each.positions)
    if not each.square:
        return queries
    pairs = queries[:, :, None] & _among(hook.key_positions, each.key_positions)[:, None, :]
    return pairs & (hook.key_positions[:, None, :] <= hook.positions[:, :, None]) if causal else pairs


def _among(positions: Int[Tensor, "batch pos"], wanted: Sequence[int] | None) -> Bool[Tensor, "batch pos"]:
    real = positions >= 0
    return real if wanted is None else real & torch.isin(positions, torch.tensor(wanted, device=positions.device))


def _replaced(activation: Tensor, each: Replacement, hook: Hook, reached: Reached) -> Tensor:
    """The activation, with the replacement's numbers where it reaches."""
    where = reached[:, None] if each.square else reached.view(*reached.shape, *(1,) * (activation.ndim - 2))
    axis = each.site.tap.component_axis
    if each.components is None or axis is None:
        values = _values(each, activation, hook, reached)
        return torch.where(where, _gated(activation, values, each.gate), activation)
    components = torch.tensor(each.components, device=activation.device)
    own = activation.index_select(axis, components)
    values = _values(each, own, hook, reached)
    return activation.index_copy(axis, components, torch.where(where, _gated(own, values, each.gate), own))


def _values(each: Replacement, own: Tensor, hook: Hook, reached: Reached) -> Tensor:
    """What stands where `own` stood, whole."""
    match each.values:
        case Constant(value=value):
            return value.to(own.dtype)
        case Held() as held:
            return _looked_up(each, held, hook, reached).to(own.dtype)
        case Exchanged():
            return own.roll(-1, each.site.tap.component_axis or 0)


def _gated(own: Tensor, values: Tensor, gate: float) -> Tensor:
    """A share of what is there and the rest of what replaces it; nothing is rounded where either is all."""
    if gate in (0, 1):
        return own if gate else values
    return gate * own + (1 - gate) * values


def _looked_up(each: Replacement, held: Held, hook: Hook, reached: Reached) -> Tensor:
    """What is held for this pass's positions; where the replacement does not reach, anything."""
    _require_covered(each, held, hook, reached)
    if _in_order(held, hook):
        return held.by_position
    rows = torch.arange(len(held.by_position), device=reached.device)[:, None]
    queries = hook.positions.clamp(0, held.longest - 1)
    if not each.square:
        return held.by_position[rows, queries]
    keys = hook.key_positions.clamp(0, held.longest - 1)
    return held.by_position[rows[:, :, None], :, queries[:, :, None], keys[:, None, :]].movedim(-1, 1)


def _in_order(held: Held, hook: Hook) -> bool:
    """Whether the pass has exactly the positions that are held, so that nothing has to be looked up."""
    n_pos = held.longest
    if hook.positions.shape[1] != n_pos or hook.key_positions.shape[1] != n_pos:
        return False
    counted = torch.arange(n_pos, device=hook.positions.device)
    return bool((hook.positions == counted).all()) and bool((hook.key_positions == counted).all())


def _require_covered(each: Replacement, held: Held, hook: Hook, reached: Reached) -> None:
    n_held, n_batch = len(held.by_position), len(reached)
    if n_held not in (1, n_batch):
        raise InputError(
            f"{each.label} holds {n_held} sequences and the batch has {n_batch}; run as many, or take one for all."
        )
    last = torch.maximum(hook.positions[:, :, None], hook.key_positions[:, None, :]) if each.square else hook.positions
    beyond = reached & (last >= held.n_positions.view(-1, *(1,) * (last.ndim - 1)))
    if bool(beyond.any()):
        row = int(beyond.flatten(1).any(1).nonzero()[0])
        n_positions = held.n_positions.expand(n_batch)[row]
        raise each.uncovered(held, int(last[row][beyond[row]].max()), int(n_positions))
