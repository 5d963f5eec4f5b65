"""One outcome's share of the study: importance, harms under every intervention, and curves, each on its own sequences.

Heads are ordered, and constants fitted, on reference sequences, and heads that have a ratio are chosen there;
everything that is compared is measured on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.importance.result import (
    IMPORTANCE,
    INTERVENTIONS,
    INVERSE,
    ORDERS,
    RECOMPUTED,
    TRUE,
    Config,
    Curve,
    Judged,
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
from interp.pruning import (
    Curves,
    MatchedDraws,
    matched_draws,
    pruning_curves,
    pruning_points,
    random_orders,
    recomputed_order,
)
from interp.stats import Interval, bootstrap_mean, bootstrap_means
from interp.supplies import Supplies
from interp.trials import Trial
from model.gpt import GPT
from model.lab import Lab

Told = Callable[[str], Callable[[int, int], None] | None]
"""What is counted, in words -> called as counted(done, total)."""

_HELD = (Intervention.ZERO, Intervention.MEAN, Intervention.RESAMPLE)
"""Interventions whose harms are held against the optimal one's."""

_CHOOSING = (Intervention.ZERO, Intervention.MEAN)
"""Interventions by which the heads that have a ratio are chosen, on reference sequences."""


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
        shape = _shape(gpt)
        found = head_importance(gpt, trial.measured, self.outcome)
        optima = self._optima(gpt)
        supplies = self._supplies(gpt, optima)
        clean, harm = self._harms(gpt, trial.measured, INTERVENTIONS, supplies)
        _, elsewhere = self._harms(gpt, trial.reference, _CHOOSING, replace(supplies, corrupted=None))
        order = head_importance(gpt, trial.reference, self.outcome).order()
        curves, names = self._curves(gpt, order, _cheapest_first(elsewhere[:, 0]))
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
            ratios=tuple(_held_against(of, harm, elsewhere, optima, seed=config.seed) for of in _HELD),
            n_removed=curves.n_removed,
            curves=tuple(_curve(curves, name, config.seed) for name in ORDERS),
            random=torch.stack([curves.harm[name].mean(0) for name in names]),
            random_areas=torch.stack([curves.areas(name).mean() for name in names]),
            beaten_share=curves.beaten_share(IMPORTANCE, names),
            lead_over_random=curves.lead(IMPORTANCE, names, config.seed),
            lead_over_inverse=curves.lead(IMPORTANCE, [INVERSE], config.seed),
            matched=self._matched(gpt, order[: max(1, round(len(order) / 5))]),
            at_step_zero=None if first is None else self.start(first.gpt),
        )

    def start(self, gpt: GPT) -> Start:
        """The little that is asked of the first checkpoint."""
        shape = _shape(gpt)
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

    def _supplies(self, gpt: GPT, optima: Optima) -> Supplies:
        """What stands in a head's place, under every intervention."""
        places = [head(*each, how) for how in INTERVENTIONS for each in every_head(*_shape(gpt))]
        supplies = self.trial.supplies_of(gpt, [], seed=self.config.seed)
        return replace(supplies, means=self.trial.means_of(gpt, places), optimal=optima)

    def _harms(
        self, gpt: GPT, tokens: Tensor, by: Sequence[Intervention], supplies: Supplies
    ) -> tuple[Float[Tensor, " sequence"], Float[Tensor, "sequence intervention layer head"]]:
        """Clean losses, and what every head alone costs under each intervention."""
        places = [(head(*each, how),) for how in by for each in every_head(*_shape(gpt))]
        which = "measured" if tokens is self.trial.measured else "reference"
        counted = self.told(f"every head alone on {which} sequences of {self.trial.kind}")
        harms = measure_harms(gpt, tokens, places, [self.outcome], supplies=supplies, counted=counted)
        return harms.clean[:, 0], harms.harm[..., 0].unflatten(1, (len(by), *_shape(gpt)))

    def _curves(self, gpt: GPT, order: list[Head], true: list[Head]) -> tuple[Curves, list[str]]:
        """The curves of all orders, of importance and of true harms among them, and the names of the random ones."""
        reference, config = self.trial.reference, self.config
        points = pruning_points(len(order))
        drawn = random_orders(*_shape(gpt), config.n_random, seed=config.seed)
        names = [f"random {number}" for number in range(len(drawn))]
        orders: dict[str, list[Head]] = {
            IMPORTANCE: order,
            RECOMPUTED: recomputed_order(gpt, reference, self.outcome, points=points),
            TRUE: true,
            INVERSE: order[::-1],
            **dict(zip(names, drawn, strict=True)),
        }
        told = self.told(f"heads removed in {len(orders)} orders on {self.trial.kind}")
        return pruning_curves(gpt, self.trial.measured, self.outcome, orders, points=points, counted=told), names

    def _matched(self, gpt: GPT, heads: list[Head]) -> MatchedDraws:
        config = self.config
        return matched_draws(
            gpt,
            self.trial.measured,
            self.outcome,
            heads,
            limit=config.n_controls,
            seed=config.seed,
            counted=self.told(f"sets matched to the least important heads on {self.trial.kind}"),
        )

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


def _held_against(
    of: Intervention,
    harm: Float[Tensor, "sequence intervention layer head"],
    elsewhere: Float[Tensor, "reference_sequence choosing layer head"],
    optima: Optima,
    *,
    seed: int = 0,
) -> Ratio:
    """Optimal harm as a share of another's, over heads chosen by `elsewhere`, their harm on reference sequences.

    A head chosen because its harm is large by luck on the very sequences measured would have too low a ratio.
    Resampling costs more than the mean, and takes eight times as long: heads are chosen by the mean for both.
    """
    chooses = _CHOOSING.index(of if of in _CHOOSING else Intervention.MEAN)
    sure = bootstrap_means(elsewhere[:, chooses].flatten(1), seed=seed).low > 0
    other = harm[:, INTERVENTIONS.index(of)].flatten(1)
    optimal = harm[:, INTERVENTIONS.index(Intervention.OPTIMAL)].flatten(1)
    there = {Intervention.ZERO: optima.zero, Intervention.MEAN: optima.mean}.get(of)
    fitted = float("nan")
    if there is not None and bool(sure.any()):
        fitted = float(((optima.optimal - optima.clean) / (there - optima.clean))[sure].quantile(0.5))
    median = median_ratio(optimal[:, sure], other[:, sure], seed=seed)
    return Ratio(of=of, median=median, fitted=fitted, n_heads=int(sure.sum()))


def median_ratio(
    part: Float[Tensor, "n cell"], whole: Float[Tensor, "n cell"], *, seed: int = 0, n_resamples: int = 2000
) -> Interval:
    """The median over cells of mean part over mean whole, with a percentile interval over the first axis.

    NaN without any cell. All cells share the resamples, and which cells there are is fixed: choose them on other
    sequences than these. A ratio whose resampled whole is near zero is wild, but one wild ratio among many does not
    move a median. The interval is the resampled medians' own: where the middle cells' ratios lie far apart, they can
    all lie to one side of the estimate, which is not pulled in.
    """
    n = len(part)
    if not part.shape[1]:
        nan = float("nan")
        return Interval(mean=nan, low=nan, high=nan, n=n, level=0.95, method="percentile")
    drawn = torch.randint(n, (n_resamples, n), generator=torch.Generator().manual_seed(seed))
    counts = torch.zeros(n_resamples, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(drawn.shape).double())
    resampled = ((counts @ part.double()) / (counts @ whole.double())).quantile(0.5, dim=1)
    low, high = resampled.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    mean = float((part.mean(0) / whole.mean(0)).double().quantile(0.5))
    return Interval(mean=mean, low=low, high=high, n=n, level=0.95, method="percentile")


def _shape(gpt: GPT) -> tuple[int, int]:
    return gpt.config.n_layers, gpt.config.n_heads


def _cheapest_first(harm: Float[Tensor, "sequence layer head"]) -> list[Head]:
    """The heads by what each alone costs."""
    mean = harm.mean(0)
    return sorted(every_head(*mean.shape), key=lambda each: float(mean[each]))


def _curve(curves: Curves, name: str, seed: int) -> Curve:
    return Curve(order=name, harm=curves.intervals(name, seed), area=bootstrap_mean(curves.areas(name), seed=seed))
