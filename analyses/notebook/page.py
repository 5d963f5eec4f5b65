"""A notebook as one HTML file: every pin with its words, its drawing and its numbers, and where they come from.

The file asks nothing of any network, and says so to the browser. Figures are drawn here, as SVG; views of the dashboard
are drawn by the reader's browser, from the payload they were pinned with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from analyses import html
from analyses.figures import spec_svg
from analyses.notebook.pins import Notebook, Pin
from analyses.notebook.words import address, rests_on, when
from analyses.registry import Finding
from analyses.views import embed

MOST_SHOWN = 40
"""Rows of a table on the page; the notebook's own file holds more."""
WIDTH = 420
"""Of a figure that took its width from the page it was on."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What stands below the pins: findings under a heading."""

    heading: str
    findings: tuple[Finding, ...]


def page(notebook: Notebook, title: str, *, beside: Sequence[Beside] = (), base: str = "") -> str:
    """The notebook as the text of one HTML file.

    Args:
        notebook: its pins.
        title: what the page is called.
        beside: what stands below the pins.
        base: where the dashboard is served, to link to; without it the address is only shown.
    """
    numbered = list(enumerate(notebook.pins, start=1))
    contents = "".join(f'<li><a href="#pin-{pin.id}">{escape(pin.title)}</a></li>' for _, pin in numbered)
    body = [
        f'<header><p class="kicker">Cutaway findings</p><h1>{escape(title)}</h1>'
        f'<p class="standfirst">{_counted(len(numbered))}</p></header>',
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>',
        *(_section(pin, number, base) for number, pin in numbered),
        *(f"<section><h2>{escape(each.heading)}</h2>{html.findings_list(each.findings)}</section>" for each in beside),
        "<footer>Written by Cutaway. It needs no network. A pin holds what was seen when it was pinned.</footer>",
    ]
    return _PAGE.format(title=escape(title), style=_style(), body="\n".join(body))


def drawn_figure(spec: dict[str, Any]) -> str | None:
    """A pinned figure as SVG; None where it is none that can be drawn, as a file from elsewhere may hold."""
    wide = spec if "width" in spec or not {"mark", "layer"} & spec.keys() else {**spec, "width": WIDTH}
    try:
        return spec_svg(wide)
    except (ValueError, RuntimeError):  # what the drawing library raises, without classes of its own
        return None


def _counted(n: int) -> str:
    if n == 0:
        return "Nothing was pinned."
    if n == 1:
        return "One thing that was seen and pinned, as it was then."
    return f"{n} things that were seen and pinned, in the author's order, as they were then."


def _section(pin: Pin, number: int, base: str) -> str:
    note = "".join(f"<p>{escape(line)}</p>" for line in pin.note.splitlines() if line.strip())
    noted = f'<blockquote class="note">{note}</blockquote>' if note else ""
    said = "".join(f"<li>{escape(each, quote=False)}</li>" for each in pin.sentences)
    cut = "".join(f'<p class="provenance">{escape(each)}</p>' for each in pin.cut)
    return (
        f'<section id="pin-{pin.id}"><h2>{number}. {escape(pin.title)}</h2>{noted}'
        f"{f'<ul>{said}</ul>' if said else ''}{_drawing(pin)}"
        f'<p class="provenance">{escape(" · ".join(rests_on(pin)))}</p>{cut}{_where(pin, base)}'
        f"<details><summary>The numbers</summary>{_numbers(pin)}</details>"
        f"<details><summary>In Python</summary><pre>{escape(pin.python)}</pre></details></section>"
    )


def _drawing(pin: Pin) -> str:
    if pin.view is not None and pin.payload is not None:
        told = {**pin.payload, "rests_on": list(rests_on(pin))}
        return f"<figure>{embed(pin.view, told, f'view-{pin.id}')}</figure>"
    if pin.figure is None:
        return ""
    svg = drawn_figure(pin.figure)
    if svg is None:
        return '<p class="provenance">Its figure cannot be drawn.</p>'
    drawing = html.inline_svg(svg, f"figure-{pin.id}", label=pin.title)
    return f'<figure><div class="plate">{drawing}</div></figure>'


def _where(pin: Pin, base: str) -> str:
    path = escape(address(pin), quote=True)
    link = f'<a href="{escape(base.rstrip("/"), quote=True)}{path}">as it is today</a>: ' if base else "today: "
    return f'<p class="provenance">Seen {escape(when(pin))}; {link}<code>{path}</code></p>'


def _numbers(pin: Pin) -> str:
    shown = html.table(pin.rows.frame().head(MOST_SHOWN))
    n = min(MOST_SHOWN, len(pin.rows.values))
    return shown if n == pin.rows.n else f'{shown}<p class="provenance">The first {n} of {pin.rows.n:,} rows.</p>'


def _style() -> str:
    return (files("analyses") / "static" / "report.css").read_text(encoding="utf-8") + _NOTE


_NOTE = """
main, li, p, h2, td { overflow-wrap: anywhere; }
pre { white-space: pre-wrap; }
blockquote.note {
  margin: 0 0 1rem; padding: .2rem 0 .2rem 1rem; border-left: 3px solid var(--accent); font-style: italic;
}
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""
