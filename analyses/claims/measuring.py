"""From a claim to its numbers at one checkpoint: who is meant, what that does, and what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from analyses.claims.ablating import Ablating
from analyses.claims.bounds import WHOLE_FLOOR, Bound, Judged, Standing, contrast, estimate, judged, judged_by
from analyses.claims.controls import Subject, compare, matched_for, require_senders
from analyses.claims.files import Claim
from analyses.claims.ground import Deltas, Ground
from analyses.claims.paths import Feeding
from analyses.claims.statement import ControlKind, Selection, parse_selection
from analyses.claims.verdicts import Measured
from interp.harm import Counted
from interp.places import Head
from interp.resolved_places import named_heads
from interp.sequential import decide
from interp.stats import bootstrap_mean
from interp.wording import with_interval
from model.errors import InputError
from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """Why there is nothing to measure of a claim at this checkpoint."""

    reason: str


def subject_of(claim: Claim, ground: Ground) -> Subject | Unfit:
    """Who the claim is about here, after discovery and before anything is ablated.

    Raises:
        InputError: the heads that were found have too few matched sets for the claim's alpha, or stand where nothing
            that they write at the claim's positions is read.
    """
    stated = claim.stated
    with claim.named():
        found = _feeding(claim, ground) if stated.is_path else _ablating(claim, ground)
        if isinstance(found, Ablating) and stated.control == ControlKind.MATCHED:
            matched_for(found, stated.alpha)
        if isinstance(found, Feeding) and stated.control == ControlKind.MATCHED:
            require_senders(ground.lab.config.n_heads, stated.alpha)
    return found


def _ablating(claim: Claim, ground: Ground) -> Ablating | Unfit:
    selection = parse_selection(claim.stated.ablate or "")
    places = ground.places(claim.stated, selection)
    if not places:
        return Unfit(reason=_nobody(selection, ground))
    made = Ablating.of(claim.stated, ground, places)
    if (refusal := made.why_not()) is not None:
        raise InputError(refusal)
    return made


def _feeding(claim: Claim, ground: Ground) -> Feeding | Unfit:
    sender, receivers = parse_selection(claim.stated.sender or ""), parse_selection(claim.stated.receivers or "")
    senders, readers = _heads(sender, ground), _heads(receivers, ground)
    for selection, heads in ((sender, senders), (receivers, readers)):
        if not heads:
            return Unfit(reason=_nobody(selection, ground))
    later = tuple(each for each in readers if each[0] > senders[0][0])
    if not later:
        return Unfit(reason=f"no receiver ({receivers.text}) is in a later layer than the sender ({sender.text})")
    return Feeding(stated=claim.stated, ground=ground, sender=senders[0], receivers=later)


def _heads(selection: Selection, ground: Ground) -> tuple[Head, ...]:
    if selection.rule is None:
        return tuple(named_heads(ground.lab.config, selection.text))
    return ground.heads(selection)


def _nobody(selection: Selection, ground: Ground) -> str:
    """Which rule nobody passed, and how near the best came."""
    rule = selection.rule
    assert rule is not None, "places by name are always there: the claim was checked"
    best = rule.best(ground.roles)
    near = "" if best is None else f"; the highest {rule.first_score} score is {best:.2f}"
    return f"no head passes `{rule}` on the discovery sequences{near}"


def measured(subject: Subject, bound: Bound, *, first: Lab | None, counted: Counted | None = None) -> Measured:
    """Measure, hold it against the bound, and try the control on the same sequences.

    `first` is the run's step 0, where that is the control.
    """
    stated = subject.stated
    deltas, found, looks = _in_looks(subject, bound) if stated.sequential else _at_once(subject, bound)
    obstacle = _obstacle(bound, deltas, subject, found.interval.level)
    if not _changed(deltas, subject):
        obstacle = obstacle or _NOTHING
        found = replace(found, standing=Standing.UNDECIDED)
    return Measured(
        subject=str(subject),
        meaning=subject.outcome.meaning,
        unit=subject.outcome.unit,
        whole=subject.whole,
        clean=float(deltas.clean.mean()),
        harm=bootstrap_mean(deltas.harm, seed=stated.seed, level=found.interval.level),
        judged=found,
        alpha=stated.alpha,
        n=len(deltas.harm),
        looks=looks,
        obstacle=obstacle,
        beside=compare(subject, bound, deltas, first=first, level=found.interval.level, counted=counted),
    )


def _at_once(subject: Subject, bound: Bound) -> tuple[Deltas, Judged, int]:
    deltas = subject.deltas(0, subject.n_sequences)
    stated = subject.stated
    return deltas, judged(bound, deltas.harm, deltas.whole, alpha=stated.alpha, seed=stated.seed), 1


def _in_looks(subject: Subject, bound: Bound) -> tuple[Deltas, Judged, int]:
    """Until the side of the bound is known; what is reported is what that look says, at the level it had."""
    parts: list[Deltas] = []
    stated = subject.stated

    def measure(start: int, stop: int) -> Tensor:
        parts.append(subject.deltas(start, stop))
        return contrast(bound, parts[-1].harm, parts[-1].whole)[0]

    _, ends = contrast(bound, torch.zeros(1), torch.zeros(1))
    decision = decide(measure, ends, most=subject.n_sequences, alpha=stated.alpha, seed=stated.seed)
    deltas, last = _joined(parts), decision.last
    interval = last.interval
    if bound.is_share:
        interval = estimate(bound, deltas.harm, deltas.whole, level=1 - last.spent, seed=stated.seed)
    ps = [min(1.0, p * stated.alpha / last.spent) for p in last.p]
    return deltas, judged_by(bound, interval, sides=decision.sides, ps=ps), len(decision.looks)


def _changed(deltas: Deltas, subject: Subject) -> bool:
    """Whether what was replaced changed any sequence by more than a sum in another order would.

    Of a path it is enough that the sender did, by whatever way: then its path was tried, and may carry exactly nothing.
    """
    felt = deltas.whole if isinstance(subject, Feeding) and deltas.whole is not None else deltas.harm
    return bool((felt.abs() > _ROUNDING * deltas.clean.abs().clamp(min=1)).any())


def _obstacle(bound: Bound, deltas: Deltas, subject: Subject, level: float) -> str:
    """Why support is impossible: a share of something that may be nothing, or nothing there that could be lost."""
    stake = deltas.whole if bound.is_share else deltas.at_stake if bound.is_absence else None
    if stake is None:
        return ""
    whole = bootstrap_mean(stake, seed=subject.stated.seed, level=level)
    said = f"{subject.whole if bound.is_share else subject.stake} is {with_interval(whole)} {subject.outcome.unit}"
    if bound.is_share:
        return "" if whole.low > WHOLE_FLOOR else f"{said}, too little to be shared"
    return "" if whole.low > bound.value else f"{said}, so that little more than {bound.value:g} could be lost"


def _joined(parts: list[Deltas]) -> Deltas:
    wholes = [part.whole for part in parts if part.whole is not None]
    return Deltas(
        harm=torch.cat([part.harm for part in parts]),
        clean=torch.cat([part.clean for part in parts]),
        whole=torch.cat(wholes) if wholes else None,
        at_stake=torch.cat([part.at_stake for part in parts]),
    )


_NOTHING = "the ablation changed nothing: no sequence by more than rounding, as if nothing had been tried"

_ROUNDING = 1e-6
"""Of the clean outcome, or of 1 where that is less: what fp32 makes of the same number computed twice."""
