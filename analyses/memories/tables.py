"""What a saved result says of one memory, as tables (for its page, and for a notebook).

What the tables rest on is said in sentences beside them: `fall_facts`, `factor_facts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.ffn.result import Result
from analyses.views.memory import activity_rows
from interp.coefficient_bins import histogram_edges
from interp.pattern_kinds import TriggerPattern
from interp.trigger_deletions import Deletion
from model.settings import as_enum

Memory = tuple[int, int]
"""(layer, memory)."""

Falls = tuple[int, Float[Tensor, " change"]]
"""How many triggers were cut, and the mean fall of the coefficient on each change, in the order of `Deletion`."""


KINDS = {
    TriggerPattern.REPEATED_TEXT: "top triggers are copies of one text",
    TriggerPattern.SUFFIX: "top triggers end in one phrase",
    TriggerPattern.LAST_BIGRAM: "top triggers end in the same two tokens",
    TriggerPattern.LAST_TOKEN: "top triggers end in one token",
    TriggerPattern.REGION: "top triggers lie in one stretch of text",
    TriggerPattern.POSITION: "top triggers end at one position",
    TriggerPattern.SEVERAL: "top triggers end in a few tokens",
    TriggerPattern.NONE: "no pattern that was looked for",
    TriggerPattern.FEW: "too few triggers to tell",
}
"""What the strongest triggers of each kind of memory share, in words; it may fire on much else, too."""


def kind_name(kind: TriggerPattern | str) -> str:
    """A kind as commands take it, with what it means: `suffix: top triggers end in one phrase`."""
    kind = as_enum(TriggerPattern, kind, "kind")
    return f"{kind.value}: {KINDS[kind]}"


SHARES = {
    "last_token_share": "end in the same token",
    "last_bigram_share": "end in the same two tokens",
    "last_trigram_share": "end in the same three tokens",
    "covered_share": "end in a token that three or more end in",
    "region_share": "lie within 256 tokens of each other",
    "position_share": "end at the same position",
    "copied_share": "are copies of a stronger one",
}
"""What share of a memory's triggers is told, in the order of the table."""

CUTS = {
    Deletion.LAST: "without the last token",
    Deletion.FIRST: "without the first token",
    Deletion.RANDOM: "without a random token",
    Deletion.LAST_REPLACED: "another last token",
    Deletion.FIRST_REPLACED: "another first token",
}
"""What is done to a trigger, in the order of the table."""


def activity_table(result: Result, memory: Memory) -> pd.DataFrame:
    """How many prefixes have a coefficient from `low` to `high`; what is close to zero is one row."""
    activity = result.reading.activity
    rows = activity_rows(activity.histogram[*memory], activity.negative_histogram[*memory], histogram_edges())
    return pd.DataFrame(rows)


def evidence_rows(result: Result, memory: Memory) -> pd.DataFrame:
    """What the memory's triggers have in common, beside as many random prefixes and step 0."""
    found, initial = result.reading.evidence, result.initial
    rows = []
    for measure, name in SHARES.items():
        row = {"triggers that": name, "share": float(getattr(found, measure)[*memory])}
        row["random"] = float(found.random_level(measure)[*memory])
        if initial is not None:
            row["step 0"] = float(getattr(initial.evidence, measure)[*memory])
        rows.append(row)
    return pd.DataFrame(rows)


def fall_rows(result: Result, memory: Memory, own: Falls | None = None) -> pd.DataFrame | None:
    """How far the coefficient falls without a token of the triggers: the memory's own, and its layer's sample's.

    `own` is what was measured since; None where no triggers were cut at all.
    """
    found, before = result.reading.deletions, None if result.initial is None else result.initial.deletions
    own = own or own_falls(result, memory)
    if found is None and own is None:
        return None
    layer = memory[0]
    columns: dict[str, Sequence[float]] = {} if own is None else {"of this memory": own[1].tolist()}
    if found is not None:
        columns["of the layer's sample"] = _means(found.fall[layer])
    if before is not None:
        columns["sample at step 0"] = _means(before.fall[layer])
    order = [list(Deletion).index(cut) for cut in CUTS]
    table = pd.DataFrame({"its coefficient falls by": list(CUTS.values())})
    for name, values in columns.items():
        table[name] = [values[place] for place in order]
    return table


def fall_facts(result: Result, memory: Memory, own: Falls | None = None) -> str:
    """What the table of falls rests on."""
    found, own = result.reading.deletions, own or own_falls(result, memory)
    said = (
        "this memory is not in the sample whose triggers were cut" if own is None else f"n = {own[0]} of its triggers"
    )
    sample = "" if found is None else f"; {len(found.measured(memory[0]))} memories of layer {memory[0]}"
    return f"{said}{sample}"


def own_falls(result: Result, memory: Memory) -> Falls | None:
    """How many triggers of the memory were cut, and its falls; None where it is not in the sample."""
    found, (layer, index) = result.reading.deletions, memory
    sampled = [] if found is None else found.memory[layer].tolist()
    if found is None or index not in sampled:
        return None
    at = sampled.index(index)
    return int(found.n_triggers[layer, at]), found.fall[layer, at]


def factor_rows(result: Result, memory: Memory) -> pd.DataFrame | None:
    """Of swiglu, gate and linear factor of the memory at its largest and its most negative coefficients.

    None where the FFN has one factor, or where the memory is not in the sample whose factors were read.
    """
    signs, (layer, index) = result.reading.gate_signs, memory
    sampled = [] if signs is None else signs.memory[layer].tolist()
    if signs is None or index not in sampled:
        return None
    at = layer, sampled.index(index)
    ends = (
        ("largest", signs.positive_gate, signs.positive_linear),
        ("most negative", signs.negative_gate, signs.negative_linear),
    )
    rows = [
        {"coefficient": end, "gate": float(gate), "linear": float(factor)}
        for end, gates, linears in ends
        for gate, factor in zip(gates[at], linears[at], strict=True)
        if math.isfinite(float(gate))
    ]
    return pd.DataFrame(rows, columns=["coefficient", "gate", "linear"])


def factor_facts(result: Result, memory: Memory) -> str | None:
    """Which factor is the negative one in the memory's layer; None where the FFN has one, or they were not read."""
    signs, (layer, index) = result.reading.gate_signs, memory
    if signs is None:
        return None
    linear, both = signs.linear_is_negative(layer), signs.both_negative(layer)
    said = (
        f"in layer {layer} the linear factor is the negative one at {int(linear.sum())} of {len(linear)} most negative "
        f"coefficients, and both are at {int(both.sum())} of {len(both)} largest"
    )
    inside = index in signs.memory[layer].tolist()
    return said if inside else f"this memory is not in the sample whose factors were read; {said}"


def promoted_rows(result: Result, memory: Memory) -> pd.DataFrame:
    """The tokens at either end of the value's order, from most promoted to most suppressed, and their scores.

    `followed` is true of the token that followed the memory's top trigger.
    """
    values, follows = result.reading.values, int(result.reading.triggers.next_token[*memory, 0])
    ids = [*values.promoted[*memory].tolist(), *values.suppressed[*memory].tolist()]
    scores = [*values.promoted_score[*memory].tolist(), *values.suppressed_score[*memory].tolist()]
    rows = pd.DataFrame({"token": result.spelled(ids), "score": scores, "followed": [each == follows for each in ids]})
    return rows.sort_values("score", ascending=False, kind="stable", ignore_index=True)


def _means(fall: Float[Tensor, "sampled change"]) -> list[float]:
    return fall.nanmean(dim=0).tolist()
