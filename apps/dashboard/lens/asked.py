"""What the Lens page is asked beside the selection: about which token, less what, in which parts and order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from analyses.views.lens_table import Cells
from apps.dashboard import components
from apps.dashboard.address import Part, choice_of
from apps.dashboard.state import is_number, shortened
from interp.attribution import Detail
from interp.live_targets import Target
from model.errors import InputError

TARGETS = {Target.NEXT: "the next token", Target.OWN: "the model's choice", Target.TOKEN: "a token"}
SHORT = {Target.NEXT: "next token", Target.OWN: "own choice", Target.TOKEN: "target"}
AGAINST = {"mean": "the mean logit", "nothing": "nothing", "token": "a token"}
ORDERS = {"forward": "forward", "size": "by size"}
DETAILS = {Detail.HEADS: "heads", Detail.SUBLAYERS: "sublayers"}

PLACE, CELLS, LAYER = "place", "cells", "lens_layer"
"""Keys of what the table locks and shows, and of the layer whose memories are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is asked about."""

    target: str = Target.NEXT.value
    word: str = ""
    """The text of the target, where it is a named token."""

    against: str = "mean"
    against_word: str = ""
    """The text of the token that a logit is compared with, where it is one."""

    detail: str = Detail.HEADS.value
    order: str = "forward"

    def compared(self) -> dict[str, str]:
        """As the library's functions take it."""
        known = {"target": self.target, "word": self.word}
        named = self.against == "token"
        return known | ({"against_word": self.against_word} if named else {"against": self.against})

    def spelled(self, *names: str) -> str:
        """As Python writes it, after other arguments; what is the default is left out."""
        default = {"target": "next", "word": "", "against": "mean", "against_word": "", "detail": "heads"}
        said = self.compared() | {"detail": self.detail}
        kept = {name: said[name] for name in names if name in said and said[name] != default[name]}
        return "".join(f", {name}={value!r}" for name, value in kept.items())


def _digits(text: str) -> str:
    if not is_number(text):
        raise InputError(f"{shortened(text)!r} is not a layer; write its number, such as 1")
    return str(int(text))


PARTS = (
    Part(name="target", key="lens_target", read=choice_of(list(Target), "target"), otherwise="next"),
    Part(name="word", key="lens_word", read=str),
    Part(name="place", key=PLACE, read=str),
    Part(name="mode", key=CELLS, read=choice_of(list(Cells), "mode"), otherwise=Cells.PROBABILITY.value),
    Part(name="against", key="lens_against", read=choice_of(list(AGAINST), "reference"), otherwise="mean"),
    Part(name="other", key="lens_other", read=str),
    Part(name="by", key="lens_by", read=choice_of(list(Detail), "detail"), otherwise="heads"),
    Part(name="order", key="lens_order", read=choice_of(list(ORDERS), "order"), otherwise="forward"),
    Part(name="ffn", key=LAYER, read=_digits),
)
"""The page's own parts of the address."""


def pick_target(known: Callable[[str], str]) -> tuple[str, str]:
    """Draw the choice of a target; one that cannot be had is told, and the next token taken.

    Args:
        known: returns the text of a token for what was typed, or raises `InputError`.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        target = st.segmented_control(
            "Target: whose rank and logit", [each.value for each in Target], key="lens_target", required=True,
            format_func=lambda value: TARGETS[Target(value)], width="content",
            help="Behind the last token nothing follows: there the target is the model's choice.",
        )  # fmt: skip
        if target != Target.TOKEN.value:
            return str(target), ""
        typed = st.text_input("Token", key="lens_word", placeholder="as it is printed in the table", width=220)
    word = _word(typed, known, "Below: the next token.")
    return (target, word) if word is not None else (Target.NEXT.value, "")


def pick_comparison(known: Callable[[str], str]) -> Asked:
    """Draw the choices of an attribution: less what, in which parts, in which order."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        against = _choice("The target's logit less", AGAINST, "lens_against")
        typed = ""
        if against == "token":
            typed = st.text_input("That token", key="lens_other", placeholder="as it is printed", width=180)
        detail = _choice("Parts", {each.value: title for each, title in DETAILS.items()}, "lens_by")
        order = _choice("Order", ORDERS, "lens_order")
    word = _word(typed, known, "Below: less the mean logit.") if against == "token" else ""
    if word is None:
        against, word = "mean", ""
    return Asked(against=against, against_word=word, detail=detail, order=order)


def _choice(label: str, options: dict[str, str], key: str) -> str:
    return str(
        st.segmented_control(
            label, list(options), key=key, required=True, format_func=options.__getitem__, width="content"
        )
    )


def _word(typed: str, known: Callable[[str], str], instead: str) -> str | None:
    """The text of the token that was typed; None, and a sentence, where it is not one."""
    try:
        return known(typed)
    except InputError as error:
        st.warning(components.literal(f"{error}. {instead}"), icon=":material/link_off:")
        return None


def as_typed(read: Callable[[str], Any]) -> Callable[[str], str]:
    """Lets a space be typed as the table shows it, where the text itself is no token."""

    def known(typed: str) -> str:
        try:
            read(typed)
        except InputError:
            spaced = typed.replace("·", " ")
            if spaced == typed:
                raise
            read(spaced)
            return spaced
        return typed

    return known


def within(place: str, places: Sequence[str]) -> tuple[str, str | None]:
    """The chosen place, or the last one, and what is to be said where another was asked for."""
    if place in places:
        return place, None
    said = f'the stream is not read at "{place}"; places are {_listed(places)}' if place else None
    return places[-1], said


def _listed(places: Sequence[str]) -> str:
    return ", ".join(places) if len(places) <= 9 else f"{', '.join(places[:3])}, ..., {places[-1]}"
