"""Written hypotheses, tested: each claim of a file gets a verdict at every checkpoint it is tested on.

    claims = load_claims(["claims"])
    for record in verdicts_of_run(claims, "runs/demo", step="last"):
        print(sentence(record.verdict))

Everything is checked before anything runs. At each checkpoint the rules are applied to discovery sequences, the heads
they find are ablated (or patched along a path) on other sequences, and the p-values of all claims tested there are
corrected together. Sources: Shi et al. 2024 (2410.13032, hypothesis tests for circuits), Holm 1979; what each
quantity is: `claims.bounds`; what decides: `claims.verdicts`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from analyses.checkpoints import first_checkpoint
from analyses.claims.ablating import Ablating
from analyses.claims.bounds import Standing
from analyses.claims.checks import check
from analyses.claims.controls import Subject
from analyses.claims.files import Claim, load_claims
from analyses.claims.ground import Ground
from analyses.claims.measuring import Unfit, measured, subject_of
from analyses.claims.records import Record, save_record
from analyses.claims.statement import ControlKind, parse_steps
from analyses.claims.verdicts import Checkpoint, Measured, Verdict, corrected, decide, holds_from
from analyses.claims.wording import sentence
from analyses.registry import Progress
from analyses.results import from_here
from analyses.versions import versions
from interp.effect_parts import Control
from interp.harm import Counted
from model.checkpoint import checkpoint_steps
from model.errors import CheckpointError, Faults, InputError, UnknownNameError
from model.lab import Lab, open_run, parse_run_spec
from model.settings import to_plain

__all__ = [
    "Claim", "Record", "Verdict", "check", "holds_from", "load_claims", "records_at", "sentence", "steps_of",
    "test_claim", "verdicts_of_run", "verdicts_on",
]  # fmt: skip


@torch.no_grad()
def test_claim(claim: Claim, lab: Lab) -> Verdict:
    """The verdict on one claim at one checkpoint, tested by itself."""
    return verdicts_on([claim], lab)[0]


@torch.no_grad()
def verdicts_on(
    claims: Sequence[Claim],
    lab: Lab,
    *,
    excuse: bool = False,
    progress: Progress | None = None,
    counted: Counted | None = None,
    controls: dict[str, Control] | None = None,
) -> tuple[Verdict, ...]:
    """The verdicts on claims that are tested together at one checkpoint.

    Args:
        claims: from `load_claims`; what they say of runs and steps does not matter here.
        lab: the opened checkpoint.
        excuse: whether heads that a rule found, and that have too few matched sets, leave their claim undecided
            instead of being an error: for one checkpoint among several.
        progress: told of every claim.
        counted: told of every batch that is ablated; may raise to stop the work.
        controls: gets what matched sets cost, by claim, for who shows them one by one.

    Raises:
        InputError: what `check` refuses, before anything runs; and too few matched sets, before anything is ablated.
    """
    check(claims, lab)
    subjects = _subjects(claims, lab, excuse=excuse)
    needs_first = any(claim.stated.control == ControlKind.STEP0 for claim in claims)
    first = first_checkpoint(lab) if needs_first else None
    found: list[Measured | None] = []
    for number, (claim, subject) in enumerate(zip(claims, subjects, strict=True), start=1):
        with claim.named():
            tried = None if controls is None else partial(controls.__setitem__, claim.name)
            told = replace(subject, counted=counted, tried=tried) if isinstance(subject, Ablating) else subject
            found.append(None if isinstance(told, Unfit) else measured(told, claim.bound, first=first, counted=counted))
        if progress is not None:
            progress(number, len(claims), f"{claim.name} at step {lab.step}")
    verdicts = zip(claims, subjects, found, corrected(found), strict=True)
    where = Checkpoint(run=lab.name, step=lab.step, tokens_seen=lab.tokens_seen, weights_sha256=lab.weights_sha256)
    return tuple(_verdict(*each, where, len(claims), lab) for each in verdicts)


def verdicts_of_run(
    claims: Sequence[Claim],
    run: str | Path,
    *,
    step: str | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    save: bool = True,
) -> Iterator[Record]:
    """Test claims on the checkpoints of a run, one checkpoint after the other; each verdict is saved under the run.

    `step` is last, all, or steps such as 0,512; without it each claim is tested where its file says. All claims are
    checked on the run's last checkpoint before anything runs, and only then is the first verdict given.
    """
    steps = steps_of(claims, run, step)
    path, _ = parse_run_spec(run)
    last = open_run(f"{path}@{max(steps)}", device)
    faults = Faults()
    for together in dict.fromkeys(steps.values()):
        with faults.noted():
            check(together, last)
    faults.raise_any()
    return _tested(path, steps, device, progress, save=save)


def _tested(
    path: Path, steps: dict[int, tuple[Claim, ...]], device: str, progress: Progress | None, *, save: bool
) -> Iterator[Record]:
    for step, here in steps.items():
        yield from records_at(here, path, step, device=device, excuse=len(steps) > 1, progress=progress, save=save)


def records_at(
    claims: Sequence[Claim],
    path: Path,
    step: int,
    *,
    device: str = "cpu",
    excuse: bool = False,
    progress: Progress | None = None,
    save: bool = True,
) -> tuple[Record, ...]:
    """Test claims together at one checkpoint of the run in `path`; `excuse` as for `verdicts_on`."""
    lab = open_run(f"{path}@{step}", device)
    started = time.perf_counter()
    verdicts = verdicts_on(claims, lab, excuse=excuse, progress=progress)
    seconds = round(time.perf_counter() - started, 3)
    records = tuple(
        Record(
            verdict=verdict,
            statement=to_plain(claim.stated),
            together=tuple(each.name for each in claims),
            device=str(lab.gpt.device),
            seconds=seconds,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(),
        )
        for claim, verdict in zip(claims, verdicts, strict=True)
    )
    for record in records if save else ():
        save_record(path, record)
    return records


def steps_of(claims: Sequence[Claim], run: str | Path, step: str | None = None) -> dict[int, tuple[Claim, ...]]:
    """Which claims are tested at which step, in order of step.

    `RUN@STEP` and `step` (which may not both be given) go before what the files say.
    """
    path, at = parse_run_spec(run)
    if at is not None and step is not None:
        raise InputError(f'"{run}" names a checkpoint, and so does step={step}; give one of them.')
    known = checkpoint_steps(path)
    if not known:
        raise CheckpointError(f"{path} has no complete checkpoint to test anything on; train it first.")
    asked = str(at) if at is not None else step
    chosen: dict[int, list[Claim]] = {}
    for claim in claims:
        wanted = parse_steps(asked or claim.stated.step)
        steps = known if wanted == "all" else known[-1:] if wanted == "last" else wanted
        for each in steps:
            if each not in known:
                raise UnknownNameError(f"{path} has no checkpoint at step {each}; there are {_listed(known)}.")
            chosen.setdefault(int(each), []).append(claim)
    return {each: tuple(chosen[each]) for each in sorted(chosen)}


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))


def _subjects(claims: Sequence[Claim], lab: Lab, *, excuse: bool) -> list[Subject | Unfit]:
    """Who each claim is about, all found before anything is ablated."""
    grounds: dict[tuple[int, int, int | None], Ground] = {}
    subjects: list[Subject | Unfit] = []
    faults = Faults()
    for claim in claims:
        stated = claim.stated
        key = stated.sequences, stated.seed, stated.period
        ground = grounds.setdefault(key, Ground.of(lab, stated))
        try:
            subjects.append(subject_of(claim, ground))
        except InputError as refusal:
            if not excuse:
                faults.found.append(refusal)
            subjects.append(Unfit(reason=str(refusal)))
    faults.raise_any()
    return subjects


def _verdict(
    claim: Claim, subject: Subject | Unfit, found: Measured | None, p: float, where: Checkpoint, n: int, lab: Lab
) -> Verdict:
    stated = claim.stated
    if found is None:
        assert isinstance(subject, Unfit), "what was not measured has a reason"
        standing, reason = Standing.UNDECIDED, subject.reason
    else:
        standing, reason = decide(found, claim.bound, p)
    return Verdict(
        claim=claim.name,
        says=stated.says,
        bound=str(claim.bound),
        file=str(from_here(claim.file)),
        file_sha256=claim.file_sha256,
        checkpoint=where,
        standing=standing,
        expected=stated.expected,
        stated=stated.stated,
        reason=reason,
        measured=found,
        p=None if found is None else p,
        n_together=n,
        metric=stated.metric,
        seed=stated.seed,
        period=Ground.of(lab, stated).task.period,
    )
