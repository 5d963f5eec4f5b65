"""A run's config refuses what cannot be trained, and says what can."""

from __future__ import annotations

from collections.abc import Callable

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
        ("optim.clip=0", r"optim\.clip=0\.0 must be positive, or none"),
        ("optim.decay_share=2", r"optim\.decay_share=2\.0 is not a share"),
        ("optim.beta2=1", r"optim\.beta2=1\.0 must lie from 0"),
        ("optim.schedule=linear", r'schedule="linear" is not one of wsd, cosine'),
        ("optim.optimizer=sgd", r'optimizer="sgd" is not one of adamw, muon'),
        ("train.copy_period=9", r"train\.copy_period=9 does not fit twice into n_ctx=16; take 2 to 7"),
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


@given(n_ctx=st.integers(2, 80), shortest=st.integers(2, 40), more=st.integers(0, 40))
def test_the_copy_period_is_one_that_training_never_shows_and_fits_twice(n_ctx: int, shortest: int, more: int) -> None:
    config = RunConfig(
        model=GPTConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=n_ctx, d_vocab=257),
        data=DataConfig(min_period=shortest, max_period=shortest + more),
        optim=OptimConfig(),
        train=TrainConfig(steps=1),
    )
    period = config.copy_period
    if period is not None:
        assert period >= 2
        assert 1 + 2 * period <= n_ctx
        assert not shortest <= period <= shortest + more
