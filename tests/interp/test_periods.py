"""Every study judges a run at one and the same period, which the run itself names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from interp.periods import deciding_period, trained_periods
from model.config import GPTConfig
from model.presets import get_preset
from model.settings import to_plain
from model.training.config import RunConfig, TrainConfig
from model.training.sources import DataConfig


def lab_of(run: RunConfig, *, bos: int | None = 256) -> Any:
    record = {"config": to_plain(run)}
    return SimpleNamespace(config=run.model, tokenizer=tokenizer_of(run.model.d_vocab, bos), run_config=record)


def tokenizer_of(d_vocab: int, bos: int | None) -> Any:
    return SimpleNamespace(bos=bos, token_bytes=[b"" if token == bos else b"x" for token in range(d_vocab)])


def run_of(n_ctx: int, *, d_vocab: int = 257, copy_period: int | None = None, **data: Any) -> RunConfig:
    return RunConfig(
        model=GPTConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=n_ctx, d_vocab=d_vocab),
        data=DataConfig(**{"sources": ("stdlib", "repeats"), **data}),
        train=TrainConfig(steps=1, copy_period=copy_period),
    )


@pytest.mark.parametrize("preset", ["tiny", "demo", "demo_post"])
def test_the_period_that_decides_is_the_one_that_was_followed_in_training(preset: str) -> None:
    run = get_preset(preset)
    assert deciding_period(lab_of(run)) == run.copy_period


def test_the_demo_is_judged_at_its_own_period_and_not_at_the_longest() -> None:
    assert deciding_period(lab_of(get_preset("demo"))) == 28


@pytest.mark.parametrize(
    ("n_ctx", "shortest", "longest", "period"),
    [(64, 6, 24, 31), (32, 6, 20, 5), (32, 2, 20, 15), (1024, 6, 24, 256)],
)
def test_where_the_run_names_none_it_is_the_longest_that_training_never_showed(
    n_ctx: int, shortest: int, longest: int, period: int
) -> None:
    assert deciding_period(lab_of(run_of(n_ctx, min_period=shortest, max_period=longest))) == period


def test_periods_that_no_source_showed_are_not_trained() -> None:
    lab = lab_of(run_of(32, sources=("stdlib",), min_period=6, max_period=20))
    assert not trained_periods(lab)
    assert deciding_period(lab) == 15


def test_no_token_comes_twice_in_a_segment_so_a_small_vocabulary_caps_the_period() -> None:
    assert deciding_period(lab_of(run_of(64, d_vocab=20, copy_period=31), bos=19)) == 19


def test_a_model_that_was_trained_elsewhere_is_judged_at_the_longest_that_fits() -> None:
    config = GPTConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=64, d_vocab=257)
    imported: Any = SimpleNamespace(config=config, tokenizer=tokenizer_of(257, 256), run_config={})
    assert deciding_period(imported) == 31
    assert not trained_periods(imported)
