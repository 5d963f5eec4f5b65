"""Trigger patterns: every measure equals a slow count by the definitions, and planted patterns get their kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from interp.pattern_kinds import TriggerPattern
from interp.prefixes import cut_windows
from interp.trigger_patterns import MEASURES, RandomEvidence, TriggerEvidence, random_evidence, trigger_evidence

Prefix = tuple[int, int]
"""Offset and length."""

N_DOCUMENTS, SIZE, WINDOW = 24, 600, 100
DOCUMENTS = np.arange(N_DOCUMENTS)[:, None] * SIZE + np.array([0, SIZE])


def corpus(seed: int = 0) -> np.ndarray:
    """Frequent and rare tokens; documents 3, 5, 7 ... begin with the same 40 tokens, and 10 with 500 of their own."""
    rng = np.random.default_rng(seed)
    tokens = (rng.random(N_DOCUMENTS * SIZE) ** 3 * 60).astype(np.int64)
    for document in range(3, N_DOCUMENTS, 2):
        tokens[document * SIZE : document * SIZE + 40] = 60 + np.arange(40)
    return tokens


TOKENS = corpus()
WINDOWS = cut_windows([(int(start), int(stop)) for start, stop in DOCUMENTS], WINDOW)


@pytest.fixture(scope="module")
def random() -> RandomEvidence:
    return random_evidence(TOKENS, DOCUMENTS, WINDOWS, n_triggers=12, n_sets=200, seed=0)


def prefixes_ending_at(ends: list[int]) -> list[Prefix]:
    starts = [int(WINDOWS.starts[np.searchsorted(WINDOWS.starts, end, side="right") - 1]) for end in ends]
    return [(start, end - start + 1) for start, end in zip(starts, ends, strict=True)]


def evidence(memories: list[list[Prefix]], random: RandomEvidence, tokens: np.ndarray = TOKENS) -> TriggerEvidence:
    widest = max(map(len, memories))
    rows = torch.tensor([[*memory, *[(-1, 0)] * (widest - len(memory))] for memory in memories])
    return trigger_evidence(tokens, DOCUMENTS, rows[..., 0], rows[..., 1], random)


def kinds(memories: list[list[Prefix]], random: RandomEvidence, tokens: np.ndarray = TOKENS) -> list[TriggerPattern]:
    return [tuple(TriggerPattern)[place] for place in evidence(memories, random, tokens).kind.tolist()]


def common(one: list[int], other: list[int], *, at_the_end: bool) -> int:
    """Tokens in common, counted one by one, 32 at most."""
    pairs = zip(reversed(one), reversed(other), strict=False) if at_the_end else zip(one, other, strict=False)
    n = 0
    for left, right in pairs:
        if left != right or n == 32:
            break
        n += 1
    return n


def slow_measures(prefixes: list[Prefix], tokens: np.ndarray = TOKENS) -> dict[str, float]:
    """The definitions, one after the other."""
    texts = [tokens[offset : offset + length].tolist() for offset, length in prefixes]
    ends = [offset + length - 1 for offset, length in prefixes]
    documents = [offset // SIZE for offset, _ in prefixes]
    n = len(prefixes)
    share = {
        k: max(Counter(tuple(text[-k:]) for text in texts if len(text) >= k).values(), default=0) for k in (1, 2, 3)
    }
    last = Counter(text[-1] for text in texts)
    copied = [
        any(
            text[-16:] == earlier[-16:] and (len(text) >= 16 or len(text) == len(earlier))
            for earlier in texts[:place]
        )
        for place, text in enumerate(texts)
    ]  # fmt: skip
    near = max(
        sum(documents[i] == documents[j] and 0 <= ends[j] - ends[i] < 256 for j in range(n)) for i in range(n)
    )  # fmt: skip

    def longest(fewest: int, *, at_the_end: bool, windows: bool = False) -> tuple[int, int]:
        """How long an end (or beginning) `fewest` prefixes (or windows) share, and how many prefixes do."""
        best = (0, 0)
        for text in texts:
            for length in range(1, min(len(text), 32) + 1):
                alike = [i for i in range(n) if common(text, texts[i], at_the_end=at_the_end) >= length]
                counted = {prefixes[i][0] for i in alike} if windows else alike
                if len(counted) >= fewest:
                    best = max(best, (length, len(alike)))
        return best

    suffix, suffix_n = longest(3, at_the_end=True)
    prefix, prefix_n = longest(3, at_the_end=False, windows=True)
    return {
        "last_token_share": share[1] / n,
        "last_bigram_share": share[2] / n,
        "last_trigram_share": share[3] / n,
        "covered_share": sum(count for count in last.values() if count >= 3) / n,
        "region_share": near / n,
        "position_share": max(Counter(length for _, length in prefixes).values()) / n,
        "copied_share": sum(copied) / n,
        "suffix_share": suffix_n / n,
        "prefix_share": prefix_n / n,
        "suffix_length": suffix,
        "majority_suffix": longest(max(2, n // 2 + 1), at_the_end=True)[0],
        "prefix_length": prefix,
        "n_patterns": sum(count >= 3 for count in last.values()),
        "n_documents": len(set(documents)),
        "n_distinct": n - sum(copied),
    }


def drawn_memories(seed: int) -> list[list[Prefix]]:
    """Triggers of all kinds: random ones, ones near each other, ones in repeated text, ones with a token in common."""
    rng = np.random.default_rng(seed)
    everywhere = np.flatnonzero(np.arange(len(TOKENS)) % SIZE < SIZE - 1)
    repeated = np.flatnonzero((np.arange(len(TOKENS)) % SIZE < 40) & (TOKENS >= 60))
    copied = repeated[repeated % SIZE > 37]
    pools = [everywhere, everywhere[1000:1300], repeated, np.flatnonzero(TOKENS[everywhere] == 7), copied]
    sizes = (12, 7, 4, 3, 1)
    return [
        prefixes_ending_at(rng.choice(pool, size, replace=False).tolist()) for pool in pools for size in sizes
    ]  # fmt: skip


def test_every_measure_is_what_a_slow_count_gives(random: RandomEvidence) -> None:
    memories = drawn_memories(seed=1)
    found = evidence(memories, random)
    for place, memory in enumerate(memories):
        expected = slow_measures(memory)
        measured = {name: float(getattr(found, name)[place]) for name in MEASURES}
        assert measured == pytest.approx(expected, abs=1e-6), memory
    assert found.n.tolist() == [len(memory) for memory in memories]
    assert float(found.prefix_length.max()) == 32  # repeated text was among them
    assert float(found.copied_share.max()) > 0.3


def test_the_random_level_is_that_of_the_same_count_over_random_sets(random: RandomEvidence) -> None:
    rng = np.random.default_rng(5)
    everywhere = np.flatnonzero(np.arange(len(TOKENS)) % SIZE < SIZE - 1)
    slow = [slow_measures(prefixes_ending_at(rng.choice(everywhere, 6, replace=False).tolist())) for _ in range(200)]
    for name in MEASURES:
        values = np.array([each[name] for each in slow])
        spread = values.std() / len(values) ** 0.5 * 2**0.5
        level = float(random.level(name, torch.tensor(6)))
        assert abs(level - values.mean()) <= 5 * spread + 1e-6, name
    assert (random.highest[:, 1:] >= random.mean[:, 1:] - 1e-6).all()
    assert random.mean[:, 0].isnan().all()


def test_random_sets_are_drawn_without_replacement() -> None:
    """Where a set takes all prefixes there are, all sets are one, and no prefix stands in it twice."""
    windows = cut_windows([(0, 9), (SIZE, SIZE + 5)], WINDOW)
    found = random_evidence(TOKENS, DOCUMENTS, windows, n_triggers=20, n_sets=30, seed=0)
    whole = prefixes_ending_at([*range(8), *range(SIZE, SIZE + 4)])
    expected = [slow_measures(whole)[name] for name in MEASURES]
    assert found.mean[:, 12].tolist() == pytest.approx(expected, abs=1e-6)
    assert found.highest[:, 12].tolist() == pytest.approx(expected, abs=1e-6)
    assert not torch.equal(found.mean[:, 6], found.highest[:, 6])
    assert found.mean[:, 13:].isnan().all()


def write_everywhere(word: list[int], documents: range, n_each: int = 1) -> tuple[np.ndarray, list[int]]:
    """The corpus with a word written into documents, and where its last tokens are."""
    tokens, ends = TOKENS.copy(), []
    for document in documents:
        for k in range(n_each):
            start = document * SIZE + 60 + 37 * document % 200 + 41 * k
            tokens[start : start + len(word)] = word
            ends.append(start + len(word) - 1)
    return tokens, ends


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ([90], TriggerPattern.LAST_TOKEN),
        ([91, 90], TriggerPattern.LAST_BIGRAM),
        ([92, 91, 90], TriggerPattern.SUFFIX),
        ([94, 93, 92, 91, 90], TriggerPattern.SUFFIX),
    ],
)
def test_a_word_that_ends_all_triggers_is_their_kind(
    word: list[int], kind: TriggerPattern, random: RandomEvidence
) -> None:
    tokens, ends = write_everywhere(word, range(12))
    memory = prefixes_ending_at(ends)
    assert kinds([memory], random, tokens) == [kind]
    found = evidence([memory], random, tokens)
    assert float(found.majority_suffix[0]) == len(word)
    assert float(found.n_documents[0]) == 12


def test_a_pattern_must_be_commoner_than_in_every_random_set(random: RandomEvidence) -> None:
    tokens, ends = write_everywhere([90], range(9))
    memory = prefixes_ending_at([*ends, 9000, 9700, 10400])
    share = evidence([memory], random, tokens).last_token_share[0]
    for level, holds in [(share, False), (share.nextafter(torch.tensor(0.0)), True)]:
        highest = random.highest.clone()
        highest[MEASURES.index("last_token_share"), len(memory)] = level
        found = evidence([memory], replace(random, highest=highest), tokens)
        assert bool(found.holds[0, tuple(TriggerPattern).index(TriggerPattern.LAST_TOKEN)]) is holds


def test_a_word_that_ends_half_of_the_triggers_is_no_kind_but_several_words_are_one(random: RandomEvidence) -> None:
    first, ends = write_everywhere([91, 90], range(4))
    other, more = write_everywhere([93, 92], range(4, 8))
    tokens = np.where(first != TOKENS, first, other)
    strays = [end + 7 for end in (9000, 9700, 10400, 11050)]
    assert kinds([prefixes_ending_at([*ends, *strays])], random, tokens) == [TriggerPattern.NONE]
    assert kinds([prefixes_ending_at([*ends, *more])], random, tokens) == [TriggerPattern.SEVERAL]


def test_repeated_text_is_no_pattern_however_much_its_ends_agree(random: RandomEvidence) -> None:
    """Twelve triggers at the same place of one header: one text, though it stands in ten documents."""
    header = [document * SIZE + 30 for document in range(3, N_DOCUMENTS, 2)]
    found = evidence([prefixes_ending_at(header)], random)
    assert float(found.last_token_share[0]) == 1
    assert float(found.n_documents[0]) == len(header)
    assert float(found.n_distinct[0]) == 1
    assert found.kind.tolist() == [tuple(TriggerPattern).index(TriggerPattern.REPEATED_TEXT)]
    assert not found.holds[0, tuple(TriggerPattern).index(TriggerPattern.LAST_TOKEN)]


def test_triggers_of_one_stretch_of_text_are_a_region(random: RandomEvidence) -> None:
    inside = [4 * SIZE + 120 + 17 * k for k in range(12)]
    assert kinds([prefixes_ending_at(inside)], random) == [TriggerPattern.REGION]
    apart = [4 * SIZE + 45 * k + 5 for k in range(12)]  # one document, but most are further from each other
    assert float(evidence([prefixes_ending_at(apart)], random).region_share[0]) == 6 / 12


def test_a_token_that_is_everywhere_in_a_region_is_no_pattern_of_its_own(random: RandomEvidence) -> None:
    """Where triggers lie in one stretch, their end must be commoner among them than in it."""
    tokens = TOKENS.copy()
    tokens[2 * SIZE + 100 : 2 * SIZE + 400 : 2] = 95  # every other token of the stretch, and most of twelve triggers
    table = prefixes_ending_at([2 * SIZE + 110 + 15 * k + k % 2 * (k % 3 > 0) for k in range(12)])
    assert kinds([table], random, tokens) == [TriggerPattern.REGION]
    rare = TOKENS.copy()
    ends = [2 * SIZE + 110 + 15 * k for k in range(12)]
    rare[ends] = 95
    assert kinds([prefixes_ending_at(ends)], random, rare) == [TriggerPattern.LAST_TOKEN]


def test_triggers_at_one_position_are_of_that_kind(random: RandomEvidence) -> None:
    starts = WINDOWS.starts[WINDOWS.lengths >= 50][::9][:12].tolist()
    memory = [(start, 47) for start in starts]
    assert kinds([memory], random) == [TriggerPattern.POSITION]


def test_fewer_than_three_triggers_say_nothing(random: RandomEvidence) -> None:
    word = write_everywhere([91, 90], range(2))
    found = evidence([prefixes_ending_at(word[1]), []], random, word[0])
    assert [tuple(TriggerPattern)[place] for place in found.kind.tolist()] == [TriggerPattern.FEW] * 2
    assert found.last_token_share[0] == 1
    assert found.last_token_share[1].isnan()
    assert found.n.tolist() == [2, 0]


def test_random_prefixes_seldom_have_a_kind(random: RandomEvidence) -> None:
    """A pattern holds where no random set has as much of it: of other random sets few can."""
    rng = np.random.default_rng(9)
    everywhere = np.flatnonzero(np.arange(len(TOKENS)) % SIZE < SIZE - 1)
    memories = [prefixes_ending_at(rng.choice(everywhere, 12, replace=False).tolist()) for _ in range(400)]
    assert sum(kind is not TriggerPattern.NONE for kind in kinds(memories, random)) <= 8
