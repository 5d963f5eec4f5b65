"""The head grid's payload: one value per head, with its interval, its value at step 0, and what is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor

from analyses.views.payload import Payload, Scale, checked, fitted, numbers, scale_fields, visible

HINT = "point at a head to read it; click to choose it; shift-click or X adds it to the ablation"


def head_grid_payload(
    values: Float[Tensor, "layer head"],
    label: str,
    *,
    scale: Scale | None = None,
    interval: tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]] | None = None,
    before: Float[Tensor, "layer head"] | None = None,
    sure: Bool[Tensor, "layer head"] | None = None,
    chosen: str | None = None,
    ablated: Sequence[str] = (),
    marks: Sequence[Sequence[str]] | None = None,
    digits: int = 2,
    hint: str = HINT,
) -> Payload:
    """Return what the head grid draws.

    Args:
        values: one number per head; what is not finite is drawn as a dash.
        label: what the numbers are, with their unit.
        scale: the colours; by default sequential from 0 to the largest value, or diverging if some value is negative.
        interval: the ends of each value's confidence interval, read out on hover.
        before: the same quantity at step 0, in small print in each cell.
        sure: which values are told apart from none (underlined).
        chosen: the head that is selected, as in `L1H3`.
        ablated: the heads in the set to ablate, outlined.
        marks: a short word under each value, such as a distance.
        digits: decimals shown.
        hint: the line below while nothing is pointed at.
    """
    kind = "diverging" if bool((values < 0).any()) else "sequential"
    return checked(
        {
            "values": numbers(values),
            "label": visible_label(label),
            "scale": scale_fields(scale or fitted(values, kind)),
            "low": None if interval is None else numbers(interval[0]),
            "high": None if interval is None else numbers(interval[1]),
            "before": None if before is None else numbers(before),
            "sure": None if sure is None else sure.tolist(),
            "chosen": chosen,
            "set": list(ablated),
            "marks": None if marks is None else [list(row) for row in marks],
            "digits": digits,
            "hint": hint,
        }
    )


def visible_label(label: str) -> str:
    """Return a label with its spaces as they are and everything else visible."""
    return " ".join(visible(word) for word in label.split())
