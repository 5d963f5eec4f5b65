"""Our detector gives the numbers of TransformerLens's own, run on the same attention patterns.

Theirs takes a model and a cache; it is given our patterns as the cache, and of the model only what it asks for.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.detector import HeadPattern, detect_heads
from interp.stimuli import repeated_tokens
from model import GPT
from tests.conftest import make_gpt_with
from tests.planted import induction_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the library's own deprecations are not ours to answer for
]

TOLERANCE = {"mul": 1e-6, "abs": 1e-3}
MODELS = {"random": make_gpt_with, "planted": induction_model}


def theirs(gpt: GPT, tokens: Tensor, pattern: Any, **asked: Any) -> Tensor:
    from transformer_lens.head_detector import detect_head

    _, cache = gpt.run_with_cache(tokens[None])
    patterns = {("pattern", layer, "attn"): cache["pattern", layer][0] for layer in range(gpt.config.n_layers)}
    sizes = {"n_layers": gpt.config.n_layers, "n_heads": gpt.config.n_heads, "n_ctx": gpt.config.n_ctx}
    model = SimpleNamespace(
        cfg=SimpleNamespace(**sizes, device="cpu", dtype=torch.float32), to_tokens=lambda given: given
    )
    return detect_head(model, tokens[None], pattern, cache=patterns, **asked)  # type: ignore[arg-type]


def some_tokens(d_vocab: int) -> Tensor:
    """Repeats behind a BOS, and a tail of tokens that stand twice in a row."""
    repeats = repeated_tokens(1, 8, d_vocab - 1, seed=4, bos=d_vocab - 1)[0]
    return torch.cat([repeats, repeats[-1:], repeats[-1:], repeats[3:6]])


@pytest.mark.parametrize("current", [False, True])
@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("measure", ["mul", "abs"])
@pytest.mark.parametrize("pattern", [*(each.value for each in HeadPattern), "own", "proportions"])
@pytest.mark.parametrize("model", MODELS)
def test_every_head_gets_their_number(model: str, pattern: str, measure: str, bos: bool, current: bool) -> None:
    gpt = MODELS[model]()
    tokens = some_tokens(gpt.config.d_vocab)
    drawn = torch.rand(len(tokens), len(tokens), generator=torch.Generator().manual_seed(1)).tril()
    given = {"own": (drawn > 0.7).float(), "proportions": drawn / drawn.sum(-1, keepdim=True)}.get(pattern, pattern)
    asked: dict[str, Any] = {"error_measure": measure, "exclude_bos": bos, "exclude_current_token": current}
    ours = detect_heads(gpt, tokens, given, **asked)
    expected = theirs(gpt, tokens, given, **asked)
    torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE[measure], equal_nan=True)


def test_some_heads_and_the_mean_of_several_sequences_are_theirs() -> None:
    gpt = make_gpt_with()
    heads = [(0, 1), (1, 3)]
    tokens = torch.stack([some_tokens(49), some_tokens(49).flip(0)])
    ours = detect_heads(gpt, tokens, "induction_head", heads=heads, exclude_bos=True)
    each = [theirs(gpt, row, "induction_head", heads=heads, exclude_bos=True) for row in tokens]
    torch.testing.assert_close(ours, torch.stack(each).mean(0), rtol=0, atol=1e-6)
