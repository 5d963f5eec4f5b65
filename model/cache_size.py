"""How much memory a cache will take, known before the run that fills it.

A pass over a single token with the same filter shows which places are kept, in which number format, and which equal
neighbours share one snapshot; the rest is multiplication. Cost: that pass.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from model.errors import InputError
from model.gpt import GPT, NamesFilter


@torch.no_grad()
def cache_bytes(gpt: GPT, n_batch: int, n_pos: int, names_filter: NamesFilter = None, *, pos_slice: Any = None) -> int:
    """Bytes that `gpt.run_with_cache(tokens, names_filter, pos_slice=pos_slice)` will hold for [n_batch, n_pos] tokens.

    Exact: it equals `n_bytes` of the cache. Gradients (incl_bwd) come in addition, as much again for each place.

    >>> from model import GPTConfig
    >>> gpt = GPT(GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=64, d_vocab=10))
    >>> cache_bytes(gpt, 3, 64, "blocks.0.attn.hook_pattern") == 3 * 2 * 64 * 64 * 4
    True
    """
    if not 1 <= n_pos <= gpt.config.n_ctx or n_batch < 1:
        raise InputError(
            f"{n_batch} sequences of {n_pos} positions cannot be run; take at least one, of 1 to "
            f"n_ctx={gpt.config.n_ctx} positions."
        )
    unhooked = copy.copy(gpt)  # a copy carries no hooks, and shares the weights
    token = torch.zeros(1, 1, dtype=torch.int64, device=gpt.device)
    cut = None if pos_slice is None else 0
    _, cache = unhooked.run_with_cache(token, names_filter, pos_slice=cut, return_type=None)
    n_kept = n_pos if pos_slice is None else _n_kept(n_pos, pos_slice)
    distinct = {tensor.data_ptr(): (name, tensor) for name, tensor in cache.items()}
    return sum(
        _size(gpt._sites[name].tap.axes, tensor, {"batch": n_batch, "pos": n_kept, "query": n_kept, "key": n_pos})
        for name, tensor in distinct.values()
    )


def _size(axes: tuple[str, ...], sample: Tensor, sizes: dict[str, int]) -> int:
    """Bytes of a place: its sample with the axes that follow the tokens made as long as they will be."""
    lengths = (sizes.get(axis, length) for axis, length in zip(axes, sample.shape, strict=True))
    return math.prod(lengths) * sample.element_size()


def _n_kept(n_pos: int, pos_slice: Any) -> int:
    if isinstance(pos_slice, int):
        return 1
    return torch.arange(n_pos)[slice(*pos_slice) if isinstance(pos_slice, tuple) else pos_slice].numel()
