"""The effect of one ablation: what it costs, how sure that is, and what other sets of the same shape cost.

A number about a set of heads means little by itself, since removing any heads costs something. So it stands beside
three others: the same intervention on sets with as many components in each layer, the ablation's effect on held-out
text, and its effect where that text holds nothing to copy.

    effect = ablate(lab, "L1H1,L1H3:mean", metric="copy_loss")
    effect.harm            0.61 [0.55, 0.66] nats, n = 64
    effect.control.p       0.018, of at best 0.018 with 55 sets
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.controls import control_p
from interp.harm import Counted, Harms
from interp.matched_places import matched_places
from interp.outcomes import get_outcome, share_of_scale
from interp.places import Intervention, Place, Places, parse_intervention, print_places, resolve_places
from interp.stats import Interval, bootstrap_mean, sign_flip_p
from interp.trials import Bench, Trial, copy_task, text_trial
from model.lab import Lab

CONTROL_LEVEL = 0.05
"""The p at which a set stands out from its matched sets."""


@dataclass(frozen=True, kw_only=True)
class OutcomeEffect:
    """What an ablation does to one outcome."""

    name: str
    """The outcome, as in --metric."""

    meaning: str
    """The outcome in words."""

    clean: float
    """Mean loss of the intact model, in nats."""

    harm: Interval
    """Ablated minus clean loss, in nats, paired by sequence; negative means that the places hurt."""

    p: float
    """Two-sided sign-flip p that the harm is zero."""

    scale: float
    """Loss of a model that knows token frequencies only, in nats."""

    @property
    def ablated(self) -> float:
        """Mean loss of the ablated model, in nats."""
        return self.clean + self.harm.mean

    @property
    def share(self) -> float | None:
        """The harm as a share of (scale - clean); None where the intact model is no better than the scale."""
        return share_of_scale(self.harm.mean, self.clean, self.scale)


@dataclass(frozen=True, kw_only=True)
class Control:
    """The same intervention on other sets with as many components of the same kind in every layer."""

    harm: Float[Tensor, " set"]
    """Mean harm of each set, in nats; empty where no such set exists."""

    shared: Int[Tensor, " set"]
    """How many components each set shares with the one that was ablated."""

    n_possible: int
    """How many such sets exist."""

    p: float | None
    """Share of sets that cost at least as much, the ablated one counted among them; None without sets."""

    note: str
    """What the sets are, or why there are none, in words."""

    @property
    def smallest_p(self) -> float | None:
        """The smallest p that these sets can give."""
        return 1 / (1 + len(self.harm)) if len(self.harm) else None

    @property
    def median(self) -> float | None:
        """The median harm of the sets, in nats."""
        return float(self.harm.quantile(0.5)) if len(self.harm) else None

    @property
    def largest(self) -> float | None:
        """The harm of the costliest set, in nats."""
        return float(self.harm.max()) if len(self.harm) else None

    @property
    def is_beaten(self) -> bool | None:
        """Whether the ablated set stands out at `CONTROL_LEVEL`; None where so few sets cannot decide that.

        With 18 sets or fewer even the costliest of all has p > 0.05: `smallest_p` says what they allow.
        """
        if self.p is None or self.smallest_p is None or self.smallest_p > CONTROL_LEVEL:
            return None
        return self.p <= CONTROL_LEVEL

    @property
    def is_exceeded(self) -> bool | None:
        """Whether the ablated set costs more than every one of the sets, be they many or few; None without sets."""
        return None if self.p is None else self.p == self.smallest_p


@dataclass(frozen=True, kw_only=True)
class AblationEffect:
    """What ablating some places together costs on every outcome, with a control on one of them."""

    checkpoint: str
    """Which model, as RUN@STEP."""

    places: str
    """What was put where, in the grammar of places."""

    metric: str
    """The outcome that the control is about."""

    outcomes: tuple[OutcomeEffect, ...]
    """The effect on every outcome."""

    control: Control

    means: tuple[str, ...]
    """Where the means come from, in words; empty where nothing was replaced by a mean."""

    seed: int
    """Draws the resamples and the control sets."""

    def on(self, name: str) -> OutcomeEffect:
        """The effect on the outcome called `name`."""
        return next(outcome for outcome in self.outcomes if outcome.name == name)

    @property
    def effect(self) -> OutcomeEffect:
        """The effect on the metric."""
        return self.on(self.metric)

    @property
    def harm(self) -> Interval:
        """Ablated minus clean loss on the metric, in nats."""
        return self.effect.harm

    @property
    def text(self) -> OutcomeEffect:
        """The effect on held-out text (on held-out repeats, where the run has no text: see `meaning`)."""
        return self.on("text_loss")

    @property
    def new_token(self) -> OutcomeEffect:
        """The same where there is nothing to copy."""
        return self.on("new_token_loss")


def ablate(
    lab: Lab,
    places: Places,
    *,
    metric: str = "copy_loss",
    intervention: Intervention | str = Intervention.MEAN,
    n_sequences: int = 64,
    seed: int = 0,
    period: int | None = None,
    n_controls: int = 100,
    counted: Counted | None = None,
) -> AblationEffect:
    """Ablate `places` together and measure the effect, as `cutaway ablate` does.

    Args:
        lab: an opened checkpoint.
        places: in the grammar of `interp.places`, such as "L1H1,L1H3:mean".
        metric: the outcome that is held against matched sets; all outcomes are measured.
        intervention: for places that state none.
        n_sequences: at most so many sequences of each kind; there may be less held-out text.
        seed: draws the sequences, the resamples and the control sets.
        period: of the repeated tokens; by default the one that decides for the run (`interp.periods`).
        n_controls: at most so many matched sets; 0 for none.
        counted: called as counted(done, total) while the matched sets are ablated.
    """
    resolved = resolve_places(places, lab.config, parse_intervention(intervention))
    task = copy_task(lab, n_sequences=n_sequences, seed=seed, period=period)
    get_outcome(metric, period=task.period)  # refuses an unknown one before any work
    trials = (task.trial, text_trial(lab, n_sequences=n_sequences, seed=seed))
    bench = Bench.of(lab, trials, resolved)
    return effect_of(bench, resolved, metric=metric, seed=seed, n_controls=n_controls, counted=counted)


def effect_of(
    bench: Bench,
    places: Sequence[Place],
    *,
    metric: str,
    seed: int,
    n_controls: int,
    counted: Counted | None = None,
) -> AblationEffect:
    """The effect of ablating resolved `places` together on every outcome of the bench, with its control on `metric`."""
    found = [effects_on(trial, bench.harms(trial, [places]), 0, seed=seed) for trial in bench.trials]
    outcomes = tuple(outcome for each in found for outcome in each)
    observed = next(outcome.harm.mean for outcome in outcomes if outcome.name == metric)
    return AblationEffect(
        checkpoint=bench.checkpoint,
        places=print_places(places),
        metric=metric,
        outcomes=outcomes,
        control=_control(bench, places, metric, observed, seed=seed, limit=n_controls, counted=counted),
        means=tuple(means.source for means in bench.means if means is not None),
        seed=seed,
    )


def effects_on(trial: Trial, harms: Harms, column: int, *, seed: int) -> tuple[OutcomeEffect, ...]:
    """The effect of ablation number `column` on every outcome of the trial."""
    harm = harms.harm[:, column]
    return tuple(
        OutcomeEffect(
            name=outcome.name,
            meaning=outcome.meaning,
            clean=float(harms.clean[:, row].mean()),
            harm=bootstrap_mean(harm[:, row], seed=seed),
            p=sign_flip_p(harm[:, row], seed=seed),
            scale=trial.scales[row],
        )
        for row, outcome in enumerate(trial.outcomes)
    )


def _control(
    bench: Bench,
    places: Sequence[Place],
    metric: str,
    observed: float,
    *,
    seed: int,
    limit: int,
    counted: Counted | None,
) -> Control:
    """Ablate matched sets and hold the observed harm against theirs."""
    matched = matched_places(places, bench.gpt.config, limit=limit, seed=seed)
    harm = torch.empty(0, dtype=torch.float64)
    if matched.sets:
        trial, row = bench.trial_of(metric)
        harm = bench.harms(trial, matched.sets, counted, outcomes=[trial.outcomes[row]]).harm[:, :, 0].mean(0)
    return Control(
        harm=harm,
        shared=torch.tensor(matched.shared, dtype=torch.int64),
        n_possible=matched.n_possible,
        p=control_p(observed, harm) if matched.sets else None,
        note=matched.note,
    )
