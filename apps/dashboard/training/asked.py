"""What the page of training is asked: which score, on which sequences, and against what it is drawn."""

from __future__ import annotations

import streamlit as st

from analyses.attention.kinds import Kind
from analyses.attention.stimuli import Stimulus
from analyses.dynamics.axis import Along, Time
from analyses.dynamics.result import Result
from analyses.heads.scores import score_title
from apps.dashboard.asked import Choice, begin, end

KINDS = (
    *(Kind.INDUCTION, Kind.PREVIOUS, Kind.DUPLICATE, Kind.CURRENT, Kind.FIRST, Kind.LATER, Kind.MATCH),
    *(Kind.LOCAL, Kind.FAR, Kind.ENTROPY, Kind.DISTANCE),
)
SCORE = Choice(name="kind", key="training_kind", options=[each.value for each in KINDS], usual=Kind.INDUCTION.value)
ON = Choice(
    name="on", key="training_on", options=[each.value for each in (Stimulus.REPEATS, Stimulus.CONTROL, Stimulus.TEXT)],
    usual=Stimulus.REPEATS.value,
)  # fmt: skip
ALONG = Choice(name="x", key="training_x", options=[each.value for each in Along], usual=Along.STEP.value)
SPACED = Choice(name="scale", key="training_scale", options=["linear", "log"], usual="linear")

_ALONG = {Along.STEP.value: "steps", Along.TOKENS.value: "tokens seen"}


def is_share(kind: Kind) -> bool:
    """Whether a score is a share of attention, from 0 to 1."""
    return kind not in (Kind.ENTROPY, Kind.DISTANCE)


def axis() -> Time:
    """Let the horizontal axis be chosen."""
    for choice in (ALONG, SPACED):
        begin(choice)
    with st.container(horizontal=True, vertical_alignment="center"):
        _segments("Along", ALONG, _ALONG)
        _segments("Scale", SPACED, {"linear": "linear", "log": "log"})
    return Time(along=Along(end(ALONG)), log=end(SPACED) == "log")


def score(result: Result) -> tuple[Kind, Stimulus]:
    """Let the score and the sequences be chosen; a kind that was not measured on these is shown where it was."""
    begin(SCORE)
    begin(ON)
    st.pills(
        "Score", SCORE.options, format_func=score_title, key=SCORE.key, required=True, label_visibility="collapsed"
    )
    kind = Kind(end(SCORE))
    titles = {name: reading.title for name, reading in result.readings.items() if kind.value in reading.scores}
    if st.session_state[ON.key] not in titles and titles:
        st.session_state[ON.key] = next(iter(titles))
    st.segmented_control(
        "Measured on", list(titles), format_func=lambda name: str(titles.get(name, name)), key=ON.key, required=True,
        label_visibility="collapsed",
    )  # fmt: skip
    return kind, Stimulus(end(ON))


def _segments(label: str, choice: Choice, titles: dict[str, str]) -> None:
    st.segmented_control(
        label, choice.options, format_func=lambda name: str(titles.get(name, name)), key=choice.key, required=True,
        label_visibility="collapsed",
    )  # fmt: skip
