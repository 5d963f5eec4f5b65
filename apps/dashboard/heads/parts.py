"""The parts of the Heads page: the verdicts, the scores, one head on its corpus, one head on a text."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from analyses.attention_patterns import Result
from analyses.attention_readings import Kind, Reading
from analyses.attention_verdicts import Verdict
from analyses.results import SavedResult
from analyses.views import View, attention_payload
from analyses.views.behaviour import distance_figure
from apps.dashboard import components, data, passes
from apps.dashboard.data import Run
from apps.dashboard.heads import bases
from apps.dashboard.heads import corpus as head_corpus
from apps.dashboard.heads import scores as head_scores
from apps.dashboard.heads import verdicts as head_verdicts
from apps.dashboard.heads.corpus import Choice
from apps.dashboard.state import Selection, head_name
from interp.places import Head
from model.errors import CheckpointError, InputError


def verdicts(saved: SavedResult, head: Head | None) -> Head:
    """Every head by its standing, and the verdict on one of them: the chosen one, or the first of the list."""
    every = data.verdicts(saved)
    listed = head_verdicts.listed(every)
    rows, told = st.columns([11, 9], gap="large")
    with rows:
        st.subheader("Every head")
        components.pick_from(
            listed,
            "head",
            key="head_table",
            height=390,
            words={word.value: colour for word, colour in head_verdicts.COLOURS.items()},
            alt="Heads by how well their names are supported",
        )
        components.caption(f"{len(every)} heads, the best supported first; click a row to choose one")
    first = next(each for each in every if each.label == listed["head"].iloc[0])
    verdict = next((each for each in every if (each.layer, each.head) == head), first)
    with told:
        _verdict(verdict)
    components.table(head_verdicts.evidence(verdict), alt=f"Evidence on {verdict.label}", height="content")
    for said in head_verdicts.absent(verdict):
        components.caption(f"? {said}.")
    components.provenance(saved, *head_verdicts.facts(saved.result, verdict))
    return verdict.layer, verdict.head


def _verdict(verdict: Verdict) -> None:
    standing = verdict.standing
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(verdict.label, width="content")
        st.badge(standing.value, color=head_verdicts.COLOURS[standing])
        components.caption(head_verdicts.MEANINGS[standing])
    st.text(verdict.sentence)


def scores(result: Result, head: Head, ablated: Sequence[str]) -> None:
    """One kind of score of every head, on one kind of sequence and on text."""
    titles = {reading.title: reading for reading in result.readings}

    def follow() -> None:
        """A kind that the reading at hand lacks is shown where it is decided."""
        wanted, at = Kind(st.session_state["kind"]), titles.get(st.session_state.get("reading", ""))
        if at is None or wanted not in at:
            st.session_state["reading"] = head_scores.where_decided(result, wanted).title

    kind = st.pills(
        "Score", list(head_scores.MEANINGS), default=Kind.INDUCTION, format_func=head_scores.title, key="kind",
        required=True, persist_state="session", on_change=follow, label_visibility="collapsed",
    )  # fmt: skip
    if st.session_state.get("reading") not in titles:
        st.session_state["reading"] = head_scores.where_decided(result, kind).title
    left, right = st.columns(2, gap="large")
    with left:
        asked = st.selectbox("Measured on", list(titles), key="reading", label_visibility="collapsed")
        reading = titles[asked]
        _grid(result, reading, kind, head, ablated, "grid")
    with right:
        if result.text is None:
            components.caption("this run holds out too little text to score heads on it")
        else:
            st.subheader(result.text.title)
            _grid(result, result.text, kind, head, ablated, "grid_text")
    if kind in reading:
        box = st.expander("These heads in order", key="ranking", on_change="rerun")
        if box.open:
            with box:
                components.table(head_scores.ranking(result, reading, kind), alt=f"Heads by {head_scores.title(kind)}")


def _grid(result: Result, there: Reading, kind: Kind, head: Head, ablated: Sequence[str], key: str) -> None:
    if kind not in there:
        components.caption(head_scores.why_not(result, there, kind))
        return
    grid = head_scores.grid(result, there, kind, chosen=head_name(*head), ablated=ablated)
    components.show(View.HEAD_GRID, grid, key=key)
    small = "small: step 0" if result.at_step_zero else "step 0 is not saved"
    components.caption(f"n = {there.n_sequences} sequences of {there.n_pos} tokens", "95% intervals", small)


def on_corpus(saved: SavedResult, run: Run, chosen: Selection, head: Head) -> None:
    """What one head does over the corpus: how far it looks, at what, and examples of it."""
    known = saved.result.behaviour
    if known is None:
        components.missing(saved.result.no_behaviour, saved.command)
        return
    seen = known.seen
    components.caption(*head_corpus.summary(seen, head))
    far, written, attended, favoured = st.columns([8, 5, 7, 6], gap="medium")
    with far:
        st.subheader("How far back it looks")
        components.chart(
            distance_figure(seen, head),
            alt=f"Attention of {head_name(*head)} by distance",
            key="distance",
            width="stretch",
        )
    for column, title, rows in (
        (written, "Writes most at", head_corpus.written_at(known, head)),
        (attended, "Attends most to", head_corpus.attended(known, head)),
        (favoured, "Favours", head_corpus.favoured(known, head)),
    ):
        with column:
            st.subheader(title)
            components.table(rows, alt=f"{title}: tokens of {head_name(*head)}", height="content")
    _examples(saved, run, chosen, head)
    components.caption(
        f"n = {seen.n_queries:,} tokens of {run.name}'s corpus in {seen.n_windows:,} windows",
        f"seed {seen.seed}",
        chosen.spec,
        "lift: attention received over even attention's, shrunk by 10 average occurrences",
        "writes: |z W_O| in stream units",
    )


def _examples(saved: SavedResult, run: Run, chosen: Selection, head: Head) -> None:
    st.subheader("Examples")
    with st.container(horizontal=True, vertical_alignment="center"):
        choice = st.segmented_control(
            "Examples", list(Choice), default=Choice.TOP, format_func=head_corpus.TITLES.__getitem__, key="examples",
            required=True, persist_state="session", label_visibility="collapsed",
        )  # fmt: skip
        basis = bases.choose(run.model, key="examples_basis")
    if basis is None:
        return
    known = saved.result.behaviour
    try:
        found = head_corpus.kept(known, head) or passes.examples(run, chosen.step, saved, head)
    except (InputError, CheckpointError) as error:
        components.missing(f"The examples of {head_name(*head)} were not saved, and cannot be read again. {error}")
        return
    drawn = head_corpus.payload(found, head_corpus.examples_of(known.seen)[choice], head, choice, basis)
    components.show(View.TOKEN_ROWS, drawn, key="corpus_rows")
    components.caption(head_corpus.EXPLAINED[choice], bases.EXPLAINED[basis])


def on_text(run: Run, chosen: Selection, head: Head) -> None:
    """The head's pattern on the text of the sidebar, with those of all others small."""
    basis = bases.choose(run.model, key="basis")
    if basis is None:
        return
    try:
        live = passes.look(run, chosen)
    except InputError as error:  # the text cannot be read; the rest of the page can
        components.damaged(error)
        return
    values = passes.attention(run, chosen, basis)
    fits = chosen.cell is not None and max(chosen.cell) < len(live.tokens)
    view = attention_payload(
        values,
        live.tokens,
        head=head,
        lock=chosen.cell if fits else None,
        scale=bases.scale_of([values], basis),
        label=bases.UNITS[basis],
    )
    components.show(View.ATTENTION, view, key="attention")
    components.caption(live.source, f"{run.name}@{chosen.step}", bases.EXPLAINED[basis])
