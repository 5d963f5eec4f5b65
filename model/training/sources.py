"""Where training data comes from: the sources a run names, and the documents that the text sources hold.

`stdlib` is the Python standard library's own source text, present on every machine; `text:PATH-OR-GLOB` is any text;
`repeats` is random tokens repeated, which holds no documents (see batches.py). A document is one file. Held-out data is
held out by document, so that no evaluated text continues a trained one; a source of few files gives the end of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from model.errors import ConfigError, InputError, UnknownNameError, closest
from model.training.checks import refuse_unless_finite
from model.training.text_files import TextFile, matching_files, standard_library

KINDS = ("stdlib", "text", "repeats")
FEW_DOCUMENTS = 10
"""A source with fewer documents is held out by the end of each document, not by whole documents."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """What a run is trained on."""

    sources: tuple[str, ...] = ("stdlib=0.5", "repeats=0.5")
    """Each `stdlib`, `text:PATH-OR-GLOB` or `repeats`, and `=WEIGHT` (1 where left out): its share of the rows."""
    tokenizer: str = "bytes"
    """`bytes`; `chars`, those of the text; or, N tokens with BOS, `bpe:N` (byte-level BPE) or `chars:N` (no text's)."""
    min_period: int = 6
    """Shortest period of a `repeats` row, in tokens."""
    max_period: int = 24
    """Longest period of a `repeats` row, in tokens."""
    held_out: float = 0.05
    """Largest share of the text that is never trained on."""
    stdlib_bytes: int = 4_000_000
    """How much of the standard library is read at most."""
    seed: int = 0
    """Draws which documents are held out."""

    def __post_init__(self) -> None:
        refuse_unless_finite(self, "data")
        sources = self.parsed_sources
        if not sources:
            raise ConfigError("data.sources is empty; name at least one, for example stdlib.")
        twice = {source.name for source in sources if sum(other.name == source.name for other in sources) > 1}
        if twice:
            raise ConfigError(f"data.sources names {', '.join(sorted(twice))} twice; give each once, with one weight.")
        if not 2 <= self.min_period <= self.max_period:
            raise ConfigError(
                f"data.min_period={self.min_period}, data.max_period={self.max_period} is no range of periods; "
                "take 2 <= min_period <= max_period."
            )
        if not 0 < self.held_out <= 0.5:
            raise ConfigError(f"data.held_out={self.held_out} is not a share that can be held out; take 0 to 0.5.")
        if self.stdlib_bytes < 1 or self.seed < 0:
            raise ConfigError("data.stdlib_bytes must be at least 1 and data.seed at least 0.")
        tokenizer_size(self.tokenizer)
        texts = [source.name for source in sources if source.is_text]
        if self.tokenizer.startswith("chars:") and texts:
            raise ConfigError(
                f"data.tokenizer={self.tokenizer} knows visible characters alone, no blank and no new line, so it "
                f"cannot read {texts[0]}; take bytes, chars or bpe:N, or train on repeats alone."
            )

    @property
    def parsed_sources(self) -> tuple[Source, ...]:
        """The sources, taken apart."""
        return tuple(Source.parse(text) for text in self.sources)

    @property
    def trained_periods(self) -> range:
        """The periods of the `repeats` rows that training shows; empty where `repeats` is not among the sources."""
        shows = any(not source.is_text for source in self.parsed_sources)
        return range(self.min_period, self.max_period + 1) if shows else range(0)


@dataclass(frozen=True, slots=True)
class Source:
    """One source and its weight in the mixture."""

    name: str
    """`stdlib`, `repeats`, or `text:` and a path."""
    weight: float
    """Relative share of the rows."""

    @classmethod
    def parse(cls, text: str) -> Source:
        """Read `NAME` or `NAME=WEIGHT`.

        >>> Source.parse("text:notes/*.md=0.3")
        Source(name='text:notes/*.md', weight=0.3)
        """
        name, equals, weight = text.rpartition("=")
        if not equals:
            name, weight = text, "1"
        kind, _, path = name.partition(":")
        if kind not in KINDS or (kind == "text") != bool(path):
            raise UnknownNameError(
                f'There is no data source "{name}".{closest(kind, KINDS, n=1)} '
                "There are stdlib, text:PATH-OR-GLOB and repeats, each with =WEIGHT behind it."
            )
        return cls(name, _positive(weight, text))

    @property
    def is_text(self) -> bool:
        """Whether the source holds documents."""
        return self.name != "repeats"


@dataclass(frozen=True, slots=True)
class Document:
    """A piece of text that is trained on, or held out, as a whole."""

    name: str
    """The source and the file's path inside it; never an absolute path."""
    text: str
    source: str
    """Name of the source it belongs to."""
    held_out: bool = False


def tokenizer_size(name: str) -> int | None:
    """The N of `bpe:N` or `chars:N`; None for `bytes` and `chars`; anything else is an error."""
    kind, _, size = name.partition(":")
    if name in {"bytes", "chars"}:
        return None
    if kind in {"bpe", "chars"} and size.isdigit():
        return int(size)
    raise ConfigError(
        f'data.tokenizer="{name}" is not a tokenizer; take bytes, chars, bpe:N (bpe:1024, say), or, for training on '
        "repeats alone, chars:N (chars:64, say)."
    )


def read_documents(config: DataConfig) -> list[Document]:
    """All documents of the config's text sources, each marked as held out or not.

    The same files give the same documents in the same order. A source without any text, and a file in two sources,
    are `InputError`s.
    """
    documents: list[Document] = []
    source_of: dict[Path, str] = {}
    for source in config.parsed_sources:
        if source.is_text:
            files = _files(source, config)
            _refuse_shared(files, source.name, source_of)
            documents += _hold_out([Document(file.name, file.text, source.name) for file in files], config)
    return documents


def _files(source: Source, config: DataConfig) -> list[TextFile]:
    """The files of one source that hold any text; none at all is an error."""
    is_library = source.name == "stdlib"
    found = standard_library(config.stdlib_bytes) if is_library else matching_files(source.name)
    files = [file for file in found if file.text]
    if not files:
        advice = (
            f"raise data.stdlib_bytes={config.stdlib_bytes}, for only whole files are taken (200000 gives a small one)"
            if is_library
            else "give files that are not empty"
        )
        raise InputError(f"The data source {source.name} holds no text: the corpus would be empty; {advice}.")
    return files


def _refuse_shared(files: Iterable[TextFile], source: str, source_of: dict[Path, str]) -> None:
    """Note that `files` belong to `source`; one that belongs to another already is an error."""
    for file in files:
        other = source_of.setdefault(file.path.resolve(), source)
        if other != source:
            raise InputError(
                f"{file.path} is in two data sources, {other} and {source}: it would count twice, and what one holds "
                "out could be trained on through the other. Leave it out of one of them."
            )


def _hold_out(documents: Sequence[Document], config: DataConfig) -> list[Document]:
    if len(documents) < FEW_DOCUMENTS:
        return [part for document in documents for part in _head_and_tail(document, config.held_out)]
    chosen = _chosen([len(document.text) for document in documents], config.held_out, config.seed)
    return [replace(document, held_out=index in chosen) for index, document in enumerate(documents)]


def _head_and_tail(document: Document, share: float) -> Iterator[Document]:
    """Cut off the last `share` of a document, at the next end of a line if there is one."""
    text = document.text
    middle = round(len(text) * (1 - share))
    cut = text.find("\n", middle) + 1
    cut = cut if 0 < cut < len(text) else middle
    yield replace(document, text=text[:cut])
    if cut < len(text):
        yield replace(document, name=f"{document.name} (end)", text=text[cut:], held_out=True)


def _chosen(sizes: Sequence[int], share: float, seed: int) -> set[int]:
    """Indices in random order as long as they fit into `share` of the whole; at least the smallest."""
    room, chosen = share * sum(sizes), set()
    for index in np.random.Generator(np.random.Philox(seed)).permutation(len(sizes)):
        if sizes[index] <= room:
            room -= sizes[index]
            chosen.add(int(index))
    return chosen or {int(np.argmin(sizes))}


def _positive(text: str, whole: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = float("nan")
    if not 0 < weight < float("inf"):
        raise ConfigError(f'The weight of the data source "{whole}" must be a positive number, as in stdlib=0.5.')
    return weight
