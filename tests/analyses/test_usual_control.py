"""What an ablation is held against where nobody says, on shapes whose matched sets can be counted by hand."""

from __future__ import annotations

import pytest

from analyses.attention.kinds import Kind
from analyses.attention.verdicts import Standing, Verdict
from analyses.claims.bounds import parse_bound
from analyses.claims.statement import ControlKind
from analyses.claims.usual import matchable, usual_control
from analyses.heads.named import named_parts
from interp.resolved_places import resolve_places
from model.config import GPTConfig

CONFIG = GPTConfig(n_layers=2, n_heads=8, d_model=32, d_head=4, d_ff=32, n_ctx=16, d_vocab=20)
WHOLE_LAYER = ",".join(f"L1H{index}" for index in range(8))


@pytest.mark.parametrize(
    ("places", "bound", "metric", "control", "why"),
    [
        ("L1H1,L1H3", "harm >= 1", "copy_loss", ControlKind.MATCHED, "27 other sets"),  # 8 * 7 / 2 - 1
        ("L1H1,L1H3", "harm <= 1", "copy_loss", ControlKind.MATCHED, "27 other sets"),
        ("L1H1,L1H3", "|harm| <= 1", "copy_loss", ControlKind.NONE, "no side"),
        ("L1H4", "harm >= 1", "copy_loss", ControlKind.TEXT, "7 other sets"),  # p = 1/8 at best
        ("L1H4", "harm <= 1", "copy_loss", ControlKind.NONE, "takes no other control"),
        ("L1H4", "harm >= 1", "text_loss", ControlKind.STEP0, "7 other sets"),
        ("L1H4:counterfactual", "harm >= 1", "copy_loss", ControlKind.STEP0, "7 other sets"),
        ("L0H0,L1H4", "harm >= 1", "text_loss", ControlKind.MATCHED, "63 other sets"),
        (WHOLE_LAYER, "harm >= 1", "copy_loss", ControlKind.TEXT, "all 8 heads of layer 1 are taken"),
        ("L0.ffn", "harm >= 1", "copy_loss", ControlKind.TEXT, "a whole sublayer has no equal"),
    ],
)
def test_matched_sets_are_taken_where_they_can_decide_and_else_it_is_said_why_not(
    places: str, bound: str, metric: str, control: ControlKind, why: str
) -> None:
    found = usual_control(
        resolve_places(places, CONFIG), CONFIG, bound=parse_bound(bound), metric=metric, has_start=True
    )
    assert found.kind is control
    assert why in found.why


def test_a_set_is_enough_from_the_number_at_which_the_costliest_of_all_reaches_alpha() -> None:
    sets = matchable(resolve_places("L0M3", CONFIG), CONFIG)
    assert (sets.n_sets, sets.needed, sets.is_enough) == (31, 19, True)
    assert not matchable(resolve_places("L0M3", CONFIG), CONFIG, alpha=0.03).is_enough  # 32 sets are needed
    bare = usual_control(
        resolve_places("L1H4", CONFIG), CONFIG, bound=parse_bound("harm >= 1"), metric="text_loss", has_start=False
    )
    assert bare.kind is ControlKind.NONE


def test_the_named_heads_of_a_layer_that_is_taken_whole_are_a_set_with_others() -> None:
    layer = resolve_places(WHOLE_LAYER, CONFIG)
    supported = {(1, 1), (1, 3), (0, 1)}
    verdicts = [_called_induction(place, Standing.SUPPORTED) for place in supported]
    disputed = [_called_induction((1, 4), Standing.DISPUTED)]
    assert named_parts([*verdicts, *disputed], layer, CONFIG) == {"induction head": "L1H1:mean,L1H3:mean"}
    everyone = [_called_induction((1, each), Standing.SUPPORTED) for each in range(8)]
    assert named_parts(everyone, layer, CONFIG) == {}


def _called_induction(place: tuple[int, int], standing: Standing) -> Verdict:
    return Verdict(
        layer=place[0], head=place[1], kinds=(Kind.INDUCTION,), standing=standing, evidence=(), sentence="", lines=()
    )
