"""Tokenizers to and from Hugging Face's tokenizer.json and tokenizer_config.json.

Ours become definitions of the `tokenizers` library such that AutoTokenizer gives the ids that `lab.tokens` gives: BOS
in front where the tokenizer has one, and special tokens that no text can produce (split_special_tokens). A definition
that we wrote is recognised by its content and becomes the same tokenizer again; another one becomes an
`ImportedTokenizer`, with BOS in front of a text exactly where Hugging Face puts it there, and goes out again with the
special tokens that it was declared to have (`model.interop.hf_declared`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.errors import CheckpointError, InputError
from model.files import clear_os_errors, read_bytes
from model.imported_tokenizer import ImportedTokenizer, is_byte_level
from model.interop.hf_declared import declared_in, ids_of, settings_in, written
from model.interop.hf_files import read_settings
from model.token_bytes import BOS_TEXT, byte_letters
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer

DEFINITION = "tokenizer.json"
_OLD_FILES = ("vocab.json", "merges.txt")
Plain = dict[str, Any]

_NOTHING: Plain = {"truncation": None, "padding": None, "post_processor": None}
_TO_BYTES: Plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_FROM_BYTES: Plain = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
_OUR_WAYS: Plain = {"split_special_tokens": True, "padding_side": "left"}
"""What looks like a special token in a text is text."""
_EACH_CHARACTER: Plain = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}


def tokenizer_to_hf(tokenizer: Tokenizer, n_ctx: int) -> tuple[str, Plain]:
    """What goes into tokenizer.json and into tokenizer_config.json, for a model of `n_ctx` positions."""
    plain, bos = _definition(tokenizer)
    declared = tokenizer.declared if isinstance(tokenizer, ImportedTokenizer) else None
    return json.dumps(plain, indent=2, ensure_ascii=False), {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({"bos_token": bos} if bos is not None else {}),
        "clean_up_tokenization_spaces": False,
        **(_OUR_WAYS if declared is None else declared["settings"]),
        "model_max_length": n_ctx,
    }


def load_hf_tokenizer(path: Path, d_vocab: int) -> Tokenizer:
    """The tokenizer of a folder, or of a tokenizer.json, for a model of `d_vocab` ids."""
    with clear_os_errors("read", path, InputError):
        is_folder = path.is_dir()
    if not is_folder:
        plain = _plain(path)
        return _from_definition(plain, d_vocab, path.parent if path.name == DEFINITION else None)[0]
    tokenizer, notes = tokenizer_from_hf(path, d_vocab)
    if tokenizer is None:
        raise InputError(f"The folder {path} gives no tokenizer. {' '.join(notes)}")
    return tokenizer


def tokenizer_from_hf(folder: Path, d_vocab: int) -> tuple[Tokenizer | None, tuple[str, ...]]:
    """The tokenizer of a model's folder, if it has one that can be read, and what there is to say about it."""
    if (folder / DEFINITION).is_file():
        return _from_definition(_plain(folder / DEFINITION), d_vocab, folder)
    if all((folder / name).is_file() for name in _OLD_FILES):
        return _from_definition(_from_old_files(folder), d_vocab, folder)
    if (folder / "tokenizer.model").is_file():
        return None, ("The tokenizer is only there as tokenizer.model, which is not read; save it as tokenizer.json.",)
    return None, ("There is no tokenizer beside the weights.",)


# --- ours to theirs ---------------------------------------------------------------------------------------------------


def _definition(tokenizer: Tokenizer) -> tuple[Plain, str | None]:
    """The definition that gives this tokenizer's ids, in the library's present form, and how BOS is written in it."""
    plain = _rules(tokenizer) | _NOTHING
    declared = (tokenizer.declared if isinstance(tokenizer, ImportedTokenizer) else None) or {}
    if "post_processor" in declared:
        bos = None if tokenizer.bos is None else _bos_of(plain, tokenizer.bos)
        return _canonical(plain | {"post_processor": declared["post_processor"]}), bos
    if tokenizer.bos is None:
        return _canonical(plain), None
    bos, added = _bos_of(plain, tokenizer.bos), plain.get("added_tokens") or []
    if not any(entry["id"] == tokenizer.bos for entry in added):
        added = [*added, _special(bos, tokenizer.bos)]
    plain = plain | {"added_tokens": added, "post_processor": _in_front(bos, tokenizer.bos)}
    return _canonical(plain), bos


def _rules(tokenizer: Tokenizer) -> Plain:
    """How a text is cut, without BOS."""
    if isinstance(tokenizer, ByteTokenizer):
        model = {"type": "BPE", "vocab": byte_letters(), "merges": []}
        return {"model": model, "pre_tokenizer": _TO_BYTES, "decoder": _FROM_BYTES}
    if isinstance(tokenizer, CharTokenizer):
        # An unknown character is an error, as here: the library finds no "<unk>" to put in its place.
        vocab = {character: token for token, character in enumerate(tokenizer.characters)}
        model = {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}
        return {"model": model, "pre_tokenizer": _EACH_CHARACTER, "decoder": {"type": "Fuse"}}
    if isinstance(tokenizer, BPETokenizer):
        return json.loads(tokenizer.definition) | {"decoder": _FROM_BYTES}
    if isinstance(tokenizer, ImportedTokenizer):
        plain = json.loads(tokenizer.definition)
        lacks_decoder = plain.get("decoder") is None and is_byte_level(plain)
        return plain | ({"decoder": _FROM_BYTES} if lacks_decoder else {})
    raise InputError(f"A tokenizer of kind {tokenizer.kind} has no counterpart in Hugging Face's tokenizers.")


def _bos_of(plain: Plain, bos: int) -> str:
    """How BOS is written: as the definition writes it, else in a way that is no ordinary token."""
    written = {token for token, index in ids_of(plain).items() if index == bos}
    if written:
        return written.pop()
    if bos != len(ids_of(plain)):
        raise InputError(f"BOS is the id {bos}, which the tokenizer has no token for; Hugging Face needs one.")
    names = (BOS_TEXT, *(f"<|bos{n or ''}|>" for n in range(len(ids_of(plain)) + 1)))
    return next(name for name in names if name not in ids_of(plain))


def _special(content: str, index: int) -> Plain:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def _in_front(bos: str, index: int) -> Plain:
    """The post-processor that puts BOS before a text (and before each of a pair)."""
    front = {"SpecialToken": {"id": bos, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    return {
        "type": "TemplateProcessing",
        "single": [front, first],
        "pair": [front, first, front, second],
        "special_tokens": {bos: {"id": bos, "ids": [index], "tokens": [bos]}},
    }


def _text(plain: Plain) -> str:
    """The definition as the library itself would write it."""
    from tokenizers import Tokenizer as Backend

    return Backend.from_str(json.dumps(plain)).to_str()


def _canonical(plain: Plain) -> Plain:
    return json.loads(_text(plain))


# --- theirs to ours ---------------------------------------------------------------------------------------------------


def _from_definition(plain: Plain, d_vocab: int, folder: Path | None) -> tuple[Tokenizer, tuple[str, ...]]:
    """The tokenizer of a definition, and of what the files beside it in `folder` declare."""
    rules = _settled(plain)
    own = _own(rules, d_vocab)
    if own is not None:
        return own, ()
    bos = _bos_in_front(plain)
    declared = None if folder is None else declared_in(folder, rules, d_vocab)
    tokenizer = ImportedTokenizer(json.dumps(rules | _NOTHING), d_vocab=d_vocab, bos=bos, declared=declared)
    if bos is None:
        return tokenizer, ("The tokenizer puts no BOS before a text, so none stands there here.", *_behind(plain))
    return tokenizer, (f"Token {bos} stands before every text, as the tokenizer wants it.", *_behind(plain))


def _settled(plain: Plain) -> Plain:
    """The definition in the library's present form; as it is where the library cannot read it."""
    try:
        return _canonical(plain | {"truncation": None, "padding": None})
    except Exception:  # the library raises nothing more special; who builds the tokenizer says what is wrong
        return plain


def _own(found: Plain, d_vocab: int) -> Tokenizer | None:
    """The tokenizer of ours from which this definition was made, if it was."""
    if _bos_in_front(found) is None:
        found = found | {"post_processor": None}  # transformers writes a template there, which then adds nothing
    guess = _guess(found)
    is_it = guess is not None and guess.d_vocab == d_vocab and _definition(guess)[0] == found
    return guess if is_it else None


def _guess(found: Plain) -> Tokenizer | None:
    """The only tokenizer of ours that could have this vocabulary."""
    model = found.get("model") or {}
    vocab, bos = model.get("vocab"), found.get("added_tokens") or []
    if not isinstance(vocab, dict) or sorted(vocab.values()) != list(range(len(vocab))):
        return None
    if model.get("type") == "WordLevel" and all(len(token) == 1 for token in vocab):
        return CharTokenizer("".join(sorted(vocab, key=vocab.__getitem__)), has_bos=bool(bos))
    if model.get("type") != "BPE" or not set("".join(vocab)) <= byte_letters().keys():
        return None
    if vocab == byte_letters():
        return ByteTokenizer()
    rules = {key: value for key, value in found.items() if key != "decoder"} | _NOTHING
    return BPETokenizer(_text(rules | {"added_tokens": [], "decoder": None}))


def _bos_in_front(plain: Plain) -> int | None:
    """The token that the definition's template puts before a text; transformers 5 follows it over add_bos_token."""
    for part in _templates(plain):
        first = next(iter(part.get("single") or [{}]))
        if "SpecialToken" in first:
            return part["special_tokens"][first["SpecialToken"]["id"]]["ids"][0]
    return None


def _behind(plain: Plain) -> tuple[str, ...]:
    """That the definition's template puts a token behind a text, which is not done here."""
    for part in _templates(plain):
        last = (part.get("single") or [{}])[-1]
        if "SpecialToken" in last:
            return (f"The tokenizer puts {last['SpecialToken']['id']} behind a text too; here nothing stands there.",)
    return ()


def _templates(plain: Plain) -> list[Plain]:
    rule = plain.get("post_processor") or {}
    return [part for part in rule.get("processors", [rule]) if part.get("type") == "TemplateProcessing"]


def _from_old_files(folder: Path) -> Plain:
    """GPT-2's definition from vocab.json and merges.txt, which is all that older programs saved."""
    settings = settings_in(folder)
    vocab = read_settings(folder / _OLD_FILES[0])
    lines = read_bytes(folder / _OLD_FILES[1], CheckpointError).decode(errors="replace").splitlines()
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    names = [written(settings.get(f"{role}_token")) for role in ("bos", "eos", "unk", "pad")]
    special = {name: vocab[name] for name in (*names, "<|endoftext|>") if name in vocab}
    if (folder / "added_tokens.json").is_file():
        special |= read_settings(folder / "added_tokens.json")
    added = [_special(content, index) for content, index in sorted(special.items(), key=lambda item: item[1])]
    rules = {"pre_tokenizer": _FROM_BYTES | {"add_prefix_space": False}, "decoder": _FROM_BYTES, **_NOTHING}
    if settings.get("add_bos_token") and names[0] in special:
        rules["post_processor"] = _in_front(names[0], special[names[0]])
    return {"added_tokens": added, **rules, "model": {"type": "BPE", "vocab": vocab, "merges": merges}}


def _plain(path: Path) -> Plain:
    """A tokenizer.json that at least has the form of one."""
    plain = read_settings(path)
    model = plain.get("model")
    if isinstance(model, Mapping) and isinstance(model.get("vocab"), Mapping | list):
        return plain
    raise CheckpointError(f"{path} defines no tokenizer: it has no model with a vocabulary. Fetch it again.")
