"""What pages are made of: the views, figures with their captions, findings, and what is said when something is missing.

A view sends one thing, what was picked: a trigger, so that the same pick twice is two picks. It is written into the
bound text inputs of the entrypoint, and through them into the address. Pointing at things never reaches this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import pandas as pd
import streamlit as st
from streamlit.components.v2 import component

from analyses.results import SavedResult
from analyses.shelf import Shelf
from analyses.views import View, sources
from analyses.views.payload import Payload, apart, checked, live_fields
from analyses.views.sources import follower
from apps.dashboard import data, keys, telling
from apps.dashboard.address import Part, choice_of, restore, write
from apps.dashboard.charts import inlined, spec_of
from apps.dashboard.data import Run
from apps.dashboard.state import parse_step, toggled
from model.errors import CutawayError

PICKS = ("head", "cell", "memory", "token", "place", "cells", "shows", "strip")
"""What a view may set: keys of bound inputs, and of parts of the address that pages keep."""


def _register(view: View) -> Any:
    parts = sources(view)
    return component(f"cutaway.{view}", html=parts.html, css=parts.css, js=parts.js)


MOUNTS = {view: _register(view) for view in View}
"""Registered once, at import: a component declared on every run would be a new one each time."""

_FOLLOWER = component("cutaway.follow", html=follower().html, js=follower().js)


def show(view: View, payload: Payload, key: str, *, live: Mapping[str, Any] | None = None) -> None:
    """Draw `payload`; what is picked in it changes the selection.

    What a click changes (`analyses.views.payload.LIVE`) is sent apart from the rest, by a second mount that draws
    nothing: the rest then stays as it was, and none of it is sent again. `live` is laid over what the payload says.
    """
    for name, what in _answered(view, payload):
        keys.browser(name, what)
    big, small = apart({**payload, **live_fields(live or {})})
    with st.container(gap=None):
        MOUNTS[view](key=key, data=checked({**big, "follows": key}), on_picked_change=lambda: _picked(key))
        _FOLLOWER(key=f"{key}_live", data=checked({"name": key, "fields": small}))


def _answered(view: View, payload: Payload) -> Iterator[tuple[str, str]]:
    """The keys that a view answers in the browser, wherever the focus is, and what they do; told in the help."""
    if view is View.ATTENTION:
        yield "s", "source and destination exchanged"
    if payload.get("other") or len(payload.get("tables", ())) > 1:
        yield "d", "one, the other, and their difference"


def _picked(key: str) -> None:
    picked = (st.session_state.get(key) or {}).get("picked") or {}  # nothing, where the page was left meanwhile
    for name, value in picked.items():
        if name == "toggle":
            toggle_ablation(str(value))
        elif name == "step":
            st.session_state["step"] = parse_step(str(value))
        elif name in PICKS:
            st.session_state[name] = str(value)


SNUG = {"left": 0, "right": 4, "top": 4, "bottom": 2}
"""Pixels round a figure on a page; unless told, Streamlit keeps a blank strip of 20 below."""


def chart(
    figure: Any,
    *,
    alt: str,
    key: str,
    width: Literal["content", "stretch"] = "content",
    on_select: Callable[[], None] | None = None,
) -> None:
    """Draw a study's figure as the study drew it, on the page's own background; a click may call `on_select`."""
    spec = spec_of(figure, dark=st.context.theme.type == "dark")
    spec = {"padding": SNUG, **spec}
    if on_select is None:
        spec = inlined(spec)
    st.vega_lite_chart(spec, theme=None, width=width, key=key, alt=alt, on_select=on_select or "ignore")


def panel(figure: Mapping[str, Any], title: str, said: str, *, key: str) -> None:
    """A small figure under its title and a sentence that says what it shows."""
    with st.container(gap="xxsmall"):
        st.caption(f"**{literal(title)}**  \n{literal(said)}")
        untitled = {name: part for name, part in figure.items() if name != "title"}
        chart(untitled, alt=said, key=key, width="stretch")


def beside(n: int, least: int, *, in_a_row: int | None = None) -> list[Any]:
    """`n` places in one row, or so many `in_a_row`, and in fewer where each would have less than `least` pixels."""
    grid = st.grid(max(1, in_a_row or n), min_column_width=least, gap=("small", "medium"))
    return [grid.cell() for _ in range(n)]


findings, findings_in_short = telling.findings, telling.findings_in_short
"""Findings by their leads, the sentences behind folds."""


def sentences(texts: Iterable[str]) -> None:
    """A few sentences, close together."""
    with st.container(gap="xsmall"):
        for text in texts:
            st.text(text)


def table(
    rows: pd.DataFrame, *, alt: str, height: int | Literal["auto", "content"] = "auto",
    widths: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """A table whose fractions have three decimals, and its p four; `widths` are pixels of columns."""
    fractions = rows.select_dtypes("floating").columns
    digits = {name: 4 if str(name).endswith("p") else 3 for name in fractions}
    wide = dict(widths or {})
    shown: dict[str, Any] = {name: st.column_config.Column(width=pixels) for name, pixels in wide.items()}
    shown |= {
        str(name): st.column_config.NumberColumn(format=f"%.{n}f", width=wide.get(str(name)))
        for name, n in digits.items()
    }
    st.dataframe(rows, hide_index=True, column_config=shown, height=height, alt=alt, placeholder="")


def whole_study(saved: SavedResult) -> None:
    """The study's own figure and table, drawn only while they are open: figures take longer than a click should."""
    box = st.expander("The study's own figure, and every number", key=f"whole-{saved.study}", on_change="rerun")
    if box.open:
        with box:
            chart(saved.figure(), alt=data.question(saved.study), key=f"figure-{saved.study}")
            table(saved.table(), alt=f"Every number of {saved.study}")


def run_line(run: Run, step: int | None) -> None:
    """Say in one line which model is looked at."""
    if run.model is None or step is None:
        damaged(CutawayError(f"{run.name} cannot be opened: {run.fault}"))
        return
    model, manifest = run.model, data.manifest(run, step)
    caption(
        f"{run.name}@{step}",
        f"{model.n_layers} layers of {model.n_heads} heads",
        f"d_model {model.d_model}",
        f"{model.norm} {model.norm_kind}",
        f"positions {model.positions}",
        f"FFN {model.ffn}",
        f"{model.n_params:,} parameters",
        f"{manifest.tokens_seen:,} tokens seen" if run.imported_from is None else "imported",
        f"weights {manifest.weights_sha256[:8]}",
    )


def provenance(saved: SavedResult, *more: str | None) -> None:
    """Say where a saved result comes from."""
    known = saved.provenance
    checkpoint = "initialization" if known.run is None else f"{known.run}@{known.step}"
    weights = None if known.weights_sha256 is None else f"weights {known.weights_sha256[:8]}"
    caption(*more, checkpoint, weights, f"seed {known.seed}", f"config {known.config_hash}", known.created[:10])


def pick_from(
    rows: pd.DataFrame,
    name: str,
    *,
    key: str,
    alt: str,
    height: int | Literal["content"] = 320,
    picked: str | None = None,
    words: Mapping[str, str] | None = None,
    widths: Mapping[str, int] | None = None,
    helps: Mapping[str, str] | None = None,
) -> None:
    """A table in which a click anywhere in a row selects what its column `name` says.

    The row of `picked`, or else of what is selected, is ticked, however it came to be selected. `words` are what may
    stand in a column of lists, each word with its colour; `widths` are pixels of columns, `helps` what they mean.
    """

    def clicked() -> None:
        selection = st.session_state[key].selection
        at = [row for row, _ in selection.cells] or selection.rows
        if at:
            st.session_state[name] = str(rows.iloc[at[0]][name])

    _tick(list(rows[name]), picked or str(st.session_state.get(name) or ""), key)
    wide, said, fractions = widths or {}, helps or {}, rows.select_dtypes("floating").columns
    shown: dict[str, Any] = {
        column: st.column_config.Column(width=wide.get(column), help=said.get(column)) for column in {**wide, **said}
    }
    shown |= {
        column: st.column_config.NumberColumn(format="%.3f", width=wide.get(column), help=said.get(column))
        for column in fractions
    }
    listed = [column for column in rows if any(isinstance(cell, list) for cell in rows[column])] if words else []
    for column in listed:
        options, colours = list(words or {}), list((words or {}).values())
        shown[column] = st.column_config.MultiselectColumn(
            options=options, color=colours, width=wide.get(column, 118), help=said.get(column)
        )
    st.dataframe(
        rows, hide_index=True, column_config=shown, height=height, key=key, alt=alt, on_select=clicked,
        selection_mode=["single-row", "single-cell"], placeholder="",
    )  # fmt: skip


def _tick(values: Sequence[Any], picked: str, key: str) -> None:
    """Tick the row of `picked` before its table is drawn; a clicked cell is forgotten, so that any click is a new one.

    What is ticked already is left alone: what is written is sent to the browser again.
    """
    rows = [at for at, value in enumerate(values) if str(value) == picked][:1]
    wanted = {"selection": {"rows": rows, "columns": [], "cells": []}}
    known = st.session_state.get(key)
    if (known or {"selection": {"rows": [], "columns": [], "cells": []}}) != wanted:
        st.session_state[key] = wanted


def toggle_ablation(place: str) -> None:
    """Put a place into the set to ablate, or take it out; a callback for buttons."""
    st.session_state["ablate"] = toggled(str(st.session_state.get("ablate", "")), place)


def set_ablation(places: str) -> None:
    """Choose the places to ablate; a callback for buttons."""
    st.session_state["ablate"] = places


def caption(*parts: str | None) -> None:
    """Say what a number rests on: n, split, seed, checkpoint."""
    st.caption(literal("  ·  ".join(part for part in parts if part)))


def missing(what: str, *commands: str) -> None:
    """Say that an artefact is not there, and the command that makes it."""
    with st.container(border=True, key=f"missing-{what[:24]}".replace(" ", "-")):
        st.text(what)
        for command in commands:
            st.code(command, language="bash")


def on_shelf(study: str, run: Run, step: int | None, shelf: Shelf) -> SavedResult | None:
    """The saved result at this step; where there is none, that is said, and so is what cannot be read.

    Of a run without a checkpoint its page has said that nothing can be asked.
    """
    if step is None:
        return None
    faults(study, run, step, shelf=shelf)
    every = shelf.every(step)
    if not every:
        left_out = any(fault.step in (None, step) for fault in data.faults(shelf))
        missing_result(study, run, step, shelf, left_out=left_out)
        return None
    labels = {
        saved.provenance.config_hash: f"{data.settings_of(saved)} ({saved.provenance.created[:16].replace('T', ' ')})"
        for saved in every
    }
    asked = Part(
        name=study, key=f"result-{study}", read=choice_of(list(labels), f"{study} result at step {step}"),
        otherwise=next(iter(labels)),
    )  # fmt: skip
    for notice in restore([asked]):
        st.warning(literal(notice), icon=":material/link_off:")
    if st.session_state.get(asked.key) not in labels:
        st.session_state[asked.key] = asked.otherwise
    if len(every) == 1:
        return every[0]
    chosen = st.selectbox("Result", list(labels), format_func=labels.__getitem__, key=asked.key)
    write([asked])
    return next(saved for saved in every if saved.provenance.config_hash == chosen)


def studied(saved: SavedResult | None, study: str, draw: Callable[[SavedResult], None], *, where: str) -> None:
    """Draw what needs a saved result; where there is none, say so, `on_shelf` having said what makes it.

    `where` says what there is none of, as in "at this checkpoint".
    """
    if saved is None:
        caption(f"This comes from {study}, which has no result {where}; the command stands above.")
    else:
        draw(saved)


def faults(study: str, run: Run, step: int | None, *, commands: bool = True, shelf: Shelf | None = None) -> None:
    """What is left out of a study's results: of damaged ones why; what has to be made again at this step, and how.

    Of other steps only those of other weights are told: they are missing wherever several steps stand together. Pages
    that list commands of what is missing anyway need none here. The study's shelf is read anew unless it is given.
    """
    found = data.faults(shelf or data.shelf(run, study))
    if any(fault.outdated and fault.step == step for fault in found):
        caption(f"A result at step {step} was saved by another version of {study} and is left out: run it again.")
    changed = [fault for fault in found if fault.of_other_weights]
    here = dict.fromkeys(fault.command for fault in changed if fault.step == step)
    if here:
        caption(
            f"What {study} found at step {step} is of other weights than the checkpoint holds by now: run it again."
        )
        for command in here if commands else ():
            st.code(command, language="bash")
    elsewhere = sorted({fault.step for fault in changed if fault.step is not None} - {step})
    if elsewhere:
        steps = ", ".join(f"{each:,}" for each in elsewhere)
        caption(f"Results of {study} at other steps are left out, being of other weights by now: {steps}.")
    broken = [fault for fault in found if not (fault.outdated or fault.of_other_weights)]
    for fault in broken[:1]:
        damaged(CutawayError(fault.sentence))
    if len(broken) > 1:
        with st.expander(f"Results that cannot be read: {len(broken) - 1} more", type="compact"):
            for fault in broken[1:]:
                st.caption(literal(fault.sentence))


def missing_result(study: str, run: Run, step: int | None, shelf: Shelf, *, left_out: bool = False) -> None:
    """Say that a study has no result at this step, which command makes it, and at which steps there are some.

    One that was left out, as was told, is none that is not there.
    """
    that = " that can be shown" if left_out else ""
    missing(f"There is no {study} result at step {step}{that}.", f"cutaway run {study} {data.spelled(run, step)}")
    if shelf.steps:
        with st.container(horizontal=True, gap="small"):
            for other in shelf.steps:
                st.button(f"Go to step {other:,}", key=f"go-{study}-{other}", on_click=_go_to, args=(other,))


def _go_to(step: int) -> None:
    st.session_state["step"] = step


class PageEnd(Exception):
    """The page has said all that there is."""


def end() -> NoReturn:
    """End the page here. Unlike `st.stop`, what is drawn around it afterwards is still drawn: its keys, for one."""
    raise PageEnd


def guarded(page: Callable[[], None]) -> None:
    """Draw a page; an error that was written for the user is shown in its place."""
    try:
        page()
    except PageEnd:
        return
    except CutawayError as error:
        damaged(error)


def damaged(error: Exception) -> None:
    """Say that an artefact cannot be read, or that an input was refused, and why."""
    st.error(literal(str(error)), icon=":material/error:")


def unasked(error: Exception) -> None:
    """Say why a question could not be asked of this run, and what can."""
    st.info(literal(str(error)), icon=":material/help:")


def literal(text: str) -> str:
    r"""Return `text` so that Markdown shows it as it is.

    >>> literal("*a* <b>")
    '\\*a\\* \\<b\\>'
    """
    return "".join(f"\\{character}" if character in MARKDOWN else character for character in text)


MARKDOWN = frozenset("\\`*_{}[]()<>#+-!|~$:&=^@")
