"""A view as HTML that needs nothing else: for a report, a notebook, or a file opened from disk.

The view stands in a shadow root, so the page around it and the view cannot restyle one another. The payload travels as
JSON in a script element of a type that is not run, with `<` escaped: no token can end it. A notebook gets the whole
page in a frame of its own, because notebooks take declarative shadow roots out of what they show.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from string import Template

from analyses.views.payload import Payload, digest
from analyses.views.sources import View, sources, standalone
from model.settings import as_enum

LIGHT = (
    "--st-background-color:#ffffff;--st-secondary-background-color:#f4f6f8;--st-text-color:#1b2430;"
    "--st-border-color:#d5dae1;--st-primary-color:#a94b0a"
)
DARK = (
    "--st-background-color:#0f151d;--st-secondary-background-color:#18212c;--st-text-color:#e3e8ee;"
    "--st-border-color:#334155;--st-primary-color:#f0883e"
)

FRAGMENT = Template("""<div class="cutaway-view" id="$name"><template shadowrootmode="open">
<style>:host{display:block;$light}
@media (prefers-color-scheme:dark){:host{$dark}}
$css</style>$html</template></div>
<script type="application/json" id="$name-data">$data</script>
<script type="module">$js
standalone("$name", $entry)
</script>""")

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>$title</title><style>body{font-family:system-ui,sans-serif;margin:$margin;color:#1b2430;background:#ffffff}
h1{font-size:18px}.provenance{font-size:13px;opacity:.75}
@media (prefers-color-scheme:dark){body{color:#e3e8ee;background:#0f151d}}</style></head>
<body>$heading
$body
$fit</body></html>
""")

FIT = """<script>
// As high as what is in it, where the page around allows that.
new ResizeObserver(() => {
  try { frameElement.style.height = `${document.documentElement.offsetHeight + 4}px` } catch { /* another origin */ }
}).observe(document.documentElement)
</script>
"""

HEIGHTS = {View.ATTENTION: 680, View.HEAD_GRID: 420}
"""Pixels of a frame at first, and where it cannot be fitted."""


def embed(view: View | str, payload: Payload, name: str | None = None) -> str:
    """Return `payload` drawn by `view` as a piece of HTML for the body of a page that declares UTF-8.

    Args:
        view: which view.
        payload: what its builder returned.
        name: id of the element, unique in the page; by default made from the payload.
    """
    parts = sources(view)
    data = json.dumps(payload, allow_nan=False).replace("<", "\\u003c")
    return FRAGMENT.substitute(
        name=name or f"view-{digest(data)}",
        light=LIGHT,
        dark=DARK,
        css=parts.css,
        html=parts.html,
        data=data,
        js=f"{parts.js}\n{standalone()}",
        entry=parts.entry,
    )


def page(view: View | str, payload: Payload, title: str, rests_on: Sequence[str] = ()) -> str:
    """Return a whole HTML page that shows `payload` and can be opened from disk without any network.

    Args:
        view: which view.
        payload: what its builder returned.
        title: heading of the page.
        rests_on: checkpoint, n, seed and the like, for the line under the view and under a picture of it.
    """
    heading = f"<h1>{escape(title)}</h1>"
    line = f'\n<p class="provenance">{escape(" · ".join(rests_on))}</p>' if rests_on else ""
    body = embed(view, {**payload, "rests_on": list(rests_on)}) + line
    return PAGE.substitute(title=escape(title), heading=heading, margin="24px", body=body, fit="")


@dataclass(frozen=True, slots=True)
class Shown:
    """A view as the last value of a notebook's cell."""

    view: View
    payload: Payload
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "view", as_enum(View, self.view, "view"))

    def _repr_html_(self) -> str:
        heading = f"<h1>{escape(self.title)}</h1>" if self.title else ""
        inner = PAGE.substitute(
            title=escape(self.title or self.view),
            heading=heading,
            margin="0",
            body=embed(self.view, self.payload),
            fit=FIT,
        )
        height = HEIGHTS.get(self.view, 320)
        return (
            f'<iframe srcdoc="{escape(inner)}" title="{escape(self.title or self.view)}" '
            f'style="width:100%;height:{height}px;border:0;color-scheme:normal"></iframe>'
        )


def shown(view: View | str, payload: Payload, title: str = "") -> Shown:
    """Return `payload` drawn by `view` for a notebook, which shows what a cell ends with; it needs no network."""
    return Shown(as_enum(View, view, "view"), payload, title)
