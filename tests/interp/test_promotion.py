"""A memory that is turned on promotes exactly what its value says, in every token that is generated."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.ablation import ablated
from interp.places import parse_places
from interp.promotion import Sampling, Written, written
from tests.conftest import make_gpt_with
from tests.planted import PlantedMemory, memories_model

PROMPTS = torch.randint(0, 20, (6, 5), generator=torch.Generator().manual_seed(0))
TWICE = Sampling(n_new_tokens=8, n_generations=2, temperature=1.0, seed=3)


def member(*tokens: int, d_vocab: int = 20) -> Tensor:
    found = torch.zeros(d_vocab, dtype=torch.bool)
    found[list(tokens)] = True
    return found


@pytest.fixture(scope="module")
def two():
    """L0M2 promotes 7 after (3, 5), L0M3 promotes 9 after (3, 6)."""
    return memories_model({(0, 2): PlantedMemory(3, 5, 7), (0, 3): PlantedMemory(3, 6, 9)}, d_ff=12)


def test_turned_on_it_promotes_its_token_and_another_memory_another(two) -> None:
    plain = written(two, PROMPTS, member(7), TWICE)
    on = written(two, PROMPTS, member(7), TWICE, parse_places("L0M2:set=4"))
    other = written(two, PROMPTS, member(7), TWICE, parse_places("L0M3:set=4"))
    empty = written(two, PROMPTS, member(7), TWICE, parse_places("L0M4,L0M9:set=4"))
    assert bool((on.share == 1).all())
    expected = torch.tensor(20.0).exp() / (torch.tensor(20.0).exp() + 19)  # 4 times a value of 5
    torch.testing.assert_close(on.mass, torch.full((6, 8), float(expected), dtype=torch.float64), atol=1e-6, rtol=0)
    assert float(other.share.max()) == 0.0
    assert torch.equal(empty.text, plain.text)
    assert 0 < float(plain.share.mean()) < 0.2
    assert float(on.distinct.mean()) == 1 / 8


def test_swapped_memories_promote_what_the_other_did(two) -> None:
    """Behind (3, 5) then comes what belongs to (3, 6), and the other way round."""
    for text, own, others in (([1, 3, 5], 7, 9), ([1, 3, 6], 9, 7)):
        tokens = torch.tensor([text])
        assert int(two(tokens)[0, -1].argmax()) == own
        with ablated(two, "L0M2,L0M3:swap"):
            assert int(two(tokens)[0, -1].argmax()) == others
        with ablated(two, "L0M2:times=-1"):
            assert two(tokens)[0, -1, 7].item() == pytest.approx(-5 if own == 7 else 0, abs=1e-4)


def test_directions_stand_in_for_values_and_the_values_are_put_back(two) -> None:
    before = two.W_out.clone()
    directions = torch.zeros(2, two.config.d_model)
    directions[0, -1] = 5.0  # the output of token 19
    places = parse_places("L0M4,L0M2:set=4")
    found = written(two, PROMPTS, member(19), TWICE, places, {0: directions})
    assert float(found.share.min()) == 1.0
    assert torch.equal(two.W_out, before)
    with pytest.raises(RuntimeError, match="shape"):
        written(two, PROMPTS, member(19), TWICE, places, {0: torch.zeros(3, two.config.d_model)})
    assert torch.equal(two.W_out, before)


@pytest.mark.parametrize("edit", ["", "L0M3,L1M7:set=3", "L1M5,L1M6:swap"])
def test_what_is_counted_is_what_a_slow_run_without_the_cache_counts(edit: str) -> None:
    gpt, concept = make_gpt_with(d_vocab=20, norm="sandwich", ffn="swiglu"), member(1, 4, 8)
    places = parse_places(edit) if edit else ()
    found = written(gpt, PROMPTS, concept, TWICE, places)
    slow = slowly(gpt, concept, edit)
    for name in ("text", "share", "mass", "loss", "distinct"):
        torch.testing.assert_close(getattr(found, name), getattr(slow, name), atol=1e-5, rtol=1e-5)


def slowly(gpt, concept: Tensor, edit: str) -> Written:
    """By whole runs of everything, one text at a time once it is written."""
    rows = PROMPTS.repeat_interleave(2, 0)
    with ablated(gpt, edit or "L0M0:times=1.0000001"):
        text = gpt.generate(rows, max_new_tokens=8, temperature=1.0, seed=3, use_kv_cache=False)
        edited = torch.stack([gpt(row[None])[0] for row in text]).detach()
    plain = torch.stack([gpt(row[None])[0] for row in text]).detach().double()
    new = text[:, 5:]
    nats = -plain[:, 4:-1].log_softmax(-1).gather(2, new[..., None])[..., 0]
    mass = edited[:, 4:-1].softmax(-1)[..., concept].sum(-1).double()
    distinct = torch.tensor([len(set(row.tolist())) / 8 for row in new], dtype=torch.float64)

    def by_prompt(values: Tensor) -> Tensor:
        return values.unflatten(0, (6, 2)).mean(1)

    return Written(
        text=new.unflatten(0, (6, 2)),
        share=by_prompt(concept[new].double().mean(1)),
        mass=by_prompt(mass),
        loss=by_prompt(nats.mean(1)),
        distinct=by_prompt(distinct),
    )


def test_prompts_in_parts_are_prompts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where logits are many, rows go in groups; at temperature 0 nothing depends on how."""
    gpt, greedy = make_gpt_with(d_vocab=20), Sampling(n_new_tokens=6, n_generations=1, temperature=0.0, seed=0)
    whole = written(gpt, PROMPTS, member(3), greedy)
    monkeypatch.setattr("interp.promotion._LOGITS", 20 * 11 * 4)
    parts = written(gpt, PROMPTS, member(3), greedy)
    assert torch.equal(whole.text, parts.text)
    torch.testing.assert_close(whole.mass, parts.mass)
    torch.testing.assert_close(whole.loss, parts.loss)


def test_parts_are_drawn_with_other_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same prompt in two parts is continued in two ways, as it is within one."""
    gpt, prompts = make_gpt_with(d_vocab=20), PROMPTS[:1].expand(4, -1)
    once = Sampling(n_new_tokens=8, n_generations=1, temperature=1000.0, seed=3)  # anything may come
    monkeypatch.setattr("interp.promotion._LOGITS", 20 * 13 * 2)
    texts = {tuple(row.tolist()) for row in written(gpt, prompts, member(3), once).text[:, 0]}
    assert len(texts) == 4
