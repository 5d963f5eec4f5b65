"""The Lens page: what is looked at, and the table of every place at every position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from analyses.lens.rows import lens_rows, same_text, target_rows
from analyses.views import View, visible
from analyses.views.lens_table import Cells
from apps.dashboard import address, components, data, keys, panels, passes, snippets
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.lens import asked as asking
from apps.dashboard.lens import reads
from apps.dashboard.lens.asked import CELLS, PLACE, Asked
from apps.dashboard.panels import Panel
from apps.dashboard.selecting import Compared
from apps.dashboard.state import Selection
from interp.live_lens import LONGEST, LiveLens
from interp.live_targets import Target, one_token
from model.errors import CutawayError

PITFALLS = (
    "An early reading is not what a layer knows: it may write in a basis that only later layers turn into tokens.",
    "Ranks and probabilities of one text are no claim about the model.",
)


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A text through the lens of one checkpoint, and what is chosen in it."""

    run: Run
    chosen: Selection
    asked: Asked
    seen: LiveLens
    position: int
    place: str
    other: LiveLens | None
    compared: Compared | None

    @property
    def here(self) -> int:
        """The chosen position within the stretch that was read."""
        return self.position - self.seen.start

    @property
    def names(self) -> tuple[str, str]:
        """What the two checkpoints are called."""
        return self.chosen.spec, "" if self.compared is None else self.compared.spec

    @property
    def chosen_here(self) -> bool:
        """Whether the position was chosen; else it is the page's own."""
        return self.chosen.position == self.position

    @property
    def guessed(self) -> bool:
        """Whether no token follows here in the text, so that the target is the model's own choice."""
        return self.asked.target == Target.NEXT and self.position == self.seen.n_text - 1

    def target(self) -> str:
        """How the target is printed at the chosen position."""
        return visible(self.seen.spelled[int(self.seen.targets[self.here])])

    def about(self, **more: Any) -> dict[str, Any]:
        """What the numbers rest on."""
        note = {"source": self.seen.source, "target": self.asked.target, "prompt": self.chosen.prompt}
        return panels.about_live(self.run, self.chosen.step, n=1, unit="text", **note, **more)

    def python(self, *lines: str, imports: tuple[str, ...]) -> str:
        """Python that reads the same text as `seen`, and then does `lines`."""
        start = f", start={self.seen.start}" if self.seen.start else ""
        call = f"lens_on(lab, {text_of(self.chosen)}{self.asked.spelled('target', 'word')}{start}, n_top={reads.N_TOP})"
        return snippets.opened(
            self.run, self.chosen.step, f"seen = {call}", *lines,
            imports=["from interp.live_lens import lens_on", *imports],
        )  # fmt: skip


def text_of(chosen: Selection) -> str:
    """The selected text as arguments of the library."""
    return f"{chosen.text.value!r}, {chosen.prompt!r}" if chosen.text == "prompt" else f"{chosen.text.value!r}, ''"


def read(run: Run, chosen: Selection, compared: Compared | None) -> Looked | None:
    """Draw what can be chosen, and read the text; None where it cannot be read, which is said."""
    for notice in address.restore(asking.PARTS):
        st.warning(components.literal(notice), icon=":material/link_off:")
    lab = data.lab(run, chosen.step)
    target, word = asking.pick_target(asking.as_typed(lambda typed: one_token(lab, typed)))
    asked = Asked(target=target, word=word)
    try:
        tokens, _ = passes.text(run, chosen)
        position = _position(chosen, len(tokens))
        seen = reads.lens(run, chosen, asked, position // LONGEST * LONGEST)
        other = _other(chosen, asked, seen, compared)
    except CutawayError as error:
        components.damaged(error)
        return None
    place, notice = asking.within(str(st.session_state.get(PLACE) or ""), seen.reading.labels)
    if notice is not None:
        st.warning(components.literal(f"place: {notice}. Below: {place}."), icon=":material/link_off:")
    _keys(position, len(tokens))
    return Looked(
        run=run, chosen=chosen, asked=asked, seen=seen, position=position, place=place, other=other,
        compared=None if other is None else compared,
    )  # fmt: skip


def _position(chosen: Selection, n_text: int) -> int:
    """The chosen position; else the last one that a token of the text follows."""
    chosen_at, otherwise = chosen.position_in(n_text), reads.at_first(n_text)
    if chosen_at is None and chosen.position is not None:
        part = "token" if chosen.token is not None else "cell"
        said = f"{part}: there is no position {chosen.position} in this text; it has 0..{n_text - 1}"
        st.warning(components.literal(f"{said}. Below: {otherwise}."), icon=":material/link_off:")
    return otherwise if chosen_at is None else chosen_at


def _other(chosen: Selection, asked: Asked, seen: LiveLens, compared: Compared | None) -> LiveLens | None:
    """The same text in the checkpoint to compare with; None, and a sentence, where it is another one there."""
    if compared is None:
        return None
    try:
        other = reads.lens(compared.run, reads.at(chosen, compared.run, compared.step), asked, seen.start)
    except CutawayError as error:
        components.unasked(CutawayError(f"{compared.spec} is not compared with: {error}"))
        return None
    if same_text(seen, other):
        return other
    components.unasked(CutawayError(f"{compared.spec} is not compared with: it reads this text as other tokens."))
    return None


def _keys(position: int, n_text: int) -> None:
    keys.bind("j", "next token", _go, position, 1, n_text)
    keys.bind("k", "token before", _go, position, -1, n_text)
    keys.bind("v", "what the table's colours show", _cycle)


def _go(position: int, by: int, n_text: int) -> None:
    now = str(st.session_state.get("token") or "")
    at = int(now) if now.isascii() and now.isdigit() else position
    st.session_state["token"] = str(min(n_text - 1, max(0, at + by)))


def _cycle() -> None:
    every = list(Cells)
    now = st.session_state.get(CELLS)
    st.session_state[CELLS] = every[(every.index(Cells(now)) + 1) % len(every) if now in every else 1].value


def table(looked: Looked) -> None:
    """Every place at every position."""
    seen = looked.seen
    wheres = [reads.where(looked.run, looked.chosen, looked.asked, seen.start)]
    beside: dict[str, str] = {}
    if looked.compared is not None:
        run, step = looked.compared.run, looked.compared.step
        wheres.append(reads.where(run, reads.at(looked.chosen, run, step), looked.asked, seen.start))
        beside["compared_with"] = looked.compared.spec
        beside["compared_weights_sha256"] = data.manifest(run, step).weights_sha256
    payload = reads.table(seen, looked.other, looked.asked, looked.names, *wheres)
    token = looked.position if looked.chosen_here else None  # what the page looks at of itself is not locked
    live = {"token": token, "chosen": looked.place, "cells": st.session_state.get(CELLS)}
    panel = Panel(
        key="lens_table", title="The stream read as a prediction", rows=lambda: lens_rows(seen),
        about=looked.about(note=seen.reading.note, **beside),
        python=looked.python("rows = lens_rows(seen)", imports=("from analyses.lens.rows import lens_rows",)),
    )  # fmt: skip
    panels.show(View.LENS_TABLE, payload, panel, live=live)
    weights = data.manifest(looked.run, looked.chosen.step or 0).weights_sha256[:8]
    stretch = f"positions {seen.start} to {seen.start + len(seen.tokens) - 1} of {seen.n_text}"
    stretch += ", J and K go on" if len(seen.tokens) < seen.n_text else ": the table scrolls sideways to all of them"
    components.caption(
        seen.source, looked.chosen.spec, f"weights {weights}", stretch,
        None if looked.compared is None else f"compared with {looked.compared.spec}",
        "bold, underlined: the target",
        None if looked.chosen_here
        else f"below: position {looked.position}, the last that a token follows; none is chosen",
    )  # fmt: skip
    st.caption(components.literal(" ".join((seen.reading.note, *PITFALLS))))
    pins.offer(
        title=title(looked), sentences=[sentence(looked)], panel=panel,
        view=View.LENS_TABLE, payload={**payload, "token": token, "chosen": looked.place},
    )  # fmt: skip


def title(looked: Looked) -> str:
    """What stands at the chosen position, and the target there."""
    at = f"Position {looked.position} ‘{visible(looked.seen.tokens[looked.here])}’"
    if looked.guessed:
        return f"{at}, the last: no token follows; the model's choice is ‘{looked.target()}’"
    return f"{at} → ‘{looked.target()}’"


def sentence(looked: Looked) -> str:
    """When the target comes first for good, in one sentence with what it rests on."""
    rows = target_rows(looked.seen, looked.position)
    ranks, last = list(rows["target rank"]), rows["target log-probability"].iloc[-1]
    end = f"log-probability {round(last, 2) + 0.0:.2f} at the end"
    first = next((index for index in range(len(ranks)) if set(ranks[index:]) == {1}), None)
    when = f"has rank {ranks[-1]}" if first is None else f"is first from {rows['place'].iloc[first]} on"
    text = looked.seen.source.removeprefix("n = 1: ")
    target = f"The model's own choice, ‘{looked.target()}’," if looked.guessed else f"‘{looked.target()}’"
    return f"{target} {when}, {end} ({looked.chosen.spec}; one position of one text: {text})."


def leave() -> None:
    """Put what was chosen into the address, after everything was drawn."""
    address.write(asking.PARTS)
