"""The HTML skeleton, style and script of each view, read from the package's own files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from model.settings import as_enum


class View(StrEnum):
    """A kind of view; the value is the name of its script."""

    ATTENTION = "attention"
    """Head thumbnails, one pattern, the tokens."""

    HEAD_GRID = "head_grid"
    """One cell per head."""

    TOKEN_ROWS = "token_rows"
    """Pieces of text with coloured tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """All that a host needs to mount a view."""

    html: str
    css: str
    js: str
    """One module whose default export is called with `{data, parentElement, setTriggerValue}`."""

    entry: str
    """Name of that default export."""


SKELETONS = {
    View.ATTENTION: (
        "attentionView",
        """<div class="view attention">
  <div class="side">
    <div class="heads" role="group" aria-label="heads"></div>
    <div class="live" aria-live="polite"></div>
    <div class="tokens" aria-label="tokens"></div>
  </div>
  <div class="whole">
    <div class="bar-row"><span class="title"></span><span class="bar"></span></div>
    <canvas class="pattern" tabindex="0" role="application"
      aria-label="attention pattern: arrow keys move, Enter locks, Escape releases"></canvas>
  </div>
</div>""",
    ),
    View.HEAD_GRID: (
        "headGrid",
        """<div class="view head-grid">
  <div class="scale"></div>
  <div class="grid" role="grid"></div>
  <div class="live" aria-live="polite"></div>
</div>""",
    ),
    View.TOKEN_ROWS: (
        "tokenRows",
        """<div class="view token-rows">
  <div class="scale"></div>
  <div class="lines"></div>
  <div class="live" aria-live="polite"></div>
</div>""",
    ),
}


def sources(view: View | str) -> Sources:
    """Return the parts of `view`; its script is the shared file and its own, joined: a host's blob cannot import."""
    return _sources(as_enum(View, view, "view"))


@cache
def _sources(view: View) -> Sources:
    entry, html = SKELETONS[view]
    return Sources(html=html, css=_read("views.css"), js=f"{_read('common.js')}\n{_read(f'{view}.js')}", entry=entry)


def _read(name: str) -> str:
    return (files("analyses.views") / "static" / name).read_text("utf-8")
