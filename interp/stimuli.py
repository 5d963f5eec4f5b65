"""Token sequences that ask a head a question: a random segment, and the same segment again.

After `[BOS] s s` a head that matches content attends from a token of the second copy to what followed it in the first
(Olsson et al. 2022). Three precautions make the answer mean something: tokens are drawn without replacement inside a
segment, so every token has exactly one earlier copy; several periods are used, one of them never seen in training;
and a control re-orders the second copy, so that a head which has merely learned a distance keeps its score there and
a head that matches content does not.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from model.errors import InputError

if TYPE_CHECKING:
    from model.tokenizer import Tokenizer

Ids = int | range | Int[Tensor, " ids"]
"""A vocabulary to draw from: its size, a range, or the ids themselves."""


def repeated_tokens(
    n: int, period: int, ids: Ids, *, n_copies: int = 2, seed: int = 0, bos: int | None = None
) -> Int[Tensor, "n pos"]:
    """`n` random segments of `period` distinct tokens, each repeated `n_copies` times, behind a BOS if one is given.

    >>> repeated_tokens(1, 2, range(5, 7), bos=0).tolist() in ([[0, 5, 6, 5, 6]], [[0, 6, 5, 6, 5]])
    True
    """
    if period < 2 or n_copies < 2 or n < 1:
        raise InputError(
            f"n={n}, period={period}, n_copies={n_copies} repeat nothing; give n >= 1 and 2 or more of both."
        )
    pool = pool_of(ids, period, bos)
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(n, len(pool), generator=generator).argsort(1)[:, :period]
    return _behind_bos(pool[order].repeat(1, n_copies), bos)


def random_tokens(n: int, length: int, ids: Ids, *, seed: int = 0, bos: int | None = None) -> Int[Tensor, "n pos"]:
    """`n` random segments of `length` distinct tokens, each once, behind a BOS if one is given.

    >>> random_tokens(1, 2, range(5, 7), bos=0).tolist() in ([[0, 5, 6]], [[0, 6, 5]])
    True
    """
    return repeated_tokens(n, length, ids, seed=seed, bos=bos)[:, : length + (bos is not None)]


def ordinary_ids(tokenizer: Tokenizer) -> Int[Tensor, " ids"]:
    """The ids that stand for text: none that is special, and none that only pads the vocabulary.

    >>> from model.tokenizer import ByteTokenizer
    >>> len(ordinary_ids(ByteTokenizer()))
    256
    """
    return torch.tensor([token for token, raw in enumerate(tokenizer.token_bytes) if raw])


def reordered(tokens: Int[Tensor, "n pos"], period: int, *, seed: int = 0) -> Int[Tensor, "n pos"]:
    """The control: every copy but the first in a new random order, one for each sequence; `tokens` are not changed.

    The same tokens come again, yet no fixed distance leads from a token to what followed its earlier copy.
    """
    start = copy_start(tokens.shape[1], period)
    generator = torch.Generator().manual_seed(_another(seed))
    copies = tokens[:, start + period :].unflatten(1, (-1, period))
    order = torch.rand(copies.shape, generator=generator).argsort(2).to(tokens.device)
    return torch.cat([tokens[:, : start + period], copies.gather(2, order).flatten(1)], dim=1)


def other_first_copy(tokens: Int[Tensor, "n pos"], period: int, ids: Ids, *, seed: int = 0) -> Int[Tensor, "n pos"]:
    """The corrupted twins: the same copies but for the first, which becomes a segment of other tokens.

    So nothing that follows has an earlier copy, and nothing can be copied from the first segment. Where the vocabulary
    has too few other tokens, the first copy takes back some of its own, in reverse: then no two tokens follow each
    other as they do in the copies. `tokens` are not changed.

    >>> other_first_copy(torch.tensor([[0, 5, 6, 5, 6]]), 2, range(5, 9)).tolist()[0][3:]
    [5, 6]
    """
    start = copy_start(tokens.shape[1], period)
    first = tokens[:, start : start + period].cpu()
    pool, generator = pool_of(ids, period), torch.Generator().manual_seed(_another(seed))
    twins = []
    for segment in first:
        others = pool[~torch.isin(pool, segment)]
        others = others[torch.randperm(len(others), generator=generator)][:period]
        twins.append(torch.cat([others, segment.flip(0)[len(others) :]]))
    changed = torch.stack(twins).to(tokens.device)
    return torch.cat([tokens[:, :start], changed, tokens[:, start + period :]], dim=1)


def copy_start(n_pos: int, period: int) -> int:
    """Where the first copy begins: 1 behind a BOS, else 0.

    >>> copy_start(41, period=20)
    1
    """
    start = n_pos % period if period > 1 else -1
    if start not in (0, 1) or n_pos < 2 * period:
        raise InputError(
            f"{n_pos} positions are not whole copies of {period} tokens, with or without a BOS before them. Make them "
            "with repeated_tokens and pass its period, at least 2."
        )
    return start


def longest_period(n_ctx: int, *, bos: int | None, n_copies: int = 2) -> int:
    """The longest period whose copies fit into the context.

    >>> longest_period(64, bos=256)
    31
    """
    return (n_ctx - (bos is not None)) // n_copies


def check_period(period: int, n_ctx: int, *, bos: int | None, n_copies: int = 2) -> None:
    """Raise `InputError` where `period` does not fit into the context `n_copies` times."""
    longest = longest_period(n_ctx, bos=bos, n_copies=n_copies)
    if not 2 <= period <= longest:
        needed = n_copies * period + (bos is not None)
        raise InputError(
            f"A period of {period} needs {needed} positions and this model has n_ctx={n_ctx}; "
            f"choose a period from 2 to {longest}."
        )


def pool_of(ids: Ids, period: int, bos: int | None = None) -> Int[Tensor, " ids"]:
    """The ids to draw `period` different ones from, never the BOS itself; refuses too few."""
    pool = ids.cpu() if isinstance(ids, Tensor) else torch.tensor(range(ids) if isinstance(ids, int) else ids)
    pool = pool if bos is None else pool[pool != bos]
    if period > len(pool):
        raise InputError(
            f"A period of {period} needs as many different tokens; the vocabulary has {len(pool)} to draw from."
        )
    return pool


def _behind_bos(tokens: Tensor, bos: int | None) -> Tensor:
    return tokens if bos is None else torch.nn.functional.pad(tokens, (1, 0), value=bos)


def _another(seed: int) -> int:
    """A seed of its own for the control: by that of the tokens the two orders could be one and the same."""
    return int.from_bytes(hashlib.sha256(f"reordered/{seed}".encode()).digest()[:8], "little", signed=True)
