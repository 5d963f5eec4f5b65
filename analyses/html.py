"""Small pieces of a page: text made safe, tables, figures that share a page without getting in each other's way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from analyses.registry import Finding, Passage


def paragraphs(text: str) -> str:
    r"""Blank-line separated text as paragraphs; `code` in backticks.

    >>> paragraphs("one < two\n\nthree `x`")
    '<p>one &lt; two</p>\n<p>three <code>x</code></p>'
    """
    return "\n".join(f"<p>{inline(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def inline(text: str) -> str:
    """One line made safe, with `code` in backticks and *stress* in asterisks."""
    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"(?<![\w*])\*([^*\n]+)\*(?![\w*])", r"<em>\1</em>", coded)


def findings_list(findings: Iterable[Finding]) -> str:
    """Sentences, each marked as found, not found or not to be told; the mark is a word, not only a colour."""
    kinds = {True: "found", False: "denied", None: "unknown"}
    items = [f'<li class="{kinds[each.found]}">{escape(each.sentence, quote=False)}</li>' for each in findings]
    return f'<ul class="findings">\n{"".join(items)}\n</ul>' if items else "<p>This study reports no findings.</p>"


def facts(pairs: Mapping[str, Any]) -> str:
    """A list of names and values; what is None is left out."""
    rows = [
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in pairs.items() if value is not None
    ]
    return f'<dl class="facts">{"".join(rows)}</dl>'


def table(rows: pd.DataFrame, *, limit: int = 60) -> str:
    """The first `limit` rows, numbers to four significant digits, and a line that says how many were left out."""
    classes = [' class="number"' if dtype.kind in "iuf" else "" for dtype in rows.dtypes]
    head = "".join(f"<th{kind}>{escape(str(name))}</th>" for kind, name in zip(classes, rows.columns, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{_cell(value)}</td>' for kind, value in zip(classes, row, strict=True))}</tr>"
        for row in rows.head(limit).itertuples(index=False, name=None)
    )
    left_out = (
        f'<p class="provenance">The first {limit} of {len(rows):,} rows; table.csv holds all.</p>'
        if len(rows) > limit
        else ""
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{left_out}'


def passages(shown: Sequence[Passage]) -> str:
    """Text whose tokens are shaded, group by group; the last token that was read is outlined, what follows is pale."""
    groups = dict.fromkeys(passage.group for passage in shown)
    return "".join(
        f'<h3>{escape(group)}</h3><ol class="passages">'
        f"{''.join(_passage(passage) for passage in shown if passage.group == group)}</ol>"
        for group in groups
    )


def _passage(passage: Passage) -> str:
    spans = [
        f'<span style="--shade:{shade:.2f}" title="{shade:.0%}">{escape(token)}</span>'
        if shade >= _PALE
        else escape(token)
        for token, shade in zip(passage.tokens, passage.shades, strict=True)
    ]
    spans[-1] = f"<b>{spans[-1]}</b>"
    after = "" if passage.after is None else f"<i>{escape(passage.after)}</i>"
    return f"<li><small>{escape(passage.what)}</small><code>{''.join(spans)}{after}</code></li>"


_PALE = 0.03
"""Below this a token is not shaded."""


def figure(svg: str, *, name: str, reading: str, caption: str) -> str:
    """A figure with what it rests on and how to read it. `name` must be its own on the page."""
    return (
        f'<figure id="{escape(name)}"><div class="plate">{inline_svg(svg, name, label=caption)}</div>'
        f"<figcaption><b>How to read it.</b> {inline(reading)} {inline(caption)}</figcaption></figure>"
    )


def inline_svg(svg: str, name: str, *, label: str = "") -> str:
    """An SVG file as an element of a page: its ids made its own, its size given up to the page.

    Two drawings on one page would otherwise share the ids of their gradients and clips, and the second would borrow the
    first one's colours.
    """
    drawing = svg[svg.index("<svg") :]
    drawing = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', drawing)
    drawing = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", drawing)
    drawing = re.sub(r'((?:xlink:)?href)="#([^"]+)"', rf'\1="#{name}-\2"', drawing)
    return drawing.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)


def _cell(value: Any) -> str:
    if value is None or value != value:  # NaN is the one value that differs from itself
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, int):
        return f"{float(value):.4g}"
    return escape(str(value))
