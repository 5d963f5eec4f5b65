"""What a head is worth: ablated alone on every outcome, by gradients, and what others make good of it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from analyses.heads.tables import cost_rows, shown_costs
from analyses.results import SavedResult
from analyses.views.head_costs import costs_figure
from apps.dashboard import components, data, panels, selecting
from apps.dashboard.data import Run
from apps.dashboard.heads import sources
from apps.dashboard.panels import Panel
from apps.dashboard.state import Selection, head_name
from interp.places import Head

ASKED = {
    "head-ablation": "what each outcome loses without the head, with sets as controls",
    "head-importance": "its importance by gradients, and other things put in its place",
    "self-repair": "what others make good when it is gone",
}
"""What each study adds to this tab."""


def draw(results: Mapping[str, SavedResult], run: Run, chosen: Selection, head: Head) -> None:
    """One figure of all that is in nats, one table of everything, and the way to ablate more than one head."""
    used = {study: saved for study, saved in results.items() if study in (*ASKED, "attention-patterns")}
    name, opened = head_name(*head), {study: saved.result for study, saved in used.items()}
    rows = cost_rows(opened, head)
    if len(rows):
        _costs(used, head, name)
    else:
        components.caption(f"What {name} is worth was not measured here.")
    _missing(used, run, chosen)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        places = ",".join(dict.fromkeys([*(str(place) for place in chosen.ablate), name]))
        st.page_link(
            "app_pages/ablate.py", label="Ablate it with others, with interval and control",
            icon=":material/content_cut:",
            query_params={"run": run.name, "step": str(chosen.step), "head": name, "ablate": places},
        )  # fmt: skip


def _costs(used: Mapping[str, SavedResult], head: Head, name: str) -> None:
    rows = cost_rows({study: saved.result for study, saved in used.items()}, head)
    told = {study: saved for study, saved in used.items() if study in set(rows["study"])}
    first = next(iter(told.values()))
    about = panels.about_saved(first, n=int(rows["n"].iloc[0]), unit="sequences, see n of each row", head=name)
    python = sources.several(
        told,
        selecting.selection().step,
        f"rows = cost_rows(results, {tuple(head)})",
        imports=["from analyses.heads.tables import cost_rows"],
    )
    panel = Panel(key="costs", title=f"What {name} is worth", rows=lambda: rows, about=about, python=python)
    panels.chart(panel, costs_figure(rows), alt=panel.title, width="stretch")
    numbers = Panel(key="cost_rows", title=f"What {name} is worth, in numbers", rows=lambda: rows, about=about,
                    python=python)  # fmt: skip
    panels.table(numbers, alt=numbers.title, height=300, shown=shown_costs(rows), widths=WIDTHS)
    components.caption(
        *(_rests(study, saved, rows) for study, saved in told.items()),
        "a quantity that two studies measured is drawn as by the one with more sequences; the table has both",
        "95% intervals over sequences",
        "p: Holm, in head-ablation over the heads for each outcome, in attention-patterns over heads and outcomes",
        "diamonds: step 0", "harm: loss without the head minus loss with it",
        "p, step 0 and unit follow to the right in the table",
    )  # fmt: skip


WIDTHS = {
    "measure": 82, "on": 148, "instead": 72, "value": 52, "interval": 112, "n": 34, "study": 104,
}  # fmt: skip
"""Pixels of the columns that fit half a page of 1440."""


def _rests(study: str, saved: SavedResult, rows: pd.DataFrame) -> str:
    """What the numbers of one study rest on: n, seed, checkpoint, configuration."""
    counts = sorted({int(n) for n in rows.loc[rows["study"] == study, "n"]})
    known = saved.provenance
    return (
        f"{study}: n = {' or '.join(map(str, counts))} sequences, seed {known.seed}, {known.run}@{known.step}, "
        f"config {known.config_hash}"
    )


def _missing(used: Mapping[str, SavedResult], run: Run, chosen: Selection) -> None:
    """What other studies would add, and their commands."""
    lacking = [study for study in ASKED if study not in used]
    if lacking:
        said = "; ".join(f"{study} says {ASKED[study]}" for study in lacking)
        commands = [f"cutaway run {study} {data.spelled(run, chosen.step)}" for study in lacking]
        components.missing(f"Not measured here: {said}.", *commands)
