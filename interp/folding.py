"""Heads' weights with the norms around them folded in: what a head reads and writes in terms of the stream itself.

A head reads ln1(x) = (x C / scale) diag(gain) + bias, where C centres (LayerNorm; the identity for RMSNorm) and scale
is one positive number per position. All but that number is linear, and is folded:

    W_Q, W_K, W_V   <-  shrink C diag(gain) W         b  <-  shrink bias W + b       (shrink: the scaled placement's)
    W_O             <-  W_O C diag(output gain)       sandwich, reordered
    W_O             <-  W_O C                         where the stream is read through LayerNorms, which drop the mean

so that q = (x / scale) W_Q + b_Q. Without a norm before the heads (reordered, none; post and deepnorm, whose heads read
the stream as it is) W_Q, W_K, W_V are the model's own.

What is not folded: scales. They differ between positions, so that weights compare what a head does in different
directions and not how strongly it acts at a position. An output norm's scale is moreover set by all heads together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.offsets import turned
from model.config import OUTPUT_NORMS, PRE_NORM_READS, SUM_NORMS, Norm, NormKind
from model.errors import UndefinedError
from model.factored import FactoredMatrix

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT
    from model.norms import NormLayer


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FoldedHeads:
    """Every head's weights with the norms around it folded in; fp64, on the model's device."""

    config: GPTConfig

    W_Q: Float[Tensor, "layer head d_model d_head"]
    W_K: Float[Tensor, "layer head d_model d_head"]
    """Grouped heads expanded, as of the values."""
    W_V: Float[Tensor, "layer head d_model d_head"]
    W_O: Float[Tensor, "layer head d_head d_model"]

    b_Q: Float[Tensor, "layer head d_head"]
    """The query's own bias and the reading norm's through W_Q; zero where the model has none. QK leaves it out."""
    b_K: Float[Tensor, "layer head d_head"]
    b_V: Float[Tensor, "layer head d_head"]
    """OV leaves it out: as a pattern's rows sum to 1, it adds one and the same vector wherever a head looks."""

    note: str
    """What is folded, in sentences."""

    def __repr__(self) -> str:
        n_layers, n_heads, d_model, d_head = self.W_Q.shape
        return f"FoldedHeads({n_layers} layers x {n_heads} heads, [{d_model}, {d_head}]; {self.note})"

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head, [layer, head, d_model, d_model]: what it writes per unit of what it attends to."""
        return FactoredMatrix(self.W_V, self.W_O)

    def QK(self, offset: int = 0) -> FactoredMatrix:
        """W_Q R(offset) W_K^T of every head, [layer, head, d_model, d_model]; offset = query minus key position.

        Without rope it is the same at every offset.
        """
        require_bilinear_scores(self.config, "The QK circuit")
        return FactoredMatrix(turned(self.W_Q, offset, self.config), self.W_K.mT)


@torch.no_grad()
def folded_heads(gpt: GPT) -> FoldedHeads:
    """The heads of `gpt` with the norms around them folded in."""
    layers = range(gpt.config.n_layers)
    reads = {
        name: torch.stack([folded_read(gpt, layer, each.double()) for layer, each in enumerate(weights)])
        for name, weights in (("W_Q", gpt.W_Q), ("W_K", gpt.W_K), ("W_V", gpt.W_V))
    }
    biases = {
        name: torch.stack([folded_bias(gpt, layer, bias[layer], weights[layer]) for layer in layers])
        for name, bias, weights in (("b_Q", gpt.b_Q, gpt.W_Q), ("b_K", gpt.b_K, gpt.W_K), ("b_V", gpt.b_V, gpt.W_V))
    }
    writes = torch.stack([folded_write(gpt, layer, each.double()) for layer, each in enumerate(gpt.W_O)])
    return FoldedHeads(config=gpt.config, **reads, **biases, W_O=writes, note=folding_note(gpt.config))


def folded_read(
    gpt: GPT, layer: int, weights: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "head d_model d_head"]:
    """Weights with which heads of this layer read, as weights that read the stream divided by the norm's scale."""
    norm = gpt.layers[layer].ln1
    return weights if norm is None or gpt.config.norm not in PRE_NORM_READS else _through(norm, weights)


def folded_bias(
    gpt: GPT, layer: int, bias: Float[Tensor, "head d_head"], weights: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "head d_head"]:
    """The constant part of this layer's queries, keys or values: their own bias and the reading norm's; fp64."""
    return bias.double() + _bias_read(gpt, layer, weights.double())


def folded_write(
    gpt: GPT, layer: int, weights: Float[Tensor, "head d_head d_model"]
) -> Float[Tensor, "head d_head d_model"]:
    """Weights with which heads of this layer write, up to the scale of an output norm."""
    norm = gpt.layers[layer].ln1_post
    if norm is not None:
        weights = (weights - weights.mean(-1, keepdim=True) if norm.centres else weights) * norm.w.detach().double()
    return weights - weights.mean(-1, keepdim=True) if reads_are_centred(gpt.config) else weights


def folded_unembed(gpt: GPT) -> Float[Tensor, "d_model d_vocab"]:
    """`gpt.folded_unembed()` in fp64: W_U with the final norm's gain, and centring, folded in."""
    norm, unembed = gpt.final_norm, gpt.W_U.double()
    return unembed if norm is None else _through(norm, unembed)


def _through(norm: NormLayer, weights: Float[Tensor, "*axes d_model width"]) -> Float[Tensor, "*axes d_model width"]:
    folded = norm.shrink * norm.w.detach().double()[:, None] * weights
    return folded - folded.mean(-2, keepdim=True) if norm.centres else folded


def _bias_read(gpt: GPT, layer: int, weights: Float[Tensor, "head d_model d_head"]) -> Float[Tensor, "head d_head"]:
    """What the reading norm's own bias adds to queries, keys or values."""
    norm = gpt.layers[layer].ln1
    if norm is None or norm.b is None or gpt.config.norm not in PRE_NORM_READS:
        return weights.new_zeros(weights.shape[0], weights.shape[2])
    return norm.shrink * norm.b.detach().double() @ weights


def reads_are_centred(config: GPTConfig) -> bool:
    """Whether all readers of the stream drop its mean (LayerNorm), so that the mean of what is written does nothing."""
    return config.norm_kind is NormKind.LAYERNORM and config.norm in PRE_NORM_READS


def folding_note(config: GPTConfig) -> str:
    """What is folded into the weights of such a model, in sentences."""
    said = []
    if config.norm in PRE_NORM_READS:
        centring = " and centring" if config.norm_kind is NormKind.LAYERNORM else ""
        shrink = ", and the constant 1/sqrt(layer)," if config.norm is Norm.SCALED else ""
        said.append(f"ln1's gain{centring}{shrink} folded into W_Q, W_K and W_V; its scale is not")
        if centring:
            said.append("W_O is centred, as every reader of the stream drops the mean")
    else:
        said.append(
            f"norm={config.norm.value}: heads read the stream as it is, so nothing is folded into W_Q, W_K, W_V"
        )
    if config.norm in OUTPUT_NORMS:
        said.append(
            "ln1_post's gain is folded into W_O; its scale, set by all heads of the layer together, is not, so that "
            "what heads write compares within a layer only"
        )
    if config.norm in SUM_NORMS:
        said.append("what heads write passes the norms on the sum, which are not folded")
    if config.biases:
        said.append("biases are left out of QK and OV")
    return "; ".join(said) + "."


def require_bilinear_scores(config: GPTConfig, what: str) -> None:
    """Refuse a model whose scores are no bilinear form of the two streams that a query and a key read."""
    if config.qk_norm:
        raise UndefinedError(
            f"{what} is not defined with qk_norm=true: queries and keys are divided by their own sizes, so a score "
            f"is no bilinear form of the stream. {_INSTEAD}",
            setting="qk_norm=true",
        )
    if config.smeared_keys:
        raise UndefinedError(
            f"{what} is not defined with smeared_keys=true: a key reads two tokens, so a score is no form of one "
            f"query and one key stream. {_INSTEAD}",
            setting="smeared_keys=true",
        )


_INSTEAD = "Read OV circuits and V-composition, or scores of a run (hook_attn_scores)."
