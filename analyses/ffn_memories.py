"""Study of FFN memories: what fires each, and what does its value promote? Geva et al. 2021 (arXiv 2012.14913).

The run's own corpus is streamed once. Per memory the prefixes with the largest coefficients are kept exactly, with
their offsets, beside how often and how strongly it fires; each value is read as tokens through the unembedding.
Whether a value promotes the token that follows its key's top trigger is compared with the same count when a layer's
next tokens are dealt to its memories at random, and with step 0 of the run.

The stream comes in pieces: `start`, `update`, `merge`, `finish`; `run` is made of them, and pieces of the corpus
merged in any order give its answer. A trigger fed again gives its coefficient; the largest difference over a sample
is kept.

What it does not show: that a memory causes a prediction (layers write sums of many), or what it does in its everyday
range (triggers are extremes).
"""

from __future__ import annotations

import math
from pathlib import Path

import altair as alt
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from analyses.checkpoints import first_checkpoint, first_checkpoint_file
from analyses.ffn_figure import drawn
from analyses.ffn_findings import ALPHA, spoken
from analyses.ffn_reading import Reading, read_memories
from analyses.ffn_result import Config, Result, Split
from analyses.ffn_tables import memory_rows
from analyses.registry import Finding, Progress
from interp.agreement import commonest_share
from interp.memory_stream import (
    CoefficientStream,
    empty_stream,
    fitting_windows,
    merged_streams,
    require_memories,
    stream_prefixes,
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


def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Read the corpus through the checkpoint, and through step 0."""
    windows = planned_windows(subject, config)
    at_zero = first_checkpoint(subject) if config.step_zero else None
    rounds = 2 if at_zero is not None else 1
    reading = _read(subject, config, windows, progress, (0, rounds))
    initial = None if at_zero is None else _read(at_zero, config, windows, progress, (1, rounds)).summary
    n_replayed, replay_error = _replayed(subject, reading, config.seed)
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
        initial=initial,
        random_last_token_share=_random_share(subject, config, windows),
        n_replayed=n_replayed,
        replay_error=replay_error,
    )


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside weights and corpus: the tokenizer, and step 0."""
    return [subject.path / TOKENIZER, *([first_checkpoint_file(subject)] if config.step_zero else [])]


def table(result: Result) -> pd.DataFrame:
    """One row per memory: how it fires, what fires it, what it promotes, whether the two agree."""
    return pd.DataFrame(memory_rows(result))


def figure(result: Result) -> alt.VConcatChart:
    """Agreement by layer beside chance and step 0, how triggers and firing changed, and the surest memories in text."""
    return drawn(result)


def findings(result: Result) -> list[Finding]:
    """Agreement above chance, triggers that share a token, memories that fire less: each against step 0."""
    return spoken(result)


def planned_windows(subject: Lab, config: Config) -> Windows:
    """The stretches of the corpus that are read.

    Several processes share them out by whole batches of `window_batches`: then every coefficient comes out of the same
    matrix product as in one process, bit for bit.
    """
    require_memories(subject.config)
    corpus = subject.corpus
    spans = (corpus.train if config.split is Split.TRAIN else corpus.held_out).spans.tolist()
    room = subject.config.n_ctx - (0 if subject.tokenizer.bos is None else 1)
    if not spans:
        raise InputError(
            f"{subject.name} has no text in its {config.split} split, so no prefix can fire a memory; train on stdlib "
            "or text:PATH."
        )
    windows = cut_windows([(start, stop) for start, stop in spans], room)
    return sampled_windows(windows, config.n_tokens, config.seed)


def start(subject: Lab, config: Config) -> State:
    """What is known before anything is read."""
    require_memories(subject.config)
    streams = (empty_stream(subject.config.ffn_width, config.n_triggers) for _ in range(subject.config.n_layers))
    return tuple(streams)


def update(subject: Lab, state: State, tokens: Int[Tensor, "batch pos"], ends: Int[Tensor, "batch pos"]) -> State:
    """What is known after one more batch of `window_batches`."""
    return stream_prefixes(subject.gpt, tokens, ends, state)


def merge(left: State, right: State) -> State:
    """What two disjoint parts of the corpus say together."""
    return tuple(merged_streams(one, other) for one, other in zip(left, right, strict=True))


def finish(subject: Lab, config: Config, windows: Windows, state: State) -> Reading:
    """The reading of the checkpoint, from the stream over all of `windows`."""
    return read_memories(
        subject.gpt,
        subject.step,
        state,
        subject.corpus.tokens,
        windows,
        n_shown=config.n_shown,
        n_context=config.n_context,
        n_promoted=config.n_promoted,
        n_permutations=max(config.n_permutations, math.ceil(subject.config.n_layers / ALPHA)),
        seed=config.seed,
    )


def _read(lab: Lab, config: Config, windows: Windows, progress: Progress | None, part: tuple[int, int]) -> Reading:
    size = fitting_windows(lab.config, lab.config.n_ctx, config.batch_size)
    state, n_batches = start(lab, config), -(-len(windows) // size)
    batches = window_batches(lab.corpus.tokens, windows, bos=lab.tokenizer.bos, batch_size=size)
    for done, (tokens, ends) in enumerate(batches):
        if progress is not None:
            progress(part[0] * n_batches + done, part[1] * n_batches, f"reading the corpus at step {lab.step}")
        state = update(lab, state, tokens, ends)
    return finish(lab, config, windows, state)


@torch.no_grad()
def _replayed(lab: Lab, reading: Reading, seed: int) -> tuple[int, float]:
    """Feed a sample of triggers again, each alone: how many, and the largest difference in coefficient."""
    n_per_layer = min(32, max(8, _REPLAYED // lab.config.n_layers))
    generator = torch.Generator().manual_seed(seed)
    worst, n_replayed = 0.0, 0
    for layer in range(lab.config.n_layers):
        there = reading.triggers.present[layer].nonzero()
        chosen = there[torch.randperm(len(there), generator=generator)[:n_per_layer]].tolist()
        n_replayed += len(chosen)
        for memory, rank in chosen:
            again = replayed_coefficient(lab, reading, layer, memory, rank)
            worst = max(worst, abs(again - float(reading.triggers.coefficient[layer, memory, rank])))
    return n_replayed, worst


_REPLAYED = 512
"""Triggers fed again in a deep model; each is a pass through half of it."""


def replayed_coefficient(lab: Lab, reading: Reading, layer: int, memory: int, rank: int) -> float:
    """A memory's coefficient when its trigger number `rank` is fed to the model again, alone."""
    offset, length = (int(part[layer, memory, rank]) for part in (reading.triggers.offset, reading.triggers.length))
    if length == 0:
        raise InputError(f"L{layer}M{memory} has no trigger {rank}: it fired less often.")
    tokens = prefix_tokens(lab.corpus.tokens, offset, length, bos=lab.tokenizer.bos).to(lab.gpt.device)
    place = Tap.MLP_POST.at(layer)
    _, cache = lab.gpt.run_with_cache(tokens, place, pos_slice=-1, stop_at_layer=layer + 1, return_type=None)
    return float(cache[place][0, 0, memory])


def _random_share(lab: Lab, config: Config, windows: Windows, n_sets: int = 2000) -> float:
    """What share of random prefixes, as many as triggers are kept, ends in the commonest last token among them."""
    generator = torch.Generator().manual_seed(config.seed)
    drawn = torch.randint(windows.n_prefixes, (n_sets * config.n_triggers,), generator=generator)
    last = torch.from_numpy(lab.corpus.tokens[windows.nth_end(drawn).numpy()].astype("int64")).view(n_sets, -1)
    return float(commonest_share(last, torch.ones_like(last, dtype=torch.bool)).mean())


if __name__ == "__main__":
    from analyses.study import main

    raise SystemExit(main("ffn-memories"))
