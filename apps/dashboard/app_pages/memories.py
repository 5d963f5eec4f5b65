"""FFN memories: what triggers each key, what each value promotes, and one memory in full."""

import streamlit as st

from analyses.views import View
from analyses.views.memory import activity_figure, value_figure
from apps.dashboard import components, data, memory_parts, passes, selecting
from apps.dashboard.state import memory_name

STUDY = "ffn-memories"

run, chosen = selecting.run(), selecting.selection()
st.title("FFN memories")
components.run_line(run, chosen.step)
shelf = data.shelf(run, STUDY)
saved = components.on_shelf(STUDY, run, chosen.step, shelf)
if saved is None:
    st.stop()

result = saved.result
components.findings(data.findings(saved))
components.table(memory_parts.layers(result), alt="Agreement, triggers and activity by layer, beside step 0")
components.provenance(
    saved, f"n = {result.n_prefixes:,} prefixes of {result.config.split} text in {result.n_windows:,} windows"
)

st.header("Search")
wanted = st.text_input(
    "Search triggers and tokens", key="wanted", live=True, type="search", persist_state="session",
    placeholder="import, self, L1M37 ...", label_visibility="collapsed",
)  # fmt: skip
rows = memory_parts.matching(saved.table(), wanted)
components.pick_from(rows, "memory", key="memory_table", alt=f"Memories that hold {wanted!r}")
components.caption(f"{len(rows):,} of {result.reading.activity.alive.numel():,} memories; click a row to open one")

memory = chosen.memory or memory_parts.strongest(result)
name = memory_name(*memory)
st.header(name)
components.caption(*memory_parts.facts(result, memory))
keys, values = st.columns([3, 2], gap="large")
with keys:
    st.subheader("Key: the prefixes that fire it most")
    components.show(View.TOKEN_ROWS, memory_parts.triggers(result, memory), key="triggers")
    st.subheader("On a text")
    live = passes.look(run, chosen)
    on_text = passes.coefficients(run, chosen)[memory[0], :, memory[1]]
    components.show(View.TOKEN_ROWS, memory_parts.on_text(live.tokens, on_text), key="on_text")
    components.caption(live.source, f"{run.name}@{chosen.step}")
    st.button(f"Add {name} to the ablation", on_click=components.toggle_ablation, args=(name,))
with values:
    st.subheader("Value: the tokens it promotes and suppresses")
    found = result.reading.values
    tokens = result.spelled([*found.promoted[*memory].tolist(), *found.suppressed[*memory].tolist()])
    scores = [*found.promoted_score[*memory].tolist(), *found.suppressed_score[*memory].tolist()]
    components.chart(value_figure(tokens, scores), alt=f"Tokens that {name} promotes", key="value")
    st.subheader("How often it fires")
    histogram = result.reading.activity.histogram[*memory]
    components.chart(activity_figure(histogram), alt=f"Coefficients of {name}", key="histogram")
    components.caption(f"n = {result.n_prefixes:,} prefixes", chosen.spec, f"seed {result.config.seed}")
components.whole_study(saved)
