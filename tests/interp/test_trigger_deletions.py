"""Trigger deletions: a planted bigram falls exactly where it must, and every fall is that of one plain run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import nan

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.gate_signs import GateSigns, gate_signs
from interp.row_readings import read_ends
from interp.trigger_deletions import Deletion, TriggerDeletions, trigger_deletions
from model import GPT
from model.errors import InputError
from model.sites import Tap
from tests.conftest import make_gpt_with
from tests.planted import PlantedMemory, Side, memories_model

FIRST, SECOND = 3, 5
CHANGES = tuple(Deletion)


def laid_out(triggers: Sequence[Sequence[Sequence[int]]], n_layers: int = 1) -> tuple[np.ndarray, Tensor, Tensor]:
    """A corpus with each memory's triggers one after the other, behind other text; their offsets and lengths."""
    corpus, offset, length = list(range(8, 20)) * 3, [], []
    for memory in triggers:
        row = []
        for trigger in memory:
            row.append((len(corpus), len(trigger)))
            corpus += trigger
        offset.append([place for place, _ in row])
        length.append([size for _, size in row])
    widest = max(map(len, offset))
    filled = [torch.tensor([[*row, *[0] * (widest - len(row))] for row in rows]) for rows in (offset, length)]
    return np.array(corpus), *(each.expand(n_layers, -1, -1) for each in filled)


def deleted(gpt: GPT, laid: tuple[np.ndarray, Tensor, Tensor], **settings: object) -> TriggerDeletions:
    given = {"bos": None, "n_memories": 8, "n_triggers": 3, "most_tokens": 10**6, "seed": 0} | settings
    return trigger_deletions(gpt, *laid, **given)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_planted_bigram_dies_without_its_last_token_and_not_without_its_first(layer: int) -> None:
    gpt = memories_model({(layer, 2): PlantedMemory(FIRST, SECOND, 7)}, n_layers=2)
    triggers = [[[]]] * 2 + [[[9, 10, 11, 12, FIRST, SECOND], [13, 9, 17, FIRST, SECOND], [19, FIRST, SECOND]]]
    found = deleted(gpt, laid_out(triggers, n_layers=2))
    assert found.memory[layer].tolist() == [2]
    assert found.n_triggers[layer].tolist() == [3]
    assert float(found.of(Deletion.LAST)[layer, 0]) == 1
    assert float(found.of(Deletion.LAST_REPLACED)[layer, 0]) == 1
    assert float(found.of(Deletion.FIRST)[layer, 0]) == 0
    assert float(found.of(Deletion.FIRST_REPLACED)[layer, 0]) == 0
    assert float(found.of(Deletion.RANDOM)[layer, 0]) >= 0.33  # the third's only inner token is FIRST
    assert found.last_beats_first(layer).tolist() == [True]


def test_the_token_before_the_last_is_as_needed_where_it_is_the_random_one() -> None:
    gpt = memories_model({(0, 0): PlantedMemory(FIRST, SECOND, 7)})
    found = deleted(gpt, laid_out([[[18, FIRST, SECOND], [19, FIRST, SECOND]]]))
    assert float(found.of("random")[0, 0]) == 1


def test_a_single_token_key_does_not_mind_what_stands_before() -> None:
    """Coefficient 1 at SECOND after FIRST, and 0 elsewhere; a key of FIRST twice reads one token of each subspace."""
    gpt = memories_model({(0, 0): PlantedMemory(FIRST, FIRST, 7)})
    found = deleted(gpt, laid_out([[[FIRST, 9, 10, FIRST, FIRST]]]))
    assert float(found.of("first")[0, 0]) == 0
    assert float(found.of("last")[0, 0]) == 1  # the one before has no second copy behind it


def random_gpt(**config: object) -> GPT:
    return make_gpt_with(**({"d_vocab": 40, "n_ctx": 32, "d_model": 16, "n_heads": 2, "d_ff": 24} | config))


def everywhere(gpt: GPT, row: Sequence[int]) -> Tensor:
    """All memories' coefficients [layer, memory] at the end of one input, fed alone."""
    _, cache = gpt.run_with_cache(torch.tensor([row]), lambda name: name.endswith("mlp.hook_post"))
    return torch.stack([cache["post", layer][0, -1] for layer in range(gpt.config.n_layers)])


@pytest.mark.parametrize(("ffn", "bos"), [("relu", 39), ("gelu", None), ("swiglu", 39)])
def test_every_fall_is_that_of_plain_runs_of_the_changed_text(ffn: str, bos: int | None) -> None:
    """Triggers of three tokens have one inner token, and a corpus of two tokens one other to replace with."""
    gpt = random_gpt(ffn=ffn)
    start = [] if bos is None else [bos]
    words = [list(word) for size in (2, 3) for word in itertools.product((0, 1), repeat=size)]
    held = {tuple(word): everywhere(gpt, [*start, *word]) for word in words}  # coefficients of all memories
    corpus, offset, length = laid_out([[list(word) for word in words[4:]]] * 24, n_layers=2)
    corpus, offset = corpus[36:], offset - 36  # nothing but zeros and ones
    found = trigger_deletions(
        gpt, corpus, offset, length, bos=bos, n_memories=24, n_triggers=8, most_tokens=10**6, seed=0
    )
    assert found.memory.tolist() == [list(range(24))] * 2
    falls = {}
    for a, b, c in itertools.product((0, 1), repeat=3):
        whole = held[a, b, c]
        changed = ((b, c), (a, b), (a, c), (1 - a, b, c), (a, b, 1 - c))
        falls[a, b, c] = torch.stack([(whole - held[row]) / whole for row in changed], dim=-1)
    fires = torch.stack([held[word] > 0 for word in falls])
    expected = torch.where(fires[..., None], torch.stack([*falls.values()]), torch.nan).nanmean(0)
    assert torch.equal(found.n_triggers.long(), fires.sum(0))
    torch.testing.assert_close(found.fall, expected, rtol=2e-3, atol=2e-3, equal_nan=True)


def test_rows_of_all_lengths_are_read_as_if_each_were_fed_alone() -> None:
    gpt, rng = random_gpt(ffn="swiglu", norm="sandwich"), np.random.default_rng(2)
    rows = [rng.integers(0, 40, size).tolist() for size in [*rng.integers(1, 30, 70), 1]]  # more than one batch
    units = rng.integers(0, 24, len(rows)).tolist()
    found = read_ends(gpt, 1, [Tap.MLP_PRE, Tap.MLP_POST], rows, units)
    assert found.shape == (2, 71, 2)
    for place, (row, unit) in list(enumerate(zip(rows, units, strict=True)))[::6]:
        assert float(found[1, place, 0]) == pytest.approx(float(everywhere(gpt, row)[1, unit]), abs=1e-5)
        if len(row) > 1:
            assert float(found[1, place, 1]) == pytest.approx(float(everywhere(gpt, row[:-1])[1, unit]), abs=1e-5)
    assert found[:, -1, 1].isnan().all()


def many(n_memories: int = 10, size: int = 10) -> tuple[np.ndarray, Tensor, Tensor]:
    rng = np.random.default_rng(3)
    return laid_out([[rng.integers(0, 30, size).tolist() for _ in range(3)] for _ in range(n_memories)], n_layers=2)


def test_the_sample_depends_on_the_seed_alone_and_is_no_larger_than_asked_for_or_than_fits() -> None:
    gpt, laid = random_gpt(), many()
    found = deleted(gpt, laid, n_memories=6)
    torch.testing.assert_close(found.fall, deleted(gpt, laid, n_memories=6).fall, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(found.memory, deleted(gpt, laid, n_memories=6, seed=1).memory)
    assert found.memory.shape == (2, 6)
    assert (found.memory.diff(dim=1) > 0).all()
    assert int(deleted(gpt, laid, n_memories=6, n_triggers=1).n_triggers.max()) == 1
    fed_per_memory = 3 * 10 * 5
    assert deleted(gpt, laid, most_tokens=2 * 4 * fed_per_memory).memory.shape == (2, 4)
    assert deleted(gpt, laid, most_tokens=1).memory.shape == (2, 2)


def test_short_triggers_are_left_out_and_layers_without_any_are_empty() -> None:
    gpt = memories_model({(0, 0): PlantedMemory(FIRST, SECOND, 7), (0, 1): PlantedMemory(FIRST, SECOND, 8)})
    word = [FIRST, SECOND]
    found = deleted(gpt, laid_out([[word, [9, *word]], [word], [[5]], []]))
    assert found.memory.tolist() == [[0]]
    assert found.n_triggers.tolist() == [[1]]
    nothing = deleted(random_gpt(), laid_out([[[1, 2]], []], n_layers=2))
    assert nothing.memory.shape == (2, 0)
    assert nothing.fall.shape == (2, 0, 5)
    assert nothing.last_beats_first(0).tolist() == []


def test_a_corpus_of_one_token_has_nothing_to_replace_it_with() -> None:
    corpus, offset, length = laid_out([[[1, 1, 1]]])
    with pytest.raises(InputError, match="no other can be drawn"):
        trigger_deletions(
            random_gpt(n_layers=1), np.ones_like(corpus), offset, length,
            bos=None, n_memories=1, n_triggers=1, most_tokens=100, seed=0,
        )  # fmt: skip


def test_gate_signs_tell_which_factor_of_swiglu_is_negative() -> None:
    """Memory 0's linear factor is -1 wherever it fires; memory 1's is 1, and its gate dips below zero."""
    planted = {
        (0, 0): PlantedMemory(FIRST, SECOND, 7, side=Side.NEGATIVE_LINEAR),
        (0, 1): PlantedMemory(FIRST, SECOND, 7, side=Side.NEGATIVE),
    }
    gpt = memories_model(planted, ffn="swiglu")
    corpus, offset, length = laid_out([[[9, FIRST, SECOND]], [[10, FIRST, SECOND]]])
    none = (torch.full_like(offset, -1), torch.zeros_like(length))
    sampled = torch.tensor([[0, 1, -1]])
    found = gate_signs(gpt, corpus, (offset, length), none, sampled, bos=None, n_triggers=1)
    assert found.linear_is_negative(0).tolist() == [True, False]
    assert float(found.negative_gate[0, 0, 0]) > 0 > float(found.negative_gate[0, 1, 0])
    silu = torch.nn.functional.silu(found.negative_gate[0, :2, 0]) * found.negative_linear[0, :2, 0]
    expected = [each.coefficient("swiglu", 2) for each in planted.values()]
    assert silu.tolist() == pytest.approx(expected, rel=1e-5)
    assert found.negative_gate[0, 2].isnan().all()
    assert found.positive_gate.isnan().all()
    with pytest.raises(InputError, match="ffn=relu has no gate"):
        gate_signs(random_gpt(ffn="relu"), corpus, none, none, sampled, bos=None, n_triggers=1)


def test_a_large_coefficient_comes_of_two_negative_factors_only_where_both_are_negative() -> None:
    gate, linear = torch.tensor([[-1.0, -1.0, 1.0, 1.0, nan]]), torch.tensor([[-1.0, 1.0, -1.0, 1.0, nan]])
    found = GateSigns(
        memory=torch.arange(5)[None],
        negative_gate=gate[..., None],
        negative_linear=linear[..., None],
        positive_gate=gate[..., None],
        positive_linear=linear[..., None],
    )
    assert found.both_negative(0).tolist() == [True, False, False, False]
    assert found.linear_is_negative(0).tolist() == [True, False, True, False]
