"""Which tokens are trained on at which step: a pure function of (seed, step, row).

Every batch is drawn from a counter-based generator (Philox; Salmon et al. 2011) whose counter is the step. Nothing is
carried from one step to the next, so a resumed run, a run on more processes, and a look at the batch of any step years
later all see the same rows.

Text rows are windows drawn uniformly, with replacement, from the training documents. A document shorter than a window
is never drawn, and the first and last tokens of the others less often than those between. `repeats` rows are what
induction is made of: a segment of tokens drawn independently and uniformly, tiled with a period drawn anew for each
row. A fixed period would be learned as a distance, and segments without repetition as "a token not seen lately";
neither is induction.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from model.errors import ConfigError, InputError
from model.tokenizer import Tokenizer
from model.training.corpus import Corpus, Split
from model.training.eval_rows import EvalRows
from model.training.sources import DataConfig, Source

_TRAIN, _EVAL = 0, 1
"""Two streams of one seed that never meet."""
N_EVAL_ROWS = 256


class BatchSource:
    """The rows of every training step."""

    def __init__(self, config: DataConfig, corpus: Corpus, tokenizer: Tokenizer, n_ctx: int) -> None:
        self._config = config
        self._corpus = corpus
        self._bos = tokenizer.bos
        self._ids = np.array([token for token in range(tokenizer.d_vocab) if token != tokenizer.bos])
        self._width = n_ctx + 1 - self._n_special
        sources = config.parsed_sources
        self._shares = np.cumsum([source.weight for source in sources]) / sum(source.weight for source in sources)
        self._splits = [self._split_of(source) for source in sources]

    @property
    def _n_special(self) -> int:
        return 0 if self._bos is None else 1

    @property
    def never_drawn(self) -> Split:
        """The training documents that no row is drawn from, because they are shorter than a window."""
        return self._corpus.train.shorter_than(self._width)

    def batch(
        self, step: int, batch_size: int, seed: int, rank: int = 0, world: int = 1
    ) -> Int[Tensor, "row pos_plus_one"]:
        """This rank's `batch_size` of the `world * batch_size` rows of `step`, each n_ctx + 1 tokens from BOS on.

        Inputs are the first n_ctx tokens, targets the last n_ctx. Which rows a step has does not depend on how many
        processes share them.
        """
        if step < 0 or batch_size < 1 or not 0 <= rank < world:
            raise InputError(f"No batch has step {step}, {batch_size} rows and rank {rank} of {world}.")
        rows = self._rows(_generator(seed, _TRAIN, step), batch_size * world)
        return torch.from_numpy(rows[rank * batch_size : (rank + 1) * batch_size].copy())

    def eval_rows(self, n_rows: int = N_EVAL_ROWS) -> EvalRows:
        """Up to `n_rows` rows of n_ctx tokens that training never shows, spread evenly over the held-out documents.

        Where a run has no text source, the rows are `repeats` of another random stream, with offset -1.
        """
        length = self._width - 1
        if not self._corpus.names:
            rows = self._rows(_generator(self._config.seed, _EVAL, 0), n_rows)[:, :-1]
            return EvalRows(torch.from_numpy(rows.copy()), torch.full((n_rows,), -1))
        laid = self._corpus.held_out.windows(length)
        if not laid.size:
            raise InputError(
                f"No held-out document is as long as one window of {length} tokens, so nothing can be evaluated; "
                "raise data.held_out, lower model.n_ctx, or give more text."
            )
        offsets = laid[np.unique(np.linspace(0, len(laid) - 1, min(n_rows, len(laid))).round().astype(np.int64))]
        rows = self._with_bos(self._corpus.rows(offsets, length).numpy())
        return EvalRows(torch.from_numpy(rows), torch.from_numpy(offsets))

    def _rows(self, generator: np.random.Generator, n_rows: int) -> Int[np.ndarray, "row pos_plus_one"]:
        rows = np.empty((n_rows, self._width), dtype=np.int64)
        source_of = self._mixture(generator, n_rows)
        for index, split in enumerate(self._splits):
            chosen = source_of == index
            draw = self._repeats if split is None else lambda g, n, split=split: self._text(g, n, split)
            rows[chosen] = draw(generator, int(chosen.sum()))
        return self._with_bos(rows)

    def _mixture(self, generator: np.random.Generator, n_rows: int) -> Int[np.ndarray, " row"]:
        """A source for each row. Systematic sampling: every batch holds each source's share to within one row."""
        points = (generator.random() + np.arange(n_rows)) / n_rows
        sources = np.minimum(np.searchsorted(self._shares, points, side="right"), len(self._shares) - 1)
        return generator.permutation(sources)

    def _text(self, generator: np.random.Generator, n_rows: int, split: Split) -> Int[np.ndarray, "row pos"]:
        index = generator.integers(split.n_windows(self._width), size=n_rows)
        return self._corpus.rows(split.nth_window(index, self._width), self._width).numpy()

    def _repeats(self, generator: np.random.Generator, n_rows: int) -> Int[np.ndarray, "row pos"]:
        shortest, longest = self._config.min_period, self._config.max_period
        periods = generator.integers(shortest, longest + 1, size=n_rows)
        segments = self._ids[generator.integers(len(self._ids), size=(n_rows, longest))]
        return np.take_along_axis(segments, np.arange(self._width) % periods[:, None], axis=1)

    def _with_bos(self, rows: Int[np.ndarray, "row pos"]) -> Int[np.ndarray, "row pos_and_bos"]:
        return rows if self._bos is None else np.pad(rows, ((0, 0), (1, 0)), constant_values=self._bos)

    def _split_of(self, source: Source) -> Split | None:
        """The training documents of a text source; None for `repeats`. Refuses what leaves nothing to draw."""
        if not source.is_text:
            if self._config.max_period >= self._width:
                raise ConfigError(
                    f"data.max_period={self._config.max_period} leaves no second copy in {self._width} tokens; "
                    f"take at most {self._width // 2}, or raise model.n_ctx."
                )
            return None
        split = self._corpus.train_of(source.name)
        if not split.n_windows(self._width):
            raise InputError(
                f"No training document of {source.name} is as long as one window of {self._width} tokens; "
                "lower model.n_ctx, or give longer texts."
            )
        return split


def _generator(seed: int, stream: int, step: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, 0, step]))
