"""Composition from weights: nulls that are what they say, planted pairs that stand out, dense products (T2)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from interp.common_directions import embedding_mean, top_directions
from interp.component_composition import component_composition
from interp.composition import composition
from interp.composition_algebra import (
    Kind,
    Over,
    Plan,
    concentration_of_readers,
    concentration_of_writers,
    layers_of,
    readers_of,
    rotation_moments,
    scores_between,
    writers_of,
)
from interp.folding import folded_heads
from model import GPT, GPTConfig
from model.errors import InputError, NotAdditiveError, UndefinedError, UnknownNameError
from tests import planted
from tests.conftest import make_gpt_with
from tests.model.variants import name_of

SIZES: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "n_ctx": 32, "d_vocab": 50}
WRITER, READER = (0, 1), (1, 2)
VARIANTS: list[dict[str, Any]] = [
    {},
    {"n_kv_heads": 2, "norm_kind": "layernorm"},
    {"positions": "alibi", "norm": "sandwich"},
    {"norm": "scaled", "positions": "learned"},
    {"norm": "reordered", "norm_kind": "layernorm"},
    {"norm": "none", "attention": "bidirectional"},
    {"biases": True, "d_head": 40},
]


def planted_in(name: str, **overrides: Any) -> GPT:
    """L1H2's W_Q, W_K or W_V reads exactly what L0H1's W_O writes; all else is random."""
    gpt = GPT(GPTConfig(**(SIZES | {"d_model": 64} | overrides)), seed=3).eval()
    with torch.no_grad():
        getattr(gpt.layers[1].attn, name)[READER[1]].copy_(gpt.layers[0].attn.W_O[WRITER[1]].T)
    return gpt


@pytest.mark.parametrize("d_model", [64, 128, 256])
def test_gaussian_heads_score_one_over_the_root_of_the_width(d_model: int) -> None:
    gpt = GPT(GPTConfig(**(SIZES | {"d_model": d_model, "n_ctx": 4})))
    found = composition(gpt)
    means = found.null_mean[:, 0, 0, 1, 0]
    assert means.shape == (3,)
    assert ((means * d_model**0.5 - 1).abs() < 0.03).all()
    # Fresh GPT-2 weights are Gaussian heads too, and none stands out.
    assert (found.scores[:, 0, :, 1].mean() * d_model**0.5 - 1).abs() < 0.03
    assert found.z[:, 0, :, 1].abs().max() < 5


@pytest.mark.parametrize(("matrix", "kind"), [("W_K", "k"), ("W_Q", "q"), ("W_V", "v")])
@pytest.mark.parametrize("positions", ["rope", "learned"])
@pytest.mark.parametrize("null", ["gaussian", "rotation"])
def test_a_planted_pair_is_the_top_of_its_kind_and_of_no_other(
    matrix: str, kind: str, positions: str, null: str
) -> None:
    found = composition(planted_in(matrix, positions=positions), null=null)
    top, second = found.strongest(kind, 2)
    assert (top.writer, top.reader, top.kind) == ("L0H1", "L1H2", Kind(kind))
    assert top.z > 10 > 5 > second.z
    for other in set(Kind) - {kind}:
        assert found.z_of(other)[(*WRITER, *READER)].abs() < 5
    assert str(top).startswith(f"{kind.upper()}-composition L0H1 -> L1H2: 0.")


def test_the_planted_induction_circuit_is_k_composition_and_nothing_else() -> None:
    """Its heads write and read single subspaces: score 1 / sqrt(d_vocab) times what the position planes leave."""
    gpt = planted.induction_model()
    found = composition(gpt, null="rotation")
    (top,) = found.strongest("k", 1)
    assert (top.writer, top.reader) == ("L0H1", "L1H2")
    assert top.z > 10
    expected = (1 / planted.D_VOCAB) ** 0.5
    assert top.score == pytest.approx(expected, rel=1e-6)
    assert found.of("q")[(*WRITER, *READER)] == found.of("v")[(*WRITER, *READER)] == 0
    assert found.of("k")[0, 0, 1, 2] == 0  # a head that writes nothing composes with none


def dense(gpt: GPT, kind: str, offset: int) -> Tensor:
    """||OV M|| / (||OV|| ||M||) from products of d_model x d_model, for writers of layer 0 and readers of layer 1."""
    heads = folded_heads(gpt)
    written = heads.OV[0].AB
    read = {"q": heads.QK(offset), "k": heads.QK(offset).T, "v": heads.OV}[kind][1].AB
    both = written[:, None] @ read
    return both.norm(dim=(2, 3)) / written.norm(dim=(1, 2))[:, None] / read.norm(dim=(1, 2))


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_factored_scores_are_those_of_dense_products(variant: dict[str, Any]) -> None:
    gpt = make_gpt_with(**variant)
    turning = gpt.config.positions == "rope"
    offsets = [0, 3, 10] if turning else [0]
    for over in ("mean", "max"):
        found = composition(gpt, offsets=offsets, over=over)
        for kind in "qkv":
            each = torch.stack([dense(gpt, kind, offset) for offset in offsets])
            expected = each.mean(0) if over == "mean" else each.amax(0)
            torch.testing.assert_close(found.of(kind)[0, :, 1], expected, rtol=1e-6, atol=1e-9)


def test_pairs_in_one_layer_or_backwards_do_not_compose() -> None:
    found = composition(make_gpt_with(n_layers=3))
    forwards = torch.arange(3)[:, None] < torch.arange(3)
    assert torch.equal(found.scores.isfinite().all(0).all(1).all(-1), forwards)
    assert torch.equal(found.z.isfinite().any(0).any(1).any(-1), forwards)
    assert found.of("k").shape == (3, 4, 3, 4)
    assert len(found.strongest("k", 1000)) == 48


def test_the_strongest_of_one_head_are_the_first_of_all_that_are_its_own() -> None:
    found = composition(make_gpt_with(n_layers=3))
    every = found.strongest("k", 48)
    assert found.largest_z("k") == every[0].z
    for label in ("L0H1", "L1H2"):
        assert found.strongest("k", 5, writer=label) == tuple(pair for pair in every if pair.writer == label)[:5]
    for label in ("L1H2", "L2H3"):
        assert found.strongest("k", 5, reader=label) == tuple(pair for pair in every if pair.reader == label)[:5]


@pytest.mark.parametrize("kind", ["q", "k", "v"])
def test_the_strongest_stand_out_most_from_a_null_whose_spread_differs_from_pair_to_pair(kind: str) -> None:
    found = composition(make_gpt_with(n_layers=3), null="rotation")
    pairs = found.strongest(kind, 48)
    assert len({pair.null_sd for pair in pairs}) > 1
    z, excess = [pair.z for pair in pairs], [pair.score - pair.null_mean for pair in pairs]
    assert z == sorted(z, reverse=True)
    assert excess != sorted(excess, reverse=True), "the largest excess is another order"


def test_the_strongest_of_one_head() -> None:
    found = composition(make_gpt_with(n_layers=3))
    of_reader = found.strongest("v", 3, reader="L2H1")
    assert {pair.reader for pair in of_reader} == {"L2H1"}
    assert [pair.z for pair in of_reader] == sorted((pair.z for pair in of_reader), reverse=True)
    (one,) = found.strongest("v", reader="L1H3", writer="L0H0")
    assert one.score == found.of("v")[0, 0, 1, 3]
    with pytest.raises(UnknownNameError, match='no head "L3H0" here; name one of 3 layers x 4 heads'):
        found.strongest("v", reader="L3H0")
    with pytest.raises(InputError, match="L0H0 has no writer before it"):
        found.strongest("v", reader="L0H0")
    with pytest.raises(InputError, match="L2H0 has no reader after it"):
        found.strongest("v", writer="L2H0")
    with pytest.raises(InputError, match="n=-1 is no number of pairs"):
        found.strongest("v", -1)


def haar(n: int, size: int) -> Tensor:
    drawn = torch.randn(n, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    Q, R = torch.linalg.qr(drawn)
    return Q * R.diagonal(dim1=1, dim2=2).sign()[:, None]


@pytest.mark.parametrize("offsets", [(0,), tuple(range(24))])
@pytest.mark.parametrize("spiky", [False, True])
def test_the_rotation_null_has_the_moments_of_rotated_writers(offsets: tuple[int, ...], spiky: bool) -> None:
    """Squares: mean exactly 1 / d_model, and the variance that the formula gives; the root's to a few percent."""
    gpt = make_gpt_with()
    with torch.no_grad():
        if spiky:
            gpt.layers[0].attn.W_V[1][:, 0] *= 6
    config, heads = gpt.config, folded_heads(gpt)
    basis = torch.zeros(0, 32, dtype=torch.float64)
    plan = Plan(config=config, kinds=(Kind.K,), offsets=offsets, over=Over.MEAN, basis=basis)
    readers = readers_of(Kind.K, list(layers_of(heads))[1], plan)
    writers = writers_of(heads.W_V[0, 1:2], heads.W_O[0, 1:2], plan)
    rotated = scores_between(writers @ haar(3000, 32), readers, Over.MEAN)
    mean, sd = rotation_moments(concentration_of_writers(writers), concentration_of_readers(readers), 32)
    torch.testing.assert_close(rotated.mean(0), mean[0], rtol=0.01, atol=0)
    torch.testing.assert_close(rotated.std(0), sd[0], rtol=0.08, atol=0)
    if len(offsets) == 1:
        torch.testing.assert_close(rotated.square().mean(0), torch.full((4,), 1 / 32).double(), rtol=0.02, atol=0)


@pytest.mark.parametrize("n_offsets", [1, 24])
@pytest.mark.parametrize("kind", ["q", "k"])
def test_the_null_of_single_directions_between_sharp_heads_is_nearly_unbiased(kind: str, n_offsets: int) -> None:
    """The worst case for the expansion: one direction written, and a query or key of one direction, at many offsets."""
    gpt = make_gpt_with(rope_base=10.0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in gpt.layers[1].attn.W_Q:
            weights.copy_(torch.outer(torch.randn(32, generator=generator), torch.randn(8, generator=generator)))
    found = component_composition(gpt, "L0H1", kinds=kind, offsets=range(n_offsets))
    basis = torch.zeros(0, 32, dtype=torch.float64)
    plan = Plan(config=gpt.config, kinds=(), offsets=tuple(range(n_offsets)), over=Over.MEAN, basis=basis)
    readers = readers_of(kind, list(layers_of(folded_heads(gpt)))[1], plan)
    scores = scores_between(haar(4000, 32)[:, :1], readers, Over.MEAN)
    z = (scores - found.null_mean[0, 0, 1]) / found.null_sd[0, 0, 1]
    assert z.mean(0).abs().max() < 0.25
    assert (z.std(0) - 0.9).abs().max() < 0.2


def test_the_null_of_components_is_that_of_random_directions() -> None:
    gpt = make_gpt_with(norm_kind="layernorm")
    found = component_composition(gpt, "L0H1", kinds="v", without=torch.eye(32)[:8])
    basis = torch.cat([torch.ones(1, 32), torch.eye(32)[:8]]).double()
    plan = Plan(config=gpt.config, kinds=(), offsets=(0,), over=Over.MEAN, basis=torch.linalg.qr(basis.T).Q.T)
    free = torch.linalg.svd(plan.basis)[2][9:]
    readers = readers_of("v", list(layers_of(folded_heads(gpt)))[1], plan)
    scores = scores_between(haar(4000, 23)[:, :1] @ free, readers, Over.MEAN)
    assert free.shape == (23, 32)
    torch.testing.assert_close(scores.mean(0), found.null_mean[0, 0, 1], rtol=0.02, atol=0)
    torch.testing.assert_close(scores.std(0), found.null_sd[0, 0, 1], rtol=0.1, atol=0)


@pytest.mark.parametrize("null", ["gaussian", "rotation"])
def test_nulls_are_of_what_is_left_of_the_stream(null: str) -> None:
    """LayerNorm drops one direction and `without` takes out eight: 1 / sqrt(23) by chance, in a stream of 32."""
    models = [make_gpt_with(seed, norm_kind="layernorm") for seed in range(8)]
    found = [composition(gpt, null=null, without=torch.eye(32)[:8]) for gpt in models]
    scores, means = (
        torch.stack([getattr(each, name)[:, 0, :, 1] for each in found]) for name in ("scores", "null_mean")
    )
    assert float(means.mean()) * 23**0.5 == pytest.approx(1, abs=0.02)
    assert float(scores.mean()) == pytest.approx(float(means.mean()), rel=0.03)
    z = torch.stack([each.z[:, 0, :, 1] for each in found])
    assert abs(float(z.mean())) < 0.4
    assert 0.7 < float(z.std()) < 1.4


def test_other_nulls_are_the_other_model_and_the_other_writers() -> None:
    gpt, other = planted_in("W_K"), GPT(GPTConfig(**SIZES, d_model=64), seed=9)
    pooled = composition(other, kinds="k").of("k")[0, :, 1]
    found = composition(gpt, kinds="k", null="untrained", untrained=other)
    assert float(found.null_mean[0, 0, 0, 1, 0]) == pytest.approx(float(pooled.mean()))
    assert float(found.null_sd[0, 0, 0, 1, 0]) == pytest.approx(float(pooled.std()))
    (top,) = found.strongest("k", 1)
    assert (top.writer, top.reader) == ("L0H1", "L1H2")


def test_among_other_writers_there_is_a_rank_and_no_z() -> None:
    """Three or seven other writers are no measure of spread: the first of n has p = 1/n, and cannot have less."""
    among = composition(planted_in("W_K"), kinds="k", null="permuted")
    others = among.of("k")[0, [0, 2, 3], 1, 2]
    assert among.null_mean[0, 0, 1, 1, 2] == pytest.approx(float(others.mean()))
    for reader in range(4):
        assert among.p[0, 0, :, 1, reader].sort().values.tolist() == [0.25, 0.5, 0.75, 1]
    (top,) = among.strongest("k", 1)
    assert (top.writer, top.reader, top.p, top.p_of_all) == ("L0H1", "L1H2", 0.25, 1)
    assert "p 0.25 among its writers (p 1 as one of 16 pairs)" in str(top)
    for ask in (lambda: among.z, lambda: among.z_of("k")):
        with pytest.raises(InputError, match="gives a p and no z"):
            ask()


def test_the_largest_of_many_is_not_taken_for_one() -> None:
    """384 pairs that nobody trained: their largest z passes for a finding on its own, and not as one of 384."""
    found = [composition(make_gpt_with(seed, n_layers=4, n_heads=8, d_head=8), kinds="v") for seed in range(5)]
    tops = [each.strongest("v", 1)[0] for each in found]
    assert all(pair.n_pairs == 384 for pair in tops)
    assert max(pair.p for pair in tops) < 0.02
    assert sum(pair.p_of_all > 0.01 for pair in tops) >= 4
    assert all(pair.p_of_all == pytest.approx(min(1, 384 * pair.p)) for pair in tops)
    planted_pair = composition(planted_in("W_V")).strongest("v", 1)[0]
    assert planted_pair.p_of_all < 1e-6
    assert "(p < 0.0001 as one of 16 pairs)" in str(planted_pair)


def test_a_common_direction_inflates_every_score_and_can_be_taken_out() -> None:
    """Added to all that is written and all that keys read; without it, scores are those of the model that lacks it."""
    plain, gpt = make_gpt_with(norm="none"), make_gpt_with(norm="none")
    u = embedding_mean(gpt).float()[0]
    u = u / u.norm()
    with torch.no_grad():
        for block in gpt.layers:
            block.attn.W_O.add_(2 * u)
            block.attn.W_K.add_(2 * u[:, None])
    inflated, before = (composition(each, kinds="k").of("k")[0, :, 1] for each in (gpt, plain))
    assert inflated.min() > 2 * before.max()
    without = [composition(each, kinds="k", without=embedding_mean(gpt)) for each in (gpt, plain)]
    torch.testing.assert_close(without[0].of("k"), without[1].of("k"), rtol=1e-5, atol=1e-7, equal_nan=True)
    assert "1 direction taken out" in without[0].note
    assert top_directions(gpt, 2).shape == (2, 32)


def test_squared_scores_of_components_add_up_to_the_heads() -> None:
    gpt = make_gpt_with(n_layers=3)
    whole, parts = composition(gpt, offsets=5), component_composition(gpt, "L0H3", offsets=5)
    assert parts.share.sum() == pytest.approx(1)
    assert (parts.share.diff() <= 0).all()
    summed = torch.einsum("c,cklh->klh", parts.share, parts.scores.square())
    torch.testing.assert_close(summed[:, 1:].sqrt(), whole.scores[:, 0, 3, 1:], rtol=1e-9, atol=1e-12)
    assert parts.scores[:, :, 0].isnan().all()
    assert parts.of("k").shape == (8, 3, 4)


def test_a_small_component_that_is_read_alone_stands_out_where_the_head_does_not() -> None:
    """One singular value outweighs all others of the writer; the reader's keys read the last of them."""
    gpt = GPT(GPTConfig(**SIZES, d_model=64, norm="none", positions="none"), seed=3)
    with torch.no_grad():
        written = gpt.layers[0].attn
        frame = torch.linalg.qr(torch.randn(64, 16, generator=torch.Generator().manual_seed(0))).Q
        written.W_V[1].copy_(frame * torch.linspace(1, 0.1, 16))
        written.W_V[1][:, 0] *= 10
        written.W_O[1].copy_(frame.T)
        gpt.layers[1].attn.W_K[2][:, :4] = frame[:, 15:] * gpt.layers[1].attn.W_K[2].norm()
    whole = composition(gpt, null="rotation").z_of("k")[0, 1, 1, 2]
    parts = component_composition(gpt, "L0H1").z[:, 1, 1, 2]
    assert whole < 1
    assert parts.argmax() == 15
    assert parts[15] > 4


@pytest.mark.parametrize(
    ("variant", "asked", "error", "sentence"),
    [
        ({"norm": "post"}, {}, NotAdditiveError, "needs a residual stream that is a sum"),
        ({"norm": "deepnorm"}, {}, NotAdditiveError, "needs a residual stream that is a sum"),
        ({"skip_connections": False}, {}, NotAdditiveError, "skip_connections=false"),
        ({"qk_norm": True}, {}, UndefinedError, "Q-composition is not defined with qk_norm=true"),
        ({"smeared_keys": True}, {"kinds": "k"}, UndefinedError, "K-composition is not defined with smeared_keys=true"),
        ({"n_layers": 1}, {}, UndefinedError, "no later head"),
        ({}, {"kinds": ()}, InputError, "give one or more of q, k, v"),
        ({}, {"null": "untrained"}, InputError, "pass untrained="),
        ({}, {"null": "untrained", "untrained": GPT(GPTConfig(**SIZES, d_model=64))}, InputError, "and configs differ"),
        ({}, {"null": "rotation", "over": "max"}, InputError, "not of a maximum"),
        ({"n_heads": 1}, {"null": "permuted"}, InputError, "layers of one head have none"),
        ({}, {"without": torch.ones(3, 7)}, InputError, "give finite rows of 32 numbers"),
        ({}, {"without": torch.eye(32)}, InputError, "leaves 0 of 32 dimensions"),
        ({}, {"offsets": 24}, InputError, "from 0 to 23"),
        ({}, {"offsets": []}, InputError, "give one or more from 0 to 23"),
    ],
    ids=lambda each: each[:20] if isinstance(each, str) else "",
)
def test_what_is_not_defined_is_refused(variant, asked, error, sentence) -> None:
    with pytest.raises(error, match=sentence):
        composition(make_gpt_with(**variant), **asked)


def test_components_have_no_null_of_a_maximum() -> None:
    with pytest.raises(InputError, match="not of a maximum"):
        component_composition(make_gpt_with(), "L0H1", over="max")
    assert component_composition(make_gpt_with(), "L0H1", over="max", offsets=3).z[:, :, 1].isfinite().all()


def test_the_setting_that_leaves_composition_undefined_is_named() -> None:
    for variant, setting in (({"qk_norm": True}, "qk_norm=true"), ({"n_layers": 1}, "n_layers=1")):
        with pytest.raises(UndefinedError) as refusal:
            composition(make_gpt_with(**variant))
        assert refusal.value.setting == setting


def test_v_composition_is_there_for_models_whose_scores_are_not_bilinear() -> None:
    found = composition(make_gpt_with(qk_norm=True), kinds="v")
    assert found.of("v")[0, :, 1].isfinite().all()
    with pytest.raises(UnknownNameError, match="there is v"):
        found.of("k")


def test_what_was_averaged_is_said() -> None:
    note = composition(make_gpt_with(n_ctx=200)).note
    assert "mean over 64 offsets 0..199, not all of those between" in note
    assert "offsets" not in composition(make_gpt_with(positions="learned")).note
