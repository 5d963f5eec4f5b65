"""What every head does on a corpus: where its attention goes, what it attends to, where it writes most.

The run's own text, training documents and held-out ones, is streamed once (`interp.head_behaviour`): memory does not
grow with it. Attention rows of the strongest examples are read again for the heads that are to be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from interp.example_rows import ExampleRows, example_rows
from interp.head_behaviour import HeadBehaviour, behaviour_of
from interp.head_tokens import TokenList
from interp.places import Head
from interp.prefixes import Windows, cut_windows, sampled_windows
from model.errors import InputError

if TYPE_CHECKING:
    from model.lab import Lab

N_SHOWN = 8
"""Heads whose examples are kept with their attention rows, at most."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What the heads of one checkpoint do on its corpus."""

    seen: HeadBehaviour
    shown: dict[str, ExampleRows]
    """Queries of some heads with what they attend to there: "top" where each writes most, "deciles" one from each tenth
    of how much it writes, "random" any."""
    spelled: dict[str, str]
    """A printable string for the id of every token in `seen` and `shown`."""

    def tokens(self, listed: TokenList, place: Head, n: int) -> list[str]:
        """The first tokens of a head in a list, spelled."""
        return [self.spelled[str(token)] for token in listed.token[place].tolist()[:n] if token >= 0]


def read_behaviour(
    lab: Lab, shown: Sequence[Head], *, n_tokens: int, seed: int, progress: Callable[[int, int], None] | None = None
) -> Behaviour:
    """Stream the corpus; raises `InputError` where the run has no text that can be read."""
    corpus, windows = lab.corpus, planned_windows(lab, n_tokens, seed)
    bos = lab.tokenizer.bos
    seen = behaviour_of(lab.gpt, corpus.tokens, windows, bos=bos, seed=seed, progress=progress)
    examples = {"top": seen.top, "deciles": seen.deciles, "random": seen.random}
    heads = list(shown)[:N_SHOWN]
    rows = {name: example_rows(lab.gpt, corpus.tokens, each, bos=bos, heads=heads) for name, each in examples.items()}
    return Behaviour(seen=seen, shown=rows, spelled=_spelled(lab, seen, rows))


def planned_windows(lab: Lab, n_tokens: int, seed: int) -> Windows:
    """The stretches of the corpus that are read."""
    corpus = lab.corpus
    spans = sorted((start, stop) for part in (corpus.train, corpus.held_out) for start, stop in part.spans.tolist())
    if not spans:
        raise InputError(f"{lab.name} has no text, only random tokens, so what heads do on a corpus cannot be seen.")
    return sampled_windows(cut_windows(spans, lab.config.n_ctx - (lab.tokenizer.bos is not None)), n_tokens, seed)


def _spelled(lab: Lab, seen: HeadBehaviour, shown: dict[str, ExampleRows]) -> dict[str, str]:
    lists = (seen.query_tokens, seen.attended, seen.attended_weighted, seen.attended_lift)
    rows = [part.flatten() for each in shown.values() for part in (each.tokens, each.next_token)]
    ids = torch.cat([*(each.token.flatten() for each in lists), *rows])
    known = [token for token in ids.unique().tolist() if token >= 0]
    return dict(zip(map(str, known), lab.tokenizer.str_tokens(known), strict=True))
