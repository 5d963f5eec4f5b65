"""The head grids of head-ablation: what every head costs alone, beside step 0; and what an ablation does to tokens."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.head_ablation import INTERVENTIONS, Result, SingleHeads
from analyses.views import Scale, TokenRow, head_grid_payload, token_rows_payload
from analyses.views.payload import Payload, fitted
from interp.places import Intervention
from interp.token_effects import TokenEffects

LEAST_REACH = 0.5
"""Nats at which a token's colour is full, at least: smaller changes stay pale."""

HINT = "underlined: told apart from no harm after Holm's correction; shift-click or X adds a head to the set"


def grid(
    single: SingleHeads,
    before: SingleHeads | None,
    intervention: Intervention,
    scale: Scale,
    *,
    alpha: float,
    chosen: str | None,
    ablated: Sequence[str],
) -> Payload:
    """The harm of every head alone on one outcome."""
    row = INTERVENTIONS.index(intervention)
    return head_grid_payload(
        single.harm.mean[row],
        f"harm in nats: {single.meaning}",
        scale=scale,
        interval=(single.harm.low[row], single.harm.high[row]),
        before=None if before is None else before.harm.mean[row],
        sure=single.p[row] < alpha,
        chosen=chosen,
        ablated=ablated,
        hint=HINT,
    )


def scale_of(single: SingleHeads, intervention: Intervention, floor: float) -> Scale:
    """The scale of one outcome, symmetric about no harm; what is below the claims' `floor` stays pale.

    Each outcome has its own: one head that is needed for copying would leave a grid on text white.
    """
    row = INTERVENTIONS.index(intervention)
    reach = max(fitted(single.harm.mean[row], "diverging").high, 2 * floor)
    return Scale(kind="diverging", low=-reach, high=reach)


def induction_set(result: Result) -> str:
    """The induction heads of the study in the grammar of places; empty where there are none."""
    return ",".join(f"L{layer}H{index}" for layer, index in result.discovery.induction_heads)


def token_payload(effects: TokenEffects, position: int | None = None) -> Payload:
    """A text whose tokens are coloured by how much worse the ablated model predicts each; `position` is looked at."""
    harm = [None, *effects.harm.tolist()]
    reach = max(LEAST_REACH, float(effects.harm.abs().max()))
    return token_rows_payload(
        [TokenRow(tokens=effects.strings, values=harm, note=f"mean {float(effects.harm.mean()):+.3f} nats")],
        "harm in nats",
        scale=Scale(kind="diverging", low=-reach, high=reach),
        hint="point at a token to read what its prediction costs more; click it to see what is predicted there",
        pick="token",
        token=position,
    )
