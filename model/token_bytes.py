"""The bytes behind a token: how they are printed, and how byte-level vocabularies spell them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from model.errors import InputError

BOS_TEXT = "<bos>"
"""How BOS is printed; a token whose own text is `<bos>` is printed escaped."""
N_BYTES = 256


def printable(raw: bytes) -> str:
    r"""Bytes as a printable string from which they can be told again.

    >>> print(printable(b"a\n\\\xff"), printable("\u00e9".encode()))
    a\n\\\xff é
    """
    if raw == BOS_TEXT.encode():
        return "\\x3cbos>"
    return "".join(_printable_character(c) for c in raw.decode(errors="surrogateescape"))


def _printable_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def unprinted(text: str) -> bytes:
    r"""The bytes that `printable` printed so; BOS, which stands for none, gives none.

    What it never prints is taken as it is: a line end, or a backslash before a letter that is no escape.

    >>> unprinted(r"a\n\\\xff"), unprinted("\u00e9"), unprinted(r"\d+"), unprinted("<bos>")
    (b'a\n\\\xff', b'\xc3\xa9', b'\\d+', b'')
    """
    if text == BOS_TEXT:
        return b""
    raw = text.encode(errors="surrogateescape")
    return re.sub(rb"\\(?:[\\ntr]|x[0-9a-f]{2})", lambda found: _unescaped(found[0]), raw)


def _unescaped(escape: bytes) -> bytes:
    return bytes([int(escape[2:], 16)]) if escape[1:2] == b"x" else _BYTES[escape]


_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_BYTES = {escape.encode(): character.encode() for character, escape in _ESCAPES.items()}


def utf8(text: str) -> bytes:
    """The bytes of a text; half a surrogate pair, which has none, is an `InputError`."""
    try:
        return text.encode()
    except UnicodeEncodeError as fault:
        raise InputError(
            f"Half of a surrogate pair (U+{ord(text[fault.start]):04X}) stands alone at position {fault.start} of the "
            "text; read the text as UTF-8 again, or remove it."
        ) from None


@cache
def byte_letters() -> dict[str, int]:
    """The visible character that stands for each byte in a byte-level vocabulary, and the byte.

    The byte itself where it is a printable Latin-1 character, else a character from U+0100 on, in order (Radford et al.
    2019, `bytes_to_unicode`).
    """
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [value for value in range(N_BYTES) if value not in visible]
    return {chr(value): value for value in visible} | {chr(N_BYTES + i): value for i, value in enumerate(hidden)}


def bytes_of_vocabulary(vocabulary: Mapping[str, int]) -> list[bytes]:
    """The bytes of each token of a byte-level vocabulary, by id."""
    byte_of = byte_letters()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    return [bytes(byte_of[character] for character in token) for token in tokens]
