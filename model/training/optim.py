"""From gradients to updates: AdamW everywhere, or Muon on the matrices inside the blocks.

AdamW (Loshchilov & Hutter 2019) runs fused. Weight decay falls on matrices only: a decayed norm gain or bias would be
a pull towards a different function, not towards a simpler one. Muon (Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon) replaces a matrix's momentum by its nearest orthogonal matrix; its updates
are scaled to the size of AdamW's (Liu et al. 2025, arXiv:2502.16982), so that one learning rate serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from model.errors import CheckpointError
from model.gpt import GPT
from model.training.config import OptimConfig, Optimizer


class Optimizers:
    """The optimizers of one model, stepped as one.

    Their state is a flat mapping from "PARAMETER/KEY" to tensors, which safetensors can hold: parameters go by name,
    so that it does not depend on their order.
    """

    def __init__(self, gpt: GPT, config: OptimConfig) -> None:
        self._names = {parameter: name for name, parameter in gpt.named_parameters()}
        self._peak = config.lr
        self._parts = _build(gpt, config)

    def step(self, scale: float) -> None:
        """Update the parameters at `scale` times the peak learning rate."""
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = self._peak * scale
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients (their memory too)."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on besides weights and gradients."""
        return {
            f"{self._names[cast(nn.Parameter, parameter)]}/{key}": torch.as_tensor(value)
            for part in self._parts
            for parameter, entries in part.state.items()
            for key, value in entries.items()
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` gave; a state of another model or optimizer is a CheckpointError."""
        places = {
            f"{self._names[parameter]}/{key}": (part.state[parameter], key, parameter.device)
            for part in self._parts
            for group in part.param_groups
            for parameter in group["params"]
            for key in _state_keys(part)
        }
        strays = sorted(places.keys() ^ tensors.keys()) if tensors else []
        if strays:
            raise CheckpointError(
                f'The saved optimizer state does not belong to this run ("{strays[0]}" has no counterpart); resume it '
                "with the configuration it was started with."
            )
        for name, tensor in tensors.items():
            state, key, device = places[name]
            state[key] = tensor.to(device)


def _build(gpt: GPT, config: OptimConfig) -> list[torch.optim.Optimizer]:
    parameters = dict(gpt.named_parameters())
    hidden = {name: p for name, p in parameters.items() if name.startswith("blocks.") and p.ndim == 2}
    if config.optimizer is Optimizer.ADAMW:
        return [_adamw(parameters.values(), config)]
    rest = [parameter for name, parameter in parameters.items() if name not in hidden]
    options = {"lr": config.lr, "weight_decay": config.weight_decay, "adjust_lr_fn": "match_rms_adamw"}
    muon = torch.optim.Muon if gpt.device.type == "cuda" else Float32Muon
    return [muon(list(hidden.values()), **options), _adamw(rest, config)]


def _state_keys(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    return ("momentum_buffer",) if isinstance(optimizer, torch.optim.Muon) else ("step", "exp_avg", "exp_avg_sq")


def _adamw(parameters: Iterable[nn.Parameter], config: OptimConfig) -> torch.optim.AdamW:
    matrices, others = [], []
    for parameter in parameters:
        (matrices if parameter.ndim >= 2 else others).append(parameter)
    decays = ((matrices, config.weight_decay), (others, 0.0))
    groups: list[dict[str, Any]] = [{"params": params, "weight_decay": decay} for params, decay in decays if params]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=True)


class Float32Muon(torch.optim.Muon):
    """torch's Muon with the orthogonalisation in the gradient's own precision.

    torch's works in bfloat16, which a CPU without bfloat16 units emulates: a 768 x 768 step takes 7 s there. The
    update rule is the same to rounding (a test compares them).
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient; a closure is not supported."""
        if closure is not None:
            raise NotImplementedError("Float32Muon takes no closure")
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                momentum = state["momentum_buffer"].lerp_(matrix.grad, 1 - group["momentum"])
                update = matrix.grad.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
                direction = orthogonalized(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(direction, alpha=-group["lr"] * 0.2 * max(matrix.shape) ** 0.5)


def orthogonalized(
    matrix: Float[Tensor, "row column"],
    coefficients: tuple[float, float, float],
    n_steps: int,
    eps: float,
) -> Float[Tensor, "row column"]:
    """A matrix with the singular vectors of `matrix` and singular values near 1 (about 0.7 to 1.2).

    Newton-Schulz iteration with the quintic of Jordan et al. 2024: s -> a s + b s^3 + c s^5 on every singular value.
    """
    a, b, c = coefficients
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(n_steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide
