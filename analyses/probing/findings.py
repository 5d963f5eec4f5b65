"""What probes read, in sentences that deny what is not there (for `analyses.probes`).

A task is affirmed at one site only, the one that does best on validation documents, so that looking at many sites earns
nothing. It must beat, by a stated floor and with the whole paired interval, both all that the token alone tells (the
commonest label, each token's commonest label, the probe on the embedding: whichever does best) and the same probe of an
untrained model. Where one of the two leaves no room for the floor, where the test part has one label, or where always
saying its commonest label does as well as the probe, that cannot be told. Selectivity is said beside it and decides
nothing: for a label that does not go by the token, the control asks for other information, and where tokens are few any
site that keeps them lets it score high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from analyses.probing.result import EMBEDDING, Result, TaskResult
from analyses.registry import Finding
from analyses.verdicts import MANY, Verdict, rests_on
from interp.stats import Interval
from interp.wording import number, with_interval

FLOOR = 0.05
"""Smallest gain in accuracy that is claimed."""
POINTS = f"{100 * FLOOR:.0f} points"


@dataclass(frozen=True)
class Guess:
    """What is told without context, from the token alone."""

    name: str
    scores: Tensor
    """Per test unit."""


@dataclass(frozen=True)
class Gain:
    """A probe beside what it must beat."""

    over: str
    """In words that follow "than"."""
    least: float
    """The mean score of that."""
    interval: Interval
    """Score minus that, paired by test unit."""

    @property
    def case(self) -> Verdict:
        """Surely more than the floor, surely not, or neither; where there is no room for so much, neither."""
        if self.interval.low >= FLOOR:
            return Verdict.EFFECT
        return Verdict.BELOW if self.interval.high < FLOOR and self.has_room else Verdict.OPEN

    @property
    def has_room(self) -> bool:
        """Whether a perfect probe would gain as much as is asked."""
        return self.least + FLOOR <= 1


def spoken(result: Result) -> list[Finding]:
    """One finding per task, then what was not asked."""
    skipped = [Finding(sentence=sentence, found=None) for sentence in result.skipped]
    return [*(_task(result, task) for task in result.tasks), *skipped]


def token_alone(task: TaskResult) -> Guess:
    """The best that can be said from the token alone."""
    options = [
        Guess("the commonest label", task.majority),
        Guess("each token's commonest label", task.by_token),
        Guess("a probe on the embedding", task.here.score[EMBEDDING]),
    ]
    return max(options, key=lambda each: float(each.scores.mean()))


def _task(result: Result, task: TaskResult) -> Finding:
    best, token = task.here.best, token_alone(task)
    score, site = task.here.score[best], result.sites[best]
    untrained = None if task.untrained is None else task.untrained.score[best]
    gains = [_gain(result, "the token alone", score, token.scores)]
    numbers = [
        f"accuracy {with_interval(result.interval(score))} at {site}, the best site on validation documents",
        f"the token alone {_two(token.scores)} ({token.name}; paired gain {with_interval(gains[0].interval)})",
    ]
    if untrained is not None:
        gains.append(_gain(result, f"the same probe of {result.untrained}", score, untrained))
        numbers.append(f"{result.untrained} {_two(untrained)} there (paired gain {with_interval(gains[1].interval)})")
    known, unknown = _two(task.majority), _two(task.test_majority)
    numbers.append(f"always the commonest label of the training documents {known}, of the test documents {unknown}")
    found, opening = _opening(result, task, gains)
    sentence = (
        f"{opening}: {'; '.join(numbers)}. {_control(result, task, best)} By site: "
        f"{_by_site(result, task)}.{_unconverged(task)} ({_source(result, task)})."
    )
    return Finding(sentence=sentence, found=found)


def _gain(result: Result, over: str, score: Tensor, least: Tensor) -> Gain:
    return Gain(over=over, least=float(least.mean()), interval=result.interval(score - least))


def _opening(result: Result, task: TaskResult, gains: Sequence[Gain]) -> tuple[bool | None, str]:
    """Whether it is read beyond the token and the untrained model, whose gains these are; and that in words.

    A claim is about both; a denial needs one of them. Without an untrained model only a denial is known.
    """
    both = " and than ".join(gain.over for gain in gains)
    what = f"the {task.meaning}{_asked(task)}"
    why_not = _why_not(result, task, gains)
    if why_not is None and all(gain.case is Verdict.EFFECT for gain in gains):
        aside = "" if result.untrained is not None else f" (what training did is not known: {_why_none(result)})"
        affirmed = f"The best linear probe tells {what} better than {both} by {POINTS} or more{aside}"
        return None if result.untrained is None else True, affirmed
    if task.has_one_label:
        return None, _untold(what, both, why_not)
    token, last = gains[0], gains[-1]
    if token.case is Verdict.BELOW:
        return False, f"The best linear probe does not tell {what} better than {token.over} by {POINTS} or more"
    if last is not token and last.interval.high <= -FLOOR:
        return False, f"The best linear probe tells {what} worse than {last.over} by {POINTS} or more"
    if last.case is Verdict.BELOW:
        return False, f"The best linear probe does not tell {what} better than {last.over} by {POINTS} or more"
    return None, _untold(what, both, why_not)


def _untold(what: str, both: str, why: str | None) -> str:
    end = "" if why is None else f" here, since {why}"
    return f"Whether the best linear probe tells {what} better than {both} by {POINTS} or more cannot be told{end}"


def _why_not(result: Result, task: TaskResult, gains: Sequence[Gain]) -> str | None:
    """What in the test documents keeps a probe from showing more than is known without it; None where nothing does."""
    if task.has_one_label:
        return f"all {task.n_test:,} positions to test on have one label"
    for gain in gains:
        if not gain.has_room:
            return f"{gain.over} is right at {gain.least:.1%} and no probe can be so by {POINTS} more"
    over = _gain(result, "", task.here.score[task.here.best], task.test_majority).interval
    if over.low <= 0 and all(gain.case is Verdict.EFFECT for gain in gains):
        return "always saying the commonest label of the test documents does as well as the probe, within its interval"
    return None


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


def _two(scores: Tensor) -> str:
    return number(float(scores.mean()))
