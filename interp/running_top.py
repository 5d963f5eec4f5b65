"""The exact largest k per column while many values pass and few of them enter (`interp.topk` says what is kept).

One comparison of the maxima of blocks of 64 with each column's k-th value finds the few blocks in which something may
enter; nothing but these is looked at again. As long as places are empty, and in blocks that double from there on, about
k candidates of a column pass. The answer is that of sorting everything, ties and all.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.topk import EMPTY, merged_tops, positions_of, sort_keys, updated_top, values_of

_FIRST = 256
"""Candidates of a column that are sorted outright while nothing is known yet."""

_BLOCK = 64
"""Candidates that are looked at again where the furthest of them may enter."""


class RunningTop:
    """Keys of the largest values per column, or of the smallest with their signs turned; changed in place."""

    def __init__(self, top: Int[Tensor, "row k"], sign: int, device: torch.device) -> None:
        self.sign = sign
        self._device = device
        self._set(top)

    def add(self, values: Float[Tensor, "candidate row"], positions: Int[Tensor, " candidate"]) -> None:
        """Take in more fp32 candidates, none of them NaN; `positions` are on the CPU."""
        done = 0
        while done < len(values):
            if not self._full:
                step = max(_FIRST, self.top.shape[1])
                some, where = values[done : done + step].T, positions[done : done + step]
                self._set(updated_top(self.top, self.sign * some.cpu(), where))
            else:
                step = done or len(values)
                self._enter(values[done : done + step], positions[done : done + step])
            done += step

    def _enter(self, values: Float[Tensor, "candidate row"], positions: Int[Tensor, " candidate"]) -> None:
        bar, n = self._bar_for(int(positions.min())), len(values)
        block, row = (self._furthest(values) >= bar).nonzero(as_tuple=True)
        if not len(row):
            return
        near = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=values.device)
        some = self.sign * values[near.clamp_max(n - 1), row[:, None]]
        pair, place = ((some >= bar[row][:, None]) & (near < n)).nonzero(as_tuple=True)
        keys = sort_keys(some[pair, place].cpu(), positions[near[pair, place].cpu()])
        rows, row = row[pair].cpu().unique(return_inverse=True)
        entering = _side_by_side(keys, row, len(rows))
        self._set(self.top.index_copy(0, rows, merged_tops(self.top[rows], entering)))

    def _furthest(self, values: Float[Tensor, "candidate row"]) -> Float[Tensor, "block row"]:
        """The largest value of each block of neighbouring candidates, or the smallest with its sign turned."""
        whole = len(values) // _BLOCK
        blocks = [values[: whole * _BLOCK].unflatten(0, (whole, _BLOCK)), values[None, whole * _BLOCK :]]
        blocks = [block for block in blocks if block.numel()]
        if self.sign > 0:
            return torch.cat([block.amax(1) for block in blocks])
        return torch.cat([block.amin(1) for block in blocks]).neg_()

    def _bar_for(self, first: int) -> Float[Tensor, " row"]:
        """What a value must reach to enter, when all positions are at least `first`: an equal one must come earlier."""
        if first > self._latest:
            return self._above
        if first <= self._earliest:
            return self._last
        return torch.where((first > self._positions).to(self._device), self._above, self._last)

    def _set(self, top: Int[Tensor, "row k"]) -> None:
        self.top = top
        last = top[:, -1]
        self._full = not bool((last == EMPTY).any())
        self._positions = positions_of(last)
        self._earliest, self._latest = (int(end) for end in self._positions.aminmax())
        bar = values_of(last)
        self._last = bar.to(self._device)
        self._above = bar.nextafter(torch.full_like(bar, torch.inf)).to(self._device)


def _side_by_side(
    keys: Int[Tensor, " candidate"], row: Int[Tensor, " candidate"], n_rows: int
) -> Int[Tensor, "row most"]:
    """Each row's keys, filled up with empty ones."""
    counts = row.bincount(minlength=n_rows)
    order = row.argsort()
    place = torch.arange(len(row)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    filled = torch.full((n_rows, int(counts.max())), EMPTY)
    filled[row[order], place] = keys[order]
    return filled
