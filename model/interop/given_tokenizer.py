"""A tokenizer that the user names, for a model whose file has none, or the wrong one."""

from __future__ import annotations

import json
from pathlib import Path

from model.errors import InputError, UnknownNameError
from model.files import read_bytes, read_json
from model.token_bytes import N_BYTES, byte_letters
from model.tokenizer import ByteTokenizer, CharTokenizer, Tokenizer, load_tokenizer

SPELLINGS = "bytes, chars:FILE, or the folder or file of a tokenizer.json"


def given_tokenizer(spec: str, d_vocab: int) -> Tokenizer:
    """The tokenizer that `spec` names, for a model of `d_vocab` ids.

    Args:
        spec: `bytes`; `chars:FILE`, the sorted characters of a text (nanoGPT's rule, without BOS); or the folder or
            file of a `tokenizer.json`, Hugging Face's or that of a run.
        d_vocab: the model's; bytes and characters must be exactly as many.
    """
    file = text_of_characters(spec)
    if spec == "bytes":
        return _bytes(d_vocab)
    if file is not None:
        tokenizer = CharTokenizer(_characters(file), has_bos=False)
        return _refused_unless(tokenizer, d_vocab, f"{file} has {{}} different characters")
    if not Path(spec).exists():
        raise UnknownNameError(f'There is no tokenizer "{spec}"; give {SPELLINGS}.')
    ours = _of_a_run(Path(spec))
    if ours is not None:
        return _refused_unless(load_tokenizer(ours), d_vocab, f"{ours} has {{}} tokens")
    from model.interop.hf_tokenizer import load_hf_tokenizer

    return load_hf_tokenizer(Path(spec), d_vocab)


def _of_a_run(path: Path) -> Path | None:
    """The file, where it is one that Cutaway saved: its tokenizer.json is another than Hugging Face's."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        return None
    saved = read_json(file, InputError)
    return file if isinstance(saved, dict) and "kind" in saved and "model" not in saved else None


def _bytes(d_vocab: int) -> Tokenizer:
    """One id per byte: ours, which has a BOS as well, or for a model of 256 ids one without."""
    if d_vocab != N_BYTES:
        return _refused_unless(ByteTokenizer(), d_vocab, "bytes are 256 ids, or {} with BOS")
    from model.imported_tokenizer import ImportedTokenizer

    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    definition = {"model": {"type": "BPE", "vocab": byte_letters(), "merges": []}, "pre_tokenizer": level}
    return ImportedTokenizer(json.dumps(definition), d_vocab=N_BYTES, bos=None)


def text_of_characters(spec: str | None) -> Path | None:
    """The FILE of `chars:FILE`; None of anything else."""
    kind, _, file = (spec or "").partition(":")
    return Path(file) if kind == "chars" and file else None


def _characters(file: Path) -> str:
    """Every character of a text, by code point; line ends are single newlines, as nanoGPT's `open` reads them."""
    try:
        text = read_bytes(file, InputError).decode()
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8 text; give the text that the model was trained on.") from None
    return "".join(sorted(set(text.replace("\r\n", "\n").replace("\r", "\n"))))


def _refused_unless(tokenizer: Tokenizer, d_vocab: int, said: str) -> Tokenizer:
    if tokenizer.d_vocab != d_vocab:
        raise InputError(
            f"{said.format(tokenizer.d_vocab)}, and the model's vocabulary is {d_vocab}; give the tokenizer that the "
            "model was trained with."
        )
    return tokenizer
