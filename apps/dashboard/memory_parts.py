"""What the page of FFN memories shows: layers, a search, and of one memory its triggers and its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.ffn_memories import Result
from analyses.ffn_tables import layer_rows
from analyses.views import TokenRow, token_rows_payload, visible
from analyses.views.payload import Payload, fitted

Memory = tuple[int, int]

OF_LAYERS = [
    *("step", "layer", "dead", "agreement", "low", "high", "chance", "p", "lift", "median rank", "chance rank"),
    *("last-token share", "firing rate"),
]
"""Columns of the layers' summary that are shown."""

SEARCHED = ["memory", "top trigger", "next", "promotes", "suppresses"]
"""Columns of the study's table that hold text."""

LISTED = ["memory", "top trigger", "next", "promotes", "agrees", "firing rate", "largest", "last-token share"]
"""Columns of the study's table that are listed."""


def layers(result: Result) -> pd.DataFrame:
    """The memories of each layer together, at step 0 and at the checkpoint."""
    return pd.DataFrame(layer_rows(result), columns=OF_LAYERS)


def matching(rows: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """The memories whose name, trigger or tokens hold `wanted`, in either case; all of them where nothing is wanted."""
    text = visible(wanted.strip()) if wanted.strip() else ""
    found = rows[SEARCHED].apply(lambda column: column.str.contains(text, case=False, regex=False))
    return pd.DataFrame(rows.loc[found.any(axis=1), LISTED])


def strongest(result: Result) -> Memory:
    """The memory to begin with: the surest value among those that promote what follows their top trigger most."""
    values, alive = result.reading.values, result.reading.activity.alive
    agrees = alive & (values.next_rank == 0)
    layer, memory = divmod(int((values.confidence * (agrees if agrees.any() else alive)).argmax()), alive.shape[1])
    return layer, memory


def facts(result: Result, memory: Memory) -> tuple[str, ...]:
    """What is known of the memory in numbers, beside step 0."""
    activity, values, summary = result.reading.activity, result.reading.values, result.reading.summary
    rank = int(values.next_rank[*memory])
    place = f"its value ranks what follows its top trigger {rank + 1} of {len(result.vocabulary)}"
    shares = (("share of triggers with the commonest last token", "last_token_share"), ("fires on", "firing_rate"))
    beside = [
        f"{name} {float(getattr(summary, key)[*memory]):.1%}"
        + ("" if result.initial is None else f" (step 0: {float(getattr(result.initial, key)[*memory]):.1%})")
        for name, key in shares
    ]
    largest = f"largest coefficient {float(activity.largest[*memory]):.2f}"
    return (*beside, largest, "never fired" if rank < 0 else place)


def triggers(result: Result, memory: Memory) -> Payload:
    """The ends of the prefixes that fire the memory most; the last token is boxed, what followed stands in the note."""
    found = result.reading.triggers
    rows = []
    for rank in range(found.context.shape[2]):
        length = int(found.length[*memory, rank])
        if not length:
            continue
        tokens = result.spelled(found.context[*memory, rank].tolist())
        follows = visible(result.vocabulary[int(found.next_token[*memory, rank])])
        note = f"{float(found.coefficient[*memory, rank]):6.2f}  then {follows}"
        rows.append(TokenRow(tokens=tokens, note=note, boxed=len(tokens) - 1, start=length - len(tokens)))
    return token_rows_payload(rows)


def on_text(tokens: Sequence[str], coefficients: Float[Tensor, " pos"]) -> Payload:
    """A text whose tokens are coloured by the memory's coefficient there."""
    values = coefficients.tolist()
    row = TokenRow(tokens=tokens, values=values, note=f"largest {max(values):.2f}")
    return token_rows_payload([row], "coefficient", scale=fitted(coefficients, "diverging"), hint="point at a token")
