"""What probes read, in sentences that deny what is not there (for `analyses.probes`).

A task is affirmed at one site only, the one that does best on validation documents, so that looking at many sites earns
nothing. It must beat, by a stated floor and with the whole paired interval, both all that the token alone tells (the
commonest label, each token's commonest label, the probe on the embedding: whichever does best) and the same probe of an
untrained model. Selectivity is said beside it and decides nothing: for a label that does not go by the token, the
control asks for other information, and where tokens are few any site that keeps them lets it score high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from analyses.probes_result import EMBEDDING, Result, TaskResult
from analyses.registry import Finding
from analyses.verdicts import MANY, Verdict, rests_on
from interp.stats import Interval
from interp.wording import number, with_interval

FLOOR = 0.05
"""Smallest gain in accuracy that is claimed."""
POINTS = f"{100 * FLOOR:.0f} points"


@dataclass(frozen=True)
class Baseline:
    """What the token alone tells: the best of what needs no context."""

    name: str
    scores: Tensor
    """Per test unit."""


def spoken(result: Result) -> list[Finding]:
    """One finding per task, then what was not asked."""
    skipped = [Finding(sentence=sentence, found=None) for sentence in result.skipped]
    return [*(_task(result, task) for task in result.tasks), *skipped]


def token_alone(task: TaskResult) -> Baseline:
    """The best that can be said from the token alone."""
    options = [
        Baseline("the commonest label", task.majority),
        Baseline("each token's commonest label", task.by_token),
        Baseline("a probe on the embedding", task.here.score[EMBEDDING]),
    ]
    return max(options, key=lambda each: float(each.scores.mean()))


def _task(result: Result, task: TaskResult) -> Finding:
    best, baseline = task.here.best, token_alone(task)
    score, site = task.here.score[best], result.sites[best]
    over_token = result.interval(score - baseline.scores)
    untrained = None if task.untrained is None else task.untrained.score[best]
    over_untrained = None if untrained is None else result.interval(score - untrained)
    gains = [over_token, *([] if over_untrained is None else [over_untrained])]
    numbers = [
        f"accuracy {with_interval(result.interval(score))} at {site}, the best site on validation documents",
        f"the token alone {_two(baseline.scores)} ({baseline.name}; paired gain {with_interval(over_token)})",
    ]
    if untrained is not None and over_untrained is not None:
        numbers.append(f"{result.untrained} {_two(untrained)} there (paired gain {with_interval(over_untrained)})")
    numbers.append(f"always the commonest label {_two(task.majority)}")
    sentence = (
        f"{_opening(result, task, gains)}: {'; '.join(numbers)}. {_control(result, task, best)} By site: "
        f"{_by_site(result, task)}.{_unconverged(task)} ({_source(result, task)})."
    )
    return Finding(sentence=sentence, found=_found(result, gains))


def _found(result: Result, gains: Sequence[Interval]) -> bool | None:
    """Affirmed only beside an untrained model; without one, only a denial is known."""
    if any(_above(gain) is not Verdict.EFFECT for gain in gains):
        return False
    return None if result.untrained is None else True


def _opening(result: Result, task: TaskResult, gains: Sequence[Interval]) -> str:
    """Whether it is read beyond the token and the untrained model, whose gains these are."""
    cases = [_above(gain) for gain in gains]
    token, untrained = "the token alone", f"the same probe of {result.untrained}"
    both = token if result.untrained is None else f"{token} and than {untrained}"
    what = f"the {task.meaning}{_asked(task)}"
    if all(case is Verdict.EFFECT for case in cases):
        aside = "" if result.untrained is not None else f" (what training did is not known: {_why_none(result)})"
        return f"The best linear probe tells {what} better than {both} by {POINTS} or more{aside}"
    if cases[0] is Verdict.BELOW:
        return f"The best linear probe does not tell {what} better than {token} by {POINTS} or more"
    if gains[-1].high <= -FLOOR:
        return f"The best linear probe tells {what} worse than {untrained} by {POINTS} or more"
    if cases[-1] is Verdict.BELOW:
        return f"The best linear probe does not tell {what} better than {untrained} by {POINTS} or more"
    return f"Whether the best linear probe tells {what} better than {both} by {POINTS} or more cannot be told"


def _asked(task: TaskResult) -> str:
    if task.n_commonest is None:
        return ""
    return f" (one of the {len(task.classes)} commonest, as at {task.labelled_share:.0%} of positions)"


def _why_none(result: Result) -> str:
    return "no untrained model was probed" if not result.config.untrained else "this is step 0"


def _control(result: Result, task: TaskResult, best: int) -> str:
    """What the probe can learn by memory alone, and what that leaves of its score."""
    seed = result.config.seed
    control, selectivity = task.here.control_at(best, seed), task.here.selectivity_at(best, seed)
    tables = task.here.controls[:, best].mean(1)
    says = {
        True: "more than the probe could memorise that way, by any of the tables",
        False: "the probe memorises such labels better, by any of the tables, than it reads this one",
        None: "cannot be told from what the probe could memorise that way",
    }[task.here.above_memory(best, seed)]
    spread = f"{len(tables)} tables, from {number(float(tables.min()))} to {number(float(tables.max()))}"
    return (
        f"Control: a random label for every {task.types} is learned to {with_interval(control)} (over {spread}, and "
        f"over {result.units}), so selectivity is {with_interval(selectivity)}: {says}."
    )


def _by_site(result: Result, task: TaskResult) -> str:
    means = task.here.score.mean(1).tolist()
    said = [f"{site} {mean:.2f}" for site, mean in zip(result.sites, means, strict=True)]
    if len(said) <= MANY:
        return ", ".join(said)
    others = range(1, len(said))
    least, most = min(others, key=means.__getitem__), max(others, key=means.__getitem__)
    return f"{said[0]}; of {len(others)} others the least {said[least]}, the most {said[most]}"


def _unconverged(task: TaskResult) -> str:
    if not task.n_unconverged:
        return ""
    return f" Of {task.n_probes} probes {task.n_unconverged} did not converge."


def _source(result: Result, task: TaskResult) -> str:
    seen = (
        "that the probe was not trained on (what the model was trained on is not known)"
        if result.is_imported
        else "that neither model nor probe was trained on"
    )
    unit = f"positions of {task.n_units} {result.units} {seen}"
    basis = rests_on(
        result.run, step=result.step, n=task.n_test, unit=unit, seed=result.config.seed, intervals="over these"
    )
    return f"{basis}; {task.n_train:,} positions to train on, {task.n_validation:,} to choose on"


def _above(gain: Interval) -> Verdict:
    """Surely more than the floor, surely not, or neither."""
    if gain.low >= FLOOR:
        return Verdict.EFFECT
    return Verdict.BELOW if gain.high < FLOOR else Verdict.OPEN


def _two(scores: Tensor) -> str:
    return number(float(scores.mean()))
