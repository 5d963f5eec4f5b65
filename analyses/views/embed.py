"""A view as HTML that needs nothing else: for a report, a notebook, or a file opened from disk.

The view stands in a shadow root, so the page around it and the view cannot restyle one another. The payload travels as
JSON in a script element of a type that is not run, with `<` escaped: no token can end it.
"""

from __future__ import annotations

import json
from html import escape
from string import Template

from analyses.views.payload import Payload, digest
from analyses.views.sources import View, sources

LIGHT = "--st-background-color:#ffffff;--st-text-color:#1b2430;--st-border-color:#d5dae1;--st-primary-color:#c2570c"

FRAGMENT = Template("""<div class="cutaway-view" id="$name"><template shadowrootmode="open">
<style>:host{display:block;$theme}
$css</style>$html</template></div>
<script type="application/json" id="$name-data">$data</script>
<script type="module">$js
const host = document.getElementById("$name")
const data = JSON.parse(document.getElementById("$name-data").textContent)
const show = (next) => $entry({
  data: next, parentElement: host.shadowRoot, setTriggerValue: (_, picked) => show(apply(next, picked)),
})
// Without a server the page itself answers what is picked.
const apply = (last, picked) => {
  const head = last.heads?.indexOf(picked.head)
  if (picked.head && last.held) return last.held.includes(head) ? { ...last, focus: head } : last
  if (picked.head) return { ...last, chosen: picked.head }
  if (picked.cell === undefined) return last
  const [query, key] = picked.cell.split(".").map(Number)
  return { ...last, lock: picked.cell ? { query, key } : null }
}
show(data)
</script>""")

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title><style>body{font-family:system-ui,sans-serif;margin:24px;color:#1b2430}</style></head>
<body><h1 style="font-size:18px">$title</h1>
$body
</body></html>
""")


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
        theme=LIGHT,
        css=parts.css,
        html=parts.html,
        data=data,
        js=parts.js,
        entry=parts.entry,
    )


def page(view: View | str, payload: Payload, title: str) -> str:
    """Return a whole HTML page that shows `payload` and can be opened from disk without any network."""
    return PAGE.substitute(title=escape(title), body=embed(view, payload))
