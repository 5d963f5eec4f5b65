"""The bar at the top of every page: what is selected, in chips that can be taken away, and what the view offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from analyses.views.payload import checked
from apps.dashboard import selecting
from apps.dashboard.frame.menu import SHARED, Entry
from apps.dashboard.frame.sources import mounted
from apps.dashboard.state import PLACES, Selection, head_name, memory_name, shortened

HINT = "Nothing chosen yet: what is drawn is the page's own start. Click a head, a memory or a cell."

ELSEWHERE = "Ablated on the page Ablate only: this page shows the whole model"
"""Of places to ablate, on pages that do not."""

KEY = "bar"

MOUNT = mounted(
    "bar",
    html="""<div class="bar">
  <ul class="chips" aria-label="Selection"></ul>
  <div class="actions">
    <button class="edit" title="Edit the selection as text" aria-expanded="false"
      >Edit<kbd aria-hidden="true">E</kbd></button>
    <button class="copy" title="Copy the link to what is seen">Copy link<kbd aria-hidden="true">L</kbd></button>
    <button class="pin" disabled>Pin<kbd aria-hidden="true">P</kbd></button>
    <button class="help" title="The keys of this page">Keys<kbd aria-hidden="true">?</kbd></button>
  </div>
  <div class="said" role="status" aria-live="polite"></div>
</div>""",
)


def draw(here: str, entries: Sequence[Entry], done: int) -> None:
    """Draw the bar; for the entrypoint, after the selection.

    Args:
        here: the `url_path` of the page.
        entries: those of the menu, in order.
        done: the last press of a key that was answered.
    """
    dropped = {name: said for name in (*PLACES, "b") if (said := selecting.notice(name))}
    compared = selecting.compared()
    payload = {
        "chips": chips(selecting.selection(), compared.spec if compared else None, dropped, here=here),
        "hint": HINT,
        "shared": list(SHARED),
        "here": here,
        "entries": [
            {"path": each.page.url_path, "own": urlencode(each.own), "help": each.page.help or ""} for each in entries
        ],
        "done": done,
        "optional": [] if selecting.run().steps else ["step"],
    }
    MOUNT(key=KEY, data=checked(payload), on_cleared_change=_cleared)


def chips(chosen: Selection, compared: str | None, dropped: dict[str, str], *, here: str) -> list[dict[str, Any]]:
    """Return one chip for each place that is selected, and for each that was asked for and is not there.

    Args:
        chosen: what is selected.
        compared: the checkpoint to compare with, such as demo@0.
        dropped: why a part was dropped, by its name.
        here: the `url_path` of the page.
    """
    shown: dict[str, tuple[str, str]] = {}
    if chosen.head is not None:
        shown["head"] = "head", head_name(*chosen.head)
    if chosen.memory is not None:
        shown["memory"] = "memory", memory_name(*chosen.memory)
    if chosen.cell is not None:
        shown["cell"] = "cell", f"query {chosen.cell[0]} → key {chosen.cell[1]}"
    if chosen.token is not None:
        shown["token"] = "token", str(chosen.token)
    if chosen.ablate:
        shown["ablate"] = "ablate", _counted([str(place) for place in chosen.ablate])
    if compared is not None:
        shown["b"] = "compare with", compared
    asides = {} if here == "ablate" else {"ablate": {"aside": "on Ablate only", "note": ELSEWHERE}}
    made = [{"part": part, "name": name, "text": text, **asides.get(part, {})} for part, (name, text) in shown.items()]
    missed = [
        {"part": part, "name": part, "text": "not here", "dropped": shortened(why, 200)}
        for part, why in dropped.items()
        if part not in shown
    ]
    return made + missed


def _counted(places: list[str], most: int = 3) -> str:
    return ", ".join(places) if len(places) <= most else f"{', '.join(places[:2])} and {len(places) - 2} more"


def _cleared() -> None:
    """Take parts out of the selection, as the chips asked."""
    asked = (st.session_state.get(KEY) or {}).get("cleared") or {}
    for part in asked.get("parts", ()):
        if part == "b":
            st.session_state["b"] = None
        elif part in PLACES:
            st.session_state[part] = ""
