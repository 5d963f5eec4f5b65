"""One layer: attention and FFN, each reading the stream and adding to it, with the norms where the placement puts them.

    pre, scaled   x + f(N(x))          post       N(x + f(x))
    sandwich      x + N(f(N(x)))       deepnorm   N(alpha x + f(x))
    reordered     x + N(f(x))          none       x + f(x)

Under every placement resid_pre, resid_mid and resid_post are the stream that the next reader gets.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Attention, Heads, Pass, Stream
from model.config import PRE_NORM_READS, SUM_NORMS, FFNKind, GPTConfig, Norm
from model.ffn import FFN
from model.hooks import Call, HookPoint
from model.norms import NormLayer
from model.sites import Tap


class Block(nn.Module):
    """A layer of the model. A norm that the placement does not have is None."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.norm = config.norm
        self.carry = residual_weight(config)
        self.dropout = config.dropout
        shrink = (layer + 1) ** -0.5 if config.norm is Norm.SCALED else 1.0

        def norm(name: str) -> NormLayer | None:
            return NormLayer(config, name, layer, shrink=shrink) if name in config.norm_names else None

        self.ln1, self.ln1_post = norm("ln1"), norm("ln1_post")
        self.attn = Attention(config, layer)
        self.ln2, self.ln2_post = norm("ln2"), norm("ln2_post")
        self.mlp = None if config.ffn is FFNKind.NONE else FFN(config, layer)
        self.hook_resid_pre = HookPoint(Tap.RESID_PRE.at(layer))
        self.hook_attn_out = HookPoint(Tap.ATTN_OUT.at(layer))
        self.hook_resid_mid = HookPoint(Tap.RESID_MID.at(layer))
        self.hook_mlp_in = HookPoint(Tap.MLP_IN.at(layer))
        self.hook_mlp_out = HookPoint(Tap.MLP_OUT.at(layer))
        self.hook_resid_post = HookPoint(Tap.RESID_POST.at(layer))

    def forward(self, x: Stream, run: Pass) -> Stream:
        """The stream after this layer."""
        x = self.hook_resid_pre(x, run.call)
        return self._after_attention(x, self.attn(x, self._reader(self.ln1), run), run)

    def from_z(self, x: Stream, z: Heads, run: Pass) -> Stream:
        """The stream after this layer, from the one that entered it and what its heads hold before W_O."""
        return self._after_attention(x, self.attn.written(z, run), run)

    def from_mid(self, x: Stream, run: Pass) -> Stream:
        """The stream after this layer, from the one between its attention and its FFN."""
        call = run.call
        if self.mlp is None:
            return self.hook_resid_post(x, call)
        x = self.hook_resid_mid(x, call)
        read = self._reader(self.ln2)(self.hook_mlp_in(x, call), call)
        mlp_out = self._written(self.mlp(read, call), self.ln2_post, call)
        x = self._summed(x, self.hook_mlp_out(mlp_out, call), self.ln2, call)
        return self.hook_resid_post(x, call)

    def _after_attention(self, x: Stream, out: Stream, run: Pass) -> Stream:
        attn_out = self._written(out, self.ln1_post, run.call)
        return self.from_mid(self._summed(x, self.hook_attn_out(attn_out, run.call), self.ln1, run.call), run)

    def _reader(self, norm: NormLayer | None) -> NormLayer | _Unchanged:
        """What a sublayer reads the stream through."""
        return norm if norm is not None and self.norm in PRE_NORM_READS else _Unchanged()

    def _written(self, out: Tensor, norm: NormLayer | None, call: Call | None) -> Tensor:
        """What a sublayer adds: its output, through an output norm if there is one."""
        if self.dropout:
            out = F.dropout(out, self.dropout, self.training)
        return out if norm is None else norm(out, call)

    def _summed(self, x: Stream, out: Stream, norm: NormLayer | None, call: Call | None) -> Stream:
        """The stream after a sublayer, through a norm on the sum if there is one."""
        total = out if self.carry == 0 else (x + out if self.carry == 1 else self.carry * x + out)
        return norm(total, call) if norm is not None and self.norm in SUM_NORMS else total


class _Unchanged:
    """The reader of a sublayer that sees the raw stream."""

    def __call__(self, x: Tensor, call: Call | None) -> Tensor:
        del call
        return x


def residual_weight(config: GPTConfig) -> float:
    """How much of the stream a sublayer's sum keeps: 1; DeepNorm's alpha = (2 n_layers)^(1/4); 0 without skips."""
    if not config.skip_connections:
        return 0.0
    return (2 * config.n_layers) ** 0.25 if config.norm is Norm.DEEPNORM else 1.0
