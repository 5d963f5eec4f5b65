"""A GPT as one would write it without thinking of interpretability: the yardstick for what hook points cost."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from model import GPT, GPTConfig


class PlainBlock(nn.Module):
    """Pre-norm attention and FFN with torch's own parts."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width, self.n_heads = config.d_model, config.n_heads
        self.ln1, self.ln2 = (nn.LayerNorm(width, eps=config.norm_eps, bias=False) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.wide = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Add attention(norm(x)) to the stream, then the same with the FFN."""
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1)
        )
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(z.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.ln2(x))))


class PlainGPT(nn.Module):
    """The same algebra as `model.GPT` with learned positions, LayerNorm and GELU, and nowhere to look."""

    def __init__(self, gpt: GPT) -> None:
        """Take over the weights of `gpt`, so that both can be checked to agree before they are timed."""
        super().__init__()
        config = gpt.config
        self.embed, self.pos_embed = gpt.embed, cast(nn.Embedding, gpt.pos_embed)
        blocks = [PlainBlock(config) for _ in range(config.n_layers)]
        self.blocks = nn.ModuleList(blocks)
        self.ln = nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=False)
        self._copy(gpt, blocks)

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits at every position."""
        x = self.embed(tokens) + self.pos_embed.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.ln(x), self.embed.weight)

    @torch.no_grad()
    def _copy(self, gpt: GPT, blocks: list[PlainBlock]) -> None:
        theirs = dict(gpt.named_parameters())
        self.ln.weight.copy_(theirs["ln_final.w"])
        for i, block in enumerate(blocks):
            parts = {
                name.removeprefix(f"blocks.{i}."): p for name, p in theirs.items() if name.startswith(f"blocks.{i}.")
            }
            block.ln1.weight.copy_(parts["ln1.w"])
            block.ln2.weight.copy_(parts["ln2.w"])
            block.qkv.weight.copy_(torch.cat([parts[f"attn.{each}_proj.weight"] for each in "qkv"]))
            block.proj.weight.copy_(parts["attn.o_proj.weight"])
            block.wide.weight.copy_(parts["mlp.in_proj.weight"])
            block.narrow.weight.copy_(parts["mlp.out_proj.weight"])
