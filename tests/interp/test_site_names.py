"""Whatever names a place names the same one, and what names none is answered in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp.interventions import intervened, mean, mean_held, mean_per_position, patch, record, zero
from interp.site_names import as_site
from model import GPT
from model.errors import InputError, UnknownSiteError
from model.sites import Tap, site_named


@pytest.fixture(autouse=True)
def bare() -> Iterator[None]:
    """As users run it: types are not checked at the door, which would refuse a value before the code sees it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", [("z", 1), "blocks.1.attn.hook_z", Tap.Z.at(1)], ids=str)
def test_a_place_can_be_named_in_every_way(tiny: GPT, tokens: Tensor, name: Any) -> None:
    means, recording = mean_held(tiny, tokens, name, source="these"), record(tiny, tokens, name, source="these")
    made = [zero(name), mean(name, means), mean_per_position(name, means), patch(name, recording)]
    assert {each.site for each in made} == {Tap.Z.at(1)}
    assert torch.equal(recording.at(name), recording.by_site["blocks.1.attn.hook_z"])


@pytest.mark.parametrize("tap", [tap for tap in Tap if not tap.per_layer], ids=lambda tap: tap.name)
def test_a_place_without_a_layer_needs_none(tap: Tap) -> None:
    assert as_site(tap) == tap.at() == site_named(tap.template)


@pytest.mark.parametrize("last", [("z", -1), Tap.Z.at(-1)], ids=str)
def test_a_layer_counts_from_the_end_where_the_model_is_known(tiny: GPT, tokens: Tensor, last: Any) -> None:
    assert list(record(tiny, tokens, last, source="these").by_site) == ["blocks.1.attn.hook_z"]
    assert list(mean_held(tiny, tokens, [last], source="these").by_site) == ["blocks.1.attn.hook_z"]
    with pytest.raises(UnknownSiteError, match="layer -1 counts from the end of a model, and none is known here"):
        zero(last)
    with pytest.raises(UnknownSiteError, match="there is no layer -3: this model has layers -2 to 1"):
        record(tiny, tokens, Tap.Z.at(-3), source="these")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Tap.Z, r"Tap.Z is a kind of place, one in each layer; write Tap.Z.at\(layer\)"),
        ("z", r'every layer has its own "z"; say which, as \("z", 0\)'),
        ("L0H3", r"not a hook; use interp.ablation.ablated\(gpt, \"L0H3:zero\"\), .*\('z', 0\), components=3"),
        ("L1.ffn:mean", r"ablated\(gpt, \"L1.ffn:zero\"\), or give the hook: \('post', 1\)\."),
        ("blocks.0.attn.hook_zz", r'no model has a hook .* Did you mean "blocks.0.attn.hook_z"'),
        (3, "3 is no place; give a hook name"),
    ],
)
def test_what_names_no_place_is_answered_in_a_sentence(tiny: GPT, tokens: Tensor, wrong: Any, sentence: str) -> None:
    with pytest.raises(UnknownSiteError, match=sentence):
        zero(wrong)
    with pytest.raises(UnknownSiteError, match=sentence):
        record(tiny, tokens, [wrong], source="these")


# --- caches, tensors and other things that could be meant -------------------------------------------------------------


@pytest.mark.parametrize("name", [("z", 0), ("pattern", 1), ("scale", 0, "ln1"), "blocks.1.hook_resid_post"], ids=str)
def test_the_cache_of_a_whole_run_patches_as_its_recording_does(tiny: GPT, tokens: Tensor, name: Any) -> None:
    _, cache = tiny.run_with_cache(tokens.flip(1), as_site(name))
    recording = record(tiny, tokens.flip(1), name, source="the other way round")
    for where in ({}, {"positions": [2, 5]}):
        with intervened(tiny, patch(name, cache, **where)) as gpt:
            by_cache = gpt(tokens)
        with intervened(tiny, [patch(name, recording, **where)]) as gpt:
            assert torch.equal(gpt(tokens), by_cache)
        assert not torch.equal(tiny(tokens), by_cache)


@pytest.mark.parametrize("how", ["padded", "cut", "single", "single, cut"])
def test_a_cache_whose_positions_are_not_known_is_refused(tiny: GPT, tokens: Tensor, how: str) -> None:
    mask = torch.ones_like(tokens, dtype=torch.bool)
    whole_mask = tiny.run_with_cache(tokens, attention_mask=mask)[1]
    patch(("z", 0), whole_mask)
    mask[0, :2] = False
    options: dict[str, dict[str, Any]] = {
        "padded": {"attention_mask": mask},
        "cut": {"pos_slice": slice(2, 8)},
        "single": {"remove_batch_dim": True},
        "single, cut": {"pos_slice": 3, "remove_batch_dim": True},
    }
    cache = tiny.run_with_cache(tokens[:1] if "single" in how else tokens, **options[how])[1]
    with pytest.raises(InputError, match=r"blocks.0.attn.hook_z was cut or padded .* use record\(gpt"):
        patch(("z", 0), cache)


def test_a_cache_shorter_than_the_run_covers_its_own_positions(tiny: GPT, tokens: Tensor) -> None:
    replaced = patch(("z", 0), tiny.run_with_cache(tokens[:, :6])[1])
    with intervened(tiny, replaced) as gpt, pytest.raises(InputError, match="position 11, but its .* positions 0 to 5"):
        gpt(tokens)


def test_a_tensor_is_no_recording_and_no_means(tiny: GPT, tokens: Tensor) -> None:
    held = tiny.run_with_cache(tokens)[1]["z", 0]
    with pytest.raises(InputError, match=r"a tensor does not say whose positions it holds\. Take record\(gpt"):
        patch(("z", 0), held)
    with pytest.raises(InputError, match=r"with a recording or a cache; not \{\}"):
        patch(("z", 0), {})
    for made in (mean, mean_per_position):
        with pytest.raises(InputError, match=r"means that say what they are of; take mean_held\(gpt"):
            made(("z", 0), held)


def test_one_replacement_needs_no_list_and_what_is_none_is_refused(tiny: GPT, tokens: Tensor) -> None:
    with intervened(tiny, zero(("z", 0))) as gpt:
        alone = gpt(tokens)
    with intervened(tiny, [zero(("z", 0))]) as gpt:
        assert torch.equal(gpt(tokens), alone)
    with pytest.raises(InputError, match="'L0H3:zero' is no replacement; make one with zero, mean"):
        with intervened(tiny, ["L0H3:zero"]):
            pass


@pytest.mark.parametrize("given", [slice(2, 5), range(2, 5), torch.tensor([2, 3, 4]), [2, 3, 4], (4, 3, 2)], ids=str)
def test_positions_are_a_slice_a_tensor_or_a_sequence(given: Any) -> None:
    assert sorted(zero(("z", 0), positions=given).positions or ()) == [2, 3, 4]
    assert zero(("z", 0), positions=slice(3)).positions == (0, 1, 2)


@pytest.mark.parametrize("given", [slice(2, None), slice(-2, 5), slice(None), 2.5, "3", True, slice(5, 2)], ids=str)
def test_positions_that_are_no_whole_numbers_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"cannot take .*give whole numbers from 0 on \(a slice with its end\)"):
        zero(("z", 0), positions=given)
