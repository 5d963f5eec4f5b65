"""A planted copying head scores 1, its negative -1, an even write chance; and the shortcut is the long way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.folding import folded_heads
from interp.head_copying import copying_chance, copying_scores, token_shares, weighted_share
from interp.scores import even_pattern
from interp.stimuli import random_tokens
from model import GPT
from model.errors import InputError, NotAdditiveError
from model.hooks import ActivationCache
from tests.planted import D_VOCAB, INDUCTION_HEAD, N_CTX, PREVIOUS_HEAD, induction_model
from tests.rewritten import bias_of_ln1_moved

BOS = D_VOCAB - 1
ONCE = random_tokens(6, 15, D_VOCAB - 1, seed=1, bos=BOS)


def previous_token_copier(gain: float = 1.0) -> GPT:
    """The planted circuit, whose previous-token head writes what it attends to into the output as well."""
    gpt = induction_model()
    output = slice(2 * D_VOCAB + N_CTX, 3 * D_VOCAB + N_CTX)
    gpt.layers[0].attn.W_O[PREVIOUS_HEAD[1]][:D_VOCAB, output] = gain * torch.eye(D_VOCAB)
    return gpt


def test_a_head_that_copies_what_it_attends_to_scores_one() -> None:
    found = copying_scores(previous_token_copier(), ONCE, bos=BOS)
    assert found.score.shape == (6, 2, 4)
    torch.testing.assert_close(found.score[:, *PREVIOUS_HEAD], torch.ones(6), rtol=0, atol=1e-4)


def test_a_head_that_lowers_what_it_attends_to_scores_minus_one() -> None:
    found = copying_scores(previous_token_copier(-1.0), ONCE, bos=BOS)
    torch.testing.assert_close(found.score[:, *PREVIOUS_HEAD], -torch.ones(6), rtol=0, atol=1e-4)


def test_a_head_that_writes_nothing_to_the_logits_scores_exactly_chance() -> None:
    found = copying_scores(induction_model(), ONCE, bos=BOS)
    assert torch.equal(found.chance, torch.full((6,), 2 / 15 - 1, dtype=torch.float64))
    for head in ((0, 0), PREVIOUS_HEAD, (1, 0)):  # all but the induction head
        torch.testing.assert_close(found.score[:, *head].double(), found.chance, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.permuted[:, *head].double(), found.chance, rtol=0, atol=1e-6)


def test_what_a_head_writes_wherever_it_looks_is_nothing_that_it_copies(make_gpt: Callable[..., GPT]) -> None:
    gpt = make_gpt(norm_kind="layernorm", biases=True).double()
    tokens = random_tokens(3, 10, 50, seed=2, bos=None)
    found = copying_scores(gpt, tokens, bos=None).score
    torch.testing.assert_close(copying_scores(bias_of_ln1_moved(gpt), tokens, bos=None).score, found)
    gpt.layers[1].attn.v_proj.bias.data += 3.0
    torch.testing.assert_close(copying_scores(gpt, tokens, bos=None).score, found)


def test_a_head_that_raises_whatever_it_may_see_scores_as_much_when_its_attention_is_permuted() -> None:
    """L1H0 attends evenly; writing every token it sees, it raises the attended ones, and no more than the others."""
    gpt = induction_model()
    output = slice(2 * D_VOCAB + N_CTX, 3 * D_VOCAB + N_CTX)
    attention = gpt.layers[1].attn
    attention.W_V[0][:D_VOCAB, :D_VOCAB] = torch.eye(D_VOCAB)
    attention.W_O[0][:D_VOCAB, output] = torch.eye(D_VOCAB)
    found = copying_scores(gpt, ONCE, bos=BOS)
    # Of n visible tokens, each has a share of 1/n; the BOS takes 1/(n + 1) of the attention, and n/(n + 1) is left.
    weighed = sum(1 / (n + 1) for n in range(1, 16)) / sum(n / (n + 1) for n in range(1, 16))
    torch.testing.assert_close(found.score[:, 1, 0], torch.full((6,), 2 * weighed - 1), rtol=0, atol=1e-4)
    torch.testing.assert_close(found.permuted[:, 1, 0], found.score[:, 1, 0], rtol=0, atol=1e-5)
    sharp = copying_scores(previous_token_copier(), ONCE, bos=BOS)
    assert (sharp.permuted[:, *PREVIOUS_HEAD] < sharp.score[:, *PREVIOUS_HEAD] - 1).all()


def test_whatever_a_head_writes_attention_to_any_other_token_scores_chance_on_average() -> None:
    """Over all cyclic shifts of which token is the attended one, the mean share is 1/n: what chance says."""
    generator = torch.Generator().manual_seed(0)
    raised = torch.rand(2, 3, 12, 12, generator=generator, dtype=torch.float64)
    tokens = torch.arange(12).expand(2, 12)
    shares = token_shares(raised, tokens)
    torch.testing.assert_close(shares.sum(-1), torch.ones(2, 3, 12, dtype=torch.float64))
    attended = even_pattern(12).expand(2, 3, 12, 12) * torch.rand(2, 3, 12, 12, generator=generator)
    shifted = torch.stack([weighted_share(attended, shares.roll(shift, -1)) for shift in range(12)])
    torch.testing.assert_close(shifted.mean(0), torch.full((2, 3), 1 / 12, dtype=torch.float64))


def test_tokens_that_stand_twice_count_once() -> None:
    tokens = torch.tensor([[9, 5, 5, 6]])
    assert copying_chance(tokens, bos=9).tolist() == [0.0]  # of two tokens, 5 and 6: 2/2 - 1
    assert copying_chance(tokens, bos=None).tolist() == pytest.approx([2 / 3 - 1])
    raised = torch.tensor([2.0, 2.0, 1.0]).expand(1, 1, 3, 3)
    torch.testing.assert_close(token_shares(raised, tokens[:, 1:])[0, 0, 0], torch.tensor([2 / 3, 2 / 3, 1 / 3]))


SHAPES: list[dict[str, Any]] = [
    {},
    {"norm_kind": "layernorm", "biases": True, "positions": "learned", "tie_embeddings": False},
    {"norm": "none"},
    {"norm": "scaled", "n_kv_heads": 2},
    {"norm": "sandwich"},
    {"norm": "reordered", "norm_kind": "layernorm", "biases": True},
]


@pytest.mark.parametrize("bos", [None, 7])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())) or "pre")
def test_the_score_is_that_of_all_logits_through_the_norms_at_their_own_scales(
    make_gpt: Callable[..., GPT], shape: dict[str, Any], bos: int | None
) -> None:
    """The long way: every head's contribution to every logit, by its definition, one destination at a time."""
    gpt = make_gpt(**shape)
    tokens = random_tokens(3, 10, 50, seed=2, bos=bos)
    found = copying_scores(gpt, tokens, bos=bos)
    _, cache = gpt.run_with_cache(tokens, lambda name: not name.endswith(("q_input", "k_input", "v_input")))
    for layer in range(2):
        for head in range(4):
            logits = contribution(gpt, cache, layer, head).detach()
            expected = torch.tensor(
                [
                    by_definition(logits[row], cache["pattern", layer][row, head].detach(), tokens[row], bos)
                    for row in range(3)
                ]
            )
            torch.testing.assert_close(found.score[:, layer, head], expected, rtol=0, atol=2e-5)


def contribution(gpt: GPT, cache: ActivationCache, layer: int, head: int) -> Tensor:
    """What a head adds to every logit, the norms after it at the scales of this run: [batch, pos, d_vocab]."""
    constant = folded_heads(gpt).b_V[layer, head].float()
    written = (cache["z", layer][:, :, head] - constant) @ gpt.W_O[layer, head]
    steps = [(gpt.layers[layer].ln1_post, f"blocks.{layer}.ln1_post.hook_scale"), (gpt.ln_final, "ln_final.hook_scale")]
    for norm, scale in steps:
        if norm is not None:
            centred = written - written.mean(-1, keepdim=True) if norm.centres else written
            written = centred / cache[scale] * norm.w
    return written @ gpt.W_U


def by_definition(logits: Tensor, attention: Tensor, tokens: Tensor, bos: int | None) -> float:
    start = 0 if bos is None else 1
    raised = (logits - logits.mean(-1, keepdim=True)).relu()
    above = below = 0.0
    for query in range(start, len(tokens)):
        total = sum(float(raised[query, token]) for token in tokens[start:])
        for key in range(start, query + 1):
            share = float(raised[query, tokens[key]]) / total if total > 0 else 1 / (len(tokens) - start)
            above += float(attention[query, key]) * share
            below += float(attention[query, key])
    return 2 * above / below - 1


@pytest.mark.parametrize(
    ("shape", "reason"),
    [({"norm": "post"}, "norm=post"), ({"norm": "deepnorm"}, "norm=deepnorm"), ({"skip_connections": False}, "skip")],
)
def test_where_the_stream_is_no_sum_it_is_refused(
    make_gpt: Callable[..., GPT], tokens: Tensor, shape: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotAdditiveError, match=f"copying score needs a residual stream that is a sum.*{reason}"):
        copying_scores(make_gpt(**shape), tokens, bos=None)


def test_a_model_that_sees_later_keys_is_refused(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    with pytest.raises(InputError, match="use a causal model"):
        copying_scores(make_gpt(attention="bidirectional"), tokens, bos=None)


def test_measuring_changes_nothing(tiny: GPT, tokens: Tensor) -> None:
    before = tiny(tokens)
    found = copying_scores(tiny, tokens, bos=None)
    assert torch.equal(tiny(tokens), before)
    assert not found.score.requires_grad


def test_the_induction_head_copies_on_repeats() -> None:
    """Shown the segment twice, the planted head raises exactly what it attends to in the second copy."""
    found = copying_scores(induction_model(), torch.cat([ONCE, ONCE[:, 1:]], dim=1), bos=BOS)
    chance = float(found.chance[0])
    assert (found.score[:, *INDUCTION_HEAD] > chance + 0.5).all()
