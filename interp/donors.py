"""Which other sequences each sequence takes from when it is resampled."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from model.errors import InputError

LEAST_DONORS = 8
"""Fewer say more about themselves than about the place (metrics of one donor scatter as much as the effect)."""


def donor_rows(
    donors: Int[Tensor, "donor donor_pos"],
    tokens: Int[Tensor, "batch pos"],
    rows: Sequence[int],
    n_donors: int,
    seed: int,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
) -> Int[Tensor, "batch draw"]:
    """For each sequence, `n_donors` different rows of `donors`, none of which is (or begins with) that sequence.

    `rows` number the sequences: seed and number decide, whatever else is in the batch. Numbers are on the CPU.

    Raises:
        InputError: fewer sequences to draw from than that.
    """
    donors, tokens = donors.cpu(), tokens.cpu()
    found = []
    for number, (row, sequence) in enumerate(zip(rows, tokens, strict=True)):
        real = sequence if attention_mask is None else sequence[attention_mask[number].bool().cpu()]
        others = (donors[:, : len(real)] != real).any(dim=1).nonzero()[:, 0]
        if len(others) < n_donors:
            raise InputError(
                f"resample draws {n_donors} other sequences, and sequence {row} has {len(others)} to draw from; give "
                "more donors."
            )
        generator = torch.Generator().manual_seed(_STRIDE * seed + row)
        found.append(others[torch.randperm(len(others), generator=generator)[:n_donors]])
    return torch.stack(found)


_STRIDE = 1_000_003
"""Seeds lie so far apart that no two of them share a row's draw."""
