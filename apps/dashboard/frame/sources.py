"""The scripts and styles of the frame, from the package's own files."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from streamlit.components.v2 import component


def mounted(name: str, *, html: str) -> Any:
    """Return the component `name`, to be made once, at import: made on every run it would be a new one each time."""
    return component(f"cutaway.{name}", html=html, css=text(f"{name}.css"), js=text(f"{name}.js"))


def text(file: str) -> str:
    """The content of a file under static/."""
    return (files("apps.dashboard.frame") / "static" / file).read_text("utf-8")
