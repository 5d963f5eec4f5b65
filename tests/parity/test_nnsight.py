"""nnsight wraps our module as it is: what it reads are our places, what it edits moves the logits as our hooks do.

The library is imported where it is used; `make test-slow` installs it. It reads the source of a `with` body, so the
bodies stand in functions here, each on lines of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT
from tests.conftest import make_gpt_with
from tests.model.variants import name_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the library's own deprecations are not ours to answer for
]

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "norm_kind": "layernorm", "positions": "learned", "biases": True},
    {"norm": "deepnorm"},
    {"norm": "sandwich", "ffn": "swiglu", "n_kv_heads": 2},
]


def wrapped(gpt: GPT):
    import nnsight

    return nnsight.NNsight(gpt)


def halved(x: Tensor, hook: Any) -> Tensor:
    return x * 0.5


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_what_nnsight_reads_is_what_our_hooks_read(variant: dict[str, Any], tokens: Tensor) -> None:
    gpt = make_gpt_with(**variant)
    names = [
        f"blocks.{layer}.{hook}" for layer in (0, 1) for hook in ("hook_resid_post", "attn.hook_q", "mlp.hook_post")
    ]
    logits, cache = gpt.run_with_cache(tokens, names)
    model = wrapped(gpt)
    assert model._module is gpt
    with model.trace(tokens):
        q = model.blocks[0].attn.q_proj.output.save()
        first = model.blocks[0].output.save()
        coefficients = model.blocks[1].mlp.out_proj.input.save()
        last = model.blocks[1].output.save()
        out = model.output.save()
    assert torch.equal(q, cache["q", 0].flatten(2))
    assert torch.equal(first, cache["resid_post", 0])
    assert torch.equal(coefficients, cache["post", 1])
    assert torch.equal(last, cache["resid_post", 1])
    assert torch.equal(out, logits)


def test_an_edit_through_nnsight_is_the_same_edit_by_our_hook(tiny: GPT, tokens: Tensor) -> None:
    ours = tiny.run_with_hooks(tokens, [("blocks.0.hook_mlp_out", halved)])
    zeroed = tiny.run_with_hooks(tokens, [("blocks.1.hook_attn_out", lambda x, hook: 0 * x)])
    clean = tiny(tokens)
    model = wrapped(tiny)
    with model.trace(tokens):
        model.blocks[0].mlp.output = model.blocks[0].mlp.output * 0.5
        replaced = model.output.save()
    with model.trace(tokens):
        model.blocks[1].attn.output[:] = 0
        changed_in_place = model.output.save()
    assert torch.equal(replaced, ours)
    assert torch.equal(changed_in_place, zeroed)
    assert (ours - clean).abs().max() > 0.1
    assert torch.equal(tiny(tokens), clean)


def test_our_hooks_and_nnsight_act_together(tiny: GPT, tokens: Tensor) -> None:
    def rolled(x: Tensor, hook: Any) -> Tensor:
        return x.roll(1, dims=1)

    pattern, ffn = ("blocks.1.attn.hook_pattern", rolled), ("blocks.0.hook_mlp_out", halved)
    both = tiny.run_with_hooks(tokens, [ffn, pattern])
    only_theirs = tiny.run_with_hooks(tokens, [ffn])
    model = wrapped(tiny)
    with tiny.hooks([pattern]):
        with model.trace(tokens):
            model.blocks[0].mlp.output = model.blocks[0].mlp.output * 0.5
            together = model.output.save()
    with model.trace(tokens):
        model.blocks[0].mlp.output = model.blocks[0].mlp.output * 0.5
        after = model.output.save()
    assert torch.equal(together, both)
    assert torch.equal(after, only_theirs)


def test_gradients_are_those_of_our_cache(tiny: GPT, tokens: Tensor) -> None:
    name = "blocks.0.hook_resid_post"
    _, cache = tiny.run_with_cache(tokens, name, incl_bwd=True, loss_fn=lambda logits: logits.square().sum())
    model = wrapped(tiny)
    with model.trace(tokens):
        resid = model.blocks[0].output
        loss = model.output.square().sum()
        with loss.backward():
            gradient = resid.grad.save()
    torch.testing.assert_close(gradient, cache[f"{name}_grad"])


def test_a_wrapped_model_still_generates_saves_and_trains_as_before(tiny: GPT, tokens: Tensor) -> None:
    untouched = make_gpt_with()
    model = wrapped(tiny)
    with model.trace(tokens):
        model.output.save()
    assert torch.equal(tiny.generate(tokens, max_new_tokens=5), untouched.generate(tokens, max_new_tokens=5))
    assert tiny.state_dict().keys() == untouched.state_dict().keys()
    tiny.loss(tokens).backward()
    untouched.loss(tokens).backward()
    for ours, theirs in zip(tiny.parameters(), untouched.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
