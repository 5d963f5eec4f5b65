"""A shared end is held against the stretch of text that triggers come from: that stretch, and nothing beside it."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import torch

from interp.prefix_sets import PrefixSets, prefix_sets, shared_end
from interp.trigger_regions import beyond_region

OTHER = np.random.default_rng(0).integers(100, 1000, 1200).tolist()


def text(*parts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """A corpus of documents one behind the other, and where each begins and ends."""
    stops = np.cumsum([len(part) for part in parts])
    starts = stops - [len(part) for part in parts]
    return np.concatenate([np.array(part, dtype=np.int32) for part in parts]), np.stack([starts, stops], axis=1)


def sets_of(tokens: np.ndarray, documents: np.ndarray, ends: list[int]) -> PrefixSets:
    """One set of prefixes, each from the beginning of its document."""
    starts = documents[:, 0][np.searchsorted(documents[:, 0], ends, side="right") - 1]
    offset = torch.from_numpy(starts)[None]
    return prefix_sets(tokens, documents, offset, torch.tensor([ends]) - offset + 1)


def beyond(sets: PrefixSets, tokens: np.ndarray, n_last: int, level: float) -> bool:
    return bool(beyond_region(tokens, sets, shared_end(sets), sets.present, n_last, level)[0])


def slow_probability(tokens: np.ndarray, documents: np.ndarray, ends: list[int], n_last: int) -> float:
    """The definition, counted place by place."""
    spans = [next((start, stop) for start, stop in documents.tolist() if start <= end < stop) for end in ends]

    def word(end: int, start: int) -> tuple[int, ...] | None:
        return tuple(tokens[end - n_last + 1 : end + 1].tolist()) if end - n_last + 1 >= start else None

    words = [word(end, start) for end, (start, _) in zip(ends, spans, strict=True)]
    common = max(words, key=lambda each: 0 if each is None else words.count(each))  # the first of the commonest
    near = [
        [i for i, other in enumerate(ends) if spans[i] == span and 0 <= other - end < 256]
        for end, span in zip(ends, spans, strict=True)
    ]
    region = max(range(len(ends)), key=lambda i: len(near[i]))
    n, k = len(near[region]), sum(words[i] == common for i in near[region])
    start, stop = spans[region]
    places = range(ends[region], min(ends[region] + 256, stop))
    share = sum(word(place, start) == common for place in places) / len(places)
    return sum(comb(n, j) * share**j * (1 - share) ** (n - j) for j in range(k, n + 1))


@pytest.mark.parametrize("n_last", [1, 2, 3])
def test_the_probability_is_that_of_counting_the_stretch_inside_its_document(n_last: int) -> None:
    rng = np.random.default_rng(n_last)
    seen = []
    for _ in range(40):
        tokens, documents = text(*(rng.choice(4, size, p=[0.5, 0.3, 0.1, 0.1]).tolist() for size in (300, 40, 700, 30)))
        first, stop = documents[rng.integers(0, 4)]
        ends = [int(end) for end in rng.choice(np.arange(first, stop), 12, replace=False)]
        ends += [int(end) for end in rng.choice(len(tokens), 4, replace=False) if end not in ends]
        expected = slow_probability(tokens, documents, ends, n_last)
        seen.append(expected)
        sets = sets_of(tokens, documents, ends)
        assert beyond(sets, tokens, n_last, expected * 1.000001 + 1e-11)
        assert not beyond(sets, tokens, n_last, expected * 0.999999 - 1e-11)
    assert min(seen) < 0.05
    assert max(seen) > 0.5


@pytest.mark.parametrize("after", [[], OTHER[600:]], ids=["the end of the corpus", "another document"])
def test_a_token_that_is_half_of_a_short_document_says_only_that_triggers_lie_in_it(after: list[int]) -> None:
    tokens, documents = text(OTHER[:600], [5, 6] * 20, *([after] if after else []))
    half = [600 + place for place in (*range(0, 30, 2), *range(1, 20, 2))]  # 15 of 25 end in 5
    assert not beyond(sets_of(tokens, documents, half), tokens, 1, 0.01)
    all_of_them = [600 + place for place in range(0, 40, 2)]
    assert beyond(sets_of(tokens, documents, all_of_them), tokens, 1, 0.01)


def test_the_last_token_of_the_corpus_counts_once() -> None:
    """Three of eight triggers end in 7, which stands at three of the twenty places: probability 0.11."""
    tokens, documents = text(OTHER[:600], [*OTHER[600:617], 7, 7, 7])
    sets = sets_of(tokens, documents, [600, 603, 606, 609, 612, 617, 618, 619])
    assert beyond(sets, tokens, 1, 0.12)
    assert not beyond(sets, tokens, 1, 0.10)


def test_a_region_is_256_tokens_of_one_document() -> None:
    tokens, documents = text(OTHER[:700], OTHER[700:])
    near = sets_of(tokens, documents, [100, 355, 356, 690, 710]).near[0]
    expected = torch.eye(5, dtype=torch.bool)
    expected[0, 1] = expected[1, 2] = True  # not the first and the third, nor across the border of a document
    assert torch.equal(near, expected)
