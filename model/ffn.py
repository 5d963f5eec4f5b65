"""The feed-forward sublayer: FFN(x) = f(x W_in) W_out, a sum of memories (Geva et al. 2021).

Memory i has key k_i (column i of W_in), value v_i (row i of W_out) and, at a position, the coefficient m_i = f(x .
k_i), which is `hook_post`. SwiGLU's coefficient is silu(x W_gate) * (x W_in).
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from model.attention import Linear, Stream
from model.config import FFNKind, GPTConfig
from model.hooks import Call, HookPoint
from model.sites import Tap


class FFN(nn.Module):
    """Reads a (normed) stream, returns what its memories write."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.kind = config.ffn
        self.in_proj = Linear(config.d_model, config.ffn_width, bias=config.biases)
        gated = self.kind is FFNKind.SWIGLU
        self.gate_proj = Linear(config.d_model, config.ffn_width, bias=config.biases) if gated else None
        self.out_proj = Linear(config.ffn_width, config.d_model, bias=config.biases)
        self.hook_pre = HookPoint(Tap.MLP_PRE.at(layer))
        self.hook_pre_linear = HookPoint(Tap.MLP_PRE_LINEAR.at(layer))
        self.hook_post = HookPoint(Tap.MLP_POST.at(layer))

    def forward(self, x: Stream, call: Call | None) -> Stream:
        """What the memories write."""
        if self.gate_proj is None:
            coefficients = activation(self.kind, self.hook_pre(self.in_proj(x), call))
        else:
            gate = self.hook_pre(self.gate_proj(x), call)
            coefficients = F.silu(gate) * self.hook_pre_linear(self.in_proj(x), call)
        return self.out_proj(self.hook_post(coefficients, call))

    @property
    def W_in(self) -> Float[Tensor, "d_model memory"]:
        """Keys, one per column; writing into the view changes the model."""
        return self.in_proj.weight.detach().T

    @property
    def W_gate(self) -> Float[Tensor, "d_model memory"] | None:
        """SwiGLU's gate keys, one per column; None for the others."""
        return None if self.gate_proj is None else self.gate_proj.weight.detach().T

    @property
    def W_out(self) -> Float[Tensor, "memory d_model"]:
        """Values, one per row; writing into the view changes the model."""
        return self.out_proj.weight.detach().T


def activation(kind: FFNKind, x: Tensor) -> Tensor:
    """The activation function of an ungated FFN."""
    match kind:
        case FFNKind.GELU:
            return F.gelu(x)
        case FFNKind.GELU_TANH:
            return F.gelu(x, approximate="tanh")
        case FFNKind.RELU:
            return F.relu(x)
        case FFNKind.SWIGLU | FFNKind.NONE:
            raise RuntimeError(f"{kind} has no activation function of its own")
