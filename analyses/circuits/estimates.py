"""Attribution patching of every head beside true patching of the same heads, and how well it orders them.

The rank correlation has an interval over sequences: where true effects are no larger than their noise no estimate can
order them, and the interval says so. Few places are ordered well by chance, which no interval over sequences shows.
"""

from __future__ import annotations

import torch

from analyses.circuits.result import Config, Estimated
from analyses.registry import Progress
from interp.approximation import approximation, bootstrap_spearman
from interp.attribution_patching import OF_HEADS, attribution_patching
from interp.metrics import Metric, Sequences
from interp.patching import Direction, activation_patching, patch_grid
from model.config import GPTConfig
from model.lab import Lab


def estimates(
    lab: Lab,
    clean: Sequences,
    corrupted: Sequences,
    metric: Metric,
    *,
    config: Config,
    batch_size: int,
    progress: Progress | None,
) -> tuple[Estimated, ...]:
    """Every kind of place in the chosen layers, in both directions and by every method that there is for it."""
    layers = _layers(lab.gpt.config, config.most_patched)
    jobs = [(direction, tap) for direction in Direction for tap in OF_HEADS]
    found: list[Estimated] = []
    for number, (direction, tap) in enumerate(jobs):

        def counted(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                what = f"every head patched at step {lab.step}"
                progress(number * total + done, len(jobs) * total, what)

        grid = patch_grid(lab.gpt.config, tap, layers=layers)
        options = {"direction": direction, "batch_size": batch_size}
        patched = activation_patching(lab.gpt, clean, corrupted, grid, metric, counted=counted, **options)
        true = patched.effect[..., 0]
        for each in attribution_patching(lab.gpt, clean, corrupted, metric, taps=[tap], **options):
            estimated = each.effect[:, list(layers)]
            estimate, truth = estimated.mean(0), true.mean(0)
            top = min(config.n_top, max(1, truth.numel() // 3))
            found.append(
                Estimated(
                    place=tap.template.rpartition("hook_")[2],
                    method=each.method,
                    direction=direction,
                    layers=layers,
                    group=lab.config.n_heads // lab.config.kv_heads,
                    estimate=estimate,
                    true=truth,
                    agreement=approximation(estimate, truth, top=top),
                    spearman=bootstrap_spearman(estimated, true, seed=config.seed),
                )
            )
    return tuple(found)


def _layers(config: GPTConfig, most_patched: int) -> tuple[int, ...]:
    """All layers; evenly spaced ones where the heads of all are too many; the middle one where one is allowed."""
    last, allowed = config.n_layers - 1, most_patched // config.n_heads
    spaced = torch.linspace(0, last, min(allowed, last + 1)).tolist() if allowed > 1 else [last / 2]
    return tuple(sorted({round(each) for each in spaced}))
