"""The search finds what a plain look at every string finds, no more and no less, and says why."""

from __future__ import annotations

import numpy as np
import pytest

from analyses.memories.index import MemoryIndex
from analyses.memories.matches import address_of
from analyses.memories.search import MemoryState, Query, found_rows, rows, search
from analyses.memories.text import in_tokens, in_triggers, needle_of, shown
from interp.pattern_kinds import TriggerPattern
from model.errors import ConfigError, InputError, UnknownNameError
from tests.analyses.memory_indexes import made_index, random_index

TOKENS = [
    b"a",
    b"A",
    b"b",
    b"ab",
    b" self",
    b"self",
    b"\n",
    b"\xc3",
    b"\xa9",
    b".*",
    b"[",
    b"\\",
    b"<b>",
    b"\x1b[31m",
    b"",
]
"""Overlapping ones, halves of a letter, and what means something to a terminal, a browser or a regular expression."""

HOSTILE = [
    "a", "A", "ab", "ba", "aba", "aab", "self", " self", "selfa", "\\n", "\n", "\n\n", "a\n", "\\xc3", "\\xa9", "é",
    ".*", "[", "[[", "\\", "\\\\", "\\d", "<b>", "</b>", "<bos>", "\x1b[31m", "\\x1b[31m", "(", "a" * 50, "\\x00", "ß",
    "%s", "{}",
]  # fmt: skip


def texts_of(index: MemoryIndex) -> dict[tuple[int, int], list[tuple[bytes, int]]]:
    """Per memory, the bytes of each stored context and where its last token begins: one by one, the slow way."""
    found: dict[tuple[int, int], list[tuple[bytes, int]]] = {}
    for (layer, memory), _ in np.ndenumerate(index.alive):
        contexts = []
        for tokens in index.array("reading.triggers.context")[layer, memory]:
            parts = [index.token_bytes[token] for token in tokens if token >= 0]
            contexts.append((b"".join(parts), sum(map(len, parts[:-1]))))
        found[layer, memory] = contexts
    return found


def every(hay: bytes, needle: bytes) -> list[int]:
    return [place for place in range(len(hay)) if hay[place : place + len(needle)] == needle] if needle else []


@pytest.mark.parametrize("seed", [0, 1])
def test_triggers_are_those_of_a_plain_look_at_every_context(seed: int) -> None:
    index = random_index(TOKENS, (2, 9), seed)
    slow, hits = texts_of(index), 0
    for text in HOSTILE:
        needle, folds = needle_of(text)
        found = in_triggers(index, text)
        for place, contexts in slow.items():
            folded = [(hay.lower() if folds else hay, last) for hay, last in contexts]
            holding = [(every(hay, needle), last) for hay, last in folded]
            ending = [any(begin + len(needle) > last for begin in begins) for begins, last in holding]
            told = int(found.n_triggers[place]), int(found.n_ending[place])
            assert told == (sum(bool(begins) for begins, _ in holding), sum(ending)), text
            hits += told[0]
    assert hits > 100


def test_promoted_tokens_are_those_of_a_plain_look_at_every_token() -> None:
    index = random_index(TOKENS, (2, 40), seed=5)
    for text in HOSTILE:
        found, met = in_tokens(index, "promoted", text), search(index, Query(promotes=text))
        hits = set(zip(met.layer.tolist(), met.memory.tolist(), strict=True))
        for place, _ in np.ndenumerate(index.alive):
            tokens = [index.token_bytes[token] for token in index.array("reading.values.promoted")[place]]
            assert found.place[place] == best_place(tokens, text), text
            assert (place in hits) == (found.place[place] >= 0)


def best_place(tokens: list[bytes], text: str) -> int:
    """The first token that is the text, else that is it but for capitals and white space around, else that holds it."""
    needle, folds = needle_of(text)
    folded = [raw.lower() if folds else raw for raw in tokens]
    holds = [needle in raw if needle else raw == b"" for raw in folded]
    same = [held and (raw == needle or (needle.strip() != b"" and raw.strip() == needle.strip()))
            for held, raw in zip(holds, folded, strict=True)]  # fmt: skip
    itself = [held and raw == needle for held, raw in zip(holds, tokens, strict=True)]
    return next((each.index(True) for each in (itself, same, holds) if any(each)), -1)


def test_a_text_is_found_over_several_tokens_but_not_over_two_contexts() -> None:
    context = np.array([[[[0, 2], [2, 0]], [[-1, 3], [-1, -1]]]])
    index = made_index(TOKENS, context, np.zeros((1, 2, 2)))
    assert in_triggers(index, "ab").n_triggers.tolist() == [[1, 1]]
    assert in_triggers(index, "bb").n_triggers.tolist() == [[0, 0]]  # the end of one and the beginning of the next
    assert in_triggers(index, "aa").n_triggers.tolist() == [[0, 0]]  # the end of a memory's and the next one's


def test_small_letters_find_capitals_and_capitals_find_themselves() -> None:
    context = np.array([[[[0]], [[1]]]])
    index = made_index(TOKENS, context, np.array([[[0], [1]]]))
    assert in_triggers(index, "a").n_triggers.tolist() == [[1, 1]]
    assert in_triggers(index, "A").n_triggers.tolist() == [[0, 1]]
    assert (in_tokens(index, "promoted", "A").place >= 0).tolist() == [[False, True]]


def test_the_token_itself_comes_before_tokens_that_hold_it_and_early_before_late() -> None:
    context = np.full((1, 4, 1, 2), 6)
    promoted = np.array([[[3, 6, 6], [6, 6, 0], [6, 0, 6], [6, 6, 6]]])  # holds it first; is it third, second, not
    index = made_index(TOKENS, context, promoted)
    found = search(index, Query(promotes="a"))
    assert found.memory.tolist() == [2, 1, 0]
    assert found.relevance.tolist() == [2 + 1 / 2, 2 + 1 / 3, 1]
    assert found.why(0) == 'promotes "a" (place 2)'


def test_the_token_itself_comes_before_the_same_with_a_space_or_a_capital() -> None:
    """Ranked at place 1, " self" is behind "self" at place 3, and before a token that only holds it."""
    tokens = [b"self", b" self", b"Self", b"selfish", b"x"]
    promoted = np.array([[[3, 4, 4], [1, 4, 4], [4, 2, 4], [4, 4, 0]]])
    index = made_index(tokens, np.full((1, 4, 1, 2), 4), promoted)
    assert search(index, Query(promotes="self")).memory.tolist() == [3, 1, 2, 0]
    assert search(index, Query(promotes="·self")).memory.tolist() == [1]
    assert search(index, Query(promotes="Self")).memory.tolist() == [2]


def test_what_is_printed_can_be_asked_for_again() -> None:
    tokens = [" ·".encode(), b"  x", "·".encode(), b"\n", b"\\", b"y"]
    index = made_index(tokens, np.full((1, 5, 1, 2), 5), np.arange(5).reshape(1, 5, 1))
    printed = [shown(row["promotes"][0]) for row in sorted(rows(index, Query()), key=lambda row: row["memory"])]
    assert printed == [r"·\xc2\xb7", "··x", r"\xc2\xb7", r"\n", r"\\"]
    for memory, text in enumerate(printed):
        assert search(index, Query(promotes=text)).memory[0] == memory, text
    for row in rows(index, Query()):  # as --json has them
        assert f"L0M{search(index, Query(promotes=row['promotes'][0])).memory[0]}" == row["memory"]


def test_more_triggers_and_their_ends_come_first() -> None:
    context = np.array([[[[4, 0], [2, 2]], [[0, 4], [2, 2]], [[0, 4], [4, 4]], [[2, 2], [2, 2]]]])
    index = made_index(TOKENS, context, np.full((1, 4, 2), 6))
    found = search(index, Query(trigger="self"))
    assert found.memory.tolist() == [2, 1, 0]
    assert found.why(0) == "in 2 of 2 triggers, up to the last token in 2"


def test_a_plain_text_is_looked_for_in_promoted_tokens_and_triggers() -> None:
    context = np.array([[[[0, 5]], [[0, 0]], [[0, 0]]]])
    index = made_index(TOKENS, context, np.array([[[6, 6], [6, 4], [6, 6]]]))
    found = search(index, Query(text="self"))
    assert sorted(found.memory.tolist()) == [0, 1]
    said = {int(memory): found.why(place) for place, memory in enumerate(found.memory)}
    assert said == {0: "in 1 of 1 triggers, up to the last token in 1", 1: 'promotes "·self" (place 2)'}


def test_everything_asked_has_to_be_met() -> None:
    index = random_index(TOKENS, (3, 30), seed=2)
    one, other = Query(promotes="a"), Query(trigger="b", layer=1)
    both = Query(promotes="a", trigger="b", layer=1)
    places = [
        set(zip(each.layer.tolist(), each.memory.tolist(), strict=True))
        for each in map(lambda query: search(index, query), (one, other, both))
    ]
    assert places[2] == places[0] & places[1]
    assert {layer for layer, _ in places[2]} == {1}
    assert 0 < len(places[2]) < min(len(places[0]), len(places[1]))


def test_an_empty_query_finds_every_memory_the_surest_first_and_the_silent_last() -> None:
    rates = np.full((2, 3), 0.2, dtype=np.float32)
    rates[1, 2] = 0.0
    index = made_index(TOKENS, np.zeros((2, 3, 1, 2)), np.zeros((2, 3, 2)), activity__firing_rate=rates)
    found = search(index, Query())
    assert list(zip(found.layer.tolist(), found.memory.tolist(), strict=True)) == [
        (1, 1),
        (1, 0),
        (0, 2),
        (0, 1),
        (0, 0),
        (1, 2),
    ]
    assert (found.why(0), found.notes) == ("", ())


def test_memories_are_found_by_state_pattern_and_concept() -> None:
    rates = np.array([[0.0, 0.9, 0.1]], dtype=np.float32)
    lowest = np.array([[0.0, -1.0, 0.0]], dtype=np.float32)
    kinds = list(TriggerPattern)
    kind = np.array(
        [[kinds.index(TriggerPattern.FEW), kinds.index(TriggerPattern.SUFFIX), kinds.index(TriggerPattern.LAST_TOKEN)]]
    )
    holds = np.zeros((1, 3, len(kinds)), dtype=bool)
    holds[0, 1, [kinds.index(TriggerPattern.SUFFIX), kinds.index(TriggerPattern.LAST_TOKEN)]] = True
    holds[0, 2, kinds.index(TriggerPattern.LAST_TOKEN)] = True
    index = made_index(
        TOKENS, np.zeros((1, 3, 1, 2)), np.zeros((1, 3, 2)),
        activity__firing_rate=rates, activity__largest=rates, activity__lowest=lowest,
        summary__evidence__kind=kind, summary__evidence__holds=holds,
        values__concept=np.array([[0, 2, 2]]), values__concept_covered=np.array([[30, 5, 9]]),
        values__concept_p=np.array([[0.01, 0.6, 0.001]]),
    )  # fmt: skip

    def found(**asked: object) -> list[int]:
        return search(index, Query(**asked)).memory.tolist()  # pyright: ignore[reportArgumentType]

    assert (found(state="dead"), found(state=MemoryState.DENSE), sorted(found(state="alive"))) == ([0], [1], [1, 2])
    assert found(pattern="last_token") == [2, 1]  # whose kind it is comes before those of which it holds as well
    assert [search(index, Query(pattern="last_token")).why(hit) for hit in (0, 1)] == ["", "last_token too"]
    assert found(pattern=TriggerPattern.FEW) == [0]
    assert (found(concept="digits"), found(concept="IMPORT"), found(concept="python")) == ([0], [2], [])
    assert search(index, Query(concept="import")).why(0) == "same stem import: 9 of its top tokens (p = 0.001)"


def test_an_address_finds_its_memory_and_says_where_there_is_none() -> None:
    index = random_index(TOKENS, (2, 9), seed=0)
    found = search(index, Query(text="L1M7"))
    assert (found.layer.tolist(), found.memory.tolist(), found.why(0)) == ([1], [7], "its address")
    assert (search(index, Query(text="l1m7")).memory.tolist(), address_of("L1M7:zero")) == ([7], None)
    for text in ("L1M7:zero", "L1.M7", "l1 m7", "L1M7,L0M2"):
        with pytest.raises(InputError, match="L1M7 looks that memory up"):
            search(index, Query(text=text))
    assert len(search(index, Query(text="in layer L1M7"))) == 0
    with pytest.raises(InputError, match="`cutaway ablate made@7 L1M7:zero --metric text_loss` intervenes on it"):
        search(index, Query(text="L1M7:zero"))
    with pytest.raises(InputError, match='"L1H3" names a head'):
        search(index, Query(text="L1H3"))
    assert len(search(index, Query(trigger="L1M7:zero"))) == 0
    with pytest.raises(UnknownNameError, match=r"made@7 has no memory L1M9: its layers run from 0 to 1, and in each"):
        search(index, Query(text="L1M9"))


def test_what_cannot_be_asked_is_said() -> None:
    index = random_index(TOKENS, (2, 9), seed=0)
    with pytest.raises(ConfigError, match=r'pattern="last_tokn" is not one of .*Did you mean "last_token"\?'):
        Query(pattern="last_tokn")
    with pytest.raises(ConfigError, match='state="asleep" is not one of alive, dead, dense'):
        Query(state="asleep")
    with pytest.raises(UnknownNameError, match="made@7 has no layer 2; its layers run from 0 to 1"):
        search(index, Query(layer=2))
    with pytest.raises(
        UnknownNameError, match=r'No concept of this vocabulary is called "digit5". Did you mean "digits"\?'
    ):
        search(index, Query(concept="digit5"))
    with pytest.raises(InputError, match="limit=0 shows nothing"):
        rows(index, Query(), limit=0)


def test_a_text_that_no_token_holds_is_explained() -> None:
    index = random_index([b"a", b"b"], (1, 3), seed=0)
    found = search(index, Query(promotes="import"))
    assert len(found) == 0
    assert found.notes == (
        'No token of this vocabulary holds "import": the longest has 1 byte. A text over several tokens is found in '
        "triggers only.",
    )
    assert search(index, Query(promotes="a")).notes == ()


def test_rows_can_be_printed_whatever_the_tokens_are() -> None:
    index = random_index(TOKENS, (2, 9), seed=1)
    found = search(index, Query())
    told = found_rows(index, found, limit=100)
    assert [row["memory"] for row in told[:2]] == [
        f"L{found.layer[0]}M{found.memory[0]}",
        f"L{found.layer[1]}M{found.memory[1]}",
    ]
    assert len(told) == 18
    for row in told:
        texts = [row["why"], row["trigger"], row["next"], *row["promotes"], *row["suppresses"]]
        assert all(text.isprintable() for text in texts)


def test_the_halves_of_a_letter_are_one_letter_in_the_text_of_a_trigger() -> None:
    index = made_index(TOKENS, np.array([[[[7, 8]]]]), np.array([[[7, 8]]]))
    row = rows(index, Query())[0]
    assert row["trigger"] == "é"
    assert row["promotes"] == ["\\xc3", "\\xa9"]
