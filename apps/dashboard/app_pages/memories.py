"""FFN memories: a search, one memory in full with its key and its value, and what all memories of the model make."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from analyses.results import SavedResult
from apps.dashboard import components, data, panels, selecting, telling
from apps.dashboard.asked import Choice, tabs
from apps.dashboard.memories import composition as memory_composition
from apps.dashboard.memories import facts as memory_facts
from apps.dashboard.memories import finder as memory_finder
from apps.dashboard.memories import layers as memory_layers
from apps.dashboard.memories import on_text as memory_on_text
from apps.dashboard.memories import over as memory_over
from apps.dashboard.memories import parts as memory_parts
from apps.dashboard.memories import promotion as memory_promotion
from apps.dashboard.state import memory_name
from interp.memory_stream import require_memories
from model.errors import CutawayError

STUDY = "ffn-memories"

ONE = ("Key & value", "Evidence", "On a text", "Over training")
TAB = Choice(name="tab", key="memory_tab", options=ONE, usual=ONE[0])
"""What is shown of one memory."""

EVERY = ("What was found", "Layer by layer", "How predictions come about", "Turning values on")
ALL = Choice(name="all", key="memory_all", options=EVERY, usual=EVERY[0])
"""What is shown of all memories, whichever is chosen."""


def _unasked(shown: tuple[int, int] | None) -> None:
    """Say that the memory below, if one is shown, is not the one that the address or the sidebar asks for."""
    notice = selecting.notice("memory")
    if notice is not None:
        below = "" if shown is None else f" Below: {memory_name(*shown)}."
        st.warning(components.literal(notice + below), icon=":material/link_off:")


run, chosen = selecting.run(), selecting.selection()
st.title("FFN memories")
components.run_line(run, chosen.step)
if run.model is None:
    components.end()
try:
    require_memories(run.model)
except CutawayError as error:  # there is nothing to show, and no command that would change it
    components.unasked(error)
    components.end()

saved = components.on_shelf(STUDY, run, chosen.step, data.shelf(run, STUDY))


def _found(result: SavedResult) -> None:
    telling.findings(data.findings(result))
    panels.whole_study(result, n=result.result.n_prefixes, unit="prefixes")


def _studied(draw: Callable[[SavedResult], None]) -> Callable[[], None]:
    return partial(components.studied, saved, STUDY, draw, where="at this checkpoint")


if saved is None:
    memory = chosen.memory or (0, 0)
    st.header(f"{memory_name(*memory)} on a text")
    _unasked(memory)
    memory_on_text.draw(run, chosen, memory, saved)
else:
    listed, result = memory_finder.draw(saved), saved.result
    begun = chosen.memory or memory_finder.searched_in(result) or memory_finder.best(listed, result)
    memory = begun or memory_facts.strongest(result)
    if begun is None and not listed:  # the search found nothing: a memory that it did not find would mislead
        _unasked(None)
        components.caption("No memory is shown: none was found and none is chosen. Empty the search to list them all.")
    else:
        memory_parts.heading(saved, run, chosen, memory, listed)
        _unasked(memory)
        if begun is None:
            components.caption("none is chosen: of those that promote what follows their top trigger, the surest")
        other = selecting.compared()
        tabs(TAB, {
            "Key & value": partial(memory_parts.one, saved, run, memory, other),
            "Evidence": partial(memory_parts.evidence, saved, run, chosen, memory),
            "On a text": partial(memory_on_text.draw, run, chosen, memory, saved),
            "Over training": partial(memory_over.over_steps_of, saved, run, memory),
        })  # fmt: skip

st.header("All memories")
tabs(ALL, {
    "What was found": _studied(_found),
    "Layer by layer": _studied(lambda result: memory_layers.draw(result, memory[0])),
    "How predictions come about": partial(memory_composition.draw, run, chosen.step, memory[0]),
    "Turning values on": partial(memory_promotion.draw, run, chosen.step),
})  # fmt: skip
