"""Muon for processors without bfloat16 units (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

torch's Muon orthogonalises in bfloat16, which most CPUs emulate: one step of a 768 x 768 matrix takes 7 s on one core.
This one works in the gradient's own precision. The update is the same to bfloat16 rounding (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


class Float32Muon(torch.optim.Muon):
    """torch's Muon, in the gradient's own precision."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """One update of every matrix that has a gradient; a closure is not supported."""
        if closure is not None:
            raise NotImplementedError("Float32Muon takes no closure")
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                momentum = self._momentum_of(matrix).lerp_(matrix.grad, 1 - group["momentum"])
                ahead = matrix.grad.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
                direction = orthogonalized(ahead, group["ns_coefficients"], group["ns_steps"], group["eps"])
                tallness = max(1.0, matrix.shape[0] / matrix.shape[1])
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(direction, alpha=-group["lr"] * tallness**0.5)

    def _momentum_of(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return state["momentum_buffer"]


def orthogonalized(
    matrix: Float[Tensor, "row column"], coefficients: tuple[float, float, float], n_steps: int, eps: float
) -> Float[Tensor, "row column"]:
    """The matrix with the same singular vectors and singular values near 1 (about 0.7 to 1.2).

    Newton-Schulz iteration with the quintic of Jordan et al. 2024: s -> a s + b s^3 + c s^5 on every singular value.
    """
    a, b, c = coefficients
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(n_steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if is_tall else wide
