"""Verdicts on claims: from the interval against the bound, the p against the bound, and the control.

    supported    the whole interval satisfies the bound, the sign-flip p tells the mean from it after Holm's correction
                 over the claims tested together, and the control, where there is one, is beaten
    refuted      the whole interval fails the bound, and the p tells so
    undecided    anything else; it says why

A control that is not beaten makes support impossible and refutes nothing: the effect is then there, and is not these
places' own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from analyses.claims.bounds import Bound, Judged, Standing
from analyses.claims.statement import ControlKind, Stated
from interp.stats import Interval, holm
from model.settings import as_enum


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What stands beside an effect, and whether the effect is more than that."""

    kind: ControlKind

    beaten: bool | None
    """None where there is no control."""

    said: str
    """What it is and what came of it, in words."""

    interval: Interval | None = None
    """Of the control's own effect, or of the effect minus the control's where both are paired; see `said`."""

    p: float | None = None
    """Of a matched control: the share of sets at least as extreme, this one counted among them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_enum(ControlKind, self.kind, "kind"))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a claim at one checkpoint."""

    subject: str
    """What was ablated, or which path was patched."""

    meaning: str
    """The outcome in words."""

    unit: str
    """Of the outcome."""

    whole: str
    """What a share is one of, in words."""

    clean: float
    """The intact model's outcome."""

    harm: Interval
    """In the outcome's unit; worse is positive."""

    judged: Judged
    """Beside the bound; after several looks p is multiplied by alpha over what its look may spend."""

    alpha: float
    """The claim's; the intervals of one of several looks have a higher level than 1 - alpha."""

    n: int
    """Sequences."""

    looks: int
    """At how many looks it was judged."""

    obstacle: str
    """Why the bound cannot be shown to hold here, whatever the interval; empty if it can."""

    beside: Beside


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a claim was tested on."""

    run: str
    step: int
    tokens_seen: int
    weights_sha256: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What comes of one claim at one checkpoint."""

    claim: str
    says: str
    bound: str
    file: str
    file_sha256: str
    checkpoint: Checkpoint

    standing: Standing
    expected: Standing
    """What the file says should come out."""

    reason: str
    """Why it is undecided; empty where it is not."""

    measured: Measured | None
    """None where there was nothing to measure."""

    p: float | None
    """Against the bound, two-sided, after Holm's correction over the claims tested together."""

    n_together: int
    """How many claims were tested together at this checkpoint."""

    metric: str
    seed: int
    period: int
    """Of the repeated tokens."""

    stated: Stated | None = None
    """When its bound was stated; None where the file does not say."""

    def __post_init__(self) -> None:
        for name in ("standing", "expected"):
            object.__setattr__(self, name, as_enum(Standing, getattr(self, name), name))
        if self.stated is not None:
            object.__setattr__(self, "stated", as_enum(Stated, self.stated, "stated"))

    @property
    def as_expected(self) -> bool | None:
        """Whether it came out as its file says; None where it is undecided."""
        return None if self.standing == Standing.UNDECIDED else self.standing == self.expected


def corrected(measured: Sequence[Measured | None]) -> list[float]:
    """The p of every claim, corrected together; a claim that could not be measured counts as one with p = 1."""
    return holm([1.0 if each is None else each.judged.p for each in measured]).tolist()


def decide(found: Measured, bound: Bound, p: float) -> tuple[Standing, str]:
    """The verdict, and why it is undecided where it is."""
    standing = found.judged.standing
    if bound.is_share and found.obstacle:
        return Standing.UNDECIDED, found.obstacle
    if standing == Standing.UNDECIDED:
        return standing, found.obstacle or f"the interval reaches to both sides of `{bound}`"
    if p > found.alpha:
        return Standing.UNDECIDED, f"after Holm's correction p = {p:.3g} is above {found.alpha:g}"
    if standing == Standing.SUPPORTED:
        if found.obstacle:
            return Standing.UNDECIDED, found.obstacle
        if found.beside.beaten is False:
            return Standing.UNDECIDED, not_beaten(found.beside)
    return standing, ""


def not_beaten(beside: Beside) -> str:
    """Why there is no support though the bound is met."""
    return f"the control is not beaten: {beside.said}"


def holds_from(verdicts: Sequence[Verdict]) -> int | None:
    """The step from which on a claim holds at every checkpoint tested; None where it does not hold at the last."""
    standing, since = lasting(verdicts) if verdicts else (None, None)
    return since if standing == Standing.SUPPORTED else None


def lasting(verdicts: Sequence[Verdict]) -> tuple[Standing, int]:
    """What a claim comes to at the last checkpoint tested, and from which step on it does so at every one."""
    ordered = sorted(verdicts, key=lambda each: each.checkpoint.step)
    last = ordered[-1].standing
    since = itertools.takewhile(lambda each: each.standing == last, reversed(ordered))
    return last, min(each.checkpoint.step for each in since)
