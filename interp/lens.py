"""The logit lens: what the model would predict if the stream stopped at some place (nostalgebraist 2020).

The stream is read after the embedding and after every layer (`L0`, `L1`, ...), and by sublayers also between attention
and FFN (`L0.mid`, ...). The final norm is computed anew on every one, with that stream's own scale; the last scale
would be wrong by the factor that the stream grows. The last reading is the model's own prediction, bit for bit. Under
post and deepnorm every stream stands behind a norm of its own, and W_U reads it as it is; only the embedding has no
norm there.

What it does not show: what a layer "knows". Early layers may write in a basis that only later layers turn into tokens,
and tied embeddings make the embedding speak of the token that stands there.
Cost: one forward pass, and the unembedding once per place. The logits of one place and of at most `PIECE` numbers exist
at a time, so that memory does not grow with places, nor, beyond that, with positions; in several pieces the last
reading may differ from the model's own logits by rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.requirements import require_deterministic, targets_for
from model.config import SUM_NORMS, FFNKind, GPTConfig, Norm
from model.errors import InputError
from model.settings import as_enum
from model.sites import Site, Tap

if TYPE_CHECKING:
    from model.gpt import GPT

PIECE = 2**23
"""Logits that are held at a time: 32 MB of fp32, and a few copies of that."""


class LensDetail(StrEnum):
    """At how many places the stream is read."""

    LAYERS = "layers"
    """After the embedding and after every layer."""

    SUBLAYERS = "sublayers"
    """In every layer also between attention and FFN."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LensReading:
    """The stream at a sequence of places, read as a prediction."""

    labels: tuple[str, ...]
    """`embed`, then `L0`, `L1`, ..., and by sublayers `L0.mid` before `L0`: after which part the stream was read."""

    log_probability: Float[Tensor, "reading batch pos"]
    """Of the target token, in nats."""

    rank: Int[Tensor, "reading batch pos"]
    """Of the target token in the order of `top`: 1 is the likeliest, and among equals the lower id comes first."""

    divergence: Float[Tensor, "reading batch pos"]
    """KL(the model's own prediction || this reading), in nats."""

    entropy: Float[Tensor, "reading batch pos"]
    """Of this reading, in nats; ln d_vocab is no preference at all."""

    top: Int[Tensor, "reading batch pos token"]
    """The likeliest tokens of this reading, most probable first, and among equals the one with the lower id."""

    top_probability: Float[Tensor, "reading batch pos token"]
    """Their probabilities."""

    agrees: Bool[Tensor, "reading batch pos"]
    """Whether the likeliest token is the model's own; of equally likely ones the lowest id stands for both."""

    note: str
    """What reading a stream means in this model, in sentences."""

    def __repr__(self) -> str:
        _, n_batch, n_pos = self.likeliest.shape
        return f"LensReading({', '.join(self.labels)}; [{n_batch}, {n_pos}] positions)"

    @property
    def likeliest(self) -> Int[Tensor, "reading batch pos"]:
        """The token that each reading predicts."""
        return self.top[..., 0]


@torch.no_grad()
def logit_lens(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    targets: Tensor | int,
    *,
    detail: LensDetail | str = LensDetail.LAYERS,
    n_top: int = 1,
    positions: slice | None = None,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
) -> LensReading:
    """Read the stream at every place as a prediction.

    Args:
        gpt: the model, its dropout off.
        tokens: what it reads.
        targets: [batch, pos], a token for every position, such as the next one; or one for all.
        detail: after every layer, or after every sublayer.
        n_top: how many of the likeliest tokens are kept.
        positions: which positions are read; by default all.
        attention_mask: false for padding, where values mean nothing.

    Raises:
        InputError: dropout is on, a target is not a token, or more tokens are asked for than there are.
    """
    require_deterministic(gpt)
    targets = targets_for(gpt, tokens, targets)
    if not 1 <= n_top <= gpt.config.d_vocab:
        raise InputError(f"n_top={n_top} tokens cannot be kept; give 1 to {gpt.config.d_vocab}.")
    places = lens_places(gpt.config, detail)
    kept = slice(None) if positions is None else positions
    _, cache = gpt.run_with_cache(
        tokens, list(places.values()), return_type=None, attention_mask=attention_mask, pos_slice=kept
    )
    streams = [cache[place].flatten(0, 1) for place in places.values()]
    shape, wanted = targets[:, kept].shape, targets[:, kept].flatten()
    if not len(wanted):
        raise InputError(f"positions={positions} are none of the {tokens.shape[1]} positions; give a slice of some.")
    size = max(1, PIECE // gpt.config.d_vocab)
    pieces = [
        _piece(gpt, [stream[start : start + size] for stream in streams], wanted[start : start + size], n_top)
        for start in range(0, len(wanted), size)
    ]
    joined = {name: torch.cat([each[name] for each in pieces], dim=1).unflatten(1, shape) for name in pieces[0]}
    return LensReading(labels=tuple(places), note=lens_note(gpt.config), **joined)


def lens_places(config: GPTConfig, detail: LensDetail | str) -> dict[str, Site]:
    """The places that are read, by their labels, in forward order; without FFNs there is nothing between."""
    between = as_enum(LensDetail, detail, "detail") is LensDetail.SUBLAYERS and config.ffn is not FFNKind.NONE
    places = {"embed": Tap.RESID_PRE.at(0)}
    for layer in range(config.n_layers):
        places |= {f"L{layer}.mid": Tap.RESID_MID.at(layer)} if between else {}
        places[f"L{layer}"] = Tap.RESID_POST.at(layer)
    return places


def lens_note(config: GPTConfig) -> str:
    """What reading a stream means in this model, in sentences."""
    if config.norm in SUM_NORMS:
        said = (
            f"With norm={config.norm.value} a stream stands behind its own norm (ln1 after attention, ln2 after the "
            "FFN), and W_U reads it as it is; the embedding has no norm before it."
        )
    elif config.norm is Norm.NONE:
        said = "There is no norm: W_U reads each stream as it is."
    else:
        said = "Each stream is read through the final norm, with its own scale, and W_U."
    tied = " The embeddings are tied, so the embedding mostly says the token that stands there."
    return said + (tied if config.tie_embeddings else "")


def _piece(gpt: GPT, streams: list[Tensor], targets: Tensor, n_top: int) -> dict[str, Tensor]:
    """All readings of some positions, one place's logits at a time; each is [reading, pos] (and token)."""
    final = _log_softmax(gpt.unembed_stream(streams[-1]))
    probability, own = final.exp(), _top(final, 1)[0][:, 0]
    readings = [_read(_log_softmax(gpt.unembed_stream(each)), final, probability, targets, n_top) for each in streams]
    found = {name: torch.stack([each[name] for each in readings]) for name in readings[0]}
    return found | {"agrees": found["top"][..., 0] == own}


def _read(read: Tensor, final: Tensor, probability: Tensor, targets: Tensor, n_top: int) -> dict[str, Tensor]:
    """What is kept of one reading."""
    chosen = read.gather(-1, targets[:, None])
    top, values = _top(read, n_top)
    return {
        "log_probability": chosen[:, 0],
        "rank": _rank(read, chosen, targets),
        "divergence": (probability * (final - read)).sum(-1).clamp_min(0),
        "entropy": -(read.exp() * read).sum(-1),
        "top": top,
        "top_probability": values.exp(),
    }


def _rank(read: Tensor, chosen: Tensor, targets: Tensor) -> Tensor:
    """Which place the targets have in the order of `_top`."""
    before = torch.arange(read.shape[-1], device=read.device) < targets[:, None]
    return ((read > chosen) | ((read == chosen) & before)).sum(-1) + 1


def _top(read: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The `n` largest of each row with their values; among equals the lower id comes first, at the cut too."""
    values, ids = read.topk(n, dim=-1)
    by_id = ids.argsort(dim=-1)
    values, ids = values.gather(-1, by_id), ids.gather(-1, by_id)
    order = values.argsort(dim=-1, descending=True, stable=True)
    values, ids = values.gather(-1, order), ids.gather(-1, order)
    tied = (read >= values[:, -1:]).sum(-1) > n  # topk keeps any of those that are equal at the cut
    if bool(tied.any()):
        ids[tied] = read[tied].argsort(dim=-1, descending=True, stable=True)[:, :n]
    return ids, values


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
