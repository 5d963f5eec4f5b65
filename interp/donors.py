"""Other sequences to take values from: donors, drawn for each sequence from its kind, and corrupted twins.

What cannot serve is refused here, before anything runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from model.errors import InputError

LEAST_DONORS = 8
"""One donor scatters about as much as the effect; fewer than these say more about themselves than about a place."""


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
            raise _too_few(n_donors, row, len(others))
        generator = torch.Generator().manual_seed(_STRIDE * seed + row)
        found.append(others[torch.randperm(len(others), generator=generator)[:n_donors]])
    return torch.stack(found)


def require_donors(
    what: str,
    donors: Int[Tensor, "donor donor_pos"],
    tokens: Int[Tensor, "sequence pos"],
    rows: Sequence[int],
    n_donors: int,
) -> None:
    """Refuse donors that are too short, or too few beside a sequence itself."""
    n_pos = tokens.shape[1]
    if donors.shape[1] < n_pos:
        raise InputError(
            f"{what} takes what donors hold at the same position; they have {donors.shape[1]} positions and the "
            f"sequences {n_pos}. Give donors as long."
        )
    same = Counter(row.tobytes() for row in donors[:, :n_pos].long().cpu().numpy())
    for row, sequence in zip(rows, tokens.long().cpu().numpy(), strict=True):
        n_others = len(donors) - same[sequence.tobytes()]
        if n_others < n_donors:
            raise _too_few(n_donors, row, n_others)


def require_twins(
    what: str,
    twins: Int[Tensor, "twin twin_pos"],
    tokens: Int[Tensor, "sequence pos"],
    rows: Sequence[int],
) -> None:
    """Refuse twins of another length, too few of them, and a twin that is the sequence itself."""
    if twins.shape[1] != tokens.shape[1]:
        raise InputError(
            f"{what} takes what the corrupted twin holds at the same position; twins have {twins.shape[1]} positions "
            f"and the sequences {tokens.shape[1]}. Give twins as long."
        )
    if max(rows) >= len(twins):
        raise InputError(
            f"{what} needs a twin for sequence {max(rows)}, and there are {len(twins)}; give one for each."
        )
    same = (twins[list(rows)].to(tokens.device) == tokens).all(dim=1).nonzero()[:, 0].tolist()
    if same:
        raise InputError(
            f"{what} would put into sequence {rows[same[0]]} what it holds anyway: its twin is the sequence itself. "
            "Corrupt it, or leave it out."
        )


def _too_few(n_donors: int, row: int, n_others: int) -> InputError:
    return InputError(
        f"resample draws {n_donors} other sequences, and sequence {row} has {n_others} to draw from; give more donors."
    )


_STRIDE = 1_000_003
"""Seeds lie so far apart that no two of them share a row's draw."""
