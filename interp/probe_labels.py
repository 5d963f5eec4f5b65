"""What a linear probe is asked for: a label of every position, computed from the tokens that the model is fed.

A label function takes rows of tokens and the run they are fed to, and gives one label per position: whole numbers are
classes (-1: none, the position is left out), other numbers are predicted as such (NaN: none). The four here see only
the row, as the model does: what stood before it is unknown to both. Code is read as text: brackets and blanks count
wherever they stand, in strings and comments too, and nothing is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from model.errors import UnknownNameError, closest

if TYPE_CHECKING:
    from model.lab import Lab

Labels = Int[Tensor, "window pos"] | Float[Tensor, "window pos"]
LabelFunction = Callable[[Int[Tensor, "window pos"], "Lab"], Labels]
"""labels(tokens, lab): whole numbers are classes, -1 none; others are numbers, NaN none."""

N_BINS = 8
"""Parts that a window is cut into to ask for the position."""
DEEPEST_BRACKET, DEEPEST_INDENT = 3, 4
"""The last class of either depth holds all that is deeper."""
INDENT, TAB = 4, 8
"""Columns of one level of indentation, and of a tab."""
_OPENING, _CLOSING, _BLANKS, _NEWLINE = b"([{", b")]}", b" \t\r\f", ord("\n")


class Types(Enum):
    """What gets one random label for good in the control task (Hewitt and Liang 2019)."""

    TOKEN = "token"
    """Every token of the vocabulary, wherever it stands: the literature's control."""
    POSITION = "position"
    """Every position of the window, whatever stands there: for a label that only depends on the position."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One thing to ask every position for."""

    name: str
    meaning: str
    """What is asked for, in words that follow "the"."""
    labels: LabelFunction
    types: Types = Types.TOKEN
    """What the control task goes by."""
    n_commonest: int | None = None
    """Keep only positions with one of so many labels, the commonest in the training part; None keeps all."""
    spelled: Callable[[int, Lab], str] = lambda label, _: str(label)
    """A class in words."""
    needs_text: bool = False
    """Whether it means nothing where a run has no text."""


def position(tokens: Int[Tensor, "window pos"], lab: Lab) -> Int[Tensor, "window pos"]:
    """Which eighth of the window a token stands in, BOS not counted."""
    start = int((tokens[:, 0] == lab.tokenizer.bos).all()) if lab.tokenizer.bos is not None else 0
    place = torch.arange(tokens.shape[1]) - start
    bins = torch.div(place * N_BINS, tokens.shape[1] - start, rounding_mode="floor")
    return torch.where(place >= 0, bins, -1).expand(tokens.shape).clone()


def previous_token(tokens: Int[Tensor, "window pos"], lab: Lab) -> Int[Tensor, "window pos"]:
    """The id of the token before; none at the first token of the text and at BOS."""
    labels = torch.full_like(tokens, -1)
    labels[:, 1:] = tokens[:, :-1]
    if lab.tokenizer.bos is not None:
        labels[(labels == lab.tokenizer.bos) | (tokens == lab.tokenizer.bos)] = -1
    return labels


def bracket_depth(tokens: Int[Tensor, "window pos"], lab: Lab) -> Int[Tensor, "window pos"]:
    """How many brackets of ([{ are open behind a token; those opened before the window are not counted."""
    return _by_row(tokens, lab, brackets_open)


def indentation_depth(tokens: Int[Tensor, "window pos"], lab: Lab) -> Int[Tensor, "window pos"]:
    """How deep the line of a token is indented, in levels of four columns.

    Known from the line's first character that is no blank up to its line break, in lines that begin in the window.
    """
    return _by_row(tokens, lab, line_indents)


def brackets_open(row: Sequence[bytes]) -> list[int]:
    """Open brackets behind each token, 3 for more; -1 for tokens that stand for no text.

    >>> brackets_open([b"", b"f", b"(", b"[1", b"])", b")"])
    [-1, 0, 1, 2, 0, 0]
    """
    depth, found = 0, []
    for raw in row:
        for byte in raw:
            depth = max(0, depth + (byte in _OPENING) - (byte in _CLOSING))
        found.append(min(depth, DEEPEST_BRACKET) if raw else -1)
    return found


def line_indents(row: Sequence[bytes]) -> list[int]:
    r"""The level of the line in which each token ends, 4 for more; a line break belongs to the line that it ends.

    >>> line_indents([b"x", b"\n", b"    ", b"if", b"\n", b"\n", b"\t", b"y"])
    [-1, -1, -1, 1, 1, -1, -1, 2]
    """
    columns, begun, known, found = 0, False, False, []
    for raw in row:
        label = -1
        for byte in raw:
            begun = begun or (byte not in _BLANKS and byte != _NEWLINE)
            if not begun and byte in b" \t":
                columns += 1 if byte == ord(" ") else TAB - columns % TAB
            label = min(columns // INDENT, DEEPEST_INDENT) if known and begun else -1
            if byte == _NEWLINE:
                columns, begun, known = 0, False, True
        found.append(label)
    return found


def _by_row(tokens: Tensor, lab: Lab, read: Callable[[Sequence[bytes]], list[int]]) -> Tensor:
    raw = lab.tokenizer.token_bytes
    return torch.tensor([read([raw[token] for token in row]) for row in tokens.tolist()])


def _depth(deepest: int) -> Callable[[int, Lab], str]:
    return lambda label, _: f"{label} or more" if label == deepest else str(label)


TASKS = MappingProxyType(
    {
        task.name: task
        for task in (
            Task(
                name="position",
                meaning=f"position (which of {N_BINS} equal parts of the window)",
                labels=position,
                types=Types.POSITION,
                spelled=lambda label, _: f"part {label + 1} of {N_BINS}",
            ),
            Task(
                name="previous-token",
                meaning="previous token",
                labels=previous_token,
                n_commonest=20,
                spelled=lambda label, lab: lab.str_tokens([label])[0],
            ),
            Task(
                name="bracket-depth",
                meaning="bracket depth (brackets opened in the window and not closed)",
                labels=bracket_depth,
                spelled=_depth(DEEPEST_BRACKET),
                needs_text=True,
            ),
            Task(
                name="indentation-depth",
                meaning=f"indentation depth of the line (levels of {INDENT} columns)",
                labels=indentation_depth,
                spelled=_depth(DEEPEST_INDENT),
                needs_text=True,
            ),
        )
    }
)
"""The tasks that have a name."""


def get_task(name: str) -> Task:
    """The task of this name; an unknown one is an error that lists them."""
    if name not in TASKS:
        raise UnknownNameError(f'There is no probe task "{name}".{closest(name, TASKS)} Tasks: {", ".join(TASKS)}.')
    return TASKS[name]
