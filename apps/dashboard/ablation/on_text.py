"""What an ablation does on one text: to every token, to what is predicted at one of them, and to where heads look."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from analyses.ablation.tables import change_rows, next_token_rows, text_rows
from analyses.views import View, attention_payload, visible
from analyses.views.ablating import next_token_figure
from analyses.views.attention import EXACT_SIDE
from apps.dashboard import components, keys, panels, passes, snippets
from apps.dashboard.ablation import harms, jobs, measuring
from apps.dashboard.ablation.jobs import Key, Told
from apps.dashboard.ablation.measuring import Question
from apps.dashboard.ablation.results import NARROWEST, about
from apps.dashboard.panels import Panel
from apps.dashboard.state import Selection, head_name
from interp import live
from interp.ablation import Ablation, Frozen
from interp.pattern_changes import PatternChanges, pattern_changes
from interp.places import Intervention
from interp.token_effects import TokenEffects, token_effects
from model.errors import CutawayError, InputError

LIGHT = 2e11
"""Floating point operations up to which another text is run without being asked again: a second or so."""

_ASKED = "_text_asked"
"""The places whose effect on a text this session has asked for."""

_FROM_OTHERS = (
    Intervention.MEAN, Intervention.MEAN_PER_POSITION, Intervention.RESAMPLE, Intervention.OPTIMAL,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OnText:
    """One text, intact and ablated."""

    effects: TokenEffects
    changes: PatternChanges | None
    """None where patterns are held, or nothing comes after the ablated layer."""


def draw(question: Question, chosen: Selection) -> None:
    """Everything about the text that live passes run on."""
    try:
        strings, source = passes.text(question.run, chosen)
        ablation = question.ablation
        _require_reached(ablation, len(strings))
        key = question.key(jobs.TEXT, str(chosen.text), chosen.prompt)
        work = partial(_measure, question, chosen)
        found = jobs.known(key) if _is_asked(question) else jobs.shown(key)
        if found is None and _is_asked(question) and _cost(question, len(strings)) <= LIGHT:
            found = work()
            jobs.keep(key, found)
    except InputError as error:
        components.unasked(error)
        return
    if found is None:
        what = f"{len(strings)} tokens, and 64 held-out rows for what is put there"
        found = jobs.offered("Run the text", jobs.TEXT, key, work, note=what, title="The text, intact and ablated")
    if found is None:
        return
    st.session_state[_ASKED] = question.key("asked")
    position = _position(found.effects, chosen)
    _tokens(question, chosen, found.effects, source)
    with st.grid(2, min_column_width=NARROWEST, gap=("small", "large")) as columns:
        with columns.cell():
            _predicted(question, chosen, found.effects, position, source)
        with columns.cell():
            _moved(question, chosen, found.changes, source)
    if found.changes is not None and found.changes.ranked:
        _patterns(question, chosen, found, key, source)
    elif ablation.frozen is Frozen.PATTERNS:
        components.caption("Later patterns are held as in the intact run, so none of them changes.")


def _require_reached(ablation: Ablation, n_tokens: int) -> None:
    """`InputError` where the text ends before the first position at which something is replaced."""
    if ablation.positions is not None and min(ablation.positions) >= n_tokens:
        raise InputError(
            f"Nothing is replaced on this text: its {n_tokens} positions end before {min(ablation.positions)}. Choose "
            "earlier positions, or a longer text."
        )


def _is_asked(question: Question) -> bool:
    """Whether this ablation was run, on its sequences or on a text: choosing places runs nothing."""
    ran = jobs.shown(measuring.effect_key(question)) is not None
    return ran or st.session_state.get(_ASKED) == question.key("asked")


def _measure(question: Question, chosen: Selection, told: Told | None = None) -> OnText:
    lab, ablation = question.lab, question.ablation
    tokens = live.live_tokens(lab, chosen.text, chosen.prompt)[0][None]
    if told is not None:
        told(0, 2)
    effects = token_effects(lab, tokens, ablation)
    if told is not None:
        told(1, 2)
    held = ablation.frozen is Frozen.PATTERNS
    changes = None if held else pattern_changes(lab, tokens, ablation)
    return OnText(effects=effects, changes=changes)


def _cost(question: Question, n_tokens: int) -> float:
    """Floating point operations of it, roughly: two for each parameter and token."""
    config, ablation = question.lab.config, question.ablation
    rows = question.lab.eval_tokens[:64].numel() if ablation.takes(*_FROM_OTHERS) else 0
    draws = 64 if ablation.takes(Intervention.RESAMPLE) else 1
    return 2.0 * config.n_params * (2 * rows + (2 + 2 * draws) * n_tokens)


def _position(effects: TokenEffects, chosen: Selection) -> int:
    """The position that is looked at: the chosen one, else the one whose prediction suffers most."""
    return _chosen(effects, chosen) or int(effects.harm.argmax()) + 1


def _chosen(effects: TokenEffects, chosen: Selection) -> int | None:
    """The chosen position; None where none was, and at 0, which nothing predicts."""
    return chosen.position_in(len(effects.strings)) or None


def _live(question: Question, chosen: Selection, *lines: str, imports: list[str]) -> str:
    """Python that has the tokens of the text as `tokens`, and then does `lines`."""
    text = f"tokens, _ = live_tokens(lab, {str(chosen.text)!r}, {chosen.prompt!r})"
    return snippets.opened(
        question.run, question.step, text, measuring.ablation_line(question), *lines,
        imports=["from interp.ablation import ablation_of", "from interp.live import live_tokens", *imports],
    )  # fmt: skip


_EFFECTS_LINE = "effects = token_effects(lab, tokens[None], ablation)"
_EFFECTS = "from interp.token_effects import token_effects"


def _tokens(question: Question, chosen: Selection, effects: TokenEffects, source: str) -> None:
    panel = Panel(
        key="token_harm",
        title="Harm of every token",
        rows=lambda: text_rows(effects),
        about=about(question, 1, text=source),
        python=_live(
            question, chosen, _EFFECTS_LINE, "rows = text_rows(effects)",
            imports=[_EFFECTS, "from analyses.ablation.tables import text_rows"],
        ),
    )  # fmt: skip
    panels.show(View.TOKEN_ROWS, harms.token_payload(effects, _chosen(effects, chosen)), panel)
    replaced = f"replacements from {effects.source}" if effects.source else None
    components.caption(f"{question.run.name}@{question.step}", source, str(effects.ablation), replaced)


def _predicted(question: Question, chosen: Selection, effects: TokenEffects, position: int, source: str) -> None:
    at, spell = position - 1, question.lab.str_tokens
    token = visible(effects.strings[position])
    before = "".join(visible(each) for each in effects.strings[max(0, at - 5) : position])
    st.subheader(components.literal(f"Predicted at {position}, after {before}"))
    panel = Panel(
        key="next_tokens",
        title=f"What is predicted at position {position}",
        rows=lambda: next_token_rows(effects, at, spell),
        about=about(question, 1, text=source, position=position),
        python=_live(
            question, chosen, _EFFECTS_LINE, f"rows = next_token_rows(effects, {at}, lab.str_tokens)",
            imports=[_EFFECTS, "from analyses.ablation.tables import next_token_rows"],
        ),
    )  # fmt: skip
    figure = next_token_figure(next_token_rows(effects, at, spell))
    panels.chart(panel, figure, alt=f"Likeliest tokens at position {position}, intact, ablated and the change")
    clean, ablated = float(effects.clean[at]), float(effects.ablated[at])
    components.caption(
        f"the text goes on with {token}: loss {clean:.2f} intact, {ablated:.2f} ablated, "
        f"harm {ablated - clean:+.2f} nats",
        "click a token above for another" if _chosen(effects, chosen) else "where it hurts most; click another token",
        "equal lengths are equal amounts in all three", "n = 1 text",
    )  # fmt: skip


def _moved(question: Question, chosen: Selection, changes: PatternChanges | None, source: str) -> None:
    st.subheader("Later heads that look elsewhere")
    if changes is None or not changes.ranked:
        held = question.asked.frozen is Frozen.PATTERNS
        why = "their patterns are held" if held else "nothing attends after the layer of what is ablated"
        components.caption(f"There are none: {why}.")
        return
    panel = Panel(
        key="text_moves",
        title="Later heads that look elsewhere on the text",
        rows=lambda: change_rows(changes),
        about=about(question, 1, text=source),
        python=_changes_python(question, chosen),
    )
    panels.table(panel, alt="Share of each later head's attention that moves", height=240, pick="head")
    components.caption("moved: share of its attention that lies elsewhere, mean over queries", "n = 1 text")


def _patterns(question: Question, chosen: Selection, found: OnText, key: Key, source: str) -> None:
    changes = found.changes
    assert changes is not None, "asked before"
    head = chosen.head if chosen.head in changes.ranked else changes.ranked[0]
    st.subheader(f"{head_name(*head)}, intact and ablated")
    n = len(found.effects.strings)
    lock = chosen.cell if chosen.cell is not None and max(chosen.cell) < n else None
    window = lock if n > EXACT_SIDE else None  # of a long text only what is round the lock is sent exactly
    sent = (jobs.PAYLOAD, *key[1:], head, window)
    payload: Any = jobs.known(sent)
    if payload is None:
        try:
            payload = attention_payload(
                changes.intact, found.effects.strings, head=head, causal=question.lab.config.attention == "causal",
                other=changes.ablated, names=("intact", "ablated"), lock=window,
            )  # fmt: skip
        except CutawayError as error:
            components.unasked(error)
            return
        jobs.keep(sent, payload)
    panel = Panel(
        key="before_after",
        title=f"{head_name(*head)}, intact and ablated",
        rows=lambda: change_rows(changes),
        about=about(question, 1, text=source, head=head_name(*head)),
        python=_changes_python(question, chosen),
    )
    keys.browser("d", "intact, ablated, their difference")
    keys.browser("s", "source and destination exchanged")
    panels.show(View.ATTENTION, payload, panel, live={"lock": lock})
    components.caption("key D: intact, ablated, their difference", source, f"{question.run.name}@{question.step}")


def _changes_python(question: Question, chosen: Selection) -> str:
    """Python that measures again which later heads' patterns moved."""
    return _live(
        question, chosen,
        "changes = pattern_changes(lab, tokens[None], ablation)",
        "rows = change_rows(changes)",
        imports=[
            "from interp.pattern_changes import pattern_changes",
            "from analyses.ablation.tables import change_rows",
        ],
    )  # fmt: skip
