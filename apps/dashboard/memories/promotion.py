"""What turning on values of a concept does to what the model writes, by the study memory-promotion."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import streamlit as st

from analyses.memory_promotion import Result
from analyses.views import Scale, TokenRow, View, token_rows_payload
from analyses.views.payload import Payload
from apps.dashboard import components, data
from apps.dashboard.data import Run

STUDY = "memory-promotion"
SAMPLES = 3
"""Prompts whose continuations are shown."""


def draw(run: Run, step: int | None) -> None:
    """What was found, the memories that were turned on, and what the model writes with and without them."""
    saved = components.on_shelf(STUDY, run, step, data.shelf(run, STUDY))
    if saved is None:
        return
    result = saved.result
    components.findings(data.findings(saved))
    with st.grid(2, min_column_width=400, gap=("small", "medium")) as columns:
        with columns.cell():
            st.subheader(f"Turned on for {components.literal(result.concept)}")
            alt = f"Memories that promote {result.concept}"
            components.pick_from(turned_on(result), "memory", key="promoters", height="content", alt=alt)
        with columns.cell():
            st.subheader("What it writes, as it is and with them")
            components.show(View.TOKEN_ROWS, written(result), key="written")
    components.provenance(
        saved, f"n = {result.n_prompts} prompts of {result.kind}, {result.n_new_tokens} tokens each",
        f"coefficients: {result.config.strength:g} times their largest", "texts: the first prompts, not chosen ones",
    )  # fmt: skip
    components.whole_study(saved)


def turned_on(result: Result) -> pd.DataFrame:
    """The memories that were turned on, the one that stands out most first."""
    return pd.DataFrame(
        [
            {
                "memory": each.label,
                "stands out by": each.standout,
                "largest": each.largest,
                "fires on": each.firing,
                "promotes": " ".join(each.top),
            }
            for each in result.memories
        ]
    )


def written(result: Result) -> Payload:
    """Continuations of the first prompts; tokens of the concept are coloured."""
    scale = Scale(kind="diverging", low=-1.0, high=1.0)  # orange as what is promoted
    return token_rows_payload(
        list(_texts(result)), result.concept, scale=scale, digits=0, hint="coloured: of the concept"
    )


def _texts(result: Result) -> Iterator[TokenRow]:
    for sample in result.samples[:SAMPLES]:
        yield TokenRow(tokens=sample.prompt, note="prompt")
        for note, tokens, inside in (
            ("as it is", sample.plain, sample.plain_in_concept),
            ("turned on", sample.promoted, sample.in_concept),
        ):
            values = [1.0 if each else None for each in inside]
            yield TokenRow(tokens=tokens, values=values, note=note, start=len(sample.prompt))
