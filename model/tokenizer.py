"""Text to token ids and back: bytes, characters, byte-level BPE, and what other programs' models bring along.

Every tokenizer is a table giving the bytes of each token, and a rule that cuts a text into tokens. The
beginning-of-sequence token (BOS), the last id of those made here, stands for no bytes, no text can produce it, and
`encode` never adds it, so that who puts it where is visible in the calling code. Decoding the encoding of a text gives
the text back, exactly.

Byte-level BPE: Sennrich et al. 2016 over bytes as in GPT-2 (Radford et al. 2019), trained by the `tokenizers` library.
"""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Integer
from numpy.typing import NDArray
from torch import Tensor

from model.errors import CheckpointError, InputError
from model.files import read_json, write_json
from model.token_bytes import BOS_TEXT, N_BYTES, bytes_of_vocabulary, printable, utf8

FORMAT = 1
VISIBLE = string.ascii_letters + string.digits + string.punctuation
"""The 94 visible characters of ASCII, as `CharTokenizer.visible` takes them."""
Tokens = Sequence[int] | Integer[np.ndarray, "..."] | Integer[Tensor, "..."]
"""Token ids: any sequence of numbers, an array, or a tensor of any shape."""


class Tokenizer(ABC):
    """What every tokenizer can do; subclasses say how a text is cut and how they are stored."""

    kind: ClassVar[str]
    """The name in tokenizer.json."""

    def __init__(self, token_bytes: Iterable[bytes], bos: int | None) -> None:
        self.token_bytes: tuple[bytes, ...] = tuple(token_bytes)
        """The bytes each id stands for; BOS stands for none."""
        self.bos = bos
        """Id of the beginning-of-sequence token; None where a tokenizer has none."""

    @property
    def d_vocab(self) -> int:
        """Number of ids, BOS included."""
        return len(self.token_bytes)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without BOS; a character that has no id is an `InputError`."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Plain data from which `load_tokenizer` builds this tokenizer again."""

    def decode(self, tokens: Tokens) -> str:
        """The text of `tokens`; BOS shows as nothing, bytes that are no text as the replacement character."""
        return b"".join(self.token_bytes[token] for token in self._ids(tokens)).decode(errors="replace")

    def str_tokens(self, tokens: Tokens) -> list[str]:
        r"""One printable string per token, never two alike for different bytes.

        A newline is `\n`, a backslash two of them, a byte that is no text `\xNN`, BOS `<bos>`.
        """
        return [self._strings[token] for token in self._ids(tokens)]

    def n_bytes(self, tokens: Tokens) -> int:
        """How many bytes of text `tokens` stand for: what turns nats per token into bits per byte."""
        return int(self._lengths[self._ids(tokens)].sum())

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON."""
        sizes = {"d_vocab": self.d_vocab, "bos": self.bos}
        write_json(path, {"format": FORMAT, "kind": self.kind, **sizes, **self.state()})

    @cached_property
    def _strings(self) -> tuple[str, ...]:
        return tuple(BOS_TEXT if token == self.bos else printable(raw) for token, raw in enumerate(self.token_bytes))

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        return np.array([len(raw) for raw in self.token_bytes], dtype=np.int64)

    def _ids(self, tokens: Tokens) -> NDArray[np.int64]:
        """`tokens` as a flat array of ids that exist."""
        values = tokens.detach().cpu().numpy() if isinstance(tokens, Tensor) else tokens
        values = values if isinstance(values, np.ndarray) else np.array(values, dtype=np.int64)
        ids = values.reshape(-1).astype(np.int64)
        unknown = ids[(ids < 0) | (ids >= self.d_vocab)]
        if unknown.size:
            raise InputError(
                f"There is no token {unknown[0]}: ids run from 0 to {self.d_vocab - 1} in this {self.kind} tokenizer. "
                "Use tokens that it made itself."
            )
        return ids


class ByteTokenizer(Tokenizer):
    """One token per byte of UTF-8: nothing to train, nothing unknown.

    >>> tokenizer = ByteTokenizer()
    >>> tokenizer.encode("né"), tokenizer.d_vocab, tokenizer.bos
    ([110, 195, 169], 257, 256)
    """

    kind = "bytes"

    def __init__(self) -> None:
        super().__init__([*(bytes([value]) for value in range(N_BYTES)), b""], bos=N_BYTES)

    def encode(self, text: str) -> list[int]:
        """The bytes of `text`."""
        return list(utf8(text))

    def state(self) -> dict[str, Any]:
        """Nothing: all byte tokenizers are the same."""
        return {}


class CharTokenizer(Tokenizer):
    """One token per character of the text it was made from.

    >>> CharTokenizer.train("banana").encode("nab")
    [2, 0, 1]
    """

    kind = "chars"

    def __init__(self, characters: str, *, has_bos: bool = True) -> None:
        self.characters = characters
        """Every character that has an id, in the order of the ids; BOS, where there is one, follows them."""
        self._id_of = {character: token for token, character in enumerate(characters)}
        token_bytes = [utf8(character) for character in characters]
        super().__init__([*token_bytes, b""] if has_bos else token_bytes, bos=len(characters) if has_bos else None)

    @classmethod
    def train(cls, text: str | Iterable[str]) -> CharTokenizer:
        """A tokenizer of the characters that occur in `text`, by code point."""
        characters = "".join(sorted(set().union(*_texts(text))))
        if not characters:
            raise InputError("A character tokenizer cannot be made from an empty text; give it text, or use bytes.")
        return cls(characters)

    @classmethod
    def visible(cls, d_vocab: int) -> CharTokenizer:
        """A tokenizer of `d_vocab` ids, BOS included, made from no text: letters, then digits, then punctuation.

        >>> CharTokenizer.visible(64).characters[-3:]
        '89!'
        """
        if not 2 < d_vocab <= len(VISIBLE) + 1:
            raise InputError(
                f"A vocabulary of {d_vocab} visible characters and BOS cannot be made; ask for 3 to {len(VISIBLE) + 1}."
            )
        return cls(VISIBLE[: d_vocab - 1])

    def encode(self, text: str) -> list[int]:
        """One id per character; a character not seen in training is an `InputError`."""
        try:
            return [self._id_of[character] for character in text]
        except KeyError as unknown:
            character, position = unknown.args[0], text.index(unknown.args[0])
            raise InputError(
                f"The character {character!r} (U+{ord(character):04X}, position {position}) is none of the "
                f"{len(self.characters)} that this tokenizer was made from; leave it out, or train with bytes."
            ) from None

    def state(self) -> dict[str, Any]:
        """The characters."""
        return {"characters": self.characters}


class BPETokenizer(Tokenizer):
    """Byte-level BPE: frequent byte sequences are one token, and every text has an encoding."""

    kind = "bpe"

    def __init__(self, definition: str) -> None:
        from tokenizers import Tokenizer as Backend

        self.definition = definition
        """The tokenizer in the `tokenizers` library's own JSON."""
        self._backend = Backend.from_str(definition)
        token_bytes = bytes_of_vocabulary(self._backend.get_vocab())
        super().__init__([*token_bytes, b""], bos=len(token_bytes))

    @classmethod
    def train(cls, text: str | Iterable[str], d_vocab: int) -> BPETokenizer:
        """Learn merges from `text` until there are `d_vocab` tokens, BOS among them."""
        from tokenizers import Tokenizer as Backend
        from tokenizers import models, pre_tokenizers, trainers

        if d_vocab <= N_BYTES:
            raise InputError(
                f"A byte-level BPE of {d_vocab} tokens cannot hold 256 bytes and BOS; ask for at least {N_BYTES + 1}."
            )
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=d_vocab - 1, initial_alphabet=alphabet, show_progress=False)
        backend.train_from_iterator(_texts(text), trainer)
        if backend.get_vocab_size() < d_vocab - 1:
            raise InputError(
                f"The text is too short for a BPE of {d_vocab} tokens: it yields {backend.get_vocab_size() + 1}. "
                f"Ask for at most that many, or give more text."
            )
        return cls(backend.to_str())

    def encode(self, text: str) -> list[int]:
        """The ids of `text` after all merges."""
        utf8(text)
        # The batch call is the one that does not also compute character offsets: half the time.
        return self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def state(self) -> dict[str, Any]:
        """The library's own definition, as text."""
        return {"definition": self.definition}


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer that `save` wrote; a file that holds none is a `CheckpointError`."""
    saved = read_json(path, CheckpointError)
    try:
        tokenizer = _BUILDERS[saved["kind"]](saved)
        if (tokenizer.d_vocab, tokenizer.bos) == (saved["d_vocab"], saved["bos"]):
            return tokenizer
    except Exception:  # the library that reads a BPE raises nothing more special
        pass
    raise CheckpointError(
        f"{path} describes no tokenizer that this version can read ({', '.join(_BUILDERS)}); it is damaged or newer."
    )


def _imported(saved: dict[str, Any]) -> Tokenizer:
    from model.imported_tokenizer import ImportedTokenizer

    return ImportedTokenizer(
        saved["definition"], d_vocab=saved["d_vocab"], bos=saved["bos"], declared=saved.get("declared")
    )


_BUILDERS: dict[str, Callable[[dict[str, Any]], Tokenizer]] = {
    ByteTokenizer.kind: lambda saved: ByteTokenizer(),
    CharTokenizer.kind: lambda saved: CharTokenizer(saved["characters"], has_bos=saved["bos"] is not None),
    BPETokenizer.kind: lambda saved: BPETokenizer(saved["definition"]),
    "imported": _imported,
}


def _texts(text: str | Iterable[str]) -> Iterable[str]:
    return [text] if isinstance(text, str) else text
