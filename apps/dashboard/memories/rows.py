"""What the page of FFN memories says of one memory in tables and sentences, from a saved result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from analyses.ffn_memories import Result
from analyses.views import visible
from apps.dashboard.state import memory_name
from interp.live_memories import WritingMemories
from interp.pattern_kinds import TriggerPattern
from interp.token_concepts import LEAST, LEVEL, N_TOP
from interp.trigger_deletions import Deletion

Colour = Literal["red", "orange", "blue", "green"]

Memory = tuple[int, int]
"""(layer, memory)."""


KINDS = {
    TriggerPattern.REPEATED_TEXT: "fires on copies of one text",
    TriggerPattern.SUFFIX: "fires after one phrase",
    TriggerPattern.LAST_BIGRAM: "fires after two tokens",
    TriggerPattern.LAST_TOKEN: "fires on one token",
    TriggerPattern.REGION: "fires in one stretch of text",
    TriggerPattern.POSITION: "fires at one position",
    TriggerPattern.SEVERAL: "fires on several tokens",
    TriggerPattern.NONE: "no pattern that was looked for",
    TriggerPattern.FEW: "too few triggers to tell",
}
"""What each kind of memory does, in words."""


def kind_name(kind: TriggerPattern) -> str:
    """A kind as commands take it, with what it means: `suffix: fires after one phrase`."""
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


def strongest(result: Result) -> Memory:
    """The memory to begin with: the surest value among those that promote what follows their top trigger most."""
    values, alive = result.reading.values, result.reading.activity.alive
    agrees = alive & (values.next_rank == 0)
    layer, memory = divmod(int((values.confidence * (agrees if agrees.any() else alive)).argmax()), alive.shape[1])
    return layer, memory


def states(result: Result, memory: Memory) -> Iterator[tuple[str, Colour]]:
    """What can be said of the memory in a word or two, each with its colour."""
    activity, values = result.reading.activity, result.reading.values
    if activity.dead[*memory]:
        yield "dead: it never fired", "red"
        return
    if not activity.alive[*memory]:
        yield "never above zero", "red"
    if activity.dense[*memory]:
        yield "dense: fires on most prefixes", "orange"
    yield kind_name(result.reading.evidence.kind_of(*memory)), "blue"
    if values.next_rank[*memory] == 0:
        yield "value agrees with its trigger", "green"


def facts(result: Result, memory: Memory) -> tuple[str, ...]:
    """How often the key fires, beside step 0, and how far it goes to either side."""
    activity, initial = result.reading.activity, result.initial
    before = None if initial is None else float(initial.firing_rate[*memory])
    parts = [f"fires on {float(activity.firing_rate[*memory]):.1%} of prefixes" + _start(before)]
    if has_negative(result):
        parts.append(f"below zero on {float(activity.negative_rate[*memory]):.1%}")
    parts.append(f"above a tenth of its largest on {float(activity.strong_rate[*memory]):.1%}")
    lowest, largest = (round(float(end[*memory]), 2) + 0.0 for end in (activity.lowest, activity.largest))
    parts.append(f"coefficient from {lowest:.2f} to {largest:.2f}")
    return tuple(parts)


def _start(before: float | None) -> str:
    return "" if before is None else f" (step 0: {before:.1%})"


def has_negative(result: Result) -> bool:
    """Whether any memory is ever below zero: none of ReLU is."""
    return bool(result.reading.negative.present.any())


def evidence(result: Result, memory: Memory) -> pd.DataFrame:
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


def evidence_facts(result: Result, memory: Memory) -> tuple[str, ...]:
    """What the table of evidence rests on, and what else the triggers share."""
    found = result.reading.evidence
    ends = int(found.suffix_length[*memory])
    return (
        f"n = {int(found.n[*memory])} triggers",
        f"from {int(found.n_documents[*memory])} documents",
        f"longest end that three share: {ends} {'token' if ends == 1 else 'tokens'}",
        f"random: mean over {found.random.n_sets:,} sets of as many random prefixes",
    )


def falls(result: Result, memory: Memory, own: tuple[int, Tensor] | None = None) -> tuple[pd.DataFrame, str] | None:
    """How far the coefficient falls without a token of the triggers: the memory's own, and its layer's sample's.

    `own` is how many of its triggers were cut, and the falls, where that was measured since. None where no triggers
    were cut at all.
    """
    found, before = result.reading.deletions, None if result.initial is None else result.initial.deletions
    own = own or own_falls(result, memory)
    if found is None and own is None:
        return None
    layer = memory[0]
    columns: dict[str, list[float]] = {} if own is None else {"of this memory": own[1].tolist()}
    if found is not None:
        columns["of the layer's sample"] = _means(found.fall[layer])
    if before is not None:
        columns["sample at step 0"] = _means(before.fall[layer])
    order = [list(Deletion).index(cut) for cut in CUTS]
    table = pd.DataFrame({"its coefficient falls by": list(CUTS.values())})
    for name, values in columns.items():
        table[name] = [values[place] for place in order]
    said = (
        "this memory is not in the sample whose triggers were cut" if own is None else f"n = {own[0]} of its triggers"
    )
    sample = "" if found is None else f"; {len(found.measured(layer))} memories of layer {layer}"
    return table, f"{said}{sample}"


def own_falls(result: Result, memory: Memory) -> tuple[int, Float[Tensor, " change"]] | None:
    """How many triggers of the memory were cut, and its falls; None where it is not in the sample."""
    found, (layer, index) = result.reading.deletions, memory
    sampled = [] if found is None else found.memory[layer].tolist()
    if found is None or index not in sampled:
        return None
    at = sampled.index(index)
    return int(found.n_triggers[layer, at]), found.fall[layer, at]


def factors(result: Result, memory: Memory) -> tuple[pd.DataFrame | None, str] | None:
    """Of swiglu, gate and linear factor of the memory at its largest and its most negative coefficients.

    None where the FFN has one factor, or they were not read; no table where the memory is not in the sample.
    """
    signs, (layer, index) = result.reading.gate_signs, memory
    if signs is None:
        return None
    linear, both = signs.linear_is_negative(layer), signs.both_negative(layer)
    said = (
        f"in layer {layer} the linear factor is the negative one at {int(linear.sum())} of {len(linear)} most negative "
        f"coefficients, and both are at {int(both.sum())} of {len(both)} largest"
    )
    sampled = signs.memory[layer].tolist()
    if index not in sampled:
        return None, f"this memory is not in the sample whose factors were read; {said}"
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
    return pd.DataFrame(rows, columns=["coefficient", "gate", "linear"]), said


def _means(fall: Float[Tensor, "sampled change"]) -> list[float]:
    return fall.nanmean(dim=0).tolist()


def promoted(result: Result, memory: Memory) -> tuple[list[str], list[float], list[str]]:
    """The tokens at either end of the value's order, their scores, and a sign at the one that followed its trigger."""
    values, follows = result.reading.values, int(result.reading.triggers.next_token[*memory, 0])
    ids = [*values.promoted[*memory].tolist(), *values.suppressed[*memory].tolist()]
    scores = [*values.promoted_score[*memory].tolist(), *values.suppressed_score[*memory].tolist()]
    return result.spelled(ids), scores, ["▸" if token == follows else "" for token in ids]


def value_facts(result: Result, memory: Memory) -> list[str]:
    """What is known of the value, in sentences."""
    values = result.reading.values
    rank = int(values.next_rank[*memory])
    if rank < 0:
        agrees = "It never fired, so nothing followed a trigger of it."
    else:
        follows = visible(result.vocabulary[int(result.reading.triggers.next_token[*memory, 0])])
        agrees = f"It ranks {follows}, which followed its top trigger, {rank + 1:,} of {len(result.vocabulary):,}."
    return [agrees, _concept(result, memory), _geometry(result, memory)]


def _concept(result: Result, memory: Memory) -> str:
    values, n_top = result.reading.values, min(N_TOP, len(result.vocabulary))
    concept = int(values.concept[*memory])
    if concept < 0:
        return f"No concept covers {LEAST} of the {n_top} tokens it promotes most."
    covered, p = int(values.concept_covered[*memory]), float(values.concept_p[*memory])
    said = f"{covered} of the {n_top} tokens it promotes most are {values.concepts[concept]}"
    sure = "more than chance gives" if p <= LEVEL else "which chance gives too"
    return f"{said}, {sure} (p={p:.2g}, corrected for the concepts that were tried)."


def _geometry(result: Result, memory: Memory) -> str:
    values = result.reading.values
    said = f"Its length is {float(values.norm[*memory]):.2f}, its key's {float(values.key_norm[*memory]):.2f}"
    cosine = float(values.key_value_cosine[*memory])
    linear = float(values.linear_value_cosine[*memory])
    own = f"cosine between key and value {cosine:+.2f}"
    return f"{said}; {own}." if math.isnan(linear) else f"{said}; {own} (linear factor {linear:+.2f})."


def writing(found: WritingMemories, result: Result | None) -> pd.DataFrame:
    """The memories that write most at a token, and what their values promote where that is saved."""
    places = list(zip(found.layer.tolist(), found.index.tolist(), strict=True))
    rows = pd.DataFrame(
        {
            "memory": [memory_name(*place) for place in places],
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


def _ends(result: Result, memory: Memory, coefficient: float) -> str:
    """The first tokens that it promotes with this coefficient: a negative one turns the value's order round."""
    values = result.reading.values
    ids = (values.promoted if coefficient > 0 else values.suppressed)[*memory].tolist()
    return " ".join(visible(token) for token in result.spelled(ids[:6]))
