"""Parts that stand beside each other while there is room for them, and below one another where there is not."""

from __future__ import annotations

from typing import Any

import streamlit as st

DENSE = 16
"""Layers or heads beyond which the grid draws small cells (`analyses/views/static/head_grid.js`)."""


def width_of(n_layers: int, n_heads: int, *, digits: int = 4) -> int:
    """Pixels that a grid of heads needs, so that no head is cut off and numbers of `digits` characters do not touch."""
    cell = max(28, 7 * digits + 2) if max(n_layers, n_heads) > DENSE else max(40, 8 * digits + 6)
    return 44 + n_heads * cell


def wrapping(key: str, *least: int) -> list[Any]:
    """Containers that share a row; one that would have less than its `least` pixels starts a row of its own.

    Columns of Streamlit only break on a telephone, so that the flexible widths are given here.
    """
    rules = (
        f".st-key-{key} > :nth-child({at}) {{ flex: 1 1 {pixels}px !important; "
        f"min-width: min({pixels}px, 100%) !important; width: auto !important; }}"
        for at, pixels in enumerate(least, start=1)
    )
    st.html(f"<style>{' '.join(rules)}</style>")
    with st.container(horizontal=True, gap="medium", key=key):
        return [st.container(key=f"{key}-{at}") for at in range(len(least))]


def around(key: str, left: int, right: int) -> tuple[Any, Any, Any]:
    """Three containers: two on the left, one below the other, with the third beside both.

    Where there are less than `left` and `right` pixels for them side by side, the third comes between the two: what it
    shows of one head stands before the long lists of all.
    """
    gap = 16
    st.html(
        f"<style>.st-key-{key}-box {{ container-type: inline-size; }} "
        f".st-key-{key} {{ display: grid; gap: {gap}px; grid-template-columns: minmax(0, 1fr); }} "
        f"@container (min-width: {left + right + gap}px) {{ .st-key-{key} {{ "
        f"grid-template-columns: minmax(0, {left}fr) minmax(0, {right}fr); grid-template-rows: auto 1fr; }} "
        f".st-key-{key} > :nth-child(2) {{ grid-column: 2; grid-row: 1 / span 2; }} }}</style>"
    )
    with st.container(key=f"{key}-box"), st.container(key=key):
        first, beside, last = (st.container(key=f"{key}-{at}") for at in range(3))
    return first, beside, last
