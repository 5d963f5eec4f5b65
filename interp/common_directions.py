"""Directions that everything in the stream shares, and taking them out.

Token embeddings of trained models have a large mean. Whatever reads or writes along it scores with everything else
that does, which says nothing about tokens: scores and the spread of their nulls are inflated alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from model.errors import InputError

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT

Basis = Float[Tensor, "direction d_model"]
"""Orthonormal rows, of which there may be none."""


def embedding_mean(gpt: GPT) -> Float[Tensor, "one d_model"]:
    """The mean token embedding, every token of the vocabulary counted once."""
    return gpt.W_E.double().mean(0, keepdim=True)


def top_directions(gpt: GPT, n: int = 1) -> Float[Tensor, "direction d_model"]:
    """The `n` directions along which token embeddings are largest, their mean not taken off."""
    table = gpt.W_E.double()
    _, vectors = torch.linalg.eigh(table.mT @ table)
    return vectors.mT.flip(0)[:n]


def orthonormal(config: GPTConfig, *directions: Tensor | None) -> Basis:
    """Orthonormal rows that span the given rows; fp64, on the CPU.

    Raises:
        InputError: something that is no table of directions of the stream, or that leaves nothing of it.
    """
    given = [torch.zeros(0, config.d_model, dtype=torch.float64)]
    for rows in directions:
        if rows is None:
            continue
        if rows.ndim != 2 or rows.shape[1] != config.d_model or not rows.isfinite().all():
            raise InputError(
                f"without={list(rows.shape)} are no directions of the stream; "
                f"give finite rows of {config.d_model} numbers."
            )
        given.append(rows.detach().double().cpu())
    _, sizes, basis = torch.linalg.svd(torch.cat(given), full_matrices=False)
    basis = basis[sizes > 1e-10 * sizes.sum()]
    if len(basis) > config.d_model - 2:
        raise InputError(
            f"without= leaves {config.d_model - len(basis)} of {config.d_model} dimensions of the stream to compare; "
            f"take out fewer directions, so that 2 or more are left."
        )
    return basis


def outside(
    vectors: Float[Tensor, "*axes d_model"], basis: Float[Tensor, "direction d_model"]
) -> Float[Tensor, "*axes d_model"]:
    """Rows without their components along the basis."""
    return vectors - (vectors @ basis.mT) @ basis


def removal_note(n: int) -> str:
    """That `n` directions were taken out, in a sentence; nothing for none."""
    return f" {n} direction{'s' if n > 1 else ''} taken out of what is written and what is read." if n else ""
