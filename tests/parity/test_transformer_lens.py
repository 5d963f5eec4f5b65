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

from model import GPT
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


def theirs_with_our_weights(gpt: GPT):
    """TransformerLens's native model with the weights of `gpt`."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    config = gpt.config
    sizes = {each: getattr(config, each) for each in ("n_layers", "n_heads", "d_model", "n_ctx", "d_head", "d_vocab")}
    rotary = {"positional_embedding_type": "rotary", "rotary_base": int(config.rope_base), "rotary_dim": config.d_head}
    activation = {"gelu": "gelu", "gelu_tanh": "gelu_new", "swiglu": "silu"}[config.ffn]
    bridge = TransformerBridge.boot_native(
        TransformerBridgeConfig(
            **sizes,
            **{"d_mlp": config.d_ff, "act_fn": activation, "gated_mlp": config.ffn == "swiglu"},
            **{"n_key_value_heads": config.n_kv_heads, "eps": config.norm_eps, "init_weights": False},
            **{"normalization_type": "RMS" if config.norm_kind == "rmsnorm" else "LN"},
            **(rotary if config.positions == "rope" else {"positional_embedding_type": "standard"}),
        )
    )
    state = bridge.state_dict()  # shares memory with the parameters
    weights = weights_in_their_layout(gpt)
    # What we give must exist there; what we do not have are biases, and those are zero.
    assert set(weights) <= set(state)
    assert all(name.endswith(".bias") for name in set(state) - set(weights))
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(weights.get(name, torch.zeros(())))
    return bridge.eval()


def weights_in_their_layout(gpt: GPT) -> dict[str, Tensor]:
    linears = {"unembed": gpt.unembed}
    weights, norms = {"embed.weight": gpt.embed.weight}, {"ln_final": gpt.ln_final}
    weights |= {} if gpt.pos_embed is None else {"pos_embed.weight": gpt.pos_embed.weight}
    for layer, block in enumerate(gpt.layers):
        at, attn, mlp = f"blocks.{layer}", block.attn, block.mlp
        linears |= {f"{at}.attn.{name}": getattr(attn, f"{name}_proj") for name in "qkvo"}
        linears |= {f"{at}.mlp.in": mlp.in_proj, f"{at}.mlp.out": mlp.out_proj}
        linears |= {} if mlp.gate_proj is None else {f"{at}.mlp.gate": mlp.gate_proj}
        norms |= {f"{at}.ln1": block.ln1, f"{at}.ln2": block.ln2}
    for name, norm in norms.items():
        weights |= {f"{name}.weight": norm.w} if norm.b is None else {f"{name}.weight": norm.w, f"{name}.bias": norm.b}
    for name, linear in linears.items():
        rotated = name.endswith((".q", ".k")) and gpt.config.positions == "rope"
        weights[f"{name}.weight"] = interleaved(linear.weight, gpt) if rotated else linear.weight
        if linear.bias is not None:
            weights[f"{name}.bias"] = interleaved(linear.bias, gpt) if rotated else linear.bias
    return weights


def interleaved(rows: Tensor, gpt: GPT) -> Tensor:
    """Rows of queries or keys, head by head, with the two halves of d_head interleaved."""
    return rows.unflatten(0, (-1, 2, gpt.config.head_width // 2)).transpose(1, 2).flatten(0, 2)


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
