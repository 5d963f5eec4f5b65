"""Study of FFN memories: what fires each, and what does its value promote? Geva et al. 2021 (arXiv 2012.14913).

The run's own corpus is streamed once. Per memory the prefixes with the largest coefficients are kept exactly, with
their offsets, beside how often and how strongly it fires; each value is read as tokens through the unembedding.
Whether a value promotes the token that follows its key's top trigger is compared with the same count when a layer's
next tokens are permuted among its memories, and with step 0 of the run.

The stream comes in pieces: `start`, `update`, `merge`, `finish`; `run` is made of them, and pieces of the corpus
merged in any order give its answer. A trigger fed again gives its coefficient; the largest difference over a sample
is kept.

What it does not show: that a memory causes a prediction (layers write sums of many), or what it does in its everyday
range (triggers are extremes).
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from analyses.checkpoints import first_checkpoint, first_checkpoint_file
from analyses.corpus_text import StudyText, study_text, text_paths
from analyses.ffn.figure import drawn
from analyses.ffn.findings import spoken
from analyses.ffn.reading import Reading, ReadText, read_memories, read_text
from analyses.ffn.result import Config, Result, Split
from analyses.ffn.tables import confidence_rows, deletion_rows, layer_rows, memory_rows, pattern_rows, threshold_rows
from analyses.kept_states import Keeper
from analyses.registry import Finding, Progress
from analyses.streamed import Pass, batches_of, piece_count, streamed
from interp.memory_pass import stream_prefixes
from interp.memory_stream import (
    CoefficientStream,
    empty_stream,
    fitting_windows,
    merged_streams,
    require_memories,
)
from interp.prefixes import Windows, cut_windows, prefix_tokens, sampled_windows, window_batches
from model.errors import InputError
from model.lab import TOKENIZER, Lab
from model.sites import Tap

__all__ = [
    "QUESTION", "Config", "Result", "Split", "State", "figure", "findings", "finish", "inputs", "merge",
    "planned_windows", "replayed_coefficient", "run", "start", "table", "update",
]  # fmt: skip

QUESTION = "What fires each FFN memory, and does its value promote what follows?"

State = tuple[CoefficientStream, ...]
"""One stream per layer."""


def run(subject: Lab, config: Config, *, progress: Progress | None = None, keeper: Keeper | None = None) -> Result:
    """Read the corpus through the checkpoint, and through step 0; a `keeper` shares and saves the work."""
    require_memories(subject.config)
    source = study_text(subject, config.split, config.text)
    windows = _windows(subject, config, source)
    first = first_checkpoint(subject) if config.step_zero else None
    labs = [subject] if first is None else [subject, first]
    states = streamed([_pass(lab, config, source, windows) for lab in labs], keeper=keeper, progress=progress)
    text = read_text(source.tokens, source.spans, windows, config)
    reading, *at_zero = (finish(lab, config, text, state) for lab, state in zip(labs, states, strict=True))
    n_replayed, replay_error = _replayed(subject, reading, source, config.seed)
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        norm=subject.config.norm.value,
        ffn=subject.config.ffn.value,
        vocabulary=tuple(subject.tokenizer.str_tokens(range(subject.tokenizer.d_vocab))),
        n_prefixes=windows.n_prefixes,
        n_windows=len(windows),
        reading=reading,
        initial=at_zero[0].summary if at_zero else None,
        n_replayed=n_replayed,
        replay_error=replay_error,
    )


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside weights and corpus: the tokenizer, step 0, a text of the user's."""
    start = [first_checkpoint_file(subject)] if config.step_zero else []
    return [subject.path / TOKENIZER, *start, *text_paths(config.text)]


def table(result: Result) -> pd.DataFrame:
    """One row per memory: how it fires, what fires it, what it promotes, whether the two agree."""
    return pd.DataFrame(memory_rows(result))


def more_tables(result: Result) -> dict[str, pd.DataFrame]:
    """Layers, kinds of triggers, confidence, cut triggers and thresholds of activity, one row each, at both steps."""
    rows = {
        "layers": layer_rows(result),
        "kinds": pattern_rows(result),
        "bins of confidence": confidence_rows(result),
        "thresholds": threshold_rows(result),
        "memories with cut triggers": deletion_rows(result),
    }
    return {name: pd.DataFrame(each) for name, each in rows.items() if each}


def figure(result: Result) -> alt.VConcatChart:
    """Agreement by layer beside chance and step 0, how triggers and firing changed, and the surest memories in text."""
    return drawn(result)


def findings(result: Result) -> list[Finding]:
    """Agreement above chance, triggers that share a token, memories that fire less: each against step 0."""
    return spoken(result)


def planned_windows(subject: Lab, config: Config) -> Windows:
    """The stretches of the text that are read.

    Several processes share them out by whole batches of `window_batches`: then every coefficient comes out of the same
    matrix product as in one process, bit for bit.
    """
    require_memories(subject.config)
    return _windows(subject, config, study_text(subject, config.split, config.text))


def _windows(subject: Lab, config: Config, text: StudyText) -> Windows:
    room = subject.config.n_ctx - (0 if text.bos is None else 1)
    return sampled_windows(cut_windows(text.spans, room), config.n_tokens, config.seed)


def start(subject: Lab, config: Config) -> State:
    """What is known before anything is read."""
    require_memories(subject.config)
    streams = (
        empty_stream(
            subject.config.ffn_width,
            config.n_triggers,
            n_negative=config.n_negative,
            n_sampled=config.n_sampled,
            seed=config.seed,
        )
        for _ in range(subject.config.n_layers)
    )
    return tuple(streams)


def update(subject: Lab, state: State, tokens: Int[Tensor, "batch pos"], ends: Int[Tensor, "batch pos"]) -> State:
    """What is known after one more batch of `window_batches`."""
    return stream_prefixes(subject.gpt, [(tokens, ends)], state)


def merge(left: State, right: State) -> State:
    """What two disjoint parts of the corpus say together."""
    return tuple(merged_streams(one, other) for one, other in zip(left, right, strict=True))


def finish(subject: Lab, config: Config, text: ReadText, state: State) -> Reading:
    """The reading of the checkpoint, from the stream over all windows of the text."""
    return read_memories(subject, state, text, config)


def _pass(lab: Lab, config: Config, text: StudyText, windows: Windows) -> Pass[State]:
    """The windows through one checkpoint, in batches of one size and pieces of whole batches."""
    size = fitting_windows(lab.config, lab.config.n_ctx, config.batch_size)
    n_batches = -(-len(windows) // size)

    def read(state: State, piece: int) -> State:
        batches = batches_of(piece, n_batches)
        part = windows[batches.start * size : batches.stop * size]
        return stream_prefixes(lab.gpt, window_batches(text.tokens, part, bos=text.bos, batch_size=size), state)

    return Pass(
        name=f"step-{lab.step}",
        what=f"reading {text.name} at step {lab.step}",
        n_pieces=piece_count(n_batches),
        empty=start(lab, config),
        read=read,
        merge=merge,
        state_class=State,
    )


@torch.no_grad()
def _replayed(lab: Lab, reading: Reading, text: StudyText, seed: int) -> tuple[int, float]:
    """Feed a sample of triggers again, each alone: how many, and the largest difference in coefficient."""
    n_per_layer = min(32, max(8, _REPLAYED // lab.config.n_layers))
    generator = torch.Generator().manual_seed(seed)
    worst, n_replayed = 0.0, 0
    for layer in range(lab.config.n_layers):
        there = reading.triggers.present[layer].nonzero()
        chosen = there[torch.randperm(len(there), generator=generator)[:n_per_layer]].tolist()
        n_replayed += len(chosen)
        for memory, rank in chosen:
            again = replayed_coefficient(lab, reading, layer, memory, rank, text.tokens)
            worst = max(worst, abs(again - float(reading.triggers.coefficient[layer, memory, rank])))
    return n_replayed, worst


_REPLAYED = 512
"""Triggers fed again in a deep model; each is a pass through half of it."""


def replayed_coefficient(
    lab: Lab, reading: Reading, layer: int, memory: int, rank: int, corpus: np.ndarray | None = None
) -> float:
    """A memory's coefficient when its trigger number `rank` is fed to the model again, alone.

    Triggers are looked up in `corpus`, the run's own where none is given.
    """
    offset, length = (int(part[layer, memory, rank]) for part in (reading.triggers.offset, reading.triggers.length))
    if length == 0:
        raise InputError(f"L{layer}M{memory} has no trigger {rank}: it fired less often.")
    corpus = lab.corpus.tokens if corpus is None else corpus
    tokens = prefix_tokens(corpus, offset, length, bos=lab.tokenizer.bos).to(lab.gpt.device)
    place = Tap.MLP_POST.at(layer)
    _, cache = lab.gpt.run_with_cache(tokens, place, pos_slice=-1, stop_at_layer=layer + 1, return_type=None)
    return float(cache[place][0, 0, memory])


if __name__ == "__main__":
    from analyses.study import main

    raise SystemExit(main("ffn-memories"))
