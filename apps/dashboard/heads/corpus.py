"""What one head does on a corpus: examples coloured by its attention, the tokens it favours, how far back it looks."""

from __future__ import annotations

import streamlit as st

from analyses.heads.text import (
    Choice as Queries,
)
from analyses.heads.text import (
    HeadExamples,
    example_table,
    examples_of,
    in_basis,
    kept_examples,
    token_table,
)
from analyses.results import SavedResult
from analyses.views import TokenRow, View, token_rows_payload, visible
from analyses.views.behaviour import distance_figure, distance_rows
from analyses.views.payload import Payload
from apps.dashboard import components, panels, passes, snippets
from apps.dashboard.asked import Choice, begin, end
from apps.dashboard.data import Run
from apps.dashboard.heads import bases, sources
from apps.dashboard.panels import Panel
from apps.dashboard.state import Selection, head_name
from interp.head_behaviour import HeadBehaviour
from interp.head_examples import Examples
from interp.live import Basis
from interp.places import Head
from model.errors import CheckpointError, InputError

LONGEST = 128
"""Tokens of an example that are shown, at most: the last ones."""

TITLES = {
    Queries.TOP: "where it writes most",
    Queries.DECILES: "across its range",
    Queries.RANDOM: "anywhere",
}

EXPLAINED = {
    Queries.TOP: "the number: how much the head writes there; these are its extremes, not its habit",
    Queries.DECILES: "the number: how much the head writes there, and the share of queries at which it writes less",
    Queries.RANDOM: "the same queries for every head; the number: how much it writes there, and where it writes less",
}

QUERIES = Choice(name="examples", key="examples", options=list(Queries), usual=Queries.TOP)


def summary(seen: HeadBehaviour, place: Head) -> tuple[str, ...]:
    """What is said of the head over the corpus in numbers, beside even attention."""
    return (
        f"{float(seen.position_zero[place]):.2f} of its attention on position 0 (even: {seen.even_position_zero:.2f})",
        f"median distance {float(seen.median_distance[place]):.0f}, mean {float(seen.mean_distance[place]):.1f} tokens",
        f"entropy {float(seen.entropy[place]):.2f} nats (even: {seen.even_entropy:.2f})",
        f"writes {float(seen.written[place]):.2f} on average",
    )


def rests_on(saved: SavedResult, run: Run, spec: str) -> tuple[str, ...]:
    """What numbers over the corpus rest on."""
    seen = saved.result.behaviour.seen
    corpus = f"n = {seen.n_queries:,} tokens of {run.name}'s corpus in {seen.n_windows:,} windows"
    return (corpus, f"seed {seen.seed}", spec)


def examples(saved: SavedResult, run: Run, chosen: Selection, head: Head) -> None:
    """Queries of the corpus, each with what the head attends to there."""
    known = saved.result.behaviour
    if known is None:
        components.missing(saved.result.no_behaviour, saved.command)
        return
    begin(QUERIES)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.segmented_control(
            "Examples", list(Queries), format_func=TITLES.__getitem__, key=QUERIES.key, required=True,
            label_visibility="collapsed",
        )  # fmt: skip
        basis = bases.choose(run.model)
    choice = Queries(end(QUERIES))
    if basis is None:
        return
    try:
        kept = kept_examples(known, head)
        found = kept or passes.examples(run, chosen.step, saved, head)
    except (InputError, CheckpointError) as error:
        components.missing(f"The examples of {head_name(*head)} were not saved, and cannot be read again. {error}")
        return
    drawn = payload(found, examples_of(known.seen)[choice], head, choice, basis)
    panels.show(View.TOKEN_ROWS, drawn, _panel(saved, run, chosen, head, (found, kept is not None), choice, basis))
    components.caption(EXPLAINED[choice], bases.EXPLAINED[basis])
    components.caption(*rests_on(saved, run, chosen.spec), "writes: |z W_O| in stream units")


def _panel(
    saved: SavedResult, run: Run, chosen: Selection, head: Head, found: tuple[HeadExamples, bool], choice: Queries,
    basis: Basis,
) -> Panel:  # fmt: skip
    examples, kept = found
    seen = saved.result.behaviour.seen
    asked = f"{tuple(head)}, {choice.value!r}, {basis.value!r}"
    lines = (
        f"found = kept_examples(result.behaviour, {tuple(head)})"
        if kept
        else f"found = read_examples(lab, result.behaviour.seen, {tuple(head)})",
        f"rows = example_table(found, result.behaviour.seen, {asked})",
    )
    imports = [f"from analyses.heads.text import example_table, {'kept' if kept else 'read'}_examples"]
    python = (
        snippets.saved_result(saved, *lines, imports=imports)
        if kept
        else snippets.opened_with(saved, run, chosen.step, *lines, imports=imports)
    )
    return Panel(
        key="corpus_rows",
        title=f"Examples of {head_name(*head)}, {TITLES[choice]}",
        rows=lambda: example_table(examples, seen, head, choice, basis),
        about=panels.about_saved(
            saved, n=examples.rows[choice].tokens.shape[1], unit="queries of the corpus", head=head_name(*head),
            examples=choice.value, basis=basis.value,
        ),
        python=python,
    )  # fmt: skip


def payload(found: HeadExamples, examples: Examples, place: Head, choice: Queries, basis: Basis) -> Payload:
    """The examples of one choice, coloured by attention from the boxed query, all on one scale."""
    rows = found.rows[choice]
    values = in_basis(rows, basis)[found.row]
    shown = []
    for at in range(rows.tokens.shape[1]):
        tokens = [token for token in rows.tokens[found.row, at].tolist() if token >= 0]
        if not tokens:
            continue
        start = max(0, len(tokens) - LONGEST)
        said = [
            _rank(examples, place, at, choice),
            f"then {visible(found.spelled[str(int(rows.next_token[found.row, at]))])}",
        ]
        if basis is Basis.SIGNED:
            said.append(f"Σ {float(values[at, : len(tokens)].sum() + rows.value_bias[found.row, at]):+.2f}")
        said += [f"{start} earlier left out"] if start else []
        shown.append(
            TokenRow(
                tokens=[found.spelled[str(token)] for token in tokens[start:]],
                values=values[at, start : len(tokens)].tolist(),
                note=" ".join(said),
                boxed=len(tokens) - start - 1,
                start=start,
            )
        )
    every = [in_basis(each, basis)[found.row, :, 1:] for each in found.rows.values()]  # many heads rest on position 0
    return token_rows_payload(
        shown,
        bases.UNITS[basis],
        scale=bases.scale_of(every, basis),
        hint="boxed: the query; point at a token to read it",
    )


def _rank(examples: Examples, place: Head, at: int, choice: Queries) -> str:
    value, rank = float(examples.value[place][at]), float(examples.rank[place][at])
    return f"{value:.2f}" if choice is Queries.TOP else f"{value:.2f} ({rank:.0%})"


def favoured(saved: SavedResult, run: Run, spec: str, head: Head) -> None:
    """How far back it looks, and the tokens at which it writes and to which it attends."""
    known = saved.result.behaviour
    if known is None:
        components.missing(saved.result.no_behaviour, saved.command)
        return
    components.caption(*summary(known.seen, head))
    name, (far, *columns) = head_name(*head), st.columns([8, 5, 7, 6], gap="medium")
    about = panels.about_saved(saved, n=known.seen.n_queries, unit="tokens of the corpus", head=name)
    with far:
        st.subheader("How far back it looks")
        panel = Panel(
            key="distance",
            title=f"Attention of {name} by distance",
            rows=lambda: distance_rows(known.seen, head),
            about=about,
            python=sources.one(
                saved, f"rows = distance_rows(result.behaviour.seen, {tuple(head)})",
                imports=["from analyses.views.behaviour import distance_rows"],
            ),
        )  # fmt: skip
        panels.chart(panel, distance_figure(known.seen, head), alt=panel.title, width="stretch")
    lists = ("writes most at", "attends most to", "favours")
    for column, listed in zip(columns, lists, strict=True):
        with column:
            st.subheader(listed.capitalize())
            panel = Panel(
                key=f"tokens-{listed.split(' ', 1)[0]}",
                title=f"Tokens that {name} {listed}",
                rows=lambda listed=listed: token_table(known, head, listed),
                about=about,
                python=sources.one(
                    saved, f"rows = token_table(result.behaviour, {tuple(head)}, {listed!r})",
                    imports=["from analyses.heads.text import token_table"],
                ),
            )  # fmt: skip
            panels.table(panel, alt=panel.title, height="content")
    components.caption(
        *rests_on(saved, run, spec),
        "lift: attention received over even attention's, shrunk by 10 average occurrences",
        "writes: |z W_O| in stream units",
    )
