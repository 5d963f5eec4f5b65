"""A tiny GPT after nanoGPT's published description, written for these tests, and its checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 16, "block_size": 12, "vocab_size": 11}


class Nano(nn.Module):
    """Pre-norm, learned positions, one matrix for q, k and v, `nn.Linear` everywhere, embeddings tied."""

    def __init__(self, *, bias: bool, gelu: str = "none", **sizes: int) -> None:
        super().__init__()
        size = SIZES | sizes
        width, self.n_head, self.gelu = size["n_embd"], size["n_head"], gelu
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(size["vocab_size"], width),
                "wpe": nn.Embedding(size["block_size"], width),
                "h": nn.ModuleList(_block(width, bias=bias) for _ in range(size["n_layer"])),
                "ln_f": nn.LayerNorm(width, bias=bias),
            }
        )
        self.lm_head = nn.Linear(width, size["vocab_size"], bias=False)
        self.lm_head.weight = self.transformer["wte"].weight
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in self.parameters():  # large enough that every part matters
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))

    def forward(self, tokens: Tensor) -> Tensor:
        at = self.transformer
        x = at["wte"](tokens) + at["wpe"](torch.arange(tokens.shape[1]))
        for block in at["h"]:
            x = x + self._attended(block["attn"], block["ln_1"](x))
            hidden = F.gelu(block["mlp"]["c_fc"](block["ln_2"](x)), approximate=self.gelu)
            x = x + block["mlp"]["c_proj"](hidden)
        return self.lm_head(at["ln_f"](x))

    def _attended(self, attn: nn.ModuleDict, x: Tensor) -> Tensor:
        n_pos, width = x.shape[1:]
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in attn["c_attn"](x).split(width, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.n_head)
        later = torch.ones(n_pos, n_pos, dtype=torch.bool).triu(1)
        z = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return attn["c_proj"](z.transpose(1, 2).flatten(2))


def _block(width: int, *, bias: bool) -> nn.ModuleDict:
    return nn.ModuleDict(
        {
            "ln_1": nn.LayerNorm(width, bias=bias),
            "attn": nn.ModuleDict(
                {"c_attn": nn.Linear(width, 3 * width, bias=bias), "c_proj": nn.Linear(width, width, bias=bias)}
            ),
            "ln_2": nn.LayerNorm(width, bias=bias),
            "mlp": nn.ModuleDict(
                {"c_fc": nn.Linear(width, 4 * width, bias=bias), "c_proj": nn.Linear(4 * width, width, bias=bias)}
            ),
        }
    )


def saved(nano: Nano, path: Path, *, prefix: str = "", iter_num: Any = 250, **model_args: Any) -> Path:
    """What nanoGPT's train.py leaves: weights, optimizer, sizes, and where training stood."""
    bias = nano.transformer["ln_f"].bias is not None
    sizes = {
        "n_layer": len(nano.transformer["h"]),
        "n_head": nano.n_head,
        "n_embd": nano.lm_head.in_features,
        "block_size": nano.transformer["wpe"].num_embeddings,
        "vocab_size": nano.lm_head.out_features,
    }
    optimizer = torch.optim.AdamW(nano.parameters(), lr=0.0)
    nano(torch.zeros(1, 2, dtype=torch.int64)).sum().backward()
    optimizer.step()  # so that there is a state to save; nothing moves
    content = {
        "model": {prefix + name: tensor for name, tensor in nano.state_dict().items()},
        "optimizer": optimizer.state_dict(),
        "model_args": {**sizes, "bias": bias, "dropout": 0.2, **model_args},
        "iter_num": iter_num,
        "best_val_loss": torch.tensor(1.5),
        "config": {"dataset": "shakespeare_char", "batch_size": 12, "compile": True, "learning_rate": 1e-3},
    }
    torch.save(content, path)
    return path
