"""Our model computes what TransformerLens's native one computes: logits, and the hooks that it gets right.

Rotary with RMSNorm, and GPT-2's learned positions with LayerNorm. TransformerLens 4.3's native model rotates
neighbouring dimensions; ours rotates the two halves, so queries and keys go over with their dimensions interleaved, and
are compared after putting them back. Its `hook_attn_scores` is the pattern again, and it has no rotated queries or
results: left out, and the last test says so of this version. The library is imported where it is used: `make test-slow`
installs it, and collecting the tests does not need it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench.native_lens import theirs_with_our_weights
from tests.conftest import make_gpt_with
from tests.model.variants import name_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the library's own deprecations are not ours to answer for
]

TOLERANCE = 1e-5
IN_A_LAYER = (
    *("hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out"),
    *("attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_pattern", "attn.hook_z", "mlp.hook_pre", "mlp.hook_post"),
    *("ln1.hook_scale", "ln1.hook_normalized", "ln1.hook_out", "ln2.hook_scale", "ln2.hook_normalized", "ln2.hook_out"),
)
OUTSIDE = ("hook_embed", "ln_final.hook_scale", "ln_final.hook_normalized", "ln_final.hook_out")
VARIANTS: list[dict[str, Any]] = [
    {},
    {"ffn": "swiglu"},
    {"n_kv_heads": 2},
    {"biases": True, "ffn": "gelu_tanh", "tie_embeddings": False},
    {"norm_kind": "layernorm", "positions": "learned", "biases": True, "ffn": "gelu_tanh"},
]


def ours_again(heads: Tensor) -> Tensor:
    """The last axis, interleaved, in halves again."""
    return heads.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_logits_and_hooks_agree_with_transformer_lens(variant: dict[str, Any], tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=3, **variant)
    bridge = theirs_with_our_weights(gpt)
    rotary, gated = gpt.config.positions == "rope", ("mlp.hook_pre_linear",) if gpt.config.ffn == "swiglu" else ()
    outside = OUTSIDE if rotary else (*OUTSIDE, "hook_pos_embed")
    names = [*outside, *(f"blocks.{layer}.{hook}" for layer in range(3) for hook in (*IN_A_LAYER, *gated))]
    with torch.no_grad():
        logits, cache = gpt.run_with_cache(tokens)
        expected, theirs = bridge.run_with_cache(tokens)
    torch.testing.assert_close(logits, expected, rtol=TOLERANCE, atol=TOLERANCE)
    for name in names:
        held = ours_again(theirs[name]) if rotary and name.endswith(("hook_q", "hook_k")) else theirs[name]
        assert held.shape == cache[name].shape, name
        torch.testing.assert_close(cache[name], held, rtol=TOLERANCE, atol=TOLERANCE, msg=name)


@pytest.mark.parametrize(
    "hook", ["hook_resid_pre", "hook_mlp_out", "attn.hook_z", "attn.hook_pattern", "mlp.hook_post"]
)
def test_an_edit_moves_both_models_alike(hook: str, tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=3)
    bridge = theirs_with_our_weights(gpt)
    edit = (f"blocks.1.{hook}", lambda x, hook: x * 0.5)
    with torch.no_grad():
        ours, theirs = gpt.run_with_hooks(tokens, [edit]), bridge.run_with_hooks(tokens, fwd_hooks=[edit])
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=2 * TOLERANCE)  # logits of size 20
        assert (ours - gpt(tokens)).abs().max() > 0.1


def test_their_edit_of_resid_mid_reaches_the_ffn_alone_as_ours_of_mlp_in(tokens: Tensor) -> None:
    """Read, it is the stream; edited, the native model adds the FFN's output to the unedited one. Ours goes on."""
    gpt = make_gpt_with(n_layers=3)
    bridge = theirs_with_our_weights(gpt)

    def half(x: Tensor, hook: Any) -> Tensor:
        return x * 0.5

    with torch.no_grad():
        theirs = bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.1.hook_resid_mid", half)])
        mid = gpt.run_with_hooks(tokens, [("blocks.1.hook_resid_mid", half)])
        mlp_in = gpt.run_with_hooks(tokens, [("blocks.1.hook_mlp_in", half)])
    torch.testing.assert_close(mlp_in, theirs, rtol=TOLERANCE, atol=2 * TOLERANCE)
    assert (mid - theirs).abs().max() > 1


def test_what_is_left_out_of_the_comparison_is_not_there_or_not_right_there(tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=1)
    bridge = theirs_with_our_weights(gpt)
    with torch.no_grad():
        _, ours = gpt.run_with_cache(tokens)
        _, theirs = bridge.run_with_cache(tokens)
    scores, pattern = theirs["attn_scores", 0], theirs["pattern", 0]
    assert torch.equal(scores, pattern)
    torch.testing.assert_close(ours["attn_scores", 0].softmax(-1), pattern)
    assert "blocks.0.attn.hook_rot_q" not in theirs
    with pytest.raises(NotImplementedError):
        bridge.set_use_attn_result(True)
