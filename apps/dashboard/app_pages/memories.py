"""FFN memories: a search, one memory in full with its key and its value, and what its layer makes of it."""

import streamlit as st

from apps.dashboard import components, data, panels, selecting, telling
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


def _unasked(shown: tuple[int, int]) -> None:
    """Say that the memory below is not the one that the address or the sidebar asks for, if it is not."""
    notice = selecting.notice("memory")
    if notice is not None:
        st.warning(components.literal(f"{notice} Below: {memory_name(*shown)}."), icon=":material/link_off:")


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
memory = chosen.memory
if saved is not None:
    st.header("Find a memory")
    listed = memory_finder.draw(saved)
    result = saved.result
    begun = memory or memory_finder.searched_in(result) or memory_finder.best(listed, result)
    memory = begun or memory_facts.strongest(result)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(memory_name(*memory), width="content")
        memory_finder.steps(listed, memory)
    _unasked(memory)
    if begun is None:
        components.caption("none is chosen: of those that promote what follows their top trigger, the surest")
    memory_parts.one(saved, run, chosen, memory)
    memory_parts.evidence(saved, run, chosen, memory)
    memory_over.draw(saved, run, memory, selecting.compared())

memory = memory or (0, 0)
st.header(f"{memory_name(*memory)} on a text")
if saved is None:
    _unasked(memory)
memory_on_text.draw(run, chosen, memory, saved)

if saved is not None:
    st.header("Layers at a glance")
    memory_layers.draw(saved, memory[0])

st.header("How its layer's prediction comes about")
memory_composition.draw(run, chosen.step, memory[0])

st.header("What turning values on does")
memory_promotion.draw(run, chosen.step)

if saved is not None:
    st.header("What the study found")
    telling.findings(data.findings(saved))
    panels.whole_study(saved, n=saved.result.n_prefixes, unit="prefixes")
