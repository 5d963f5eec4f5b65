"""What the literature says of these models, each as a bar, and whether a measured model clears it.

Bars are those set before anything was trained here; sources stand in docs/induction.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.induction_runs import Found, Kind

ZERO, MEAN = "zero", "mean"
LEAST_K = "K-composition, the least of the induction heads, sd above the null"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One claim about one kind of model."""

    name: str
    kind: Kind
    claim: str
    bar: str
    """In words, as the table prints it."""
    value: Callable[[Found], float]
    clears: Callable[[Found, float], bool]

    def row(self, found: Sequence[Found]) -> Row:
        """What was measured of this kind, seed by seed."""
        mine = [each for each in found if each.kind is self.kind]
        values = tuple(self.value(each) for each in mine)
        met = tuple(self.clears(each, value) for each, value in zip(mine, values, strict=True))
        return Row(target=self, seeds=tuple(each.seed for each in mine), values=values, met=met)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A target with its measurements."""

    target: Target
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    met: tuple[bool, ...]

    @property
    def verdict(self) -> str:
        """How many seeds clear the bar."""
        return f"{sum(self.met)} of {len(self.met)}"


def _below(bar: float) -> Callable[[Found, float], bool]:
    return lambda found, value: value < bar


def _at_least(bar: float) -> Callable[[Found, float], bool]:
    return lambda found, value: value >= bar


def _others_of_layer_0(found: Found) -> float:
    """The largest harm of any layer-0 head but the previous-token head, by either intervention, in nats."""
    circuit, sender = found.the_circuit, found.attention.top_previous[1]
    harms = [
        loss - circuit.clean
        for losses in circuit.alone.values()
        for label, loss in losses.items()
        if label.startswith("L0") and label != f"L0H{sender}"
    ]
    return max(harms)


def _without_previous(intervention: str) -> Callable[[Found], float]:
    return lambda found: found.the_circuit.alone[intervention][f"L0H{found.attention.top_previous[1]}"]


def _share(path: str) -> Callable[[Found], float]:
    return lambda found: found.the_circuit.shares[path].mean


def _of_ln_vocabulary(share: float) -> Callable[[Found, float], bool]:
    return lambda found, value: value > share * found.ln_vocabulary


def _target(
    name: str,
    kind: Kind,
    claim: str,
    bar: str,
    value: Callable[[Found], float],
    clears: Callable[[Found, float], bool],
) -> Target:
    return Target(name=name, kind=kind, claim=claim, bar=bar, value=value, clears=clears)


TARGETS: tuple[Target, ...] = (
    _target("T8", Kind.TWO, "copy loss, nats", "< 0.3", lambda f: f.copying.loss, _below(0.3)),
    _target(
        *("T8", Kind.TWO, "most attention to the token before, layer 0", ">= 0.8"),
        lambda f: f.attention.previous[0].max().item(),
        _at_least(0.8),
    ),
    _target(
        *("T8", Kind.TWO, "largest induction stripe, layer 1", ">= 0.7"),
        lambda f: f.attention.induction[1].max().item(),
        _at_least(0.7),
    ),
    _target(
        *("T8", Kind.ONE, "copy loss minus ln(period), worst period, nats", ">= -0.5"),
        lambda f: min(loss - math.log(period) for period, loss in f.copying.distinct.items()),
        _at_least(-0.5),
    ),
    _target(
        *("T8", Kind.ONE, "largest induction stripe", "< 0.2"),
        lambda f: f.attention.induction.max().item(),
        _below(0.2),
    ),
    _target(
        *("T9", Kind.DISTANCE, "copy loss at the trained period, nats", "< 0.3"),
        lambda f: f.copy_loss_at_trained_period,
        _below(0.3),
    ),
    _target(
        *("T9", Kind.DISTANCE, "copy loss at unseen periods, nats", "> ln V = 4.14"),
        lambda f: min(f.copying.distinct.values()),
        _of_ln_vocabulary(1.0),
    ),
    _target(
        *("T9", Kind.DISTANCE, "largest induction stripe at unseen periods", "< 0.2"),
        lambda f: f.attention.induction.max().item(),
        _below(0.2),
    ),
    _target(
        *("T10", Kind.TWO, "copy loss without the previous-token head (zero), nats", "> 0.9 ln V = 3.73"),
        _without_previous(ZERO),
        _of_ln_vocabulary(0.9),
    ),
    _target(
        *("T10", Kind.TWO, "the same (mean), nats", "> 0.9 ln V = 3.73"),
        _without_previous(MEAN),
        _of_ln_vocabulary(0.9),
    ),
    _target(
        *("T10", Kind.TWO, "largest harm of any other layer-0 head, nats", "< 0.3"), _others_of_layer_0, _below(0.3)
    ),
    _target(
        *("T10", Kind.TWO, "copy loss without the set of induction heads (zero), nats", "> 0.6 ln V = 2.49"),
        lambda f: f.the_circuit.without_set[ZERO],
        _of_ln_vocabulary(0.6),
    ),
    _target(
        *("T10", Kind.TWO, "the same (mean), nats", "> 0.6 ln V = 2.49"),
        lambda f: f.the_circuit.without_set[MEAN],
        _of_ln_vocabulary(0.6),
    ),
    _target("T10", Kind.TWO, "share of the path previous -> K", ">= 80%", _share("K"), _at_least(0.8)),
    _target("T10", Kind.TWO, "share of the path previous -> Q", "<= 20%", _share("Q"), _below(0.2)),
    _target("T10", Kind.TWO, "share of the path previous -> V", "<= 20%", _share("V"), _below(0.2)),
    _target(
        *("T10", Kind.TWO, "K-composition, the most of the induction heads, sd above the null", "> 10"),
        lambda f: max(z for _, z in f.the_circuit.k_composition.values()),
        _at_least(10.0),
    ),
    _target(
        *("T10", Kind.TWO, LEAST_K, "> 10"),
        lambda f: min(z for _, z in f.the_circuit.k_composition.values()),
        _at_least(10.0),
    ),
    _target(
        *("T10", Kind.TWO, "eigenvalue copying score, the least of the induction heads", ">= 0.8"),
        lambda f: min(f.the_circuit.copying.values()),
        _at_least(0.8),
    ),
    _target(
        *("T11", Kind.TWO, "share of the fall of copy loss within 20% of the steps", ">= 60%"),
        lambda f: f.change.share,
        _at_least(0.6),
    ),
    _target(
        *("T11", Kind.TWO, "both scores cross half of their maximum there", "yes"),
        lambda f: float(f.change.scores_cross_inside),
        _at_least(1.0),
    ),
    _target(
        *("T11", Kind.SMEARED, "copy loss, one layer with smeared keys, nats", "< 0.3"),
        lambda f: f.copying.loss,
        _below(0.3),
    ),
    _target(
        *("T11", Kind.SMEARED, "largest induction stripe, one layer with smeared keys", ">= 0.7"),
        lambda f: f.attention.induction.max().item(),
        _at_least(0.7),
    ),
)
"""T8 to T11."""
