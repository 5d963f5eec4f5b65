"""The study of probes affirms what was planted, denies it of random weights, and says what its control means."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from analyses import probes
from analyses.probes import Config, Result
from analyses.probing.findings import token_alone
from analyses.records import decode, encode, same
from analyses.study import run_study
from model import GPT
from model.errors import ConfigError, InputError, UnknownNameError
from model.lab import Lab
from model.settings import with_settings
from tests import planted
from tests.probe_runs import code_lab, letters_lab

SMALL = Config(n_train=450, n_validation=150, n_test=300)
LETTERS = replace(SMALL, tasks=("previous-token", "position"), sites=("resid_post",))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    zero = GPT(planted.induction_model().config, seed=5)
    return letters_lab(tmp_path_factory.mktemp("planted"), zero=zero)


@pytest.fixture(scope="module")
def result(lab: Lab) -> Result:
    return probes.run(lab, LETTERS)


@pytest.fixture(scope="module")
def random_result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    asked = Config(n_train=250, n_validation=100, n_test=300, sites=("resid_post",))
    return probes.run(code_lab(tmp_path_factory.mktemp("random")), asked)


def test_the_planted_previous_token_is_affirmed_at_the_layer_that_writes_it(result: Result) -> None:
    task = result.tasks[0]
    assert result.sites == ("embed", "resid_post 0", "resid_post 1")
    assert task.here.score.mean(1)[1:].tolist() == [1, 1]
    assert task.untrained is not None
    assert (task.untrained.score.mean(1) < 0.4).all()
    said = probes.findings(result)[0]
    assert said.found
    assert said.sentence.startswith(
        "The best linear probe tells the previous token (one of the 19 commonest, as at 98% of positions) better than "
        "the token alone and than the same probe of step 0 by 5 points or more: accuracy 1.00 [1.00, 1.00] at "
        "resid_post 0, the best site on validation documents"
    )


def test_a_label_that_can_be_learned_by_heart_is_said_to_be(result: Result) -> None:
    """The planted stream keeps token and position apart from all else: any table of either is learned perfectly."""
    for task, said in zip(result.tasks, probes.findings(result), strict=True):
        assert float(task.here.control[1].mean()) > 0.97
        assert f"a random label for every {task.types} is learned to" in said.sentence
        assert "(over 19 tables, from" in said.sentence
        assert ", and over held-out documents), so selectivity is" in said.sentence
    assert "cannot be told from what the probe could memorise that way" in probes.findings(result)[0].sentence


def test_random_weights_beside_other_random_weights_are_denied_everything(random_result: Result) -> None:
    said = probes.findings(random_result)
    assert [task.name for task in random_result.tasks] == list(Config().tasks)
    for finding in said:
        untold = finding.sentence.startswith("Whether the best linear probe tells ")
        assert finding.found is (None if untold else False), finding.sentence
    assert False in [finding.found for finding in said]


def test_every_sentence_names_run_step_n_units_seed_and_interval(result: Result) -> None:
    for task, said in zip(result.tasks, probes.findings(result), strict=True):
        assert (
            f"(run@8, n = {task.n_test:,} positions of {task.n_units} held-out documents that neither model nor probe "
            "was trained on, seed 0, 95% intervals over these;" in said.sentence
        )
        assert task.n_test % task.n_units == 0


def changed(
    result: Result,
    *,
    score: float,
    untrained: float,
    spread: float = 0.0,
    majority: float | None = None,
    test_majority: float | None = None,
) -> tuple[bool | None, str]:
    """The first sentence about previous tokens, were their probes at the best site to score this."""
    task = result.tasks[0]
    assert task.untrained is not None
    noise = spread * torch.linspace(-1, 1, task.n_units, dtype=torch.float64)
    here = replace(task.here, score=torch.zeros_like(task.here.score) + score + noise)
    there = replace(task.untrained, score=torch.zeros_like(here.score) + untrained)
    here.score[0] = 0.1
    guesses = {
        name: torch.full_like(task.majority, value)
        for name, value in (("majority", majority), ("test_majority", test_majority))
        if value is not None
    }
    asked = replace(task, here=here, untrained=there, **guesses)
    finding = probes.findings(replace(result, tasks=(asked,)))[0]
    return finding.found, finding.sentence.partition(":")[0]


def test_a_gain_is_claimed_denied_or_left_open_by_its_whole_interval(result: Result) -> None:
    token = float(token_alone(result.tasks[0]).scores.mean())
    found, said = changed(result, score=0.9, untrained=0.5)
    assert found
    assert "better than the token alone and than the same probe of step 0" in said
    found, said = changed(result, score=token, untrained=0.0)
    assert found is False
    assert "does not tell" in said
    found, said = changed(result, score=0.9, untrained=0.88)
    assert found is False
    assert "does not tell" in said
    assert "better than the same probe of step 0" in said
    found, said = changed(result, score=0.6, untrained=0.9)
    assert found is False
    assert "worse than the same probe of step 0" in said
    found, said = changed(result, score=0.6, untrained=0.5, spread=0.6)
    assert found is None
    assert said.endswith("cannot be told")


def test_what_leaves_no_room_for_a_gain_is_neither_affirmed_nor_denied(result: Result) -> None:
    found, said = changed(result, score=1.0, untrained=0.2, majority=0.96)
    assert found is None
    assert said.endswith(
        "cannot be told here, since the token alone is right at 96.0% and no probe can be so by 5 points more"
    )
    found, said = changed(result, score=1.0, untrained=0.97)
    assert found is None
    assert "since the same probe of step 0 is right at 97.0%" in said
    assert changed(result, score=0.8, untrained=0.97)[0] is False  # worse than step 0: no room is needed for that
    found, said = changed(result, score=0.2, untrained=0.2, test_majority=1.0)
    assert found is None
    assert f"since all {result.tasks[0].n_test} positions to test on have one label" in said


def test_a_gain_that_the_commonest_label_of_the_test_would_have_too_is_not_affirmed(result: Result) -> None:
    assert changed(result, score=0.6, untrained=0.2, test_majority=0.5)[0]
    found, said = changed(result, score=0.6, untrained=0.2, test_majority=0.7)
    assert found is None
    assert "since always saying the commonest label of the test documents does as well as the probe" in said


def test_a_study_of_the_embedding_alone_is_refused(lab: Lab) -> None:
    for sites in ((), ("embed",)):
        with pytest.raises(InputError, match="names no place beside the embedding, with which every other is compared"):
            probes.run(lab, replace(LETTERS, sites=sites))


@pytest.mark.whole
def test_without_an_untrained_model_nothing_is_affirmed(lab: Lab) -> None:
    alone = probes.run(lab, replace(LETTERS, untrained=False, tasks=("previous-token",)))
    said = probes.findings(alone)[0]
    assert alone.untrained is None
    assert said.found is None
    assert "what training did is not known: no untrained model was probed" in said.sentence


@pytest.mark.whole
def test_step_zero_is_not_compared_with_itself(tmp_path: Path) -> None:
    lab = letters_lab(tmp_path, zero=planted.induction_model())
    from model.lab import open_run

    start = probes.run(open_run(f"{lab.path}@0"), replace(LETTERS, tasks=("previous-token",)))
    said = probes.findings(start)[0]
    assert (start.untrained, said.found) == (None, None)
    assert "this is step 0" in said.sentence


@pytest.mark.whole
def test_a_run_that_kept_no_step_zero_is_compared_with_random_weights_of_its_shape(tmp_path: Path) -> None:
    lab = letters_lab(tmp_path)
    result = probes.run(lab, replace(LETTERS, tasks=("previous-token",)))
    assert result.untrained == "random weights of the same shape"
    assert "than the same probe of random weights of the same shape" in probes.findings(result)[0].sentence


@pytest.mark.whole
def test_what_the_text_cannot_be_asked_is_said_and_not_guessed(lab: Lab) -> None:
    result = probes.run(
        lab, replace(LETTERS, tasks=("position", "bracket-depth", "indentation-depth"), untrained=False)
    )
    assert [task.name for task in result.tasks] == ["position"]
    said = probes.findings(result)[1:]
    assert [finding.found for finding in said] == [None, None]
    assert "bracket-depth was not probed: the bracket depth" in said[0].sentence
    assert "has one value only" in said[0].sentence
    with pytest.raises(InputError, match="can be asked none of the tasks"):
        probes.run(lab, replace(LETTERS, tasks=("bracket-depth",)))


def test_a_result_comes_back_whole_from_its_record(result: Result) -> None:
    tree, tensors = encode(result)
    back = decode(Result, json.loads(json.dumps(tree, allow_nan=False)), tensors)
    assert same(result, back)
    assert probes.findings(back) == probes.findings(result)
    assert probes.figure(back).to_dict() == probes.figure(result).to_dict()


def test_the_table_has_a_row_per_task_and_site_and_the_figure_draws_them(random_result: Result) -> None:
    table = probes.table(random_result)
    assert len(table) == len(random_result.tasks) * len(random_result.sites) == 12
    assert (table["selectivity"] - (table["accuracy"] - table["control"])).abs().max() < 1e-9
    assert (table["gain"] - (table["accuracy"] - table["untrained"])).abs().max() < 1e-9
    assert (table["low"] <= table["accuracy"]).all()
    chart = probes.figure(random_result).to_dict()
    assert [panel["title"] for panel in chart["concat"]] == list(Config().tasks)
    assert json.dumps(chart).count('"resid_post 1"') >= 4


@pytest.mark.whole
def test_a_study_is_saved_and_used_again(tmp_path: Path, lab: Lab) -> None:
    settings = ["tasks=position", "sites=L0H1", "n_train=100", "n_validation=50", "n_test=100", "untrained=false"]
    saved = run_study("probes", f"{lab.path}@8", settings)
    assert saved.result.sites == ("embed", "L0H1")
    assert run_study("probes", f"{lab.path}@8", settings).provenance.created == saved.provenance.created
    assert (saved.path / "figure.svg").is_file()


def test_settings_are_read_as_they_are_typed_and_nonsense_is_refused() -> None:
    typed = with_settings(Config(), ["tasks=position,bracket-depth", "sites=embed,L0H3", "n_test=100"])
    assert (typed.tasks, typed.sites, typed.amounts.test) == (("position", "bracket-depth"), ("embed", "L0H3"), 100)
    with pytest.raises(UnknownNameError, match='no probe task "brackets"'):
        Config(tasks=("brackets",))
    with pytest.raises(ConfigError, match="name each once"):
        Config(tasks=("position", "position"))
    with pytest.raises(ConfigError, match="n_test=3 is not allowed"):
        Config(n_test=3)
    with pytest.raises(ConfigError, match="seed=-1"):
        Config(seed=-1)
