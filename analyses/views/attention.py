"""The attention view's payload: one pattern to the last cell, every head as a thumbnail, the tokens as visible text.

One head costs n^2/2 weights, so all heads are sent exactly only while they stay under a budget; then any of them can be
shown without asking the server. Above it the head in focus is sent exactly, at 16 bits, and the others pooled, at 8.
Beyond `EXACT_SIDE` tokens the head in focus is pooled too, and sent exactly in a window around what is locked.
What was pooled, and how, the payload says in words. Nothing is averaged (`analyses.views.pooled`).

Attention may be told in other units than shares (`interp.attention_bases`): then `scale` says which. A second pattern
of the same text, of another checkpoint or under an ablation, is shown in the first one's place, or taken from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.views.payload import Payload, Scale, checked, digest, packed, scale_fields, visible
from analyses.views.pooled import cells, levels, small, thumb_side
from model.errors import InputError

EXACT_SIDE = 512
"""Tokens of a text up to which every weight of the head in focus is sent."""

WINDOW = 128
"""Queries and keys of a longer text that are sent exactly."""

BUDGET = 400_000
"""Bytes of encoded weights up to which every head is sent exactly."""

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
    other: Float[Tensor, "layer_b head_b query_b key_b"] | None = None,
    names: tuple[str, str] = ("A", "B"),
    budget: int = BUDGET,
) -> Payload:
    """Return what the attention view draws for one text.

    Args:
        pattern: attention of every head; rows sum to 1, unless `scale` says that these are no shares.
        tokens: one printable string per position.
        head: the (layer, head) shown in full.
        lock: the (query, key) cell that is locked, in positions of the text.
        causal: whether keys after the query are masked, and therefore neither sent nor drawn as zero.
        scale: the colours; by default 0 to 1. It is widened where values lie beyond it, so that none is cut.
            Where it is given, the colours of the head that is shown are stretched to its own values at first.
        label: what the values are, with their unit.
        other: a second pattern of the same text and in the same unit, to be compared with `pattern`.
        names: what the two patterns are called.
        budget: bytes of encoded weights up to which every head is sent exactly.

    Raises:
        InputError: if the shapes disagree, a value is not finite, or `head` or `lock` lies outside of them.
    """
    sides = [pattern] if other is None else [pattern, other]
    _check(sides, tokens, head, lock)
    n_layers, n_heads, size, _ = pattern.shape
    flat = [_visible_part(side, causal=causal) for side in sides]
    drawn = _holding(scale or Scale(), flat)
    focus = head[0] * n_heads + head[1]
    thumbs = thumb_side(n_layers * n_heads * (1 if other is None else 3), causal=causal)
    held, window = _held(flat, focus, budget, causal=causal), _window(size, lock)
    cut = _Cut(focus=focus, held=held, window=window, thumbs=thumbs, causal=causal)
    parts = [cut.parts(side, drawn, held) for side in flat]
    difference = None
    if other is not None:
        apart = flat[0] - flat[1]
        reach = float(apart.abs().max()) or 1.0
        both = Scale(kind="diverging", low=-reach, high=reach)
        difference = {"scale": scale_fields(both), **cut.parts(apart, both, [])}
    factor = -(-size // thumbs)
    return checked(
        {
            "tokens": [visible(token) for token in tokens],
            "size": size,
            "heads": [f"L{layer}H{index}" for layer in range(n_layers) for index in range(n_heads)],
            "n_heads": n_heads,
            "focus": focus,
            "held": held,
            "window": window,
            **parts[0],
            "other": None if other is None else parts[1],
            "difference": difference,
            "names": list(names),
            "thumb_size": -(-size // factor),
            "thumb_factor": factor,
            "overview_factor": -(-size // EXACT_SIDE),
            "causal": causal,
            "scale": scale_fields(drawn),
            "label": label,
            "shares": drawn == Scale(),
            "fit": scale is not None and scale != Scale(),
            "lock": None if lock is None else {"query": lock[0], "key": lock[1]},
            "hash": digest(*(str(value) for part in parts for value in part.values()), str(held), str(window)),
            "sent": _sent(size, len(held), n_layers * n_heads, factor, window),
            "hint": HINT,
        }
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cut:
    """What of a pattern is sent, and how."""

    focus: int
    held: Sequence[int]
    """The heads that are sent exactly."""
    window: Payload
    """Where they are."""
    thumbs: int
    """Side of a thumbnail at most."""
    causal: bool

    def parts(self, flat: Float[Tensor, "head query key"], scale: Scale, held: Sequence[int]) -> Payload:
        """One pattern, packed: what is held of it, what is longer than can be held pooled, and the thumbnails."""
        rows = slice(self.window["query"], self.window["query"] + self.window["rows"])
        columns = slice(self.window["key"], self.window["key"] + self.window["columns"])
        exact = cells(flat[list(held)][:, rows, columns], causal=self.causal and self.window["whole"])
        focus = flat[self.focus : self.focus + 1]
        return {
            "weights": packed(levels(exact, scale), 16) if held else "",
            "overview": None if self.window["whole"] else small(focus, scale, EXACT_SIDE, causal=self.causal),
            "thumbs": small(flat, scale, self.thumbs, causal=self.causal),
        }


def _visible_part(pattern: Float[Tensor, "layer head query key"], *, causal: bool) -> Float[Tensor, "every query key"]:
    flat = pattern.detach().cpu().flatten(0, 1).float()
    return flat.tril() if causal else flat


def _holding(scale: Scale, flat: Sequence[Tensor]) -> Scale:
    """`scale`, widened where a value lies beyond its ends by more than rounding."""
    low, high = (float(min(side.min() for side in flat)), float(max(side.max() for side in flat)))
    if scale.kind == "diverging":
        reach = max(abs(low), abs(high), abs(scale.low), abs(scale.high))
        return Scale(kind=scale.kind, low=-reach, high=reach)
    slack = 1e-5 * (scale.high - scale.low)
    return Scale(
        kind=scale.kind,
        low=low if low < scale.low - slack else scale.low,
        high=high if high > scale.high + slack else scale.high,
    )


def _held(flat: Sequence[Tensor], focus: int, budget: int, *, causal: bool) -> list[int]:
    """The heads that are sent exactly: all while they fit, else the one in focus."""
    n_heads, size, _ = flat[0].shape
    return list(range(n_heads)) if holds_all(n_heads, size, len(flat), budget=budget, causal=causal) else [focus]


def holds_all(n_heads: int, size: int, n_sides: int = 1, *, budget: int = BUDGET, causal: bool = True) -> bool:
    """Whether every head is sent exactly, so that any of them can be shown by the same payload.

    Args:
        n_heads: heads of all layers.
        size: tokens of the text.
        n_sides: 2 where another pattern is compared with.
        budget: bytes of encoded weights.
        causal: whether keys after the query are masked.
    """
    weights = n_sides * n_heads * (size * (size + 1) // 2 if causal else size * size)
    return size <= EXACT_SIDE and weights * 2 * 4 / 3 <= budget


def _window(size: int, lock: tuple[int, int] | None) -> Payload:
    """What is sent exactly. In a long text it moves by half its side, so that most locks leave it where it is."""
    if size <= EXACT_SIDE:
        return {"query": 0, "key": 0, "rows": size, "columns": size, "whole": True}
    at = lock or (size - 1, size - 1)
    half = WINDOW // 2
    starts = [min(max(0, (place - half // 2) // half * half), size - WINDOW) for place in at]
    return {"query": starts[0], "key": starts[1], "rows": WINDOW, "columns": WINDOW, "whole": False}


def _sent(size: int, n_held: int, n_heads: int, factor: int, window: Payload) -> str:
    """What the numbers are worth, in words."""
    said = ["16 bits: exact to 1/131000 of the scale"]
    if not window["whole"]:
        ends = window["query"] + window["rows"] - 1, window["key"] + window["columns"] - 1
        said.append(f"exact at queries {window['query']}-{ends[0]} and keys {window['key']}-{ends[1]}")
        said.append(f"elsewhere max-pooled {-(-size // EXACT_SIDE)}x")
    if n_held < n_heads:
        pooled = f"max-pooled {factor}x, " if factor > 1 else ""
        said.append(f"other heads: {pooled}8 bits")
    return "; ".join(said)


def _check(sides: Sequence[Tensor], tokens: Sequence[str], head: tuple[int, int], lock: tuple[int, int] | None) -> None:
    n_layers, n_heads, size, n_keys = sides[0].shape
    if size != n_keys or size != len(tokens):
        raise InputError(
            f"a pattern of {size} queries by {n_keys} keys does not fit {len(tokens)} tokens; the three must be equal"
        )
    for side in sides[1:]:
        if side.shape != sides[0].shape:
            shapes = " and ".join("x".join(map(str, each.shape)) for each in sides)
            raise InputError(f"patterns to compare must be of one shape, heads and text alike; these are {shapes}")
    ends = [end for side in sides for end in torch.aminmax(side)]  # not a number, if anything is not
    if not all(bool(torch.isfinite(end)) for end in ends):
        raise InputError("a pattern holds values that are not finite; masked cells must be 0, not NaN or infinite")
    if not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads):
        raise InputError(
            f"there is no head L{head[0]}H{head[1]}; layers run 0..{n_layers - 1} and heads 0..{n_heads - 1}"
        )
    if lock is not None and not all(0 <= at < size for at in lock):
        raise InputError(f"the locked cell {lock[0]}.{lock[1]} lies outside the text; positions run 0..{size - 1}")
