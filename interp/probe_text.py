"""The text a probe is trained and tested on: windows dealt to three parts by whole documents, never by token.

Training and validation windows come from documents that the run was trained on, test windows from those it held out, so
that neither model nor probe has seen what they are judged by. The unit of every interval is a document. Where there are
too few, documents are cut into stretches with a gap between them, and a stretch is the unit. A run without text is read
on fresh sequences of its repeats, each a unit of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from model.errors import InputError
from model.settings import from_plain
from model.training.batches import BatchSource
from model.training.sources import DataConfig

if TYPE_CHECKING:
    from model.lab import Lab

MIN_DOCUMENTS = 10
"""With fewer documents than this, stretches of them are the units."""
N_STRETCHES = 24
"""How many stretches are cut where there is room."""
MIN_UNITS = 6
"""The fewest units that an interval is made from."""
GAP = 4
"""Windows left out between two stretches."""
_FRESH = 7_919
"""Added to the seed, so that fresh repeats are not those of training."""


class Part(IntEnum):
    """What a document is for."""

    TRAIN = 0
    """The probe is fitted on it."""
    VALIDATION = 1
    """Regularisation and the best site are chosen on it."""
    TEST = 2
    """Every number comes from it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeText:
    """Windows of text in three parts."""

    tokens: Int[Tensor, "window pos"]
    """What the model is fed: BOS where the tokenizer has one, then text."""
    unit: Int[Tensor, " window"]
    """Which document (stretch, sequence) each is from; a unit is of one part only."""
    part: Int[Tensor, " window"]
    """A `Part`."""
    units: str
    """What the units of the test part are, in words."""
    is_text: bool
    """Whether it is text, and not repeats of random tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Amounts:
    """How many positions are drawn."""

    train: int = 3000
    validation: int = 1000
    test: int = 2000
    per_window: int = 8
    """Positions drawn from a window on average."""

    def windows(self, part: Part) -> int:
        """How many windows a part needs."""
        return -(-(self.train, self.validation, self.test)[part] // self.per_window)


def probe_text(lab: Lab, amounts: Amounts, *, longest: int, seed: int) -> ProbeText:
    """The windows for probes of one run, of its context's length but no longer than `longest` tokens."""
    n_ctx = min(lab.config.n_ctx, longest)
    return _of_documents(lab, amounts, n_ctx, seed) if lab.corpus.names else _of_repeats(lab, amounts, n_ctx, seed)


def _of_documents(lab: Lab, amounts: Amounts, n_ctx: int, seed: int) -> ProbeText:
    length = n_ctx - (lab.tokenizer.bos is not None)
    generator = np.random.default_rng(seed)
    known, _ = _units(lab, lab.corpus.train.spans, length, "training")
    fresh, kind = _units(lab, lab.corpus.held_out.spans, length, "held-out")
    known = known[generator.permutation(len(known))]
    n_validation = max(1, round(len(known) * amounts.validation / (amounts.train + amounts.validation)))
    dealt = {
        Part.TRAIN: known[n_validation:],
        Part.VALIDATION: known[:n_validation],
        Part.TEST: fresh[generator.permutation(len(fresh))],
    }
    offsets, unit, part = [], [], []
    for each, spans in dealt.items():
        chosen = spans[: amounts.windows(each)]
        for start, stop in chosen:
            laid = np.arange(start, stop - length + 1, length)
            n_kept = -(-amounts.windows(each) // len(chosen))
            kept = np.sort(generator.permutation(laid)[:n_kept])
            offsets.append(kept)
            part.append(np.full(len(kept), each))
            unit.append(np.full(len(kept), len(unit)))
    rows = lab.corpus.rows(np.concatenate(offsets), length)
    if lab.tokenizer.bos is not None:
        rows = torch.nn.functional.pad(rows, (1, 0), value=lab.tokenizer.bos)
    return ProbeText(
        tokens=rows,
        unit=torch.from_numpy(np.concatenate(unit)),
        part=torch.from_numpy(np.concatenate(part)).long(),
        units=kind,
        is_text=True,
    )


def _units(lab: Lab, spans: Int[np.ndarray, "document 2"], length: int, split: str) -> tuple[np.ndarray, str]:
    """The documents of a split in which a window fits, or stretches of them; and what they are called."""
    documents = spans[spans[:, 1] - spans[:, 0] >= length]
    if len(documents) >= MIN_DOCUMENTS:
        return documents, f"{split} documents"
    gap = GAP * length
    size = max(length, int((spans[:, 1] - spans[:, 0]).sum()) // N_STRETCHES - gap)
    starts = [np.arange(start + gap, stop - size + 1, size + gap) for start, stop in documents]
    laid = np.concatenate([np.empty(0, dtype=np.int64), *starts])
    if len(laid) < MIN_UNITS:
        raise InputError(
            f"{lab.name} has too little {split} text to probe: {len(documents)} documents hold a window of {length} "
            f"tokens, and there is room for {len(laid)} stretches of them at a distance, where {MIN_UNITS} are "
            "needed; give more text, or shorter windows (window=32)."
        )
    return np.stack([laid, laid + size], axis=1), f"stretches of {split} text, {gap} tokens or more apart,"


def _of_repeats(lab: Lab, amounts: Amounts, n_ctx: int, seed: int) -> ProbeText:
    data = from_plain(DataConfig, lab.run_config["config"]["data"], "data")
    counts = [amounts.windows(part) for part in Part]
    source = BatchSource(data, lab.corpus, lab.tokenizer, lab.config.n_ctx)
    return ProbeText(
        tokens=source.batch(0, sum(counts), seed + _FRESH)[:, :n_ctx],
        unit=torch.arange(sum(counts)),
        part=torch.arange(len(Part)).repeat_interleave(torch.tensor(counts)),
        units="fresh sequences of repeats",
        is_text=False,
    )
