"""Continuing a text, one token at a time.

With the key-value cache each step computes one position; without it each step recomputes all. Both give the same
tokens, also under hooks, as long as a hook treats positions by `hook.positions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from model.config import AttentionKind
from model.errors import InputError
from model.kv_cache import KeyValueCache

if TYPE_CHECKING:
    from model.gpt import GPT


def generate(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    *,
    max_new_tokens: int = 32,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    use_kv_cache: bool = True,
    attention_mask: Tensor | None = None,
) -> Int[Tensor, "batch all_pos"]:
    """The tokens with `max_new_tokens` more.

    Args:
        gpt: the model.
        tokens: the prompts.
        max_new_tokens: how many to add; all of them together must fit n_ctx (the last one needs no position).
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: sample among the k likeliest tokens.
        top_p: sample among the fewest tokens that together have this probability.
        seed: names the random numbers; the same seed gives the same text.
        use_kv_cache: compute one position a step instead of all; the same tokens, faster.
        attention_mask: [batch, pos], true for tokens, false for the padding of shorter prompts (left).
    """
    _check(gpt, tokens, max_new_tokens, temperature, top_k, top_p)
    mask = _mask_of_all(tokens, attention_mask, max_new_tokens)
    generator = torch.Generator(device=tokens.device).manual_seed(seed)
    text = F.pad(tokens.long(), (0, max_new_tokens))
    # What hooks see may be kept and differentiated later; where nobody looks, inference mode is cheaper.
    with torch.no_grad() if gpt.hooked else torch.inference_mode():
        cache = KeyValueCache(gpt.config, len(tokens), device=gpt.device, dtype=gpt.dtype) if use_kv_cache else None
        for end in range(tokens.shape[1], text.shape[1]):
            start = 0 if cache is None else cache.length
            logits = gpt._unchecked(text[:, start:end], None if mask is None else mask[:, :end], kv_cache=cache)
            text[:, end] = _sample(logits[:, -1], temperature, top_k, top_p, generator)
    return text


def _check(
    gpt: GPT, tokens: Tensor, max_new_tokens: int, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    config = gpt.config
    gpt.check_tokens(tokens)
    if config.attention is AttentionKind.BIDIRECTIONAL:
        raise InputError("a bidirectional model cannot generate: it was never asked for a next token.")
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise InputError(f"max_new_tokens={max_new_tokens} must be a whole number of at least 1.")
    # The last token is returned but never read, so it needs no position.
    if tokens.shape[1] + max_new_tokens - 1 > config.n_ctx:
        room = config.n_ctx - tokens.shape[1] + 1
        raise InputError(
            f"{tokens.shape[1]} tokens and {max_new_tokens} more exceed n_ctx={config.n_ctx}; "
            + (f"ask for at most {room}." if room > 0 else "give a shorter prompt.")
        )
    if temperature < 0:
        raise InputError(
            f"temperature={temperature} is negative; give 0 for the likeliest token, or a positive number."
        )
    if top_k is not None and not 1 <= top_k <= config.d_vocab:
        raise InputError(f"top_k={top_k} is outside 1 to d_vocab={config.d_vocab}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p={top_p} is not a probability above 0 and up to 1.")


def _mask_of_all(
    tokens: Tensor, attention_mask: Tensor | None, max_new_tokens: int
) -> Bool[Tensor, "batch all_pos"] | None:
    """The mask over prompts and what is added to them; None if nothing is padded."""
    if attention_mask is None:
        return None
    if attention_mask.shape != tokens.shape:
        raise InputError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; it must cover the prompts, {tuple(tokens.shape)}."
        )
    mask = attention_mask.bool()
    if not bool(mask[:, -1].all()):
        raise InputError("attention_mask ends in padding; pad shorter prompts on the left, so that all end together.")
    return None if bool(mask.all()) else F.pad(mask, (0, max_new_tokens), value=True)


def _sample(
    logits: Float[Tensor, "batch d_vocab"],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator,
) -> Int[Tensor, " batch"]:
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    if top_k is not None:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -torch.inf)
    if top_p is not None:
        ranked = logits.sort(descending=True)
        probabilities = ranked.values.softmax(-1)
        beyond = probabilities.cumsum(-1) - probabilities >= top_p  # the first token is never beyond
        logits = logits.masked_fill(beyond.scatter(-1, ranked.indices, beyond), -torch.inf)
    probabilities = logits.softmax(-1)
    # The first of independent clocks to ring, each ringing at its token's rate, names a token with its probability.
    return (probabilities / torch.empty_like(probabilities).exponential_(generator=generator)).argmax(-1)
