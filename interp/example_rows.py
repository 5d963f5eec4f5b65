"""The attention rows of examples: a few windows read again, each row in three bases.

A window is cut at its query, which a causal model cannot tell from the whole. Rows are those of
`interp.attention_bases`; the logit is that of the token that follows in the corpus, less the mean over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from interp.attention_bases import (
    Against,
    held_scales,
    lengths_written,
    output_factors,
    own_values,
    stream_direction,
    value_bias,
)
from interp.head_examples import Examples
from interp.places import every_head
from interp.places import head as head_place
from interp.prefixes import prefix_tokens
from interp.requirements import require_causal_patterns, require_deterministic
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleRows:
    """Attention from the query of each example to all its keys.

    The last key is the query itself; behind it tokens are -1 and attention 0. Where there is no example, there are no
    tokens.
    """

    heads: Int[Tensor, "row 2"]
    """Layer and head."""

    tokens: Int[Tensor, "row example key"]
    """What the model read, BOS first where there is one."""

    next_token: Int[Tensor, "row example"]
    """What follows the query in the corpus; -1 where there is no example."""

    raw: Float[Tensor, "row example key"]
    weighted: Float[Tensor, "row example key"]

    signed: Float[Tensor, "row example key"]
    """What each key adds to the next token's logit, less the mean logit; NaN throughout where the stream is no sum."""

    value_bias: Float[Tensor, "row example"]
    """What b_V, the constant part of the head's values, adds to it, whatever is attended to; NaN throughout where the
    stream is no sum."""


@dataclass(frozen=True, kw_only=True)
class _Example:
    """One example of one head, as model input."""

    place: tuple[int, int]
    """Which row and example of the answer."""
    layer: int
    head: int
    tokens: Int[Tensor, " pos"]
    next_token: int


@torch.no_grad()
def example_rows(
    gpt: GPT,
    tokens: Integer[np.ndarray, " corpus"],
    examples: Examples,
    *,
    bos: int | None,
    heads: Sequence[tuple[int, int]] | None = None,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleRows:
    """Read the examples of some heads again (of all, if none are named): their attention rows in three bases.

    Args:
        gpt: the model the examples come from.
        tokens: the corpus they come from.
        examples: those of `interp.head_behaviour`.
        bos: what stands before every window; None if nothing does.
        heads: (layer, head) of each row of the answer.
        batch_size: windows read at a time.
        progress: called with (windows read, windows).
    """
    require_causal_patterns(gpt)
    require_deterministic(gpt)
    chosen = _chosen(examples, heads)
    wanted = list(_inputs(tokens, examples, chosen, bos))
    n_key = max((len(each.tokens) for each in wanted), default=1)
    shape = (len(chosen), examples.query.shape[-1])
    rows = ExampleRows(
        heads=torch.tensor(chosen, dtype=torch.int64).view(-1, 2),
        tokens=torch.full((*shape, n_key), -1),
        next_token=torch.full(shape, -1),
        raw=torch.zeros(*shape, n_key),
        weighted=torch.zeros(*shape, n_key),
        signed=torch.full((*shape, n_key), 0.0 if gpt.config.additive_stream else torch.nan),
        value_bias=torch.full(shape, 0.0 if gpt.config.additive_stream else torch.nan),
    )
    wanted.sort(key=lambda each: (each.layer, len(each.tokens)))
    for first in range(0, len(wanted), batch_size):
        _read(gpt, wanted[first : first + batch_size], rows)
        if progress is not None:
            progress(min(first + batch_size, len(wanted)), len(wanted))
    return rows


def _chosen(examples: Examples, heads: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
    n_layers, n_heads, _ = examples.query.shape
    if heads is None:
        return every_head(n_layers, n_heads)
    for layer, index in heads:
        if not (0 <= layer < n_layers and 0 <= index < n_heads):
            raise InputError(
                f"{head_place(layer, index).label} has no examples here; they are of {n_layers} layers with {n_heads} "
                "heads each."
            )
    return list(heads)


def _inputs(
    tokens: np.ndarray, examples: Examples, chosen: list[tuple[int, int]], bos: int | None
) -> Iterator[_Example]:
    for row, (layer, index) in enumerate(chosen):
        pairs = zip(examples.start[layer, index].tolist(), examples.query[layer, index].tolist(), strict=True)
        for number, (start, query) in enumerate(pairs):
            if query >= 0:
                read = prefix_tokens(tokens, start, query - start + 1, bos=bos)[0]
                follows = int(tokens[query + 1])
                yield _Example(place=(row, number), layer=layer, head=index, tokens=read, next_token=follows)


def _read(gpt: GPT, batch: list[_Example], rows: ExampleRows) -> None:
    """Fill in one batch of examples of neighbouring layers."""
    n_pos = max(len(each.tokens) for each in batch)
    padded = torch.stack([torch.nn.functional.pad(each.tokens, (0, n_pos - len(each.tokens))) for each in batch])
    readers = [_Reader(gpt, layer, batch) for layer in sorted({each.layer for each in batch})]
    hooks = [hook for reader in readers for hook in reader.hooks()]
    stop = None if gpt.config.additive_stream else readers[-1].layer + 1
    with gpt.hooks(hooks):
        gpt.run_with_hooks(padded.to(gpt.device), return_type=None, stop_at_layer=stop)
    for reader in readers:
        reader.fill(rows)
    for each in batch:
        rows.tokens[each.place][: len(each.tokens)] = each.tokens
        rows.next_token[each.place] = each.next_token


@dataclass
class _Reader:
    """Picks a row of a head's pattern, the values, and the scales held, for each example of one layer in a batch."""

    gpt: GPT
    layer: int
    batch: list[_Example]
    held: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mine = [(at, each) for at, each in enumerate(self.batch) if each.layer == self.layer]
        self.at = torch.tensor([at for at, _ in self.mine])
        self.heads = torch.tensor([each.head for _, each in self.mine])
        self.last = torch.tensor([len(each.tokens) - 1 for _, each in self.mine])
        self.attention = self.gpt.layers[self.layer].attn
        self.bias = value_bias(self.gpt, self.layer)

    def hooks(self) -> list[tuple[str, Callable[[Tensor, object], None]]]:
        """What is read of the pass."""
        taken = {str(Tap.V.at(self.layer)): self._take_values, str(Tap.PATTERN.at(self.layer)): self._take_pattern}
        if self.gpt.config.additive_stream:
            taken |= {name: self._taking_scale(name) for name in held_scales(self.gpt, self.layer)}
        return list(taken.items())

    def _take_values(self, values: Tensor, hook: object) -> None:
        del hook
        own = own_values(values, self.bias)
        moved = lengths_written(own, output_factors(self.attention))
        self.held |= {"values": own[self.at, :, self.heads], "moved": moved[self.at, :, self.heads]}

    def _take_pattern(self, pattern: Tensor, hook: object) -> None:
        del hook
        self.held["raw"] = pattern[self.at, self.heads, self.last]

    def _taking_scale(self, name: str) -> Callable[[Tensor, object], None]:
        def take(scale: Tensor, hook: object) -> None:
            del hook
            self.held[name] = scale[self.at, self.last][:, None]

        return take

    def fill(self, rows: ExampleRows) -> None:
        """Write the rows of this layer's examples."""
        raw = self.held["raw"]
        added = {"raw": raw, "weighted": raw * self.held["moved"]}
        if self.gpt.config.additive_stream:
            per_unit = self._per_unit()
            values = self.held["values"].to(per_unit.dtype)
            added["signed"] = raw * torch.einsum("nke,ne->nk", values, per_unit)
            added["value_bias"] = (self.bias[self.heads].to(per_unit.dtype) * per_unit).sum(-1)
        for number, (_, each) in enumerate(self.mine):
            n = len(each.tokens)
            for name, found in added.items():
                target = getattr(rows, name)
                target[each.place] = found[number].cpu() if name == "value_bias" else _padded(found[number, :n], target)

    def _per_unit(self) -> Float[Tensor, "example d_head"]:
        """What a unit of each example's z, in each dimension, adds to the logit."""
        targets = torch.tensor([[each.next_token] for _, each in self.mine], device=self.gpt.device)
        scales = {name: self.held[name] for name in held_scales(self.gpt, self.layer)}
        direction = stream_direction(self.gpt, self.layer, targets, Against.MEAN, scales)[:, 0]
        return torch.einsum("nem,nm->ne", self.attention.W_O[self.heads].to(direction.dtype), direction)


def _padded(row: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.pad(row.cpu(), (0, target.shape[-1] - len(row)))
