"""The logit of the target at the chosen position, as the sum of what each part of the model adds to it."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from analyses.lens.figures import FEW, attribution_figure
from analyses.lens.rows import OTHERS, attribution_rows, kind_of, largest_first, layer_of, memory_rows
from apps.dashboard import components, data, panels, snippets
from apps.dashboard.lens import asked as asking
from apps.dashboard.lens import reads
from apps.dashboard.lens.asked import LAYER, Asked
from apps.dashboard.lens.parts import Looked, text_of
from apps.dashboard.panels import Panel
from interp.live_lens import LiveAttribution
from interp.live_targets import one_token
from model.errors import CutawayError, NotAdditiveError

KEY = "lens_parts"

STILL = (
    "The table above still reads every place: the lens needs no sum. "
    "What a head or an FFN does can be told by ablating it."
)


def draw(looked: Looked) -> None:
    """Take the logit apart, or say why that cannot be done and what can."""
    st.header("Which parts the logit is the sum of")
    run, chosen = looked.run, looked.chosen
    try:
        if run.model is not None:
            run.model.require_additive_stream("direct logit attribution")
    except NotAdditiveError as error:
        components.unasked(error)
        st.text(STILL)
        return
    lab = data.lab(run, chosen.step)
    picked = asking.pick_comparison(asking.as_typed(lambda typed: one_token(lab, typed)))
    asked = replace(picked, target=looked.asked.target, word=looked.asked.word)
    taken = reads.attribution(run, chosen, asked)
    other = _other(looked, asked, taken)
    _bars(looked, asked, taken, other)
    _sums(looked, asked, taken)
    _followed(looked, asked)


def _other(looked: Looked, asked: Asked, taken: LiveAttribution) -> LiveAttribution | None:
    """The same in the checkpoint to compare with, where it has the same parts and the same target."""
    if looked.compared is None:
        return None
    there = looked.compared
    try:
        found = reads.attribution(there.run, reads.at(looked.chosen, there.run, there.step), asked)
    except CutawayError as error:
        components.unasked(CutawayError(f"{there.spec} is not drawn beside it: {error}"))
        return None
    if found.found.labels != taken.found.labels:
        components.unasked(CutawayError(f"{there.spec} is not drawn beside it: it has other parts."))
        return None
    if int(found.targets[looked.position]) != int(taken.targets[looked.position]):
        components.unasked(CutawayError(f"{there.spec} is not drawn beside it: it has another target here."))
        return None
    return found


def _bars(looked: Looked, asked: Asked, taken: LiveAttribution, other: LiveAttribution | None) -> None:
    rows = attribution_rows(taken, looked.position)
    forward = asked.order == "forward"
    shown = rows if forward else largest_first(rows)
    beside = None if other is None else attribution_rows(other, looked.position)
    upright = forward and len(shown) > FEW // 2
    more = asked.spelled("target", "word", "against", "against_word", "detail")
    call = f"attribution_on(lab, {text_of(looked.chosen)}{more})"
    panel = Panel(
        key=KEY, title=f"What each part adds to ‘{looked.target()}’", rows=lambda: rows,
        about=looked.about(
            position=looked.position, against=asked.against_word or asked.against, detail=asked.detail,
            model_logit=float(taken.logit[looked.position]), residual=float(taken.residual[looked.position]),
        ),
        python=snippets.opened(
            looked.run, looked.chosen.step, f"taken = {call}", f"rows = attribution_rows(taken, {looked.position})",
            imports=["from interp.live_lens import attribution_on", "from analyses.lens.rows import attribution_rows"],
        ),
    )  # fmt: skip
    figure = attribution_figure(shown, "adds, logits", upright=upright, other=beside, names=looked.names)
    panels.chart(panel, figure, alt=panel.title, width="stretch", on_select=_clicked)


def _clicked() -> None:
    """A head's bar selects the head, an FFN's shows its memories."""
    selection = st.session_state[KEY].selection
    for point in selection.get("part") or ():
        label = str(point.get("component", ""))
        layer = layer_of(label)
        if label.startswith(OTHERS) or layer is None:
            continue
        match kind_of(label):
            case "head":
                st.session_state["head"] = label
            case "FFN":
                st.session_state[LAYER] = str(layer)


def _sums(looked: Looked, asked: Asked, taken: LiveAttribution) -> None:
    """What the parts sum to, the model's own number, and the rest."""
    at = looked.position
    total, own = float(taken.found.total[0, at]), float(taken.logit[at])
    less = {"mean": " less the mean logit", "nothing": "", "token": f" less that of ‘{asked.against_word}’"}[
        asked.against
    ]
    precision = str(data.lab(looked.run, looked.chosen.step).gpt.dtype).removeprefix("torch.")
    components.sentences(
        [
            f"{len(taken.found.labels)} parts sum to {total:.6f}; the model's own logit of ‘{looked.target()}’{less} "
            f"is {own:.6f}. The rest, {float(taken.residual[at]):+.1e}, is rounding ({precision})."
        ]
    )  # fmt: skip
    components.caption(
        taken.source, looked.chosen.spec, f"position {at}", taken.found.note,
        "direct effects only: what a part does through later ones, or to the scales, is not in its bar",
        "click a head's bar to select it, an FFN's for its memories",
    )  # fmt: skip


def _followed(looked: Looked, asked: Asked) -> None:
    """Where a click on a bar leads: the head's page, and the memories of a layer."""
    head = looked.chosen.head
    query = {"run": looked.run.name, "step": str(looked.chosen.step)}
    if head is not None:
        name = f"L{head[0]}H{head[1]}"
        st.page_link("app_pages/heads.py", label=f"{name} in Heads", icon=":material/grid_on:",
                     query_params={**query, "head": name, "token": str(looked.position)})  # fmt: skip
    layer = _layer(looked)
    if layer is None:
        return
    found = reads.memories(looked.run, looked.chosen, asked, layer, looked.position)
    more = asked.spelled("target", "word", "against", "against_word")
    call = f"memories_towards(lab, {text_of(looked.chosen)}, {layer}, {looked.position}{more})"
    panel = Panel(
        key="lens_memories", title=f"Memories of L{layer} that add most to ‘{looked.target()}’",
        rows=lambda: memory_rows(found), about=looked.about(position=looked.position, layer=layer),
        python=snippets.opened(
            looked.run, looked.chosen.step, f"found = {call}", "rows = memory_rows(found)",
            imports=[
                "from interp.memory_attribution import memories_towards", "from analyses.lens.rows import memory_rows",
            ],
        ),
    )  # fmt: skip
    st.subheader(components.literal(panel.title))
    panels.table(panel, alt=panel.title, pick="memory")
    added = float(found.added.sum())
    components.caption(
        f"all {len(found.added):,} memories add {added:+.3f}, the biases {found.biases:+.3f}: "
        f"the FFN {found.total:+.3f} logits",
        "click a row to select the memory",
    )  # fmt: skip
    if looked.chosen.memory is not None:
        name = "L{}M{}".format(*looked.chosen.memory)
        st.page_link("app_pages/memories.py", label=f"{name} in FFN memories", icon=":material/key:",
                     query_params={**query, "memory": name})  # fmt: skip


def _layer(looked: Looked) -> int | None:
    """The layer whose memories are shown, if the model has it and memories."""
    asked, model = str(st.session_state.get(LAYER) or ""), looked.run.model
    if not asked or model is None:
        return None
    if int(asked) >= model.n_layers or f"L{asked}.mid" not in looked.seen.reading.labels:
        said = f"ffn: there is no FFN of layer {asked}; layers run 0..{model.n_layers - 1}."
        st.warning(components.literal(said), icon=":material/link_off:")
        return None
    return int(asked)
