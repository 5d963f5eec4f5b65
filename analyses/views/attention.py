"""The attention view's payload: every head as a thumbnail, the patterns at 16 bits, the tokens as visible text.

One head costs n^2/2 weights, so all heads are sent only while they stay under a budget: then a thumbnail can be
previewed without asking the server. Above it only the head in focus is sent. Longer texts are max-pooled, never
averaged, so that a single strong weight stays visible; the hint then says so.

Attention may be told in other units than shares (`interp.attention_bases`): then `scale` says which, and signed values
are pooled by their size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from analyses.views.payload import Payload, Scale, checked, digest, packed, scale_fields, visible
from model.errors import InputError

THUMB_SIZE = 32
LARGEST_SIDE = 512
BUDGET = 400_000
"""Weights sent at most: 0.8 MB before base64."""

HINT = "point at a cell or a token to read it; click to lock it; arrows and Enter do the same"


def attention_payload(
    pattern: Float[Tensor, "layer head query key"],
    tokens: Sequence[str],
    *,
    head: tuple[int, int] = (0, 0),
    lock: tuple[int, int] | None = None,
    causal: bool = True,
    scale: Scale | None = None,
    label: str = "attention",
) -> Payload:
    """Return what the attention view draws for one text.

    Args:
        pattern: attention of every head; rows sum to 1, unless `scale` says that these are no shares.
        tokens: one printable string per position.
        head: the (layer, head) shown in full.
        lock: the (query, key) cell that is locked, in positions of the text.
        causal: whether keys after the query are masked, and therefore neither sent nor drawn as zero.
        scale: the colours, and the range of values that is sent; what lies beyond is cut to it. By default 0 to 1.
            Where that is not 0 to 1, the colours of the head that is shown are stretched to its own values at first.
        label: what the values are, with their unit.

    Raises:
        InputError: if the shapes disagree, or `head` or `lock` lies outside of them.
    """
    _check(pattern, tokens, head, lock)
    scale = scale or Scale()
    n_heads = pattern.shape[1]
    factor = -(-pattern.shape[-1] // LARGEST_SIDE)
    pooled = _levels(pool_max(pattern.flatten(0, 1).float(), factor), scale)
    size = pooled.shape[-1]
    cells = torch.tril_indices(size, size) if causal else None
    flat = pooled[:, cells[0], cells[1]] if cells is not None else pooled.flatten(1)
    focus = head[0] * n_heads + head[1]
    held = list(range(len(flat))) if flat.numel() <= BUDGET else [focus]
    weights = packed(flat[held], 16)
    thumbs = packed(_thumbs(pooled, scale), 8)
    return checked(
        {
            "tokens": _pooled_tokens(tokens, factor),
            "size": size,
            "heads": [f"L{layer}H{index}" for layer in range(pattern.shape[0]) for index in range(n_heads)],
            "n_heads": n_heads,
            "focus": focus,
            "held": held,
            "weights": weights,
            "thumbs": thumbs,
            "thumb_size": -(-size // -(-size // THUMB_SIZE)),
            "causal": causal,
            "scale": scale_fields(scale),
            "label": label,
            "fit": scale != Scale(),
            "lock": None if lock is None else {"query": lock[0] // factor, "key": lock[1] // factor},
            "hash": digest(weights, thumbs),
            "hint": HINT if factor == 1 else f"max-pooled {factor} by {factor}; {HINT}",
        }
    )


def pool_max(pattern: Float[Tensor, "head query key"], factor: int) -> Float[Tensor, "head rows columns"]:
    """Return `pattern` with each `factor` by `factor` square replaced by its largest weight, be it below zero."""
    if factor == 1:
        return pattern
    highest, lowest = (F.max_pool2d(sign * pattern[None], factor, ceil_mode=True)[0] for sign in (1, -1))
    return torch.where(lowest > highest, -lowest, highest)


def _levels(values: Float[Tensor, "head query key"], scale: Scale) -> Float[Tensor, "head query key"]:
    """Where each value lies between the ends of the scale, 0 to 1."""
    return (values - scale.low) / (scale.high - scale.low)


def _thumbs(levels: Float[Tensor, "head query key"], scale: Scale) -> Float[Tensor, "head row column"]:
    """Small patterns in which weak weights are seen: square roots of what is sent, to either side of zero."""
    factor = -(-levels.shape[-1] // THUMB_SIZE)
    if scale.kind == "sequential":
        return pool_max(levels, factor).clamp(min=0).sqrt()
    signed = pool_max(2 * levels - 1, factor)
    return (1 + signed.sign() * signed.abs().sqrt()) / 2


def _pooled_tokens(tokens: Sequence[str], factor: int) -> list[str]:
    shown = [visible(token) for token in tokens]
    return ["".join(shown[start : start + factor]) for start in range(0, len(shown), factor)]


def _check(pattern: Tensor, tokens: Sequence[str], head: tuple[int, int], lock: tuple[int, int] | None) -> None:
    n_layers, n_heads, size, n_keys = pattern.shape
    if size != n_keys or size != len(tokens):
        raise InputError(
            f"a pattern of {size} queries by {n_keys} keys does not fit {len(tokens)} tokens; the three must be equal"
        )
    if not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads):
        raise InputError(
            f"there is no head L{head[0]}H{head[1]}; layers run 0..{n_layers - 1} and heads 0..{n_heads - 1}"
        )
    if lock is not None and not all(0 <= at < size for at in lock):
        raise InputError(f"the locked cell {lock[0]}.{lock[1]} lies outside the text; positions run 0..{size - 1}")
