"""Drawing the first weights.

Every matrix has a random stream of its own, named by the seed and the parameter's name. So two models that differ in
one choice (the norm placement, say) begin with the same numbers everywhere else, and adding a part changes no other
part.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from model.config import GPTConfig, Init, Norm

_GPT2_STD = 0.02
_WRITES = ("o_proj.weight", "out_proj.weight")
_DEEPNORM_SCALED = ("v_proj.weight", "o_proj.weight", "in_proj.weight", "gate_proj.weight", "out_proj.weight")


@torch.no_grad()
def init_weights(parameters: Iterable[tuple[str, nn.Parameter]], config: GPTConfig, seed: int) -> None:
    """Fill matrices by the config's scheme; gains are 1 and biases 0."""
    for name, parameter in parameters:
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 2:
            parameter.copy_(_std(name, parameter, config) * _normal(parameter.shape, name, seed))


def _std(name: str, parameter: Tensor, config: GPTConfig) -> float:
    if not name.startswith("blocks."):
        return config.embed_std if "embed" in name.split(".")[0] and name != "unembed.weight" else _unembed_std(config)
    if config.init is Init.XAVIER:
        std = math.sqrt(2 / sum(parameter.shape))
    else:
        std = _GPT2_STD / (math.sqrt(2 * config.n_layers) if name.endswith(_WRITES) else 1)
    if config.norm is Norm.DEEPNORM and name.endswith(_DEEPNORM_SCALED):
        std *= (8 * config.n_layers) ** -0.25
    return std


def _unembed_std(config: GPTConfig) -> float:
    """An untied W_U: small enough that the first predictions are close to uniform."""
    return _GPT2_STD if config.init is Init.GPT2 else config.d_model**-0.5


def _normal(shape: torch.Size, name: str, seed: int) -> Tensor:
    """Standard normal numbers that depend on nothing but the shape, the name and the seed."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    return torch.randn(shape, generator=generator)
