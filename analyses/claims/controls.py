"""The controls of claims: what else was tried, and whether the effect is more than that.

matched   ranks the places among other sets of the same shape; a path's sender among other heads of its layer
text      the whole interval must lie beyond the whole interval of the same ablation on text (other sequences, so
the two are not paired)
step0     effect minus that at step 0, paired by sequence: its whole interval must lie above zero
inputs    effect minus that by the larger of the other two inputs, paired by sequence
"""

from __future__ import annotations

import math
from dataclasses import replace

from analyses.claims.ablating import Ablating
from analyses.claims.bounds import Bound, Quantity
from analyses.claims.ground import Deltas, Ground, Values
from analyses.claims.paths import Feeding
from analyses.claims.statement import ControlKind
from analyses.claims.verdicts import Beside
from interp.controls import control_p
from interp.harm import Counted
from interp.matched_control import control_of
from interp.matched_places import MatchedPlaces
from interp.places import Intervention
from interp.stats import bootstrap_mean
from interp.wording import number, p_phrase, with_interval
from model.errors import InputError
from model.lab import Lab

Subject = Ablating | Feeding


def matched_for(subject: Ablating, alpha: float) -> MatchedPlaces:
    """As many matched sets as a p of alpha needs, or all there are; refused where they cannot reach it.

    Up to 99 where that is cheap; no more than needed where constants are fitted for each set.
    """
    needed, is_fitted = math.ceil(1 / alpha) - 1, bool(subject.ablation.takes(Intervention.OPTIMAL))
    matched = subject.matched(needed if is_fitted else max(99, needed))
    _require_sets(len(matched.sets), matched.note, alpha)
    return replace(matched, note=f"{matched.note}, each with constants of its own,") if is_fitted else matched


def require_senders(n_heads: int, alpha: float) -> None:
    """Refuse a layer with too few other heads to tell a path's sender from."""
    _require_sets(n_heads - 1, f"the sender's layer has {n_heads - 1} other heads", alpha)


def _require_sets(n: int, note: str, alpha: float) -> None:
    if 1 / (1 + n) > alpha:
        raise InputError(
            f'control="matched" cannot reach alpha={alpha:g}: {note}, and {n} allow no p below {1 / (1 + n):.3g}. '
            "Use another control, or another alpha."
        )


def direction(bound: Bound) -> int:
    """1 where more harm speaks for the claim, -1 where less does."""
    return -1 if bound.quantity == Quantity.GAIN or not bound.at_least else 1


def compare(
    subject: Subject,
    bound: Bound,
    deltas: Deltas,
    *,
    first: Lab | None,
    level: float,
    counted: Counted | None = None,
) -> Beside:
    """Try the control that the claim names, on the same sequences where they can be the same.

    After one of several looks `level` is that look's, so that the controls of all looks share alpha like the intervals.
    """
    stated = subject.stated
    harm = direction(bound) * deltas.harm
    match stated.control:
        case ControlKind.MATCHED:
            return _matched(subject, direction(bound), harm, counted)
        case ControlKind.TEXT:
            assert isinstance(subject, Ablating), "a path has no such control: its statement was checked"
            return _text(subject, direction(bound), harm, level)
        case ControlKind.STEP0:
            return _step0(subject, direction(bound), harm, level, first)
        case ControlKind.INPUTS:
            assert isinstance(subject, Feeding), "an ablation has no inputs: its statement was checked"
            return _inputs(subject, direction(bound), harm, level)
    return Beside(kind=ControlKind.NONE, beaten=None, said="no control was asked for")


def _matched(subject: Subject, sign: int, harm: Values, counted: Counted | None) -> Beside:
    """Among sets on all sequences: a number of them that the claimed set's own noise chose would flatter that set."""
    alpha, stop = subject.stated.alpha, subject.n_sequences
    if subject.stated.sequential:
        harm = sign * subject.deltas(0, stop).harm
    if isinstance(subject, Ablating):
        sets = matched_for(subject, alpha)
        note, others = sets.note, subject.others(sets, stop, counted)
        if subject.tried is not None:
            subject.tried(control_of(sets, others, own=float(sign * harm.mean()), n=stop))
    else:
        require_senders(subject.ground.lab.config.n_heads, alpha)
        others = subject.others(stop, counted)
        note = f"the {len(others)} other heads of its layer as the sender"
    p, smallest = control_p(float(harm.mean()), sign * others), 1 / (1 + len(others))
    unit = subject.outcome.unit
    on_all = f" on all {stop} sequences" if subject.stated.sequential else ""
    said = (
        f"{note} cost {number(float(others.quantile(0.5)))} {unit}{on_all} (median; {p_phrase(p, smallest)} among them)"
    )
    return Beside(kind=ControlKind.MATCHED, beaten=p <= alpha, said=said, p=p)


def _text(subject: Ablating, sign: int, harm: Values, level: float) -> Beside:
    found = subject.on_text()
    assert found is not None, "the metric has a counterpart on text: the claim was checked"
    outcome, there = found
    seed = subject.stated.seed
    here, beside = bootstrap_mean(harm, seed=seed, level=level), bootstrap_mean(sign * there, seed=seed, level=level)
    own = bootstrap_mean(there, seed=seed, level=level)
    said = f"the same costs {with_interval(own)} {outcome.unit} of {outcome.meaning} (n = {own.n})"
    return Beside(kind=ControlKind.TEXT, beaten=here.low > beside.high, said=said, interval=own)


def _step0(subject: Subject, sign: int, harm: Values, level: float, first: Lab | None) -> Beside:
    if first is None:
        return Beside(kind=ControlKind.STEP0, beaten=False, said="this is step 0, and is no control of itself")
    ground = subject.ground
    before = Ground(lab=first, n_sequences=ground.n_sequences, seed=ground.seed, period=ground.period)
    there = sign * subject.on(before).deltas(0, len(harm)).harm
    more = bootstrap_mean(harm - there, seed=subject.stated.seed, level=level)
    unit = subject.outcome.unit
    said = f"at step 0 it is {number(float(sign * there.mean()))} {unit}, the difference {with_interval(more)}"
    return Beside(kind=ControlKind.STEP0, beaten=more.low > 0, said=said, interval=more)


def _inputs(subject: Feeding, sign: int, harm: Values, level: float) -> Beside:
    found = subject.by_other_inputs(len(harm))
    largest = max(found, key=lambda name: float(sign * found[name].mean()))
    more = bootstrap_mean(harm - sign * found[largest], seed=subject.stated.seed, level=level)
    unit = subject.outcome.unit
    told = " and ".join(f"by {name} {number(float(values.mean()))}" for name, values in found.items())
    said = f"{told} {unit}, the difference from {largest} {with_interval(more)}"
    return Beside(kind=ControlKind.INPUTS, beaten=more.low > 0, said=said, interval=more)
