"""Every head in one row: its verdict, and the number of each source that decides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analyses.attention.evidence import Evidence, Source
from analyses.attention.harms import COPY, TEXT
from analyses.attention.result import Result
from analyses.attention.verdicts import Verdict, verdicts
from analyses.attention.weights import INPUTS


def head_table(result: Result) -> pd.DataFrame:
    """One row for each head: verdict, score, text, copying, composition, ablation, and the sentence that says it."""
    return pd.DataFrame([_row(verdict) for verdict in verdicts(result)])


def _row(verdict: Verdict) -> dict[str, Any]:
    return {
        "head": verdict.label,
        "layer": verdict.layer,
        "index": verdict.head,
        "name": verdict.name,
        "standing": verdict.standing.value,
        "kinds": ", ".join(kind.value for kind in verdict.kinds),
        **_interval("score", verdict.item(Source.ATTENTION)),
        **_columns(verdict.item(Source.ATTENTION), chance="null", rank="rank", score_step_0="step_0"),
        **_columns(_main_on_text(verdict), text="value", text_chance="null"),
        **_columns(verdict.item(Source.COPYING), copying="value", copying_z="z", copying_step_0="step_0"),
        **_partners(verdict.items(Source.COMPOSITION)),
        **_columns(verdict.item(Source.BEHAVIOUR), median_distance="value"),
        **_harm("copy", verdict.item(Source.ABLATION, COPY)),
        **_harm("text", verdict.item(Source.ABLATION, TEXT)),
        "verdict": verdict.sentence,
    }


def _main_on_text(verdict: Verdict) -> Evidence | None:
    """How it attends on text by the kind that it is named after."""
    return next((item for item in verdict.items(Source.TEXT) if item.kind is verdict.kinds[0]), None)


def _columns(item: Evidence | None, **fields: str) -> dict[str, Any]:
    """Columns by name, each a field of the item; None where there is no item."""
    return {column: None if item is None else getattr(item, field) for column, field in fields.items()}


def _interval(name: str, item: Evidence | None) -> dict[str, Any]:
    return _columns(item, **{name: "value", f"{name}_low": "low", f"{name}_high": "high"})


def _harm(name: str, item: Evidence | None) -> dict[str, Any]:
    return _interval(f"{name}_harm", item) | _columns(
        item, **{f"{name}_p": "p", f"{name}_harm_step_0": "step_0", f"n_ablated_{name}": "n_heads"}
    )


def _partners(items: Sequence[Evidence]) -> dict[str, Any]:
    """For each input the head that it reads most surely, and with what z."""
    row: dict[str, Any] = {}
    for name in INPUTS:
        item = next((each for each in items if each.what.startswith(f"{name} reads ")), None)
        row[f"{name}_reads"] = None if item is None else item.what.split()[-1]
        row[f"{name}_z"] = None if item is None else item.z
    return row
