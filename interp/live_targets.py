"""The token that a reading of a text is about, at each position: what follows, the model's choice, or a named one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention_bases import next_tokens
from model.errors import InputError
from model.settings import as_enum
from model.sites import Tap

if TYPE_CHECKING:
    from model.lab import Lab


class Target(StrEnum):
    """Which token the rank, the log-probability and the attributed logit are of."""

    NEXT = "next"
    """The token that follows in the text."""

    OWN = "own"
    """What the model itself finds likeliest."""

    TOKEN = "token"
    """A token that is named."""


def one_token(lab: Lab, word: str) -> int:
    r"""The one token that a text is, or that is printed so, such as `\n`, `<bos>` or `\xc3`; else `InputError`."""
    unreadable = None
    try:
        ids = lab.tokenizer.encode(word)
    except InputError as error:
        ids, unreadable = [], error
    if len(ids) == 1:
        return ids[0]
    if not word:
        raise InputError("no token is named; type the text of one")
    printed = lab.tokenizer.str_tokens(list(range(lab.tokenizer.d_vocab)))
    if word in printed:
        return printed.index(word)
    if unreadable is not None:
        raise unreadable
    parts = ", ".join(repr(part) for part in lab.tokenizer.str_tokens(ids)[:4])
    more = ", ..." if len(ids) > 4 else ""
    raise InputError(f"{word[:40]!r} is {len(ids)} tokens of this model ({parts}{more}), not one; type one of them")


@torch.no_grad()
def targets_of(
    lab: Lab, tokens: Int[Tensor, " pos"], target: Target | str, word: str = "", needed: slice | None = None
) -> Int[Tensor, " pos"]:
    """The target at each position; only those that are `needed` are right where the model must be run for them."""
    match as_enum(Target, target, "target"):
        case Target.TOKEN:
            return torch.full_like(tokens, one_token(lab, word))
        case Target.OWN:
            wanted, found = needed or slice(None), torch.zeros_like(tokens)
            found[wanted] = lab.gpt.unembed_stream(last_stream(lab, tokens, wanted)).argmax(-1)
            return found
        case Target.NEXT:
            after = lab.gpt.unembed_stream(last_stream(lab, tokens, slice(-1, None))).argmax(-1)
            return next_tokens(tokens[None], after=int(after))[0]


def last_stream(lab: Lab, tokens: Tensor, wanted: slice) -> Float[Tensor, "pos d_model"]:
    """What the final norm, or W_U, reads; logits over the whole vocabulary are made of no more than is wanted."""
    place = Tap.RESID_POST.at(lab.config.n_layers - 1)
    _, cache = lab.gpt.run_with_cache(tokens[None], str(place), return_type=None, pos_slice=wanted)
    return cache[place][0]
