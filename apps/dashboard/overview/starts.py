"""Three questions to begin with, each a link to the page that answers it for this run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from apps.dashboard import components, data
from apps.dashboard.data import Run
from apps.dashboard.state import memory_name
from interp.memory_stream import require_memories
from model.config import SUM_NORMS
from model.errors import CutawayError

ASKED = (1, 37)
"""The memory that is asked about, where the model has it."""

NEEDS = {"heads": "attention-patterns", "memories": "ffn-memories"}
"""The study without whose result a page has no answer."""


def draw(run: Run, step: int | None, runs: Sequence[Run]) -> None:
    """The three, side by side."""
    if run.model is None or step is None:
        return
    here = {"run": run.name, "step": str(step)}
    starts = [
        (
            "Find the induction heads", "heads", here | {"order": "By this score"},
            "Heads in order of their induction score, on random tokens and on text, beside step 0.",
        ),
        *_memory(run, here),
        _norms(run, step, runs, here),
    ]  # fmt: skip
    for column, (title, page, address, said) in zip(st.columns(len(starts), gap="small"), starts, strict=True):
        with column, st.container(border=True, gap="xxsmall", height="stretch"):
            st.header(components.literal(title), anchor=False)
            components.caption(said)
            study = NEEDS.get(page)
            if study is None or data.shelf(run, study).at(step) is not None:
                st.page_link(f"app_pages/{page}.py", label="Begin", query_params=address,
                             icon=":material/arrow_forward:")  # fmt: skip
            else:
                components.caption(f"Not measured at step {step:,} yet. First:")
                st.code(f"cutaway run {study} {data.spelled(run, step)}", language="bash", wrap_lines=True)


def _memory(run: Run, here: dict[str, str]) -> list[tuple[str, str, dict[str, str], str]]:
    """A memory that there is, where the model has memories."""
    model = run.model
    if model is None:
        return []
    try:
        require_memories(model)
    except CutawayError:
        return []
    place = min(ASKED[0], model.n_layers - 1), min(ASKED[1], model.ffn_width - 1)
    name = memory_name(*place)
    said = "What it fires on, which tokens it promotes, and what goes wrong without it."
    return [(f"What does memory {name} store?", "memories", here | {"memory": name}, said)]


def _norms(run: Run, step: int, runs: Sequence[Run], here: dict[str, str]) -> tuple[str, str, dict[str, str], str]:
    """Beside the run whose norms stand elsewhere, where there is one."""
    post = run.model is not None and run.model.norm in SUM_NORMS
    twins = [
        other
        for other in runs
        if other.model is not None and other.steps and (other.model.norm in SUM_NORMS) is not post
        and other.imported_from is None
    ]  # fmt: skip
    twin = next((other for other in twins if other.name.startswith(run.name) or run.name.startswith(other.name)), None)
    twin = twin or next(iter(twins), None)
    title = "What does the placement of the norms change?"
    if twin is None or run.imported_from is not None:
        return title, "gradients", here, "Gradient and residual norms by layer, at initialization and over training."
    at = step if step in twin.steps else twin.steps[-1]
    said = f"Gradient and residual norms by layer of {run.name} beside {twin.name}."
    return title, "gradients", here | {"b": f"{twin.name}@{at}"}, said
