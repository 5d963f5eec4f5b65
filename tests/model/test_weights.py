"""The weights under their names: the same numbers, writable where it is said, restored where it is promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from model import GPT
from model.errors import InputError

MakeGPT = Callable[..., GPT]


def test_the_tied_matrix_is_one_matrix(make_gpt: MakeGPT) -> None:
    tied, untied = make_gpt(), make_gpt(tie_embeddings=False)
    assert tied.unembed.weight is tied.embed.weight
    assert untied.unembed.weight is not untied.embed.weight
    tied.loss(torch.arange(10)[None]).backward()
    torch.optim.SGD(tied.parameters(), lr=0.1).step()
    assert torch.equal(tied.W_U, tied.W_E.T)


@pytest.mark.parametrize("name", ["W_E", "W_U", "W_pos", "W_Q", "W_O", "W_in", "b_O"])
def test_a_snapshot_is_not_the_model(make_gpt: MakeGPT, tokens: Tensor, name: str) -> None:
    gpt = make_gpt(positions="learned", biases=True)
    clean = gpt(tokens)
    getattr(gpt, name).add_(1.0)
    assert torch.equal(gpt(tokens), clean)


def test_grouped_heads_are_expanded_for_the_heads_that_share_them(make_gpt: MakeGPT) -> None:
    gpt = make_gpt(n_kv_heads=2, biases=True)
    assert gpt.W_K.shape == gpt.W_Q.shape == (2, 4, 32, 8)
    assert torch.equal(gpt.W_K[:, 0], gpt.W_K[:, 1])
    assert torch.equal(gpt.b_V[:, 2], gpt.b_V[:, 3])
    assert not torch.equal(gpt.W_K[:, 1], gpt.W_K[:, 2])


def test_writing_into_a_view_changes_the_model_and_the_edit_ends_with_its_block(tiny: GPT, tokens: Tensor) -> None:
    clean = tiny(tokens)
    with pytest.raises(ZeroDivisionError), tiny.weights_edited():  # noqa: PT012
        tiny.blocks[0].attn.W_O[2] = 0.0
        silenced = tiny.run_with_hooks(tokens, [("blocks.0.attn.hook_z", lambda z, hook: None)])
        assert (tiny.run_with_cache(tokens, "blocks.0.attn.hook_result")[1]["result", 0][:, :, 2] == 0).all()
        assert not torch.equal(silenced, clean)
        raise ZeroDivisionError
    assert torch.equal(tiny(tokens), clean)


@pytest.mark.parametrize("norm", ["pre", "post", "reordered", "none"])
@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("ffn", ["gelu", "none"])
def test_the_folded_unembedding_gives_logits_up_to_the_scale(
    make_gpt: MakeGPT, norm: str, norm_kind: str, ffn: str
) -> None:
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, ffn=ffn)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    final = gpt.final_norm
    expected = gpt.unembed(x if final is None else final(x))
    scale = 1 if final is None else final.scale(x)
    torch.testing.assert_close(x @ gpt.folded_unembed() / scale, expected, rtol=1e-4, atol=1e-4)


def test_every_parameter_belongs_to_one_group(make_gpt: MakeGPT) -> None:
    gpt = make_gpt(
        ffn="swiglu", biases=True, tie_embeddings=False, positions="learned", qk_norm=True, smeared_keys=True
    )
    groups = gpt.parameter_groups()
    names = [name for members in groups.values() for name, _ in members]
    assert sorted(names) == sorted(name for name, _ in gpt.named_parameters())
    assert {"L0.W_Q", "L1.W_gate", "L1.norms", "L0.biases", "L0.k_smear", "embed", "pos_embed", "ln_final"} <= set(
        groups
    )


def test_what_a_model_does_not_have_is_said(make_gpt: MakeGPT) -> None:
    with pytest.raises(InputError, match="ffn=gelu has no W_gate"):
        make_gpt().W_gate  # noqa: B018
    with pytest.raises(InputError, match="attention-only"):
        make_gpt(ffn="none").W_in  # noqa: B018
    with pytest.raises(InputError, match="positions=rope has no W_pos"):
        make_gpt().W_pos  # noqa: B018
    with pytest.raises(InputError, match="smeared_keys=false: every key is the token's own"):
        make_gpt().own_key_share  # noqa: B018


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(make_gpt: MakeGPT) -> None:
    config = make_gpt().config
    torch.manual_seed(123)
    assert torch.equal(GPT(config, seed=1).W_Q, GPT(config, seed=1).W_Q)
    assert not torch.equal(GPT(config, seed=1).W_Q, GPT(config, seed=2).W_Q)


def test_initial_weights_have_the_stated_spread(make_gpt: MakeGPT) -> None:
    wide = {"d_model": 256, "n_heads": 4, "biases": True}
    base = make_gpt().config.varied(**wide, embed_std=0.5)
    gpt2, xavier = GPT(base.varied(init="gpt2")), GPT(base.varied(init="xavier"))
    deep = GPT(base.varied(init="xavier", norm="deepnorm"))
    assert gpt2.W_E.std().item() == pytest.approx(0.5, rel=0.02)
    assert gpt2.W_Q.std().item() == pytest.approx(0.02, rel=0.02)
    assert gpt2.W_O.std().item() == pytest.approx(0.02 / 2, rel=0.02)  # sqrt(2 n_layers) = 2
    assert xavier.W_in.std().item() == pytest.approx((2 / (256 + 1024)) ** 0.5, rel=0.02)
    assert (deep.W_V.std() / xavier.W_V.std()).item() == pytest.approx(16**-0.25, rel=0.02)
    assert (deep.W_Q.std() / xavier.W_Q.std()).item() == pytest.approx(1, rel=0.02)
    assert (gpt2.b_in == 0).all()
