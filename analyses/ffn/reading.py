"""One checkpoint's FFN memories: triggers, values, activity, a summary per layer (for `analyses.ffn_memories`).

`read_memories` turns the streams over a corpus into all that is said of a checkpoint. Beside streams it reads the
weights (values), the corpus (contexts, what triggers share), and a sample of triggers again, changed (deletions).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from analyses.ffn.config import Config
from analyses.ffn.parts import Activity, Triggers, Values, reaching
from analyses.ffn.summary import Read, Summary, summarised
from analyses.ffn.values import all_values
from interp.gate_signs import GateSigns, gate_signs
from interp.memory_examples import MemoryExamples, memory_examples
from interp.memory_stream import CoefficientStream
from interp.prefixes import Windows, tails
from interp.topk import positions_of, values_of
from interp.trigger_deletions import TriggerDeletions, trigger_deletions
from interp.trigger_patterns import RandomEvidence, TriggerEvidence, random_evidence, stacked, trigger_evidence
from model.config import FFNKind
from model.lab import Lab

ALPHA = 0.01
"""Level of the claim that a layer agrees, after Holm's correction over layers."""

CUT_TRIGGERS = 3
"""Triggers of each sampled memory that are cut, and at which the factors of swiglu are read."""

CUT_SHARE = 4
"""All cut triggers together take as many tokens as this many times the corpus that is read, or hardly more."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One checkpoint's memories, whole."""

    triggers: Triggers
    negative: Triggers
    """The prefixes with the most negative coefficients; none under ReLU."""
    examples: MemoryExamples
    values: Values
    activity: Activity
    gate_signs: GateSigns | None
    """Which factor of a negative coefficient is negative, for the memories of `deletions`; None for other FFNs."""
    summary: Summary

    @property
    def evidence(self) -> TriggerEvidence:
        """What each memory's triggers share."""
        return self.summary.evidence

    @property
    def deletions(self) -> TriggerDeletions | None:
        """What triggers lose with a token, for a sample of memories."""
        return self.summary.deletions


@dataclass(frozen=True, kw_only=True)
class ReadText:
    """The text that was streamed."""

    tokens: np.ndarray
    """All of it; offsets count from its beginning."""
    documents: Int[np.ndarray, "document 2"]
    """Of each document that is read, in rising order: the offset of its first token, and the one behind its last."""
    windows: Windows
    """The stretches that were read."""
    random: RandomEvidence
    """What sets of random prefixes of the windows share."""


def read_text(tokens: np.ndarray, spans: Sequence[tuple[int, int]], windows: Windows, config: Config) -> ReadText:
    """What all checkpoints share that are read over the same windows of documents given as (first, behind the last)."""
    documents = np.array(sorted(spans), dtype=np.int64)
    random = random_evidence(
        tokens, documents, windows, n_triggers=config.n_triggers, n_sets=config.n_random_sets, seed=config.seed
    )
    return ReadText(tokens=tokens, documents=documents, windows=windows, random=random)


def read_memories(lab: Lab, streams: Sequence[CoefficientStream], text: ReadText, config: Config) -> Reading:
    """Everything that is said of a checkpoint, from the streams over the windows of a text."""
    triggers = _triggers(torch.stack([stream.top.cpu() for stream in streams]), text, config)
    lowest = torch.stack([stream.bottom[:, : config.n_negative].cpu() for stream in streams])
    negative = _triggers(lowest, text, config, sign=-1)
    values, dealt_ranks, concepts = all_values(
        lab, triggers.next_token[..., 0], n_promoted=config.n_promoted, seed=config.seed
    )
    activity, deletions = _activity(streams), _deletions(lab, triggers, text, config)
    read = Read(
        triggers=triggers,
        values=values,
        activity=activity,
        evidence=_evidence(triggers, text),
        deletions=deletions,
        dealt_ranks=dealt_ranks,
        concepts=concepts,
    )
    n_permutations = max(config.n_permutations, math.ceil(len(streams) / ALPHA))
    return Reading(
        triggers=triggers,
        negative=negative,
        examples=memory_examples(
            streams, text.tokens, text.windows, n_random=config.n_random, n_context=config.n_context
        ),
        values=values,
        activity=activity,
        gate_signs=_gate_signs(lab, triggers, negative, deletions, text),
        summary=summarised(
            lab.step, read, n_permutations=n_permutations, n_deals=config.n_permutations, seed=config.seed
        ),
    )


def _triggers(keys: Tensor, text: ReadText, config: Config, *, sign: int = 1) -> Triggers:
    coefficients, ends = values_of(keys), positions_of(keys)
    present = (ends >= 0) & (coefficients > 0)  # what never fires has no trigger
    offsets = torch.where(present, text.windows.start_of(ends), -1)
    lengths = torch.where(present, ends - offsets + 1, 0)
    shown, starts = slice(config.n_shown), torch.from_numpy(text.documents[:, 0].copy())
    return Triggers(
        coefficient=torch.where(present, sign * coefficients, 0.0),
        offset=offsets,
        length=lengths.int(),
        document=(torch.searchsorted(starts, offsets, right=True) - 1).int(),
        last_token=_at(text.tokens, ends, present),
        next_token=_at(text.tokens, ends + 1, present),
        context=tails(text.tokens, offsets[..., shown], lengths[..., shown], config.n_context),
    )


def _at(tokens: np.ndarray, places: Tensor, present: Tensor) -> Tensor:
    found = torch.from_numpy(np.asarray(tokens[places.clamp(0, len(tokens) - 1).numpy()], dtype=np.int32))
    return torch.where(present, found, -1)


def _activity(streams: Sequence[CoefficientStream]) -> Activity:
    histogram = torch.stack([stream.histogram for stream in streams])
    n = streams[0].n_prefixes
    largest = torch.stack([values_of(stream.top.cpu()[:, 0]) for stream in streams])
    lowest = torch.stack([-values_of(stream.bottom.cpu()[:, 0]) for stream in streams])
    return Activity(
        firing_rate=(torch.stack([stream.n_active for stream in streams]).double() / n).float(),
        negative_rate=(torch.stack([stream.n_negative for stream in streams]).double() / n).float(),
        strong_rate=torch.where(largest > 0, reaching(histogram, largest / 10), 0.0),
        largest=largest,
        lowest=lowest.clamp_max(0),
        mean=torch.stack([stream.mean for stream in streams]).float(),
        std=torch.stack([stream.std for stream in streams]).float(),
        histogram=histogram.int(),
        negative_histogram=torch.stack([stream.negative_histogram for stream in streams]).int(),
    )


def _evidence(triggers: Triggers, text: ReadText) -> TriggerEvidence:
    per_layer = [
        trigger_evidence(text.tokens, text.documents, offset, length, text.random)
        for offset, length in zip(triggers.offset, triggers.length, strict=True)
    ]
    return stacked(per_layer)


def _deletions(lab: Lab, triggers: Triggers, text: ReadText, config: Config) -> TriggerDeletions | None:
    if not config.n_deleted:
        return None
    return trigger_deletions(
        lab.gpt,
        text.tokens,
        triggers.offset,
        triggers.length,
        bos=lab.tokenizer.bos,
        n_memories=config.n_deleted,
        n_triggers=CUT_TRIGGERS,
        most_tokens=CUT_SHARE * text.windows.n_prefixes,
        seed=config.seed,
    )


def _gate_signs(
    lab: Lab, triggers: Triggers, negative: Triggers, deletions: TriggerDeletions | None, text: ReadText
) -> GateSigns | None:
    if lab.config.ffn is not FFNKind.SWIGLU or deletions is None:
        return None
    return gate_signs(
        lab.gpt,
        text.tokens,
        (negative.offset, negative.length),
        (triggers.offset, triggers.length),
        deletions.memory,
        bos=lab.tokenizer.bos,
        n_triggers=CUT_TRIGGERS,
    )
