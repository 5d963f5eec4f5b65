"""The exact largest k per column while many values pass and few of them enter (`interp.topk` says what is kept).

One comparison of a batch's column maxima with each column's k-th value finds the few columns in which something may
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
        bar = self._bar_for(int(positions.min()))
        furthest = values.amax(0) if self.sign > 0 else values.amin(0).neg_()
        rows = (furthest >= bar).nonzero()[:, 0]
        if not len(rows):
            return
        few = values.index_select(1, rows)
        few = few if self.sign > 0 else few.neg_()
        candidate, row = (few >= bar[rows]).nonzero(as_tuple=True)
        keys = sort_keys(few[candidate, row].cpu(), positions[candidate.cpu()])
        rows = rows.cpu()
        entering = _side_by_side(keys, row.cpu(), len(rows))
        self._set(self.top.index_copy(0, rows, merged_tops(self.top[rows], entering)))

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
