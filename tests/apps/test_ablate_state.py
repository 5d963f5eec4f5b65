"""What the Ablate page remembers: when a hypothesis was stated, what numbers are kept by, and what went wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
import torch

from analyses import hypotheses
from analyses.claims.files import Claim
from analyses.claims.statement import ControlKind
from apps.dashboard import passes
from apps.dashboard.ablation import asking, jobs, measuring, on_text, stating
from apps.dashboard.ablation.asking import Asked
from apps.dashboard.ablation.measuring import Question
from apps.dashboard.state import Selection
from interp.ablation import Frozen, ablation_of
from interp.live import LiveText
from interp.places import parse_places
from model.errors import CutawayError, InputError
from tests.conftest import make_gpt_with

ASKED = Asked(
    says="", bound="", control=ControlKind.NONE, metric="copy_loss", fill="mean", frozen=Frozen.NOTHING, n=8, seed=0
)


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A session of its own, and a server that has measured nothing."""
    jobs._every.clear()
    monkeypatch.setattr(passes, "checkpoint_of", lambda run, step: f"{run}@{step}")
    return begun_anew(monkeypatch)


def begun_anew(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    state: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", state)
    return state


def question(places: str = "L0H1", step: int = 8, **changes: Any) -> Question:
    return Question(run="demo", step=step, places=parse_places(places), asked=replace(ASKED, **changes))  # type: ignore[arg-type]


def run_and_look(asked: Question) -> str:
    """Press Run, measure unless it is known, look at the page; what it says of when the hypothesis was stated."""
    stated = asked.asked.statement(asked.places, asked.step)
    stating.begun(asked, stated)
    jobs.keep(measuring.effect_key(asked), "an effect")
    return look(asked)


def look(asked: Question) -> str:
    stated = asked.asked.statement(asked.places, asked.step)
    stating.seen(asked, stated)
    return stating.doubt(asked, stated)


BOUND = "harm >= 1"


def test_a_hypothesis_that_was_stated_before_its_own_run_counts_as_first() -> None:
    assert run_and_look(question(bound=BOUND)) == ""
    assert look(question(bound=BOUND)) == "", "and goes on to"
    assert run_and_look(question(bound=BOUND, n=64, seed=1)) == "", "more sequences, or others, test the same"
    assert run_and_look(question("L0H2", bound=BOUND)) == "", "nothing was seen of other places"
    assert run_and_look(question(step=0, bound=BOUND)) == "", "nor of another checkpoint"


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"bound": "harm <= 0.05"}, ""),
    ({"bound": BOUND, "metric": "text_loss"}, ""),
    ({"bound": BOUND, "control": ControlKind.STEP0}, ""),
    ({"bound": "harm <= 0.05", "seed": 1}, ""),
    ({"bound": "harm <= 0.05", "n": 16}, ""),
    ({"bound": BOUND, "fill": "zero"}, ", replaced by mean"),
    ({"bound": BOUND, "frozen": Frozen.PATTERNS}, ", later patterns not held"),
    ({"bound": BOUND, "gate": 0.5}, ", gate 0"),
    ({"bound": BOUND, "positions": (9, 10)}, ", at all positions"),
    ({"bound": BOUND, "gate": 0.5, "positions": (9, 10)}, ", gate 0, at all positions"),
]
"""What is changed, and the words for what it was before, where the hypothesis itself does not say it."""


@pytest.mark.parametrize("first", ["", BOUND])
@pytest.mark.parametrize(("change", "before"), CHANGES, ids=str)
def test_what_is_stated_after_any_number_about_the_places_was_seen_is_late(
    first: str, change: dict[str, Any], before: str
) -> None:
    run_and_look(question(bound=first))
    was = "as harm >= 1 on copy_loss against none" if first else "without a bound"
    said = f"stated after numbers about these places had been seen: they were first measured {was}{before}"
    assert run_and_look(question(**change)) == said
    reseeded: dict[str, Any] = {**change, "seed": 5}
    assert run_and_look(question(**reseeded)) == said, "a change of the seed is no way round"
    other = run_and_look(question("L0H1:zero", **change))
    assert other == said.removesuffix(before) + f", places L0H1{before}", "nor are the same places, replaced otherwise"


def test_what_was_measured_first_is_told_as_it_was_then() -> None:
    """A part that was not as usual, and was changed to what is."""
    part: dict[str, Any] = {"gate": 0.1234567, "positions": (9, 10, 20), "fill": "zero", "frozen": Frozen.PATTERNS}
    assert run_and_look(question(bound=BOUND, **part)) == ""
    assert run_and_look(question(bound=BOUND)).endswith(
        "first measured as harm >= 1 on copy_loss against none, replaced by zero, gate 0.1234567, "
        "at positions 9-10,20, later patterns held"
    )
    assert run_and_look(question(bound=BOUND, **{**part, "gate": 0.1234568})).endswith("none, gate 0.1234567")


def test_in_another_session_nobody_knows_and_a_bound_stated_there_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_and_look(question(bound=BOUND)) == ""
    begun_anew(monkeypatch)
    assert look(question(bound=BOUND)).startswith("not known whether it was stated first")
    assert run_and_look(question(bound=BOUND)).startswith("not known whether it was stated first")
    late = run_and_look(question(bound="harm <= 0.05"))
    assert (
        late
        == "stated after numbers about these places had been seen: they were on the page when this session opened it"
    )
    begun_anew(monkeypatch)
    assert look(question()) == "", "no bound, nothing to doubt"
    assert run_and_look(question(bound=BOUND)).startswith("stated after")


def test_numbers_are_kept_by_all_that_they_depend_on() -> None:
    asked = question(bound=BOUND)
    keys = [measuring.effect_key(asked)]
    changes: list[dict[str, Any]] = [
        {"metric": "text_loss"}, {"fill": "zero"}, {"frozen": Frozen.PATTERNS}, {"n": 16}, {"seed": 1},
        {"gate": 0.5}, {"positions": (9, 10)}, {"positions": (9,)},
    ]  # fmt: skip
    for change in changes:
        keys.append(measuring.effect_key(question(bound=BOUND, **change)))
    assert len(set(keys)) == len(keys)
    tested = []
    others: list[dict[str, Any]] = [{}, {"bound": "harm >= 2"}, {"control": ControlKind.STEP0}, {"bound": ""}]
    for change in others:
        given: dict[str, Any] = {"bound": BOUND, **change}
        each = question(**given)
        tested.append(measuring.bench_key(each, each.asked.statement(each.places, 8)))
    assert len(set(tested)) == len(tested)
    named = replace(asked.asked, says="other words").statement(asked.places, 8, "other-name")
    assert measuring.bench_key(asked, named) == tested[0]


def test_what_was_found_on_a_text_is_kept_by_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts, one after the other: the second is not answered with the first."""
    shown: list[str] = []

    class Drawn(Exception):
        pass

    def measured(_: Question, chosen: Selection) -> Any:
        shown.append(chosen.prompt)
        return SimpleNamespace(effects=None)

    def drawn(*_: Any) -> int:
        raise Drawn

    monkeypatch.setattr(passes, "text", lambda run, chosen: (tuple(chosen.prompt), chosen.prompt))
    monkeypatch.setattr(on_text, "_measure", measured)
    monkeypatch.setattr(on_text, "_position", drawn)
    monkeypatch.setattr(on_text, "_is_asked", lambda question: True)
    monkeypatch.setattr(on_text, "_cost", lambda question, n: 0.0)
    monkeypatch.setattr(Question, "ablation", SimpleNamespace(positions=None))
    for prompt in ("ab", "cd", "ab"):
        with pytest.raises(Drawn):
            on_text.draw(question(), Selection(text=LiveText.PROMPT, prompt=prompt))
    assert shown == ["ab", "cd"], "each once"


def test_the_position_that_suffers_most_is_the_token_that_is_predicted() -> None:
    effects: Any = SimpleNamespace(strings=list("abcd"), harm=torch.tensor([0.0, 2.0, 1.0]))
    assert on_text._position(effects, Selection()) == 2, "the harm at 1 is that of predicting token 2"
    assert on_text._position(effects, Selection(token=3)) == 3
    assert on_text._position(effects, Selection(token=0)) == 2, "nothing predicts the first token"


STAGES = [
    ("L0H1", Frozen.NOTHING, "means are taken over other sequences, then the intact model runs"),
    ("L0H1:zero", Frozen.NOTHING, "the intact model runs"),
    ("L0H1:resample,L1H0:mean@pos", Frozen.NOTHING,
     "means are taken over other sequences, donors are drawn and run, then the intact model runs"),
    ("L0H1:zero", Frozen.PATTERNS, "the patterns that are held are recorded, then the intact model runs"),
    ("L0H1:optimal", Frozen.NOTHING, "constants are fitted, then the intact model runs"),
]  # fmt: skip


@pytest.mark.parametrize(("places", "frozen", "first"), STAGES)
def test_what_is_gathered_before_the_first_pass_is_told_in_its_own_words(
    places: str, frozen: Frozen, first: str
) -> None:
    shown: list[str] = []
    bar = SimpleNamespace(progress=lambda _, text: shown.append(text.replace("\\", "")))
    told = jobs.Told(bar, "The ablation")
    told.now("Every outcome", measuring.first_of(ablation_of(places, make_gpt_with().config, frozen=frozen)))
    told(1, 2)
    told(2, 2)
    assert shown[0] == f"Every outcome: {first} ..."
    assert shown[1].startswith("Every outcome: 1 of 2 passes, about")
    assert shown[2] == "Every outcome: 2 of 2 passes done; preparing what comes next", "and no time that is left"


def test_no_more_is_kept_than_fits() -> None:
    kept = jobs._Kept(most=3)
    for number in range(3):
        kept.put((number,), number)
    assert kept.get((0,)) == 0, "looked at, so it stays longest"
    for number in range(3, 5):
        kept.put((number,), number)
    assert list(kept.found) == [(0,), (3,), (4,)]


def test_a_number_of_thousands_of_digits_is_a_sentence() -> None:
    for part in (each for each in asking.PARTS if each.name in ("n", "seed")):
        with pytest.raises(InputError, match=r'"1{60}…" is no number of'):
            part.read("1" * 5000)
    (seed,) = [each for each in asking.PARTS if each.name == "seed"]
    assert seed.read(str(2**31 - 1)) == 2**31 - 1
    with pytest.raises(CutawayError, match="a name of 300 characters cannot name a file"):
        replace(ASKED, bound=BOUND).statement(parse_places("L0H1"), 8, "a" * 300)


@pytest.mark.parametrize("share", [0.0, 1e-05, 5e-324, 0.1234567, 1 / 3, 0.5, 0.9899999999999999, 0.99])
def test_a_share_that_the_input_accepts_is_read_back_from_the_address(share: float) -> None:
    (gate,) = [each for each in asking.PARTS if each.name == "gate"]
    assert gate.read(str(share)) == share


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1e-05", "0.9900000000000001", "1", "1e400", "half", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    (gate,) = [each for each in asking.PARTS if each.name == "gate"]
    with pytest.raises(InputError, match=r"is no share that stays; write one from 0 to 0\.99"):
        gate.read(text)


def test_work_that_fails_is_told_once_and_not_begun_again(
    session: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(jobs.components, "unasked", lambda error: told.append(str(error)))
    calls: list[int] = []

    def work(_: jobs.Told) -> None:
        calls.append(1)
        raise RuntimeError("out of memory")

    key = ("effect", "demo@8")
    jobs.begin("bench", key)
    for _ in range(3):
        assert jobs.done("bench", key, work, title="The ablation") is None
    assert len(calls) == 1
    assert told == ["This could not be measured (RuntimeError: out of memory). The server's log has the details."] * 3
    jobs.begin("bench", key)
    jobs.done("bench", key, work, title="The ablation")
    assert len(calls) == 2, "pressed again, it is tried again"


def test_a_test_that_is_refused_names_no_file_and_keeps_the_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path("claims/claim.toml")

    def refused(claims: list[Claim], *_: Any, **__: Any) -> None:
        with claims[0].named():
            raise InputError("too few sets; use text.")

    monkeypatch.setattr(hypotheses, "verdicts_on", refused)
    monkeypatch.setattr(measuring, "ablate", lambda *_, **__: "an effect")
    monkeypatch.setattr(Question, "lab", None)
    monkeypatch.setattr(measuring, "first_of", lambda ablation: "")
    monkeypatch.setattr(Question, "ablation", None)
    told: Any = SimpleNamespace(now=lambda *_: None)
    asked = question(bound=BOUND)
    found = measuring.test(asked, asked.asked.statement(asked.places, 8), file, told)
    assert (found.verdict, found.effect, found.refused) == (None, "an effect", "too few sets; use text.")
