"""LayerNorm and RMSNorm with their inside open to view.

The norm itself is torch's fused kernel, whose statistics are at least fp32. Its parts, the divisor `hook_scale` and
the quotient `hook_normalized`, are computed beside it when asked for, and take its place when they are edited.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from model.config import GPTConfig, NormKind
from model.hooks import Call, HookPoint
from model.sites import Site, Tap


class NormLayer(nn.Module):
    """out = normalized * w + b, normalized = x / scale; LayerNorm centres x first.

    scale = sqrt(mean square + eps) over d_model, of the centred x for LayerNorm. `shrink` multiplies the output (1
    except in the scaled placement).
    """

    def __init__(self, config: GPTConfig, name: str, layer: int | None = None, *, shrink: float = 1.0) -> None:
        super().__init__()
        self.eps = config.norm_eps
        self.centres = config.norm_kind is NormKind.LAYERNORM
        self.shrink = shrink
        self.w = nn.Parameter(torch.ones(config.d_model))
        self.b = nn.Parameter(torch.zeros(config.d_model)) if self.centres and config.biases else None
        self.hook_scale = HookPoint(_site(name, "SCALE", layer))
        self.hook_normalized = HookPoint(_site(name, "NORMALIZED", layer))
        self.hook_out = HookPoint(_site(name, "OUT", layer))

    def forward(self, x: Float[Tensor, "*batch d_model"], call: Call | None = None) -> Float[Tensor, "*batch d_model"]:
        """The normed `x`; at run time with a call, as read and edited by it."""
        normalized = self._edited_normalized(x, call)
        out = self._fused(x) if normalized is None else self._gained(normalized).to(x.dtype)
        return self.hook_out(out if self.shrink == 1 else out * self.shrink, call)

    def scale(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch one"]:
        """The divisor for `x`."""
        return (self._centred(x).pow(2).mean(-1, keepdim=True) + self.eps).sqrt()

    def _edited_normalized(self, x: Tensor, call: Call | None) -> Tensor | None:
        """The quotient x / scale if it has to take part in the pass, else None."""
        if not (self.hook_scale.wanted(call) or self.hook_normalized.wanted(call)):
            return None
        scale = self.scale(x)
        edited = self.hook_scale.beside(scale, call)
        normalized = self._centred(x) / (scale if edited is None else edited)
        visited = self.hook_normalized.beside(normalized, call)
        if visited is not None:
            return visited
        return None if edited is None else normalized

    def _centred(self, x: Tensor) -> Tensor:
        x = x if x.dtype == torch.float64 else x.float()
        return x - x.mean(-1, keepdim=True) if self.centres else x

    def _gained(self, normalized: Tensor) -> Tensor:
        out = normalized * self.w
        return out if self.b is None else out + self.b

    def _fused(self, x: Tensor) -> Tensor:
        w = self.w  # asked for once: a module takes as long to find a parameter as a small product does
        return F.layer_norm(x, w.shape, w, self.b, self.eps) if self.centres else F.rms_norm(x, w.shape, w, self.eps)


def _site(name: str, part: str, layer: int | None) -> Site:
    return Tap[f"{name.upper()}_{part}"].at(layer)
