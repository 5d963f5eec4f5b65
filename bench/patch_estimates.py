"""How well gradients tell what patching a head does, method by method, on a run of yours (T24; docs/paths.md).

    python -m bench.patch_estimates runs/four                 every head at Q, K, V and Z, in both directions
    python -m bench.patch_estimates runs/four --divergence    under a divergence from the clean run
    python -m bench.patch_estimates runs/four --edges         every edge between heads, under the same (minutes)

Repeated random tokens, corrupted by another first copy; the metric is the logit of the right token. True effects are
patched one by one. GradDrop gives sizes, and is held against sizes, as are edges.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from interp.approximation import approximation, bootstrap_spearman
from interp.attribution_patching import OF_HEADS, Estimates, Method, attribution_patching
from interp.edge_attribution import edge_attribution
from interp.head_roles import RoleRule, find_head_roles
from interp.metrics import Metric, copy_logit, divergence
from interp.outcomes import copy_targets
from interp.patching import Direction, activation_patching, patch_grid, redrawn_first_copy
from interp.path_patching import path_effects
from interp.paths import Input, Path, Receiver
from interp.places import Head, every_head, head
from interp.recordings import record
from interp.stimuli import ordinary_ids
from interp.trials import copy_task
from model.lab import Lab, open_run
from model.sites import Tap


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Clean and corrupted prompts of one run."""

    lab: Lab
    clean: Tensor
    corrupted: Tensor
    period: int
    induction: tuple[Head, ...]
    """Found on other sequences."""

    @classmethod
    def of(cls, lab: Lab, *, n: int, seed: int) -> Prompts:
        """`n` repeats at the period that decides for the run, each with another first copy."""
        task = copy_task(lab, n_sequences=n, seed=seed)
        clean = task.trial.measured
        other = redrawn_first_copy(clean, task.period, ordinary_ids(lab.tokenizer), seed=seed + 1)
        roles = find_head_roles(lab.gpt, task.discovery, period=task.period, rule=RoleRule(), seed=seed)
        return cls(lab=lab, clean=clean, corrupted=other, period=task.period, induction=roles.induction_heads)

    def divergence(self) -> Metric:
        """From the clean predictions of what the repeat determines."""
        chosen = functional.pad(copy_targets(self.clean, period=self.period), (0, 1))
        with torch.no_grad():
            return divergence(self.lab.gpt(self.clean), chosen)


def places(prompts: Prompts, metric: Metric, taps: Sequence[Tap], methods: Sequence[Method]) -> None:
    """Every head at each place, in both directions, by each method."""
    gpt = prompts.lab.gpt
    for direction in Direction:
        for tap in taps:
            grid, pair = patch_grid(gpt.config, tap), (prompts.clean, prompts.corrupted)
            true = activation_patching(gpt, *pair, grid, metric, direction=direction).effect[..., 0]
            largest = float(true.mean(0).abs().max())
            print(f"{direction.value} {tap.name}: the largest true effect is {largest:.3g}")
            for each in attribution_patching(gpt, *pair, metric, taps=[tap], direction=direction, methods=methods):
                print("   " + _compared(each, true))
                if tap in (Tap.Q, Tap.K) and gpt.config.kv_heads == gpt.config.n_heads:
                    print("      " + ", ".join(_of_head(place, each, true) for place in prompts.induction))


def _of_head(place: Head, each: Estimates, true: Float[Tensor, "sequence layer component"]) -> str:
    found, wanted = (float(effect.mean(0)[place]) for effect in (each.effect, true))
    return f"{head(*place).label} {found:.2f} of {wanted:.2f}"


def _compared(each: Estimates, true: Float[Tensor, "sequence layer component"]) -> str:
    wanted = true.abs() if each.method is Method.GRAD_DROP else true
    top = min(8, wanted[0].numel() // 3)
    found, rho = approximation(each.effect.mean(0), wanted.mean(0), top=top), bootstrap_spearman(each.effect, wanted)
    missed = " ".join(head(*divmod(cell, true.shape[2])).label for cell in found.missed)
    close = f"Spearman {rho:.2f}  Pearson {found.pearson:.2f}"
    return f"{each.method.value:10s} {close}  missed {len(found.missed)} of {top} {missed}"


def edges(prompts: Prompts, metric: Metric, steps: Sequence[int | None]) -> None:
    """Sizes of all edges between heads: estimated at the clean run, and on the way to it."""
    gpt, config = prompts.lab.gpt, prompts.lab.config
    source = record(gpt, prompts.corrupted, [Tap.Z.at(layer) for layer in range(config.n_layers)], source="corrupted")
    shape = (config.n_layers, config.n_heads, config.n_layers, config.n_heads)
    true = {each: torch.full(shape, math.nan, dtype=torch.float64) for each in Input}
    for layer in range(config.n_layers - 1):
        ends = [
            (each, place) for each in Input for place in every_head(config.n_layers, config.n_heads) if place[0] > layer
        ]
        paths = {
            f"{head(*place).label}.{each}": Path(receivers=(Receiver(layer=place[0], head=place[1], input=each),))
            for each, place in ends
        }
        senders = [(layer, index) for index in range(config.n_heads)]
        effect = path_effects(gpt, prompts.clean, senders, paths, metric, source=source).effect.mean(0)
        for number, (each, place) in enumerate(ends):
            true[each][layer, :, place[0], place[1]] = effect[:, number]
    there = torch.cat([true[each].flatten() for each in Input])
    for n_steps in steps:
        found = edge_attribution(gpt, prompts.clean, prompts.corrupted, metric, n_steps=n_steps).by_input
        guessed = torch.cat([found[each].flatten() for each in Input])
        kept = ~there.isnan()
        said = approximation(guessed[kept].abs(), there[kept].abs(), top=50)
        name = "EAP" if n_steps is None else f"EAP-IG, {n_steps} steps"
        print(
            f"{name:16s} Spearman {said.spearman:.3f}  Pearson {said.pearson:.3f}  missed {len(said.missed)} of 50  "
            f"({int(kept.sum())} edges, largest score {float(guessed[kept].abs().max()):.3g})"
        )


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--n", type=int, default=64, help="sequences")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--divergence", action="store_true")
    parser.add_argument("--edges", action="store_true")
    given = parser.parse_args()
    lab = open_run(given.run)
    prompts = Prompts.of(lab, n=given.n, seed=given.seed)
    if given.edges:
        edges(prompts, prompts.divergence(), (None, 5))
    elif given.divergence:
        places(prompts, prompts.divergence(), [Tap.Z], [Method.LINEAR, Method.INTEGRATED])
    else:
        places(prompts, copy_logit(prompts.clean, prompts.period), OF_HEADS, tuple(Method))


if __name__ == "__main__":
    main()
