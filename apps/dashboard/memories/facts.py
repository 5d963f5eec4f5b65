"""What the page of FFN memories says of one memory in sentences and in a word or two, from a saved result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from analyses.ffn_memories import Result
from analyses.memories.examples import has_negative
from analyses.memories.tables import Memory, kind_name
from analyses.views import visible
from interp.token_concepts import LEAST, LEVEL, N_TOP

Colour = Literal["red", "orange", "blue", "green"]


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


def rests_on(result: Result, memory: Memory) -> tuple[str, ...]:
    """What is said of one memory is said of these prefixes, and its kind of the strongest of them alone."""
    n, config = int(result.reading.evidence.n[*memory]), result.config
    return (
        prefixes(result), f"{result.run}@{result.step}", f"seed {config.seed}",
        *([f"kind: of the {n} it fires on most, not of all"] if n else []),
    )  # fmt: skip


def prefixes(result: Result) -> str:
    """How many prefixes were read, and of which text."""
    return f"n = {result.n_prefixes:,} prefixes of {result.config.text or f'{result.config.split.value} text'}"


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
