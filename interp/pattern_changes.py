"""Where later heads look once something earlier is gone: how much of each head's attention an ablation moves.

Of a head whose pattern is A in the intact run and A' in the ablated one, each query has moved

    moved = sum over keys of |A' - A| / 2        the total variation distance: 0 nothing, 1 all of its attention

and a head's number is the mean over queries. A head of a layer up to the first ablated one cannot change, and a head
whose inputs do not hold what was taken out does not: so a previous-token head's removal moves the induction heads that
read it by their keys (K-composition, Elhage et al. 2021) and nothing else. Where donors are drawn, numbers are means
over the draws.

What it does not show: that the moved attention matters for any outcome (hold the patterns and compare the harms for
that, `Frozen.PATTERNS`), nor by which of Q and K it moved. Cost: one pass for the intact run and one for each draw, on
the explicit attention path both times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation import Ablation, ablated, ablation_of
from interp.harm import Counted
from interp.optimal import require_whole
from interp.places import Head, Intervention, Places
from interp.requirements import require_deterministic
from interp.stats import Interval, bootstrap_mean
from interp.supplies import Supplies
from interp.token_effects import text_supplies
from interp.trials import Bench
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.lab import Lab

Patterns = Float[Tensor, "layer head query key"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PatternChanges:
    """Every head's pattern on one text, intact and ablated."""

    ablation: Ablation
    intact: Patterns
    ablated: Patterns
    """On average over the donors, where it resamples."""
    moved: Float[Tensor, "layer head"]
    """Share of each head's attention that lies elsewhere, mean over queries."""
    source: str | None
    """What replacements come from, in words; None where they need no other sequences."""

    @property
    def ranked(self) -> tuple[Head, ...]:
        """The heads of later layers, the most moved first; ties by layer and index."""
        return _ranked(self.moved, self.ablation.first_layer)


@dataclass(frozen=True, kw_only=True, eq=False)
class PatternMoves:
    """The same on many sequences: without patterns, with intervals."""

    ablation: Ablation
    heads: tuple[Head, ...]
    """Heads of later layers, the most moved first."""
    moved: tuple[Interval, ...]
    """Of each of them, over sequences."""
    kind: str
    """What the sequences are, in words."""


@torch.no_grad()
def pattern_changes(
    lab: Lab,
    tokens: Int[Tensor, "1 pos"],
    places: Places | Ablation,
    *,
    intervention: Intervention | str = Intervention.MEAN,
    n_reference: int = 64,
) -> PatternChanges:
    """Every head's pattern on a text of one's own, intact and with `places` ablated as `token_effects` does it.

    Raises:
        InputError: an ablation that a text of one's own cannot take, such as by its counterfactual.
    """
    require_deterministic(lab.gpt)
    ablation = ablation_of(places, lab.config, intervention)
    require_whole([ablation])
    tokens = tokens.to(lab.gpt.device)
    supplies = text_supplies(lab, tokens, ablation, n_reference)
    intact = _patterns(lab.gpt, tokens)
    changed = [_under(lab.gpt, tokens, ablation, supplies, draw) for draw in range(ablation.draws(supplies))]
    moved = torch.stack([_moved(intact, each)[0] for each in changed]).mean(0)
    return PatternChanges(
        ablation=ablation,
        intact=intact[0],
        ablated=torch.stack(changed).mean(0)[0],
        moved=moved,
        source=supplies.source or None,
    )


@torch.no_grad()
def pattern_moves(
    bench: Bench, places: Places | Ablation, *, metric: str, seed: int = 0, counted: Counted | None = None
) -> PatternMoves:
    """How much of later heads' attention moves on the sequences that measure `metric`, with intervals over them.

    Raises:
        InputError: an ablation that these sequences cannot take, or with patterns held, which cannot change then.
    """
    ablation = ablation_of(places, bench.gpt.config)
    trial, _ = bench.trial_of(metric)
    why = trial.why_not(ablation)
    if why is not None:
        raise InputError(f"{metric} has no sequences to look at with {ablation} ablated. {why}")
    if ablation.held_patterns(bench.gpt.config):
        raise InputError(f"with {ablation} patterns are held as they were, so none can change; let them follow.")
    supplies, found = bench.supplies_for(trial, [ablation]), []
    starts = range(0, len(trial.measured), _TOGETHER)
    for start in starts:
        part = trial.rows(start, min(start + _TOGETHER, len(trial.measured)))
        given = replace(supplies, corrupted=part.corrupted, seed=supplies.seed + start)
        rows = part.measured.to(bench.gpt.device)
        intact = _patterns(bench.gpt, rows)
        draws = range(ablation.draws(given))
        found.append(
            torch.stack([_moved(intact, _under(bench.gpt, rows, ablation, given, draw)) for draw in draws]).mean(0)
        )
        if counted is not None:
            counted(start // _TOGETHER + 1, len(starts))
    moved = torch.cat(found).double()
    heads = _ranked(moved.mean(0), ablation.first_layer)
    return PatternMoves(
        ablation=ablation,
        heads=heads,
        moved=tuple(bootstrap_mean(moved[:, layer, index], seed=seed) for layer, index in heads),
        kind=trial.kind,
    )


def _patterns(gpt: GPT, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch layer head query key"]:
    names = [str(Tap.PATTERN.at(layer)) for layer in range(gpt.config.n_layers)]
    _, cache = gpt.run_with_cache(tokens, names_filter=names, return_type=None)
    return torch.stack([cache[name].float().cpu() for name in names], dim=1)


def _under(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], ablation: Ablation, supplies: Supplies, draw: int
) -> Float[Tensor, "batch layer head query key"]:
    with ablated(gpt, ablation, supplies=supplies, tokens=tokens, draw=draw):
        return _patterns(gpt, tokens)


def _moved(
    intact: Float[Tensor, "batch layer head query key"], changed: Float[Tensor, "batch layer head query key"]
) -> Float[Tensor, "batch layer head"]:
    return (changed - intact).abs().sum(-1).mean(-1) / 2


def _ranked(moved: Float[Tensor, "layer head"], first: int) -> tuple[Head, ...]:
    later: Sequence[Head] = [
        (layer, index) for layer in range(first + 1, len(moved)) for index in range(moved.shape[1])
    ]
    return tuple(sorted(later, key=lambda each: -float(moved[each])))


_TOGETHER = 16
"""Sequences at a time: every head's pattern of each is held."""
