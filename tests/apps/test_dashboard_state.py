"""The selection and its spelling in the address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dashboard.state import Selection, from_query, toggled
from interp.live import LiveText
from interp.places import parse_places, print_places
from model.config import GPTConfig

CONFIG = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=24, d_vocab=50)

layers = st.integers(0, 1)
heads = st.tuples(layers, st.integers(0, 3))
cells = st.tuples(st.integers(0, 23), st.integers(0, 23))
SETS = ["L1H1", "L0H2,L1H3:mean", "L0.ffn:zero", "L1M37", "L0H0:mean@pos,L1H0:zero"]
places = st.sampled_from([(), *map(parse_places, SETS)])
selections = st.builds(
    Selection,
    run=st.sampled_from(["demo", "a b", "post-norm"]),
    step=st.none() | st.integers(0, 1000),
    head=st.none() | heads,
    memory=st.none() | st.tuples(layers, st.integers(0, 127)),
    cell=st.none() | cells,
    ablate=places,
    text=st.sampled_from(LiveText),
    prompt=st.text(max_size=30),
)


def address(selection: Selection) -> dict[str, str]:
    """The parameters that spell a selection, as a person would write them."""
    parts = {"run": selection.run, "prompt": selection.prompt, "text": str(selection.text)}
    parts |= {} if selection.step is None else {"step": str(selection.step)}
    parts |= {} if selection.head is None else {"head": "L{}H{}".format(*selection.head)}
    parts |= {} if selection.memory is None else {"memory": "L{}M{}".format(*selection.memory)}
    parts |= {} if selection.cell is None else {"cell": "{}.{}".format(*selection.cell)}
    return parts | {"ablate": print_places(selection.ablate)}


@given(selections)
def test_what_is_written_to_the_address_is_read_back(selection: Selection) -> None:
    back, notices = from_query(address(selection), CONFIG)
    assert back == selection
    assert notices == ()


@given(
    st.dictionaries(
        st.sampled_from(["run", "step", "head", "memory", "cell", "ablate", "text", "prompt", "x"]), st.text()
    )
)
def test_no_address_can_do_more_than_cause_a_notice(raw: dict[str, str]) -> None:
    selection, notices = from_query(raw, CONFIG)
    assert selection.head is None or selection.head < (2, 4)
    assert all(isinstance(notice, str) for notice in notices)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("head", "L2H0", "head: no L2H0: this model has 2 layers"),
        ("head", "L1H9", "layer 1 has 4 heads"),
        ("head", "L1M3", "is not one head; write it as L1H3"),
        ("head", "L1H1:zero", "is not one head"),
        ("memory", "L0M128", "layer 0 has 128 memories"),
        ("cell", "3", "write QUERY.KEY, such as 10.3"),
        ("cell", "99.1", "positions run 0..23"),
        ("cell", "١.٢", "is not a cell"),
        ("step", "last", "is not a training step"),
        ("text", "repeat", 'there is no text called "repeat"; there are prompt, repeats, held-out. Did you mean'),
        ("ablate", "L1H1,L7H0", "no L7H0"),
        ("ablate", "L1H1,L1H1", "already covered"),
    ],
)
def test_what_the_model_does_not_have_is_dropped_and_said(name: str, text: str, sentence: str) -> None:
    selection, notices = from_query({name: text}, CONFIG)
    assert selection == Selection()
    assert len(notices) == 1
    assert sentence in notices[0]


def test_one_bad_part_does_not_spoil_the_others() -> None:
    selection, notices = from_query({"head": "L1H3", "cell": "x", "prompt": "a b"}, CONFIG)
    assert selection.head == (1, 3)
    assert selection.prompt == "a b"
    assert len(notices) == 1


def test_a_place_is_put_in_and_taken_out_and_others_keep_their_intervention() -> None:
    assert toggled("", "L0H1") == "L0H1"
    assert toggled("L1H3:zero", "L0H1") == "L1H3:zero,L0H1"
    assert toggled("L1H3:zero,L0H1", "L1H3") == "L0H1"
    assert toggled("nonsense", "L0H1") == "L0H1"


def test_the_checkpoint_is_named_as_on_the_command_line() -> None:
    assert Selection(run="demo", step=512).spec == "demo@512"
    assert Selection(run="demo").spec == "demo"
