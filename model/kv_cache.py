"""Keys and values of the positions already seen, so that each new token costs one position.

The memory is laid out once for n_ctx positions. Keys are stored as attention uses them: rotated, at their absolute
positions.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from model.config import GPTConfig
from model.errors import InputError


class KeyValueCache:
    """Past keys and values of every layer, for a batch of sequences."""

    def __init__(self, config: GPTConfig, n_batch: int, *, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.n_layers, n_batch, config.n_ctx, config.kv_heads, config.head_width)
        self.n_ctx = config.n_ctx
        self.length = 0
        self._keys = torch.empty(shape, device=device, dtype=dtype)
        self._values = torch.empty(shape, device=device, dtype=dtype)
        self._mask = torch.ones(n_batch, config.n_ctx, dtype=torch.bool, device=device)

    @property
    def n_bytes(self) -> int:
        """Bytes held, for all n_ctx positions."""
        return self._keys.nbytes + self._values.nbytes

    def admit(self, new_mask: Bool[Tensor, "batch pos"]) -> Bool[Tensor, "batch key"]:
        """Make room for new positions; the mask over the past and them."""
        n_new = new_mask.shape[1]
        if self.length + n_new > self.n_ctx:
            raise InputError(
                f"{self.length} cached and {n_new} new positions exceed n_ctx={self.n_ctx}; generate fewer tokens."
            )
        self._mask[:, self.length : self.length + n_new] = new_mask
        return self._mask[:, : self.length + n_new]

    def extend(
        self,
        layer: int,
        keys: Float[Tensor, "batch pos kv_head d_head"],
        values: Float[Tensor, "batch pos kv_head d_head"],
    ) -> tuple[Float[Tensor, "batch key kv_head d_head"], Float[Tensor, "batch key kv_head d_head"]]:
        """Store a layer's new keys and values; all of them so far."""
        end = self.length + keys.shape[1]
        self._keys[layer, :, self.length : end] = keys
        self._values[layer, :, self.length : end] = values
        return self._keys[layer, :, :end], self._values[layer, :, :end]

    def advance(self, n_new: int) -> None:
        """Count the new positions as past, once every layer has stored them."""
        self.length += n_new


def positions_of(mask: Bool[Tensor, "batch key"]) -> Int[Tensor, "batch key"]:
    """Absolute positions: real tokens count from 0 in their own sequence, padding is -1.

    >>> positions_of(torch.tensor([[False, True, True]])).tolist()
    [[-1, 0, 1]]
    """
    return torch.where(mask, mask.long().cumsum(-1) - 1, -1)
