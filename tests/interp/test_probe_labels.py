"""Labels of code are those that can be counted by hand, and the same whatever cuts the text into tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from interp.probe_labels import (
    TASKS,
    bracket_depth,
    brackets_open,
    get_task,
    indentation_depth,
    line_indents,
    position,
    previous_token,
)
from model.errors import UnknownNameError
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer

CODE = """x = 1
def f(a, b=[1]):
    if a:
\treturn {"(": g((a))}

    return ")"  # ((
é = [
"""


def lab_of(tokenizer: Tokenizer) -> SimpleNamespace:
    return SimpleNamespace(tokenizer=tokenizer, str_tokens=tokenizer.str_tokens)


def by_character(text: str, read) -> list[int]:
    return read([letter.encode() for letter in text])


def test_brackets_are_counted_wherever_they_stand_and_never_below_none() -> None:
    assert by_character("f(a[0], {1})", brackets_open) == [0, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 0]
    assert by_character(")(", brackets_open) == [0, 1]  # what was opened before the window is unknown to the model
    assert by_character("'(' # [", brackets_open) == [0, 1, 1, 1, 1, 1, 2]
    assert by_character("(((((", brackets_open) == [1, 2, 3, 3, 3]


def test_a_line_has_the_depth_of_its_first_character_that_is_no_blank_up_to_its_line_break() -> None:
    assert by_character("ab\n    cd e\n", line_indents) == [-1] * 7 + [1] * 5
    assert by_character("\nx\n  y\n        z", line_indents) == [-1, 0, 0, -1, -1, 0, 0] + [-1] * 8 + [2]
    assert by_character("\n    \nq", line_indents) == [-1] * 6 + [0]  # a blank line has no depth
    assert by_character("\n  \tq\n" + " " * 40 + "q", line_indents)[4:5] == [2]  # a tab goes on to column 8
    assert by_character("\n" + " " * 40 + "q", line_indents)[-1] == 4
    assert line_indents([b"a\n    if", b" x:\n", b"\n        y\n    "]) == [1, 1, -1]


@pytest.mark.parametrize("name", ["bracket-depth", "indentation-depth"])
def test_a_token_of_many_characters_has_the_label_of_its_last_one(name: str) -> None:
    labels = get_task(name).labels
    byte, bpe = ByteTokenizer(), BPETokenizer.train([CODE * 20], 290)
    in_bytes = labels(torch.tensor([byte.encode(CODE)]), lab_of(byte))[0]
    tokens = bpe.encode(CODE)
    in_tokens = labels(torch.tensor([tokens]), lab_of(bpe))[0]
    lengths = torch.tensor([len(bpe.token_bytes[token]) for token in tokens])
    assert len(tokens) < len(in_bytes) // 2
    assert torch.equal(in_tokens, in_bytes[lengths.cumsum(0) - 1])
    letters = CharTokenizer.train([CODE])
    in_letters = labels(torch.tensor([letters.encode(CODE)]), lab_of(letters))[0]
    assert torch.equal(in_letters, in_bytes[torch.tensor([len(x.encode()) for x in CODE]).cumsum(0) - 1])


def test_bos_has_no_label_and_is_no_previous_token() -> None:
    lab, bos = lab_of(ByteTokenizer()), 256
    tokens = torch.tensor([[bos, *b"a(b"], [bos, *b")\nc"]])
    assert bracket_depth(tokens, lab).tolist() == [[-1, 0, 1, 1], [-1, 0, 0, 0]]
    assert indentation_depth(tokens, lab).tolist() == [[-1] * 4, [-1, -1, -1, 0]]
    assert previous_token(tokens, lab).tolist() == [[-1, -1, *b"a("], [-1, -1, *b")\n"]]
    assert position(torch.full((1, 17), 7).index_fill(1, torch.tensor([0]), bos), lab).tolist() == [
        [-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    ]


def test_without_bos_every_token_has_a_position_and_the_second_a_previous_one() -> None:
    lab = lab_of(CharTokenizer("ab", has_bos=False))
    tokens = torch.tensor([[0, 1, 1, 0]])
    assert position(tokens, lab).tolist() == [[0, 2, 4, 6]]
    assert previous_token(tokens, lab).tolist() == [[-1, 0, 1, 1]]


def test_an_unknown_task_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match='no probe task "bracket".*Tasks: position, previous-token'):
        get_task("bracket")
    assert get_task("position") is TASKS["position"]
