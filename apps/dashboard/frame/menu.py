"""The menu of pages. An entry leads back to where its page was left: the page's own parts of the address go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from apps.dashboard.state import TEXTS

SHARED = ("run", "step", "b", *TEXTS, "notes")
"""The parts of the address that every page shares; each is the key of a bound input."""

_LEFT = "_left"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A page of the menu, and what its address has of its own."""

    page: st.Page
    own: Mapping[str, str]


def entries(pages: Mapping[str, Sequence[st.Page]], run: str) -> dict[str, list[Entry]]:
    """Return the entries of each section.

    Args:
        pages: the pages of each section, by its title.
        run: name of the run that is shown; a search belongs to the run that it was made in.
    """
    left = _left()
    return {
        section: [Entry(page=page, own=left.get((run, page.url_path), {})) for page in listed]
        for section, listed in pages.items()
    }


def draw(listed: Mapping[str, Sequence[Entry]]) -> None:
    """Draw the entries; for the entrypoint. The bar's script gives them their help: Streamlit's covers the next one."""
    for section, entries in listed.items():
        st.caption(section)
        for entry in entries:
            st.page_link(entry.page, help="", width="stretch", query_params=entry.own or None)


def remember(page: st.Page, run: str) -> None:
    """Keep the page's own parts of the address; for the entrypoint, after the page was drawn."""
    _left()[run, page.url_path] = {name: st.query_params[name] for name in st.query_params if name not in SHARED}


def _left() -> dict[tuple[str, str], dict[str, str]]:
    return st.session_state.setdefault(_LEFT, {})
