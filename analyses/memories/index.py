"""A saved result of ffn-memories laid out for looking things up: no model, no server, and no torch.

The two files of a result are read as they are (`read_index`), or a result that is in memory already is taken
(`index_of`). Arrays are looked up by the name of their field, such as `reading.triggers.context`; the rest is plain
data. What a search by text needs beside them is made when it is first needed: the bytes of all stored contexts in one
row, and where each one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from jaxtyping import Bool, Int
from safetensors import SafetensorError
from safetensors.numpy import load

from analyses.memories.choice import STUDY, chosen_result
from analyses.memories.contexts import Contexts, laid_out
from analyses.result_files import REMEDY, TENSORS, read_record, tensor_bytes
from model.errors import CheckpointError, InputError
from model.run_folders import parse_run_spec, read_run
from model.token_bytes import printable, unprinted

if TYPE_CHECKING:
    from analyses.ffn.result import Result

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

    notes: tuple[str, ...] = ()
    """What should be known of the choice among several saved results."""

    def array(self, field: str) -> np.ndarray:
        """The tensor of a field, such as `reading.values.promoted`."""
        if field not in self.arrays:
            raise self._of_another_version(field)
        return self.arrays[field]

    def plain(self, field: str) -> Any:
        """What is not a tensor, by its dotted name; a number that is not finite is text ("nan")."""
        found: Any = self.tree
        for part in field.split("."):
            if not isinstance(found, Mapping) or part not in found:
                raise self._of_another_version(field)
            found = found[part]
        return found

    def _of_another_version(self, field: str) -> CheckpointError:
        where = self.path or "This result"
        return CheckpointError(f"{where} has no {field}: it was saved by another version of {STUDY}. {REMEDY}")

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
    def spec(self) -> str:
        """The checkpoint as a command takes it: the run's folder as seen from here, and the step."""
        if self.path is None:
            return self.checkpoint
        run = self.path.resolve().parents[2]
        here = run.relative_to(Path.cwd()) if run.is_relative_to(Path.cwd()) else run
        return f"{here}@{self.plain('step')}"

    @property
    def corpus(self) -> str:
        """The text that was read, how many prefixes of it and how they were drawn, in words."""
        config = self.plain("config")
        text = config["text"] or f"{config['split'].replace('_', '-')} text"
        return f"{text}, {self.plain('n_prefixes'):,} prefixes, seed {config['seed']}"

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
        """One token as it is printed, so that it can be asked for."""
        return asked_for(self.plain("vocabulary")[token])

    def text(self, tokens: Int[np.ndarray, " token"]) -> str:
        """Tokens as one printable text; what is -1 is left out."""
        return asked_for(printable(b"".join(map(self.token_bytes.__getitem__, tokens.tolist()))))

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


def asked_for(text: str) -> str:
    r"""A printable text in which "·", which a search takes for a space, is escaped.

    >>> print(asked_for("a·b c"))
    a\xc2\xb7b c
    """
    return text.replace("·", r"\xc2\xb7")


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


def saved_index(spec: str | Path, settings: Sequence[str] = ()) -> MemoryIndex:
    """The index of a checkpoint's saved result, from `RUN@STEP`, or `RUN` for its last step.

    Args:
        spec: the checkpoint.
        settings: which of its results, as after `cutaway run ffn-memories RUN --set`, such as ["split=held_out"]; the
            one with the study's own settings where none are named (`memories.choice`).

    Raises:
        InputError: nothing like that is saved; the sentence says what makes it, and what there is.
    """
    run, step = parse_run_spec(spec)
    if step == "all":
        raise InputError(f'"{spec}" names every checkpoint, and one is searched at a time; write {run}@STEP.')
    if read_run(run).get("config", {}).get("model", {}).get("ffn") == "none":
        raise InputError(f"{run.name} has attention only (ffn=none), and so no FFN memories to look up.")
    folder, notes = chosen_result(run, step, settings)
    return replace(read_index(folder), notes=notes)
