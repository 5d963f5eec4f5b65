"""The chosen cell of the lens table: its likeliest tokens, and the target from place to place."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from analyses.lens.figures import top_figure, trajectory_figure
from analyses.lens.rows import target_rows, top_rows
from apps.dashboard import components, panels
from apps.dashboard.lens import reads
from apps.dashboard.lens.parts import Looked, sentence, title
from apps.dashboard.panels import Panel
from interp.live_lens import LiveLens


def draw(looked: Looked) -> None:
    """The chosen cell's distribution, and the target from place to place."""
    seen, at, place = looked.seen, looked.position, looked.place
    st.header(components.literal(title(looked)))
    components.sentences([sentence(looked)])
    shown = {looked.names[0]: seen} | ({} if looked.other is None else {looked.names[1]: looked.other})
    ways = {name: target_rows(each, at) for name, each in shown.items() if each.reading.labels == seen.reading.labels}
    with st.grid(3, min_column_width=300, gap=("small", "medium")) as columns:
        with columns.cell():
            _tops(looked, shown)
        for field, unit in (("target log-probability", "log-probability, nats"), ("target rank", "rank, 1 on top")):
            with columns.cell():
                panel = _way(looked, f"lens_{field.split()[1]}", f"{field} over places")
                figure = trajectory_figure(ways, field, unit, place)
                panels.small(panel, figure, f"of ‘{looked.target()}’ at position {at}; dashed: {place}")
    box = st.expander("Every place in numbers", key="lens_numbers_box", on_change="rerun", type="compact")
    if box.open:
        with box:
            panels.table(_way(looked, "lens_numbers", "Every place in numbers"), alt="The target at every place")
    components.caption("n = 1 position of one text", looked.chosen.spec, "rank 1: no token has a larger logit",
                       "KL from the final prediction; entropy in nats")  # fmt: skip


def _way(looked: Looked, key: str, title: str) -> Panel:
    return Panel(
        key=key, title=title, rows=lambda: target_rows(looked.seen, looked.position),
        about=looked.about(position=looked.position),
        python=looked.python(
            f"rows = target_rows(seen, {looked.position})", imports=("from analyses.lens.rows import target_rows",)
        ),
    )  # fmt: skip


def _tops(looked: Looked, shown: dict[str, LiveLens]) -> None:
    """The likeliest tokens of the chosen cell, in each checkpoint."""
    for index, (name, seen) in enumerate(shown.items()):
        if looked.place not in seen.reading.labels:
            continue
        mine = replace(looked, seen=seen)
        n = 10 if len(shown) == 1 else 5
        panel = Panel(
            key=f"lens_top_{index}", title=f"Likeliest at {looked.place}" + ("" if index == 0 else f", {name}"),
            rows=lambda seen=seen: top_rows(seen, looked.position, looked.place),
            about=looked.about(position=looked.position, place=looked.place),
            python=_of(mine, looked, index),
        )  # fmt: skip
        drawn = top_figure(top_rows(seen, looked.position, looked.place), n)
        panels.small(panel, drawn, f"{name}; orange: the target")


def _of(mine: Looked, looked: Looked, index: int) -> str:
    if index and looked.compared is not None:
        other = looked.compared
        mine = replace(mine, run=other.run, chosen=reads.at(looked.chosen, other.run, other.step))
    return mine.python(
        f"rows = top_rows(seen, {looked.position}, {looked.place!r})",
        imports=("from analyses.lens.rows import top_rows",),
    )
