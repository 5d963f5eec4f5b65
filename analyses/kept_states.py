"""What a long pass over a corpus has found so far, on disk, so that a kill costs half a minute and not the pass.

    STUDIES/STUDY/.unfinished-STEP-CONFIGHASH/PASS.RANK.safetensors

One file for each pass and process: the tensors of its state, and in the header, as JSON, the rest of the state, the
pieces of the corpus that are in it, what the answer depends on (weights, config, corpus, other inputs, versions), and a
hash of all of it. It is written under a temporary name and renamed. A file in which any bit has changed, or of another
question, is told and left aside. Nothing is pickled, and the size does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from analyses.records import decode, encode
from model.errors import CheckpointError
from model.files import clean_leftovers, write_atomically
from model.training.distributed import World

State = TypeVar("State")
FORMAT = 2
"""Changes when a file's layout, or the meaning of a state in it, does."""


@dataclass(frozen=True)
class Kept(Generic[State]):
    """A state, and the pieces of the corpus that are in it."""

    state: State
    pieces: frozenset[int]


def _untold(sentence: str) -> None:
    del sentence


@dataclass(frozen=True, kw_only=True)
class Keeper:
    """Where states of one question are kept."""

    folder: Path
    """Of this question alone; it appears when something is kept."""
    asked: Any
    """What the answer depends on, as plain data."""
    world: World = field(default_factory=World)
    """The processes that share the work."""
    told: Callable[[str], None] = _untold
    """Is given a sentence where what was kept cannot be used."""
    seconds: float = 30.0
    """How long work may go unsaved, from one piece to the next."""

    def keep(self, name: str, kept: Kept[Any], n_pieces: int) -> None:
        """Write this process's state of the pass `name`."""
        tree, tensors = encode(kept.state)
        record = {
            "format": FORMAT,
            "asked": self._asked,
            "n_pieces": n_pieces,
            "pieces": sorted(kept.pieces),
            "state": tree,
        }
        record["sha256"] = _hash_of(record, tensors)
        write_atomically(self._file(name, self.world.rank), save(tensors, metadata={"record": json.dumps(record)}))

    def found(self, name: str, state_class: Any, n_pieces: int, *, of_others: bool = False) -> list[Kept[Any]]:
        """What all processes, or all but this one, have kept of the pass `name`; no piece is in two of them."""
        mine = self._file(name, self.world.rank)
        files = [file for file in sorted(self.folder.glob(f"{name}.*.safetensors")) if not (of_others and file == mine)]
        read = [kept for file in files if (kept := self._read(file, state_class, n_pieces)) is not None]
        read.sort(key=lambda kept: -len(kept.pieces))
        return [kept for index, kept in enumerate(read) if not any(kept.pieces & more.pieces for more in read[:index])]

    def pieces(self, name: str) -> frozenset[int]:
        """The pieces that the leading process has kept, which has checked what it kept."""
        file = self._file(name, 0)
        return frozenset(_record_of(file)["pieces"]) if file.is_file() else frozenset()

    def replace(self, name: str, kept: Kept[Any] | None, n_pieces: int) -> None:
        """Make this process's state, or none, the only one of the pass `name`."""
        mine = self._file(name, self.world.rank)
        if kept is not None:
            self.keep(name, kept, n_pieces)
        for file in self.folder.glob(f"{name}.*.safetensors"):
            if file != mine or kept is None:
                file.unlink()

    def forget(self) -> None:
        """Remove everything that is kept of this question."""
        if self.folder.is_dir():
            shutil.rmtree(self.folder)

    @property
    def _asked(self) -> Any:
        return json.loads(json.dumps(self.asked))

    def _file(self, name: str, rank: int) -> Path:
        return self.folder / f"{name}.{rank}.safetensors"

    def _read(self, file: Path, state_class: Any, n_pieces: int) -> Kept[Any] | None:
        """The state in a file; None, and a sentence, where it cannot be used."""
        try:
            record, tensors = _record_of(file), dict(_tensors_of(file))
            if record.pop("sha256") != _hash_of(record, tensors):
                raise CheckpointError("it is not what was written")
            if record["asked"] != self._asked or record["n_pieces"] != n_pieces:
                self.told(f"{file} is of other weights, settings, text or versions, so the corpus is read afresh.")
                return None
            return Kept(decode(state_class, record["state"], tensors), frozenset(record["pieces"]))
        except (CheckpointError, SafetensorError, OSError, LookupError, TypeError, ValueError) as error:
            said = str(error).rstrip(".")
            self.told(f"{file} is damaged and cannot be gone on from ({said}), so the corpus is read afresh.")
            return None


def clean(folder: Path) -> None:
    """Remove what killed writers left half written in a folder of states."""
    if folder.is_dir():
        clean_leftovers(folder)


def _record_of(file: Path) -> dict[str, Any]:
    with safe_open(file, framework="pt") as opened:
        record = json.loads((opened.metadata() or {})["record"])
    if not isinstance(record, dict) or record["format"] != FORMAT:
        raise CheckpointError(f"it is not of format {FORMAT}")
    return record


def _tensors_of(file: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118  (not a dict)
            yield name, opened.get_tensor(name)


def _hash_of(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Of all that a file says but the hash itself."""
    shapes = {name: [str(tensor.dtype), *tensor.shape] for name, tensor in tensors.items()}
    digest = hashlib.sha256(json.dumps([record, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()
