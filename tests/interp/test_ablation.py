"""Ablations put exactly what they say exactly where they say, on every kind of model, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ablation import ablated, hooks_for, mean_activations, sites_of
from interp.places import Intervention
from model.config import FFNKind, GPTConfig, Init, Norm, NormKind, Positions
from model.errors import InputError
from model.gpt import GPT
from model.kv_cache import KeyValueCache

SMALL = GPTConfig(
    n_layers=2,
    n_heads=4,
    d_model=32,
    n_ctx=24,
    d_vocab=50,
    biases=True,
    norm_kind=NormKind.LAYERNORM,
    embed_std=1.0,
    init=Init.XAVIER,
)


def model(**changes: Any) -> GPT:
    """A small model with biases that are not zero."""
    gpt = GPT(SMALL.varied(**changes), seed=1).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in gpt.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return gpt


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def others() -> Tensor:
    """The stated other sequences that means are taken from."""
    return torch.randint(50, (16, 24), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("norm", list(Norm))
def test_ablating_every_head_leaves_the_output_bias(norm: Norm, tokens: Tensor):
    gpt = model(norm=norm)
    with ablated(gpt, "L0.attn:zero,L1.attn:zero"):
        _, cache = gpt.run_with_cache(tokens)
    for layer, block in enumerate(gpt.layers):
        written = block.attn.o_proj.bias.expand(3, 12, -1)
        after = getattr(block, "ln1_post", None)
        expected = written if after is None else after(written)
        torch.testing.assert_close(cache["attn_out", layer], expected.detach())


def test_ablating_everything_leaves_the_embedding_and_the_biases(tokens: Tensor):
    gpt = model()
    with ablated(gpt, "L0.attn,L1.attn,L0.ffn,L1.ffn", intervention=Intervention.ZERO):
        logits = gpt(tokens)
    stream = gpt.embed(tokens)
    for block in gpt.layers:
        stream = stream + block.attn.o_proj.bias + block.mlp.out_proj.bias
    torch.testing.assert_close(logits, gpt.unembed_stream(stream))


def test_ablating_the_heads_one_by_one_is_ablating_the_sublayer(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    with ablated(gpt, "L1H0,L1H1,L1H2,L1H3:mean", means):
        one_by_one = gpt(tokens)
    with ablated(gpt, "L1.attn:mean", means):
        assert torch.equal(gpt(tokens), one_by_one)


def test_a_silenced_head_costs_nothing_to_ablate(tokens: Tensor):
    gpt = model()
    gpt.layers[1].attn.W_O[2].zero_()
    clean = gpt(tokens)
    with ablated(gpt, "L1H2:zero"):
        assert torch.equal(gpt(tokens), clean)
    with ablated(gpt, "L1H1:zero"):
        assert not torch.allclose(gpt(tokens), clean)


@pytest.mark.parametrize("norm", list(Norm))
def test_zeroing_a_head_is_taking_away_what_it_writes(norm: Norm, tokens: Tensor):
    """Against the weights: the model whose W_O slice is zero is the model with the head ablated."""
    gpt = model(norm=norm)
    with ablated(gpt, "L0H3:zero"):
        by_hook = gpt(tokens)
    gpt.layers[0].attn.W_O[3].zero_()
    torch.testing.assert_close(by_hook, gpt(tokens))


def test_ablating_a_memory_is_taking_away_its_value(tokens: Tensor):
    gpt = model()
    with ablated(gpt, "L1M5:zero"):
        by_hook = gpt(tokens)
    gpt.layers[1].mlp.W_out[5].zero_()
    torch.testing.assert_close(by_hook, gpt(tokens))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_that_share_keys_are_ablated_one_at_a_time(kv_heads: int, tokens: Tensor):
    gpt = model(n_kv_heads=kv_heads)
    with ablated(gpt, "L0H1:zero"):
        _, cache = gpt.run_with_cache(tokens, ["blocks.0.attn.hook_z"])
    silent = cache["z", 0].abs().sum(dim=(0, 1, 3)) == 0
    assert silent.tolist() == [False, True, False, False]


def test_the_mean_is_over_sequences_and_positions_and_at_pos_over_sequences(others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others", batch_size=5)
    _, cache = gpt.run_with_cache(others, ["blocks.1.attn.hook_z"])
    z = cache["z", 1]
    torch.testing.assert_close(means.overall("blocks.1.attn.hook_z"), z.mean(dim=(0, 1)))
    torch.testing.assert_close(means.at("blocks.1.attn.hook_z"), z.mean(dim=0))
    assert means.n_sequences == 16


def test_a_mean_is_put_in_its_place_and_nowhere_else(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    _, clean = gpt.run_with_cache(tokens)
    with ablated(gpt, "L1H1:mean,L1H3:mean@pos", means):
        _, cache = gpt.run_with_cache(tokens)
    site = "blocks.1.attn.hook_z"
    z = cache[site]
    assert torch.equal(z[:, :, 1], means.overall(site)[1].expand(3, 12, -1))
    assert torch.equal(z[:, :, 3], means.at(site)[:12, 3].expand(3, -1, -1))
    assert torch.equal(z[:, :, [0, 2]], clean[site][:, :, [0, 2]])


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("intervention", [Intervention.ZERO, Intervention.MEAN, Intervention.MEAN_PER_POSITION])
def test_an_ablation_never_lets_the_future_reach_the_past(
    norm: Norm, intervention: Intervention, tokens: Tensor, others: Tensor
):
    gpt = model(norm=norm)
    means = mean_activations(gpt, others, source="others")
    changed = tokens.clone()
    changed[:, 8:] = (changed[:, 8:] + 17) % 50
    with ablated(gpt, "L0H1,L1H2,L0M3,L1.ffn", means, intervention):
        assert torch.equal(gpt(tokens)[:, :8], gpt(changed)[:, :8])
        assert not torch.equal(gpt(tokens)[:, 8:], gpt(changed)[:, 8:])


@pytest.mark.parametrize("positions", list(Positions))
@pytest.mark.parametrize("intervention", [Intervention.ZERO, Intervention.MEAN, Intervention.MEAN_PER_POSITION])
def test_the_key_value_cache_changes_no_logit_of_an_ablated_model(
    positions: Positions, intervention: Intervention, tokens: Tensor, others: Tensor
):
    gpt = model(positions=positions)
    means = mean_activations(gpt, others, source="others")
    with ablated(gpt, "L0H1,L1H2,L0M3,L1M7", means, intervention), torch.no_grad():
        whole = gpt(tokens)
        cache = KeyValueCache(gpt.config, len(tokens), device=gpt.device, dtype=gpt.dtype)
        pieces = [gpt(tokens[:, :5], kv_cache=cache)]
        pieces += [gpt(tokens[:, t : t + 1], kv_cache=cache) for t in range(5, 12)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_an_ablated_model_generates_the_same_text_with_and_without_the_cache(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    with ablated(gpt, "L0H1,L1H0:mean@pos", means):
        cached, recomputed = (
            gpt.generate(tokens, max_new_tokens=10, temperature=0.0, use_kv_cache=on) for on in (True, False)
        )
    assert torch.equal(cached, recomputed)


def test_padding_shifts_an_ablation_by_position_with_the_tokens(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    padded = torch.cat([torch.zeros(3, 2, dtype=torch.long), tokens], dim=1)
    mask = torch.ones_like(padded, dtype=torch.bool)
    mask[:, :2] = False
    with ablated(gpt, "L0H1,L1H0:mean@pos", means):
        torch.testing.assert_close(gpt(padded, mask)[:, 2:], gpt(tokens), atol=1e-5, rtol=1e-5)


def test_no_ablation_outlives_its_block_even_when_something_raises(tokens: Tensor):
    gpt = model()
    clean = gpt(tokens)
    with pytest.raises(RuntimeError, match="boom"), ablated(gpt, "L0H1:zero"):
        raise RuntimeError("boom")
    with pytest.raises(InputError, match="token id"), ablated(gpt, "L0.attn:zero"):
        gpt(tokens + 1000)
    assert torch.equal(gpt(tokens), clean)


def test_taking_means_changes_nothing(tokens: Tensor, others: Tensor):
    gpt = model()
    clean = gpt(tokens)
    mean_activations(gpt, others, source="others")
    assert torch.equal(gpt(tokens), clean)


def test_means_missing_or_too_short_or_of_other_places_are_named(tokens: Tensor, others: Tensor):
    gpt = model()
    with pytest.raises(InputError, match=r"L0H1:mean needs means\. Pass means=mean_activations"):
        hooks_for(gpt, "L0H1")
    short = mean_activations(gpt, others[:, :6], source="others")
    uncovered = r"L0H1:mean@pos was asked at position 11, but its means cover positions 0 to 5"
    with pytest.raises(InputError, match=uncovered), ablated(gpt, "L0H1:mean@pos", short):
        gpt(tokens)
    with pytest.raises(InputError, match=r"no mean of blocks\.1\.mlp\.hook_post was taken"):
        hooks_for(gpt, "L1M3:mean", mean_activations(gpt, others, source="others", places=[*_heads("L0H1")]))
    with pytest.raises(InputError, match="at least one sequence"):
        mean_activations(gpt, others[:0], source="nothing")


def test_an_attention_only_model_has_means_of_its_heads_only(others: Tensor):
    gpt = model(ffn=FFNKind.NONE)
    assert sites_of(gpt) == ["blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]
    assert set(mean_activations(gpt, others, source="others").by_site) == set(sites_of(gpt))


def _heads(text: str) -> Any:
    from interp.places import parse_places

    return parse_places(text)


def test_means_of_a_model_with_live_dropout_are_refused(others: Tensor):
    with pytest.raises(InputError, match=r"dropout=0\.1, so runs differ by chance; call gpt\.eval\(\)"):
        mean_activations(model(dropout=0.1).train(), others, source="others")
