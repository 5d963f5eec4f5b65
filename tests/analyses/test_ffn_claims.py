"""What is said of changes over layers: seldom one where nothing changed, seldom none where something did, open else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from analyses.ffn.wording import change_of, changed, changes_of, factor_of, moved, opening
from analyses.verdicts import Verdict, told, verdict
from analyses.wording import percent
from interp.share_intervals import bounded_interval, mean_interval

LAYERS, FLOOR = 12, 0.05
EFFECT, BELOW, OPEN = Verdict.EFFECT, Verdict.BELOW, Verdict.OPEN


def layers(n: int, now: float, start: float, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Twelve layers of n memories that are so or not, independently, at either step."""
    drawn = torch.rand(LAYERS, 2, n, generator=torch.Generator().manual_seed(seed))
    return [((after < now).float(), (before < start).float()) for after, before in drawn]


def cases(pairs: list[tuple[Tensor, Tensor]]) -> list[Verdict]:
    return [verdict(change, FLOOR) for change in changes_of(pairs, bounded_interval)]


@pytest.mark.parametrize("n", [16, 64, 300])
@pytest.mark.parametrize("now", [0.7, 0.7 + FLOOR])
def test_of_twelve_layers_without_a_change_beyond_the_floor_one_is_seldom_said_to_have_changed(
    n: int, now: float
) -> None:
    said = [told(cases(layers(n, now, 0.7, seed))) for seed in range(150)]
    assert sum(each is True for each in said) <= 0.05 * 150


@pytest.mark.parametrize("n", [2, 8, 64, 300])
def test_where_every_layer_changed_by_ten_points_that_is_seldom_denied_of_any(n: int) -> None:
    """Before, of 8 memories that were all alike a bootstrap said "by less than 5 points" in two of five layers."""
    denied = [BELOW in cases(layers(n, 0.1, 0.0, seed)) for seed in range(150)]
    assert sum(denied) <= 0.05 * 150


def test_a_change_that_is_there_is_found_and_none_in_many_memories_is_denied() -> None:
    assert told(cases(layers(300, 0.9, 0.6, seed=0))) is True
    same = [(after, after) for after, _ in layers(300, 0.9, 0.6, seed=0)]
    assert cases(same) == [BELOW] * LAYERS


def test_of_few_memories_nothing_is_told_of_rates() -> None:
    start = torch.zeros(19)
    change, known = changes_of([(start + 2, start), (torch.zeros(20) + 2, torch.zeros(20))], mean_interval)
    assert (verdict(change, FLOOR), verdict(known, FLOOR)) == (OPEN, EFFECT)
    assert changes_of([(start[:0], start[:0])], bounded_interval) == [None]
    said = moved([(start, start)], [change], lambda values: percent(values.mean()), factor_of)
    assert said == "layer 0 has 19 of these, too few to tell"


def test_an_open_layer_makes_no_denial() -> None:
    assert told([BELOW, OPEN]) is None
    assert told([BELOW, BELOW]) is False
    assert told([BELOW, EFFECT, OPEN]) is True
    assert changed([BELOW, OPEN], "what", "5 points").endswith("in layer 0, and in layer 1 it cannot be told")
    assert changed([EFFECT, OPEN, BELOW], "what", "5 points") == (
        "In layer 0 training changed by 5 points or more what, by less than 5 points in layer 2, "
        "and in layer 1 it cannot be told"
    )
    assert opening([EFFECT, OPEN], "it is so", "") == "In layer 0 it is so, and in layer 1 it cannot be told"
    assert opening([OPEN, BELOW], "it is so", "is it so") == "Whether it is so cannot be told in layer 0"
    assert opening([BELOW, BELOW], "it is so", "is it so") == "In no layer is it so"


def test_no_change_has_no_minus_sign() -> None:
    change = bounded_interval(torch.zeros(400))
    assert change_of(change) == "+0.0 [-1.0, +1.0] points"
