"""An ablation is a value: it says what it is, and what no model can mean is refused when it is made."""

from __future__ import annotations

import inspect
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
import torch

from interp.ablation import Ablation, Frozen, ablation_of, parse_positions, print_positions
from interp.places import Intervention, head, parse_place, parse_places
from interp.replacements import zero
from model.config import FFNKind, GPTConfig
from model.errors import ConfigError, InputError, UnknownNameError, UnknownSiteError
from model.sites import Tap

CONFIG = GPTConfig(n_layers=3, n_heads=4, d_model=32, n_ctx=24, d_vocab=50)


def test_it_says_in_the_grammar_and_in_words_what_it_is():
    assert str(ablation_of("L1H1,L1H3:zero", CONFIG)) == "L1H1:zero,L1H3:zero"
    whole = ablation_of("L1H3", CONFIG, "resample", gate=0.25, positions=[7, 2], frozen="patterns")
    assert str(whole) == "L1H3:resample (gate 0.25, at positions 2, 7, later patterns held)"
    many = ablation_of("L1H3:zero", CONFIG, positions=slice(3, 13))
    assert str(many) == "L1H3:zero (at positions 3-12)"
    both = ablation_of("L1H3:zero", CONFIG, positions=[*range(3, 6), 8])
    assert str(both) == "L1H3:zero (at positions 3-5, 8)"
    every_other = ablation_of("L1H3:zero", CONFIG, positions=range(1, 10, 2))
    assert str(every_other) == "L1H3:zero (at 5 positions from 1 to 9)"
    assert whole.positions == (2, 7)
    assert whole.first_layer == 1
    assert whole.held_patterns(CONFIG) == [Tap.PATTERN.at(2)]
    assert ablation_of("L2H0", CONFIG, frozen=Frozen.PATTERNS).held_patterns(CONFIG) == []


def test_a_layer_is_its_two_sublayers():
    assert [str(place) for place in parse_places("L0H1, L2, L1:zero")] == [
        *("L0H1:zero", "L2.attn:zero", "L2.ffn:zero", "L1.attn:zero", "L1.ffn:zero"),
    ]
    assert ablation_of("L1", CONFIG) == ablation_of("L1.attn,L1.ffn:mean", CONFIG)
    with pytest.raises(InputError, match=r'"L1:zero" is a whole layer, two places; name one: L1\.attn:zero or L1\.ffn'):
        parse_place("L1:zero")
    with pytest.raises(InputError, match=r"L1H2 is already covered by L1\.attn"):
        ablation_of("L1,L1H2", CONFIG)
    with pytest.raises(
        UnknownNameError, match=r"attention-only\. Choose heads, such as L1H0, or all of a layer, L1\.attn"
    ):
        ablation_of("L1", replace(CONFIG, ffn=FFNKind.NONE))
    with pytest.raises(UnknownSiteError, match=r'"L1" names a component and not a hook'):
        zero("L1")


def test_equal_ablations_are_one_key_and_others_are_not():
    one, other = ablation_of("L1H3", CONFIG, gate=1), ablation_of([head(1, 3, "mean")], CONFIG, gate=1.0)
    changed = [replace(one, gate=0.5), replace(one, positions=(1,)), replace(one, frozen=Frozen.PATTERNS)]
    assert {one: "found"}[other] == "found"
    assert len({one, *changed, ablation_of("L1H3:zero", CONFIG, gate=1)}) == 5


def test_made_again_it_stays_as_it_is_but_for_what_is_given():
    made = ablation_of("L1H3:zero", CONFIG, gate=0.5, positions=3, frozen="patterns")
    assert ablation_of(made, CONFIG, "mean") == made
    again = ablation_of(made, CONFIG, gate=0, positions=[4])
    assert (again.gate, again.positions, again.frozen) == (0.0, (4,), Frozen.PATTERNS)
    with pytest.raises(UnknownNameError, match="no L1H3: layer 1 has 2 heads"):
        ablation_of(made, replace(CONFIG, n_heads=2, n_kv_heads=2, d_head=16))


def test_a_swap_has_partners_of_its_kind_in_its_layer():
    assert str(ablation_of("L1M3,L1M9:swap", CONFIG)) == "L1M3:swap,L1M9:swap"
    assert str(ablation_of("L1H3,L1H0:swap,L0M1:zero", CONFIG)) == "L1H3:swap,L1H0:swap,L0M1:zero"
    with pytest.raises(InputError, match=r"L1M3:swap has nothing to swap with; name another memory of layer 1"):
        ablation_of("L1M3:swap,L1M4:zero", CONFIG)
    with pytest.raises(InputError, match=r"L1M3 and L2M3 cannot swap; name memories of one layer"):
        ablation_of("L1M3,L1M4,L2M3:swap", CONFIG)
    with pytest.raises(InputError, match=r"L1M3 and L1H3 cannot swap"):
        ablation_of("L1M3,L1H3:swap", CONFIG)


def test_it_knows_whether_anything_is_taken_out():
    assert ablation_of("L1M3:zero,L1M4:times=2", CONFIG).removes
    assert not ablation_of("L1M3:set=1,L1M4:times=2,L1M5,L1M6:swap", CONFIG).removes


@pytest.mark.parametrize("gate", [-0.1, 1.01, float("nan"), True])
def test_a_gate_is_a_share(gate: Any):
    with pytest.raises(InputError, match=r"is no share; give 0 \(all replaced\) to 1 \(intact\)"):
        ablation_of("L1H3", CONFIG, gate=gate)


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        (24, r"names position 24; this model has 0 to 23"),
        (-1, "cannot take position -1"),
        ([], "cannot take no position at all"),
        (torch.tensor([3, 30]), "names position 30"),
    ],
)
def test_positions_are_those_of_the_model(positions: Any, sentence: str):
    with pytest.raises(InputError, match=sentence):
        ablation_of("L1H3", CONFIG, positions=positions)


def test_positions_are_read_once_each_and_written_as_they_are_read():
    assert parse_positions(" 30, 10 - 12,11-13,007,12") == (7, 10, 11, 12, 13, 30)
    assert print_positions((7, 10, 11, 12, 13, 30)) == "7,10-13,30"
    assert parse_positions("0-3,5-5,2-4,1-2") == (0, 1, 2, 3, 4, 5)


def test_a_position_beyond_every_context_is_refused_before_it_is_counted_to():
    assert parse_positions("999998-999999") == (999998, 999999)
    assert parse_positions("0000999999") == (999999,)
    for text in ("1000000", "999999-1000000", "5,0-1000000", "1000000-2", "9" * 5000, "0-" + "9" * 5000):
        with pytest.raises(InputError, match=r'" goes beyond 999,999, the largest position; write smaller numbers\.$'):
            parse_positions(text)


def test_ranges_that_overlap_take_the_memory_of_one():
    tracemalloc.start()
    try:
        found = parse_positions(",".join(["0-9999"] * 500))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == tuple(range(10_000))
    assert most < 3_000_000, "bytes; five million numbers would take forty million for the list alone"


@pytest.mark.parametrize("text", ["", "1,", "-3", "1-", "1-2-3", "1.5", "one", "\u0661"])
def test_what_is_no_position_is_refused(text: str):
    with pytest.raises(InputError, match="is no position; write numbers from 0, or ranges such as 10-20, with commas"):
        parse_positions(text)
    with pytest.raises(InputError, match='"20-10" runs backwards; write 10-20'):
        parse_positions("20-10")


def test_what_is_held_is_named_with_the_choices():
    with pytest.raises((ConfigError, InputError), match='"pattern".* patterns'):
        ablation_of("L1H3", CONFIG, frozen="pattern")


def test_an_ablation_without_places_or_without_a_word_on_them_is_none():
    with pytest.raises(InputError, match="no place at all"):
        Ablation(places=())
    with pytest.raises(InputError, match="L1H3 does not say what replaces it"):
        Ablation(places=(head(1, 3),))


@pytest.mark.parametrize(
    "name", ["mean@batch", "mean@dataset", "mean@position", "mean@pos@seq", "mean@head", "mean_pos"]
)
def test_a_mean_over_another_axis_is_refused_with_the_names_of_all_there_are(name: str):
    """The wrong axis cannot be chosen by accident: no name leaves it open, and none is guessed."""
    sentence = (
        rf'no intervention "{name}"; known are zero, mean, mean@pos, mean@seq, .*\. A mean is over the sequences and '
        r"positions of other tokens \(mean\), over their sequences at each position \(mean@pos\), or over the past of "
        r"the sequence itself \(mean@seq\)\."
    )
    with pytest.raises(InputError, match=sentence):
        ablation_of(f"L1H3:{name}", CONFIG)


def test_every_intervention_states_what_it_assumes():
    source = inspect.getsource(Intervention)
    assert source.count("Assumes") == len(Intervention)
    assert "Assumes" in inspect.getsource(Frozen)
