"""Study of composition: how is an FFN layer's prediction made of its memories, and the model's of the layer's?

Random prefixes of held-out text are read, and at the last token of each every layer is taken apart (Geva et al. 2021,
arXiv 2012.14913, section 5; Geva et al. 2022, arXiv 2203.14680): how many memories are active, and whether any has the
layer's own token as its; whether the stream that the FFN reads already says what the model will say; whether the
stream's token is kept, the FFN's taken, or a third one made; how few sub-updates carry the update, and whether the
model's token rises or its rival falls. Definitions: `interp.ffn_composition` and `interp.sub_updates`.

Beside it stands step 0, the layer's values permuted among its memories, its update at another prefix, and memories at
random. Intervals are over documents. A stream that is no sum (post, deepnorm) is refused.

What it does not show: causes. Reading a stream or an update as a token assumes the last layer's basis for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from analyses.checkpoints import first_checkpoint, first_checkpoint_file
from analyses.composition.figure import draw
from analyses.composition.findings import sentences
from analyses.composition.measuring import Sample, measure, since
from analyses.composition.result import Config, Measured, Result
from analyses.composition.summing import Taken, Units, common_tokens
from analyses.composition.tables import layer_rows, share_rows
from analyses.corpus_text import StudyText, study_text, text_paths
from analyses.registry import Finding, Progress
from interp.ffn_parts import decoder_of, require_composition
from interp.prefix_draws import DrawnPrefixes, drawn_prefixes
from interp.prefixes import cut_windows
from interp.ratio_tests import FEWEST
from model.errors import InputError
from model.lab import TOKENIZER, Lab

__all__ = [
    "QUESTION", "Config", "Measured", "Result", "figure", "findings", "inputs", "more_tables", "run", "table",
]  # fmt: skip

QUESTION = "How is an FFN layer's prediction composed of its memories and of the stream it is added to?"


@torch.no_grad()
def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Take the layers apart at the same prefixes at this checkpoint and at step 0."""
    require_composition(subject.gpt)
    text = study_text(subject, config.split, config.text)
    sample, unit = _sample(subject, config, text)
    first = first_checkpoint(subject) if config.step_zero else None

    def measured(lab: Lab, part: int) -> tuple[Measured, Taken]:
        def counted(done: int, total: int) -> None:
            if progress is not None:
                progress(part * total + done, (1 if first is None else 2) * total, f"prefixes at step {lab.step}")

        return measure(lab, config, sample, counted)

    now, taken = measured(subject, 0)
    start, taken_before = (None, None) if first is None else measured(first, 1)
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        norm=subject.config.norm.value,
        ffn=subject.config.ffn.value,
        text=text.name,
        n_layers=subject.config.n_layers,
        n_memories=subject.config.ffn_width,
        d_vocab=subject.config.d_vocab,
        n_prefixes=len(sample.drawn),
        n_windows=len(sample.drawn.windows),
        unit=unit,
        n_units=sample.units.n,
        linear=decoder_of(subject.gpt).bias is None,
        now=now,
        at_step_zero=start,
        since_start=None if taken_before is None else since(subject, config, sample, taken, taken_before),
    )


def table(result: Result) -> pd.DataFrame:
    """One row per checkpoint and layer."""
    return pd.DataFrame(layer_rows(result))


def more_tables(result: Result) -> Mapping[str, pd.DataFrame]:
    """What the first k memories carry, by layer and k."""
    return {"sub-updates": pd.DataFrame(share_rows(result))}


def figure(result: Result) -> Any:
    """Zero agreement, residual agreement, the breakdown and the first memories, by layer."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """What is and is not so of the layers, each beside its controls."""
    return sentences(result)


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside weights and corpus: tokenizer, step 0, and a text file if one is named."""
    start = [first_checkpoint_file(subject)] if config.step_zero else []
    return [subject.path / TOKENIZER, *start, *text_paths(config.text)]


def _sample(lab: Lab, config: Config, text: StudyText) -> tuple[Sample, str]:
    """The prefixes, and what the units are."""
    room = lab.config.n_ctx - (0 if text.bos is None else 1)
    windows = cut_windows(list(text.spans), min(room, config.longest or room))
    drawn = drawn_prefixes(windows, config.n_prefixes, per_window=config.per_window, seed=config.seed)
    if len(drawn.windows) < 2:
        raise InputError(
            f"n_prefixes={config.n_prefixes} with per_window={config.per_window} are of one window of {text.name}, and "
            "nothing can be said of other text; draw more prefixes, or fewer of a window."
        )
    unit, of_prefix = _units(drawn, np.array([start for start, _ in text.spans]))
    left, number = np.unique(of_prefix, return_inverse=True)
    read = [
        np.asarray(text.tokens[start : start + length])
        for start, length in zip(drawn.windows.starts, drawn.windows.lengths, strict=True)
    ]
    common = common_tokens(torch.from_numpy(np.concatenate(read).astype(np.int64)), lab.config.d_vocab)
    units = Units(torch.from_numpy(number), len(left), config.seed)
    return Sample(tokens=text.tokens, drawn=drawn, bos=text.bos, units=units, common=common), unit


def _units(drawn: DrawnPrefixes, documents: np.ndarray) -> tuple[str, np.ndarray]:
    """Documents, where there are enough of them to resample, else windows."""
    of_document = np.searchsorted(documents, drawn.ends, side="right")
    return ("documents", of_document) if len(np.unique(of_document)) >= FEWEST else ("windows", drawn.window)


if __name__ == "__main__":
    from analyses.study import main

    raise SystemExit(main("ffn-composition"))
