"""A run's config refuses what cannot be trained, and says what can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import GPTConfig
from model.errors import ConfigError
from model.settings import from_plain, to_plain, with_settings
from model.training import DataConfig, OptimConfig, RunConfig, TrainConfig

Small = Callable[..., RunConfig]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("train.steps=0", r"train\.steps=0 must be a whole number of at least 1"),
        ("train.batch_size=6 ", r"train\.batch_size=6 does not divide into train\.accumulate=4"),
        ("train.seed=-1", r"train\.seed=-1 must not be negative"),
        ("optim.lr=0", r"optim\.lr=0\.0 must be a positive number"),
        ("optim.lr=inf", r'optim\.lr="?inf"? is not a'),
        ("optim.clip=nan", r'optim\.clip="?nan"? is not a'),
        ("optim.clip=0", r"optim\.clip=0\.0 must be positive, or none"),
        ("optim.decay_share=2", r"optim\.decay_share=2\.0 is not a share"),
        ("optim.beta2=1", r"optim\.beta2=1\.0 must lie from 0"),
        ("optim.schedule=linear", r'schedule="linear" is not one of wsd, cosine'),
        ("optim.optimizer=sgd", r'optimizer="sgd" is not one of adamw, muon'),
        ("train.copy_period=9", r"train\.copy_period=9 does not fit twice into n_ctx=16; take 2 to 7"),
        (
            "data.tokenizer=chars:64",
            r"data\.tokenizer=chars:64 knows visible characters alone, .* cannot read stdlib; take bytes",
        ),
        ("train.stepz=3", r'There is no setting "train\.stepz"\. Did you mean "steps"'),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(small: Small, setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        with_settings(small(accumulate=4), [setting.strip()])


def test_a_model_that_sees_the_next_token_is_not_trained_to_predict_it(small: Small) -> None:
    with pytest.raises(ConfigError, match=r"model\.attention=bidirectional sees the token it should predict"):
        small(model={"attention": "bidirectional"})


def test_clipping_is_switched_off_by_none(small: Small) -> None:
    assert with_settings(small(), ["optim.clip=none"]).optim.clip is None


def test_a_run_config_survives_plain_data(small: Small) -> None:
    config = small(optim={"optimizer": "muon", "clip": None})
    assert from_plain(RunConfig, to_plain(config)) == config


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("config", [DataConfig(), OptimConfig()])
def test_no_number_of_a_config_may_be_infinite_or_undefined(config: Any, number: float) -> None:
    names = [field.name for field in fields(config) if isinstance(getattr(config, field.name), float)]
    assert names
    for name in names:
        with pytest.raises(ConfigError, match=rf"\.{name}={number} is not a finite number; give one that is"):
            replace(config, **{name: number})


def run_for(n_ctx: int, *, d_vocab: int = 257, copy_period: int | None = None, **data: Any) -> RunConfig:
    return RunConfig(
        model=GPTConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=n_ctx, d_vocab=d_vocab),
        data=DataConfig(**data),
        train=TrainConfig(steps=1, copy_period=copy_period),
    )


@pytest.mark.parametrize(
    ("n_ctx", "min_period", "max_period", "expected"),
    [(64, 6, 24, 31), (64, 6, 30, 31), (64, 6, 31, 5), (40, 6, 24, 5), (12, 6, 24, 5), (14, 6, 24, 5), (5, 6, 24, 2)],
)
def test_the_copy_period_is_the_longest_that_is_free_or_the_next_below_what_training_shows(
    n_ctx: int, min_period: int, max_period: int, expected: int
) -> None:
    assert run_for(n_ctx, min_period=min_period, max_period=max_period).copy_period == expected


def test_where_every_period_is_trained_on_or_none_fits_there_is_no_copy_period() -> None:
    assert run_for(40, min_period=2, max_period=24).copy_period is None
    assert run_for(4).copy_period is None
    assert run_for(64, d_vocab=2, sources=("stdlib",)).copy_period is None


@pytest.mark.parametrize("n_ctx", [5, 40, 64, 65])
def test_without_repeats_among_the_sources_every_period_is_new_so_the_longest_is_taken(n_ctx: int) -> None:
    run = run_for(n_ctx, sources=("stdlib", "text:notes=0.5"), min_period=2, max_period=40)
    assert run.copy_period == (n_ctx - 1) // 2
    assert from_plain(RunConfig, to_plain(run)).copy_period == run.copy_period


def test_the_copy_period_leaves_room_for_different_tokens_only() -> None:
    assert run_for(256, d_vocab=31, sources=("stdlib",)).copy_period == 30


def test_a_copy_period_that_is_given_is_taken() -> None:
    assert run_for(64, copy_period=28).copy_period == 28
    assert run_for(64, copy_period=10, sources=("stdlib",)).copy_period == 10


@given(n_ctx=st.integers(2, 80), shortest=st.integers(2, 40), more=st.integers(0, 40))
def test_the_copy_period_is_one_that_training_never_shows_and_fits_twice(n_ctx: int, shortest: int, more: int) -> None:
    period = run_for(n_ctx, min_period=shortest, max_period=shortest + more).copy_period
    if period is not None:
        assert period >= 2
        assert 1 + 2 * period <= n_ctx
        assert not shortest <= period <= shortest + more
