"""The numbers behind a text through the lens, as tables: every cell, one distribution, one position at every place."""

from __future__ import annotations

import pandas as pd
import torch

from interp.live_lens import LiveAttribution, LiveLens
from interp.live_targets import Target
from interp.memory_attribution import MemoryAttribution
from interp.places import PlaceKind, parse_place
from model.errors import CutawayError, InputError

N_SHOWN = 24
"""Components that are drawn one by one where they are sorted by size; the others are drawn as one."""

OTHERS = "all others"
"""The label of their sum."""

KINDS = {Target.NEXT: "next token", Target.OWN: "model's own choice", Target.TOKEN: "named token"}
"""What a target is, in the rows: at the last position of a text no token follows, and it is the model's own choice."""


def lens_rows(seen: LiveLens, *, n_top: int = 5) -> pd.DataFrame:
    """One row for each position and place: the likeliest tokens, and what the target has there."""
    reading = seen.reading
    rows = []
    for at, token in enumerate(seen.tokens):
        for place, label in enumerate(reading.labels):
            top = reading.top[place, 0, at, :n_top].tolist()
            rows.append(
                {"position": seen.start + at, "token": token, "place": label, "likeliest": seen.spelled[top[0]]}
                | {"probability": float(reading.top_probability[place, 0, at, 0])}
                | {"target": seen.spelled[int(seen.targets[at])], "target is": KINDS[seen.target_at(at)]}
                | _target(seen, place, at)
                | {"top": [seen.spelled[word] for word in top]}
                | {"top probabilities": reading.top_probability[place, 0, at, :n_top].tolist()}
            )
    return pd.DataFrame(rows)


def target_rows(seen: LiveLens, position: int) -> pd.DataFrame:
    """One position from place to place: what is likeliest there, and what the target has."""
    at = _at(seen, position)
    reading = seen.reading
    return pd.DataFrame(
        [
            {"place": label, "likeliest": seen.spelled[int(reading.likeliest[place, 0, at])]}
            | {"probability": float(reading.top_probability[place, 0, at, 0])}
            | _target(seen, place, at)
            for place, label in enumerate(reading.labels)
        ]
    )


def top_rows(seen: LiveLens, position: int, place: str) -> pd.DataFrame:
    """The likeliest tokens of one cell, and after them the target if it is none of them."""
    at = _at(seen, position)
    reading, target = seen.reading, int(seen.targets[at])
    if place not in reading.labels:
        raise InputError(f'the stream is not read at "{place}"; places are {", ".join(reading.labels)}')
    here = reading.labels.index(place)
    top, values = reading.top[here, 0, at].tolist(), reading.top_probability[here, 0, at].tolist()
    rows = [
        {"rank": rank, "token": seen.spelled[word], "probability": value, "target": word == target}
        for rank, (word, value) in enumerate(zip(top, values, strict=True), 1)
    ]
    if target not in top:
        rank, value = int(reading.rank[here, 0, at]), float(reading.log_probability[here, 0, at].exp())
        rows.append({"rank": rank, "token": seen.spelled[target], "probability": value, "target": True})
    return pd.DataFrame(rows)


def attribution_rows(taken: LiveAttribution, position: int) -> pd.DataFrame:
    """What each component adds at one position, in forward order, in logits."""
    if not 0 <= position < len(taken.tokens):
        raise InputError(f"there is no position {position} in this text; it has 0..{len(taken.tokens) - 1}")
    values = taken.found.values[:, 0, position].tolist()
    return pd.DataFrame(
        [
            {"order": order, "component": label, "kind": kind_of(label), "layer": layer_of(label), "adds": value}
            for order, (label, value) in enumerate(zip(taken.found.labels, values, strict=True))
        ]
    )


def largest_first(rows: pd.DataFrame, n_shown: int = N_SHOWN) -> pd.DataFrame:
    """The components by the size of what they add, the last ones as one, so that the sum stays what it is."""
    ordered = rows.sort_values("adds", key=lambda values: values.abs(), ascending=False, kind="stable")
    if len(ordered) <= n_shown + 1:
        return ordered.assign(order=range(len(ordered)))
    shown, rest = ordered.iloc[:n_shown], ordered.iloc[n_shown:]
    last = {"component": f"{OTHERS} ({len(rest)})", "kind": "other", "layer": None, "adds": float(rest["adds"].sum())}
    joined = pd.concat([shown, pd.DataFrame([last]).astype({"layer": "Int64"})], ignore_index=True)
    return joined.assign(order=range(len(joined)))


def memory_rows(found: MemoryAttribution, n: int = 10) -> pd.DataFrame:
    """The memories of a layer that add most to the logit, either way, the largest first."""
    top = found.added.abs().topk(min(n, len(found.added))).indices.tolist()
    return pd.DataFrame(
        [
            {"memory": f"L{found.layer}M{index}", "adds": float(found.added[index])}
            | {"coefficient": float(found.coefficient[index])}
            for index in top
        ]
    )


def kind_of(label: str) -> str:
    """What a component is.

    >>> kind_of("L0H3"), kind_of("L0.attn"), kind_of("L1.ffn"), kind_of("pos_embed"), kind_of("L0.b_O")
    ('head', 'attention', 'FFN', 'embedding', 'bias')
    """
    if label in ("embed", "pos_embed"):
        return "embedding"
    try:
        place = parse_place(label)
    except CutawayError:
        return "bias"
    return {PlaceKind.HEAD: "head", PlaceKind.ATTENTION: "attention", PlaceKind.FFN: "FFN"}[place.kind]


def layer_of(label: str) -> int | None:
    """The layer of a component; None for embeddings and the final norm's bias.

    >>> layer_of("L12.ffn"), layer_of("L3H1"), layer_of("embed")
    (12, 3, None)
    """
    digits = label[1 : len(label) - len(label[1:].lstrip("0123456789"))]
    return int(digits) if label.startswith("L") and digits else None


def _target(seen: LiveLens, place: int, at: int) -> dict[str, int | float]:
    reading = seen.reading
    return {
        "target rank": int(reading.rank[place, 0, at]),
        "target log-probability": float(reading.log_probability[place, 0, at]),
        "KL to final": float(reading.divergence[place, 0, at]),
        "entropy": float(reading.entropy[place, 0, at]),
    }


def _at(seen: LiveLens, position: int) -> int:
    last = seen.start + len(seen.tokens) - 1
    if not seen.start <= position <= last:
        raise InputError(f"position {position} was not read; {seen.start}..{last} were")
    return position - seen.start


def same_text(seen: LiveLens, other: LiveLens) -> bool:
    """Whether two models read the same tokens, so that they can be compared."""
    return torch.equal(seen.ids, other.ids)
