"""The presets are what their names promise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.config import FFNKind, Norm, NormKind, Positions
from model.errors import UnknownNameError
from model.presets import PRESETS, demo, demo_post, get_preset, gpt2_small, induction, memories, tiny
from model.settings import from_plain, to_plain, with_settings
from model.training import RunConfig
from model.training.corpus import build_tokenizer


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_complete_and_survives_plain_data(name: str) -> None:
    assert from_plain(RunConfig, to_plain(get_preset(name))) == get_preset(name)


@pytest.mark.parametrize("name", ["tiny", "demo", "demo_post", "induction"])
def test_model_and_tokenizer_agree_on_the_vocabulary(name: str) -> None:
    run = get_preset(name)
    assert run.model.d_vocab == build_tokenizer(run.data).d_vocab


def test_the_twin_differs_in_its_norm_and_in_nothing_else() -> None:
    assert demo_post().model.norm is Norm.POST
    assert replace(demo_post(), model=demo_post().model.varied(norm=Norm.PRE)) == demo()


def test_gpt2_small_is_gpt2_small() -> None:
    model = gpt2_small().model
    assert model.n_params == 124_439_808
    assert (model.norm_kind, model.positions, model.biases) == (NormKind.LAYERNORM, Positions.LEARNED, True)
    assert gpt2_small().data.tokenizer == f"bpe:{model.d_vocab}"


def test_the_demo_can_show_induction() -> None:
    run = demo()
    assert run.model.n_layers >= 2
    assert run.model.n_heads >= 8, "enough heads in a layer for a layer-matched control"
    assert any(source.name == "repeats" for source in run.data.parsed_sources)
    assert run.copy_period is not None
    assert run.copy_period > run.data.max_period


def test_the_induction_run_holds_what_its_page_says() -> None:
    run = induction()
    assert (run.model.n_layers, run.model.ffn, run.model.d_vocab) == (2, FFNKind.NONE, 64)
    assert [source.name for source in run.data.parsed_sources] == ["repeats"]
    assert run.copy_period is not None
    assert run.copy_period > run.data.max_period
    variants = ["model.n_layers=1"], ["model.n_layers=1", "model.smeared_keys=true"]
    distance = ["model.n_layers=1", "data.min_period=16", "data.max_period=16"]
    assert all(with_settings(run, changes) != run for changes in (*variants, distance))


def test_the_run_for_memories_is_one_that_the_targets_can_be_read_from() -> None:
    run = memories()
    assert run.model.ffn is FFNKind.RELU, "a coefficient has a natural zero"
    assert run.model.norm_kind is NormKind.RMSNORM, "a final norm with a bias can decode a sum unlike both its parts"
    assert run.model.n_layers >= 6, "a rank correlation with depth needs layers"
    assert run.model.n_layers % 3 == 0, "thirds of the layers are compared"
    assert run.data.tokenizer == f"bpe:{run.model.d_vocab}"
    assert all(source.is_text for source in run.data.parsed_sources)


def test_an_unknown_preset_lists_those_that_exist() -> None:
    with pytest.raises(
        UnknownNameError, match=r'no preset "demos"\. Did you mean "demo".* There are tiny, demo, demo_post'
    ):
        get_preset("demos")
    assert get_preset("demo-post") == demo_post()
    assert tiny().train.steps < 100
