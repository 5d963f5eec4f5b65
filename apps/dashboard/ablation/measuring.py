"""What the Ablate page measures when it is asked: each kind of work with the key that it is remembered by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from analyses.claims.statement import Statement
from analyses.claims.verdicts import Verdict
from analyses.claims.writing import claim_of
from apps.dashboard import data, passes
from apps.dashboard.ablation import jobs
from apps.dashboard.ablation.asking import Asked
from apps.dashboard.ablation.jobs import Key, Told
from apps.dashboard.data import Run
from interp.ablation import Ablation, Frozen, ablation_of
from interp.effect_parts import Control
from interp.effects import AblationEffect, ablate, benches_for
from interp.places import Intervention, Place, print_places
from model.errors import InputError
from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class Question:
    """Places of a checkpoint, and what is asked of them."""

    run: Run
    step: int | None
    places: tuple[Place, ...]
    asked: Asked

    @property
    def spelled(self) -> str:
        """The places in the grammar."""
        return print_places(self.places)

    @property
    def lab(self) -> Lab:
        """The opened checkpoint."""
        return data.lab(self.run, self.step)

    @property
    def ablation(self) -> Ablation:
        """The places with what is put there; an `InputError` where this model does not have them."""
        asked = self.asked
        return ablation_of(
            self.places, self.lab.config, asked.fill, gate=asked.gate, positions=asked.positions, frozen=asked.frozen
        )

    def key(self, what: str, *more: Any) -> Key:
        """What a number about it is remembered by: checkpoint, weights, places and how they are measured."""
        return (what, passes.checkpoint_of(self.run, self.step), self.spelled, self.asked.how, *more)


def keywords(given: dict[str, Any]) -> str:
    """Keywords as Python writes them, after other arguments."""
    return "".join(f", {name}={value!r}" for name, value in given.items())


def ablation_line(question: Question) -> str:
    """The line of Python that makes the ablation, on an opened `lab`."""
    more = keywords(question.asked.partly | question.asked.held)
    return f"ablation = ablation_of({question.spelled!r}, lab.config, {question.asked.fill!r}{more})"


def effect_key(question: Question) -> Key:
    """Of the effect on every outcome."""
    return question.key("effect")


def bench_key(question: Question, stated: Statement | None) -> Key:
    """Of the effect and the verdict; words and names of the hypothesis change no number."""
    return question.key("bench", *(() if stated is None else (stated.effect, stated.control.value)))


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What came of a hypothesis."""

    verdict: Verdict | None
    """None where no bound was stated, or it could not be tested."""
    effect: AblationEffect
    refused: str = ""
    """Why it could not be tested."""

    def told_as(self, stated: Statement | None) -> Verdict | None:
        """The verdict under the words of a hypothesis that agrees in all that was measured."""
        if self.verdict is None or stated is None:
            return None
        return replace(self.verdict, claim=stated.name, says=stated.says, stated=stated.stated)


def test(question: Question, stated: Statement | None, file: Path, told: Told) -> Tested:
    """The verdict by the rules of written claims, and the effect on every outcome, as the two commands have them."""
    from analyses.hypotheses import verdicts_on

    lab, verdict, refused, controls = question.lab, None, "", dict[str, Control]()
    if stated is not None:
        told.now("The hypothesis and its control", first_of(question.ablation))
        claim = claim_of(stated, file)
        try:
            (verdict,) = verdicts_on([claim], lab, counted=told, controls=controls)
        except InputError as error:  # such as too few matched sets; the effect can be had all the same
            refused = str(error).replace(f'{file}, claim "{claim.name}": ', "")  # nothing is written there yet
    effect = jobs.known(effect_key(question))
    if effect is None:
        control = None if stated is None else controls.get(stated.name)
        part = "Every outcome and step 0" if control else "Every outcome, step 0 and matched sets"
        told.now(part, first_of(question.ablation))
        effect = ablate(lab, question.spelled, **question.asked.measured_as, control=control, counted=told)
        jobs.keep(effect_key(question), effect)
    return Tested(verdict=verdict, effect=effect, refused=refused)


def first_of(ablation: Ablation) -> str:
    """What is done before the first pass that is counted: gathering what is put in the places, and the intact run.

    >>> from interp.places import parse_places
    >>> first_of(Ablation(places=parse_places("L0H1:mean")))
    'means are taken over other sequences, then the intact model runs'
    """
    gathered = [words for kinds, words in _GATHERED if ablation.takes(*kinds)]
    held = ["the patterns that are held are recorded"] if ablation.frozen is Frozen.PATTERNS else []
    return ", ".join([*gathered, *held, "then the intact model runs" if gathered or held else "the intact model runs"])


_GATHERED = (
    ((Intervention.MEAN, Intervention.MEAN_PER_POSITION), "means are taken over other sequences"),
    ((Intervention.MEAN_OF_PAST,), "means of each sequence's past are taken"),
    ((Intervention.RESAMPLE,), "donors are drawn and run"),
    ((Intervention.COUNTERFACTUAL,), "corrupted twins are run"),
    ((Intervention.OPTIMAL,), "constants are fitted"),
)
"""How replacements are gathered, by what is put in the places."""


def interventions(question: Question, told: Told) -> Any:
    """The same places under zero, mean and resample, and with later patterns held."""
    from interp.side_by_side import side_by_side

    asked = question.asked
    told.now("Each replacement", "means are taken over other sequences, donors are run, then the intact model runs")
    return side_by_side(
        question.lab, question.spelled, metric=asked.metric, n_sequences=asked.n, seed=asked.seed, counted=told,
        **asked.partly,
    )  # fmt: skip


def pairs(question: Question, told: Told) -> Any:
    """Whether any two of the places do more together than each alone."""
    from interp.interactions import interactions
    from interp.resolved_places import resolve_places

    asked = question.asked
    told.now("Every place, every two, and all", first_of(question.ablation))
    bench = _bench(question)
    trial, row = bench.trial_of(asked.metric)
    each = resolve_places(question.places, question.lab.config, asked.fill)
    return interactions(
        bench, trial, [(place,) for place in each], outcome=trial.outcomes[row], seed=asked.seed, counted=told,
        **asked.partly, **asked.held,
    )  # fmt: skip


def dose(question: Question, told: Told) -> Any:
    """What is lost as more and more is taken out."""
    from interp.dose import dose_response

    asked = question.asked
    told.now("Each dose", first_of(question.ablation))
    return dose_response(_bench(question), question.ablation, metric=asked.metric, seed=asked.seed, counted=told)


def tokens(question: Question, told: Told) -> Any:
    """At which tokens of the data it hurts."""
    from interp.token_harms import token_harms

    asked = question.asked
    told.now("The harm of every token", first_of(question.ablation))
    return token_harms(
        _bench(question), question.ablation, metric=asked.metric, tokenizer=question.lab.tokenizer, seed=asked.seed,
        counted=told,
    )  # fmt: skip


def later_heads(question: Question, told: Told) -> Any:
    """Which later heads look elsewhere on the data."""
    from interp.pattern_changes import pattern_moves

    asked = question.asked
    told.now("Patterns of later heads", first_of(question.ablation))
    return pattern_moves(_bench(question), question.ablation, metric=asked.metric, seed=asked.seed, counted=told)


def _bench(question: Question) -> Any:
    asked = question.asked
    return benches_for(
        question.lab, question.ablation, metric=asked.metric, n_sequences=asked.n, seed=asked.seed
    )[0]  # fmt: skip


FURTHER = {
    "interventions": ("By what is put there", interventions),
    "pairs": ("Pairs", pairs),
    "dose": ("Dose", dose),
    "tokens": ("Tokens and positions", tokens),
    "heads": ("Later heads", later_heads),
}
"""What more can be asked, each with its title."""


def further(question: Question, what: str) -> tuple[Key, partial[Any]]:
    """Key and work of one of them."""
    return question.key(what), partial(FURTHER[what][1], question)
