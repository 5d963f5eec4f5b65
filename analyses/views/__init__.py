"""Views: payload builders and the plain JavaScript that draws them, one code path for the app, a notebook and a report.

A builder turns tensors into a small dictionary of plain values; `sources(view)` gives the HTML, CSS and JavaScript that
draw it; `embed` and `page` put both into HTML that needs no network, and `shown` is what the last line of a notebook's
cell may be. Nothing here knows which host is showing it.
"""

from analyses.views.attention import attention_payload
from analyses.views.embed import Shown, embed, page, shown
from analyses.views.head_grid import Frames, head_grid_payload
from analyses.views.lens_table import Cells, lens_table_payload
from analyses.views.payload import Scale, visible
from analyses.views.sources import Sources, View, sources
from analyses.views.token_rows import TokenRow, token_rows_payload

__all__ = [
    "Cells",
    "Frames",
    "Scale",
    "Shown",
    "Sources",
    "TokenRow",
    "View",
    "attention_payload",
    "embed",
    "head_grid_payload",
    "lens_table_payload",
    "page",
    "shown",
    "sources",
    "token_rows_payload",
    "visible",
]
