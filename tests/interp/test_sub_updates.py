"""Sub-updates: they sum to the update, the first are the largest, and a planted promotion is called one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ffn_composed import Composed
from interp.ffn_composition import composed, memory_tokens
from interp.ffn_parts import LayerParts, decoder_of, read_parts, written_values
from interp.sub_updates import joined_saturations, joined_updates, saturations, sub_updates
from model import GPT
from model.errors import InputError
from tests.conftest import make_gpt_with
from tests.interp.test_ffn_composition import MODELS, plain, sample

KS = (1, 3, 10)


def parts_of(gpt: GPT) -> tuple[tuple[LayerParts, ...], Composed]:
    tokens, taken = sample()
    parts, _ = read_parts(gpt, tokens, taken)
    return parts, apart(gpt, parts)


def apart(gpt: GPT, parts: Any) -> Composed:
    n, width = len(parts[0].stream), gpt.config.ffn_width
    own = [torch.arange(width)] * gpt.config.n_layers
    return composed(
        gpt, parts, memory_tokens(gpt), threshold=torch.zeros(len(parts), width), other=(torch.arange(n) + 1) % n,
        dealt=own,
    )  # fmt: skip


@pytest.fixture(params=MODELS)
def gpt(request: pytest.FixtureRequest) -> GPT:
    return make_gpt_with(d_ff=20, **MODELS[request.param])


def test_all_sub_updates_together_are_the_update_without_its_bias(gpt: GPT) -> None:
    parts, found = parts_of(gpt)
    updates = sub_updates(gpt, parts, memory_tokens(gpt), found.final_token, ks=(*KS, 20, 99), seed=0)
    for layer, each in enumerate(parts):
        constant = each.update - each.summed(each.coefficients, written_values(gpt, layer))
        spread = constant - constant.mean(0) if gpt.config.norm != "sandwich" else constant * 0
        assert float(spread.abs().max()) < 1e-5  # the same at every prefix: a bias
        written = (each.update - constant).norm(dim=1)
        torch.testing.assert_close(updates.norm[:, layer], written, atol=1e-5, rtol=1e-5)
    for some in (updates.top, updates.random):
        for last in (3, 4):
            assert float((some.missed[last].sqrt() / updates.norm.clamp_min(1e-9)).max()) < 1e-5
            torch.testing.assert_close(some.norm[last], updates.norm, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(some.effect[last], updates.effect, atol=1e-4, rtol=1e-4)


def test_the_first_are_those_of_a_slow_loop(gpt: GPT) -> None:
    parts, found = parts_of(gpt)
    updates = sub_updates(gpt, parts, memory_tokens(gpt), found.final_token, ks=KS, seed=0)
    unembed, decoder = gpt.folded_unembed(), decoder_of(gpt)
    for layer, each in enumerate(parts):
        values = written_values(gpt, layer)
        for row in range(len(each.stream)):
            alone = [each.coefficients[row, i] * values[i] / each.scale[row] for i in range(len(values))]
            whole = torch.stack(alone).sum(0)
            order = sorted(range(len(alone)), key=lambda i: -float(alone[i].norm()))
            direction = unembed[:, found.final_token[row]] - unembed.mean(1)
            direction = direction / decoder.scale((parts[-1].stream + parts[-1].update)[row : row + 1])[0]
            for place, k in enumerate(KS):
                kept = torch.stack([alone[i] for i in order[:k]]).sum(0)
                for name, value in {
                    "norm": kept.norm(),
                    "inner": kept @ whole,
                    "missed": (whole - kept) @ (whole - kept),
                    "effect": kept @ direction,
                }.items():
                    assert float(getattr(updates.top, name)[place, row, layer]) == pytest.approx(
                        float(value), rel=1e-3, abs=1e-4
                    )
            assert float(updates.effect[row, layer]) == pytest.approx(float(whole @ direction), rel=1e-3, abs=1e-4)


def by_hand(gpt: GPT, stream: list[list[float]], coefficients: list[list[float]]) -> tuple[list[LayerParts], Composed]:
    r, m = torch.tensor(stream), torch.tensor(coefficients)
    parts = [LayerParts(stream=r, update=m @ written_values(gpt, 0), coefficients=m, scale=torch.ones(len(r), 1))]
    return parts, apart(gpt, parts)


def test_orthogonal_sub_updates_explain_their_squares() -> None:
    gpt = plain([[3.0, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 9.0]])
    parts, found = by_hand(gpt, [[0.0, 0, 0, 5.0]] * 2, [[1.0, 2.0, 1.0, 0.0], [-1.0, 0.0, 1.0, 0.0]])
    updates = sub_updates(gpt, parts, memory_tokens(gpt), found.final_token, ks=(1, 2), seed=0)
    assert updates.norm[:, 0].tolist() == pytest.approx([26**0.5, 10**0.5])  # 9 + 16 + 1; 9 + 1
    assert updates.top.missed[:, :, 0].tolist() == [[10.0, 1.0], [1.0, 0.0]]
    assert updates.top.norm[0, :, 0].tolist() == [4.0, 3.0]
    assert found.final_token.tolist() == [3, 3]
    assert updates.effect[0, 0] == pytest.approx(-2.0)  # token 3 gets nothing, and the mean 8 / 4


def test_random_ones_are_of_those_with_a_coefficient() -> None:
    gpt = plain([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]])
    parts, found = by_hand(gpt, [[0.0, 0, 0, 5.0]] * 64, [[1.0, -1.0, 0.0, 0.0]] * 64)
    updates = sub_updates(gpt, parts, memory_tokens(gpt), found.final_token, ks=(1, 2), seed=0)
    assert (updates.random.missed[0] == 1).all()  # always one of the two, never a silent one
    assert (updates.random.missed[1] == 0).all()
    effects = updates.random.effect[0, :, 0]
    assert 15 < int((effects > 0).sum()) < 49  # now the one, now the other
    again = sub_updates(gpt, parts, memory_tokens(gpt), found.final_token, ks=(1, 2), seed=1)
    assert not torch.equal(again.random.effect, updates.random.effect)


def test_a_planted_promotion_and_a_planted_elimination_are_told_apart() -> None:
    """Token 1 overtakes token 0, which the first FFN does by raising 1, and the second by lowering 0."""
    for value, raised, displaced in (([0.0, 4.0, 0.0, 0.0], 3.0, -1.0), ([-4.0, 0.0, 0.0, 0.0], 1.0, -3.0)):
        gpt = plain([value])
        parts, found = by_hand(gpt, [[3.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0]], [[1.0], [0.0]])
        event = saturations(gpt, parts, memory_tokens(gpt), found, torch.tensor([1, 0]), 0)
        assert event.layer.tolist() == [0, -1]
        assert event.total[0].tolist() == pytest.approx([raised, displaced, value[2] - sum(value) / 4])
        assert event.total[1].isnan().all()
        torch.testing.assert_close((event.raised + event.lowered)[0], event.total[0])
        assert event.dominant[0, 0] == pytest.approx(raised)  # of one memory, the ten largest are this one


def test_no_event_where_the_stream_said_it_before() -> None:
    gpt = plain([[1.0, 0, 0, 0]])
    parts, found = by_hand(gpt, [[3.0, 1.0, 0, 0], [0.0, 3.0, 0, 0]], [[1.0], [1.0]])
    assert saturations(gpt, parts, memory_tokens(gpt), found, torch.tensor([1, 0]), 0).layer.tolist() == [-1, -1]


def test_events_are_those_of_a_slow_loop(gpt: GPT) -> None:
    parts, found = parts_of(gpt)
    n = len(found.final_token)
    event = saturations(gpt, parts, memory_tokens(gpt), found, (torch.arange(n) + 1) % n, 0)
    unembed = gpt.folded_unembed()
    for row in range(n):
        final = int(found.final_token[row])
        outputs = found.output_token[row].tolist()
        layer = max((place + 1 for place, token in enumerate(outputs) if token != final), default=0)
        before = int(found.stream_token[row, layer])
        if before == final:
            assert event.layer[row] == -1
            continue
        assert event.layer[row] == layer
        each = parts[layer]
        scale = decoder_of(gpt).scale((each.stream + each.update)[row : row + 1])[0]
        for which, token in enumerate((final, before, int(found.final_token[(row + 1) % n]))):
            direction = (unembed[:, token] - unembed.mean(1)) / scale
            assert float(event.total[row, which]) == pytest.approx(float(each.update[row] @ direction), abs=1e-4)
            alone = [
                float(m * (value @ direction) / each.scale[row])
                for m, value in zip(each.coefficients[row], written_values(gpt, layer), strict=True)
            ]
            assert float(event.raised[row, which]) == pytest.approx(sum(max(x, 0) for x in alone), abs=1e-3)
            assert float(event.lowered[row, which]) == pytest.approx(sum(min(x, 0) for x in alone), abs=1e-3)


def test_lots_joined_are_all_prefixes(gpt: GPT) -> None:
    parts, found = parts_of(gpt)
    memories, n = memory_tokens(gpt), len(found.final_token)
    updates = sub_updates(gpt, parts, memories, found.final_token, ks=KS, seed=0)
    twice = joined_updates([updates, updates])
    assert torch.equal(twice.top.missed[:, n:], updates.top.missed)
    assert twice.norm.shape == (2 * n, 2)
    event = saturations(gpt, parts, memories, found, (torch.arange(n) + 1) % n, 0)
    both = joined_saturations([event, event])
    assert all(len(getattr(both, each.name)) == 2 * n for each in fields(both))


def test_no_count_of_memories_is_refused(tiny: GPT, tokens: Tensor) -> None:
    taken = torch.ones_like(tokens, dtype=torch.bool)
    parts, _ = read_parts(tiny, tokens, taken)
    for ks in ((), (0, 3)):
        with pytest.raises(InputError, match="counts no memories"):
            sub_updates(tiny, parts, memory_tokens(tiny), torch.zeros(36, dtype=torch.int64), ks=ks, seed=0)
