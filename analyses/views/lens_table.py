"""The lens table's payload: what the stream says at every place of every position, with the likeliest tokens of each.

Every token's text is sent once, between spaces, which no visible text has, and cells say its number: 128 positions at
61 places with five tokens each stay under a megabyte. Probabilities are sent with 16 bits, so to within 1 in 131,000;
the other numbers as they are, in fp32.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from enum import StrEnum

import torch
from jaxtyping import Int
from torch import Tensor

from analyses.views.payload import Payload, Scale, checked, digest, fitted, packed, packed_floats, scale_fields, visible
from interp.live_lens import LiveLens
from model.errors import InputError
from model.settings import as_enum

N_TOP = 5
"""Tokens of each cell that are sent."""

HINT = "point at a cell to read it; click or Enter locks it; arrows move"


class Cells(StrEnum):
    """What the colours of the table show."""

    PROBABILITY = "probability"
    """Of each cell's likeliest token."""

    DIVERGENCE = "divergence"
    """KL from the model's own prediction to the cell's."""

    RANK = "rank"
    """Of the target."""


TITLES = {
    Cells.PROBABILITY: "probability of the token shown",
    Cells.DIVERGENCE: "KL from the final prediction, nats",
    Cells.RANK: "rank of the target",
}


def lens_table_payload(
    seen: LiveLens,
    *,
    token: int | None = None,
    place: str | None = None,
    cells: Cells | str = Cells.PROBABILITY,
    target: str = "target",
    guessed: bool = False,
    other: LiveLens | None = None,
    names: tuple[str, str] = ("A", "B"),
    n_top: int = N_TOP,
    begin: int | None = None,
    hint: str = HINT,
) -> Payload:
    """Return what the lens table draws.

    Args:
        seen: a text through the lens.
        token: the position in the text that is locked.
        place: the place that is locked, such as `L0.mid`.
        cells: what the colours show at first.
        target: what the target is, in a word or two, for the row below.
        guessed: whether the target behind the text's last token is none of the text.
        other: the same text in another model, or at another step.
        names: what the two are called.
        n_top: how many tokens of each cell are sent, of those that were read.
        begin: the position in the text that is in sight at first where none is locked.
        hint: the line below while nothing is pointed at.

    Raises:
        InputError: `token` or `place` is not in the table, or the other text has other tokens.
    """
    cells = as_enum(Cells, cells, "cells")
    every = [seen] if other is None else [seen, other]
    _check(seen, token, place, other)
    known = sorted(set().union(*(_used(each, n_top) for each in every)))
    words = {word: index for index, word in enumerate(known)}
    spelled = {word: text for each in every for word, text in each.spelled.items()}
    tables = [_table(each, words, n_top) for each in every]
    reach = max(float(each.reading.divergence.max()) for each in every)
    return checked(
        {
            "tokens": [visible(each) for each in seen.tokens],
            "start": seen.start,
            "last": seen.n_text - 1,
            "words": " ".join(visible(spelled[word]) for word in known),
            "target": target,
            "guessed": guessed,
            "tables": tables,
            "names": list(names),
            "scales": {
                Cells.PROBABILITY.value: scale_fields(Scale()),
                Cells.DIVERGENCE.value: scale_fields(Scale(high=reach or 1.0)),
                Cells.RANK.value: scale_fields(Scale(low=0.0, high=1.0)),
            },
            "difference": None if other is None else _difference(seen, other),
            "titles": {kind.value: title for kind, title in TITLES.items()},
            "worst": _worst(every),
            "hash": digest(*(table["top"] + table["numbers"] for table in tables)),
            "hint": hint,
            "token": token,
            "chosen": place,
            "cells": cells.value,
            "begin": begin,
        }
    )


def _used(seen: LiveLens, n_top: int) -> set[int]:
    return {*seen.reading.top[..., :n_top].unique().tolist(), *seen.targets.tolist()}


def _table(seen: LiveLens, words: dict[int, int], n_top: int) -> Payload:
    """One model's numbers, by place, position and, for the likeliest tokens, order."""
    reading = seen.reading
    known = torch.tensor(sorted(words))
    numbers = torch.stack([reading.log_probability, reading.divergence, reading.entropy, reading.rank.float()])
    top = reading.top[:, 0, :, :n_top].contiguous()
    index, bits = _indices(torch.searchsorted(known, top))
    return {
        "places": list(reading.labels),
        "targets": [words[int(word)] for word in seen.targets],
        "n_top": top.shape[-1],
        "top": index,
        "bits": bits,
        "probability": packed(reading.top_probability[:, 0, :, :n_top], 16),
        "numbers": packed_floats(numbers[:, :, 0]),
    }


def _indices(values: Int[Tensor, "place pos token"]) -> tuple[str, int]:
    """Base64 of little-endian unsigned integers, and of how many bits: 16 where they hold every number."""
    bits = 16 if int(values.max()) < 2**16 else 32
    content = values.numpy().astype("<u2" if bits == 16 else "<u4").tobytes()
    return base64.b64encode(content).decode("ascii"), bits


def _difference(seen: LiveLens, other: LiveLens) -> Payload | None:
    """The scale of A - B in the target's log-probability, where both have one target; None if places differ."""
    if seen.reading.labels != other.reading.labels:
        return None
    gap = seen.reading.log_probability - other.reading.log_probability
    return scale_fields(fitted(gap[..., seen.targets == other.targets], "diverging"))


def _worst(every: Sequence[LiveLens]) -> int:
    """The rank that has the colour of nothing: a power of ten, so that a colour means the same on most texts."""
    worst = max(int(each.reading.rank.max()) for each in every)
    return 10 ** max(2, len(str(worst - 1)))


def _check(seen: LiveLens, token: int | None, place: str | None, other: LiveLens | None) -> None:
    last = seen.start + len(seen.tokens) - 1
    if token is not None and not seen.start <= token <= last:
        raise InputError(f"position {token} is not in this table; it holds {seen.start}..{last}")
    if place is not None and place not in seen.reading.labels:
        known = ", ".join(seen.reading.labels)
        raise InputError(f'the stream is not read at "{place}"; places are {known}')
    if other is not None and not torch.equal(seen.ids, other.ids):
        raise InputError("the two models read other tokens here, so they cannot stand in one table")
