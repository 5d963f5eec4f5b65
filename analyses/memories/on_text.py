"""Memories on a text of the reader's: the coefficient of one at every token, and which ones write most at one token."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.ffn.result import Result
from analyses.views import TokenRow, token_rows_payload, visible
from analyses.views.payload import Payload, fitted
from interp.live_memories import WritingMemories

N_PROMOTED = 6
"""Tokens that are told of what a memory writes."""


def coefficient_rows(tokens: Sequence[str], coefficients: Float[Tensor, " pos"]) -> pd.DataFrame:
    """The coefficient of a memory at every token of a text."""
    return pd.DataFrame({"position": range(len(tokens)), "token": list(tokens), "coefficient": coefficients.tolist()})


def coefficient_payload(
    tokens: Sequence[str], coefficients: Float[Tensor, " pos"], token: int | None = None
) -> Payload:
    """The text, its tokens coloured by the memory's coefficient there; `token` is the position that is chosen."""
    values = coefficients.tolist()
    row = TokenRow(tokens=tokens, values=values, note=f"largest {max(values):.2f}")
    return token_rows_payload(
        [row], "coefficient", scale=fitted(coefficients, "diverging"), pick="token", token=token,
        hint="point at a token to read it; click it to choose its position",
    )  # fmt: skip


def writing_rows(found: WritingMemories, result: Result | None) -> pd.DataFrame:
    """The memories that write most at a token, and what their values promote where that is saved."""
    places = list(zip(found.layer.tolist(), found.index.tolist(), strict=True))
    rows = pd.DataFrame(
        {
            "memory": [f"L{layer}M{memory}" for layer, memory in places],
            "coefficient": found.coefficient.tolist(),
            "written": found.written.tolist(),
            "share": found.share.tolist(),
        }
    )
    if result is not None:
        rows["promotes"] = [
            _ends(result, place, coefficient)
            for place, coefficient in zip(places, found.coefficient.tolist(), strict=True)
        ]
    return rows


def _ends(result: Result, memory: tuple[int, int], coefficient: float) -> str:
    """The first tokens that it promotes with this coefficient: a negative one turns the value's order round."""
    values = result.reading.values
    ids = (values.promoted if coefficient > 0 else values.suppressed)[memory].tolist()
    return " ".join(visible(token) for token in result.spelled(ids[:N_PROMOTED]))
