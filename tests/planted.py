"""Models whose circuits are known because their weights are set by hand.

The residual stream is cut into named subspaces; a planted head reads one and writes another, so that every score,
ablation effect and memory has an answer that can be written down.

    induction_model()   L0H1 attends to the previous token and copies it; L1H2 attends to what followed the current
    token's earlier
                        copy, and copies that to the output. All other heads write nothing.
    memory_model()      one FFN memory fires on one bigram and promotes one token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model import GPT, GPTConfig

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


def memory_model(*, first: int = 3, second: int = 5, promoted: int = 7, layer: int = 0, memory: int = 2) -> GPT:
    """Memory `memory` fires with coefficient 1 exactly where `first` is followed by `second`, and promotes `promoted`.

    A previous-token head in layer 0 puts the previous token beside the current one. The key reads both and its bias
    takes 1 away, so that either alone is not enough (ReLU). With `layer=0` the FFN comes right after that head.
    """
    d_vocab, n_ctx = D_VOCAB, N_CTX
    d_model = 3 * d_vocab + n_ctx
    config = GPTConfig(
        **{
            "n_layers": layer + 1,
            "n_heads": 2,
            "d_model": d_model,
            "d_head": n_ctx,
            "n_ctx": n_ctx,
            "d_vocab": d_vocab,
        },
        **{"norm": "none", "positions": "learned", "ffn": "relu", "d_ff": 8, "tie_embeddings": False, "biases": True},
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
        _attend(gpt.layers[0].attn, 1, position, position, shift(n_ctx), n_ctx)
        _copy(gpt.layers[0].attn, 1, token, previous, gain=1.0)
        ffn = gpt.layers[layer].mlp
        ffn.in_proj.weight[memory, previous.start + first] = 1.0
        ffn.in_proj.weight[memory, token.start + second] = 1.0
        ffn.in_proj.bias[memory] = -1.0
        ffn.out_proj.weight[output.start + promoted, memory] = 5.0
    return gpt


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


def _copy(attention, head: int, reads: slice, writes: slice, *, gain: float) -> None:
    n = reads.stop - reads.start
    attention.W_V[head][reads, :n] = torch.eye(n)
    attention.W_O[head][:n, writes] = gain * torch.eye(n)
