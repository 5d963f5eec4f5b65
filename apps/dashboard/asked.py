"""What a page keeps in the address beside the selection, of few: a score, units, which tab is open.

Each is an input of the page with a choice that goes without saying: that one leaves the address short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from apps.dashboard import components
from apps.dashboard.address import Part, choice_of, restore, write


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One input of the page."""

    name: str
    """In the address."""
    key: str
    """Of the input."""
    options: Sequence[str]
    """What may be chosen, as the address spells it."""
    usual: str
    """What is chosen where the address says nothing."""

    @property
    def part(self) -> Part:
        """Its part of the address, which is left out while the usual one is chosen."""
        return Part(name=self.name, key=self.key, read=choice_of(list(self.options), self.name), otherwise=self.usual)


def begin(choice: Choice) -> str:
    """Give the input what the address says, before it is drawn; what is chosen then."""
    for notice in restore([choice.part]):
        st.warning(components.literal(notice), icon=":material/link_off:")
    if st.session_state[choice.key] not in choice.options:
        st.session_state[choice.key] = choice.usual
    return str(st.session_state[choice.key])


def end(choice: Choice) -> str:
    """Put what is chosen into the address, after the input was drawn."""
    write([choice.part])
    return str(st.session_state.get(choice.key) or choice.usual)


def tabs(choice: Choice, bodies: Mapping[str, Callable[[], None]]) -> None:
    """Tabs, each with what draws it, in the order of the choice's options: only the open one is computed and sent."""
    begin(choice)
    places = st.tabs(choice.options, key=choice.key, on_change="rerun")
    end(choice)
    for name, place in zip(choice.options, places, strict=True):
        if place.open:
            with place:
                bodies[name]()
