"""What every payload shares: visible token text, packed numbers, colour scales, and a strict check before it is sent.

The check exists because a host may turn a whole dictionary into one string, without an error, for the sake of a single
numpy scalar in it, and a NaN stops the browser's parser.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from model.errors import InputError

Payload = dict[str, Any]

SIGNS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "": "∅"}
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})  # controls, formats, surrogates, separators
ZERO_WIDTH_JOINER = "\u200d"  # tearing it out would break emoji apart


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Which value has which colour; a diverging scale is symmetric about 0 and shows 0 as the page's background."""

    kind: Literal["sequential", "diverging"] = "sequential"
    low: float = 0.0
    high: float = 1.0


def visible(token: str) -> str:
    r"""Return `token` so that every character of it can be seen and none can act on the text around it.

    >>> visible(" a\n"), visible("\x00"), visible("\u202e")
    ('·a⏎', '\\x00', '\\u202e')
    """
    if token in SIGNS:
        return SIGNS[token]
    return "".join(_visible_character(character) for character in token)


def visible_label(label: str) -> str:
    r"""Return a label with its spaces as they are and everything else visible.

    >>> visible_label("n = 8,  run\u202e")
    'n = 8, run\\u202e'
    """
    return " ".join(visible(word) for word in label.split())


def _visible_character(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    hidden = unicodedata.category(character) in HIDDEN and character != ZERO_WIDTH_JOINER
    if not hidden:
        return character
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"


def numbers(values: Tensor | np.ndarray) -> Any:
    """Return nested lists of plain floats, with None for what is not a number."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        return float(value) if math.isfinite(value) else None

    return plain(torch.as_tensor(values).detach().cpu().double().tolist())


def fitted(values: Sequence[Any] | Tensor, kind: Literal["sequential", "diverging"]) -> Scale:
    """Return the scale that just holds `values`: from 0 (or the least, if lower), or symmetric about 0."""
    flat = torch.as_tensor(values).detach().double().flatten()
    finite = flat[torch.isfinite(flat)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if kind == "diverging":
        reach = max(abs(low), abs(high)) or 1.0
        return Scale(kind=kind, low=-reach, high=reach)
    return Scale(kind=kind, low=min(low, 0.0), high=high if high > min(low, 0.0) else 1.0)


def packed(values: Float[Tensor, " *axes"], bits: Literal[8, 16]) -> str:
    """Return `values` in 0..1 as base64 of little-endian unsigned integers; the error is at most 2^-(bits + 1)."""
    steps = 2**bits - 1
    levels = (values.detach().cpu().double().nan_to_num(0.0).clamp(0, 1) * steps).round().numpy()
    return base64.b64encode(levels.astype("<u2" if bits == 16 else "u1").tobytes()).decode("ascii")


def packed_floats(values: Float[Tensor, " *axes"]) -> str:
    """Return `values` as base64 of little-endian 32-bit floats; what is not finite arrives as NaN."""
    plain = values.detach().cpu().float().numpy()
    kept = np.where(np.isfinite(plain), plain, np.float32("nan"))
    return base64.b64encode(kept.astype("<f4").tobytes()).decode("ascii")


def digest(*parts: str) -> str:
    """Return a short name for some packed data, so that the browser decodes it only when it changed."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def checked(payload: Payload) -> Payload:
    """Return `payload` if a browser can read it as it is, else raise `InputError` naming the field at fault."""
    for name, value in payload.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as fault:
            raise InputError(
                f"the view field {name!r} holds something that JSON cannot carry ({fault}); "
                "allowed are text, finite numbers, None, lists and dictionaries of them"
            ) from None
    return payload


LIVE = ("lock", "look", "chosen", "set", "step", "token", "cells", "shows", "strip")
"""Fields that a click changes: a host that can sends them apart, so that no click sends a pattern again."""


def apart(payload: Payload) -> tuple[Payload, Payload]:
    """Return `payload` without the fields that a click changes, and these alone."""
    big = {name: value for name, value in payload.items() if name not in LIVE}
    return big, {name: payload[name] for name in LIVE if name in payload}


def live_fields(live: Mapping[str, Any]) -> Payload:
    """Return what `live` says of the fields that a click changes, as it stands in a payload.

    Args:
        live: any of `lock`, a (query, key) or None; `look`, which head of a pattern is shown, by its place among all;
            `chosen`, a head; `set`, the heads to ablate; `step`; `token`; `shows`, which of two patterns, and `strip`,
            how the tokens are coloured, as the view names them.
    """
    unknown = [name for name in live if name not in LIVE]
    if unknown:
        raise InputError(f"no click changes {unknown[0]!r}; allowed are {', '.join(LIVE)}")
    fields: Payload = {name: list(value) if name == "set" else value for name, value in live.items()}
    if fields.get("lock") is not None and not isinstance(fields["lock"], dict):
        query, key = fields["lock"]
        fields["lock"] = {"query": int(query), "key": int(key)}
    return fields


def scale_fields(scale: Scale) -> Payload:
    """Return `scale` as the plain dictionary that the JavaScript reads."""
    return asdict(scale)
