"""One outcome's share of the study: importance, harms under every intervention, and curves, each on its own sequences.

Heads are ordered, and constants fitted, on reference sequences; everything that is compared is measured on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.head_importance_result import (
    IMPORTANCE,
    INTERVENTIONS,
    INVERSE,
    ORDERS,
    RECOMPUTED,
    TRUE,
    Config,
    Curve,
    Judged,
    Matched,
    Ranked,
    Ratio,
    Start,
)
from interp.approximation import bootstrap_size_spearman, bootstrap_spearman
from interp.harm import measure_harms
from interp.importance import head_importance
from interp.optimal import Optima, fit_optimal
from interp.outcomes import Outcome
from interp.places import Head, Intervention, every_head, head
from interp.pruning import Curves, matched_draws, pruning_curves, pruning_points, random_orders, recomputed_order
from interp.stats import Interval, bootstrap_mean, bootstrap_means
from interp.trials import Trial
from model.gpt import GPT
from model.lab import Lab

Told = Callable[[str], Callable[[int, int], None] | None]
"""What is counted, in words -> called as counted(done, total)."""

_HELD = (Intervention.ZERO, Intervention.MEAN, Intervention.RESAMPLE)
"""Interventions whose harms are held against the optimal one's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """One outcome on one trial, and how it is asked."""

    trial: Trial
    config: Config
    told: Told

    @property
    def outcome(self) -> Outcome:
        """The trial's first outcome."""
        return self.trial.outcomes[0]

    def judged(self, lab: Lab, first: Lab | None) -> Judged:
        """Everything about one outcome."""
        gpt, trial, config = lab.gpt, self.trial, self.config
        shape = (gpt.config.n_layers, gpt.config.n_heads)
        found = head_importance(gpt, trial.measured, self.outcome)
        optima = self._optima(gpt)
        clean, harm = self._harms(gpt, optima, shape)
        order = head_importance(gpt, trial.reference, self.outcome).order()
        curves, names = self._curves(gpt, order)
        return Judged(
            outcome=self.outcome.name,
            meaning=self.outcome.meaning,
            kind=trial.kind,
            n_reference=len(trial.reference),
            clean=float(clean.mean()),
            scale=trial.scales[0],
            importance=found.intervals(config.seed),
            ffns=found.ffn_intervals(config.seed),
            harm=bootstrap_means(harm, seed=config.seed),
            fitted=torch.stack([optima.zero, optima.mean, optima.optimal]).sub(optima.clean).unflatten(1, shape),
            slope_left=optima.slope_left.unflatten(0, shape),
            ranked=tuple(self._ranked(found.heads.abs(), harm)),
            ratios=tuple(self._ratio(harm, optima, of) for of in INTERVENTIONS[:-1]),
            n_removed=curves.n_removed,
            curves=tuple(_curve(curves, name, config.seed) for name in ORDERS),
            random=torch.stack([curves.harm[name].mean(0) for name in names]),
            random_areas=torch.stack([curves.areas(name).mean() for name in names]),
            lead_over_random=curves.lead(IMPORTANCE, names, config.seed),
            lead_over_inverse=curves.lead(IMPORTANCE, [INVERSE], config.seed),
            matched=self._matched(gpt, order[: max(1, round(len(order) / 5))]),
            at_step_zero=None if first is None else self.start(first.gpt),
        )

    def start(self, gpt: GPT) -> Start:
        """The little that is asked of the first checkpoint."""
        shape = (gpt.config.n_layers, gpt.config.n_heads)
        found = head_importance(gpt, self.trial.measured, self.outcome)
        zero = [f"{head(*each).label}:zero" for each in every_head(*shape)]
        harms = measure_harms(gpt, self.trial.measured, zero, [self.outcome])
        order = head_importance(gpt, self.trial.reference, self.outcome).order()
        curves = pruning_curves(gpt, self.trial.measured, self.outcome, {IMPORTANCE: order})
        harm = harms.harm[..., 0].unflatten(1, shape)
        return Start(
            clean=float(harms.clean.mean()),
            importance=found.size,
            zero=harm.mean(0),
            spearman=bootstrap_size_spearman(found.heads.abs(), harm, seed=self.config.seed),
            curve=_curve(curves, IMPORTANCE, self.config.seed),
        )

    def _optima(self, gpt: GPT) -> Optima:
        """The best constant of every head alone, from the reference sequences."""
        heads = [head(*each) for each in every_head(gpt.config.n_layers, gpt.config.n_heads)]
        return fit_optimal(
            gpt,
            self.trial.reference,
            heads,
            self.outcome,
            source=self.trial.source,
            fitting=replace(self.config.fitting, seed=self.config.seed),
            counted=self.told(f"fitting constants on {self.trial.kind}"),
        )

    def _harms(
        self, gpt: GPT, optima: Optima, shape: tuple[int, int]
    ) -> tuple[Float[Tensor, " sequence"], Float[Tensor, "sequence intervention layer head"]]:
        """Clean losses, and what every head alone costs under every intervention."""
        places = [(head(*each, how),) for how in INTERVENTIONS for each in every_head(*shape)]
        supplies = self.trial.supplies_of(gpt, [], seed=self.config.seed)
        means = self.trial.means_of(gpt, [place for (place,) in places])
        harms = measure_harms(
            gpt,
            self.trial.measured,
            places,
            [self.outcome],
            supplies=replace(supplies, means=means, optimal=optima),
            counted=self.told(f"every head alone on {self.trial.kind}"),
        )
        return harms.clean[:, 0], harms.harm[..., 0].unflatten(1, (len(INTERVENTIONS), *shape))

    def _curves(self, gpt: GPT, order: list[Head]) -> tuple[Curves, list[str]]:
        """The curves of all orders, `order` being that by importance, and the names of the random ones."""
        reference, config = self.trial.reference, self.config
        shape = (gpt.config.n_layers, gpt.config.n_heads)
        points = pruning_points(shape[0] * shape[1])
        drawn = random_orders(*shape, config.n_random, seed=config.seed)
        names = [f"random {number}" for number in range(len(drawn))]
        orders: dict[str, list[Head]] = {
            IMPORTANCE: order,
            RECOMPUTED: recomputed_order(gpt, reference, self.outcome, points=points),
            TRUE: self._true_order(gpt),
            INVERSE: order[::-1],
            **dict(zip(names, drawn, strict=True)),
        }
        told = self.told(f"heads removed in {len(orders)} orders on {self.trial.kind}")
        return pruning_curves(gpt, self.trial.measured, self.outcome, orders, points=points, counted=told), names

    def _true_order(self, gpt: GPT) -> list[Head]:
        """The heads by what zeroing each alone costs on the reference sequences."""
        heads = every_head(gpt.config.n_layers, gpt.config.n_heads)
        zero = [(head(*each, Intervention.ZERO),) for each in heads]
        harm = measure_harms(gpt, self.trial.reference, zero, [self.outcome]).harm[..., 0].mean(0).tolist()
        return [each for _, each in sorted(zip(harm, heads, strict=True))]

    def _matched(self, gpt: GPT, heads: list[Head]) -> Matched:
        config = self.config
        found = matched_draws(
            gpt,
            self.trial.measured,
            self.outcome,
            heads,
            limit=config.n_controls,
            seed=config.seed,
            counted=self.told(f"sets matched to the least important heads on {self.trial.kind}"),
        )
        labels = tuple(head(*each).label for each in found.heads)
        return Matched(heads=labels, harm=found.harm, others=found.others, n_possible=found.n_possible, p=found.p)

    def _ranked(
        self, importance: Float[Tensor, "sequence layer head"], harm: Float[Tensor, "sequence intervention layer head"]
    ) -> list[Ranked]:
        by = {how: harm[:, number] for number, how in enumerate(INTERVENTIONS)}
        seed = self.config.seed
        sizes = {
            f"size of {how}": bootstrap_size_spearman(importance, by[how], seed=seed)
            for how in (Intervention.ZERO, Intervention.OPTIMAL)
        }
        found = [Ranked(one="importance", other=name, spearman=rho) for name, rho in sizes.items()]
        optimal = by[Intervention.OPTIMAL]
        return found + [
            Ranked(one="optimal", other=how.value, spearman=bootstrap_spearman(optimal, by[how], seed=seed))
            for how in _HELD
        ]

    def _ratio(
        self, harm: Float[Tensor, "sequence intervention layer head"], optima: Optima, of: Intervention
    ) -> Ratio:
        other = harm[:, INTERVENTIONS.index(of)].flatten(1)
        optimal = harm[:, INTERVENTIONS.index(Intervention.OPTIMAL)].flatten(1)
        sure = bootstrap_means(other, seed=self.config.seed).low > 0
        there = {Intervention.ZERO: optima.zero, Intervention.MEAN: optima.mean}.get(of)
        fitted = float("nan")
        if there is not None and bool(sure.any()):
            fitted = float(((optima.optimal - optima.clean) / (there - optima.clean))[sure].quantile(0.5))
        return Ratio(
            of=of,
            median=median_ratio(optimal[:, sure], other[:, sure], seed=self.config.seed),
            fitted=fitted,
            n_heads=int(sure.sum()),
        )


def median_ratio(
    part: Float[Tensor, "n cell"], whole: Float[Tensor, "n cell"], *, seed: int = 0, n_resamples: int = 2000
) -> Interval:
    """The median over cells of mean part over mean whole, with a percentile interval over the first axis.

    NaN without any cell. All cells share the resamples. A ratio whose resampled whole is near zero is wild, but one
    wild ratio among many does not move a median.
    """
    n = len(part)
    if not part.shape[1]:
        nan = float("nan")
        return Interval(mean=nan, low=nan, high=nan, n=n, level=0.95, method="percentile")
    drawn = torch.randint(n, (n_resamples, n), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(n_resamples, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(drawn.shape).double())
    resampled = ((counts @ part.double()) / (counts @ whole.double())).quantile(0.5, dim=1)
    tail = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = resampled.quantile(tail).tolist()
    mean = float((part.mean(0) / whole.mean(0)).double().quantile(0.5))
    return Interval(mean=mean, low=min(low, mean), high=max(high, mean), n=n, level=0.95, method="percentile")


def _curve(curves: Curves, name: str, seed: int) -> Curve:
    return Curve(order=name, harm=curves.intervals(name, seed), area=bootstrap_mean(curves.areas(name), seed=seed))
