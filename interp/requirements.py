"""What a model must be before a number about it means anything, refused in one sentence where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model.config import AttentionKind
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT


def require_deterministic(gpt: GPT) -> None:
    """Refuse a model whose dropout is on: two runs of it differ by chance."""
    if gpt.training and gpt.config.dropout > 0:
        raise InputError(
            f"the model trains with dropout={gpt.config.dropout}, so runs differ by chance; call gpt.eval()."
        )


def require_next_token(gpt: GPT) -> None:
    """Refuse a model that sees the token it would have to predict."""
    if gpt.config.attention is AttentionKind.BIDIRECTIONAL:
        raise InputError(
            "a bidirectional model sees the next token, so its next-token loss means nothing; use a causal model."
        )


def require_causal_patterns(gpt: GPT) -> None:
    """Refuse a model whose queries see later keys: scores and their chance levels count the earlier ones only."""
    if gpt.config.attention is AttentionKind.BIDIRECTIONAL:
        raise InputError(
            "a bidirectional model attends to later tokens, and scores and their chance levels are for causal "
            "attention; use a causal model."
        )


def targets_for(gpt: GPT, tokens: Tensor, targets: Tensor | int) -> Tensor:
    """One token of the vocabulary for every position: the given ones, or the given one everywhere."""
    if isinstance(targets, int) and not isinstance(targets, bool):
        targets = torch.full_like(tokens, targets)
    if not isinstance(targets, Tensor):
        raise InputError(
            f"{targets!r:.60} is not a token id; give one id for all positions (of a text: lab.tokenizer.encode), or a "
            f"tensor with one for each, {tuple(tokens.shape)}."
        )
    if targets.shape != tokens.shape:
        raise InputError(
            f"targets have shape {tuple(targets.shape)}; give one token for each of the positions, "
            f"{tuple(tokens.shape)}."
        )
    gpt.check_tokens(targets)
    return targets.to(gpt.device)
