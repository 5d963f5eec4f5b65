"""What sort of text a token is, by its bytes: enough to see whether a harm falls on names, numbers or punctuation."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.tokenizer import Tokenizer


class TokenKind(StrEnum):
    """What a token is made of."""

    WORD_START = "a word's start, with its space"
    """A space and then letters, as byte-pair tokens hold it."""

    LETTERS = "letters"
    """Letters and underscores only."""

    DIGITS = "digits"

    SPACE = "white space"
    """Spaces, tabs and line ends only."""

    PUNCTUATION = "punctuation"
    """Other printable ASCII signs, perhaps behind a space."""

    MIXED = "mixed signs"
    """Several of these."""

    OTHER = "other bytes"
    """Part of a letter beyond ASCII, or no text."""

    SPECIAL = "special"
    """Stands for no text, such as BOS."""


def kind_of_bytes(raw: bytes) -> TokenKind:
    r"""The kind of a token with these bytes.

    >>> [kind_of_bytes(raw).name for raw in (b" def", b"self", b"42", b"\n", b"):", b"x1", b"\xe9", b"")]
    ['WORD_START', 'LETTERS', 'DIGITS', 'SPACE', 'PUNCTUATION', 'MIXED', 'OTHER', 'SPECIAL']
    """
    if not raw:
        return TokenKind.SPECIAL
    if not raw.isascii() or not all(sign.isprintable() or sign.isspace() for sign in raw.decode("ascii")):
        return TokenKind.OTHER
    text = raw.decode("ascii")
    if text.isspace():
        return TokenKind.SPACE
    if _is_letters(text):
        return TokenKind.LETTERS
    if text.isdigit():
        return TokenKind.DIGITS
    if text[0] == " " and _is_letters(text[1:]):
        return TokenKind.WORD_START
    bare = text.strip()
    return TokenKind.MIXED if any(sign.isalnum() or sign.isspace() for sign in bare) else TokenKind.PUNCTUATION


def token_kinds(tokenizer: Tokenizer) -> Sequence[TokenKind]:
    """The kind of every token of a vocabulary, by id."""
    return [kind_of_bytes(raw) for raw in tokenizer.token_bytes]


def _is_letters(text: str) -> bool:
    return text.replace("_", "a").isalpha()
