"""What does each number format cost in accuracy? `python -m bench.precision` prints the tables of docs/precision.md.

Everything is measured against the same GPT in numpy's extended precision (`tests.model.longdouble`), or in fp64 for
gradients, on the tests' own tiny models. Errors are in units of the format's eps.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from bench.timing import write_results
from model import GPT
from model.positions import Rotation
from tests.conftest import make_gpt_with
from tests.model.longdouble import Reference, error_of
from tests.model.variants import ALL

FORMATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LAST_POSITION = 4090


def tokens() -> Tensor:
    """Three rows of twelve."""
    return torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(7))


def smooth(variant: dict[str, Any]) -> bool:
    """Whether the gradient is continuous: ReLU's jumps at 0."""
    return variant.get("ffn") != "relu"


def forward_error(dtype: torch.dtype, n_layers: int, variants: list[dict[str, Any]]) -> float:
    """The largest error of any residual or of the logits, as a share of the exact numbers' root mean square."""
    worst = 0.0
    for variant in variants:
        gpt = make_gpt_with(**(variant | {"n_layers": n_layers})).to(dtype)
        exact = Reference(gpt, tokens()).found
        _, cache = gpt.run_with_cache(tokens(), list(exact))
        worst = max(worst, *(error_of(cache[name], exact[name]) for name in exact))
    return worst / torch.finfo(dtype).eps


def loss_and_gradient(gpt: GPT) -> tuple[float, Tensor]:
    """The loss, and all its gradients in a row."""
    loss = gpt.loss(tokens())
    gradients = torch.autograd.grad(loss, list(gpt.parameters()))
    return loss.item(), torch.cat([gradient.double().flatten() for gradient in gradients])


def training_errors(dtype: torch.dtype) -> tuple[float, float]:
    """Errors of the loss and of the gradient, each as a share of itself."""
    losses, gradients = [0.0], [0.0]
    for variant in filter(smooth, ALL):
        gpt = make_gpt_with(**variant).to(dtype)
        (loss, gradient), (exact_loss, exact) = (loss_and_gradient(g) for g in (gpt, copy.deepcopy(gpt).double()))
        losses.append(abs(loss / exact_loss - 1))
        gradients.append(float((gradient - exact).norm() / exact.norm()))
    return max(losses) / torch.finfo(dtype).eps, max(gradients) / torch.finfo(dtype).eps


def rotation(d_head: int, base: float, offset: int) -> dict[str, Any]:
    """How far q.k / sqrt(d_head) varies over positions 0 to 4090 at one offset, in bf16."""
    n, pair = LAST_POSITION + 1, []
    for seed, first in ((1, offset), (2, 0)):
        x = torch.randn(d_head, generator=torch.Generator().manual_seed(seed)).bfloat16().expand(1, n, 1, d_head)
        positions = torch.arange(first, first + n)[None]
        ours, exact = (Rotation.of(positions, d_head, base, kind) for kind in (torch.bfloat16, torch.float64))
        pair.append((ours(x.float()), ours(x), exact(x.double()).bfloat16()))
    before, after, cost = (
        float((q.double() * k.double()).sum(-1).div(math.sqrt(d_head)).std()) for q, k in zip(*pair, strict=True)
    )
    return {"d_head": d_head, "base": base, "offset": offset, "before": before, "after": after, "exact": cost}


def print_markdown(rows: list[dict[str, Any]]) -> None:
    """Rows as a table for the page."""
    print("\n| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
    for row in rows:
        cells = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row.values())
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Measure, print, write."""
    whole, normed = ALL, [variant for variant in ALL if variant.get("norm") != "none"]
    rows: list[dict[str, Any]] = []
    for dtype in FORMATS:
        loss, gradient = (None, None) if dtype is torch.float64 else training_errors(dtype)
        errors = {"2 layers": forward_error(dtype, 2, whole), "6 layers, normed": forward_error(dtype, 6, normed)}
        rows.append({"format": str(dtype), **errors, "loss": loss, "gradient": gradient})
    print_markdown(rows)
    turns = [rotation(*case) for case in ((16, 1e4, 5), (64, 1e4, 5), (64, 1e4, 1000), (64, 5e5, 5), (128, 1e5, 64))]
    print_markdown(turns)
    write_results("precision", {"formats": rows, "rotation": turns})


if __name__ == "__main__":
    main()
