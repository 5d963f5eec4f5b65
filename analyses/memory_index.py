"""A saved result of ffn-memories laid out for looking things up: no model, no server, and no torch.

The two files of a result are read as they are (`read_index`), or a result that is in memory already is taken
(`index_of`). Arrays are looked up by the name of their field, such as `reading.triggers.context`; the rest is plain
data. What a search by text needs beside them is made when it is first needed: the bytes of all stored contexts in one
row, and where each one begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from jaxtyping import Bool, Int
from safetensors import SafetensorError
from safetensors.numpy import load

from analyses.memory_contexts import Contexts, laid_out
from analyses.result_files import RECORD, REMEDY, TENSORS, read_record, tensor_bytes
from model.errors import CheckpointError, InputError
from model.run_folders import existing_step, parse_run_spec
from model.token_bytes import printable, unprinted

if TYPE_CHECKING:
    from analyses.ffn_result import Result

STUDY = "ffn-memories"
NOTHING = 1e-6
"""A coefficient no further from zero is none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryIndex:
    """What is known of every memory of one checkpoint. Keep it: what a search makes of it is made once."""

    tree: Mapping[str, Any]
    """The result as plain data (`analyses.records.encode`)."""

    arrays: Mapping[str, np.ndarray]
    """Its tensors, by the dotted names of their fields."""

    path: Path | None = None
    """The folder it was read from; None where it was not."""

    def array(self, field: str) -> np.ndarray:
        """The tensor of a field, such as `reading.values.promoted`."""
        if field not in self.arrays:
            raise CheckpointError(
                f"{self.path or 'This result'} has no {field}: it was saved by another version of {STUDY}. {REMEDY}"
            )
        return self.arrays[field]

    def plain(self, field: str) -> Any:
        """What is not a tensor, by its dotted name; a number that is not finite is text ("nan")."""
        found: Any = self.tree
        for part in field.split("."):
            if not isinstance(found, Mapping) or part not in found:
                raise CheckpointError(
                    f"{self.path or 'This result'} has no {field}: it was saved by another version of {STUDY}. {REMEDY}"
                )
            found = found[part]
        return found

    def has(self, field: str) -> bool:
        """Whether a field holds something: a part of a result may be None, such as what was not measured."""
        try:
            return self.plain(field) is not None
        except CheckpointError:
            return False

    @property
    def checkpoint(self) -> str:
        """The checkpoint it is about, such as demo@512."""
        return f"{self.plain('run')}@{self.plain('step')}"

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and memories in each."""
        n_layers, n_memories = self.array("reading.values.confidence").shape
        return n_layers, n_memories

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The bytes of each token; none for BOS. The one behind the last, at -1, is no token, and has none either."""
        return (*(unprinted(text) for text in self.plain("vocabulary")), b"")

    @property
    def d_vocab(self) -> int:
        """Tokens in the vocabulary."""
        return len(self.token_bytes) - 1

    def spelled(self, token: SupportsIndex) -> str:
        """One token as it is printed."""
        return self.plain("vocabulary")[token]

    def text(self, tokens: Int[np.ndarray, " token"]) -> str:
        """Tokens as one printable text; what is -1 is left out."""
        return printable(b"".join(map(self.token_bytes.__getitem__, tokens.tolist())))

    @cached_property
    def alive(self) -> Bool[np.ndarray, "layer memory"]:
        """Memories that fired at least once."""
        return self.array("reading.activity.firing_rate") > 0

    @cached_property
    def dead(self) -> Bool[np.ndarray, "layer memory"]:
        """Memories that were never away from zero by more than 1e-6."""
        return (self.array("reading.activity.largest") <= NOTHING) & (self.array("reading.activity.lowest") >= -NOTHING)

    @cached_property
    def next_tokens(self) -> Int[np.ndarray, "layer memory"]:
        """What followed each top trigger; -1 where there is none."""
        return self.array("reading.triggers.next_token")[..., 0]

    @cached_property
    def agrees(self) -> Bool[np.ndarray, "layer memory"]:
        """Whether the value promotes what followed the top trigger most of all tokens."""
        return (self.next_tokens >= 0) & (self.next_tokens == self.array("reading.values.promoted")[..., 0])

    @cached_property
    def contexts(self) -> Contexts:
        """The stored ends of triggers as text."""
        return laid_out(self.array("reading.triggers.context"), self.token_bytes)


def index_of(result: Result) -> MemoryIndex:
    """The index of a result that is in memory."""
    from analyses.records import encode

    tree, tensors = encode(result)
    return MemoryIndex(tree=tree, arrays={name: tensor.numpy() for name, tensor in tensors.items()})


def read_index(folder: Path) -> MemoryIndex:
    """The index of the result saved in `folder`; raises `CheckpointError` where its files are not what was saved."""
    record = read_record(folder)
    if record["study"] != STUDY:
        raise InputError(f"{folder} holds a result of {record['study']}; memories are found in those of {STUDY}.")
    try:
        arrays = load(tensor_bytes(folder, record))
    except SafetensorError as error:
        raise CheckpointError(f"{folder / TENSORS} cannot be read: {error}. {REMEDY}") from None
    return MemoryIndex(tree=record["result"], arrays=arrays, path=Path(folder))


def saved_index(spec: str | Path) -> MemoryIndex:
    """The index of a checkpoint's newest saved result, from `RUN@STEP`, or `RUN` for its last step.

    Raises:
        InputError: nothing is saved of that step; the sentence says what makes it, and of which steps there is.
    """
    run, step = parse_run_spec(spec)
    if step == "all":
        raise InputError(f'"{spec}" names every checkpoint, and one is searched at a time; write {run}@STEP.')
    saved = _saved(run)
    step = step if step in saved else existing_step(run, step)
    if step not in saved:
        raise InputError(_not_saved(run, step, saved))
    return read_index(max(saved[step], key=lambda folder: read_record(folder)["provenance"]["created"]))


def _saved(run: Path) -> dict[int, list[Path]]:
    """The folders of saved results, by step; a folder is called STEP-CONFIGHASH."""
    found: dict[int, list[Path]] = {}
    for record in sorted((run / "studies" / STUDY).glob(f"[0-9]*-*/{RECORD}")):
        found.setdefault(int(record.parent.name.partition("-")[0]), []).append(record.parent)
    return found


def _not_saved(run: Path, step: int, saved: dict[int, list[Path]]) -> str:
    made = f"Its memories are not saved yet; `cutaway run {STUDY} {run}@{step}` reads them once, and saves them."
    there = ""
    if saved:
        other = max(saved)
        seconds = read_record(saved[other][-1])["provenance"]["seconds"]
        there = f" There are those of {run}@{other}, which took {seconds:.0f} s."
    return f"{run.name}@{step} cannot be searched. {made}{there}"
