"""OV circuits: copying is what it is called, and random heads are beside it (T3)."""

from __future__ import annotations

import copy

import pytest
import torch

from interp import circuits
from interp.circuits import diagonal_test, eigenvalue_copying, token_ov
from interp.common_directions import embedding_mean
from interp.composition import composition
from model import GPT, GPTConfig
from model.errors import InputError, NotAdditiveError
from tests import planted
from tests.conftest import make_gpt_with


def wide_headed(**overrides) -> GPT:
    """Heads as wide as the stream: L0H0 copies, L0H1 writes the opposite, L0H2 writes nothing, L0H3 is as drawn."""
    sizes = {"n_layers": 1, "n_heads": 4, "d_model": 48, "d_head": 48, "n_ctx": 16, "d_vocab": 90, "embed_std": 1.0}
    gpt = GPT(GPTConfig(**(sizes | overrides))).eval()
    attention = gpt.layers[0].attn
    with torch.no_grad():
        for head, sign in enumerate((1.0, -1.0, 0.0)):
            attention.W_V[head].copy_(torch.eye(48))
            attention.W_O[head].copy_(sign * torch.eye(48))
    return gpt


@pytest.mark.parametrize("norm_kind", ["rmsnorm", "layernorm"])
def test_a_head_that_hands_on_what_it_reads_copies_and_its_negative_does_the_opposite(norm_kind: str) -> None:
    gpt = wide_headed(norm_kind=norm_kind)
    found = eigenvalue_copying(gpt)
    assert found.score[0, 0] > 0.99
    assert found.score[0, 1] < -0.99
    assert found.score[0, 2] == 0
    assert abs(found.z[0, 3]) < 4
    assert found.z[0, 0] > 4
    ranks = diagonal_test(gpt)
    assert ranks.top1[0].tolist()[:3] == [1, 0, 0]
    assert ranks.mean_rank[0].tolist()[:2] == pytest.approx([1, 90])
    assert ranks.mean_rank[0, 2] == ranks.chance_rank == 45.5  # all logits equal: the middle, not the first
    assert ranks.standardised[0, 2] == 0


@pytest.mark.parametrize(("d_model", "d_head", "sd"), [(128, 32, 0.05), (256, 64, 0.027), (128, 16, 0.09)])
def test_random_heads_have_mean_0_and_the_spread_that_was_measured(d_model: int, d_head: int, sd: float) -> None:
    for tied in (True, False):
        sizes = {"n_layers": 1, "n_heads": 1, "d_head": d_head, "d_model": d_model, "n_ctx": 8, "d_vocab": 300}
        found = eigenvalue_copying(GPT(GPTConfig(**sizes, tie_embeddings=tied)), n_null=128)
        assert abs(found.null_mean) < 0.03
        assert found.null_sd == pytest.approx(sd, rel=0.3)


@torch.no_grad()
def test_the_score_is_that_of_the_product_over_the_vocabulary() -> None:
    """Gains of both norms away from 1, so that leaving one out shows."""
    for variant in ({}, {"norm_kind": "layernorm"}, {"norm": "sandwich"}, {"norm": "scaled"}, {"n_kv_heads": 2}):
        gpt = make_gpt_with(**variant, tie_embeddings=False).double()
        block, found = gpt.layers[1], eigenvalue_copying(gpt, n_null=2)
        through = gpt.W_E
        read = block.ln1.w[:, None] * block.attn.W_V[1 if "n_kv_heads" in variant else 3]
        read = read - read.mean(0) if block.ln1.centres else read
        written = through @ read @ block.attn.W_O[3]
        written = written * block.ln1_post.w if block.ln1_post is not None else written
        logits = (written - written.mean(-1, keepdim=True) if block.ln1.centres else written) @ gpt.folded_unembed()
        eigenvalues = torch.linalg.eigvals(logits)
        dense = eigenvalues.real.sum() / eigenvalues.abs().sum()
        assert found.score[1, 3] == pytest.approx(float(dense), abs=1e-9)
        shrink = block.ln1.shrink
        torch.testing.assert_close(token_ov(gpt, 1, 3).AB, shrink * logits, rtol=1e-9, atol=1e-9)


def test_ranks_are_those_of_the_product_whatever_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    gpt = make_gpt_with(tie_embeddings=False).double()
    logits = token_ov(gpt, 0, 2).AB
    own = logits.diagonal()[:, None]
    ranks = 1 + (logits > own).sum(1)
    found = diagonal_test(gpt, heads="L0H2", k=5)
    assert found.mean_rank[0, 2] == pytest.approx(float(ranks.double().mean()))
    assert found.topk[0, 2] == pytest.approx(float((ranks <= 5).double().mean()))
    spread, mean = torch.std_mean(logits, 1, correction=0)
    assert found.standardised[0, 2] == pytest.approx(float(((own[:, 0] - mean) / spread).mean()), rel=1e-4)
    assert (found.chance_top1, found.chance_topk, found.n_tokens) == (1 / 50, 5 / 50, 50)
    assert int(found.top1.isfinite().sum()) == 1
    monkeypatch.setattr("interp.circuits._LOGITS_AT_ONCE", 130)
    streamed = diagonal_test(gpt, heads="L0H2", k=5)
    assert streamed.mean_rank[0, 2] == found.mean_rank[0, 2]
    some = diagonal_test(gpt, heads="L0H2", tokens=[3, 7])
    assert some.mean_rank[0, 2] == pytest.approx(float(ranks[[3, 7]].double().mean()))


def test_the_planted_induction_head_copies_and_the_silent_heads_do_nothing() -> None:
    gpt = planted.induction_model()
    assert eigenvalue_copying(gpt, n_null=4).score[planted.INDUCTION_HEAD] == pytest.approx(1)
    found = diagonal_test(gpt)
    assert found.top1[planted.INDUCTION_HEAD] == 1
    assert found.top1.sum() == 1


def test_a_table_of_ones_own_stands_for_the_embedding() -> None:
    gpt = wide_headed(tie_embeddings=False)
    assert eigenvalue_copying(gpt, n_null=2).score[0, 0] < 0.9
    found = eigenvalue_copying(gpt, embed=gpt.W_U.T, n_null=2)
    assert found.score[0, 0] > 0.99
    assert "the given table" in found.note
    with pytest.raises(InputError, match=r"give a vector of the stream for each token, \[90, 48\]"):
        eigenvalue_copying(gpt, embed=gpt.W_U)


def test_what_does_not_reach_the_logits_as_it_is_is_refused() -> None:
    for variant in ({"norm": "post"}, {"norm": "deepnorm"}, {"skip_connections": False}):
        gpt = make_gpt_with(**variant)
        for ask in (eigenvalue_copying, diagonal_test, lambda gpt: token_ov(gpt, 0, 0)):
            with pytest.raises(NotAdditiveError, match="needs a residual stream that is a sum"):
                ask(gpt)
    with pytest.raises(InputError, match="draw at least 2"):
        eigenvalue_copying(make_gpt_with(), n_null=1)
    with pytest.raises(InputError, match="from 1 to the vocabulary's 50"):
        diagonal_test(make_gpt_with(), k=51)


def test_the_same_seed_draws_the_same_random_heads() -> None:
    gpt = make_gpt_with()
    first, again, other = (eigenvalue_copying(gpt, n_null=8, seed=seed).null_sd for seed in (0, 0, 1))
    assert first == again != other


def test_neighbouring_seeds_share_no_random_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nulls of two seeds would be in part the same heads, read through other layers' norms."""
    drawn, draw = [], circuits._random_heads

    def watched(gpt: GPT, layer: int, n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        found = draw(gpt, layer, n, generator)
        drawn.extend(tuple(each.flatten()[:3].tolist()) for each in found[0])
        return found

    monkeypatch.setattr(circuits, "_random_heads", watched)
    gpt = GPT(GPTConfig(n_layers=3, n_heads=1, d_model=16, n_ctx=8, d_vocab=20))
    for seed in range(3):
        eigenvalue_copying(gpt, n_null=9, seed=seed)
    assert len(set(drawn)) == len(drawn) == 27


def test_random_heads_read_and_write_through_the_norms() -> None:
    """Heads that nobody trained score as widely as the null, also where two dimensions have nearly all of the gain."""
    sizes = {"n_layers": 1, "n_heads": 64, "d_head": 8, "d_model": 32, "n_ctx": 8, "d_vocab": 100, "norm": "sandwich"}
    gpt = GPT(GPTConfig(**sizes, tie_embeddings=False))
    even = eigenvalue_copying(gpt)
    with torch.no_grad():
        gpt.layers[0].ln1.w[2:] = 0.02
        gpt.layers[0].ln1_post.w[2:] = 0.02
    uneven = eigenvalue_copying(gpt)
    assert uneven.null_sd > 1.5 * even.null_sd
    for found in (even, uneven):
        assert float(found.score.square().mean().sqrt()) == pytest.approx(found.null_sd, rel=0.25)


def test_directions_are_taken_out_of_what_is_read_and_of_what_is_written() -> None:
    """As in a model whose heads neither read nor write along them, wherever the unembedding looks."""
    gpt, deaf = (make_gpt_with(norm="none", tie_embeddings=False).double() for _ in range(2))
    u = torch.linalg.qr(torch.randn(32, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q.T
    with torch.no_grad():
        for block in deaf.layers:
            for weights in block.attn.W_V:
                weights.sub_(u.T @ u @ weights)
            for weights in block.attn.W_O:
                weights.sub_(weights @ u.T @ u)
    found, expected = eigenvalue_copying(gpt, without=u), eigenvalue_copying(deaf)
    torch.testing.assert_close(found.score, expected.score, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found.score, eigenvalue_copying(gpt).score, atol=0.01)
    with pytest.raises(InputError, match="leaves 0 of 32 dimensions"):
        eigenvalue_copying(gpt, without=torch.eye(32))


def test_circuits_of_a_model_in_half_precision_are_those_of_its_weights_in_fp64() -> None:
    gpt = make_gpt_with().to(torch.bfloat16)
    exact = copy.deepcopy(gpt).double()
    for ask in (lambda gpt: eigenvalue_copying(gpt).score, lambda gpt: composition(gpt).scores):
        torch.testing.assert_close(ask(gpt), ask(exact), rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_direction_that_all_embeddings_share_widens_the_null_until_it_is_taken_out() -> None:
    gpt = GPT(GPTConfig(n_layers=1, n_heads=4, d_model=64, n_ctx=8, d_vocab=200))
    with torch.no_grad():
        gpt.embed.weight.add_(0.5)
    wide, narrow = eigenvalue_copying(gpt), eigenvalue_copying(gpt, without=embedding_mean(gpt))
    assert wide.null_sd > 0.3 > 0.15 > narrow.null_sd
    assert "1 direction taken out" in narrow.note
    assert "taken out" not in wide.note
