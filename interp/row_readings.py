"""What single units hold at the ends of many short inputs, each fed as it is (for trigger deletions and gate signs).

Rows of all lengths go through the model together, sorted by length and padded on the right, which a causal model's
earlier positions cannot see. The pass stops at the layer that is read, and of what it holds only the asked unit's
values at the last two positions are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.memory_stream import fitting_windows
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT


@torch.no_grad()
def read_ends(
    gpt: GPT, layer: int, taps: Sequence[Tap], rows: Sequence[Sequence[int]], units: Sequence[int]
) -> Float[Tensor, "tap row place"]:
    """What each row's unit holds at the row's last position (place 0) and at the one before it (place 1).

    A row of one token has nothing before it: NaN.
    """
    found = torch.full((len(taps), len(rows), 2), torch.nan)
    for chosen in _batches(gpt, rows):
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(rows[i]) for i in chosen], batch_first=True)
        last = torch.tensor([len(rows[i]) - 1 for i in chosen])
        unit = torch.tensor([units[i] for i in chosen])
        hooks = [(tap.at(layer), _taking(found[place], chosen, last, unit)) for place, tap in enumerate(taps)]
        gpt.run_with_hooks(padded.to(gpt.device), fwd_hooks=hooks, stop_at_layer=layer + 1, return_type=None)
    found[:, torch.tensor([len(row) < 2 for row in rows], dtype=torch.bool), 1] = torch.nan
    return found


def _taking(found: Tensor, chosen: Sequence[int], last: Tensor, unit: Tensor) -> Callable[[Tensor, object], None]:
    def take(held: Tensor, hook: object) -> None:
        del hook
        row, device = torch.arange(len(chosen), device=held.device), held.device
        for place in (0, 1):
            at = (last - place).clamp_min(0).to(device)
            found[torch.tensor(chosen), place] = held[row, at, unit.to(device)].float().cpu()

    return take


def _batches(gpt: GPT, rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Which rows are fed together: neighbours in length, no more than fit."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    while order:
        size = fitting_windows(gpt.config, len(rows[order[-1]]), _TOGETHER)
        order, batch = order[:-size], order[-size:]
        yield batch


_TOGETHER = 64
"""Rows at a time; fewer where a large model's coefficients would not fit."""
