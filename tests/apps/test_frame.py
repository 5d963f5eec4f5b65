"""The frame around every page: the selection and what undoes it, the menu, the keys, and what one user cannot see.

The pages here are small ones of the test's own, so that it is the frame that is tested, and quickly.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from apps.dashboard import data, keys, launch
from apps.dashboard.frame import bar
from apps.dashboard.state import Selection
from interp.places import parse_places
from tests.dashboard_pages import fire, said, views
from tests.dashboard_runs import trained
from tests.unchecked import unchecked

STEPS = (0, 1, 2, 4)


def app() -> None:
    """An entrypoint with two pages, as Streamlit runs it."""
    import streamlit as st

    from apps.dashboard import address, components, data, keys, selecting
    from apps.dashboard.frame import drawing

    search = address.Part(name="find", key="wanted", read=str)

    def first() -> None:
        st.title("First")
        chosen, other = selecting.selection(), selecting.compared()
        st.text(f"shown: {chosen.spec} against {other.spec if other else 'nothing'}, token {chosen.token}")
        keys.bind("j", "count one more", count)
        keys.bind("K", "count ten more", count, 10)
        keys.browser("s", "swap")
        keys.focus("/", "search", "wanted")
        st.text(f"counted: {st.session_state.get('counted', 0)}")
        for notice in address.restore([search]):
            st.warning(notice)
        st.text_input("Search", key="wanted")
        address.write([search])
        if st.session_state.get("fail") == "end":
            components.end()
        if st.session_state.get("fail") == "raise":
            raise RuntimeError("a fault in a page")

    def count(by: int = 1) -> None:
        st.session_state["counted"] = st.session_state.get("counted", 0) + by

    def second() -> None:
        st.title("Second")

    pages = {"Look": [st.Page(first, url_path="first", default=True), st.Page(second, url_path="second")]}
    drawing.draw(st.navigation(pages, position="hidden"), pages, data.runs())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of four steps; tests must not change them."""
    root = tmp_path_factory.mktemp("frame")
    with unchecked():
        trained(root, "a", "train.steps=4")
    shutil.copytree(root / "a", root / "b")
    return root


@pytest.fixture
def begun(made: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Open the small dashboard at an address."""
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(made))

    def begin(**address: str) -> AppTest:
        at = AppTest.from_function(app, default_timeout=60)
        for name, value in address.items():
            at.query_params[name] = value
        return at.run()

    return begin


def press(at: AppTest, *pressed: str, start: int = 1) -> AppTest:
    return fire(at, "keys", "pressed", [{"id": start + at_, "key": key} for at_, key in enumerate(pressed)])


def links(at: AppTest) -> dict[str, str]:
    """What the menu's entries carry beside what every page shares, by page."""
    return {link.proto.label.lower(): link.proto.query_string for link in at.get("page_link")}


def chips(at: AppTest) -> dict[str, str]:
    return {chip["part"]: chip["text"] for chip in views(at)["bar"]["chips"]}


def test_the_fixture_has_the_checkpoints_that_the_tests_speak_of(made: Path, begun: Any) -> None:
    assert begun
    assert [run.steps for run in data.runs()] == [STEPS, STEPS]


def test_every_place_of_an_address_is_a_chip_and_each_can_be_taken_away(begun: Any) -> None:
    at = begun(run="a", step="2", head="L1H2", memory="L0M3", cell="9.4", token="7", ablate="L1H1,L0H0:mean", b="b@0")
    assert not at.exception
    assert not at.warning
    assert "shown: a@2 against b@0, token 7" in said(at)
    assert chips(at) == {
        "head": "L1H2", "memory": "L0M3", "cell": "query 9 → key 4", "token": "7", "ablate": "L1H1:mean, L0H0:mean",
        "b": "b@0",
    }  # fmt: skip
    at = fire(at, "bar", "cleared", {"parts": ["head", "b"]})
    assert "shown: a@2 against nothing, token 7" in said(at)
    assert at.session_state["head"] == ""
    assert set(chips(at)) == {"memory", "cell", "token", "ablate"}
    at = fire(at, "bar", "cleared", {"parts": ["memory", "cell", "token", "ablate", "run", "_selection"]})
    assert not at.exception
    assert chips(at) == {}
    assert "shown: a@2" in said(at)


def test_many_ablated_places_are_counted_in_their_chip() -> None:
    many = Selection(ablate=parse_places("L0H0,L0H1,L1H0,L1H1,L1M3:zero"))
    chip = {"part": "ablate", "name": "ablate", "text": "L0H0:zero, L0H1:zero and 3 more"}
    assert bar.chips(many, None, {}, here="ablate") == [chip]


def test_what_is_to_be_ablated_is_said_to_be_ablated_on_its_own_page_only() -> None:
    one = Selection(ablate=parse_places("L1H4"))
    (here,), (elsewhere,) = (bar.chips(one, None, {}, here=page) for page in ("ablate", "lens"))
    assert "aside" not in here
    assert (elsewhere["aside"], elsewhere["note"]) == ("on Ablate only", bar.ELSEWHERE)


@pytest.mark.parametrize(
    ("value", "sentences"),
    [
        ("<img src=x onerror=alert(1)>", ["no run", "no text", "RUN@STEP", "is not a place", "is not a cell"]),
        ("9" * 5000, ["no run", "no text", "RUN@STEP", "no model reaches", "is not a cell", "is not a position"]),
        ("../../etc/passwd", ["no run", "no text", "RUN@STEP", "is not a place", "is not a cell"]),
        ("../../etc@0", ["no run", "no checkpoint ../../etc@0 here; comparing with nothing"]),
        ("\x00\u202e\ud800"[:2], ["no run", "no text", "RUN@STEP"]),
    ],
)
def test_a_hostile_address_is_answered_in_short_words(begun: Any, value: str, sentences: list[str]) -> None:
    at = begun(**dict.fromkeys(("run", "step", "b", "head", "memory", "cell", "token", "ablate", "text"), value))
    assert not at.exception
    told = [warning.value for warning in at.warning]
    text = said(at)
    assert all(sentence in text for sentence in sentences)
    assert max(map(len, told)) < 1000
    assert "shown: a@4 against nothing, token None" in text
    assert all(chip["text"] == "not here" for chip in views(at)["bar"]["chips"])


def test_what_was_asked_in_vain_is_said_until_something_else_is_chosen(begun: Any) -> None:
    at = begun(run="gone", step="2", b="a@77", text="tweets")
    for _ in range(2):
        text = said(at)
        for sentence in ('no run "gone" here; showing a', "no checkpoint a@77", 'no text called "tweets"'):
            assert sentence in text
        at.query_params.clear()  # the browser takes them out of the address
        at.run()
    at.selectbox(key="run").select("b").run()
    assert "no run" not in said(at)
    assert "tweets" in said(at)
    at.selectbox(key="b").select("a@1").run()
    assert "a@77" not in said(at)
    assert "shown: b@2" in said(at)
    assert "against a@1" in said(at)


def test_a_step_that_is_not_there_is_told_from_one_that_is(begun: Any) -> None:
    assert "a has no checkpoint at step 3; showing step 4" in said(begun(run="a", step="3"))
    assert not begun(run="a", step="1").warning


def test_the_shown_checkpoint_is_not_compared_with_itself(begun: Any) -> None:
    at = begun(run="a", step="2", b="a@2")
    assert "a@2 is what is shown; choose another checkpoint" in said(at)
    assert "against nothing" in said(at)
    at.button(key="later").click().run()
    assert "shown: a@4 against a@2" in said(at)
    assert not at.warning


def test_checkpoints_are_scrubbed_by_slider_buttons_and_keys(begun: Any) -> None:
    at = begun(run="a", step="0")
    assert at.button(key="earlier").disabled
    at.select_slider(key="scrub").set_value(2).run()
    assert at.session_state["step"] == 2
    assert "shown: a@2" in said(at)
    at.button(key="later").click().run()
    assert at.session_state["step"] == 4
    assert at.button(key="later").disabled
    assert at.session_state["scrub"] == 4
    at = press(at, "[", "[", "]", "[")
    assert at.session_state["step"] == 1
    at = press(at, "[", "[", "[", start=100)
    assert at.session_state["step"] == 0
    at.selectbox(key="step").select(4).run()
    assert at.session_state["scrub"] == 4


def test_keys_do_what_the_page_bound_each_press_once_and_in_order(begun: Any) -> None:
    at = begun()
    listed = {each["key"]: each["how"] for each in views(at)["keys"]["keys"]}
    assert listed == {
        "p": "python", "[": "python", "]": "python", "j": "python", "k": "python", "s": "browser", "/": "focus"
    }  # fmt: skip
    at = press(at, "j", "k", "j")
    assert "counted: 12" in said(at)
    assert views(at)["keys"]["done"] == 3
    at = press(at, "k", "j", "j", start=2)  # sent again, with one more: those that were answered are left out
    assert "counted: 13" in said(at)
    at = press(at, "z", "s", "\x00", start=50)
    assert not at.exception
    assert "counted: 13" in said(at)


def test_a_page_cannot_take_the_keys_of_the_frame() -> None:
    for taken in ("l", "L", "?", "[", "c", "jj", ""):
        with pytest.raises(ValueError, match="cannot be bound by a page"):
            keys.bind(taken, "take it", print)


def test_the_menu_leads_back_to_where_a_page_was_left(begun: Any) -> None:
    at = begun(run="a", head="L1H2", find="open")
    assert at.text_input(key="wanted").value == "open"
    at.text_input(key="wanted").set_value("close").run()
    assert links(at.run())["first"] == "find=close"
    at.selectbox(key="run").select("b").run()
    assert links(at)["first"] == ""  # a search belongs to its run
    at.selectbox(key="run").select("a").run()
    assert links(at)["first"] == "find=close"
    assert "head" not in links(at)["first"]
    assert links(at)["second"] == ""


@pytest.mark.parametrize("fail", ["end", "raise"])
def test_menu_and_keys_are_there_when_a_page_ends_early_or_fails(begun: Any, fail: str) -> None:
    at = begun()
    at.session_state["fail"] = fail
    at.run()
    assert len(at.exception) == (fail == "raise")
    assert set(links(at)) == {"first", "second"}
    assert set(views(at)) >= {"bar", "keys"}
    assert {each["key"] for each in views(at)["keys"]["keys"]} >= {"j", "["}


def test_two_users_do_not_see_one_another(begun: Any) -> None:
    mine, theirs = begun(run="a", ablate="L1H1:mean", head="L1H2"), begun(run="b")
    mine = press(mine, "j")
    theirs.text_input(key="ablate").set_value("L0H3:zero").run()
    mine.run()
    assert chips(mine) == {"head": "L1H2", "ablate": "L1H1:mean"}
    assert chips(theirs) == {"ablate": "L0H3:zero"}
    assert "counted: 0" in said(theirs)
    assert "shown: b@4" in said(theirs)
    assert "shown: a@4" in said(mine)


def test_what_the_frame_sends_to_the_browser_is_plain_json(begun: Any) -> None:
    sent = views(begun(prompt="</script>\u2028", head="L1H2"))
    assert json.loads(json.dumps(sent, allow_nan=False)) == sent
