"""Memories are held against memories that write about as much, so that a busy one does not stand out for being busy."""

from __future__ import annotations

import doctest
import random

import pytest
import torch
from torch import Tensor

from interp import activity, matched_places
from interp.ablation import ablation_of
from interp.activity import activity_strata, memory_activity
from interp.controls import control_p
from interp.effects import ablate, benches_for, effect_of
from interp.matched_places import Matching, in_order
from interp.matched_places import matched_places as matched
from interp.places import memory, parse_places, print_places
from interp.wording import effect_sentences
from model.config import GPTConfig
from model.errors import ConfigError, InputError
from model.lab import Lab
from tests.conftest import make_gpt_with
from tests.planted import memory_model
from tests.planted_run import planted_lab

CONFIG = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=11, d_ff=200)
STRATA = torch.stack([torch.arange(200) // 50, torch.arange(200).flip(0) // 50])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """With an FFN: the planted lab's induction model has none."""
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", gpt=make_gpt_with(n_ctx=48, d_vocab=20, d_ff=100))


def test_the_examples_in_the_modules_hold() -> None:
    assert doctest.testmod(activity).failed == doctest.testmod(matched_places).failed == 0


def test_activity_is_what_hooks_see() -> None:
    gpt = make_gpt_with(ffn="swiglu", biases=True)
    tokens = torch.randint(0, 50, (5, 12), generator=torch.Generator().manual_seed(0))
    found = memory_activity(gpt, tokens, batch_size=2)
    _, cache = gpt.run_with_cache(tokens)
    for layer in range(2):
        m, norm = cache["post", layer].flatten(0, 1), gpt.W_out[layer].norm(dim=-1)
        torch.testing.assert_close(found.mean_write[layer], m.abs().mean(0) * norm)
        torch.testing.assert_close(found.largest[layer], m.amax(0))
        torch.testing.assert_close(found.firing[layer], (m > 0).float().mean(0))
    assert found.n_positions == 60
    with pytest.raises(InputError, match="attention-only"):
        memory_activity(make_gpt_with(ffn="none"), tokens)


def test_a_planted_memory_writes_its_value_where_its_bigram_is() -> None:
    gpt = memory_model()
    found = memory_activity(gpt, torch.tensor([[1, 3, 5, 0], [3, 3, 3, 5]]))
    assert found.mean_write[0].tolist() == pytest.approx([0, 0, 2 / 8 * 5, 0, 0, 0, 0, 0])
    assert (found.largest[0, 2].item(), found.firing[0, 2].item()) == (1.0, 0.25)


def test_strata_are_neighbours_in_how_much_they_write_and_hold_as_many_as_they_say() -> None:
    writes = torch.rand(2, 333, generator=torch.Generator().manual_seed(0))
    given = activity.MemoryActivity(largest=writes, mean_write=writes, firing=writes, value_norm=writes, n_positions=1)
    strata = activity_strata(given)
    for layer in range(2):
        assert int(torch.bincount(strata[layer]).min()) >= 50
        highest = [float(writes[layer, strata[layer] == each].max()) for each in range(6)]
        lowest = [float(writes[layer, strata[layer] == each].min()) for each in range(6)]
        assert all(high < low for high, low in zip(highest, lowest[1:], strict=False))


def test_memories_are_exchanged_within_their_layer_and_stratum_and_nowhere_else() -> None:
    claimed = parse_places("L0M3,L0M120,L1M3:zero,L1M4:set=2,L0H1:mean")
    found = matched(claimed, CONFIG, limit=60, seed=1, strata=STRATA)
    assert len(set(found.sets)) == len(found.sets) == 60
    assert found.n_possible == 4 * 50 * 50 * (50 * 49) - 1
    for places in found.sets:
        for own, other in zip(in_order(claimed, CONFIG, STRATA), places, strict=True):
            assert (own.layer, own.kind, own.stated) == (other.layer, other.kind, other.stated)
            if own.label.startswith("L0M") or own.label.startswith("L1M"):
                assert STRATA[own.layer, own.index] == STRATA[other.layer, other.index]  # type: ignore[index]
    assert found.note == (
        "60 random ones of the 24,499,999 other sets with as many heads and memories of each intervention in each "
        "layer, each for one that writes about as much (|m| |v|)"
    ).replace("24,499,999", f"{found.n_possible:,}")
    without = matched(claimed, CONFIG, limit=60, seed=1)
    assert without.n_possible == 4 * (200 * 199 // 2) * (200 * 199) - 1
    assert "writes about as much" not in without.note


def test_what_one_memory_is_held_against_is_said_as_of_one_memory() -> None:
    def noted(text: str, **given: object) -> str:
        return matched(parse_places(text), CONFIG, **{"limit": 300, "seed": 1, **given}).note  # type: ignore[arg-type]

    assert noted("L1M3:zero", strata=STRATA) == "all 49 other memories of layer 1 that write about as much (|m| |v|)"
    assert noted("L1M3:set=2.5") == "all 199 other memories of layer 1 (set=2.5 for each)"
    assert noted("L1M3:zero", limit=9) == "9 random ones of the 199 other memories of layer 1"
    assert noted("L0H1:mean") == "all 3 other heads of layer 0"
    assert noted("L1M3,L1M4:times=2", limit=9).endswith(
        "other sets with as many memories in each layer (times=2 for each)"
    )
    assert "for each)" not in noted("L1M3:zero,L1M4:set=2", limit=9)


@pytest.mark.parametrize(("strata", "valid"), [(STRATA, True), (None, False)])
def test_the_p_of_busy_memories_is_valid_among_busy_ones_and_too_small_among_any(
    strata: Tensor | None, valid: bool
) -> None:
    """Harm grows with activity, and the claimed memories are any three of the busiest: nothing else is special."""
    chance = random.Random(0)
    noise = torch.randn(200, generator=torch.Generator().manual_seed(0))
    harm = (STRATA[0] * 3 + noise).tolist()
    ps = []
    for seed in range(100):
        claimed = [memory(0, index, "zero") for index in chance.sample(range(150, 200), 3)]
        sets = [claimed, *matched(claimed, CONFIG, limit=39, seed=seed, strata=strata).sets]
        costs = [sum(harm[place.number] for place in each) for each in sets]
        ps.append(control_p(costs[0], costs[1:]))
    p = torch.tensor(ps)
    for level in (0.05, 0.1, 0.2, 0.5):
        holds = float((p <= level).double().mean()) <= level + 2 * (level * (1 - level) / len(ps)) ** 0.5
        assert holds is valid, level


def test_swapped_memories_are_held_against_others_that_swap_in_a_random_order() -> None:
    claimed = parse_places("L0M9,L0M3,L0M7:swap")
    found = matched(claimed, CONFIG, limit=300, seed=0)
    assert print_places(in_order(claimed, CONFIG)) == "L0M9:swap,L0M3:swap,L0M7:swap"
    assert len({frozenset(each) for each in found.sets}) == 300
    orders = [tuple(torch.tensor([place.index for place in each]).argsort().tolist()) for each in found.sets]
    counts = [orders.count(each) for each in set(orders)]
    assert len(counts) == 6
    assert min(counts) > 25
    pair = matched(parse_places("L1M3,L1M4:swap"), CONFIG, limit=50, seed=0).sets[0]
    assert [str(place)[:3] + place.stated for place in pair] == ["L1Mswap"] * 2


def test_thousands_of_memories_are_matched_too() -> None:
    wide = CONFIG.varied(d_ff=1536, n_layers=4)
    claimed = [memory(layer, index, "zero") for layer in range(4) for index in range(0, 1536, 2)]
    strata = torch.arange(1536).expand(4, -1) // 50
    found = matched(claimed, wide, limit=5, seed=0, strata=strata)
    assert [len(each) for each in found.sets] == [3072] * 5
    assert "of the about 10^" in found.note


def test_the_control_of_memories_says_how_it_is_matched_and_the_choice_is_the_users(lab: Lab) -> None:
    ablation = ablation_of("L0M3,L1M9:zero,L0H1:zero", lab.config)
    bench, _ = benches_for(lab, ablation, metric="text_loss", n_sequences=6)
    given = {"metric": "text_loss", "seed": 0, "n_controls": 9}
    strata = activity_strata(memory_activity(lab.gpt, bench.trials[1].reference))
    by_layer, by_activity = (effect_of(bench, ablation, matching=each, **given) for each in Matching)
    assert int(strata.max()) == 1
    assert "each for one that writes about as much" in by_activity.control.note
    assert "writes" not in by_layer.control.note
    assert by_activity.control.n_possible < by_layer.control.n_possible == 4 * 100 * 100 - 1
    assert by_activity.control.own == pytest.approx(by_activity.harm.mean)
    assert "none of these components" in " ".join(effect_sentences(by_activity)) or by_activity.control.p is not None
    with pytest.raises((ConfigError, InputError), match='"nearest".* activity'):
        effect_of(bench, ablation, matching="nearest", **given)


def test_what_changes_and_takes_nothing_out_is_not_called_ablated(lab: Lab) -> None:
    effect = ablate(lab, "L1M9:times=3", metric="text_loss", n_sequences=6, n_controls=3)
    assert "With L1M9:times=3 in force, the loss on held-out text" in effect_sentences(effect)[0]
