"""The study ffn-memories, whole, on memories that were set by hand: it finds what was planted, to the number.

Every expected number is counted here, from the letters of the corpus, by code that shares nothing with the study.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from analyses import ffn_memories
from analyses.ffn_memories import Config, Result
from interp.pattern_kinds import TriggerPattern
from interp.trigger_deletions import Deletion
from model import GPT
from model.checkpoint import save_checkpoint
from model.lab import Lab, open_run
from model.settings import to_plain
from model.tokenizer import CharTokenizer
from model.training.sources import DataConfig
from tests.planted import D_VOCAB, PlantedMemory, Side, memories_model

LETTERS = "abcdefghijklmnopqrs"
assert len(LETTERS) + 1 == D_VOCAB
WORDS = ("abp", "cdp", "efq", "ghr")
"""Two letters and the one that always follows them; nowhere else do these pairs stand. Two words share their third."""
FILLING = "ijklmno"


def letter(one: str) -> int:
    return LETTERS.index(one)


def planted(word: str, side: Side = Side.POSITIVE) -> PlantedMemory:
    return PlantedMemory(letter(word[0]), letter(word[1]), letter(word[2]), side)


RELU = {(0, 1): planted("abp"), (0, 4): planted("cdp"), (0, 6): planted("efq"), (0, 7): planted("ghr")}
DEEP = {(1, 0): planted("abp"), (0, 4): planted("cdp"), (1, 5): planted("efq"), (0, 7): planted("ghr")}
SIGNED = {(0, 1): planted("abp"), (0, 4): planted("cdp", Side.NEGATIVE)}
GATED = SIGNED | {(0, 6): planted("efq", Side.NEGATIVE_LINEAR)}


def text(seed: int, n_words: int = 250) -> str:
    """Words among single letters that begin none of them, so that what stands before a word varies."""
    drawn = random.Random(seed)
    return "".join(drawn.choice(WORDS) if drawn.random() < 0.25 else drawn.choice(FILLING) for _ in range(n_words))


def lab_of(folder: Path, gpt: GPT) -> Lab:
    """A run on disk whose one checkpoint is `gpt`, and whose corpus are three texts; one of them is held out."""
    texts = folder / "texts"
    texts.mkdir()
    for seed in range(3):
        (texts / f"{seed}.txt").write_text(text(seed))
    save_checkpoint(folder / "run", gpt, step=8, tokens_seen=1024)
    CharTokenizer(LETTERS).save(folder / "run" / "tokenizer.json")
    data = DataConfig(sources=(f"text:{texts}/*.txt",), held_out=0.1)
    (folder / "run" / "run.json").write_text(json.dumps({"config": {"data": to_plain(data)}}))
    return open_run(f"{folder}/run@8")


@dataclass(frozen=True)
class Place:
    """A prefix that ends in some bigram."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length - 1


def places(lab: Lab, bigram: str) -> list[Place]:
    """Every prefix that ends in a bigram, in corpus order; a window is what fits behind BOS, and leaves a token."""
    letters, room = lab.tokenizer.decode(lab.corpus.tokens), lab.config.n_ctx - 1
    found = []
    for start, stop in lab.corpus.train.spans.tolist():
        for first in range(start, stop - 1, room):
            window = range(first + 1, min(first + room, stop - 1))
            found += [Place(first, end - first + 1) for end in window if letters[end - 1 : end + 1] == bigram]
    return found


def n_read(lab: Lab) -> int:
    return sum(stop - start - 1 for start, stop in lab.corpus.train.spans.tolist())


def studied(folder: Path, memories: Mapping[tuple[int, int], PlantedMemory], **model: str) -> tuple[Lab, Result]:
    lab = lab_of(folder, memories_model(memories, **model))
    config = Config(n_triggers=8, n_negative=8, n_deleted=8, n_random_sets=200, n_permutations=99)
    return lab, ffn_memories.run(lab, config)


@pytest.fixture(scope="module", params=[(RELU, "none"), (RELU, "pre"), (DEEP, "none")], ids=["flat", "normed", "deep"])
def relu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Lab, Result]:
    memories, norm = request.param
    return memories, *studied(tmp_path_factory.mktemp("planted"), memories, norm=norm)


def word_of(memory: PlantedMemory) -> str:
    return "".join(LETTERS[token] for token in (memory.first, memory.second, memory.promoted))


def test_the_triggers_are_exactly_the_bigrams_first_places(relu: tuple[dict, Lab, Result]) -> None:
    memories, lab, result = relu
    triggers = result.reading.triggers
    assert result.n_prefixes == n_read(lab)
    for (layer, memory), own in memories.items():
        expected = places(lab, word_of(own)[:2])
        assert len(expected) > 8
        assert triggers.offset[layer, memory].tolist() == [place.offset for place in expected[:8]]
        assert triggers.length[layer, memory].tolist() == [place.length for place in expected[:8]]
        assert triggers.coefficient[layer, memory].tolist() == [1.0] * 8
        assert set(triggers.last_token[layer, memory].tolist()) == {own.second}
        assert set(triggers.next_token[layer, memory].tolist()) == {own.promoted}
        rate = float(result.reading.activity.firing_rate[layer, memory])
        assert rate == pytest.approx(len(expected) / result.n_prefixes)
    assert result.replay_error == 0


def test_all_other_memories_are_dead_and_have_no_trigger(relu: tuple[dict, Lab, Result]) -> None:
    memories, lab, result = relu
    for layer in range(lab.config.n_layers):
        own = [memory for at, memory in memories if at == layer]
        assert result.reading.activity.alive[layer].nonzero().flatten().tolist() == sorted(own)
        others = [memory for memory in range(8) if memory not in own]
        assert (result.reading.triggers.length[layer, others] == 0).all()
        assert result.reading.summary.layers[layer].n_dead == len(others)


def test_every_value_agrees_and_chance_is_what_dealing_by_hand_gives(relu: tuple[dict, Lab, Result]) -> None:
    memories, lab, result = relu
    for layer in range(lab.config.n_layers):
        promoted = [memory.promoted for (at, _), memory in memories.items() if at == layer]
        agreement = result.reading.summary.layers[layer].agreement
        by_hand = sum(promoted.count(token) for token in promoted) / len(promoted) ** 2
        assert (agreement.n, agreement.share) == (len(promoted), 1)
        assert agreement.chance == by_hand
        assert agreement.lift == pytest.approx(1 / by_hand)
        assert result.reading.summary.layers[layer].median_rank == 0
    if lab.config.n_layers == 1:
        assert result.reading.summary.layers[0].agreement.chance == 6 / 16  # p stands twice, q and r once


def test_the_evidence_is_a_shared_bigram_and_no_more(relu: tuple[dict, Lab, Result]) -> None:
    memories, lab, result = relu
    evidence, letters = result.reading.evidence, lab.tokenizer.decode(lab.corpus.tokens)
    for (layer, memory), own in memories.items():
        before = [letters[place.end - 2] for place in places(lab, word_of(own)[:2])[:8]]
        assert float(evidence.last_token_share[layer, memory]) == 1
        assert float(evidence.last_bigram_share[layer, memory]) == 1
        commonest = max(before.count(one) for one in before)
        assert float(evidence.last_trigram_share[layer, memory]) == pytest.approx(commonest / 8)
        assert evidence.kind_of(layer, memory) is TriggerPattern.LAST_BIGRAM


def test_a_coefficient_falls_with_a_token_of_the_bigram_and_with_no_other(relu: tuple[dict, Lab, Result]) -> None:
    memories, _, result = relu
    deletions = result.reading.deletions
    assert deletions is not None
    fall = dict(zip(Deletion, deletions.fall.unbind(-1), strict=True))
    measured = 0
    for (layer, memory), _ in memories.items():
        (at,) = (deletions.memory[layer] == memory).nonzero().flatten().tolist()
        assert float(fall[Deletion.FIRST][layer, at]) == 0
        assert float(fall[Deletion.LAST][layer, at]) == 1
        assert float(fall[Deletion.FIRST_REPLACED][layer, at]) == 0
        n = int(deletions.n_triggers[layer, at])
        assert (fall[Deletion.RANDOM][layer, at] * n).round(decimals=4) % 1 == 0  # each trigger falls wholly or not
        measured += n
    assert measured >= 3 * len(memories)


@pytest.mark.parametrize(("ffn", "memories"), [("gelu", SIGNED), ("swiglu", GATED)])
@pytest.mark.parametrize("norm", ["none", "pre"])
def test_a_memory_that_speaks_by_its_negative_side_is_found_there(
    tmp_path: Path, ffn: str, memories: Mapping[tuple[int, int], PlantedMemory], norm: str
) -> None:
    lab, result = studied(tmp_path, memories, ffn=ffn, norm=norm)
    reading, letters = result.reading, lab.tokenizer.decode(lab.corpus.tokens)
    for (layer, memory), own in memories.items():
        expected = places(lab, word_of(own)[:2])[:8]
        side = reading.triggers if own.side is Side.POSITIVE else reading.negative
        stored = zip(side.offset[layer, memory].tolist(), side.length[layer, memory].tolist(), strict=True)
        assert [Place(*each) for each in stored] == expected
        there = torch.full((8,), own.coefficient(ffn, 2))
        torch.testing.assert_close(side.coefficient[layer, memory], there)
        assert {letters[place.end + 1] for place in expected} == {LETTERS[own.promoted]}
        values = reading.values.promoted if own.side is Side.POSITIVE else reading.values.suppressed
        assert int(values[layer, memory, 0]) == own.promoted
    quiet = reading.activity.firing_rate[0, 4]
    assert float(quiet) == 0, "its coefficient is never above zero"
    assert float(reading.activity.negative_rate[0, 4]) > 0
    assert not reading.activity.dead[0, 4]
    assert reading.triggers.length[0, 4].tolist() == [0] * 8
