"""Folded weights say what heads do to the stream: their scores, and what they write, are the run's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.folding import folded_heads, folded_unembed
from interp.offsets import resolve_offsets, turned
from interp.qk_offsets import qk_circuits, score_bias
from model import GPT, Tap
from model.config import PRE_NORM_READS
from model.errors import InputError
from tests.conftest import make_gpt_with
from tests.model.variants import name_of

VARIANTS: list[dict[str, Any]] = [
    {},
    {"n_kv_heads": 2, "biases": True},
    {"norm_kind": "layernorm", "biases": True},
    {"norm_kind": "layernorm", "biases": True, "positions": "learned"},
    {"positions": "alibi"},
    {"positions": "sinusoidal"},
    {"positions": "none", "attention": "bidirectional"},
    {"attention": "bidirectional"},
    *({"norm": norm} for norm in ("post", "sandwich", "reordered", "deepnorm", "scaled", "none")),
    {"norm": "sandwich", "norm_kind": "layernorm", "biases": True},
    {"norm": "scaled", "norm_kind": "layernorm", "biases": True},
    {"norm": "reordered", "norm_kind": "layernorm"},
]


def read_by_heads(gpt: GPT, cache, layer: int) -> Tensor:
    """The stream divided by the norm's scale, as heads read it."""
    through_norm = gpt.config.norm in PRE_NORM_READS
    return cache[(Tap.LN1_NORMALIZED if through_norm else Tap.RESID_PRE).at(layer)]


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_scores_of_a_run_are_the_qk_circuit_of_their_offset(variant: dict[str, Any], tokens: Tensor) -> None:
    """score(i, j) = x_i QK(i - j) x_j^T / sqrt(d_head) + bias terms + mask, at every pair, to fp64 rounding."""
    gpt = make_gpt_with(**variant).double()
    config, heads, n_pos = gpt.config, folded_heads(gpt), tokens.shape[1]
    _, cache = gpt.run_with_cache(tokens)
    first = 0 if config.attention == "causal" else 1 - n_pos
    for offset in range(first, n_pos):
        circuits = qk_circuits(gpt, offset)
        queries, keys = slice(max(offset, 0), n_pos + min(offset, 0)), slice(max(-offset, 0), n_pos - max(offset, 0))
        for layer in range(config.n_layers):
            x = read_by_heads(gpt, cache, layer)
            score = torch.einsum(
                "bpd,hde,bpf,hfe->bhp", x[:, queries], circuits[layer].A, x[:, keys], circuits[layer].B.mT
            )
            q = torch.einsum("bpd,hde->bphe", x[:, queries], turned(heads.W_Q[layer], offset, config))
            k = torch.einsum("bpd,hde->bphe", x[:, keys], heads.W_K[layer])
            b_q, b_k = turned(heads.b_Q[layer], offset, config), heads.b_K[layer]
            score = score + (q * b_k + b_q * k + b_q * b_k).sum(-1).transpose(1, 2)
            score = score / math.sqrt(config.head_width) + score_bias(gpt, offset)[:, None]
            expected = cache["attn_scores", layer].diagonal(-offset, 2, 3)
            torch.testing.assert_close(score, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_what_a_head_writes_is_its_folded_ov_of_what_it_attends_to(variant: dict[str, Any], tokens: Tensor) -> None:
    """Up to an output norm's scale, and to the mean where every reader drops it."""
    gpt = make_gpt_with(**variant).double()
    heads = folded_heads(gpt)
    _, cache = gpt.run_with_cache(tokens)
    for layer, block in enumerate(gpt.layers):
        x = read_by_heads(gpt, cache, layer)
        values = torch.einsum("bpd,hde->bphe", x, heads.W_V[layer]) + heads.b_V[layer]
        z = torch.einsum("bhqk,bkhe->bqhe", cache["pattern", layer], values)
        written = torch.einsum("bphe,hed->bpd", z, heads.W_O[layer])
        expected = cache["z", layer].flatten(2) @ block.attn.o_proj.weight.T
        if block.ln1_post is not None:
            centred = expected - expected.mean(-1, keepdim=True) if block.ln1_post.centres else expected
            expected = centred * block.ln1_post.w
        if gpt.config.norm_kind == "layernorm":
            written, expected = (each - each.mean(-1, keepdim=True) for each in (written, expected))
        torch.testing.assert_close(written, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["rmsnorm", "layernorm"])
def test_the_folded_unembedding_is_the_models_in_fp64(kind: str) -> None:
    gpt = make_gpt_with(norm_kind=kind, tie_embeddings=False)
    assert folded_unembed(gpt).dtype == torch.float64
    torch.testing.assert_close(folded_unembed(gpt).float(), gpt.folded_unembed())


def test_without_rope_one_matrix_serves_every_offset_and_with_it_none() -> None:
    still, turning = make_gpt_with(positions="alibi"), make_gpt_with()
    assert torch.equal(qk_circuits(still, 0).A, qk_circuits(still, 7).A)
    assert not torch.allclose(qk_circuits(turning, 0).AB, qk_circuits(turning, 1).AB)
    # Whatever the offset, the first plane and all others only turn: their sizes stay.
    torch.testing.assert_close(qk_circuits(turning, 0).A.norm(), qk_circuits(turning, 7).A.norm())


def test_alibis_penalty_is_described_beside_the_circuit() -> None:
    gpt = make_gpt_with(positions="alibi")
    assert score_bias(gpt, 3).tolist() == [-3 * slope for slope in (0.25, 0.0625, 0.015625, 0.00390625)]
    assert score_bias(make_gpt_with(), 3).tolist() == [0] * 4


@pytest.mark.parametrize(
    ("variant", "sentence"),
    [
        ({"qk_norm": True}, "qk_norm=true: queries and keys are divided by their own sizes"),
        ({"smeared_keys": True}, "smeared_keys=true: a key reads two tokens"),
    ],
)
def test_scores_that_are_no_bilinear_form_have_no_circuit(variant: dict[str, Any], sentence: str) -> None:
    gpt = make_gpt_with(**variant)
    with pytest.raises(InputError, match=sentence):
        qk_circuits(gpt)
    assert folded_heads(gpt).OV.shape == (2, 4, 32, 32)


def test_what_is_folded_is_said() -> None:
    assert folded_heads(make_gpt_with()).note == "ln1's gain folded into W_Q, W_K and W_V; its scale is not."
    centred = folded_heads(make_gpt_with(norm_kind="layernorm", norm="scaled", biases=True)).note
    assert "ln1's gain and centring, and the constant 1/sqrt(layer), folded" in centred
    assert "W_O is centred" in centred
    assert "biases are left out" in centred
    assert (
        "ln1_post's gain is folded into W_O; its scale, set by all heads"
        in folded_heads(make_gpt_with(norm="reordered")).note
    )
    assert "passes the norms on the sum" in folded_heads(make_gpt_with(norm="post")).note


def test_offsets_are_those_a_model_can_have() -> None:
    config = make_gpt_with().config
    assert resolve_offsets(config, None) == tuple(range(24))
    assert resolve_offsets(config, 3) == (3,)
    assert resolve_offsets(config.varied(positions="learned"), None) == (0,)
    longer = resolve_offsets(config.varied(n_ctx=2048), None)
    assert (len(longer), longer[0], longer[-1]) == (64, 0, 2047)
    both_ways = resolve_offsets(config.varied(attention="bidirectional"), None)
    assert (both_ways[0], both_ways[-1], len(both_ways)) == (-23, 23, 47)
    with pytest.raises(InputError, match="give one or more from 0 to 23"):
        resolve_offsets(config, [3, -1])
