"""The command that looks FFN memories up in a saved result: cutaway memories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.options import Json, Run
from apps.console import remark, say

if TYPE_CHECKING:
    from analyses.memories.index import MemoryIndex
    from analyses.memories.search import Found, Query


def memories(
    subject: Run,
    query: Annotated[
        str, typer.Argument(metavar="[QUERY]", help="A text to look for in tokens and triggers, or an address: L1M37.")
    ] = "",
    *,
    promotes: Annotated[
        str, typer.Option("--promotes", metavar="TEXT", help="In a token that the value promotes.")
    ] = "",
    suppresses: Annotated[
        str, typer.Option("--suppresses", metavar="TEXT", help="In a token that the value suppresses.")
    ] = "",
    trigger: Annotated[str, typer.Option("--trigger", metavar="TEXT", help="In the end of a trigger.")] = "",
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="KIND", help="What triggers share, such as last_token.")
    ] = None,
    concept: Annotated[
        str, typer.Option("--concept", metavar="NAME", help="What promoted tokens share, such as digits.")
    ] = "",
    layer: Annotated[int | None, typer.Option("--layer", help="In this layer only.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="alive, dead or dense (fires on more than half).")
    ] = None,
    top: Annotated[int, typer.Option("--top", help="How many to show.")] = 20,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="Which saved result, such as split=held_out; repeatable."),
    ] = [],  # noqa: B006  (typer reads it and never changes it)
    cut: Annotated[
        bool, typer.Option("--cut", help="Of one memory: measure what its triggers lose with a token. Opens the model.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Look up what FFN memories promote and what fires them, in what ffn-memories saved. Only --cut opens the model."""
    from analyses.memories.index import saved_index
    from analyses.memories.matches import address_of
    from analyses.memories.search import Query
    from model.errors import InputError

    if top < 1:
        raise InputError(f"--top {top} shows nothing; ask for at least 1.")
    asked = Query(
        text=query, promotes=promotes, suppresses=suppresses, trigger=trigger, pattern=pattern, concept=concept,
        layer=layer, state=state,
    )  # fmt: skip
    address = address_of(query)
    if address is None and cut:
        raise InputError("--cut measures one memory; name it, as in `cutaway memories RUN L1M37 --cut`.")
    if address is not None and asked != Query(text=query):
        raise InputError(
            f"{query.strip()} names one memory, so there is nothing to search; ask for it alone, or leave it out."
        )
    index = saved_index(subject, settings)
    say(_searched(index, asked, top, as_json) if address is None else _one(index, address, cut, as_json))


def _one(index: MemoryIndex, address: tuple[int, int], cut: bool, as_json: bool) -> str:  # noqa: FBT001
    """All that is known of one memory."""
    from analyses.memories.card import memory_record
    from apps.memory_lines import card_lines

    record = memory_record(index, *address)
    if cut:
        from analyses.memories.cutting import cut_triggers

        record["deletions"] = cut_triggers(index, *address)
    if as_json:
        return _json(record)
    _tell(index.notes)
    return "\n".join(card_lines(record, width_of_terminal()))


def _searched(index: MemoryIndex, asked: Query, top: int, as_json: bool) -> str:  # noqa: FBT001
    """The memories that were found."""
    from analyses.memories.search import search
    from apps.memory_lines import found_lines

    found = search(index, asked)
    if as_json:
        return _json(_record(index, found, top))
    _tell((*index.notes, *found.notes))
    return "\n".join(found_lines(index, found, top, width_of_terminal()))


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        remark(note)


def width_of_terminal() -> int:
    """Columns of the terminal; 100 where there is none."""
    return max(40, shutil.get_terminal_size((100, 24)).columns)


def _record(index: MemoryIndex, found: Found, top: int) -> dict[str, Any]:
    from analyses.memories.card import corpus_record
    from analyses.memories.search import found_rows

    return {
        "format": 1,
        "checkpoint": index.checkpoint,
        "corpus": corpus_record(index),
        "n_memories": int(index.alive.size),
        "n_hits": len(found),
        "notes": [*index.notes, *found.notes],
        "hits": found_rows(index, found, top),
    }


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
