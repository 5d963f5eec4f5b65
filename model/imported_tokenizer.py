"""A tokenizer that another program trained, read from its definition in the `tokenizers` library's JSON.

Two families spell every token so that its exact bytes can be read off: byte-level BPE (GPT-2, Llama 3, SmolLM2), whose
tokens are written in visible stand-ins for bytes, and metaspace BPE with byte fallback (Llama 2), where U+2581 is a
space and <0x0A> a byte. Anything else is refused: a count of bits per byte needs the bytes.

Special tokens stand for no bytes and no text can produce them; ids that the model has and the vocabulary has not stand
for none either. An encoding that does not stand for exactly the text is refused too, so nothing is lost unseen: a
vocabulary may lack rare bytes (SmolLM2's has 235 of 256), which the library drops from a text without a word.
Limit: the metaspace family puts a space before a text, which counts as a byte and which `decode` takes off again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from model.errors import InputError
from model.token_bytes import BOS_TEXT, N_BYTES, byte_letters, printable, utf8
from model.tokenizer import Tokenizer, Tokens

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_LOSSLESS_CUTS = {"ByteLevel", "Split", "Digits", "Punctuation"}


class ImportedTokenizer(Tokenizer):
    """A byte-level or metaspace BPE made elsewhere.

    Args:
        definition: the tokenizer as JSON of the `tokenizers` library.
        d_vocab: the model's number of ids; those without a token stand for no bytes.
        bos: the id that stands before a text, or None.
        declared: what its files say beside that (`model.interop.hf_declared`): kept for an export, and not acted on.
    """

    kind = "imported"

    def __init__(
        self, definition: str, *, d_vocab: int, bos: int | None, declared: Mapping[str, Any] | None = None
    ) -> None:
        from tokenizers import Tokenizer as Backend

        plain = _parsed(definition)
        self.definition = definition
        """The tokenizer in the `tokenizers` library's own JSON."""
        self.declared = declared
        """Special tokens and their like as its files name them; None where they are not known."""
        self._prefix = b" " if _is_prefixed(plain) else b""
        self._added = {added["id"]: added for added in plain.get("added_tokens") or []}
        try:
            self._backend = Backend.from_str(definition)
        except Exception as fault:  # the library raises nothing more special
            raise InputError(f"The tokenizers library cannot read this tokenizer ({fault}); save it again.") from None
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = True  # what looks like a special token in a text is text
        if bos is not None and not 0 <= bos < d_vocab:
            raise InputError(f"bos={bos} is no id of a vocabulary of {d_vocab}; give one below it, or none.")
        super().__init__(_bytes_by_id(plain, d_vocab, bos), bos)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; one that they do not spell exactly is an `InputError`."""
        wanted = utf8(text)
        ids = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        made = b"".join(self.token_bytes[token] for token in ids)
        if made not in (wanted, self._prefix + wanted):
            at = _first_difference(made.removeprefix(self._prefix), wanted)
            around = wanted[max(at - 4, 0) : at + 12].decode(errors="replace")
            raise InputError(
                f"This tokenizer cannot spell the text exactly: near byte {at} ({around!r}) its tokens stand for "
                "something else. Leave that part out."
            )
        return ids

    def decode(self, tokens: Tokens) -> str:
        """The text of `tokens`; special tokens show as nothing, and so does the space that metaspace puts first."""
        text = super().decode(tokens)
        return text.removeprefix(self._prefix.decode())

    def state(self) -> dict[str, Any]:
        """The library's own definition, as text, and what its files declared beside it."""
        return {"definition": self.definition} | ({} if self.declared is None else {"declared": dict(self.declared)})

    def declared_id(self, role: str) -> int | None:
        """The id of the token that its files name as `eos_token`, `pad_token`, ...; None where they name none."""
        content = (self.declared or {}).get("settings", {}).get(role)
        return None if content is None else self._backend.token_to_id(content)

    @cached_property
    def ids_without_token(self) -> tuple[int, ...]:
        """Ids that the model has and the tokenizer has no token for: a vocabulary is often padded to a round size."""
        tokens = {*self._backend.get_vocab(with_added_tokens=True).values(), *self._added}
        return tuple(token for token in range(self.d_vocab) if token not in tokens)

    @cached_property
    def _strings(self) -> tuple[str, ...]:
        """Special tokens by their own name, ids without a token by number, and text that looks like either escaped."""
        names = {token: self._name(token) for token, raw in enumerate(self.token_bytes) if not raw}
        taken = set(names.values())

        def shown(raw: bytes) -> str:
            text = printable(raw)
            return f"\\x{raw[0]:02x}{printable(raw[1:])}" if text in taken else text

        return tuple(names[token] if token in names else shown(raw) for token, raw in enumerate(self.token_bytes))

    def _name(self, token: int) -> str:
        if token == self.bos:
            return BOS_TEXT
        added = self._added.get(token)
        content = self._backend.id_to_token(token) if added is None else added["content"]
        return printable(content.encode()) if content else f"<no token {token}>"


def _parsed(definition: str) -> dict[str, Any]:
    """The definition as plain data, if it is of a family whose tokens have exact bytes."""
    try:
        plain = json.loads(definition)
        model = plain["model"]
    except (ValueError, KeyError, TypeError):
        raise InputError("This is no definition of a tokenizer: it is not JSON with a model in it.") from None
    fault = _fault(plain, model)
    if fault:
        raise InputError(
            f"This tokenizer cannot be used, because {fault}. Allowed are byte-level BPE (GPT-2, Llama 3) and "
            "metaspace BPE with byte fallback (Llama 2), which say exactly which bytes a token stands for."
        )
    return plain


def _fault(plain: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Why the bytes of this tokenizer's tokens cannot be known, or nothing."""
    kind = model.get("type", "BPE" if "merges" in model else "no known kind")
    if kind != "BPE":
        return f"its model is {kind}"
    for field in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            return f"its {field} is {model[field]!r}"
    return _fault_of_bytes(plain) if is_byte_level(plain) else _fault_of_metaspace(plain, model)


def _fault_of_bytes(plain: Mapping[str, Any]) -> str:
    if list(_parts(plain, "normalizer")):
        return f"its normalizer ({next(_parts(plain, 'normalizer'))['type']}) changes the text"
    for part in _parts(plain, "pre_tokenizer"):
        if part["type"] not in _LOSSLESS_CUTS or part.get("behavior") == "Removed":
            return f"its pre-tokenizer ({part['type']}) may drop a part of the text"
        if part["type"] == "ByteLevel" and part.get("add_prefix_space"):
            return "it puts a space before a text (add_prefix_space)"
    return ""


def _fault_of_metaspace(plain: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    cuts = [part["type"] for part in _parts(plain, "pre_tokenizer")]
    changes = [part["type"] for part in _parts(plain, "normalizer")]
    by_cut, by_change = cuts == ["Metaspace"] and not changes, not cuts and changes in (["Prepend", "Replace"],)
    if not (by_cut or by_change or (not cuts and changes == ["Replace"])):
        return f"it cuts and changes a text by {', '.join(changes + cuts) or 'no rule'}"
    spaces = [part.get("replacement", part.get("content", _SPACE)) for part in _space_rules(plain)]
    if any(space != _SPACE for space in spaces):
        return f"it writes a space as {spaces[0]!r}"
    missing = [value for value in range(N_BYTES) if f"<0x{value:02X}>" not in model["vocab"]]
    if missing or not model.get("byte_fallback"):
        return "it has no byte fallback, and so no token for some bytes"
    return ""


def _space_rules(plain: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for step in ("normalizer", "pre_tokenizer"):
        yield from (part for part in _parts(plain, step) if part["type"] in ("Replace", "Metaspace"))


def _parts(plain: Mapping[str, Any], step: str) -> Iterator[Mapping[str, Any]]:
    """The rules of one step, sequences opened."""
    rule = plain.get(step)
    several = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}[step]
    if rule is not None:
        yield from rule[several] if rule["type"] == "Sequence" else [rule]


def is_byte_level(plain: Mapping[str, Any]) -> bool:
    """Whether a definition cuts a text into bytes written as letters."""
    return any(part["type"] == "ByteLevel" for part in _parts(plain, "pre_tokenizer"))


def _is_prefixed(plain: Mapping[str, Any]) -> bool:
    """Whether a space is put before a text."""
    if any(part["type"] == "Prepend" for part in _parts(plain, "normalizer")):
        return True
    rules = [part for part in _parts(plain, "pre_tokenizer") if part["type"] == "Metaspace"]
    return any(rule.get("prepend_scheme", "always") != "never" for rule in rules)


def _bytes_by_id(plain: Mapping[str, Any], d_vocab: int, bos: int | None) -> list[bytes]:
    """The bytes of every id of the model."""
    model, byte_level = plain["model"], is_byte_level(plain)
    added = {entry["content"]: entry for entry in plain.get("added_tokens") or []}
    ids = {**model["vocab"], **{content: entry["id"] for content, entry in added.items()}}
    table = [b""] * d_vocab
    for token, index in ids.items():
        silent = token == model.get("unk_token") or index == bos or (token in added and added[token].get("special"))
        if silent:
            continue
        if index >= d_vocab:
            raise InputError(
                f'The tokenizer is of another model: its token "{token}" has the id {index}, and the model\'s '
                f"vocabulary ends at {d_vocab - 1}. Take the tokenizer that belongs to the weights."
            )
        if token in added:
            table[index] = token.encode()
        else:
            table[index] = _byte_level_bytes(token) if byte_level else _metaspace_bytes(token)
    return table


def _byte_level_bytes(token: str) -> bytes:
    byte_of = byte_letters()
    try:
        return bytes(byte_of[letter] for letter in token)
    except KeyError as letter:
        raise InputError(
            f"The token {token!r} is not spelled in bytes: {letter.args[0]!r} stands for none. It should be among the "
            "added tokens of the tokenizer."
        ) from None


def _metaspace_bytes(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()


def _first_difference(made: bytes, wanted: bytes) -> int:
    pairs = enumerate(zip(made, wanted, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(made), len(wanted)))
