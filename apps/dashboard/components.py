"""What pages are made of: the views, figures with their captions, findings, and what is said when something is missing.

A view sends one thing, what was picked: a trigger, so that the same pick twice is two picks. It is written into the
bound text inputs of the entrypoint, and through them into the address. Pointing at things never reaches this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

from analyses.registry import Finding
from analyses.views import View, sources
from analyses.views.payload import Payload, checked
from apps.dashboard.charts import spec_of
from apps.dashboard.state import toggled

PICKS = ("head", "cell", "memory")
"""What a view may set; each is the key of a bound input."""


def _register(view: View) -> Any:
    parts = sources(view)
    return st.components.v2.component(f"cutaway.{view}", html=parts.html, css=parts.css, js=parts.js)


MOUNTS = {view: _register(view) for view in View}
"""Registered once, at import: a component declared on every run would be a new one each time."""


def show(view: View, payload: Payload, key: str) -> None:
    """Draw `payload`; what is picked in it changes the selection."""
    MOUNTS[view](key=key, data=checked(payload), on_picked_change=lambda: _picked(key))


def _picked(key: str) -> None:
    picked = st.session_state[key].get("picked") or {}
    for name, value in picked.items():
        if name == "toggle":
            st.session_state["ablate"] = toggled(str(st.session_state.get("ablate", "")), str(value))
        elif name in PICKS:
            st.session_state[name] = str(value)


def chart(figure: Any, *, alt: str, key: str) -> None:
    """Draw a study's figure as the study drew it, on the page's own background."""
    spec = spec_of(figure, dark=st.context.theme.type == "dark")
    st.vega_lite_chart(spec, theme=None, width="content", key=key, alt=alt)


def findings(found: Iterable[Finding]) -> None:
    """List findings as plain text; a mark tells what was found from what was looked for and is not there."""
    with st.container(gap="xsmall"):
        for finding in found:
            st.text(f"{'●' if finding.found else '○'}  {finding.sentence}")


def caption(*parts: str | None) -> None:
    """Say what a number rests on: n, split, seed, checkpoint."""
    st.caption(literal("  ·  ".join(part for part in parts if part)))


def missing(what: str, *commands: str) -> None:
    """Say that an artefact is not there, and the command that makes it."""
    with st.container(border=True, key=f"missing-{what[:24]}".replace(" ", "-")):
        st.text(what)
        for command in commands:
            st.code(command, language="bash")


def damaged(error: Exception) -> None:
    """Say that an artefact cannot be read, and why."""
    st.error(literal(str(error)), icon=":material/broken_image:")


def literal(text: str) -> str:
    r"""Return `text` so that Markdown shows it as it is.

    >>> literal("*a* <b>")
    '\\*a\\* \\<b\\>'
    """
    return "".join(f"\\{character}" if character in MARKDOWN else character for character in text)


MARKDOWN = frozenset("\\`*_{}[]()<>#+-!|~$:&=^@")
