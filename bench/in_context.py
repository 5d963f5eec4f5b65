"""What context earns, and how much of it the induction heads carry (Olsson et al. 2022; T12; docs/paths.md).

    python -m bench.in_context runs/four

The in-context-learning score is the loss late in a sequence minus that early in it: on repeated random tokens, on
held-out text whose first half comes again, and on held-out text. The induction heads, found on other sequences, are
replaced with later patterns held (pattern-preserving) and without, by means and by zeros; beside them sets of as many
heads in the same layers, and sets of as many other heads from anywhere.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from interp.ablation import Ablation, Frozen, ablation_of, mean_activations
from interp.controls import control_p, matched_head_sets
from interp.harm import measure_harms
from interp.head_roles import RoleRule, find_head_roles
from interp.outcomes import get_outcome
from interp.places import Head, every_head, head
from interp.stats import bootstrap_mean, bootstrap_ratios
from interp.supplies import Supplies
from interp.trials import copy_task, text_trial
from model.config import GPTConfig
from model.lab import Lab, open_run

Rows = Int[Tensor, "row pos"]
INTERVENTIONS = ("mean", "zero")


def again(rows: Rows) -> Rows:
    """Each row's first half twice, behind its first token."""
    half = (rows.shape[1] - 1) // 2
    return torch.cat([rows[:, :1], rows[:, 1 : 1 + half], rows[:, 1 : 1 + half]], dim=1)


def others(config: GPTConfig, kept: Sequence[Head], *, n: int, seed: int) -> list[tuple[Head, ...]]:
    """`n` different sets of as many heads, none of them among those."""
    free = [each for each in every_head(config.n_layers, config.n_heads) if each not in kept]
    chance, found = random.Random(seed), dict[tuple[Head, ...], None]()
    for _ in range(50 * n):
        if len(free) >= len(kept) and len(found) < n:
            found[tuple(sorted(chance.sample(free, len(kept))))] = None
    return list(found)


def lines(lab: Lab, heads: Sequence[Head], tokens: Rows, reference: Rows, *, n_sets: int, seed: int) -> Iterator[str]:
    """What ablating `heads` together does to the score, by intervention and with patterns held or not."""
    config, score = lab.config, get_outcome("icl_score", period=2)
    means = mean_activations(lab.gpt, reference, source="other rows")
    supplies = Supplies(source="other rows", means=means)
    matched = list(matched_head_sets(heads, config.n_layers, config.n_heads, limit=n_sets, seed=seed))
    free = others(config, heads, n=n_sets, seed=seed)

    def made(chosen: Sequence[Head], by: str, frozen: Frozen) -> Ablation:
        return ablation_of([head(*each) for each in chosen], config, by, frozen=frozen)

    for frozen in (Frozen.PATTERNS, Frozen.NOTHING):
        for by in INTERVENTIONS:
            beside = [*matched, *free] if frozen is Frozen.PATTERNS else []
            ablations = [made(each, by, frozen) for each in (heads, *beside)]
            found = measure_harms(lab.gpt, tokens, ablations, [score], supplies=supplies)
            harm = found.harm[:, :, 0]
            share = bootstrap_ratios(harm[:, :1], -found.clean[:, :1], seed=seed)[0]
            held = "later patterns held" if frozen is Frozen.PATTERNS else "all runs on"
            said = f"   {by}, {held}: up by {bootstrap_mean(harm[:, 0], seed=seed):.2f}, a share of {share:.2f}"
            for name, sets in (("matched", harm[:, 1 : 1 + len(matched)]), ("other", harm[:, 1 + len(matched) :])):
                if sets.shape[1]:
                    p = control_p(float(harm[:, 0].mean()), sets.mean(0))
                    said += f"; {sets.shape[1]} {name} sets at most {float(sets.mean(0).max()):.2f}, p = {p:.3g}"
            yield said


def main() -> None:
    """Print the score at the last step and at step 0, and what the induction heads are worth to it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--n", type=int, default=64, help="rows of held-out text, at most")
    parser.add_argument("--sets", type=int, default=24, help="sets of either kind, at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    lab = open_run(given.run)
    task = copy_task(lab, n_sequences=64, seed=given.seed)
    roles = find_head_roles(lab.gpt, task.discovery, period=task.period, rule=RoleRule(), seed=given.seed)
    heads, text = roles.induction_heads, text_trial(lab, n_sequences=given.n, seed=given.seed)
    print(f"{lab.name}@{lab.step}: induction heads {' '.join(head(*each).label for each in heads) or 'none'}")
    kinds = {
        "random tokens twice": (task.trial.measured, task.trial.reference),
        "text, its first half twice": (again(text.measured), again(text.reference)),
        "held-out text": (text.measured, text.reference),
    }
    for kind, (tokens, reference) in kinds.items():
        for step in (lab.step, 0):
            gpt = lab.gpt if step == lab.step else open_run(f"{given.run}@0").gpt
            clean = measure_harms(gpt, tokens, ["L0H0:zero"], [get_outcome("icl_score", period=2)]).clean[:, 0]
            print(f"{kind}, step {step}: score {bootstrap_mean(clean, seed=given.seed):.2f}, n = {len(tokens)}")
        for line in lines(lab, heads, tokens, reference, n_sets=given.sets, seed=given.seed) if heads else ():
            print(line, flush=True)


if __name__ == "__main__":
    main()
