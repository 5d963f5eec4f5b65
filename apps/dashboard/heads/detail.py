"""One head in full, in tabs of which only the open one is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from analyses.attention.verdicts import Verdict
from analyses.results import SavedResult
from apps.dashboard import components, data
from apps.dashboard.asked import Choice, tabs
from apps.dashboard.data import Run
from apps.dashboard.heads import circuit, corpus, costs, lists, pattern, training, verdicts
from apps.dashboard.heads.scores import Asked
from apps.dashboard.selecting import Compared
from apps.dashboard.state import Selection, head_name
from interp.places import Head

TABS = ("Pattern", "Examples", "QK & OV", "What it costs", "Over training", "Evidence")

TAB = Choice(name="tab", key="tab", options=TABS, usual=TABS[0])

STUDY = "attention-patterns"


def heading(head: Head, order: Sequence[str], chosen: Selection, verdict: Verdict | None) -> None:
    """The name of the head, its standing, the way to its neighbours in the list, and whether it is in the ablation."""
    name = head_name(*head)
    at = order.index(name) if name in order else -1
    before, after = (order[at - 1] if at > 0 else None), (order[at + 1] if 0 <= at < len(order) - 1 else None)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="head_heading"):
        st.header(name, width="content")
        if verdict is not None:
            st.badge(verdict.standing.value, color=verdicts.COLOURS[verdict.standing])
        for said, other, key in (("Previous", before, "K"), ("Next", after, "J")):
            st.button(said, key=f"head_{said.lower()}", disabled=other is None, on_click=lists.choose, args=(other,),
                      help=f"{key} does the same", type="tertiary")  # fmt: skip
        inside = name in {place.label for place in chosen.ablate}
        st.button("In the ablation" if inside else "Add to the ablation", key="head_toggle", type="tertiary",
                  icon=":material/check:" if inside else ":material/add:", help="X does the same",
                  on_click=components.toggle_ablation, args=(name,))  # fmt: skip
        if at >= 0:
            components.caption(f"{at + 1} of {len(order)} in the list")


@dataclass(frozen=True, kw_only=True)
class Detail:
    """What the tabs are about."""

    results: Mapping[str, SavedResult]
    run: Run
    chosen: Selection
    head: Head
    asked: Asked | None
    """The score of the grids; None without results."""
    verdict: Verdict | None
    other: Compared | None

    def draw(self) -> None:
        """The tabs."""
        bodies = (self._pattern, self._examples, self._circuit, self._costs, self._training, self._evidence)
        tabs(TAB, dict(zip(TABS, bodies, strict=True)))

    def _alone(self) -> None:
        """Of tabs that show nothing of the checkpoint that is compared with, that they do not."""
        if self.other is not None:
            components.caption(f"{self.chosen.spec} only: {self.other.spec} is not shown in this tab")

    def _pattern(self) -> None:
        saved, verdict = self.results.get(STUDY), self.verdict
        said = [] if saved is None or verdict is None else verdicts.sentences(saved, verdict)
        pattern.draw(self.run, self.chosen, self.head, self.other, said)

    def _examples(self) -> None:
        self._alone()
        saved = self.results.get(STUDY)
        if saved is None:
            self._missing()
        else:
            corpus.examples(saved, self.run, self.chosen, self.head)

    def _circuit(self) -> None:
        self._alone()
        circuit.draw(self.results, self.run, self.chosen, self.head)

    def _costs(self) -> None:
        self._alone()
        costs.draw(self.results, self.run, self.chosen, self.head)

    def _training(self) -> None:
        if self.asked is None:
            self._missing()
        else:
            training.draw(self.asked, self.run, self.chosen, self.head, self.other)

    def _evidence(self) -> None:
        self._alone()
        saved = self.results.get(STUDY)
        if saved is None or self.verdict is None:
            self._missing()
        else:
            verdicts.evidence(saved, self.verdict)

    def _missing(self) -> None:
        command = f"cutaway run {STUDY} {data.spelled(self.run, self.chosen.step)}"
        components.missing(f"This comes from {STUDY}, which has no result at this checkpoint.", command)
