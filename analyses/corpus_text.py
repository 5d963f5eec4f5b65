"""The text that a study streams: one side of the run's own corpus, or a file of the user's.

A file is tokenized with the run's tokenizer; every file that a path or a glob names is one document. Offsets in a
study's answer are offsets into `StudyText.tokens`, whichever text that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer

from model.errors import InputError
from model.lab import Lab
from model.training.text_files import TextFile, matching_files


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyText:
    """Documents as tokens."""

    tokens: Integer[np.ndarray, " corpus"]
    """All documents one behind the other, without BOS."""
    spans: tuple[tuple[int, int], ...]
    """Of each document that is read: the offset of its first token, and the one behind its last."""
    bos: int | None
    """What stands before every window; None where the tokenizer has none."""
    files: tuple[Path, ...]
    """What was read beside the run's own corpus."""
    name: str
    """The text in a word or two, for sentences."""


def study_text(lab: Lab, split: str, text: str = "") -> StudyText:
    """One `split` of the run's corpus (train or held_out), or the files that `text` names, which are read whole."""
    if text:
        return _of_files(lab, text)
    corpus = lab.corpus
    if split not in ("train", "held_out"):
        raise InputError(f'There is no split "{split}" of a corpus; take train or held_out.')
    spans = (corpus.train if split == "train" else corpus.held_out).spans.tolist()
    if not spans:
        raise InputError(
            f"{lab.name} has no text in its {split} split, so there is nothing to read; train on stdlib or text:PATH, "
            "or name a text file with --set text=PATH."
        )
    return StudyText(
        tokens=corpus.tokens,
        spans=tuple((start, stop) for start, stop in spans),
        bos=lab.tokenizer.bos,
        files=(),
        name=f"the {split.replace('_', '-')} text of {lab.name}",
    )


def text_paths(text: str) -> list[Path]:
    """The files that a study's `text` names, for its `inputs`; none where it reads the run's own corpus."""
    return [file.path for file in _files(text)] if text else []


def _of_files(lab: Lab, text: str) -> StudyText:
    files = _files(text)
    encoded = [_encoded(lab, file) for file in files]
    lengths = [len(tokens) for tokens in encoded]
    if max(lengths, default=0) < 2:
        raise InputError(f"{text} holds fewer than two tokens, so no prefix in it has a next token; give more text.")
    stops = np.cumsum(lengths).tolist()
    dtype = np.uint16 if lab.tokenizer.d_vocab <= 2**16 else np.int32
    return StudyText(
        tokens=np.concatenate([np.array(tokens, dtype=dtype) for tokens in encoded]),
        spans=tuple((stop - length, stop) for stop, length in zip(stops, lengths, strict=True)),
        bos=lab.tokenizer.bos,
        files=tuple(file.path for file in files),
        name=text,
    )


def _files(text: str) -> Sequence[TextFile]:
    """The files that a path or a glob names, read as UTF-8."""
    return list(matching_files(f"text:{text}"))


def _encoded(lab: Lab, file: TextFile) -> list[int]:
    try:
        return lab.tokenizer.encode(file.text)
    except InputError as fault:
        raise InputError(f"{file.path} cannot be tokenized as {lab.name} does it. {fault}") from None
