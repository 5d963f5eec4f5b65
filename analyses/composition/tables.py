"""How layers' predictions are composed, as rows of numbers (for `analyses.ffn_composition`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analyses.composition.result import Measured, Result
from interp.ffn_composed import Case, Counted
from interp.stats import Intervals

Rows = list[dict[str, Any]]


def both(result: Result) -> Iterator[Measured]:
    """The checkpoint, and step 0 where it was taken apart."""
    yield result.now
    if result.at_step_zero is not None:
        yield result.at_step_zero


def layer_rows(result: Result) -> Rows:
    """One row per checkpoint and layer."""
    return [
        {"step": each.step, "layer": layer, "n": result.n_prefixes, "units": result.n_units}
        | _activity(each, layer)
        | _agreement(each, layer)
        | _stream(each, layer)
        | _breakdown(each, layer)
        for each in both(result)
        for layer in range(result.n_layers)
    ]


def share_rows(result: Result) -> Rows:
    """What the first k memories carry: one row per checkpoint, layer, k and way to order."""
    return [
        {"step": each.step, "layer": layer, "k": k, "memories": which}
        | _spread("norm_share", shares.norm_share, place, layer)
        | _spread("cosine", shares.cosine, place, layer)
        | _spread("r_squared", shares.r_squared, place, layer)
        | _spread("effect_share", shares.effect_share, place, layer)
        for each in both(result)
        for which, shares in (("largest", each.sub_updates.top), ("random", each.sub_updates.random))
        for layer in range(result.n_layers)
        for place, k in enumerate(each.sub_updates.ks)
    ]


def _spread(name: str, intervals: Intervals, *place: int) -> dict[str, float]:
    interval = intervals[place]
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _activity(found: Measured, layer: int) -> dict[str, Any]:
    low, middle, high = found.active_quartiles[:, layer].tolist()
    return {
        **_spread("active", found.active, layer), "active_25": low, "active_50": middle, "active_75": high,
        **_spread("strong", found.strong, layer), **_spread("carrying", found.carrying, layer),
        "dead": int(found.dead[layer]),
    }  # fmt: skip


def _agreement(found: Measured, layer: int) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for place, counted in enumerate(Counted):
        columns |= _spread(f"zero_{counted.value}", found.zero_agreement, place, layer)
        columns[f"zero_{counted.value}_dealt"] = found.zero_agreement_dealt[place, layer].mean
        columns[f"agreeing_{counted.value}"] = float(found.n_agreeing[place, layer])
    return columns


def _stream(found: Measured, layer: int) -> dict[str, Any]:
    return {
        **_spread("residual_agreement", found.residual_agreement, layer),
        **_spread("residual_probability", found.residual_probability, layer),
        **_spread("output_agreement", found.output_agreement, layer),
        **_spread("output_probability", found.output_probability, layer),
        "saturated_before": int(found.saturation[0, layer]), "saturated_behind": int(found.saturation[1, layer]),
    }  # fmt: skip


def _breakdown(found: Measured, layer: int) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for case in Case:
        columns |= _spread(case.name.lower(), found.breakdown, case, layer)
        columns[f"{case.name.lower()}_other"] = found.breakdown_other[case, layer].mean
        columns[f"{case.name.lower()}_dealt"] = found.breakdown_dealt[case, layer].mean
    return columns
