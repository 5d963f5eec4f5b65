"""The menu of pages. An entry leads back to where its page was left: the page's own parts of the address go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from apps.dashboard.frame.bar import SHARED

_LEFT = "_left"


def draw(pages: Mapping[str, Sequence[st.Page]], run: str) -> None:
    """Draw the entries; for the entrypoint, once it is known which run is shown.

    Args:
        pages: the pages of each section, by its title.
        run: name of the run; a search belongs to the run that it was made in.
    """
    for section, listed in pages.items():
        st.caption(section)
        for page in listed:
            own = _left().get((run, page.url_path), {})
            st.page_link(page, help=page.help, width="stretch", query_params=own or None)


def remember(page: st.Page, run: str) -> None:
    """Keep the page's own parts of the address; for the entrypoint, after the page was drawn."""
    _left()[run, page.url_path] = {name: st.query_params[name] for name in st.query_params if name not in SHARED}


def _left() -> dict[tuple[str, str], dict[str, str]]:
    return st.session_state.setdefault(_LEFT, {})
