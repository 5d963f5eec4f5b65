"""What does it cost to be able to look? `make bench`.

Three comparisons of one small GPT with itself and with a plain module of the same algebra and weights: fused against
explicit attention by context length; no hooks, one edit, everything cached; ours against the plain module, forward
and with the backward pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.plain import PlainGPT
from bench.timing import milliseconds, print_table, write_results
from model import GPT, GPTConfig, NormKind, Positions

BATCH, VOCABULARY = 8, 257


def gpt_with(n_ctx: int, device: str) -> GPT:
    """A GPT of the demo's kind, a little larger, in the parts that the plain module has."""
    config = GPTConfig(
        n_layers=4,
        n_heads=8,
        d_model=128,
        n_ctx=n_ctx,
        d_vocab=VOCABULARY,
        norm_kind=NormKind.LAYERNORM,
        positions=Positions.LEARNED,
    )
    return GPT(config).to(device)


def tokens_of(n_ctx: int, device: str) -> Tensor:
    """Random tokens, the same each time."""
    return torch.randint(0, VOCABULARY, (BATCH, n_ctx), generator=torch.Generator().manual_seed(0)).to(device)


def attention_paths(n_ctx: int, device: str, rounds: int) -> dict[str, Any]:
    """Fused and explicit attention at one context length, forward only."""
    gpt, tokens = gpt_with(n_ctx, device), tokens_of(n_ctx, device)

    def explicit() -> None:
        with gpt.explicit_attention():
            gpt(tokens)

    with torch.no_grad():
        return milliseconds({"fused": lambda: gpt(tokens), "explicit": explicit}, rounds=rounds)


def hooks(n_ctx: int, device: str, rounds: int) -> dict[str, Any]:
    """One model, more and more of it looked at, forward only."""
    gpt, tokens = gpt_with(n_ctx, device), tokens_of(n_ctx, device)
    halve: Callable[..., Tensor] = lambda z, hook: z / 2  # noqa: E731
    cases = {
        "no hooks": lambda: gpt(tokens),
        "one head output edited": lambda: gpt.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", halve)]),
        "residual streams cached": lambda: gpt.run_with_cache(tokens, lambda name: "hook_resid" in name),
        "patterns of one layer cached": lambda: gpt.run_with_cache(tokens, "blocks.1.attn.hook_pattern"),
        "everything cached": lambda: gpt.run_with_cache(tokens),
    }
    with torch.no_grad():
        return milliseconds(cases, rounds=rounds)


def against_plain(n_ctx: int, device: str, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ours without hooks against a module that never had any, forward, and forward and backward; checked to agree."""
    gpt, tokens = gpt_with(n_ctx, device), tokens_of(n_ctx, device)
    plain = PlainGPT(gpt).to(device)
    torch.testing.assert_close(gpt(tokens), plain(tokens), atol=1e-4, rtol=1e-4)

    def trained(module: torch.nn.Module) -> Callable[[], None]:
        return lambda: module(tokens).logsumexp(-1).mean().backward()

    forward = {"plain module": torch.no_grad()(lambda: plain(tokens)), "ours": torch.no_grad()(lambda: gpt(tokens))}
    both_ways = {"plain module": trained(plain), "ours": trained(gpt)}
    return milliseconds(forward, rounds=rounds), milliseconds(both_ways, rounds=rounds)


def main() -> None:
    """Print the tables and write them to bench/results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 256, 512])
    given = parser.parse_args()
    tables: dict[str, Any] = {}
    for n_ctx in given.contexts:
        tables[f"attention, context {n_ctx}"] = attention_paths(n_ctx, given.device, given.rounds)
    tables["hooks, context 256"] = hooks(256, given.device, given.rounds)
    forward, both_ways = against_plain(256, given.device, given.rounds)
    tables |= {"a plain module, forward, context 256": forward, "the same with the backward pass": both_ways}
    for title, table in tables.items():
        print_table(title, table)
    print(f"\nWritten to {write_results('attention_and_hooks', tables)}")


if __name__ == "__main__":
    main()
