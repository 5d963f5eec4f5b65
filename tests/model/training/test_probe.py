"""The probe says what it claims: held-out loss, loss on the second copy, and the size of stream and gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT
from model.tokenizer import ByteTokenizer, CharTokenizer
from model.training import DataConfig, RunConfig
from model.training.batches import BatchSource
from model.training.corpus import build_corpus
from model.training.probe import Probe, build_probe, repeated_rows, spread
from tests import planted

Small = Callable[..., RunConfig]


@pytest.fixture
def probe(small: Small) -> Probe:
    return probe_of(small())


def probe_of(config: RunConfig) -> Probe:
    tokenizer = ByteTokenizer()
    rows = BatchSource(config.data, build_corpus(config.data, tokenizer), tokenizer, config.model.n_ctx).eval_rows()
    return build_probe(config, tokenizer, rows, torch.device("cpu"))


def clock_model(tokens: Tensor, *, per_token: bool) -> Tensor:
    """A stand-in whose loss at each position is the position's number."""
    assert per_token
    return torch.arange(tokens.shape[1] - 1.0).expand(len(tokens), -1)


def test_the_copy_loss_leaves_out_the_token_that_starts_the_second_copy(
    probe: Probe, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpt = GPT(small().model)
    monkeypatch.setattr(gpt, "loss", clock_model)
    losses = probe.losses(gpt)
    period = 7  # BOS, tokens 1 to 7, again 8 to 14; entry i predicts token i + 1
    assert probe.period == period
    assert losses["first_copy_loss"] == pytest.approx(sum(range(0, 7)) / 7)
    assert losses["copy_loss"] == pytest.approx(sum(range(8, 14)) / 6)


def test_a_planted_induction_circuit_copies_at_no_loss(small: Small) -> None:
    gpt = planted.induction_model()
    tokenizer = CharTokenizer.train(["".join(chr(97 + i) for i in range(planted.D_VOCAB - 1))])
    rows = repeated_rows(8, 9, tokenizer)
    stub = Probe(
        **{
            "held_out": rows,
            "n_bytes": 0,
            "repeated": rows,
            "period": 9,
            "has_bos": True,
            "stream": rows,
            "rows_at_once": 3,
        }
    )
    losses = stub.losses(gpt)
    assert losses["copy_loss"] < 0.01
    assert losses["first_copy_loss"] > 2
    assert "bits_per_byte" not in losses


def test_fresh_rows_are_two_equal_copies_of_distinct_ordinary_tokens() -> None:
    rows = repeated_rows(16, 7, ByteTokenizer())
    assert rows.shape == (16, 15)
    assert (rows[:, 0] == 256).all()
    assert torch.equal(rows[:, 1:8], rows[:, 8:])
    assert (rows[:, 1:] < 256).all()
    assert all(len(set(row[1:8].tolist())) == 7 for row in rows)
    assert len({tuple(row.tolist()) for row in rows}) == 16


def test_bits_per_byte_of_a_byte_model_are_its_nats_over_ln_2(probe: Probe, small: Small) -> None:
    losses = probe.losses(GPT(small().model))
    assert losses["bits_per_byte"] == pytest.approx(losses["eval_loss"] / math.log(2))


def test_a_run_without_text_has_a_held_out_loss_and_no_bits_per_byte(small: Small) -> None:
    config = replace(small(), data=DataConfig(sources=("repeats",), min_period=3, max_period=5))
    losses = probe_of(config).losses(GPT(config.model))
    assert "eval_loss" in losses
    assert "bits_per_byte" not in losses


@pytest.mark.parametrize("model", [{}, {"norm": "post"}, {"ffn": "none"}])
def test_stream_norms_are_those_of_the_cached_stream_and_its_gradient(small: Small, model: dict[str, Any]) -> None:
    config = small(model=model)
    probe, gpt = probe_of(config), GPT(config.model)
    gpt.loss(probe.stream).backward()
    kept = {name: parameter.grad.clone() for name, parameter in gpt.named_parameters() if parameter.grad is not None}
    norms = probe.stream_norms(gpt)
    for name, parameter in gpt.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, kept[name]), "reading leaves .grad alone"
    site = "blocks.1.hook_resid_pre"
    stream = gpt.run_with_cache(probe.stream, names_filter=site)[1][site]
    assert norms["resid_norms"][site] == pytest.approx(stream.square().mean().sqrt().item(), rel=1e-5)
    stream = stream.detach().requires_grad_()
    logits, _ = gpt.run_with_cache(stream, start_at_layer=1)
    targets = probe.stream[:, 1:].flatten()
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets).backward()
    assert stream.grad is not None
    assert norms["resid_grad_norms"][site] == pytest.approx(stream.grad.norm().item(), rel=1e-4)
    assert list(norms["resid_norms"])[-1] == "blocks.1.hook_resid_post"


def test_rows_are_spread_over_all_documents() -> None:
    rows = torch.arange(10)[:, None]
    assert spread(rows, 4).flatten().tolist() == [0, 3, 6, 9]
    assert spread(rows, 99).flatten().tolist() == list(range(10))
