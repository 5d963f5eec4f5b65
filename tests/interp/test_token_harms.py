"""Where an ablation hurts: on a planted circuit only where something is copied, and parts that add up to the whole."""

from __future__ import annotations

import doctest
import math

import pytest
import torch

from apps.ablation_lines import _groups
from interp import token_kinds
from interp.ablation import ablation_of
from interp.effects import benches_for, effect_of
from interp.outcomes import user_outcome
from interp.token_harms import TokenHarms, _Parts, token_harms
from interp.trials import Bench
from model.errors import InputError
from model.lab import Lab
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


@pytest.fixture(scope="module")
def bench(lab: Lab) -> Bench:
    return benches_for(lab, ablation_of("L1H2:zero", lab.config), metric="copy_loss", n_sequences=8)[0]


def asked(lab: Lab, bench: Bench, metric: str, places: str = "L1H2:zero", **more: int) -> TokenHarms:
    return token_harms(bench, places, metric=metric, tokenizer=lab.tokenizer, **more)


@pytest.mark.parametrize("metric", ["copy_loss", "text_loss", "new_token_loss"])
def test_the_parts_of_every_grouping_add_up_to_the_effect(lab: Lab, bench: Bench, metric: str) -> None:
    found = asked(lab, bench, metric)
    effect = effect_of(bench, "L1H2:zero", metric=metric, seed=0, n_controls=0)
    assert found.harm == pytest.approx(effect.harm.mean, abs=1e-6)
    for groups in filter(None, (found.by_position, found.by_kind, found.by_history)):
        assert sum(group.share or 0.0 for group in groups) == pytest.approx(1.0)
        assert sum(group.n_targets for group in groups) == found.n_targets


def test_all_of_the_second_copy_is_lost_and_the_first_is_better_off(lab: Lab, bench: Bench) -> None:
    second, first = asked(lab, bench, "copy_loss"), asked(lab, bench, "first_copy_loss")
    assert second.n_targets == 8 * 18
    assert [group.label for group in second.by_position][:2] == ["1-3", "4-6"]
    assert all(group.harm.low > 2.5 for group in second.by_position)
    assert all(group.harm.high < 0 for group in first.by_position)  # a head that finds no copy guesses, and wrongly
    assert first.worst == ()
    assert second.by_history == ()
    assert (second.positions, first.positions) == ("target in the second copy", "target in the first copy")
    assert second.by_kind == ()  # tokens that were drawn are of no kind that means anything
    assert [group.label for group in asked(lab, bench, "text_loss").by_kind] == ["letters"]


def test_the_worst_targets_are_the_worst_and_stand_in_their_context(lab: Lab, bench: Bench) -> None:
    found, tokens = asked(lab, bench, "copy_loss", n_worst=5), bench.trials[0].measured
    assert len(found.worst) == 5
    assert [each.harm for each in found.worst] == sorted((each.harm for each in found.worst), reverse=True)
    for each in found.worst:
        row = lab.str_tokens(tokens[each.sequence])
        assert row[each.position] == each.token
        assert tuple(row[: each.position]) == each.before
        assert each.position > 20  # the second copy begins there


def test_a_bystander_hurts_nowhere_and_no_share_of_nothing_is_given(lab: Lab, bench: Bench) -> None:
    found = asked(lab, bench, "copy_loss", "L1H3:zero")
    assert (found.harm, found.worst, found.top_share) == (0.0, (), None)
    assert {group.share for group in found.by_position} == {None}


def test_text_is_told_by_whether_the_current_token_was_seen_before(lab: Lab, bench: Bench) -> None:
    """Held-out rows are random letters, where to copy is wrong: most where there is something to copy, and sharply."""
    new, seen = asked(lab, bench, "text_loss").by_history
    assert (new.label, seen.label) == ("current token is new", "current token was seen before")
    assert seen.harm.high < new.harm.low < 0
    assert asked(lab, bench, "text_loss").positions == "target in the sequence"


def test_a_group_in_one_sequence_has_no_interval_over_sequences() -> None:
    harm = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    every, lone = torch.ones(3, 2, dtype=torch.bool), torch.zeros(3, 2, dtype=torch.bool)
    lone[0] = True
    parts = _Parts(harm=harm, weights=torch.full((3, 2), 0.5, dtype=torch.float64), is_target=every, seed=0)
    whole, one = parts.groups(["all", "one"], [every, lone])
    assert -math.inf < whole.harm.low < whole.harm.high < math.inf
    assert (one.harm.mean, one.harm.low, one.harm.high) == (1.5, -math.inf, math.inf)
    assert "too few" in "\n".join(_groups("sort", (whole, one), 80))


def test_a_difference_between_targets_has_no_parts(lab: Lab) -> None:
    scored = benches_for(lab, ablation_of("L1H2:zero", lab.config), metric="icl_score", n_sequences=4)[0]
    with pytest.raises(InputError, match=r"icl_score is a difference between targets .*ask for text_loss"):
        asked(lab, scored, "icl_score")


def test_what_has_no_numbers_by_token_is_refused(lab: Lab, bench: Bench) -> None:
    from dataclasses import replace

    whole = user_outcome(
        "mine", "mean logit", lambda logits, tokens: logits.mean((1, 2)), unit="logits", lower_is_better=False
    )
    mine = replace(bench, trials=(replace(bench.trials[0], outcomes=(whole,)), bench.trials[1]))
    with pytest.raises(InputError, match="mine is one number for each sequence"):
        asked(lab, mine, "mine")
    with pytest.raises(InputError, match="no counterfactual on held-out text"):
        asked(lab, bench, "text_loss", "L1H2:counterfactual")
    with pytest.raises(InputError, match="loss is not measured here; this bench has copy_loss"):
        asked(lab, bench, "loss")


def test_the_examples_of_kinds_hold() -> None:
    assert doctest.testmod(token_kinds).failed == 0
