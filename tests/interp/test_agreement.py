"""Agreement and its chance level are those worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from interp.agreement import chance_agreement, measured_agreement, partners, permuted_shares, ranks


def test_agreement_chance_and_lift_as_by_hand() -> None:
    promoted, followed = torch.tensor([1, 1, 2, 3]), torch.tensor([1, 2, 2, 3])
    found = measured_agreement(promoted, followed, n_permutations=500, seed=0)
    assert found.share == 3 / 4  # all but the second
    assert found.chance == (2 * 1 + 1 * 2 + 1 * 1) / 16
    assert found.lift == pytest.approx((3 / 4) / (5 / 16))
    assert found.low <= found.share <= found.high


def test_chance_is_the_mean_over_all_permutations() -> None:
    promoted, followed = torch.tensor([1, 1, 2, 3, 5]), torch.tensor([1, 2, 2, 1, 5])
    shares = [float((promoted == followed[list(order)]).float().mean()) for order in itertools.permutations(range(5))]
    assert chance_agreement(promoted, followed) == pytest.approx(sum(shares) / len(shares))


def test_p_is_small_where_pairs_belong_together_and_large_where_they_were_shuffled() -> None:
    tokens = torch.arange(40) % 10
    together = measured_agreement(tokens, tokens, n_permutations=999, seed=0)
    assert (together.share, together.chance, together.p) == (1.0, pytest.approx(0.1), 1 / 1000)
    shuffled = tokens[torch.randperm(40, generator=torch.Generator().manual_seed(1))]
    assert measured_agreement(tokens, shuffled, n_permutations=999, seed=0).p > 0.05


def test_frequent_tokens_alone_give_no_lift() -> None:
    """Every value promotes the space and every trigger is followed by one: agreement 1 and chance 1."""
    space = torch.full((30,), 32)
    found = measured_agreement(space, space, n_permutations=99, seed=0)
    assert (found.share, found.chance, found.lift, found.p) == (1.0, 1.0, 1.0, 1.0)


def test_p_keeps_its_level_under_the_null() -> None:
    generator = torch.Generator().manual_seed(5)
    ps = []
    for _ in range(200):
        promoted, followed = (torch.randint(6, (60,), generator=generator) for _ in range(2))
        share = (promoted == followed).double().mean()
        permuted = permuted_shares(
            promoted, followed, n_permutations=99, seed=int(torch.randint(9999, (), generator=generator))
        )
        ps.append((1 + int((permuted >= share - 1e-12).sum())) / 100)
    assert sum(p <= 0.05 for p in ps) <= 18  # 10 expected; 18 has a chance below one percent


def test_no_memory_and_one_memory_are_said_to_be_so() -> None:
    nothing = measured_agreement(torch.tensor([]).int(), torch.tensor([]).int(), n_permutations=9, seed=0)
    assert nothing.n == 0
    assert math.isnan(nothing.share)
    assert (nothing.p, nothing.lift) == (1.0, None)
    one = measured_agreement(torch.tensor([3]), torch.tensor([3]), n_permutations=9, seed=0)
    assert (one.share, one.low, one.high, one.p) == (1.0, pytest.approx(0.025), 1.0, 1.0)


def test_ranks_count_the_tokens_that_are_promoted_more() -> None:
    scores = torch.randn(7, 30, generator=torch.Generator().manual_seed(2))
    tokens = torch.randint(30, (7, 5), generator=torch.Generator().manual_seed(3))
    expected = (scores[:, :, None] > scores.gather(1, tokens)[:, None, :]).sum(dim=1)
    assert torch.equal(ranks(scores, tokens), expected.int())
    tokens[:, 2] = -1
    assert ranks(scores, tokens)[:, 2].tolist() == [-1] * 7
    assert torch.equal(ranks(scores, tokens)[:, 3:], expected[:, 3:].int())
    assert ranks(scores, tokens[:, :0]).shape == (7, 0)
    assert ranks(scores[:0], tokens[:0]).shape == (0, 5)


def test_equal_scores_share_the_better_rank() -> None:
    assert ranks(torch.tensor([[2.0, 5.0, 2.0, 1.0]]), torch.tensor([[0, 1, 2, 3]])).tolist() == [[1, 0, 1, 3]]


@pytest.mark.parametrize(("n", "most"), [(6, 3), (6, 5), (6, 99), (2, 4), (1, 4), (0, 4)])
def test_partners_are_others_each_as_often_as_any(n: int, most: int) -> None:
    found = partners(n, most, seed=1)
    few = min(most, max(0, n - 1))
    assert found.shape == (n, few)
    assert all(len({own, *others}) == 1 + few for own, others in enumerate(found.tolist()))
    assert torch.bincount(found.flatten(), minlength=n).tolist() == [few] * n
