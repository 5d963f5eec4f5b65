"""Scores split by rope's frequencies: the parts are the whole, and a planted band is where it was put."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.rotary_bands import band_scores, frequencies, pair_bands
from model import GPT, GPTConfig, Tap
from model.errors import InputError, UnknownNameError
from tests.conftest import make_gpt_with
from tests.model.variants import name_of

VARIANTS: list[dict[str, Any]] = [
    {},
    {"n_kv_heads": 2, "biases": True},
    {"qk_norm": True},
    {"smeared_keys": True},
    {"norm": "post"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
@pytest.mark.parametrize("first_key", [0, 2])
def test_bands_add_up_to_the_scores_of_the_run(variant: dict[str, Any], first_key: int, tokens: Tensor) -> None:
    gpt = make_gpt_with(**variant).double()
    found = band_scores(gpt, tokens, 1, first_key=first_key, batch_size=2)
    _, cache = gpt.run_with_cache(tokens, [Tap.ATTN_SCORES.at(1), Tap.PATTERN.at(1)])
    assert found.mean.shape == (4, 12 - first_key, 4)
    for distance in range(12 - first_key):
        scores, pattern = (
            cache[name, 1].diagonal(-distance, 2, 3)[..., first_key:] for name in ("attn_scores", "pattern")
        )
        assert found.n_pairs[distance] == scores[:, 0].numel()
        torch.testing.assert_close(found.score[:, distance], scores.mean((0, 2)))
        torch.testing.assert_close(found.attention[:, distance], pattern.mean((0, 2)))
        weighted = (scores * pattern).sum((0, 2)) / pattern.sum((0, 2))
        torch.testing.assert_close(found.attended_score[:, distance], weighted)


def test_sizes_are_those_of_queries_and_keys(tokens: Tensor) -> None:
    gpt = make_gpt_with(n_kv_heads=2).double()
    found = band_scores(gpt, tokens, 0)
    _, cache = gpt.run_with_cache(tokens, [Tap.Q.at(0), Tap.K.at(0)])
    q = cache["q", 0].square().mean((0, 1))
    torch.testing.assert_close(found.query_norm, (q[:, :4] + q[:, 4:]).sqrt())  # a turn changes no size
    k = cache["k", 0].square().mean((0, 1))
    torch.testing.assert_close(found.key_norm[3], (k[1, :4] + k[1, 4:]).sqrt())
    assert found.frequency.tolist() == pytest.approx([1, 0.1, 0.01, 0.001])
    assert found.wavelength[0] == pytest.approx(2 * math.pi)
    assert found.n_tokens == 36


def one_band(band: int, shift: float) -> GPT:
    """Heads read a constant; L0H1's query and key lie in one plane, the query `shift` radians ahead of the key."""
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 16, "d_head": 8, "n_ctx": 40, "d_vocab": 10}
    gpt = GPT(GPTConfig(**sizes, norm="none", ffn="none")).eval()
    attention = gpt.layers[0].attn
    with torch.no_grad():
        gpt.embed.weight[:, 0] = 1.0
        attention.W_Q.zero_(), attention.W_K.zero_()
        attention.W_Q[1][0, [band, band + 4]] = torch.tensor([math.cos(shift), math.sin(shift)])
        attention.W_K[1][0, band] = 3.0
    return gpt


@pytest.mark.parametrize("band", [0, 1, 3])
def test_a_planted_band_is_found_with_its_course_over_distance(band: int) -> None:
    gpt = one_band(band, shift=-0.4)
    tokens = torch.randint(0, 10, (2, 30), generator=torch.Generator().manual_seed(0))
    found = band_scores(gpt, tokens, 0)
    turned = torch.arange(29) * frequencies(gpt.config)[band] - 0.4
    expected = torch.zeros(29, 4, dtype=torch.float64)
    expected[:, band] = 3 * turned.cos() / math.sqrt(8)
    torch.testing.assert_close(found.mean[1], expected, rtol=1e-5, atol=1e-6)
    assert found.mean[0].abs().max() == 0
    assert found.range_over_distances[1].argmax() == band
    assert found.key_norm[1, band] == pytest.approx(3)
    # All pairs at a distance are alike here, so attention picks none of them by content.
    torch.testing.assert_close(found.attended, found.mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", [{}, {"biases": True, "norm_kind": "layernorm", "n_kv_heads": 2}], ids=name_of)
def test_bands_of_single_vectors_are_those_of_the_run(variant: dict[str, Any], tokens: Tensor) -> None:
    gpt = make_gpt_with(**variant).double()
    _, cache = gpt.run_with_cache(tokens)
    x = cache[Tap.LN1_NORMALIZED.at(1)]
    found = pair_bands(gpt, "L1H2", x[:, 9], x[:, 4], [5, 0])
    assert found.shape == (3, 2, 4)
    torch.testing.assert_close(found[:, 0].sum(-1), cache["attn_scores", 1][:, 2, 9, 4])
    assert pair_bands(gpt, "L1H2", x[:, 9], x[:, 4]).shape == (3, 24, 4)


def test_a_pattern_of_few_sequences_is_held_however_many_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gpt, held = make_gpt_with(), []
    run_with_cache = gpt.run_with_cache

    def watched(*given: Any, **named: Any) -> Any:
        found = run_with_cache(*given, **named)
        held.append(max(found[1][place].numel() for place in found[1]))
        return found

    monkeypatch.setattr(gpt, "run_with_cache", watched)
    monkeypatch.setattr("interp.rotary_bands._NUMBERS_AT_ONCE", 4 * 4 * 12 * 12)
    band_scores(gpt, torch.zeros(50, 12, dtype=torch.long), 1)
    assert len(held) == 13
    assert max(held) == 4 * 4 * 12 * 12


def test_sums_are_the_same_however_the_text_is_cut_into_batches(tokens: Tensor) -> None:
    gpt = make_gpt_with()
    whole, parts = (band_scores(gpt, tokens, 1, batch_size=size) for size in (3, 1))
    torch.testing.assert_close(whole.mean, parts.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole.attended, parts.attended, rtol=1e-5, atol=1e-6)


def test_what_has_no_bands_is_refused(tokens: Tensor) -> None:
    for positions in ("learned", "alibi", "none"):
        with pytest.raises(InputError, match=f"positions={positions} turns nothing"):
            band_scores(make_gpt_with(positions=positions), tokens, 0)
    with pytest.raises(InputError, match="a bidirectional model attends to later tokens"):
        band_scores(make_gpt_with(attention="bidirectional"), tokens, 0)
    with pytest.raises(InputError, match="layer=9 is not a layer of this model; layers run from 0 to 1"):
        band_scores(make_gpt_with(), tokens, 9)
    with pytest.raises(InputError, match=r"of shape \[batch, pos\], not empty"):
        band_scores(make_gpt_with(), tokens[:0], 0)
    with pytest.raises(InputError, match="give one from 0 to 11"):
        band_scores(make_gpt_with(), tokens, 0, first_key=12)
    with pytest.raises(InputError, match="qk_norm=true"):
        pair_bands(make_gpt_with(qk_norm=True), "L0H0", torch.ones(1, 32), torch.ones(1, 32))
    with pytest.raises(UnknownNameError):
        pair_bands(make_gpt_with(), "L9H0", torch.ones(1, 32), torch.ones(1, 32))
