"""Attention patterns of a model, read in a stream: reduced while they exist, never all kept.

A pattern takes batch x heads x context^2 numbers for each layer. Here each layer's pattern is reduced to a few
numbers per sequence and head inside the forward pass, then freed; memory is that of one layer of one small batch,
whatever the number of sequences. Only the layers that are read leave the fused attention kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.requirements import require_causal_patterns, require_deterministic
from interp.scores import Pattern
from model.sites import Tap

if TYPE_CHECKING:
    from model import GPT

Tokens = Int[Tensor, "sequence pos"]
Heads = Float[Tensor, "batch pos head d_head"]
ScoreFunction = Callable[[Pattern, Tensor], Tensor]
"""score(pattern [batch, head, query, key], tokens [batch, pos]) -> [batch, head], or several numbers for each head."""
WriteFunction = Callable[[Pattern, Heads, Tensor, int], Tensor]
"""score(pattern, z [batch, pos, head, d_head], tokens, layer) -> as a `ScoreFunction`: of what heads write as well."""

_PATTERN_NUMBERS = 8_000_000
"""Largest number of pattern entries formed at once, for one layer."""


@torch.no_grad()
def pattern_scores(
    gpt: GPT,
    tokens: Tokens,
    scores: Mapping[str, ScoreFunction],
    *,
    writes: Mapping[str, WriteFunction] | None = None,
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Float[Tensor, "sequence layer head *numbers"]]:
    """Every score of every head on every sequence, in float32 on the CPU; one forward pass for all scores.

    Args:
        gpt: a causal model without active dropout, which would blur the patterns.
        tokens: sequences of one length.
        scores: functions of a layer's pattern and its tokens, by name.
        writes: functions of a layer's z besides.
        batch_size: sequences at a time; by default as many as keep one layer's pattern below 32 MB.
        progress: called with (sequences done, sequences).
    """
    require_deterministic(gpt)
    require_causal_patterns(gpt)
    writes = writes or {}
    if not scores and not writes:
        return {}
    rows: dict[str, list[Tensor]] = {name: [] for name in (*scores, *writes)}
    done = 0
    for batch in tokens.split(batch_size or _batch_size(gpt, tokens.shape[1])):
        for name, found in _scores_of_batch(gpt, batch.to(gpt.device), scores, writes).items():
            rows[name].append(found)
        done += len(batch)
        if progress is not None:
            progress(done, len(tokens))
    return {name: torch.cat(parts) for name, parts in rows.items()}


@torch.no_grad()
def pattern_of(gpt: GPT, tokens: Int[Tensor, " pos"], layer: int, head: int) -> Float[Tensor, "query key"]:
    """One head's pattern on one sequence, on the CPU."""
    require_deterministic(gpt)
    name = str(Tap.PATTERN.at(layer))
    _, cache = gpt.run_with_cache(tokens[None].to(gpt.device), name, return_type=None, stop_at_layer=layer + 1)
    return cache[name][0, head].float().cpu()


def _scores_of_batch(
    gpt: GPT, batch: Tensor, scores: Mapping[str, ScoreFunction], writes: Mapping[str, WriteFunction]
) -> dict[str, Tensor]:
    found: dict[str, list[Tensor]] = {name: [] for name in (*scores, *writes)}
    kept: list[Tensor] = []  # the pattern of the layer at hand, until its z is there

    def reduce(pattern: Tensor, _hook: Any) -> None:
        for name, score in scores.items():
            found[name].append(score(pattern, batch).float().cpu())
        if writes:
            kept.append(pattern)

    def reduce_written(z: Tensor, hook: Any) -> None:
        pattern = kept.pop()
        for name, score in writes.items():
            found[name].append(score(pattern, z, batch, hook.layer).float().cpu())

    hooks: list[tuple[Any, Any]] = []
    for layer in range(gpt.config.n_layers):
        hooks.append((Tap.PATTERN.at(layer), reduce))
        hooks += [(Tap.Z.at(layer), reduce_written)] if writes else []
    gpt.run_with_hooks(batch, fwd_hooks=hooks, return_type=None)
    return {name: torch.stack(parts, dim=1) for name, parts in found.items()}


def _batch_size(gpt: GPT, n_pos: int) -> int:
    return max(1, _PATTERN_NUMBERS // (gpt.config.n_heads * n_pos * n_pos))
