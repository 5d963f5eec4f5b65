"""Looking at one text in one model: its tokens, every head's attention on them, every memory's coefficient."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention_bases import SIGNED, next_tokens, signed_attention, weighted_attention
from interp.stimuli import longest_period, ordinary_ids, repeated_tokens
from model.errors import InputError
from model.settings import as_enum
from model.sites import Tap

if TYPE_CHECKING:
    from model.lab import Lab

LONGEST_REPEAT = 16
"""Tokens of the random segment at most: two copies of more are hard to see."""


class LiveText(StrEnum):
    """Which text to look at."""

    PROMPT = "prompt"
    """The text that was typed."""

    REPEATS = "repeats"
    """Random tokens, twice."""

    HELD_OUT = "held-out"
    """The beginning of a held-out row."""


class Basis(StrEnum):
    """In which unit attention is told (`interp.attention_bases`)."""

    RAW = "raw"
    """Shares: each query's sum to 1."""

    WEIGHTED = "value-weighted"
    """Times the length of what the key sends: in units of the stream, and no row sums to anything in particular."""

    SIGNED = "signed"
    """What each key adds to the logit of the token that follows the query, less the mean logit."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """One text in one model."""

    tokens: tuple[str, ...]
    """One printable string per position."""

    pattern: Float[Tensor, "layer head query key"]
    """Attention of every head; rows sum to 1."""

    source: str
    """What the text is, in words: its split, seed and length."""


@torch.no_grad()
def look(lab: Lab, text: LiveText | str, prompt: str) -> Live:
    """Run the text through the model once, reading every pattern."""
    tokens, source = live_tokens(lab, text, prompt)
    layers = range(lab.config.n_layers)
    names = [str(Tap.PATTERN.at(layer)) for layer in layers]
    _, cache = lab.gpt.run_with_cache(tokens[None], names_filter=names, return_type=None)
    pattern = torch.stack([cache[name][0].float() for name in names])
    return Live(tokens=tuple(lab.str_tokens(tokens)), pattern=pattern.cpu(), source=source)


@torch.no_grad()
def attention_in(
    lab: Lab, basis: Basis | str, text: LiveText | str, prompt: str
) -> Float[Tensor, "layer head query key"]:
    """Every head's attention on the text, in one of three bases.

    Behind the last token nothing follows, so its signed row is about the token that the model gives most.

    Raises:
        NotAdditiveError: signed contributions to logits are asked of a model whose stream is not a sum.
    """
    match as_enum(Basis, basis, "basis"):
        case Basis.RAW:
            return look(lab, text, prompt).pattern
        case Basis.WEIGHTED:
            tokens, _ = live_tokens(lab, text, prompt)
            found = [weighted_attention(lab.gpt, tokens[None], layer).weighted for layer in range(lab.config.n_layers)]
        case Basis.SIGNED:
            lab.config.require_additive_stream(SIGNED)
            tokens, _ = live_tokens(lab, text, prompt)
            targets = next_tokens(tokens[None], after=int(_given_most(lab, tokens)))
            found = [
                signed_attention(lab.gpt, tokens[None], layer, targets).contribution
                for layer in range(lab.config.n_layers)
            ]
    return torch.cat([each.float() for each in found]).cpu()


@torch.no_grad()
def after_last(lab: Lab, text: LiveText | str, prompt: str) -> str:
    """The token that the model gives most behind the text: what the last signed row of `attention_in` is about."""
    tokens, _ = live_tokens(lab, text, prompt)
    return lab.str_tokens(_given_most(lab, tokens)[None])[0]


def _given_most(lab: Lab, tokens: Int[Tensor, " pos"]) -> Int[Tensor, ""]:
    return lab.gpt(tokens[None])[0, -1].argmax()


@torch.no_grad()
def coefficients(lab: Lab, text: LiveText | str, prompt: str, layer: int) -> Float[Tensor, "pos memory"]:
    """The coefficient of every memory of one layer at every position of the text; layers above it are not run."""
    tokens, _ = live_tokens(lab, text, prompt)
    place = Tap.MLP_POST.at(layer)
    _, cache = lab.gpt.run_with_cache(tokens[None], place, stop_at_layer=layer + 1, return_type=None)
    return cache[place][0].float().cpu()


def live_tokens(lab: Lab, text: LiveText | str, prompt: str) -> tuple[Int[Tensor, " pos"], str]:
    """Return the tokens of the text and what they are, in words.

    Raises:
        InputError: the prompt is empty, or has characters that the tokenizer does not know.
    """
    bos, n_ctx = lab.tokenizer.bos, lab.config.n_ctx
    match as_enum(LiveText, text, "text"):
        case LiveText.REPEATS:
            period = min(LONGEST_REPEAT, longest_period(n_ctx, bos=bos))
            tokens = repeated_tokens(1, period, ordinary_ids(lab.tokenizer), seed=0, bos=bos)[0]
            return tokens.to(lab.gpt.device), f"n = 1: {period} random tokens, twice, seed 0"
        case LiveText.HELD_OUT:
            return lab.eval_tokens[0, :n_ctx], "n = 1: the first held-out row"
        case LiveText.PROMPT:
            tokens = lab.tokens(prompt)[0]
    if len(tokens) < 2:
        raise InputError("the prompt is empty; type some text for the model to read")
    cut = "" if len(tokens) <= n_ctx else f", cut from {len(tokens)} to the context's {n_ctx}"
    return tokens[:n_ctx], f"n = 1: your prompt, {min(len(tokens), n_ctx)} tokens{cut}"
