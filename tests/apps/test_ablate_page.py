"""The Ablate page as a bench: a hypothesis first, nothing before Run, verdicts of the written claims, and no trace."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
import torch
from streamlit.runtime.scriptrunner import StopException
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from analyses.claims.files import load_claims
from analyses.claims.statement import Stated
from analyses.claims.wording import plain_sentence
from analyses.hypotheses import verdicts_of_run
from apps.cli import app
from apps.dashboard import data
from apps.dashboard.ablation import asking, jobs, measuring
from apps.dashboard.ablation.asking import CONTROLS
from apps.dashboard.ablation.jobs import Told
from apps.dashboard.ablation.measuring import FURTHER
from apps.dashboard.panels import Panel
from model.hooks import scopes_of
from model.lab import Lab
from tests.apps.test_snippets import drawn, require_same, require_told
from tests.conftest import make_gpt_with
from tests.dashboard_pages import opened, pick, said, views
from tests.dashboard_runs import whole_runs
from tests.planted_run import LETTERS, planted_lab

pytestmark = pytest.mark.whole

__all__ = ["drawn", "whole_runs"]  # fixtures

SAYS = "without the <b>previous-token</b> head copying *fails*"
HYPOTHESIS = {"run": "planted", "ablate": "L0H1", "says": SAYS, "bound": "harm >= 1.0", "n": "16"}
HYPOTHESIS |= {"prompt": "abcdeabcde"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("roots")
    planted_lab(root / "planted")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A run whose every head is known, of this test alone."""
    yield Path(shutil.copytree(made, tmp_path / "runs"))
    st.cache_resource.clear()


def run_it(at: AppTest) -> AppTest:
    return at.button(key="run_hypothesis").click().run()


def require_intervals_over(at: AppTest, what: str) -> None:
    """Every caption that gives intervals says of what they are, and how many of these there are."""
    lines = [each.value.replace("\\", "") for each in at.caption if "95% " in each.value and "intervals" in each.value]
    assert lines
    for line in lines:
        assert re.search(rf"intervals(, by sequence\b| over {what}\b)", line), line
        assert re.search(rf"\bn = [\d,]+ {what}\b", line), line


def lab_of(root: Path) -> Lab:
    (found,) = [run for run in data.runs() if run.name == "planted"]
    return data.lab(found, 8)


def test_nothing_is_measured_before_run_and_the_claim_that_is_saved_gets_the_same_verdict(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(root, "ablate", monkeypatch, **HYPOTHESIS)
    assert not at.exception
    assert "Nothing is measured yet" in said(at)
    assert "There is no head-ablation result" in said(at)
    assert re.search(r"cutaway run head-ablation \S+planted@8", said(at))
    gpt = lab_of(root).gpt
    before = gpt(torch.arange(8)[None])
    at = run_it(at)
    assert not at.exception
    text = said(at)
    (verdict,) = [each.value for each in at.text if " is supported at planted@8: " in each.value]
    assert re.search(r"Harm on copy_loss\nn = 16, p", text)
    assert "3 other heads of layer 0" in text
    assert re.search(r"n = 16 sequences of random tokens repeated after \d+", text)
    assert "n = 12 sequences of held-out text" in text, "half of the 24 rows: fewer than asked for"
    badges = re.sub(r"\\(.)", r"\1", " ".join(each.value for each in at.markdown))
    assert "green-badge[:material/check_circle: supported]" in badges
    assert "orange-badge[costs most among other heads, too few to decide (p <= 0.25, 3 sets)]" in badges
    assert "Held against text with nothing to copy: 3 other sets" in text  # so few cannot decide, and the page says so
    assert "control" not in at.query_params
    assert verdict.startswith("The claim is supported at planted@8: with L0H1")
    assert "`" not in verdict
    assert re.search(r"n = 16, p <= [\d.]+ against no harm, 95% bca", text)
    assert scopes_of(gpt) == gpt._lasting == []
    assert torch.equal(gpt(torch.arange(8)[None]), before)

    at = at.button(key="save_claim").click().run()
    assert not at.exception
    (file,) = (root / "planted" / "claims").glob("*.toml")
    (claim,) = load_claims([file])
    assert claim.stated.says == SAYS
    assert claim.stated.stated == Stated.BEFORE
    (record,) = verdicts_of_run([claim], root / "planted", save=False)
    assert plain_sentence(record.verdict) == verdict
    (command,) = [each.value for each in at.code if each.value.startswith("cutaway test")]
    found = CliRunner().invoke(app, [*command.split()[1:], "--json"])
    assert found.exit_code == 0
    told = json.loads(found.stdout)[0]["sentence"].replace("`", "")
    assert told.partition(" is supported")[2] == verdict.partition(" is supported")[2]


def test_a_bound_that_is_changed_after_the_numbers_were_seen_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = run_it(opened(root, "ablate", monkeypatch, **HYPOTHESIS))
    assert "had been seen" not in said(at)
    at.text_input(key="bound").set_value("harm <= 0.05")
    at.selectbox(key="control").set_value("matched")
    at = run_it(at)  # three other heads allow no p below 0.25
    assert "Harm on copy_loss" in said(at)
    assert "cannot reach alpha" in said(at)
    at.selectbox(key="control").set_value("none")
    at = run_it(at)
    assert not at.exception
    asked = {name: "".join(at.query_params[name]) for name in ("bound", "control", "n")}
    assert asked == {"bound": "harm <= 0.05", "control": "none", "n": "16"}
    assert "metric" not in at.query_params  # what is as usual leaves the address alone
    assert any(" is refuted at planted@8" in each.value for each in at.text)
    assert "stated after numbers about these places had been seen: they were first measured as" in said(at)
    at.text_input(key="bound").set_value("")
    at = run_it(at)
    assert "No bound was stated, so nothing is decided" in said(at)
    assert "Keep it as a claim" not in said(at)


ASKED_WRONGLY = [
    ({"n": "100000"}, '"100000" is no number of sequences; write one from 8 to 512'),
    ({"bound": "harm > 1"}, '"harm > 1" is no bound'),
    ({"bound": "share >= 3"}, "no share of a whole"),
    ({"control": "texts"}, 'there is no control "texts"'),
    ({"fill": "men"}, 'there is no intervention "men"'),
    ({"seed": "-1"}, "is no number of a seed"),
    ({"gate": "1"}, '"1" is no share that stays; write one from 0 to 0.99'),
    ({"positions": "20-10"}, '"20-10" runs backwards; write 10-20'),
    ({"positions": "0-999999999"}, '"0-999999999" goes beyond 999,999, the largest position'),
    ({"positions": "500"}, "names position 500; this model has 0 to"),
    ({"bound": "|harm| <= 0.05", "control": "text"}, "has no side; use none"),
    ({"metric": "text_loss", "control": "text"}, "use another control, or copy_loss"),
    ({"metric": "text_loss", "fill": "counterfactual", "bound": ""}, "There is no counterfactual on held-out text"),
    ({"fill": "counterfactual"}, "needs the corrupted twin of this text"),
]


def test_what_cannot_be_asked_is_one_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"ablate": "L7H0"}))
    assert "no L7H0" in said(at)
    at = opened(root, "ablate", monkeypatch, **HYPOTHESIS)
    for address, says in ASKED_WRONGLY:
        for name in ("n", "bound", "control", "fill", "metric", "seed", "gate", "positions"):
            at.query_params[name] = (HYPOTHESIS | address).get(name, "")
        at.run()
        if says not in said(at):
            at = run_it(at)
        assert not at.exception
        assert says in said(at), says


def test_each_further_question_is_answered_when_it_is_asked_and_copied_python_gives_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch, drawn: dict[str, Panel]
) -> None:
    monkeypatch.chdir(root)
    at = run_it(opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"ablate": "L0H1,L0H2"})))
    figures = len(at.get("vega_lite_chart"))
    for what in FURTHER:
        at.segmented_control(key="further").set_value(what).run()
        assert len(at.get("vega_lite_chart")) == figures
        at.button(key=f"begin-{what}").click().run()
        assert not at.exception
        assert not at.info
        require_intervals_over(at, "sequences")
        assert len(at.get("vega_lite_chart")) == figures + 1
    assert "n = 16 sequences" in said(at)
    at.segmented_control(key="further").set_value("pairs").run()
    assert "All 2 together" in said(at)
    assert "both together, less each alone (nats)" in "".join(each.proto.spec for each in at.get("vega_lite_chart"))
    own = {"effect", "matched", "side_by_side", "pairs", "dose", "token_groups", "hurt_tokens", "head_moves"}
    assert own | {"token_harm", "next_tokens", "text_moves", "before_after"} <= set(drawn)
    for panel in drawn.values():
        require_same(panel)
        require_told(panel)


def test_the_text_shows_where_it_hurts_and_who_looks_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(root, "ablate", monkeypatch, run="planted", ablate="L0H1:zero", prompt="abcdeabcde")
    assert not at.exception
    assert "token_harm" not in views(at)  # choosing places runs nothing
    at = at.button(key="begin-text").click().run()
    assert not at.exception
    (worst,) = re.findall(r"Predicted at (\d+), after", said(at))
    assert 7 <= int(worst) <= 10  # b c d e of the second copy
    assert views(at)["token_harm"]["token"] is None  # it is where it hurts most, and nobody chose it
    at.session_state["cell"] = "4.2"
    assert "Predicted at 4, after" in said(at.run())
    assert views(at)["token_harm"]["token"] == 4
    assert views(at)["before_after"]["names"] == ["intact", "ablated"]
    moved = next(each.value for each in at.dataframe if "moved" in each.value)
    assert next(iter(moved["head"])) == "L1H2"
    assert set(list(moved["moved"])[1:]) == {0.0}
    at = pick(at, "token_harm", {"token": "3"})
    assert "Predicted at 3, after" in said(at)
    assert views(at)["token_harm"]["token"] == 3
    at = pick(at, "before_after", {"head": "L1H1"})
    assert "L1H1, intact and ablated" in said(at)
    at.selectbox(key="hold").set_value("patterns")
    at = run_it(at)
    assert not at.exception
    assert "Later patterns are held as in the intact run" in said(at)
    assert "There are none: their patterns are held." in said(at)
    at.session_state["ablate"] = "L1H2:zero"
    at.run().selectbox(key="hold").set_value("nothing")
    at = run_it(at)
    assert "There are none: nothing attends after the layer of what is ablated." in said(at)


LONG = 560
"""Tokens of a context that is longer than a pattern is sent whole."""


def test_a_long_text_is_cut_to_the_context_and_its_pattern_is_pooled_round_an_exact_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted_lab(tmp_path / "long", make_gpt_with(n_ctx=LONG, d_vocab=len(LETTERS) + 1), n_rows=8)
    asked = {"run": "long", "ablate": "L0H1:zero", "prompt": "abcdefg" * 100}
    at = opened(tmp_path, "ablate", monkeypatch, **asked)
    assert not at.exception
    at = at.button(key="begin-text").click().run()
    assert not at.exception
    assert f"n = 1: your prompt, {LONG} tokens, cut from 701 to the context's {LONG}" in said(at)
    assert len(views(at)["token_harm"]["rows"][0]["tokens"]) == LONG
    sent = views(at)["before_after"]
    window = sent["window"]
    assert (window["whole"], sent["size"], sent["overview_factor"]) == (False, LONG, 2)
    assert "exact at queries" in sent["sent"] and "elsewhere max-pooled 2x" in sent["sent"]
    at.session_state["cell"] = "20.10"
    at.run()
    assert not at.exception
    moved = views(at)["before_after"]["window"]
    assert moved["query"] == moved["key"] == 0 < window["query"], "the exact part goes with the lock"
    assert len(json.dumps(sent)) < 1_000_000


def test_how_much_is_taken_out_and_where_is_measured_saved_and_written_as_python(
    root: Path, monkeypatch: pytest.MonkeyPatch, drawn: dict[str, Panel]
) -> None:
    """Half of the head, at the positions of the second copy only."""
    monkeypatch.chdir(root)
    at = opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"ablate": "L0H1:zero,L0H2:zero", "prompt": "abcabcabc"}))
    whole = run_it(at)
    assert not whole.exception
    figure = next(each.value for each in whole.text if "with L0H1:zero" in each.value or "with L0H1,L0H2" in each.value)
    assert "gate" not in figure
    at.number_input(key=asking.GATE).set_value(0.5)
    at.text_input(key=asking.POSITIONS).set_value("4-7,30")
    at = run_it(at)
    assert not at.exception
    assert (at.query_params["gate"], at.query_params["positions"]) == ("0.5", "4-7,30")
    assert any("(gate 0.5, at positions 4-7, 30) ablated" in each.value for each in at.text)
    assert "stated after numbers about these places had been seen" in said(at)
    for what in FURTHER:
        at.segmented_control(key="further").set_value(what).run()
        at.button(key=f"begin-{what}").click().run()
        assert not at.exception
        assert not at.info
        require_intervals_over(at, "sequences")
    assert {"effect", "side_by_side", "pairs", "dose", "token_groups", "head_moves", "token_harm"} <= set(drawn)
    for panel in drawn.values():
        require_same(panel)
        require_told(panel)
    at = at.button(key="save_claim").click().run()
    (file,) = (root / "planted" / "claims").glob("*.toml")
    (claim,) = load_claims([file])
    assert (claim.stated.gate, claim.stated.positions) == (0.5, (4, 5, 6, 7, 30))
    at.text_input(key=asking.POSITIONS).set_value("30-31")
    at = run_it(at)
    assert not at.exception
    assert "Nothing is replaced on this text: its 10 positions end before 30" in said(at)


def test_positions_that_cannot_be_read_ask_nothing_and_change_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = run_it(opened(root, "ablate", monkeypatch, **HYPOTHESIS))
    assert "Harm on copy_loss" in said(at)
    measured = len(jobs._every()["numbers"].found)
    at.number_input(key=asking.GATE).set_value(1e-05)
    at.text_input(key=asking.POSITIONS).set_value("7-4")
    refused = 'Nothing is asked until the positions can be read: "7-4" runs backwards; write 4-7.'
    for looked_at in (run_it(at), opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"positions": "7-4"}))):
        assert not looked_at.exception
        assert [each.value.replace("\\", "") for each in looked_at.info if "positions" in each.value] == [refused]
        assert "Harm on copy_loss" not in said(looked_at), "the effect at all positions answers another question"
        assert "Nothing is measured yet" not in said(looked_at)
        assert looked_at.text_input(key=asking.POSITIONS).value == "7-4"
    assert len(jobs._every()["numbers"].found) == measured
    assert (at.query_params["gate"], at.query_params["positions"]) == ("1e-05", "7-4")
    assert at.number_input(key=asking.GATE).value == 1e-05
    again = opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"gate": "1e-05", "positions": "4-7"}))
    at.text_input(key=asking.POSITIONS).set_value("4-7")
    for corrected in (run_it(at), run_it(again)):
        assert not corrected.exception
        assert any("(gate 1e-05, at positions 4-7) ablated" in each.value for each in corrected.text)
        assert not [each.value for each in corrected.info if "positions" in each.value or "share" in each.value]


def test_work_that_is_stopped_leaves_nothing_and_cancel_ends_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Streamlit does to a run that it stops is to raise from the next thing that is told."""
    at = opened(root, "ablate", monkeypatch, **HYPOTHESIS)
    gpt, calls = lab_of(root).gpt, []
    before = gpt(torch.arange(8)[None])

    def stopped(_: Told, done: int, total: int) -> None:
        calls.append((done, total))
        if len(calls) == 3:
            raise StopException

    with monkeypatch.context() as during:
        during.setattr(Told, "__call__", stopped)
        at = run_it(at)
    assert len(calls) == 3
    assert scopes_of(gpt) == gpt._lasting == []
    assert torch.equal(gpt(torch.arange(8)[None]), before)
    assert "Harm on copy_loss" not in said(at)
    at = at.button(key="cancel-bench").click().run()
    assert not at.exception
    assert "Cancelled: nothing of it was kept." in said(at)
    assert "Harm on copy_loss" not in said(at)
    other = opened(root, "ablate", monkeypatch, **HYPOTHESIS)
    assert "Cancelled" not in said(other)
    assert "Harm on copy_loss" in said(run_it(other))
    assert "Harm on copy_loss" not in said(at.run()), (
        "it stopped asking, and what another session measured is not its own"
    )
    assert "Harm on copy_loss" in said(run_it(at))


def test_a_result_of_another_session_is_shown_by_its_own_address_or_after_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is seen before it was asked for spoils a hypothesis that is yet to be stated."""
    asked = HYPOTHESIS | {"ablate": "L0H1,L0H2"}
    first = run_it(opened(root, "ablate", monkeypatch, **asked))
    mark = "".join(first.query_params["result"])
    assert re.fullmatch("[0-9a-f]{8}", mark)
    first.button(key="begin-interventions").click().run()
    link = "".join(first.query_params["result"])
    assert link == f"{mark}.interventions"

    with monkeypatch.context() as during:
        during.setattr(measuring, "test", lambda *_: pytest.fail("nothing is measured again"))
        for wrong in ({}, {"result": "00000000"}, {"result": link, "seed": "1"}):
            other = opened(root, "ablate", monkeypatch, **(asked | wrong))
            assert not other.exception
            assert "Nothing is measured yet: state what you expect" in said(other)
            assert "Harm on copy_loss" not in said(other)
            assert "token_harm" not in views(other)
            assert "result" not in other.query_params
        fresh = opened(root, "ablate", monkeypatch, **asked)
        fresh = run_it(fresh)
        assert "Harm on copy_loss" in said(fresh)
        assert "not known whether it was stated first" in said(fresh)
        assert [each for each in fresh.button if each.key == "begin-interventions"], "nor what more was asked of it"
        assert "".join(fresh.query_params["result"]) == mark

        sent = opened(root, "ablate", monkeypatch, **(asked | {"result": link}))
        assert not sent.exception
        assert "Harm on copy_loss" in said(sent)
        assert not [each for each in sent.button if each.key == "begin-interventions"]
        assert "".join(sent.query_params["result"]) == link
    sent.number_input(key="seed").set_value(3).run()
    at = sent.button(key="drop-L0H1").click().run()
    assert "Nothing is measured yet" in said(at)
    assert "result" not in at.query_params, "the question has changed"


def test_when_a_bound_was_stated_is_saved_with_the_claim_and_told_by_its_test(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers first, then a bound that fits them: page, file and command all say so."""
    at = run_it(opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"bound": "", "control": "text"})))
    at.text_input(key="bound").set_value("harm >= 1.0")
    at = run_it(at)
    late = "its bound was stated after numbers about it had been seen, perhaps these."
    (verdict,) = [each.value for each in at.text if " is supported at planted@8: " in each.value]
    assert verdict.endswith(late)
    at = at.button(key="save_claim").click().run()
    (file,) = (root / "planted" / "claims").glob("*.toml")
    assert 'stated = "after"' in file.read_text("utf-8")
    (record,) = verdicts_of_run(load_claims([file]), root / "planted")
    assert plain_sentence(record.verdict) == verdict

    link = "".join(at.query_params["result"])
    other = opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"control": "text", "result": link}))
    assert "not known whether its bound was stated before numbers about it were seen." in "".join(
        each.value for each in other.text
    )
    assert "This tests it again" in said(other), "the claim that is there says more than this session knows"
    findings = opened(root, "findings", monkeypatch, run="planted")
    assert late in said(findings)


def test_asking_something_else_stops_what_was_begun(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(root, "ablate", monkeypatch, **HYPOTHESIS)
    with monkeypatch.context() as during:
        during.setattr(Told, "__call__", lambda *_: (_ for _ in ()).throw(StopException()))
        at = run_it(at)
    at = at.button(key="drop-L0H1").click().run()
    at.session_state["ablate"] = "L1H2"
    at.run()
    assert not at.exception
    assert "something else is asked by now" in said(at)
    assert "Harm on copy_loss" not in said(at)


def test_claims_are_not_overwritten_unasked_and_bad_names_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = run_it(opened(root, "ablate", monkeypatch, **HYPOTHESIS))
    at.text_input(key="claim_name").set_value("../escape").run()
    assert any("cannot name a file" in each.value for each in at.info)
    at.text_input(key="claim_name").set_value("mine").run()
    at = at.button(key="save_claim").click().run()
    assert at.button(key="save_claim").disabled
    file = root / "planted" / "claims" / "mine.toml"
    first = file.read_text()
    at.text_input(key="bound").set_value("harm >= 2.0")
    at = run_it(at)
    assert "holds another claim" in said(at)
    at = at.button(key="save_claim").click().run()
    assert file.read_text() == first
    assert any("holds another claim already" in each.value for each in at.error)
    at.checkbox(key="replace_claim").check().run()
    at = at.button(key="save_claim").click().run()
    assert not at.exception
    assert 'effect = "harm >= 2.0"' in file.read_text()
    shutil.rmtree(file.parent)
    file.parent.write_text("in the way")
    at = at.run().button(key="save_claim").click().run()
    assert not at.exception
    assert any("could not be written" in each.value for each in at.error)


def test_places_are_chosen_from_the_grid_by_name_and_from_lists(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(whole_runs, "ablate", monkeypatch, run="whole")
    assert not at.exception
    assert "No place is chosen" in said(at)
    assert views(at)["harm_copy_loss"]["before"] is not None
    require_intervals_over(at, "sequences")
    for head in ("L0H1", "L1H3"):
        at = pick(at, "harm_copy_loss", {"toggle": head})
    assert at.session_state["ablate"] == "L0H1,L1H3"
    assert views(at)["harm_new_token_loss"]["set"] == ["L0H1", "L1H3"]
    at.selectbox(key="add_sublayer").set_value("L0.ffn").run()
    assert at.session_state["ablate"] == "L0H1,L1H3,L0.ffn"
    at = at.button(key="drop-L1H3").click().run()
    assert at.session_state["ablate"] == "L0H1,L0.ffn"
    at = run_it(at)
    assert not at.exception
    assert "No bound was stated" in said(at)
    assert "no control" in said(at)
    assert set(at.selectbox(key="control").options) == {"matched sets if enough, else text", *CONTROLS.values()}
    assert "What the study of single heads found" in said(at)
    found = jobs._every()["numbers"].found
    assert len(found) <= 96


def test_matched_sets_are_measured_once_and_a_set_with_none_is_told_before_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened(root, "ablate", monkeypatch, **(HYPOTHESIS | {"ablate": "L0H0,L0H1,L0H2,L0H3"}))
    assert not at.exception
    assert any(each.value.startswith("All 4 heads of layer 0 are taken") for each in at.warning)
    assert re.search(r"With n = 16 it reads about [\d,]+ tokens: about \d+ s on this machine", said(at))
    tried = []
    monkeypatch.setattr("interp.effects.matched_control", lambda *_, **__: tried.append(1))
    at.session_state["ablate"] = "L0H1,L0H2,L1H1,L1H2"
    at.run()
    assert "Held against matched random sets: 35 other sets" in said(at)
    assert not at.warning
    at = run_it(at)
    assert not at.exception
    assert tried == []
    assert re.search(r"p [<=]+ [\d.]+ of 35 sets", said(at))
