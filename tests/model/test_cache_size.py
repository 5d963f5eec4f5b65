"""What a cache will hold is known exactly before it is filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from model import GPT, cache_bytes
from model.errors import InputError

MakeGPT = Callable[..., GPT]

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "ffn": "swiglu"},
    {"norm": "sandwich", "n_kv_heads": 2},
    {"positions": "learned", "ffn": "none"},
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("wanted", [None, lambda name: True, "blocks.0.attn.hook_pattern"])
@pytest.mark.parametrize("pos_slice", [None, -1, slice(2, 5), [0, 3, 4]])
def test_the_bytes_of_a_cache_are_known_before_the_run(
    make_gpt: MakeGPT, variant: dict[str, Any], wanted: Any, pos_slice: Any
) -> None:
    gpt = make_gpt(**variant)
    with gpt.hooks([("hook_embed", lambda x, hook: 1 / 0)]):
        told = cache_bytes(gpt, 3, 12, wanted, pos_slice=pos_slice)
    _, cache = gpt.run_with_cache(torch.zeros(3, 12, dtype=torch.long), wanted, pos_slice=pos_slice)
    assert told == cache.n_bytes


def test_the_size_of_a_cache_grows_with_the_batch_and_the_square_of_the_text_only_where_it_must(tiny: GPT) -> None:
    streams: Callable[[str], bool] = lambda name: "resid" in name  # noqa: E731
    pattern = "blocks.1.attn.hook_pattern"
    assert cache_bytes(tiny, 8, 12) == 8 * cache_bytes(tiny, 1, 12)
    assert cache_bytes(tiny, 1, 24, streams) == 2 * cache_bytes(tiny, 1, 12, streams)
    assert cache_bytes(tiny, 1, 24, pattern) == 4 * cache_bytes(tiny, 1, 12, pattern)
    assert cache_bytes(tiny.to(torch.bfloat16), 1, 12, streams) == 5 * 12 * 32 * 2
    with pytest.raises(InputError, match="1 sequences of 25 positions cannot be run; .* 1 to n_ctx=24"):
        cache_bytes(tiny, 1, 25)
