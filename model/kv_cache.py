"""Keys and values of the positions already seen, so that each new token costs one position.

The memory is laid out once for n_ctx positions. Keys are stored as attention uses them: rotated, at their absolute
positions. The rotations of all n_ctx positions are computed once, exactly, and looked up at each step.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from model.config import GPTConfig, Positions
from model.errors import InputError
from model.positions import Rotation


class KeyValueCache:
    """Past keys and values of every layer, for a batch of sequences."""

    def __init__(self, config: GPTConfig, n_batch: int, *, device: torch.device, dtype: torch.dtype) -> None:
        shape = (n_batch, config.n_ctx, config.kv_heads, config.head_width)
        self.n_ctx = config.n_ctx
        self.length = 0
        self._keys = [torch.empty(shape, device=device, dtype=dtype) for _ in range(config.n_layers)]
        self._values = [torch.empty(shape, device=device, dtype=dtype) for _ in range(config.n_layers)]
        first = (n_batch, 1, config.kv_heads, config.head_width)
        layers = range(config.n_layers) if config.smeared_keys else ()
        self._last_keys = [torch.zeros(first, device=device, dtype=dtype) for _ in layers]
        self._mask = torch.ones(n_batch, config.n_ctx, dtype=torch.bool, device=device)
        self._padded = False
        every_position = torch.arange(config.n_ctx, device=device)[None]
        rope = config.positions is Positions.ROPE
        self._rotation = Rotation.of(every_position, config.head_width, config.rope_base, dtype) if rope else None

    @property
    def n_bytes(self) -> int:
        """Bytes of the keys and values, for all n_ctx positions (and of the last keys, where keys are smeared)."""
        return sum(layer.nbytes for layer in (*self._keys, *self._values, *self._last_keys))

    def admit(self, n_new: int, new_mask: Bool[Tensor, "batch pos"] | None = None) -> Bool[Tensor, "batch key"] | None:
        """Make room for new positions; the mask over the past and them, None as long as nothing is padded."""
        end = self.length + n_new
        if end > self.n_ctx:
            raise InputError(
                f"{self.length} cached and {n_new} new positions exceed n_ctx={self.n_ctx}; generate fewer tokens."
            )
        if new_mask is not None:  # without one the places stay as they are from the start: true
            self._mask[:, self.length : end] = new_mask
            self._padded = self._padded or not bool(new_mask.all())
        return self._mask[:, :end] if self._padded else None

    def rotation(self, positions: Int[Tensor, "batch pos"]) -> Rotation | None:
        """The rotation of the new positions; None where the model does not rotate."""
        return None if self._rotation is None else self._rotation.at(positions)

    def extend(
        self,
        layer: int,
        keys: Float[Tensor, "batch pos kv_head d_head"],
        values: Float[Tensor, "batch pos kv_head d_head"],
    ) -> tuple[Float[Tensor, "batch key kv_head d_head"], Float[Tensor, "batch key kv_head d_head"]]:
        """Store a layer's new keys and values; all of them so far, as views of the memory."""
        n_new, all_keys, all_values = keys.shape[1], self._keys[layer], self._values[layer]
        all_keys.narrow(1, self.length, n_new).copy_(keys)
        all_values.narrow(1, self.length, n_new).copy_(values)
        return all_keys.narrow(1, 0, self.length + n_new), all_values.narrow(1, 0, self.length + n_new)

    def last_key(self, layer: int) -> Float[Tensor, "batch one kv_head d_head"]:
        """Each sequence's last key as it was before smearing; zeros where none has been yet."""
        return self._last_keys[layer]

    def keep_last_key(self, layer: int, key: Float[Tensor, "batch one kv_head d_head"]) -> None:
        """Remember the key that the next one is mixed with."""
        self._last_keys[layer] = key

    def advance(self, n_new: int) -> None:
        """Count the new positions as past, once every layer has stored them."""
        self.length += n_new


def positions_of(mask: Bool[Tensor, "batch key"]) -> Int[Tensor, "batch key"]:
    """Absolute positions: real tokens count from 0 in their own sequence, padding is -1.

    >>> positions_of(torch.tensor([[False, True, True]])).tolist()
    [[-1, 0, 1]]
    """
    return torch.where(mask, mask.long().cumsum(-1) - 1, -1)
