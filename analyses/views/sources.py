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

    LENS_TABLE = "lens_table"
    """What the stream says at every place of every position."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """All that a host needs to mount a view."""

    html: str
    css: str
    js: str
    """One module whose default export is called with `{data, parentElement, setTriggerValue}`."""

    entry: str
    """Name of that default export."""


SHARED = ("common.js", "live.js", "png.js")
"""Scripts that every view begins with."""

SCRIPTS = {
    View.ATTENTION: ("attention_data.js", "attention_paint.js", "attention_input.js", "attention.js"),
    View.HEAD_GRID: ("head_grid_frames.js", "head_grid.js"),
    View.TOKEN_ROWS: ("token_rows.js",),
    View.LENS_TABLE: ("lens_table_data.js", "lens_table.js"),
}

SKELETONS = {
    View.ATTENTION: (
        "attentionView",
        """<div class="view attention">
  <div class="side">
    <div class="heads" role="group" aria-label="heads"></div>
    <div class="live" aria-live="polite"></div>
    <div class="far" hidden>
      <div class="stack"><canvas class="far-paint" aria-hidden="true"></canvas><canvas class="overview" tabindex="0"
        role="application" aria-label="the whole text, small: arrow keys move what is drawn in full"></canvas></div>
      <div class="badge"></div>
    </div>
    <div class="tokens" role="group" aria-label="tokens"></div>
  </div>
  <div class="whole">
    <div class="bar-row"><span class="title"></span><span class="bar"></span></div>
    <div class="stack"><canvas class="paint" aria-hidden="true"></canvas><canvas class="pattern" tabindex="0"
      role="application" aria-label="attention pattern: arrow keys move, Enter locks, Escape releases"></canvas></div>
    <div class="foot"><span class="label"></span><span class="scale"></span><span class="sent"></span></div>
  </div>
</div>""",
    ),
    View.HEAD_GRID: (
        "headGrid",
        """<div class="view head-grid">
  <div class="scale"></div>
  <div class="frames" role="group" aria-label="checkpoints" hidden></div>
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
    View.LENS_TABLE: (
        "lensTable",
        """<div class="view lens-table">
  <div class="bar-row"><span class="bar"></span><span class="scale"></span></div>
  <div class="scroll"><table role="grid"><thead></thead><tbody></tbody><tfoot></tfoot></table></div>
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
    js = "\n".join(_read(name) for name in (*SHARED, *SCRIPTS[view]))
    return Sources(html=html, css=_read("views.css"), js=js, entry=entry)


@cache
def follower() -> Sources:
    """Return the parts of the mount that draws nothing and hands what a host confirms to the view it names."""
    return Sources(
        html="<span hidden>\n</span>", css="", js=f"{_read('live.js')}\n{_read('follow.js')}", entry="follow"
    )


@cache
def standalone() -> str:
    """Return the script of a page that has no server: `standalone(name, entry)` draws the element of that name."""
    return _read("standalone.js")


def _read(name: str) -> str:
    return (files("analyses.views") / "static" / name).read_text("utf-8")
