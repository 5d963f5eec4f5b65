"""Configs to and from plain data: strict, typed, and complete."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from model import GPTConfig, Norm
from model.errors import ConfigError
from model.settings import config_hash, from_plain, to_plain, with_settings

GPT_CONFIG = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=24, d_vocab=50)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    rate: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.95)
    limit: int | None = None
    fused: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Outer:
    model: GPTConfig = GPT_CONFIG
    inner: Inner = field(default_factory=Inner)
    names: tuple[str, ...] = ("a",)


def test_a_config_survives_json() -> None:
    outer = with_settings(Outer(), ["model.norm=post", "inner.betas=0.8,0.9", "inner.limit=3", "names=x,y"])
    assert from_plain(Outer, json.loads(json.dumps(to_plain(outer)))) == outer
    assert outer.model.norm is Norm.POST
    assert outer.inner == Inner(betas=(0.8, 0.9), limit=3)
    assert outer.names == ("x", "y")


def test_settings_apply_together() -> None:
    """d_model=30 alone does not divide into 4 heads; with n_heads=6 it does."""
    assert with_settings(Outer(), ["model.d_model=30", "model.n_heads=5"]).model.d_head == 6


def test_the_hash_names_the_content() -> None:
    assert config_hash(Outer()) == config_hash(Outer())
    assert config_hash(Outer()) != config_hash(with_settings(Outer(), ["inner.rate=0.2"]))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("model.nrom=post", 'There is no setting "model.nrom". Did you mean "norm"'),
        ("modle.norm=post", 'There is no setting "modle". Did you mean "model"'),
        ("model=post", '"model" is a group of settings; set one of model.n_layers'),
        ("names.x=1", '"names" has no parts'),
        ("inner.rate=fast", 'inner.rate="fast" is not a number'),
        ("inner.rate=nan", 'inner.rate="nan" is not a number'),
        ("inner.rate=inf", 'inner.rate="inf" is not a number'),
        ("inner.limit=1.5", 'inner.limit="1.5" is not a whole number'),
        ("inner.fused=maybe", 'inner.fused="maybe" is neither true nor false'),
        ("inner.rate", '"inner.rate" is not a setting; write KEY=VALUE'),
        ("model.norm=up", 'model.norm="up" is not one of pre, post'),
    ],
)
def test_a_setting_that_means_nothing_is_refused(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        with_settings(Outer(), [setting])


def test_plain_data_is_read_strictly() -> None:
    with pytest.raises(ConfigError, match='There is no setting "inner.ratte"'):
        from_plain(Outer, {"inner": {"ratte": 1.0}})
    with pytest.raises(ConfigError, match="inner.limit='3' is not"):
        from_plain(Outer, {"inner": {"limit": "3"}})
    with pytest.raises(ConfigError, match="lacks n_layers, n_heads, d_model, n_ctx, d_vocab"):
        from_plain(GPTConfig, {})
