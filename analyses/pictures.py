"""A figure as a picture that says below its drawing what it rests on: a picture is what leaves the page for a paper.

The line is set around the finished drawing, so that no figure is laid out anew for it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from analyses.figures import FONT, PAPER, QUIET, spec_svg
from analyses.views.payload import visible_label

SIZE, LINE, MARGIN = 9.5, 13, 8
"""Pixels: of the letters, from line to line, and around."""

CHARACTER = 5.2
"""Pixels that a Latin character of that size takes on average, generously: nothing here can measure text."""

NARROWEST = 260
"""Pixels that a picture is wide at least, so that the line is not broken into words."""

_ROOT = re.compile(r'<svg\b[^>]*\bwidth="([\d.]+)" height="([\d.]+)"')
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold, whatever it is written as."""


def to_svg(spec: Mapping[str, Any], title: str, rests_on: Sequence[str]) -> str:
    """A figure in Vega-Lite as the text of an SVG file, with `rests_on` in a line under it.

    Args:
        spec: the figure, with its look.
        title: what it shows, for who cannot see it.
        rests_on: checkpoint, n, split, seed and the like.
    """
    drawn = spec_svg(spec)
    root = _ROOT.search(drawn)
    assert root is not None, "an SVG by Vega says how large it is"
    width, height = (float(side) for side in root.groups())
    wide = max(width, NARROWEST)
    said = [visible_label(part) for part in rests_on]  # nothing in a name of a run turns the line around
    lines = wrapped(said, int((wide - 2 * MARGIN) / CHARACTER))
    tall = height + len(lines) * LINE + MARGIN * bool(lines)
    texts = "".join(
        f'<text x="{MARGIN}" y="{height + (at + 1) * LINE - 3:g}">{_text(line)}</text>' for at, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{wide:g}" height="{tall:g}" '
        f'viewBox="0 0 {wide:g} {tall:g}"><title>{_text(title)}</title><desc>{_text(" · ".join(said))}</desc>'
        f'<rect width="{wide:g}" height="{tall:g}" fill="{PAPER}"/>{drawn}'
        f'<g font-family="{FONT}" font-size="{SIZE}" fill="{QUIET}">{texts}</g></svg>'
    )


def to_png(spec: Mapping[str, Any], title: str, rests_on: Sequence[str], *, scale: float = 2.0) -> bytes:
    """The same as a PNG file, `scale` pixels to each of the figure's."""
    import vl_convert

    return vl_convert.svg_to_png(to_svg(spec, title, rests_on), scale=scale)


def wrapped(parts: Sequence[str], most: int) -> list[str]:
    """Lines as wide as `most` Latin characters at most, broken between parts where that can be.

    >>> wrapped(["demo@512", "n = 64 sequences", "seed 0"], 30)
    ['demo@512 · n = 64 sequences', 'seed 0']
    """
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines else part
        if lines and _width(longer) <= most:
            lines[-1] = longer
        else:
            lines += _cut(part, most)
    return lines


def _cut(part: str, most: int) -> list[str]:
    pieces, used = [""], 0
    for character in part:
        width = _width(character)
        if pieces[-1] and used + width > most:
            pieces, used = [*pieces, ""], 0
        pieces[-1] += character
        used += width
    return pieces


def _width(text: str) -> int:
    """How many Latin characters are as wide: two for each of the wide ones of East Asia, and emoji."""
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def _text(text: str) -> str:
    return escape(_UNFIT.sub("\ufffd", text), quote=False)
