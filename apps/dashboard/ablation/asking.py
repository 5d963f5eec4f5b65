"""What is asked on the Ablate page: the hypothesis and how it is to be measured, each a part of the address.

Nothing of it starts anything: the form is read when it is sent, and only then is something measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from analyses.claims.bounds import parse_bound
from analyses.claims.statement import ControlKind, Statement
from analyses.claims.usual import usual_control
from apps.dashboard.address import Part, choice_of, restore, write
from apps.dashboard.state import shortened
from interp.ablation import Frozen, parse_positions
from interp.outcomes import COPY_OUTCOMES, OUTCOMES, get_outcome
from interp.places import Intervention, Place, print_places
from interp.resolved_places import resolve_places
from model.config import GPTConfig
from model.errors import CutawayError, InputError
from model.settings import from_plain

FEWEST, MOST, USUAL = 8, 512, 64
"""Sequences of each kind."""

CONTROLS = {
    ControlKind.MATCHED: "matched random sets",
    ControlKind.TEXT: "text with nothing to copy",
    ControlKind.STEP0: "step 0 of the run",
    ControlKind.NONE: "none",
}
USUAL_CONTROL = "usual"
"""The control of an address that names none: matched sets where enough exist, else another, and the page says why."""

N_CONTROLS = 99
"""Matched sets at most: as many as a written claim tries, so that those of the one are those of the other."""

REMOVALS = [kind.value for kind in Intervention if kind.removes]
"""What may stand in a place that states nothing: the others want a number, or a second place."""

GATE, POSITIONS = "ablate_gate", "ablate_positions"
"""Keys of the inputs."""

MOST_STAYS = 0.99
"""Of what the places hold; at 1 nothing would be tried."""

NAME = "claim"
"""Of a hypothesis that was not given one."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The hypothesis, and how it is measured."""

    says: str
    bound: str
    """Empty where none was stated: then there is an effect and no verdict."""
    control: ControlKind | None
    """None where it is left to the places (`held_against`)."""
    metric: str
    fill: str
    """The intervention of places that state none."""
    frozen: Frozen
    n: int
    seed: int
    gate: float = 0.0
    """The share of what the places hold that stays."""
    positions: tuple[int, ...] | None = None
    """Where they are replaced; None: everywhere."""
    unread: str = ""
    """Why the positions cannot be read: nothing can be asked then, since all of them is another question."""

    @property
    def how(self) -> tuple[Hashable, ...]:
        """All that an effect depends on, beside checkpoint and places."""
        return self.metric, *self.put, self.n, self.seed

    @property
    def put(self) -> tuple[Hashable, ...]:
        """What is done to the places, whatever it is measured by."""
        return self.fill, self.frozen.value, self.gate, self.positions

    @property
    def partly(self) -> dict[str, Any]:
        """How much stays and where, as keywords of the library; what is as usual is left out."""
        gate = {"gate": self.gate} if self.gate else {}
        return gate | ({} if self.positions is None else {"positions": list(self.positions)})

    @property
    def held(self) -> dict[str, Any]:
        """What is held, as a keyword of the library; left out where nothing is."""
        return {} if self.frozen is Frozen.NOTHING else {"frozen": self.frozen.value}

    @property
    def measured_as(self) -> dict[str, Any]:
        """All of it as keywords of `interp.effects.ablate`."""
        how = {"metric": self.metric, "intervention": self.fill, "n_sequences": self.n, "seed": self.seed}
        return how | {"n_controls": N_CONTROLS} | self.partly | self.held

    def held_against(
        self, places: tuple[Place, ...], config: GPTConfig | None, *, has_start: bool
    ) -> tuple[Asked, str]:
        """The same with a control; and why it is this one, where the form left that to the places."""
        if self.control is not None:
            return self, ""
        try:
            if not (self.bound.strip() and places and config is not None):
                return replace(self, control=ControlKind.NONE), ""
            filled = resolve_places(places, config, self.fill)
            usual = usual_control(
                filled, config, bound=parse_bound(self.bound), metric=self.metric, has_start=has_start
            )
        except CutawayError:
            return replace(self, control=ControlKind.NONE), ""  # the hypothesis itself is refused, in its own words
        return replace(self, control=usual.kind), usual.why

    def statement(self, places: tuple[Place, ...], step: int | None, name: str = NAME) -> Statement | None:
        """The hypothesis as a claim about this checkpoint; None where no bound was stated.

        Raises:
            ConfigError, InputError: what no claim can say, in a sentence.
        """
        if not self.bound.strip():
            return None
        keys = {
            "name": name,
            "says": self.says.strip(),
            "effect": " ".join(self.bound.split()),
            "control": (self.control or ControlKind.NONE).value,
            "ablate": print_places(places),
            "intervention": self.fill,
            "freeze": self.frozen.value,
            **self.partly,
            "metric": self.metric,
            "sequences": self.n,
            "seed": self.seed,
            "step": str(step),
        }
        return from_plain(Statement, keys)


def _whole(low: int, high: int, what: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        short = text.isascii() and text.isdigit() and len(text) <= len(str(high))
        if not (short and low <= int(text) <= high):
            raise InputError(f'"{shortened(text)}" is no number of {what}; write one from {low} to {high}')
        return int(text)

    return read


def _bound(text: str) -> str:
    parse_bound(text)
    return text


def _gate(text: str) -> float:
    try:
        share = float(text)  # as it was written from the input: 1e-05 too
    except ValueError:
        share = math.nan
    if not 0 <= share <= MOST_STAYS:
        raise InputError(f'"{shortened(text)}" is no share that stays; write one from 0 to {MOST_STAYS}, such as 0.5')
    return share


PARTS = [
    Part(name="says", key="says", read=str),
    Part(name="bound", key="bound", read=_bound),
    Part(
        name="control",
        key="control",
        otherwise=USUAL_CONTROL,
        read=choice_of([USUAL_CONTROL, *(kind.value for kind in CONTROLS)], "control"),
    ),
    Part(name="metric", key="metric", read=choice_of(OUTCOMES, "metric"), otherwise="copy_loss"),
    Part(name="fill", key="fill", read=choice_of(REMOVALS, "intervention"), otherwise="mean"),
    Part(
        name="hold", key="hold", read=choice_of([each.value for each in Frozen], "thing to hold"), otherwise="nothing"
    ),
    Part(name="gate", key=GATE, read=_gate, otherwise=0.0),
    Part(name="positions", key=POSITIONS, read=str),
    Part(name="n", key="n_sequences", read=_whole(FEWEST, MOST, "sequences"), otherwise=USUAL),
    Part(name="seed", key="seed", read=_whole(0, 2**31 - 1, "a seed"), otherwise=0),
]


def draw() -> tuple[Asked, bool, list[str]]:
    """Draw the form; what it says, whether it was sent just now, and what of the address could not be read."""
    notices = restore(PARTS)
    with st.form("hypothesis", border=True):
        st.text_input(
            "Hypothesis, in words", key="says", placeholder="without these heads copying fails",
            help="Written down before anything is measured, and kept with the result.",
        )  # fmt: skip
        left, right = st.columns(2)
        left.text_input(
            "Expected effect", key="bound", placeholder="harm >= 1.0",
            help="harm >= 1.0 or harm <= 0.05 in the metric's unit (nats for a loss); |harm| <= 0.05 for no effect "
                 "either way; gain >= 0.1 for better without; share >= 0.5 of what the model knows beyond token "
                 "frequencies. Left empty, the effect is measured and nothing is decided.",
        )  # fmt: skip
        right.selectbox(
            "Held against", [USUAL_CONTROL, *(kind.value for kind in CONTROLS)], key="control", format_func=_control,
            help="What the effect has to beat for the hypothesis to be supported. Left open, that is matched sets "
                 "where there are enough to decide at 0.05, else text. Matched random sets: as many heads "
                 "(memories) in each layer, ablated in the same way. Text with nothing to copy: the same ablation on "
                 "held-out text where the current token is new. Step 0: the same before training. |harm| has no side "
                 "and takes none; <= takes matched sets or none.",
        )  # fmt: skip
        st.selectbox(
            "Measured by", OUTCOMES, key="metric", format_func=_in_words,
            help="The outcome that the hypothesis is about. Other losses are measured beside it.",
        )  # fmt: skip
        st.selectbox(
            "Replaced by", REMOVALS, key="fill", format_func=_FILLS.__getitem__,
            help="What is put in the places that do not say it themselves, as L1H3:zero does.",
        )  # fmt: skip
        left, middle, right = st.columns([2, 1, 1])
        left.selectbox(
            "Later attention patterns", [each.value for each in Frozen], key="hold", format_func=_HELD.__getitem__,
            help="Held as in the intact run, an ablation takes away what the places write, and not where they make "
                 "later heads look (pattern-preserving ablation, Olsson et al. 2022).",
        )  # fmt: skip
        middle.number_input("Sequences", FEWEST, MOST, key="n_sequences", step=8, help="Of each kind, at most.")
        right.number_input("Seed", 0, 2**31 - 1, key="seed", step=1, help="Draws sequences, donors and matched sets.")
        _draw_more()
        sent = st.form_submit_button("Run", type="primary", icon=":material/play_arrow:", key="run_hypothesis")
    write(PARTS)
    state = st.session_state
    asked = Asked(
        says=state["says"], bound=state["bound"], metric=state["metric"], fill=state["fill"],
        control=None if state["control"] == USUAL_CONTROL else ControlKind(state["control"]),
        frozen=Frozen(state["hold"]), n=int(state["n_sequences"]), seed=int(state["seed"]), gate=float(state[GATE]),
    )  # fmt: skip
    try:
        where = parse_positions(state[POSITIONS]) if state[POSITIONS].strip() else None
    except CutawayError as error:  # Run stays enabled: a form whose button is not cannot be sent with other positions
        return replace(asked, unread=f"Nothing is asked until the positions can be read: {error}"), False, notices
    return replace(asked, positions=where), sent, notices


def _draw_more() -> None:
    """What most hypotheses leave as it is: a part of the places is taken out, or at some positions only."""
    state = st.session_state
    is_set = bool(state[GATE] or state[POSITIONS])
    with st.expander("More: how much is taken out, and where", expanded=is_set, type="compact"):
        left, right = st.columns(2)
        left.number_input(
            "Share that stays", 0.0, MOST_STAYS, key=GATE, step=0.25,
            help="The gate: 0 replaces all of what the places hold; at 0.5 half of it stays beside half of what is put "
                 "there.",
        )  # fmt: skip
        right.text_input(
            "Positions", key=POSITIONS, placeholder="all, or such as 10-20,30",
            help="Where the places are replaced, counted from 0, which is the beginning-of-sequence token where there "
                 "is one. Empty: at every position.",
        )  # fmt: skip


def _control(name: str) -> str:
    return "matched sets if enough, else text" if name == USUAL_CONTROL else CONTROLS[ControlKind(name)]


def _in_words(metric: str) -> str:
    outcome = get_outcome(metric, period=2)
    return f"{metric}: {outcome.meaning}"


_HELD = {Frozen.NOTHING.value: "follow the ablation", Frozen.PATTERNS.value: "held as in the intact run"}
_FILLS = {
    Intervention.ZERO.value: "zeros",
    Intervention.MEAN.value: "mean over other sequences and positions",
    Intervention.MEAN_PER_POSITION.value: "mean over other sequences at each position (mean@pos)",
    Intervention.MEAN_OF_PAST.value: "mean over the sequence's own past (mean@seq)",
    Intervention.RESAMPLE.value: "what other sequences hold (resample)",
    Intervention.COUNTERFACTUAL.value: "what the corrupted twin holds (counterfactual)",
    Intervention.OPTIMAL.value: "the constant that hurts least (optimal, fitted: slow)",
}


def is_about_copies(metric: str) -> bool:
    """Whether the metric is measured on repeated random tokens, and not on held-out text."""
    return metric in COPY_OUTCOMES
