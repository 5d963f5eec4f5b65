"""Which later heads look elsewhere once an earlier one is gone: on a planted circuit exactly the one that reads it."""

from __future__ import annotations

import pytest
import torch

from interp.ablation import Frozen, ablation_of
from interp.effects import ablate, benches_for
from interp.pattern_changes import pattern_changes, pattern_moves
from interp.places import Intervention
from interp.side_by_side import side_by_side
from model.errors import InputError
from model.hooks import scopes_of
from model.lab import Lab
from tests.planted import INDUCTION_HEAD
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


def test_without_the_previous_token_head_the_induction_head_alone_looks_elsewhere(lab: Lab) -> None:
    tokens = lab.tokens("abcdefgabcdefg")
    found = pattern_changes(lab, tokens, "L0H1:zero")
    assert found.ranked[0] == INDUCTION_HEAD
    others = torch.ones_like(found.moved, dtype=torch.bool)
    others[INDUCTION_HEAD] = False
    assert float(found.moved[INDUCTION_HEAD]) > 0.3
    assert not found.moved[others].any()
    assert {layer for layer, _ in found.ranked} == {1}
    assert torch.equal(found.intact[0], found.ablated[0])
    assert found.ablated.sum(-1).allclose(torch.ones(()))


def test_a_head_of_the_last_layer_moves_nothing_and_no_hook_outlives_it(lab: Lab) -> None:
    found = pattern_changes(lab, lab.tokens("abcabc"), "L1H2:resample")
    assert found.ranked == ()
    assert not found.moved.any()
    assert scopes_of(lab.gpt) == lab.gpt._lasting == []


def test_on_data_the_ranking_has_intervals(lab: Lab) -> None:
    bench, _ = benches_for(lab, ablation_of("L0H1:resample", lab.config), metric="copy_loss", n_sequences=20)
    done: list[tuple[int, int]] = []
    found = pattern_moves(bench, "L0H1:resample", metric="copy_loss", counted=lambda *each: done.append(each))
    assert found.heads[0] == INDUCTION_HEAD
    assert found.moved[0].n == 20
    assert found.moved[0].low > 0.3
    assert all(each.high == 0 for each in found.moved[1:])
    assert done == [(1, 2), (2, 2)]
    held = ablation_of("L0H1:zero", lab.config, frozen=Frozen.PATTERNS)
    with pytest.raises(InputError, match="patterns are held as they were"):
        pattern_moves(bench, held, metric="copy_loss")


def test_interventions_side_by_side_are_those_of_one_ablation_each(lab: Lab) -> None:
    found = side_by_side(lab, "L0H1:zero", n_sequences=12)
    kinds = [next(iter(each.interventions)) for each in found.ablations]
    assert kinds == [Intervention.ZERO, Intervention.MEAN, Intervention.RESAMPLE, Intervention.MEAN]
    assert found.ablations[-1].frozen is Frozen.PATTERNS
    for each, effect in zip(found.ablations, found.effects, strict=True):
        alone = ablate(lab, each, n_sequences=12, n_controls=0)
        assert effect.harm.mean == pytest.approx(alone.harm.mean, abs=1e-6)
    *free, held = (each.harm.mean for each in found.effects)
    assert abs(held) < 1e-6 < min(free)  # all that L0H1 does is where it makes L1H2 look


def test_side_by_side_keeps_the_gate_and_the_positions(lab: Lab) -> None:
    found = side_by_side(lab, "L0H1", gate=0.5, positions=range(10, 14), n_sequences=4)
    assert {(each.gate, each.positions) for each in found.ablations} == {(0.5, (10, 11, 12, 13))}


def test_what_cannot_be_tried_is_said_and_the_rest_is_tried(lab: Lab) -> None:
    found = side_by_side(lab, "L1H2", metric="text_loss", interventions=["counterfactual", "zero"], n_sequences=4)
    assert [str(each) for each in found.ablations] == ["L1H2:zero"]
    assert "no counterfactual on held-out text" in found.notes[0]
    with pytest.raises(InputError, match="no counterfactual on held-out text"):
        side_by_side(lab, "L1H2", metric="text_loss", interventions=["counterfactual"], n_sequences=4)
