"""The config describes the model exactly, or says why it cannot."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model import GPT, FFNKind, GPTConfig, Norm, NormKind, Positions
from model.errors import ConfigError, NotAdditiveError

SIZES = {"n_layers": 2, "n_heads": 4, "d_model": 32, "n_ctx": 24, "d_vocab": 50}


def test_gpt2_small_has_124439808_parameters_by_formula_and_by_count() -> None:
    config = GPTConfig(
        **{"n_layers": 12, "n_heads": 12, "d_model": 768, "n_ctx": 1024, "d_vocab": 50257},
        **{"positions": "learned", "norm_kind": "layernorm", "ffn": "gelu_tanh", "biases": True},
    )
    with torch.device("meta"):
        shapes = [torch.empty(shape) for shape in _shapes_of_gpt2()]
    assert config.n_params == 124_439_808 == sum(shape.numel() for shape in shapes)


def _shapes_of_gpt2() -> list[tuple[int, ...]]:
    block = [(768, 2304), (2304,), (768, 768), (768,), (768, 3072), (3072,), (3072, 768), (768,), *[(768,)] * 4]
    return [(50257, 768), (1024, 768), *block * 12, (768,), (768,)]


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("norm_kind", NormKind)
def test_the_parameter_formula_counts_the_tensors(norm: Norm, norm_kind: NormKind) -> None:
    extras = itertools.cycle(itertools.product([False, True], [False, True], [1, 4]))
    for (positions, ffn), (biases, tied, n_kv_heads) in zip(
        itertools.product(Positions, FFNKind), extras, strict=False
    ):
        config = GPTConfig(
            **SIZES, norm=norm, norm_kind=norm_kind, positions=positions, ffn=ffn, biases=biases, qk_norm=biases,
            tie_embeddings=tied, n_kv_heads=n_kv_heads, smeared_keys=not tied,
        )  # fmt: skip
        assert config.n_params == sum(parameter.numel() for parameter in GPT(config).parameters()), config


@pytest.mark.parametrize(
    "choice", [{}, {"ffn": "swiglu", "n_kv_heads": 2, "d_head": 10}, {"ffn": "none"}, {"smeared_keys": True}]
)
def test_the_flop_formula_agrees_with_a_counter(choice: dict) -> None:
    gpt, n_pos = GPT(GPTConfig(**(SIZES | choice))), 10
    with FlopCounterMode(display=False) as counter, gpt.explicit_attention():
        gpt(torch.zeros(3, n_pos, dtype=torch.long))
    assert counter.get_total_flops() == 3 * n_pos * gpt.config.flops_per_token(n_pos)


def test_what_is_left_out_follows_and_follows_again_after_a_change() -> None:
    config = GPTConfig(**SIZES)
    assert (config.d_head, config.n_kv_heads, config.d_ff) == (8, 4, 128)
    wider = config.varied(d_model=64, n_heads=8)
    assert (wider.d_head, wider.n_kv_heads, wider.d_ff) == (8, 8, 256)
    assert config.varied(d_head=16).varied(d_model=64).d_head == 16


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"d_model": 130}, "d_model=130 does not divide into n_heads=4 heads; take d_model=128 or 132"),
        ({"n_kv_heads": 3}, "cannot share n_kv_heads=3 evenly"),
        ({"d_head": 7}, "d_head=7 is odd, and rope rotates pairs"),
        ({"norm": "pots"}, 'norm="pots" is not one of pre, post, .* Did you mean "post"'),
        ({"n_layers": 0}, "n_layers=0 is not a size"),
        ({"d_vocab": 2.5}, "d_vocab=2.5 is not a size"),
        ({"dropout": 1.0}, "dropout=1.0 is not a share"),
        ({"dropout": "0.1"}, "dropout='0.1' is not a finite number"),
        ({"norm_eps": float("inf")}, "norm_eps=inf is not a finite number"),
        ({"biases": "false"}, "biases='false' is neither true nor false"),
        ({"n_layer": 2}, 'There is no setting "n_layer". Did you mean "n_layers"'),
    ],
)
def test_an_impossible_config_is_refused_in_a_sentence(wrong: dict, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        GPTConfig(**(SIZES | wrong))


def test_capabilities_follow_the_placement() -> None:
    additive = {norm: GPTConfig(**SIZES, norm=norm) for norm in Norm}
    assert [norm.value for norm, c in additive.items() if not c.additive_stream] == ["post", "deepnorm"]
    assert [norm.value for norm, c in additive.items() if c.additive_heads] == ["pre", "scaled", "none"]
    with pytest.raises(NotAdditiveError, match="direct logit attribution needs a residual stream that is a sum"):
        additive[Norm.POST].require_additive_stream("direct logit attribution")
