"""Harms measured from shared prefixes are those of whole runs, and stop where they would mean nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ablation import ablated, mean_activations
from interp.harm import measure_harms
from interp.outcomes import NEW_TOKEN, TEXT, Outcome, copy_outcome
from interp.places import parse_places
from model.config import AttentionKind, GPTConfig, Norm, Positions
from model.errors import InputError
from model.gpt import GPT

OUTCOMES = (TEXT, NEW_TOKEN, copy_outcome(6))


def model(**changes: Any) -> GPT:
    config = GPTConfig(n_layers=3, n_heads=4, d_model=32, n_ctx=16, d_vocab=20, embed_std=1.0)
    return GPT(config.varied(**changes), seed=3).eval()


@pytest.fixture
def tokens() -> Tensor:
    segment = torch.randint(1, 20, (7, 6), generator=torch.Generator().manual_seed(0))
    return torch.cat([torch.zeros(7, 1, dtype=torch.long), segment, segment], dim=1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": Norm.POST},
        {"norm": Norm.SANDWICH},
        {"positions": Positions.LEARNED},
        {"positions": Positions.ALIBI},
    ],
)
def test_reusing_the_layers_below_changes_no_number(changes: dict[str, Any], tokens: Tensor):
    gpt = model(**changes)
    means = mean_activations(gpt, tokens.flip(1), source="reversed sequences")
    texts = [
        "L0H1:zero",
        "L1H2:mean",
        "L2H0,L2H3:mean@pos",
        "L1.ffn:zero",
        "L2M7:mean",
        "L0H0,L2H1:zero",
        "L1.attn:mean",
    ]
    ablations = [parse_places(text) for text in texts]
    harms = measure_harms(gpt, tokens, ablations, OUTCOMES, means=means, batch_size=3)
    for column, text in enumerate(texts):
        with ablated(gpt, text, means), torch.no_grad():
            logits = gpt(tokens)
        naive = torch.stack([outcome.of_logits(logits, tokens) for outcome in OUTCOMES], dim=1).double()
        torch.testing.assert_close(harms.ablated[:, column], naive, atol=1e-5, rtol=0)


def test_the_clean_loss_is_that_of_the_intact_model(tokens: Tensor):
    gpt = model()
    harms = measure_harms(gpt, tokens, [parse_places("L0H1:zero")], (TEXT,))
    torch.testing.assert_close(harms.clean[:, 0], gpt.loss(tokens, per_token=True).mean(dim=1).double().detach())
    assert torch.equal(measure_harms(gpt, tokens, [], (TEXT,)).clean, harms.clean)


def test_a_silenced_head_costs_exactly_nothing(tokens: Tensor):
    gpt = model()
    gpt.layers[1].attn.W_O[2].zero_()
    harm = measure_harms(gpt, tokens, [parse_places("L1H2:zero"), parse_places("L1H1:zero")], OUTCOMES).harm
    assert (harm[:, 0] == 0).all()
    assert (harm[:, 1] != 0).all()


def test_the_batch_size_changes_no_number(tokens: Tensor):
    gpt = model()
    one, all_at_once = (
        measure_harms(gpt, tokens, [parse_places("L1H2:zero")], (TEXT,), batch_size=size).harm for size in (1, 99)
    )
    torch.testing.assert_close(one, all_at_once, atol=1e-6, rtol=0)


def test_progress_is_told_once_for_each_ablation_of_each_batch(tokens: Tensor):
    told: list[tuple[int, int]] = []
    ablations = [parse_places("L0H1:zero"), parse_places("L1H1:zero")]
    measure_harms(
        model(), tokens, ablations, (TEXT,), batch_size=4, counted=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_nothing_stays_behind_when_an_outcome_raises(tokens: Tensor):
    gpt = model()
    clean = gpt(tokens)

    def broken(tokens: Tensor) -> Tensor:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        measure_harms(
            gpt, tokens, [parse_places("L0H1:zero")], (Outcome(name="broken", meaning="none", targets=broken),)
        )
    assert torch.equal(gpt(tokens), clean)


def test_a_model_with_dropout_on_is_refused(tokens: Tensor):
    with pytest.raises(InputError, match=r"dropout=0\.5, so runs differ by chance; call gpt\.eval\(\)"):
        measure_harms(model(dropout=0.5).train(), tokens, [parse_places("L0H1:zero")], (TEXT,))


def test_a_bidirectional_model_is_refused(tokens: Tensor):
    with pytest.raises(InputError, match="bidirectional"):
        measure_harms(model(attention=AttentionKind.BIDIRECTIONAL), tokens, [parse_places("L0H1:zero")], (TEXT,))
