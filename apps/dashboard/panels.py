"""Panels: every figure, view and table of a page, each with a menu that gives what it shows as a file or as Python.

A menu costs a page nothing: its rows are computed when it is opened, in a fragment of its own, so that the page is not
run again, and a file is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from analyses import exports, pictures
from analyses.notebook.words import about_words
from analyses.results import SavedResult
from analyses.views import View, page
from analyses.views.payload import Payload, live_fields
from apps.dashboard import components, data, snippets
from apps.dashboard.charts import spec_of
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.findings.pins import Offer
from model.errors import CutawayError

Rows = Callable[[], pd.DataFrame]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What a figure, a view or a table shows, apart from how it is drawn."""

    key: str
    """Stable, and unique on its page."""
    title: str
    """Heading of the menu."""
    rows: Rows
    """What CSV and JSON hold; called when the menu is opened, and by a table to be drawn."""
    about: Mapping[str, Any]
    """What the numbers rest on, in plain values: `about_saved` or `about_live`."""
    python: str
    """A snippet that ends by binding `rows` to the same table, with the library alone."""

    def file(self, ending: str) -> str:
        """The name of a file of it: run, step and panel."""
        return exports.file_name(self.about, self.key, ending)


def about_saved(saved: SavedResult, *, n: int, unit: str, **more: Any) -> dict[str, Any]:
    """What numbers of a saved result rest on: `n` of `unit`, and where the result comes from."""
    known = saved.provenance
    return {
        "study": known.study,
        "run": known.run,
        "step": known.step,
        "tokens_seen": known.tokens_seen,
        "weights_sha256": known.weights_sha256,
        "corpus_sha256": known.corpus_sha256,
        "split": known.config.get("split"),
        "n": n,
        "unit": unit,
        "seed": known.seed,
        "config": known.config,
        "config_hash": known.config_hash,
        "created": known.created,
        "computed_with": known.versions,
        **more,
    }


def about_step(saved: SavedResult, run: Run, step: int | None, *, n: int, unit: str, **more: Any) -> dict[str, Any]:
    """What numbers at one step of a result over training rest on: that step's checkpoint, not the result's last."""
    if step is None or step == saved.provenance.step:
        return about_saved(saved, n=n, unit=unit, **more)
    manifest = data.manifest(run, step)
    seen, weights = manifest.tokens_seen, manifest.weights_sha256
    return about_saved(saved, n=n, unit=unit, **more, step=step, tokens_seen=seen, weights_sha256=weights)


def about_live(
    run: Run, step: int | None, *, n: int, unit: str, seed: int | None = None, **more: Any
) -> dict[str, Any]:
    """What numbers of a pass made for the page rest on: `n` of `unit`, the checkpoint, and `seed` if one was used."""
    manifest = None if step is None else data.manifest(run, step)
    return {
        "run": run.name,
        "step": step,
        "tokens_seen": None if manifest is None else manifest.tokens_seen,
        "weights_sha256": None if manifest is None else manifest.weights_sha256,
        "n": n,
        "unit": unit,
        "seed": seed,
        **more,
    }


def chart(
    panel: Panel,
    figure: Any,
    *,
    alt: str,
    width: Literal["content", "stretch"] = "content",
    on_select: Callable[[], None] | None = None,
) -> None:
    """A figure, as its study drew it, on the page's own background; a click on it may call `on_select`."""
    with _framed(panel):
        components.chart(figure, alt=alt, key=panel.key, width=width, on_select=on_select)
        menu(panel, _offer(panel, figure=figure))


def small(panel: Panel, figure: Mapping[str, Any], said: str) -> None:
    """A small figure under the panel's title and a sentence that says what it shows."""
    with _framed(panel):
        components.panel(figure, panel.title, said, key=panel.key)
        menu(panel, _offer(panel, said, figure=figure))


def show(view: View, payload: Payload, panel: Panel, *, live: Mapping[str, Any] | None = None) -> None:
    """A view; what is picked in it changes the selection. `live` is what a click changes, which is sent apart."""
    told = {**payload, "rests_on": list(about_words(panel.about))}  # for the line under a picture of it
    with _framed(panel):
        components.show(view, told, panel.key, live=live)
        menu(panel, _offer(panel, view=view, payload={**payload, **live_fields(live or {})}))


def table(
    panel: Panel,
    *,
    alt: str,
    height: int | Literal["auto", "content"] = "auto",
    shown: pd.DataFrame | None = None,
    pick: str | None = None,
    picked: str | None = None,
    words: Mapping[str, str] | None = None,
    widths: Mapping[str, int] | None = None,
    helps: Mapping[str, str] | None = None,
) -> None:
    """The panel's rows as a table.

    Args:
        panel: its rows are what is drawn.
        alt: what the table is, for who cannot see it.
        height: in pixels, or as the content needs.
        shown: the same rows as they look on the page, where that is not as they are exported.
        pick: the column whose cell a click on a row selects.
        picked: what is ticked there, where it is not what the selection says.
        words: what may stand in a column of lists, each word with its colour.
        widths: pixels of columns.
        helps: what columns mean, for who points at their names.
    """
    rows = panel.rows() if shown is None else shown
    with _framed(panel):
        if pick is None:
            components.table(rows, alt=alt, height=height, widths=widths)
        else:
            tall = 320 if height == "auto" else height
            how = {"picked": picked, "words": words, "widths": widths, "helps": helps}
            components.pick_from(rows, pick, key=panel.key, alt=alt, height=tall, **how)
        menu(panel, _offer(panel))


def whole_study(saved: SavedResult, *, n: int, unit: str) -> None:
    """The study's own figure and table, drawn only while they are open: figures take longer than a click should."""
    box = st.expander("The study's own figure, and every number", key=f"whole-{saved.study}", on_change="rerun")
    if box.open:
        with box:
            about = about_saved(saved, n=n, unit=unit)
            python = snippets.saved_result(saved, "rows = saved.table()")
            title = f"Every number of {saved.study}"
            whole = partial(Panel, rows=saved.table, about=about, python=python)
            question = data.question(saved.study)
            chart(whole(key=f"figure-{saved.study}", title=question), saved.figure(), alt=question)
            table(whole(key=f"numbers-{saved.study}", title=title), alt=title)


def _framed(panel: Panel) -> Any:
    return st.container(key=f"{FRAME}{panel.key}", gap="xxsmall")


FRAME, MENU = "panel-", "menu-"
"""What the keys of a panel's container and of its menu begin with."""


STYLE = """<style>
[class*="st-key-panel-"] { position: relative; }
[class*="st-key-menu-"] { position: absolute !important; top: -22px; right: 0; z-index: 3; width: auto !important; }
[class*="st-key-menu-"] > [data-testid="stPopover"] button {
  min-height: 22px; height: 22px; padding: 0 4px; opacity: .6; position: relative;
}
[class*="st-key-menu-"] > [data-testid="stPopover"] button:is(:hover, :focus-visible, [aria-expanded="true"]) {
  opacity: 1;
}
[class*="st-key-menu-"] > [data-testid="stPopover"] button [data-testid="stMarkdownContainer"] {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}
[class*="st-key-menu-"] > [data-testid="stPopover"] button > div > [aria-hidden="true"] { display: none; }
[class*="st-key-panel-"] [data-testid="stElementToolbar"] { right: 30px; }
[class*="st-key-panel-"] [data-testid="stElementToolbar"] [aria-label^="Download as PNG"] { display: none; }
</style>"""
"""A menu is three dots in the corner above its panel; its name is there for who cannot see it.

Streamlit's own picture of a figure is not offered: it does not say what the figure rests on.
"""


def style() -> None:
    """Give menus their place; called once a page by the entrypoint."""
    st.html(STYLE)


def menu(panel: Panel, drawing: Offer) -> None:
    """The menu of a panel: nothing of it is computed while it is closed."""
    _menu(panel, drawing)


@st.fragment
def _menu(panel: Panel, drawing: Offer) -> None:
    if st.session_state.pop(_PINNED, False):
        st.rerun()  # the notebook's name stands in the address, which a fragment alone cannot change
    box = st.popover(
        f"Export {components.literal(panel.title)}", type="tertiary", icon=":material/more_horiz:", on_change="rerun",
        key=f"{MENU}{panel.key}",
    )  # fmt: skip
    if box.open:
        with box:
            _opened(panel, drawing)


def _opened(panel: Panel, drawing: Offer) -> None:
    st.markdown(f"**{components.literal(panel.title)}**")
    try:
        rows = panel.rows()
    except CutawayError as error:
        components.damaged(error)
        return
    said = about_words(panel.about)
    with st.container(horizontal=True, gap="xsmall"):
        if drawing.figure is not None:
            _file(panel, "PNG", "image/png", partial(_png, drawing.figure, panel.title, said))
            _file(panel, "SVG", "image/svg+xml", partial(_svg, drawing.figure, panel.title, said))
        if drawing.view is not None and drawing.payload is not None:
            _file(panel, "HTML", "text/html", partial(page, drawing.view, dict(drawing.payload), panel.title, said))
        _file(panel, "CSV", "text/csv", partial(exports.to_csv, rows))
        saying = {"title": panel.title, "address": address(), "python": panel.python}
        _file(panel, "JSON", "application/json", partial(exports.to_json, rows, panel.about, **saying))
        st.button("Pin", key=f"pin-{panel.key}", icon=":material/push_pin:", on_click=_pin, args=(drawing, panel))
    components.caption(f"{len(rows):,} rows", "CSV: a text that a spreadsheet would take for a formula has ' before it")
    st.code(panel.python, language="python")


def _pin(drawing: Offer, panel: Panel) -> None:
    pins.pin_panel(drawing)
    st.session_state[f"{MENU}{panel.key}"] = False
    st.session_state[_PINNED] = True


_PINNED = "_pinned_from_menu"
"""Set where something was pinned, until the page has run again."""


def _offer(panel: Panel, *sentences: str, **drawn: Any) -> Offer:
    return Offer(panel=panel, title=panel.title, sentences=sentences, **drawn)


def _file(panel: Panel, kind: str, mime: str, make: Callable[[], str | bytes]) -> None:
    st.download_button(
        kind,
        make,
        panel.file(kind.lower()),
        mime,
        key=f"{kind.lower()}-{panel.key}",
        on_click="ignore",
        type="secondary",
    )


def _png(figure: Any, title: str, rests_on: Sequence[str]) -> bytes:
    return pictures.to_png(_on_paper(figure), title, rests_on)


def _svg(figure: Any, title: str, rests_on: Sequence[str]) -> str:
    return pictures.to_svg(_on_paper(figure), title, rests_on)


def _on_paper(figure: Any) -> dict[str, Any]:
    """The figure on white, wide enough where the page gave it its width."""
    spec = spec_of(figure, dark=False)
    return spec if "width" in spec or not {"mark", "layer"} & set(spec) else {**spec, "width": PAPER_WIDTH}


PAPER_WIDTH = 360
"""Of a figure that takes its width from the page."""


def address() -> str:
    """The part of the address that shows what is shown now, without the reader's notebook."""
    query = {name: st.query_params.get_all(name) for name in st.query_params if name != pins.NOTES}
    return f"?{urlencode(query, doseq=True)}"
