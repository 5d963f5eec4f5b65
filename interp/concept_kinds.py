"""Which concepts a token belongs to, by rules on its text: what stands in for the people of Geva et al. 2022.

Their annotators looked at the tokens that a value promotes most and named what at least four of them have in common
(arXiv 2203.14680, section 4). Here every name that may be given is fixed beforehand, and a token's text alone decides,
so that the same rules can be applied to random directions. Two sorts:

* classes, one concept each: digits, brackets, Python keywords, English function words ...
* families, one concept for each text that tokens share: their first letters, their last letters, their stem.

A token may belong to several concepts or to none. Texts are compared without the spaces around them, families without
case as well. What the rules cannot see is meaning: "king" and "queen" share no concept here, so a share of values with
a concept is a lower bound of what people would name, and some of it is spelling that they would not.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum


class ConceptKind(StrEnum):
    """What tokens may have in common."""

    WHITE_SPACE = "white space"
    """Spaces, tabs and line ends only."""

    INDENTATION = "indentation"
    """White space of at least two signs, the last a space or a tab: the room before a line of code."""

    DIGITS = "digits"
    """Digits only."""

    BRACKETS = "brackets"
    """Only signs of ()[]{}."""

    QUOTES = "quotes"
    """Only quotation marks: " ' `."""

    OPERATORS = "operators"
    """Only signs of + - * / % = < > ! & | ^ ~ @ :."""

    PUNCTUATION = "punctuation"
    """Only printable ASCII signs that are neither letter, digit nor space: those above are among them."""

    KEYWORDS = "Python keywords"
    """Reserved or soft keywords of Python."""

    FUNCTION_WORDS = "function words"
    """English articles, pronouns, prepositions, conjunctions and auxiliary verbs."""

    CAPITALISED = "capitalised"
    """A capital, then small letters."""

    UPPER_CASE = "upper case"
    """Capitals only, perhaps with digits and underscores: constants, or single capitals."""

    ONE_LETTER = "single letters"
    """One ASCII letter."""

    PRIVATE = "private names"
    """One underscore and then a letter."""

    DUNDER = "double underscores"
    """Begins with two underscores."""

    SNAKE_CASE = "snake case"
    """An underscore between letters or digits."""

    CAMEL_CASE = "camel case"
    """A capital behind a small letter."""

    WORD_START = "word starts"
    """One space and then letters, as byte-pair tokens begin a word."""

    CONTINUATION = "word parts"
    """Two or more letters without a space before them."""

    CONTROL = "control bytes"
    """ASCII signs that are neither printable nor white space."""

    OTHER_BYTES = "beyond ASCII"
    """Text or bytes beyond ASCII."""

    SAME_STEM = "same stem"
    """Words that are the same without case and English endings (-s, -ed, -ing ...): one concept for each stem."""

    SAME_PREFIX = "same beginning"
    """Words of five or more letters that share the first four: one concept for each beginning."""

    SAME_SUFFIX = "same ending"
    """Words of five or more letters that share the last three: one concept for each ending."""


Named = tuple[ConceptKind, str]
"""A concept: its kind, and the text that its tokens share ("" for a class)."""

FAMILIES = frozenset({ConceptKind.SAME_STEM, ConceptKind.SAME_PREFIX, ConceptKind.SAME_SUFFIX})
"""Kinds with a concept for each text."""

_FUNCTION_WORDS = """
    a about above across after again against all along although always am among an and another any are around as
    at away be because been before behind being below between both but by can could did do does doing down
    during each either enough ever every few for from further had has have having he her here hers him his how
    however i if in into is it its itself just least less many may me might mine more most much must my myself
    neither never no nor not now of off often on once one only onto or other our ours out over own per rather
    same shall she should since so some somehow such than that the their theirs them then there therefore these
    they this those though through thus to too toward under until up upon us very was we were what when where
    whether which while who whole whom whose why will with within without would yet you your yours
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words that are grammar rather than content."""

_ENDINGS = ("ations", "ation", "ings", "ing", "ers", "ies", "ion", "ed", "er", "es", "ly", "s", "e")


def concepts_of(raw: bytes) -> tuple[Named, ...]:
    r"""The concepts of a token with these bytes; none for a token that stands for no text.

    >>> [kind.name for kind, _ in concepts_of(b" __is_on")]
    ['DUNDER', 'SNAKE_CASE']
    >>> [(kind.name, text) for kind, text in concepts_of(b" imports")][1:]
    [('SAME_STEM', 'import'), ('SAME_PREFIX', 'impo'), ('SAME_SUFFIX', 'rts')]
    >>> [kind.name for kind, _ in concepts_of(b"\n    ")], [kind.name for kind, _ in concepts_of(b")")]
    (['WHITE_SPACE', 'INDENTATION'], ['BRACKETS', 'PUNCTUATION'])
    """
    if not raw:
        return ()
    if not raw.isascii():
        return ((ConceptKind.OTHER_BYTES, ""),)
    text = raw.decode("ascii")
    return (*((kind, "") for kind in _classes(text)), *_families(text.strip(_SPACES)))


def _classes(text: str) -> Iterator[ConceptKind]:
    bare = text.strip(_SPACES)
    if not bare:
        yield ConceptKind.WHITE_SPACE
        if len(text) > 1 and text[-1] in " \t":
            yield ConceptKind.INDENTATION
    elif not bare.isprintable():
        yield ConceptKind.CONTROL
    else:
        yield from (kind for kind, holds in _RULES.items() if holds(bare))
        if bare.isalpha():
            yield from _words(text, bare)


def _words(text: str, bare: str) -> Iterator[ConceptKind]:
    """What letters are by the space before them."""
    if text == f" {bare}":
        yield ConceptKind.WORD_START
    elif len(bare) > 1 and text[0] not in _SPACES:
        yield ConceptKind.CONTINUATION
    if bare.lower() in FUNCTION_WORDS and len(text) > 1:  # one byte "a" is a letter, not an article
        yield ConceptKind.FUNCTION_WORDS


def _only(signs: str) -> Callable[[str], bool]:
    return lambda bare: set(signs).issuperset(bare)


def _is_name(bare: str) -> bool:
    return bare.replace("_", "").isalnum() and not bare.isdigit()


_SPACES = " \t\n\r\f\v"
_RULES: Mapping[ConceptKind, Callable[[str], bool]] = {
    ConceptKind.DIGITS: str.isdigit,
    ConceptKind.BRACKETS: _only("()[]{}"),
    ConceptKind.QUOTES: _only("\"'`"),
    ConceptKind.OPERATORS: _only("+-*/%=<>!&|^~@:"),
    ConceptKind.PUNCTUATION: lambda bare: not any(sign.isalnum() or sign in _SPACES for sign in bare),
    ConceptKind.KEYWORDS: lambda bare: bare != "_" and (keyword.iskeyword(bare) or keyword.issoftkeyword(bare)),
    ConceptKind.CAPITALISED: lambda bare: bare.isalpha() and bare[0].isupper() and bare[1:].islower(),
    ConceptKind.UPPER_CASE: lambda bare: _is_name(bare) and bare.isupper(),
    ConceptKind.ONE_LETTER: lambda bare: len(bare) == 1 and bare.isalpha(),
    ConceptKind.PRIVATE: lambda bare: bare[0] == "_" and bare[1:2].isalpha(),
    ConceptKind.DUNDER: lambda bare: bare.startswith("__"),
    ConceptKind.SNAKE_CASE: lambda bare: _is_name(bare) and "_" in bare.strip("_"),
    ConceptKind.CAMEL_CASE: lambda bare: _is_name(bare) and re.search("[a-z][A-Z]", bare) is not None,
}
"""What has to hold of a printable text without the space around it."""


def _families(bare: str) -> Iterator[Named]:
    word = bare.lower()
    if not word.isalpha() or len(word) < 3:
        return
    yield ConceptKind.SAME_STEM, stem(word)
    if len(word) >= 5:
        yield ConceptKind.SAME_PREFIX, word[:4]
        yield ConceptKind.SAME_SUFFIX, word[-3:]


def stem(word: str) -> str:
    """A word in small letters without a common English ending, as long as three letters are left.

    >>> stem("imports"), stem("importing"), stem("imported"), stem("is"), stem("used")
    ('import', 'import', 'import', 'is', 'used')
    """
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
