"""What an FFN layer reads, adds and makes of its memories at chosen positions, and how any of it is read as a token.

At a position the stream r (resid_mid) enters, the layer adds y (mlp_out), and o = r + y goes on (resid_post):

    y = sum over memories of m_i v_i / s + constant

with s = 1 and the output bias as the constant. Under an output norm (sandwich, reordered) s is that norm's scale at
that position, held, its gain and centring are part of v_i, and the constant is the bias through it and its own.

A vector h is read as the token top(h) = argmax of h W_U, the final norm's gain and centring folded into W_U: the
logits are that over the norm's scale, a positive number, and the order stays. Where the final norm has a bias (of a
LayerNorm), a stream's logits have one more part, W_U^T b, which its scale does not divide; streams are read with it, as
the model reads its last one, and updates and values without, for they are not all that is read. The zero vector says
no token, -1.

Needs a stream that is a sum: post, deepnorm and models without skip connections are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.memory_stream import require_memories
from interp.requirements import require_deterministic
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerParts:
    """One layer's FFN at some positions; fp32, on the model's device."""

    stream: Float[Tensor, "prefix d_model"]
    """r: what enters."""
    update: Float[Tensor, "prefix d_model"]
    """y: what is added, biases included."""
    coefficients: Float[Tensor, "prefix memory"]
    """m, of either sign unless the FFN is ReLU."""
    scale: Float[Tensor, "prefix one"]
    """s: the output norm's; 1 where there is none."""

    def summed(
        self, coefficients: Float[Tensor, "prefix memory"], values: Float[Tensor, "memory d_model"]
    ) -> Float[Tensor, "prefix d_model"]:
        """What memories with these coefficients write into the stream: sum of m_i v_i / s."""
        return coefficients @ values / self.scale


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamDecoder:
    """How the model turns its last stream into logits, in parts."""

    unembed: Float[Tensor, "d_model d_vocab"]
    """W_U with the final norm's gain and centring folded in."""
    bias: Float[Tensor, " d_vocab"] | None
    """W_U^T b of the final norm; None where it has none."""
    scale: Callable[[Float[Tensor, "prefix d_model"]], Float[Tensor, "prefix one"]]
    """The final norm's divisor for a stream; 1 where there is no final norm."""

    def linear(self, vectors: Float[Tensor, "prefix d_model"]) -> Float[Tensor, "prefix d_vocab"]:
        """Logits before the scale and the bias: those of a sum are the sum of those."""
        return vectors @ self.unembed

    def logits(
        self, linear: Float[Tensor, "prefix d_vocab"], stream: Float[Tensor, "prefix d_model"]
    ) -> Float[Tensor, "prefix d_vocab"]:
        """The logits of a stream whose linear ones these are."""
        divided = linear / self.scale(stream)
        return divided if self.bias is None else divided + self.bias

    def ranked(
        self, linear: Float[Tensor, "prefix d_vocab"], stream: Float[Tensor, "prefix d_model"]
    ) -> Float[Tensor, "prefix d_vocab"]:
        """Scores in the order of the logits: the linear ones where they are in that order, exactly."""
        return linear if self.bias is None else self.logits(linear, stream)


def require_composition(gpt: GPT) -> None:
    """Refuse models in which an FFN's update has no memories, or is not simply added."""
    require_memories(gpt.config)
    gpt.config.require_additive_stream("Taking a prediction apart into stream and FFN update")
    require_deterministic(gpt)


def decoder_of(gpt: GPT) -> StreamDecoder:
    """The decoder of a model with an additive stream."""
    norm = gpt.ln_final
    bias = None if norm is None or norm.b is None else norm.b.detach().float() @ gpt.W_U.float()

    def scale(stream: Tensor) -> Tensor:
        return torch.ones_like(stream[:, :1]) if norm is None else norm.scale(stream)

    return StreamDecoder(unembed=gpt.folded_unembed().float(), bias=bias, scale=scale)


def written_values(gpt: GPT, layer: int) -> Float[Tensor, "memory d_model"]:
    """What each memory of a layer writes into the stream per unit of coefficient, up to an output norm's scale."""
    block = gpt.layers[layer]
    if block.mlp is None:
        raise RuntimeError("an attention-only model has been let through")
    values, norm = block.mlp.W_out.float(), block.ln2_post
    if norm is None:
        return values
    return (values - values.mean(-1, keepdim=True) if norm.centres else values) * norm.w.detach().float()


@torch.no_grad()
def read_parts(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], taken: Bool[Tensor, "batch pos"]
) -> tuple[tuple[LayerParts, ...], Float[Tensor, "prefix d_model"]]:
    """Every layer's parts at the positions that are `taken` (row by row), and the stream that leaves the last layer."""
    held: dict[str, Tensor] = {}
    taken = taken.to(gpt.device)

    def take(activation: Tensor, hook: object) -> None:
        held[hook.name] = activation[taken].float()  # type: ignore[attr-defined]

    last = gpt.config.n_layers - 1
    kinds = [Tap.RESID_MID, Tap.MLP_OUT, Tap.MLP_POST]
    kinds += [] if gpt.layers[0].ln2_post is None else [Tap.LN2_POST_SCALE]
    places = [kind.at(layer) for layer in range(last + 1) for kind in kinds]
    hooks = [(place, take) for place in [*places, Tap.RESID_POST.at(last)]]
    gpt.run_with_hooks(tokens.to(gpt.device), fwd_hooks=hooks, return_type=None)

    def layer_parts(layer: int) -> LayerParts:
        stream, update, coefficients = (held[str(kind.at(layer))] for kind in kinds[:3])
        scale = held[str(kinds[3].at(layer))] if len(kinds) > 3 else torch.ones_like(stream[:, :1])
        return LayerParts(stream=stream, update=update, coefficients=coefficients, scale=scale)

    return tuple(layer_parts(layer) for layer in range(last + 1)), held[str(Tap.RESID_POST.at(last))]


@torch.no_grad()
def largest_coefficients(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], taken: Bool[Tensor, "batch pos"]
) -> Float[Tensor, "layer memory"]:
    """The largest |m| of every memory at the positions that are taken."""
    found: dict[int, Tensor] = {}
    taken = taken.to(gpt.device)

    def take(activation: Tensor, hook: object) -> None:
        found[hook.layer] = activation[taken].float().abs().amax(0)  # type: ignore[attr-defined]

    layers = range(gpt.config.n_layers)
    hooks = [(Tap.MLP_POST.at(layer), take) for layer in layers]
    gpt.run_with_hooks(tokens.to(gpt.device), fwd_hooks=hooks, return_type=None)
    return torch.stack([found[layer] for layer in layers])


def top_tokens(scores: Float[Tensor, "prefix d_vocab"]) -> Int[Tensor, " prefix"]:
    """The token with the largest score of each row; -1 where all scores are equal, and so none is.

    >>> top_tokens(torch.tensor([[0.0, 2.0], [0.0, 0.0]])).tolist()
    [1, -1]
    """
    low, high = scores.aminmax(dim=-1)
    return torch.where(high > low, scores.argmax(-1), -1)
