"""The command that looks FFN memories up in a saved result: cutaway memories."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.commands.options import Json, Run
from apps.console import remark, say

if TYPE_CHECKING:
    from analyses.memory_index import MemoryIndex
    from analyses.memory_search import Found


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
    layer: Annotated[int | None, typer.Option("--layer", min=0, help="In this layer only.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="alive, dead or dense (fires on more than half).")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many to show.")] = 20,
    as_json: Json = False,
) -> None:
    """Look up what FFN memories promote and what fires them, in what ffn-memories saved. Opens no model."""
    from analyses.memory_card import memory_record
    from analyses.memory_index import saved_index
    from analyses.memory_matches import address_of
    from analyses.memory_search import Query, search
    from apps.memory_lines import card_lines, found_lines

    asked = Query(
        text=query, promotes=promotes, suppresses=suppresses, trigger=trigger, pattern=pattern, concept=concept,
        layer=layer, state=state,
    )  # fmt: skip
    index, address = saved_index(subject), address_of(query)
    found = search(index, asked)
    if address is not None and len(found):
        record = memory_record(index, *address)
        say(_json(record) if as_json else "\n".join(card_lines(record, width_of_terminal())))
        return
    say(
        _json(_record(index, found, top)) if as_json else "\n".join(found_lines(index, found, top, width_of_terminal()))
    )
    for note in () if as_json else found.notes:
        remark(note)


def width_of_terminal() -> int:
    """Columns of the terminal; 100 where there is none."""
    return max(40, shutil.get_terminal_size((100, 24)).columns)


def _record(index: MemoryIndex, found: Found, top: int) -> dict[str, Any]:
    from analyses.memory_search import found_rows

    return {
        "format": 1,
        "checkpoint": index.checkpoint,
        "n_memories": int(index.alive.size),
        "n_hits": len(found),
        "notes": list(found.notes),
        "hits": found_rows(index, found, top),
    }


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
