"""Models whose circuits are known because their weights are set by hand.

The residual stream is cut into named subspaces; a planted head reads one and writes another, so that every score,
ablation effect and memory has an answer that can be written down.

    induction_model()   L0H1 attends to the previous token and copies it; L1H2 attends to what followed the current
    token's earlier
                        copy, and copies that to the output. All other heads write nothing.
    memories_model()    FFN memories answer one bigram each, by their positive or their negative side, and promote one
    token each; memory_model() has one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor

from model import GPT, GPTConfig
from model.ffn import FFN

D_VOCAB = 20
N_CTX = 48
PREVIOUS_HEAD = (0, 1)
INDUCTION_HEAD = (1, 2)
_SHARP = 400.0


def induction_model(*, d_vocab: int = D_VOCAB, n_ctx: int = N_CTX, n_heads: int = 4) -> GPT:
    """The two-layer induction circuit (Elhage et al. 2021), exact: patterns are 1 on their targets to fp32.

    The stream is [token | position | previous token | output], with one dimension per token, position, token and token.
    Attention-only, no norm, untied, no positions other than the planted ones; heads are as wide as they need to be.
    """
    d_head = max(d_vocab, n_ctx)
    d_model = 3 * d_vocab + n_ctx
    config = GPTConfig(
        **{"n_layers": 2, "n_heads": n_heads, "d_model": d_model, "d_head": d_head, "n_ctx": n_ctx, "d_vocab": d_vocab},
        **{"norm": "none", "positions": "learned", "ffn": "none", "tie_embeddings": False},
    )
    gpt = GPT(config).eval()
    token, position = slice(0, d_vocab), slice(d_vocab, d_vocab + n_ctx)
    previous, output = slice(position.stop, position.stop + d_vocab), slice(position.stop + d_vocab, d_model)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.zero_()
        gpt.embed.weight[:, token] = torch.eye(d_vocab)
        gpt.pos_embed.weight[:, position] = torch.eye(n_ctx)
        gpt.unembed.weight[:, output] = torch.eye(d_vocab)
        first, second = (block.attn for block in gpt.layers)
        _attend(first, PREVIOUS_HEAD[1], position, position, shift(n_ctx), d_head)
        _copy(first, PREVIOUS_HEAD[1], token, previous, gain=1.0)
        _attend(second, INDUCTION_HEAD[1], token, previous, torch.eye(d_vocab), d_head)
        _copy(second, INDUCTION_HEAD[1], token, output, gain=20.0)
    return gpt


class Side(StrEnum):
    """With which sign a planted memory answers its bigram."""

    POSITIVE = "positive"
    """Its coefficient is largest there."""
    NEGATIVE = "negative"
    """Its coefficient is lowest there, by the dip of the activation function: GELU and SwiGLU only."""
    NEGATIVE_LINEAR = "negative_linear"
    """The same, because a positive gate meets a negative linear factor: SwiGLU only."""


@dataclass(frozen=True)
class PlantedMemory:
    """A memory that answers one bigram, and what it promotes then."""

    first: int
    second: int
    promoted: int
    """The token that its value promotes; on a negative side, the one that its value suppresses, which comes to that."""
    side: Side = Side.POSITIVE

    def coefficient(self, ffn: str, n_matching: int) -> float:
        """Its coefficient where the last two tokens match both, one or none of the bigram's."""
        pre = torch.tensor(self._slope(ffn) * n_matching + self._bias(ffn))
        if ffn == "relu":
            return float(torch.relu(pre))
        if ffn == "gelu":
            return float(F.gelu(pre))
        return float(F.silu(pre)) * self._linear

    def _slope(self, ffn: str) -> float:
        if self.side is not Side.NEGATIVE:
            return _SWIGLU_SLOPE if ffn == "swiglu" else 1.0
        return (_SILU_DIP if ffn == "swiglu" else _GELU_DIP) / 2

    def _bias(self, ffn: str) -> float:
        return 0.0 if self.side is Side.NEGATIVE else -self._slope(ffn)

    @property
    def _linear(self) -> float:
        return -1.0 if self.side is Side.NEGATIVE_LINEAR else 1.0

    def plant(self, mlp: FFN, memory: int, previous: int, token: int, output: int, scale: float) -> None:
        """Write key and value into an FFN whose other weights for this memory are 0.

        `previous`, `token` and `output` are where those subspaces of the stream begin; `scale` is what the norm before
        the FFN multiplies the stream by.
        """
        key = mlp.in_proj if mlp.gate_proj is None else mlp.gate_proj
        key.weight[memory, [previous + self.first, token + self.second]] = self._slope(mlp.kind) / scale
        key.bias[memory] = self._bias(mlp.kind)
        if mlp.gate_proj is not None:
            mlp.in_proj.bias[memory] = self._linear
        mlp.out_proj.weight[output + self.promoted, memory] = 5.0 if self.side is Side.POSITIVE else -5.0


_SWIGLU_SLOPE = 4.0
_GELU_DIP, _SILU_DIP = -0.7518, -1.2785
"""Where the two functions are lowest."""


def memories_model(
    memories: Mapping[tuple[int, int], PlantedMemory],
    *,
    ffn: str = "relu",
    norm: str = "none",
    n_layers: int | None = None,
    d_ff: int = 8,
) -> GPT:
    """A model whose FFN memories, by (layer, memory), are the planted ones; all others write nothing and never fire.

    A previous-token head in layer 0 puts the previous token beside the current one. Keys read both, and their bias
    takes one away, so that either alone is not enough (ReLU). With `norm="pre"` (RMSNorm) the stream before any memory
    holds three ones, token, position and previous token, so its norm is known and the same coefficients come out; for
    that, all memories must be in one layer.
    """
    if norm != "none" and len({layer for layer, _ in memories}) > 1:
        raise ValueError("under a norm what one layer's memories write changes the scale that the next layer reads")
    d_vocab, n_ctx = D_VOCAB, N_CTX
    d_model = 3 * d_vocab + n_ctx
    layers = max(layer for layer, _ in memories) + 1 if n_layers is None else n_layers
    config = GPTConfig(
        **{"n_layers": layers, "n_heads": 2, "d_model": d_model, "d_head": n_ctx, "n_ctx": n_ctx, "d_vocab": d_vocab},
        **{"norm": norm, "norm_eps": 1e-12, "positions": "learned", "ffn": ffn, "d_ff": d_ff, "biases": True},
        tie_embeddings=False,
    )
    gpt = GPT(config).eval()
    token, position = slice(0, d_vocab), slice(d_vocab, d_vocab + n_ctx)
    previous, output = slice(position.stop, position.stop + d_vocab), slice(position.stop + d_vocab, d_model)
    with torch.no_grad():
        for name, parameter in gpt.named_parameters():
            if not _is_gain(name):
                parameter.zero_()
        gpt.embed.weight[:, token] = torch.eye(d_vocab)
        gpt.pos_embed.weight[:, position] = torch.eye(n_ctx)
        gpt.unembed.weight[:, output] = torch.eye(d_vocab)
        _attend(gpt.layers[0].attn, 1, position, position, shift(n_ctx), n_ctx)
        _copy(gpt.layers[0].attn, 1, token, previous, gain=1.0)
        if norm == "pre":  # two ones, token and position, are normed to this before the head moves them
            gpt.layers[0].attn.W_V[1] *= (2 / d_model) ** 0.5
        scale = 1.0 if norm == "none" else (d_model / 3) ** 0.5
        for (layer, memory), planted in memories.items():
            planted.plant(gpt.layers[layer].mlp, memory, previous.start, token.start, output.start, scale)
    return gpt


def memory_model(*, first: int = 3, second: int = 5, promoted: int = 7, layer: int = 0, memory: int = 2) -> GPT:
    """Memory `memory` fires with coefficient 1 exactly where `first` is followed by `second`, and promotes `promoted`.

    With `layer=0` the FFN comes right after the head that moves the previous token.
    """
    return memories_model({(layer, memory): PlantedMemory(first, second, promoted)})


def silence(gpt: GPT, *, layer: int, head: int) -> None:
    """Let a head write nothing: its slice of W_O becomes zero."""
    gpt.layers[layer].attn.W_O[head] = 0.0


def shift(n: int) -> Tensor:
    """Which position each position looks for: the one before; position 0 looks for itself."""
    matrix = torch.diag(torch.ones(n - 1), -1)
    matrix[0, 0] = 1.0
    return matrix


def _attend(attention, head: int, reads: slice, seeks: slice, match: Tensor, d_head: int) -> None:
    """Make the score of (query, key) large where match[what the query reads, what the key holds] is 1."""
    n = match.shape[1]
    attention.W_Q[head][reads, :n] = match * _SHARP * d_head**0.5
    attention.W_K[head][seeks, :n] = torch.eye(n)


def _is_gain(name: str) -> bool:
    return name.rsplit(".", 2)[-2:] in (["ln1", "w"], ["ln2", "w"], ["ln_final", "w"])


def _copy(attention, head: int, reads: slice, writes: slice, *, gain: float) -> None:
    n = reads.stop - reads.start
    attention.W_V[head][reads, :n] = torch.eye(n)
    attention.W_O[head][:n, writes] = gain * torch.eye(n)
