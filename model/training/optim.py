"""From gradients to updates: AdamW everywhere, or Muon on the matrices inside the blocks.

AdamW (Loshchilov & Hutter 2019) runs fused. Weight decay falls on matrices only: a decayed norm gain or bias would be a
pull towards a different function, not towards a simpler one. Muon (Jordan et al. 2024,
https://kellerjordan.github.io/posts/muon) replaces a matrix's momentum by its nearest orthogonal matrix, times
sqrt(rows / columns) for a tall one, and has a learning rate of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from model.errors import CheckpointError
from model.gpt import GPT
from model.training.config import OptimConfig, Optimizer
from model.training.muon import Float32Muon


class Optimizers:
    """The optimizers of one model, stepped as one.

    Their state is a flat mapping from "PARAMETER/KEY" to tensors, which safetensors can hold: parameters go by name,
    so that it does not depend on their order.
    """

    def __init__(self, gpt: GPT, config: OptimConfig) -> None:
        self._names = {parameter: name for name, parameter in gpt.named_parameters()}
        self._parts = _build(gpt, config)
        self._peaks = [part.param_groups[0]["lr"] for part in self._parts]

    def step(self, scale: float) -> None:
        """Update the parameters at `scale` times the peak learning rates."""
        for part, peak in zip(self._parts, self._peaks, strict=True):
            for group in part.param_groups:
                group["lr"] = peak * scale
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
    kind = torch.optim.Muon if gpt.device.type == "cuda" else Float32Muon
    muon = kind(hidden.values(), lr=config.muon_lr, weight_decay=config.weight_decay)
    return [muon, _adamw(rest, config)]


def _state_keys(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    return ("momentum_buffer",) if isinstance(optimizer, torch.optim.Muon) else ("step", "exp_avg", "exp_avg_sq")


def _adamw(parameters: Iterable[nn.Parameter], config: OptimConfig) -> torch.optim.AdamW:
    matrices, others = [], []
    for parameter in parameters:
        (matrices if parameter.ndim >= 2 else others).append(parameter)
    decays = ((matrices, config.weight_decay), (others, 0.0))
    groups: list[dict[str, Any]] = [{"params": params, "weight_decay": decay} for params, decay in decays if params]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=True)
