"""Concepts are what the rules say, and a value has one no more often than chance allows."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interp.concept_kinds import FAMILIES, ConceptKind, concepts_of
from interp.token_concepts import (
    LEAST,
    LEVEL,
    ConceptTable,
    concept_coverage,
    concept_table,
    meaningful_share,
    upper_tail,
)

BYTES = [*(bytes([value]) for value in range(256)), b""]
VISIBLE = [letter.encode() for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!"]
WORDS = [
    f"{space}{stem}{ending}".encode()
    for space in ("", " ") for stem in ("import", "return", "class", "valu", "test", "read", "Path", "_n", "__x", "x")
    for ending in ("", "s", "ed", "ing", "er", "_of", "1")
]  # fmt: skip
VOCABULARIES = {"bytes": BYTES, "characters": VISIBLE, "words": [*BYTES, *dict.fromkeys(WORDS)]}


def table_of(name: str) -> ConceptTable:
    return concept_table(VOCABULARIES[name])


def random_tops(d_vocab: int, n: int, k: int, seed: int) -> torch.Tensor:
    return torch.rand(n, d_vocab, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)[:, :k]


@pytest.mark.parametrize(
    ("raw", "kinds"),
    [
        (b"    ", "WHITE_SPACE INDENTATION"), (b"\n", "WHITE_SPACE"), (b"\n\t", "WHITE_SPACE INDENTATION"),
        (b" 42", "DIGITS"), (b"([", "BRACKETS PUNCTUATION"), (b'"""', "QUOTES PUNCTUATION"),
        (b" ==", "OPERATORS PUNCTUATION"), (b"),", "PUNCTUATION"), (b"_", "PUNCTUATION"), (b"__", "PUNCTUATION DUNDER"),
        (b" return", "KEYWORDS WORD_START"), (b"None", "KEYWORDS CAPITALISED CONTINUATION"),
        (b" the", "WORD_START FUNCTION_WORDS"), (b" Path", "CAPITALISED WORD_START"),
        (b"HTTP", "UPPER_CASE CONTINUATION"), (b" MAX_N2", "UPPER_CASE SNAKE_CASE"), (b"a", "ONE_LETTER"),
        (b"A", "UPPER_CASE ONE_LETTER"), (b" a", "ONE_LETTER WORD_START FUNCTION_WORDS"), (b"_x", "PRIVATE"),
        (b"__init", "DUNDER"), (b"n_heads", "SNAKE_CASE"), (b" getName", "CAMEL_CASE WORD_START"),
        (b"\x00", "CONTROL"), (b"\x7f", "CONTROL"), (b"\xc3", "OTHER_BYTES"), ("é".encode(), "OTHER_BYTES"),
        (b"x1", ""), (b"", ""),
    ],
)  # fmt: skip
def test_a_token_belongs_to_the_classes_that_its_text_says(raw: bytes, kinds: str) -> None:
    classes = [kind for kind, _ in concepts_of(raw) if kind not in FAMILIES]
    assert {kind.name for kind in classes} == set(kinds.split())
    assert len(set(classes)) == len(classes)


def test_words_of_one_stem_beginning_or_ending_share_a_concept() -> None:
    families = [dict(concepts_of(raw)) for raw in (b" Imports", b"importing", b"importer", b" IMPORT")]
    assert {each[ConceptKind.SAME_STEM] for each in families} == {"import"}
    assert {each[ConceptKind.SAME_PREFIX] for each in families} == {"impo"}
    assert ConceptKind.SAME_PREFIX not in dict(concepts_of(b"with"))  # no longer than what is shared
    assert (
        dict(concepts_of(b" reading"))[ConceptKind.SAME_SUFFIX]
        == dict(concepts_of(b"Testing"))[ConceptKind.SAME_SUFFIX]
    )


@given(st.binary(max_size=12))
def test_any_bytes_have_concepts_each_once_and_families_of_letters_only(raw: bytes) -> None:
    found = concepts_of(raw)
    assert len(set(found)) == len(found)
    for kind, text in found:
        assert (text != "") == (kind in FAMILIES)
        assert text == text.lower()


def test_a_table_holds_the_concepts_of_at_least_four_tokens() -> None:
    for name, vocabulary in VOCABULARIES.items():
        counts = Counter(named for raw in vocabulary for named in concepts_of(raw))
        table = table_of(name)
        assert {(each.kind, each.text): each.n_tokens for each in table.concepts} == {
            named: n for named, n in counts.items() if n >= LEAST
        }
        for raw, row in zip(vocabulary, table.member.tolist(), strict=True):
            mine = {
                (table.concepts[place].kind, table.concepts[place].text) for place in row if place < len(table.concepts)
            }
            assert mine == {named for named in concepts_of(raw) if counts[named] >= LEAST}


@pytest.mark.parametrize(
    ("population", "marked", "drawn"), [(10, 4, 3), (64, 26, 30), (257, 128, 30), (20, 7, 20), (9, 9, 4), (30, 0, 5)]
)
def test_the_tail_is_that_of_counting_all_draws(population: int, marked: int, drawn: int) -> None:
    ways = [
        Fraction(math.comb(marked, x) * math.comb(population - marked, drawn - x), math.comb(population, drawn))
        for x in range(drawn + 1)
    ]
    exact = [float(sum(ways[x:])) for x in range(drawn + 1)]
    assert upper_tail(population, marked, drawn).tolist() == pytest.approx(exact, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_best_concept_is_that_of_a_plain_count(name: str) -> None:
    table, vocabulary = table_of(name), VOCABULARIES[name]
    tops = random_tops(len(vocabulary), 25, 30, seed=2)
    tops[3] = torch.arange(30) + (48 if name == "bytes" else 10)  # digits and signs, or letters
    found = concept_coverage(tops, table)
    assert (found.n_top, found.n_concepts) == (30, len(table.concepts))
    for row, top in enumerate(tops.tolist()):
        counts = Counter(named for token in top for named in concepts_of(vocabulary[token]))
        chances = {
            each: float(upper_tail(len(vocabulary), each.n_tokens, 30)[counts[each.kind, each.text]])
            for each in table.concepts if counts[each.kind, each.text] >= LEAST
        }  # fmt: skip
        best = table.concepts[int(found.concept[row])]
        assert chances[best] == min(chances.values())
        assert int(found.covered[row]) == counts[best.kind, best.text]
        assert float(found.p[row]) == pytest.approx(min(1.0, len(table.concepts) * chances[best]))
        assert float(found.base_rate[row]) == pytest.approx(best.n_tokens / len(vocabulary))


@pytest.mark.parametrize("name", VOCABULARIES)
def test_random_tokens_have_a_meaningful_concept_no_more_often_than_the_level(name: str) -> None:
    table = table_of(name)
    found = concept_coverage(random_tops(table.d_vocab, 4000, 30, seed=7), table)
    share = float(found.meaningful.double().mean())
    assert share <= LEVEL  # Bonferroni, and discrete: well below
    if name == "characters":
        assert found.covered.double().mean() > 12  # although every row holds four of some class


def test_planted_concepts_are_found_by_name() -> None:
    table = table_of("words")
    vocabulary = VOCABULARIES["words"]
    others = [token for token, raw in enumerate(vocabulary) if not concepts_of(raw)]
    digits = [token for token, raw in enumerate(vocabulary) if raw.isdigit()]
    imports = [token for token, raw in enumerate(vocabulary) if b"import" in raw and raw.strip().isalpha()]
    assert (len(digits), len(imports)) == (10, 10)
    tops = torch.tensor([(digits + others)[:12], (imports[:8] + others)[:12], (digits[:3] + others)[:12]])
    found = concept_coverage(tops, table)
    assert [str(table.concepts[place]) for place in found.concept[:2].tolist()] == ["digits", "same stem import"]
    assert found.covered[:2].tolist() == [10, 8]
    assert found.meaningful.tolist() == [True, True, False]
    assert (int(found.concept[2]), float(found.p[2])) == (-1, 1.0)  # three of a kind are no concept
    assert found.base_rate[2].isnan()


def test_half_of_a_vocabulary_is_a_concept_only_where_it_fills_the_top() -> None:
    table = concept_table([b"%d" % number for number in range(50)] + [b"" for _ in range(50)])
    (digits,) = table.concepts
    assert digits.n_tokens == 50
    tops = torch.stack([torch.arange(30), torch.cat([torch.arange(18), 50 + torch.arange(12)])])
    found = concept_coverage(tops, table)
    assert found.covered.tolist() == [30, 18]
    assert found.base_rate.tolist() == [0.5, 0.5]
    assert found.meaningful.tolist() == [True, False]


def test_where_the_top_is_the_whole_vocabulary_nothing_is_meaningful() -> None:
    table = concept_table(VISIBLE[-20:])
    found = concept_coverage(random_tops(20, 5, 20, seed=0), table)
    assert found.n_top == 20
    assert not found.meaningful.any()
    assert (found.p == 1).all()


def test_vocabularies_without_concepts_and_no_values_at_all_are_said_to_have_none() -> None:
    bare = concept_coverage(random_tops(9, 3, 9, seed=0), concept_table([b"" for _ in range(9)]))
    assert (bare.n_concepts, bare.concept.tolist(), bare.p.tolist()) == (0, [-1] * 3, [1.0] * 3)
    nothing = concept_coverage(torch.zeros(0, 30, dtype=torch.int64), table_of("bytes"))
    assert len(nothing.concept) == len(nothing.p) == 0


def test_the_share_of_values_is_held_against_that_of_directions() -> None:
    values, directions = torch.tensor([True] * 6 + [False] * 4), torch.tensor([True] + [False] * 9)
    found = meaningful_share(values, directions)
    assert found.share is not None
    assert found.random is not None
    assert (found.n, found.share.mean, found.n_random, found.random.mean) == (10, 0.6, 10, 0.1)
    assert found.lift == pytest.approx(6)
    exact = sum(math.comb(10, x) * math.comb(10, 7 - x) for x in (6, 7)) / math.comb(20, 7)
    assert found.p == pytest.approx(exact)
    same = meaningful_share(directions, directions)
    assert same.p > 0.5
    lonely = meaningful_share(values[:0], ~directions[1:])
    assert (lonely.share, lonely.lift) == (None, None)
    none = meaningful_share(values[:5], torch.zeros(5, dtype=torch.bool))
    assert none.lift is None
    assert none.random is not None
    assert none.random.high == pytest.approx(1 - 0.025 ** (1 / 5))  # none of five is no evidence of none
