"""The grammar of places: what is written is what is read, and what cannot be meant is refused."""

from __future__ import annotations

import doctest
from dataclasses import replace
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp import places, resolved_places
from interp.places import Intervention, Place, PlaceKind, head, memory, parse_place, parse_places, print_places
from interp.resolved_places import named_head, named_heads, resolve_places
from model.config import FFNKind, GPTConfig
from model.errors import InputError, UnknownNameError

CONFIG = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=11)

layers, numbers = st.integers(0, 99), st.floats(-1e30, 1e30).filter(lambda number: number != 1)
plain = st.sampled_from([None, *(kind for kind in Intervention if kind.removes)])
any_place = st.one_of(
    st.builds(Place, kind=st.sampled_from([PlaceKind.ATTENTION, PlaceKind.FFN]), layer=layers, intervention=plain),
    st.builds(head, layers, st.integers(0, 4096), plain | st.just("swap")),
    st.builds(memory, layers, st.integers(0, 4096), plain | st.just("swap")),
    st.builds(memory, layers, st.integers(0, 4096)).flatmap(
        lambda place: st.builds(
            replace,
            st.just(place),
            intervention=st.sampled_from([Intervention.SET, Intervention.TIMES]),
            amount=numbers,
        )
    ),
)


def test_the_examples_in_the_module_hold():
    assert doctest.testmod(places).failed == doctest.testmod(resolved_places).failed == 0


@given(any_place)
def test_a_printed_place_reads_back_as_itself(place: Place):
    assert parse_place(str(place)) == place


@given(st.lists(any_place, min_size=1, max_size=6))
def test_printed_places_read_back_in_their_order_also_out_of_an_address(given_places: list[Place]):
    stated = [place for place in given_places if place.intervention]
    text = print_places(stated)
    assert list(parse_places(text)) == stated if stated else not text
    assert parse_qs(f"ablate={text}", strict_parsing=True)["ablate"] == [text] if stated else True


@pytest.mark.parametrize(
    ("text", "printed"),
    {
        "L1M3,L1M9:set=2.50": "L1M3:set=2.5,L1M9:set=2.5",
        "L1M3 : set = -0": "L1M3:set=0",
        "L1M3:set=1e30": "L1M3:set=1e30",
        "L1.ffn,L1H2:times=2": "L1.ffn:times=2,L1H2:times=2",
        "L1M9,L1M3:swap,L0H1:zero": "L1M9:swap,L1M3:swap,L0H1:zero",
    }.items(),
)
def test_numbers_stand_in_the_name_and_reach_back_with_it(text: str, printed: str):
    assert print_places(parse_places(text)) == printed


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "L1M3:set": r"set needs a number; write set=2\.5\.",
        "L1M3:times": r"times needs a number; write times=2\.",
        "L1M3:set=": r'"" is no number; write set=2\.5',
        "L1M3:set=much": r'"much" is no number; write set=2\.5',
        "L1M3:set=nan": r"set=nan is no number that a model can hold",
        "L1M3:times=inf": r"times=inf is no number that a model can hold",
        "L1M3:set=1e39": r"is no number that a model can hold",
        "L1M3:zero=2": r"zero takes no number; write zero\.",
        "L1M3:swap=2": r"swap takes no number",
        "L1M3:times=1": r"times=1 leaves all as it is",
        "L1M3:sett=2": r'no intervention "sett"; .*Did you mean "set"',
        "L1H3:set=2": r"L1H3:set=2 cannot be: only a memory holds one number",
        "L1.ffn:set=2": r"L1\.ffn:set=2 cannot be: only a memory",
        "L1.ffn:swap": r"L1\.ffn:swap cannot be: heads or memories of one layer swap",
    }.items(),
)
def test_what_no_number_or_no_swap_can_be_is_said_in_a_sentence(text: str, sentence: str):
    with pytest.raises(InputError, match=sentence):
        parse_place(text)
    place, _, intervention = text.partition(":")
    with pytest.raises(InputError, match=sentence):
        resolve_places(place, CONFIG, intervention)


def test_a_place_is_read_with_its_layer_index_and_intervention():
    assert parse_place("L1M37:mean@pos") == Place(
        kind=PlaceKind.MEMORY, layer=1, index=37, intervention=Intervention.MEAN_PER_POSITION
    )


def test_an_intervention_covers_the_places_before_it_and_none_after():
    assert print_places(parse_places("L1H1,L1H3:mean,L0H0:zero,L0.ffn")) == "L1H1:mean,L1H3:mean,L0H0:zero,L0.ffn"


@pytest.mark.parametrize("text", ["L1X3", "1.3", "L1H", "H3", "L1.mlp", "L-1H0", "L1H1:"])
def test_text_outside_the_grammar_is_refused(text: str):
    with pytest.raises(InputError, match=r"is not a place\. (Write a head as L1H3|Did you mean)|no intervention"):
        parse_place(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "L1.mlp": r'"L1.mlp" is not a place. Did you mean L1.ffn\?',
        "l1h4:zero": r"Did you mean L1H4:zero\?",
        "L1.H4": r"Did you mean L1H4\?",
        "L1H4 L1H6:mean": r"Put commas between places: L1H4,L1H6:mean\.",
        "L1H4,": r"There is a comma too many",
        "blocks.1.attn.hook_z": r"the name of a hook; the whole sublayer is L1.attn, one head such as L1H0\.",
        "blocks.0.mlp.hook_post": r"the whole sublayer is L0.ffn",
        "the third head": r"Write a head as L1H3",
    }.items(),
)
def test_a_near_miss_is_told_what_to_write(text: str, sentence: str):
    with pytest.raises(InputError, match=sentence):
        parse_places(text)


def test_what_is_advised_for_a_near_miss_can_be_read():
    for text in ("L1.mlp:zero", "l1h4", "L1.H4:mean@pos", "l0m7", "L0.Attention", "l1"):
        with pytest.raises(InputError) as refused:
            parse_places(text)
        advised = str(refused.value).split("Did you mean ")[1].removesuffix("?")
        assert parse_places(advised)


def test_blanks_around_a_colon_mean_nothing():
    assert parse_places("L1H4 : mean, L1: zero") == parse_places("L1H4:mean,L1:zero")


def test_of_a_part_and_a_whole_it_is_the_part_that_is_covered():
    for text in ("L1.attn,L1H3", "L1H3,L1.attn"):
        with pytest.raises(InputError, match=r"L1H3 is already covered by L1\.attn"):
            resolve_places(text, CONFIG)


def test_an_unknown_intervention_is_named_with_the_known_ones():
    with pytest.raises(
        InputError, match=r'no intervention "maen"; known are zero, mean, mean@pos, .*, swap\. Did you mean "mean"'
    ):
        parse_place("L1H3:maen")


def test_no_place_is_refused():
    with pytest.raises(InputError, match="no place given"):
        parse_places("  ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("L2H0", r"no L2H0: this model has 2 layers\. Choose a layer from 0 to 1"),
        ("L1H4", r"no L1H4: layer 1 has 4 heads\. Choose a head from 0 to 3"),
        ("L0M128", r"no L0M128: layer 0 has 128 memories\. Choose a memory from 0 to 127"),
    ],
)
def test_a_place_the_model_lacks_is_named_with_what_it_has(text: str, sentence: str):
    with pytest.raises(UnknownNameError, match=sentence):
        resolve_places(text, CONFIG)


@pytest.mark.parametrize("place", [head(0, -1), head(-1, 0), replace(head(0, 0), kind=PlaceKind.MEMORY, index=-1)])
def test_a_place_counted_from_the_end_is_no_place(place: Place):
    """Python would take the last head, and print L0H-1."""
    with pytest.raises(UnknownNameError, match=r"no L-?\d[HM]-?\d: .* Choose a \w+ from 0 to"):
        resolve_places([place], CONFIG)


@pytest.mark.parametrize("place", [replace(head(0, 0), index=None), Place(kind=PlaceKind.ATTENTION, layer=0, index=1)])
def test_a_head_without_an_index_is_no_whole_layer_and_a_layer_has_none(place: Place):
    with pytest.raises(InputError, match="heads and memories have an index, sublayers none"):
        resolve_places([place], CONFIG)


def test_an_attention_only_model_has_no_ffn():
    with pytest.raises(UnknownNameError, match="attention-only"):
        resolve_places("L0.ffn", CONFIG.varied(ffn=FFNKind.NONE))


@pytest.mark.parametrize("text", ["L1H1,L1H1", "L1.attn,L1H1:zero", "L0M3,L0.ffn", "L1H1:zero,L1H1:mean"])
def test_a_component_named_twice_is_refused(text: str):
    with pytest.raises(InputError, match="already covered"):
        resolve_places(text, CONFIG)


def test_thousands_of_places_are_looked_through_once():
    wide = CONFIG.varied(d_ff=4096)
    several = [memory(1, index, "zero") for index in range(4096)]
    assert len(resolve_places(several, wide)) == 4096
    with pytest.raises(InputError, match="L1M7 is already covered by L1M7"):
        resolve_places([*several, memory(1, 7, "zero")], wide)


def test_the_same_index_in_another_layer_or_sublayer_is_another_component():
    assert len(resolve_places("L0H1,L1H1,L0M1,L1.ffn", CONFIG)) == 4


def test_the_given_intervention_fills_in_where_none_is_written():
    resolved = resolve_places([head(0, 1), head(0, 2, Intervention.ZERO)], CONFIG, Intervention.MEAN_PER_POSITION)
    assert print_places(resolved) == "L0H1:mean@pos,L0H2:zero"


def test_heads_are_named_as_everywhere() -> None:
    assert named_heads(CONFIG, "L1H2, L0.attn") == [(1, 2), (0, 0), (0, 1), (0, 2), (0, 3)]
    assert len(named_heads(CONFIG, None)) == 8
    with pytest.raises(UnknownNameError, match="layer 1 has 4 heads"):
        named_heads(CONFIG, "L1H4")
    with pytest.raises(InputError, match=r"L0\.attn names 4 heads; name one, such as L1H0"):
        named_head(CONFIG, "L0.attn")
    with pytest.raises(InputError, match=r"L1\.ffn is no head"):
        named_heads(CONFIG, "L1.ffn")


def test_a_whole_sublayer_has_no_number_and_none_is_made_up() -> None:
    assert (memory(1, 37).number, head(0, 0).number) == (37, 0)
    with pytest.raises(InputError, match=r"L0\.ffn has no number; name one head or memory of it"):
        _ = parse_place("L0.ffn").number
