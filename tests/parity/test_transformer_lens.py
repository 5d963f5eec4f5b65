"""Our rotary RMSNorm model computes what TransformerLens's native one computes: logits, and the hooks that it gets
right.

TransformerLens 4.3's native model rotates neighbouring dimensions; ours rotates the two halves, so queries and keys
go over with their dimensions interleaved. Its `hook_attn_scores` is the pattern again, and it has no rotated queries
or results; those are left out here because there is nothing right to compare with. The library is imported where it
is used: `make test-slow` installs it, and collecting the tests does not need it.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model import GPT
from tests.conftest import make_gpt_with

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the library's own deprecations are not ours to answer for
]

COMPARED = (
    *("hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out"),
    *("attn.hook_v", "attn.hook_pattern", "attn.hook_z", "mlp.hook_pre", "mlp.hook_post"),
    *("ln1.hook_scale", "ln1.hook_normalized", "ln2.hook_scale", "ln2.hook_normalized"),
)


def theirs_with_our_weights(gpt: GPT):
    """TransformerLens's native model with the weights of `gpt`."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    config = gpt.config
    bridge = TransformerBridge.boot_native(
        TransformerBridgeConfig(
            **{
                "n_layers": config.n_layers,
                "n_heads": config.n_heads,
                "d_model": config.d_model,
                "n_ctx": config.n_ctx,
            },
            **{"d_head": config.d_head, "d_mlp": config.d_ff, "d_vocab": config.d_vocab, "act_fn": "gelu"},
            **{"normalization_type": "RMS", "positional_embedding_type": "rotary", "eps": config.norm_eps},
            **{"rotary_base": int(config.rope_base), "rotary_dim": config.d_head, "init_weights": False},
        )
    )
    state = bridge.state_dict()  # shares memory with the parameters
    weights = weights_in_their_layout(gpt)
    assert set(state) - set(weights) == {"unembed.bias"}
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(weights.get(name, torch.zeros(())))
    return bridge.eval()


def weights_in_their_layout(gpt: GPT) -> dict[str, Tensor]:
    interleaved = torch.arange(gpt.config.d_head).view(2, -1).T.flatten()
    weights = {"embed.weight": gpt.W_E, "unembed.weight": gpt.W_U.T, "ln_final.weight": gpt.ln_final.w}
    for layer, block in enumerate(gpt.layers):
        attn, at = block.attn, f"blocks.{layer}"
        for name, linear in (("q", attn.q_proj), ("k", attn.k_proj), ("v", attn.v_proj)):
            heads = linear.weight.unflatten(0, (gpt.config.n_heads, -1))
            rows = heads[:, interleaved] if name != "v" else heads
            weights[f"{at}.attn.{name}.weight"] = rows.flatten(0, 1)
            weights[f"{at}.attn.{name}.bias"] = torch.zeros(heads.shape[0] * heads.shape[1])
        weights[f"{at}.attn.o.weight"] = attn.o_proj.weight
        weights[f"{at}.attn.o.bias"] = torch.zeros(gpt.config.d_model)
        weights[f"{at}.mlp.in.weight"], weights[f"{at}.mlp.out.weight"] = (
            block.mlp.in_proj.weight,
            block.mlp.out_proj.weight,
        )
        weights[f"{at}.mlp.in.bias"] = torch.zeros(gpt.config.d_ff)
        weights[f"{at}.mlp.out.bias"] = torch.zeros(gpt.config.d_model)
        weights[f"{at}.ln1.weight"], weights[f"{at}.ln2.weight"] = block.ln1.w, block.ln2.w
    return weights


def test_logits_and_hooks_agree_with_transformer_lens(tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=3)
    bridge = theirs_with_our_weights(gpt)
    with torch.no_grad():
        logits, cache = gpt.run_with_cache(tokens)
        expected, theirs = bridge.run_with_cache(tokens)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    for layer in range(3):
        for hook in COMPARED:
            name = f"blocks.{layer}.{hook}"
            ours = cache[name]
            torch.testing.assert_close(ours, theirs[name].reshape(ours.shape), rtol=1e-5, atol=1e-5, msg=name)
