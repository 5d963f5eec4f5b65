"""A choice is its member or its value, and nothing else is taken for one of the others.

Text passes for a choice nearly everywhere: a member of a `StrEnum` equals its value, but is not the same object. So a
comparison by identity would send a value down the other branch, without a word, and to other numbers.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

import analyses
import interp
from analyses import training_dynamics as dynamics
from analyses.ablation import result as ablation_result
from analyses.attention import circuit_items as attention_circuit_items
from analyses.attention import items as attention_items
from analyses.attention import result as attention_result
from analyses.attention.evidence import Bearing, Evidence, Source
from analyses.attention.harms import COPY, TEXT, HarmOn, HeadHarms
from analyses.attention.readings import Kind, Reading, read
from analyses.attention.stimuli import Sequences, Stimulus
from analyses.attention.verdicts import Standing, Verdict
from analyses.attention.weights import Weights
from analyses.attention.words import WORDS, measured_words
from analyses.circuits import result as circuits_result
from analyses.claims.bounds import Bound, Judged, Quantity
from analyses.claims.bounds import Standing as Comes
from analyses.claims.statement import ControlKind, Stated, Statement
from analyses.claims.usual import Usual
from analyses.claims.verdicts import Beside, Checkpoint
from analyses.claims.verdicts import Verdict as Outcome
from analyses.composition.result import Config as CompositionConfig
from analyses.dynamics import formation
from analyses.dynamics import result as dynamics_result
from analyses.dynamics.axis import Along, Time
from analyses.dynamics.figure import highlighted
from analyses.dynamics.head_findings import heads_of_kind
from analyses.dynamics.lines import heads_figure
from analyses.dynamics.result import frames, scores_over_training
from analyses.dynamics.tables import head_rows, score_rows
from analyses.ffn.config import Config as FFNConfig
from analyses.ffn.config import Split
from analyses.gradients import initialization as initial
from analyses.heads.scores import HeadScores, meaning_of
from analyses.importance.result import Ratio
from analyses.memories.examples import Choice, example_rows, examples
from analyses.memories.search import MemoryState, Query
from analyses.memories.tables import kind_name
from analyses.promotion import result as promotion_result
from analyses.promotion.controls import control_of
from analyses.repair import result as repair_result
from analyses.views.embed import Shown, embed, page, shown
from analyses.views.lens_table import Cells, lens_table_payload
from analyses.views.payload_shapes import payload_fault
from analyses.views.sources import View, sources
from interp.ablation import Ablation, Frozen, ablated, ablation_of, hooks_for, mean_activations
from interp.approximation import Approximation
from interp.attention_bases import Against, held_scales, signed_attention, stream_direction
from interp.attribution import Detail, logit_attribution
from interp.attribution_patching import Estimates, Method, attribution_patching
from interp.circuits import diagonal_test, eigenvalue_copying
from interp.component_composition import component_composition
from interp.composition import Composition, Null, Pair, composition
from interp.composition_algebra import Kind as Reads
from interp.composition_algebra import Over, Plan, layers_of, readers_of, scores_between, writers_of
from interp.composition_plan import planned
from interp.concept_kinds import ConceptKind
from interp.detector import ErrorMeasure, HeadPattern, detect_heads, match_heads, overlap, similarity, wanted_pattern
from interp.effects import AblationEffect, ablate, benches_for, effect_of
from interp.folding import folded_heads
from interp.interactions import Interactions, interactions
from interp.intervention_kinds import parse_stated, print_stated, require_amount
from interp.lens import LensDetail, lens_places, logit_lens
from interp.live import Basis, LiveText, after_last, attention_in, coefficients, live_tokens, look
from interp.live_lens import attribution_on, lens_on
from interp.live_memories import writing_memories
from interp.live_targets import Target, targets_of
from interp.matched_control import matched_control, strata_for
from interp.matched_places import Matching
from interp.measures import Measure
from interp.measures import read as read_measure
from interp.memory_attribution import memories_towards
from interp.metrics import logit_difference
from interp.outcomes import Outcome as MeasuredOutcome
from interp.outcomes import every_target, mean_over
from interp.patching import Direction, Patched, activation_patching, patch_grid
from interp.path_patching import path_effects, path_effects_by
from interp.path_results import PathEffects
from interp.paths import FFNs, Input, Receiver, Scales, feeding_paths
from interp.pattern_changes import pattern_changes
from interp.pattern_kinds import TriggerPattern
from interp.places import Intervention, Place, PlaceKind, head, memory, parse_intervention, stating
from interp.promotion import Written
from interp.recordings import Means, Recording, record
from interp.repaired import Component, Part
from interp.resolved_places import resolve_places
from interp.side_by_side import side_by_side
from interp.stats import Interval, bootstrap_mean, bootstrap_means
from interp.stimuli import reordered, repeated_tokens
from interp.supplies import Supplies
from interp.token_concepts import Concept
from interp.token_effects import token_effects
from interp.trigger_deletions import Deletion, TriggerDeletions
from interp.vocabulary_reading import Circuit, SingularReading, ov_vocabulary
from model import GPT, Norm, NormKind
from model.errors import ConfigError, InputError
from model.lab import Lab
from model.sites import Tap
from tests.conftest import make_gpt_with
from tests.planted_run import planted_lab

TOKENS = torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(7))
ATTENTION = torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(7)).tril()


@cache
def gpt() -> GPT:
    return make_gpt_with()


@cache
def means() -> Means:
    return mean_activations(gpt(), TOKENS.flip(0), source="the same, the other way round")


@pytest.fixture(autouse=True)
def bare() -> Iterator[None]:
    """As users run it: types are not checked at the door, which would refuse a value before the code sees it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted")


@cache
def readings() -> tuple[Reading, ...]:
    repeats = repeated_tokens(4, 6, torch.arange(50), seed=0, bos=None)
    four = repeated_tokens(4, 6, torch.arange(50), n_copies=4, seed=0, bos=None)
    kinds = {Stimulus.REPEATS: repeats, Stimulus.CONTROL: reordered(repeats, 6)}
    kinds |= {Stimulus.FOUR: four, Stimulus.ONCE: four[:, :6]}
    shown = [Sequences(stimulus=kind, tokens=tokens, period=6, trained=False) for kind, tokens in kinds.items()]
    shown.append(Sequences(stimulus=Stimulus.TEXT, tokens=TOKENS))
    return tuple(read(gpt(), each, n_resamples=100, level=0.95, seed=0) for each in shown)


@cache
def heads() -> attention_result.Result:
    """Of a model that nobody trained: every head passes a rule that asks for nothing."""
    config = attention_result.Config(threshold=0, margin=0, times_chance=0)
    example = attention_result.Example(layer=0, head=0, period=6, tokens=("a",), pattern=torch.ones(1, 1))
    weights = Weights(copying=eigenvalue_copying(gpt()), diagonal=diagonal_test(gpt()), composition={}, missing={})
    rest: dict[str, Any] = {"run": "toy", "step": 1, "tokens_seen": 1, "trained_periods": None, "at_step_zero": None}
    rest |= {"harms": harms(), "harms_at_step_zero": None, "weights": weights, "weights_at_step_zero": None}
    rest |= {"behaviour": None, "no_behaviour": "nothing was streamed"}
    return attention_result.Result(config=config, readings=readings(), example=example, **rest)


def harms() -> HeadHarms:
    """Of one head that copying and text both lose something without."""
    drawn = 1 + torch.rand(8, 1, generator=torch.Generator().manual_seed(7))
    on = {"meaning": "", "clean": 1.0, "harm": bootstrap_means(drawn), "p": torch.zeros(1)}
    both = tuple(HarmOn(outcome=outcome, **on) for outcome in (COPY, TEXT))
    return HeadHarms(heads=(PLACE,), period=6, copying=bootstrap_mean(drawn[:, 0]), on=both)


def stated(**choices: Any) -> Statement:
    """A claim about an ablation."""
    rest = {"name": "toy", "says": "", "ablate": "L1H1", "effect": "harm >= 1", "control": "none"}
    return Statement(**rest | choices)


def fed(**choices: Any) -> Statement:
    """A claim about a path."""
    return stated(ablate=None, **{"sender": "L0H1", "receivers": "L1H1", "input": "k"} | choices)


def came(**choices: Any) -> Outcome:
    rest: dict[str, Any] = {name: "" for name in ("claim", "says", "bound", "file", "file_sha256", "reason", "metric")}
    rest |= {"measured": None, "p": None, "n_together": 1, "seed": 0, "period": 5}
    rest["checkpoint"] = Checkpoint(run="toy", step=1, tokens_seen=1, weights_sha256="")
    return Outcome(**rest | {"standing": "supported", "expected": "supported"} | choices)


def evidence(**choices: Any) -> Evidence:
    return Evidence(**{"source": Source.TEXT, "bearing": Bearing.FOR, "what": "", "said": ""} | choices)


def verdict(standing: Any) -> Verdict:
    items = tuple(evidence(source=source) for source in Source)
    rest: dict[str, Any] = {"kinds": (Kind.INDUCTION,), "evidence": items, "sentence": "", "lines": ()}
    return Verdict(layer=1, head=1, standing=standing, **rest)


@cache
def composed() -> Composition:
    return composition(gpt(), null=Null.ROTATION)


def null_of(given: Any) -> Tensor:
    found = composition(gpt(), null=given, untrained=make_gpt_with())
    return found.null_mean[:, 0, :, 1]


def pair_of(kind: Any) -> Pair:
    return replace(composed().strongest("q", n=1)[0], kind=kind)


def plan(over: Any = Over.MEAN) -> Plan:
    basis = torch.zeros(0, gpt().config.d_model, dtype=torch.float64)
    return Plan(config=gpt().config, kinds=tuple(Reads), offsets=(0, 1, 2), over=over, basis=basis)


def read_by(kind: Any) -> Tensor:
    return readers_of(kind, list(layers_of(folded_heads(gpt())))[1], plan()).G


def scored(over: Any) -> Tensor:
    folded = folded_heads(gpt())
    writers = writers_of(folded.W_V[0], folded.W_O[0], plan())
    return scores_between(writers, readers_of("k", list(layers_of(folded))[1], plan()), over)


def towards(against: Any) -> Tensor:
    _, cache = gpt().run_with_cache(TOKENS, held_scales(gpt(), 1))
    return stream_direction(gpt(), 1, TOKENS, against, dict(cache))


def sung(circuit: Any) -> SingularReading:
    return replace(ov_vocabulary(gpt(), "L1H2"), circuit=circuit)


def one_of_each(role: str, given: Any) -> Any:
    """What `set_of` looks through: the sets, and nothing else of the result."""
    return ablation_result.Result.set_of(SimpleNamespace(sets=sets()), role, given)  # type: ignore[arg-type]


def ratio_of(given: Any) -> Ratio:
    nothing = Interval(mean=0.5, low=0.4, high=0.6, n=8, level=0.95, method="percentile")
    return Ratio(of=given, median=nothing, fitted=0.5, n_heads=1)


@cache
def sets() -> tuple[ablation_result.SetAblation, ...]:
    return tuple(set_of(kind) for kind in (Intervention.MEAN, Intervention.ZERO))


def set_of(kind: Any) -> ablation_result.SetAblation:
    effect = AblationEffect.__new__(AblationEffect)
    return ablation_result.SetAblation(role="induction", heads=(), intervention=kind, effect=effect, at_step_zero=None)


def measured_as(measure: Any) -> Tensor:
    logits = torch.rand(3, 5, generator=torch.Generator().manual_seed(7))
    targets = torch.tensor([0, 1, 2])
    return read_measure(measure, logits, targets, distractors=targets + 1, intact=logits.flip(0))


def outcome_of(measure: Any) -> MeasuredOutcome:
    """With what a logit difference is taken from, where it is one."""
    beside = (lambda tokens: tokens[:, 1:]) if measure == Measure.LOGIT_DIFFERENCE else None
    return MeasuredOutcome(name="", meaning="", weights=mean_over(every_target), measure=measure, distractors=beside)


def prompt(lab: Lab) -> str:
    return lab.text(lab.eval_tokens[0, 1:6])


@cache
def supplies() -> Supplies:
    """Something to replace with, whatever the intervention."""
    others = torch.randint(50, (9, 12), generator=torch.Generator().manual_seed(8))
    constants = SimpleNamespace(source="by hand", constants=lambda _: {"L0H3": torch.full((8,), 0.5)})
    return Supplies(
        source="others",
        means=means(),
        donors=others,
        corrupted=others[:3],
        optimal=constants,  # type: ignore[arg-type]
    )


def promoting(kind: Any) -> promotion_result.Control:
    none = torch.zeros(0, dtype=torch.float64)
    changes = dict.fromkeys(("share_change", "mass_change", "first_change", "loss_change", "slope"), none)
    return promotion_result.Control(kind=kind, note="", p=None, p_first=None, p_slope=None, **changes)


def wrote(share: float) -> Written:
    each = torch.full((2,), share, dtype=torch.float64)
    text = torch.zeros(2, 1, 3, dtype=torch.int64)
    return Written(text=text, share=each, mass=each[:, None].expand(2, 3), loss=each, distinct=each)


def promotions() -> Any:
    """What there is of a result to read controls from."""
    return SimpleNamespace(controls=tuple(map(promoting, promotion_result.ControlKind)))


def ablated_of(lab: Lab) -> Any:
    return ablation_of("L1H2:zero", lab.config)


def bench_of(lab: Lab) -> Any:
    return benches_for(lab, ablation_of("L1H2", lab.config), metric="copy_loss", n_sequences=4)[0]


def interacting(lab: Lab, frozen: Any) -> Interactions:
    bench = bench_of(lab)
    (trial, row), places = bench.trial_of("copy_loss"), ["L0H1:zero", "L1H2:zero"]
    return interactions(bench, trial, places, outcome=trial.outcomes[row], frozen=frozen)


def logits_under(given: Any) -> Tensor:
    with ablated(gpt(), "L0H3", None, given, supplies=supplies(), tokens=TOKENS), torch.no_grad():
        return gpt()(TOKENS)


def logits_with_hooks(given: Any) -> Tensor:
    hooks = hooks_for(gpt(), [head(0, 3)], None, given, supplies=supplies(), tokens=TOKENS)
    return gpt().run_with_hooks(TOKENS, fwd_hooks=hooks)


def chance_of(kind: Any) -> float:
    """Of the last reading that holds the kind: not one of them holds all."""
    holding = [each for each in readings() if kind in each] or readings()
    return holding[-1][kind].chance


def head_scores_on(stimulus: Any) -> HeadScores:
    none: Any = {name: None for name in ("low", "high", "step_0", "chance", "found")}
    mean = torch.zeros(1, 2)
    return HeadScores(name="induction", on="", stimulus=stimulus, mean=mean, **none, n=2, unit="sequences", rests=())


def read_of(kind: Any) -> Reading:
    return replace(readings()[0], stimulus=kind)


@cache
def initialization() -> initial.Initialization:
    return initial.Initialization(profiles=tuple(profile_of(norm) for norm in Norm), scalings=(), n_tokens=1)


def profile_of(placement: Any) -> initial.Profile:
    at = list(Norm).index(placement) if placement in list(Norm) else 0
    drawn = torch.rand(2, 2, len(initial.SHOWN), generator=torch.Generator().manual_seed(at))
    rest = {"stream_norms": torch.ones(2, 3), "mean_square": torch.ones(2, 3), "token_norms": torch.ones(2)}
    return initial.Profile(placement=placement, depth=2, matrix_norms=drawn, **rest)


def scaling_of(placement: Any) -> initial.Scaling:
    growth = Interval(mean=1.0, low=1.0, high=1.0, n=2, level=0.95, method="t")
    rest: dict[str, Any] = {"exponent": None, "batch_exponent": None, "slopes": ()}
    return initial.Scaling(placement=placement, growth=growth, linearity=1.0, **rest)


def with_memories(lab: Lab) -> Any:
    """The planted model has heads only."""
    gpt = make_gpt_with(d_vocab=lab.config.d_vocab, n_ctx=lab.config.n_ctx)
    parts = {"gpt": gpt, "config": gpt.config, "tokens": lab.tokens, "eval_tokens": lab.eval_tokens}
    return SimpleNamespace(tokenizer=lab.tokenizer, **parts)


PAIR: Any = (make_gpt_with(), TOKENS, TOKENS.flip(0), logit_difference(TOKENS[:, 0], TOKENS[:, 1]))
"""A model, clean and corrupted prompts, and a metric."""


def patched_in(direction: Any) -> Patched:
    model, clean, corrupted, metric = PAIR
    grid = patch_grid(model.config, Tap.Z, layers=[1])
    found = activation_patching(model, clean, corrupted, grid, metric, direction=direction)
    return replace(found, direction=direction)


def sent() -> Recording:
    return record(PAIR[0], PAIR[2], Tap.Z.at(0), source="the corrupted prompts")


def paths(**choices: Any) -> PathEffects:
    model, clean, _, metric = PAIR
    return path_effects(model, clean, [(0, 1)], feeding_paths([(1, 2)]), metric, source=sent(), **choices)


def paths_by(scales: Any) -> PathEffects:
    model, clean, _, metric = PAIR
    into = feeding_paths([(1, 2)])
    return path_effects_by(model, clean, [(0, 1)], into, {"": metric}, source=sent(), scales=scales)[""]


def estimates(**choices: Any) -> Estimates:
    rest = {"method": Method.LINEAR, "direction": Direction.NOISING} | choices
    return Estimates(tap=Tap.Z, effect=torch.zeros(1, 1, 1), **rest)


def estimated(**choices: Any) -> circuits_result.Estimated:
    rest = {"method": Method.LINEAR, "direction": Direction.NOISING} | choices
    agreement = Approximation(n=1, pearson=1.0, spearman=1.0, same_sign=1.0, top=1, missed=())
    cells = {
        "estimate": torch.zeros(1, 1),
        "true": torch.zeros(1, 1),
        "layers": (0,),
        "group": 1,
        "agreement": agreement,
        "spearman": Interval(mean=1.0, low=1.0, high=1.0, n=2, level=0.95, method="percentile"),
    }
    return circuits_result.Estimated(place="z", **cells, **rest)


def one_estimated(direction: Any) -> circuits_result.Estimated:
    """What `estimated` looks through: the estimates, and nothing else of the result."""
    both = SimpleNamespace(estimates=[estimated(direction=each) for each in Direction])
    return circuits_result.Measured.estimated(both, "z", Method.LINEAR, direction)  # type: ignore[arg-type]


@cache
def trained(lab: Lab) -> dynamics_result.Result:
    """Two checkpoints of the planted run, every score of every head at each."""
    few: dict[str, Any] = {"n_sequences": 4, "n_text": 4, "n_judged": 4, "n_resamples": 100}
    return dynamics.run(lab, dynamics.Config(threshold=0, margin=0, times_chance=0, **few))


def fired() -> Any:
    """What there is of a result to show prefixes from: of each choice another coefficient."""
    one = torch.ones(2, 2, 1, dtype=torch.int64)
    context, none = torch.zeros(2, 2, 1, 3, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)

    def fires(coefficient: float) -> Any:
        return SimpleNamespace(context=context, length=3 * one, next_token=one, coefficient=coefficient * one)

    sampled = SimpleNamespace(
        context=torch.zeros(1, 3, dtype=torch.int64), length=none + 3, next_token=none, decile=0 * one,
        decile_coefficient=0.5 * one, decile_rank=0.5 * one, random_coefficient=0.1 * one, random_rank=0.2 * one,
    )  # fmt: skip
    reading = SimpleNamespace(triggers=fires(2.0), negative=fires(-1.0), examples=sampled)
    return SimpleNamespace(reading=reading, vocabulary=("a", "b"), spelled=lambda ids: ["a" for _ in ids])


PLACE = (1, 1)
EVERY_HEAD = torch.ones(2, 4, dtype=torch.bool)
GRID: dict[str, Any] = {"cells": []}


def cut() -> TriggerDeletions:
    """One memory whose five falls differ."""
    falls = torch.arange(float(len(Deletion))).view(1, 1, -1)
    one = torch.ones(1, 1, dtype=torch.int32)
    return TriggerDeletions(memory=one, n_triggers=one, fall=falls)


CASES: dict[str, tuple[type[StrEnum], Callable[[Any, Lab], Any]]] = {
    "interp.ablation.ablated": (Intervention, lambda given, _: logits_under(given)),
    "interp.ablation.hooks_for": (Intervention, lambda given, _: logits_with_hooks(given)),
    "interp.attribution.logit_attribution": (
        Detail,
        lambda given, _: logit_attribution(gpt(), TOKENS, TOKENS, detail=given).values,
    ),
    "interp.lens.lens_places": (LensDetail, lambda given, _: list(lens_places(gpt().config, given))),
    "interp.lens.logit_lens": (LensDetail, lambda given, _: logit_lens(gpt(), TOKENS, TOKENS, detail=given).entropy),
    "interp.live_lens.attribution_on": (
        Target,
        lambda given, lab: attribution_on(lab, "repeats", "", target=given, word="a").logit,
    ),
    "interp.live_lens.LiveLens.target": (
        Target,
        lambda given, lab: repr(replace(lens_on(lab, "repeats", ""), target=given).target),
    ),
    "interp.live_lens.lens_on": (
        Target,
        lambda given, lab: lens_on(lab, "repeats", "", target=given, word="a").targets,
    ),
    "interp.memory_attribution.memories_towards": (
        Target,
        lambda given, lab: memories_towards(with_memories(lab), "repeats", "", 0, 3, target=given, word="a").added,
    ),
    "interp.live_targets.targets_of": (
        Target,
        lambda given, lab: targets_of(lab, lab.eval_tokens[0], given, "a"),
    ),
    "interp.detector.detect_heads": (
        ErrorMeasure,
        lambda given, _: detect_heads(gpt(), TOKENS, HeadPattern.INDUCTION, error_measure=given),
    ),
    "interp.detector.match_heads": (
        ErrorMeasure,
        lambda given, _: match_heads(gpt(), TOKENS, HeadPattern.PREVIOUS, error_measure=given).score,
    ),
    "interp.detector.overlap": (ErrorMeasure, lambda given, _: overlap(ATTENTION, ATTENTION, error_measure=given)),
    "interp.detector.similarity": (
        ErrorMeasure,
        lambda given, _: similarity(ATTENTION, ATTENTION, error_measure=given),
    ),
    "interp.detector.wanted_pattern": (HeadPattern, lambda given, _: wanted_pattern(given, TOKENS)),
    "interp.effects.ablate": (
        Intervention,
        lambda given, lab: ablate(lab, "L1H2", intervention=given, n_sequences=12, n_controls=0).harm,
    ),
    "interp.effects.effect_of": (
        Matching,
        lambda given, lab: (
            effect_of(bench_of(lab), "L1H2", metric="copy_loss", seed=0, n_controls=2, matching=given).control.harm
        ),
    ),
    "interp.matched_control.matched_control": (
        Matching,
        lambda given, lab: (
            matched_control(
                bench_of(lab), ablated_of(lab), "copy_loss", matching=given, n=4, seed=0, limit=2, counted=None
            ).harm
        ),
    ),
    "interp.matched_control.strata_for": (
        Matching,
        lambda given, lab: strata_for(lab.gpt, bench_of(lab).trials[0], ablated_of(lab), given),
    ),
    "interp.measures.read": (Measure, lambda given, _: measured_as(given)),
    "interp.outcomes.Outcome.measure": (Measure, lambda given, _: repr(outcome_of(given).measure)),
    "interp.live.look": (LiveText, lambda given, lab: look(lab, given, prompt(lab)).source),
    "interp.live.after_last": (LiveText, lambda given, lab: after_last(lab, given, prompt(lab))),
    "interp.live.attention_in": (Basis, lambda given, lab: attention_in(lab, given, "prompt", prompt(lab))),
    "interp.live_memories.writing_memories": (
        LiveText,
        lambda given, lab: writing_memories(with_memories(lab), given, prompt(lab), 1).written,
    ),
    "interp.live.coefficients": (LiveText, lambda given, lab: coefficients(with_memories(lab), given, prompt(lab), 0)),
    "interp.live.live_tokens": (LiveText, lambda given, lab: live_tokens(lab, given, prompt(lab))[1]),
    "interp.places.Place.kind": (PlaceKind, lambda given, _: repr(Place(kind=given, layer=0, index=1))),
    "interp.places.Place.intervention": (Intervention, lambda given, _: repr(replace(head(0, 1), intervention=given))),
    "interp.places.head": (Intervention, lambda given, _: repr(head(0, 1, given))),
    "interp.ablation_plan.Ablation.frozen": (
        Frozen,
        lambda given, _: repr(Ablation(places=(head(0, 3, "zero"),), frozen=given)),
    ),
    "interp.ablation_plan.Ablation.takes": (
        Intervention,
        lambda given, _: repr(ablation_of("L0H1:zero,L0H3:mean", gpt().config).takes(given)),
    ),
    "interp.ablation_plan.ablation_of": (
        Frozen,
        lambda given, _: repr(ablation_of("L0H3", gpt().config, frozen=given)),
    ),
    "interp.intervention_kinds.parse_intervention": (Intervention, lambda given, _: repr(parse_intervention(given))),
    "interp.intervention_kinds.parse_stated": (Intervention, lambda given, _: parse_stated(given)),
    "interp.intervention_kinds.print_stated": (Intervention, lambda given, _: print_stated(given, None)),
    "interp.intervention_kinds.require_amount": (Intervention, lambda given, _: require_amount(given, None)),
    "interp.places.memory": (Intervention, lambda given, _: repr(memory(0, 1, given))),
    "interp.places.stating": (Intervention, lambda given, _: repr(stating(head(0, 3), given))),
    "interp.resolved_places.resolve_places": (
        Intervention,
        lambda given, _: repr(resolve_places("L0H3", gpt().config, given)),
    ),
    "interp.token_effects.token_effects": (
        Intervention,
        lambda given, lab: token_effects(lab, lab.eval_tokens[:1, :8], "L1H2", intervention=given).ablated,
    ),
    "interp.pattern_changes.pattern_changes": (
        Intervention,
        lambda given, lab: pattern_changes(lab, lab.eval_tokens[:1, :8], "L0H1", intervention=given).ablated,
    ),
    "interp.interactions.interactions": (
        Frozen,
        lambda given, lab: interacting(lab, given).joint.mean,
    ),
    "interp.side_by_side.side_by_side": (
        Intervention,
        lambda given, lab: repr(side_by_side(lab, "L1H2", interventions=[given], n_sequences=12).effects),
    ),
    "analyses.attention.circuit_items.copying_items": (
        Kind,
        lambda given, _: list(attention_circuit_items.copying_items(heads(), given, PLACE)),
    ),
    "analyses.attention.evidence.Evidence.bearing": (Bearing, lambda given, _: repr(evidence(bearing=given).bearing)),
    "analyses.attention.evidence.Evidence.kind": (Kind, lambda given, _: repr(evidence(kind=given).kind)),
    "analyses.attention.evidence.Evidence.source": (Source, lambda given, _: repr(evidence(source=given).source)),
    "analyses.attention.items.attention_item": (
        Kind,
        lambda given, _: attention_items.attention_item(heads(), given, PLACE),
    ),
    "analyses.attention.items.at_step_zero": (
        Kind,
        lambda given, _: attention_items.at_step_zero(heads(), readings()[0], given, PLACE),
    ),
    "analyses.attention.items.where_of": (
        Kind,
        lambda given, _: attention_items.where_of(readings()[0], given, PLACE),
    ),
    "analyses.attention.items.harm_items": (Kind, lambda given, _: attention_items.harm_items(heads(), given, PLACE)),
    "analyses.attention.items.text_item": (Kind, lambda given, _: attention_items.text_item(heads(), given, PLACE)),
    "analyses.attention.words.measured_words": (Stimulus, lambda given, _: measured_words(Kind.INDUCTION, given)),
    "analyses.heads.scores.meaning_of": (Stimulus, lambda given, _: meaning_of("induction", given)),
    "analyses.heads.scores.HeadScores.stimulus": (Stimulus, lambda given, _: repr(head_scores_on(given).stimulus)),
    "analyses.attention.verdicts.Verdict.item": (Source, lambda given, _: verdict(Standing.NONE).item(given)),
    "analyses.attention.verdicts.Verdict.items": (Source, lambda given, _: verdict(Standing.NONE).items(given)),
    "analyses.attention.verdicts.Verdict.standing": (Standing, lambda given, _: repr(verdict(given).standing)),
    "analyses.attention.readings.Reading.stimulus": (Stimulus, lambda given, _: repr(read_of(given).stimulus)),
    "analyses.attention.readings.Reading.__getitem__": (Kind, lambda given, _: chance_of(given)),
    "analyses.attention.result.can_be_found": (Kind, lambda given, _: attention_result.can_be_found(heads(), given)),
    "analyses.attention.result.found": (Kind, lambda given, _: attention_result.found(heads(), given)),
    "analyses.attention.result.found_heads": (Kind, lambda given, _: attention_result.found_heads(heads(), given)),
    "analyses.attention.result.may_have_the_name": (
        Kind,
        lambda given, _: attention_result.may_have_the_name(heads(), given),
    ),
    "analyses.attention.result.possible": (Kind, lambda given, _: attention_result.possible(heads(), given)),
    "analyses.attention.result.ranked": (Kind, lambda given, _: attention_result.ranked(heads(), given, EVERY_HEAD)),
    "analyses.attention.result.reading_for": (
        Kind,
        lambda given, _: attention_result.reading_for(heads(), given).stimulus,
    ),
    "analyses.attention.result.strongest": (Kind, lambda given, _: attention_result.strongest(readings()[0], given)),
    "analyses.attention.stimuli.Sequences.stimulus": (
        Stimulus,
        lambda given, _: repr(Sequences(stimulus=given, tokens=TOKENS).stimulus),
    ),
    "analyses.memories.examples.examples": (Choice, lambda given, _: examples(fired(), PLACE, given)),
    "analyses.memories.examples.example_rows": (
        Choice,
        lambda given, _: example_rows(fired(), PLACE, given).to_csv(),
    ),
    "analyses.memories.tables.kind_name": (TriggerPattern, lambda given, _: kind_name(given)),
    "analyses.dynamics.axis.Time.along": (Along, lambda given, _: repr(Time(along=given).along)),
    "analyses.dynamics.figure.highlighted": (Kind, lambda given, lab: highlighted(trained(lab), given)),
    "analyses.dynamics.formation.formed": (Kind, lambda given, lab: formation.formed(trained(lab), given)),
    "analyses.dynamics.formation.found_over_training": (
        Kind,
        lambda given, lab: formation.found_over_training(trained(lab), given),
    ),
    "analyses.dynamics.formation.head_crossings": (
        Kind,
        lambda given, lab: repr(formation.head_crossings(trained(lab), given, [PLACE])),
    ),
    "analyses.dynamics.formation.head_rises": (
        Kind,
        lambda given, lab: repr(formation.head_rises(trained(lab), given, [PLACE])),
    ),
    "analyses.dynamics.formation.largest_of_others": (
        Kind,
        lambda given, lab: repr(formation.largest_of_others(trained(lab), given, [PLACE])),
    ),
    "analyses.dynamics.formation.open_for": (Kind, lambda given, lab: formation.open_for(trained(lab), given)),
    "analyses.dynamics.head_findings.heads_of_kind": (
        Kind,
        lambda given, lab: heads_of_kind(trained(lab), given),
    ),
    "analyses.dynamics.lines.heads_figure": (
        Kind,
        lambda given, lab: heads_figure(trained(lab), given, Time()).to_dict(),
    ),
    "analyses.dynamics.result.ReadingOverTraining.stimulus": (
        Stimulus,
        lambda given, lab: repr(replace(trained(lab).repeats, stimulus=given).stimulus),
    ),
    "analyses.dynamics.result.frames": (
        Kind,
        lambda given, lab: [(step, mean.tolist()) for step, mean in frames(trained(lab), given)],
    ),
    "analyses.dynamics.result.scores_over_training": (
        Kind,
        lambda given, lab: scores_over_training(trained(lab), given).mean,
    ),
    "analyses.dynamics.tables.head_rows": (
        Kind,
        lambda given, lab: head_rows(trained(lab), given, Stimulus.REPEATS, PLACE).to_csv(),
    ),
    "analyses.dynamics.tables.score_rows": (
        Kind,
        lambda given, lab: score_rows(trained(lab), given).to_csv(),
    ),
    "analyses.claims.bounds.Bound.quantity": (
        Quantity,
        lambda given, _: repr(Bound(quantity=given, at_least=True, value=1.0)),
    ),
    "analyses.claims.bounds.Judged.standing": (
        Comes,
        lambda given, _: repr(Judged(interval=bootstrap_mean(torch.ones(3)), p=1.0, standing=given)),
    ),
    "analyses.claims.statement.Statement.control": (ControlKind, lambda given, _: repr(stated(control=given))),
    "analyses.claims.statement.Statement.expected": (Comes, lambda given, _: repr(stated(expected=given))),
    "analyses.claims.statement.Statement.ffns": (FFNs, lambda given, _: repr(fed(ffns=given))),
    "analyses.claims.statement.Statement.input": (Input, lambda given, _: repr(fed(input=given))),
    "analyses.claims.statement.Statement.stated": (Stated, lambda given, _: repr(stated(stated=given))),
    "analyses.claims.usual.Usual.kind": (ControlKind, lambda given, _: repr(Usual(kind=given, why=""))),
    "analyses.claims.verdicts.Beside.kind": (
        ControlKind,
        lambda given, _: repr(Beside(kind=given, beaten=None, said="")),
    ),
    "analyses.claims.verdicts.Verdict.expected": (Comes, lambda given, _: repr(came(expected=given))),
    "analyses.claims.verdicts.Verdict.stated": (Stated, lambda given, _: repr(came(stated=given))),
    "analyses.claims.verdicts.Verdict.standing": (Comes, lambda given, _: repr(came(standing=given))),
    "analyses.composition.result.Config.split": (Split, lambda given, _: repr(CompositionConfig(split=given))),
    "analyses.ffn.config.Config.split": (Split, lambda given, _: repr(FFNConfig(split=given))),
    "analyses.gradients.initialization.Initialization.profile": (
        Norm,
        lambda given, _: initialization().profile(given, 2).w_out,
    ),
    "analyses.gradients.initialization.Initialization.slope_difference": (
        Norm,
        lambda given, _: initialization().slope_difference(given, Norm.PRE, 2),
    ),
    "analyses.gradients.initialization.Profile.placement": (Norm, lambda given, _: repr(profile_of(given).placement)),
    "analyses.gradients.initialization.Scaling.placement": (Norm, lambda given, _: repr(scaling_of(given).placement)),
    "analyses.gradients.initialization.Sweep.model": (Norm, lambda given, _: initial.Sweep().model(given, 2)),
    "analyses.gradients.initialization.Sweep.norm_kind": (
        NormKind,
        lambda given, _: repr(initial.Sweep(norm_kind=given)),
    ),
    "analyses.ablation.result.SetAblation.intervention": (
        Intervention,
        lambda given, _: repr(set_of(given).intervention),
    ),
    "analyses.ablation.result.Result.set_of": (
        Intervention,
        lambda given, _: sets().index(found) if (found := one_of_each("induction", given)) else None,
    ),
    "analyses.circuits.result.Config.corruption": (
        circuits_result.Corruption,
        lambda given, _: repr(circuits_result.Config(corruption=given)),
    ),
    "analyses.circuits.result.Config.ffns": (FFNs, lambda given, _: repr(circuits_result.Config(ffns=given))),
    "analyses.circuits.result.Config.null": (Null, lambda given, _: repr(circuits_result.Config(null=given))),
    "analyses.circuits.result.Estimated.method": (Method, lambda given, _: repr(estimated(method=given).method)),
    "analyses.circuits.result.Estimated.direction": (
        Direction,
        lambda given, _: repr(estimated(direction=given).direction),
    ),
    "analyses.circuits.result.Measured.estimated": (
        Direction,
        lambda given, _: repr(one_estimated(given).direction),
    ),
    "interp.attention_bases.signed_attention": (
        Against,
        lambda given, _: signed_attention(gpt(), TOKENS, 1, TOKENS, given).contribution,
    ),
    "interp.attention_bases.stream_direction": (Against, lambda given, _: towards(given)),
    "interp.attribution_patching.Estimates.method": (Method, lambda given, _: repr(estimates(method=given).method)),
    "interp.attribution_patching.Estimates.direction": (
        Direction,
        lambda given, _: repr(estimates(direction=given).direction),
    ),
    "interp.attribution_patching.attribution_patching": (
        Direction,
        lambda given, _: attribution_patching(*PAIR, direction=given, taps=[Tap.Z])[0].effect,
    ),
    "interp.component_composition.ComponentComposition.of": (
        Reads,
        lambda given, _: component_composition(gpt(), "L0H1").of(given)[:, 1:],
    ),
    "interp.composition.Composition.largest_z": (Reads, lambda given, _: composed().largest_z(given)),
    "interp.composition.Composition.null": (Null, lambda given, _: repr(replace(composed(), null=given).null)),
    "interp.composition.Composition.of": (Reads, lambda given, _: composed().of(given)[0, :, 1]),
    "interp.composition.Composition.over": (Over, lambda given, _: repr(replace(composed(), over=given).over)),
    "interp.composition.Composition.strongest": (Reads, lambda given, _: composed().strongest(given, n=2)),
    "interp.composition.Composition.z_of": (Reads, lambda given, _: composed().z_of(given)[0, :, 1]),
    "interp.composition.Pair.kind": (Reads, lambda given, _: repr(pair_of(given).kind)),
    "interp.component_composition.component_composition": (
        Over,
        lambda given, _: component_composition(gpt(), "L0H1", over=given, offsets=1).scores[:, :, 1:],
    ),
    "interp.composition.composition": (Null, lambda given, _: null_of(given)),
    "interp.composition_plan.planned": (Over, lambda given, _: repr(planned(gpt(), "k", given, 1, None).over)),
    "interp.composition_algebra.Plan.over": (Over, lambda given, _: repr(plan(given).over)),
    "interp.composition_algebra.readers_of": (Reads, lambda given, _: read_by(given)),
    "interp.composition_algebra.scores_between": (Over, lambda given, _: scored(given)),
    "interp.patching.Patched.direction": (Direction, lambda given, _: repr(patched_in(given).direction)),
    "interp.patching.activation_patching": (Direction, lambda given, _: patched_in(given).patched),
    "interp.path_results.PathEffects.ffns": (FFNs, lambda given, _: repr(replace(paths(), ffns=given).ffns)),
    "interp.path_results.PathEffects.scales": (Scales, lambda given, _: repr(replace(paths(), scales=given).scales)),
    "interp.paths.Receiver.input": (Input, lambda given, _: Receiver(layer=1, head=0, input=given).label),
    "interp.path_patching.path_effects": (FFNs, lambda given, _: paths(ffns=given).effect),
    "interp.path_patching.path_effects_by": (Scales, lambda given, _: paths_by(given).effect),
    "interp.vocabulary_reading.SingularReading.circuit": (Circuit, lambda given, _: repr(sung(given).circuit)),
    "analyses.importance.result.Ratio.of": (Intervention, lambda given, _: repr(ratio_of(given).of)),
    "analyses.repair.result.Config.intervention": (
        Intervention,
        lambda given, _: repr(repair_result.Config(intervention=given)),
    ),
    "interp.token_concepts.Concept.kind": (
        ConceptKind,
        lambda given, _: str(Concept(kind=given, text="", n_tokens=4)),
    ),
    "interp.trigger_deletions.TriggerDeletions.of": (Deletion, lambda given, _: cut().of(given)),
    "analyses.memories.search.Query.pattern": (TriggerPattern, lambda given, _: repr(Query(pattern=given))),
    "analyses.memories.search.Query.state": (MemoryState, lambda given, _: repr(Query(state=given))),
    "analyses.promotion.controls.control_of": (
        promotion_result.ControlKind,
        lambda given, _: repr(control_of(given, "", [wrote(0.1)], wrote(0.5), wrote(0.6))),
    ),
    "analyses.promotion.result.Control.kind": (
        promotion_result.ControlKind,
        lambda given, _: repr(promoting(given).kind),
    ),
    "analyses.promotion.result.Result.control": (
        promotion_result.ControlKind,
        lambda given, _: repr(promotion_result.Result.control(promotions(), given).kind),
    ),
    "interp.repaired.Component.part": (Part, lambda given, _: repr(Component(label="L0H0", layer=0, part=given))),
    "analyses.views.embed.embed": (View, lambda given, _: embed(given, GRID)),
    "analyses.views.embed.page": (View, lambda given, _: page(given, GRID, "toy")),
    "analyses.views.embed.Shown.view": (View, lambda given, _: repr(Shown(given, GRID).view)),
    "analyses.views.embed.shown": (View, lambda given, _: shown(given, GRID)),
    "analyses.views.lens_table.lens_table_payload": (
        Cells,
        lambda given, lab: lens_table_payload(lens_on(lab, "repeats", ""), cells=given)["cells"],
    ),
    "analyses.views.payload_shapes.payload_fault": (View, lambda given, _: payload_fault(given, GRID)),
    "analyses.views.sources.sources": (View, lambda given, _: sources(given)),
}
"""What takes a choice, and a look at what it does with one."""


def members(name: str) -> list[StrEnum]:
    """The choices that mean something there: what is scored elsewhere than on repeats is no finding."""
    elsewhere = {Kind.MATCH, Kind.LATER, Kind.PREFIX_MATCHING, Kind.POSITIONAL, Kind.COPYING}
    absent = elsewhere if name.startswith(("analyses.attention.result.", "analyses.attention.items.")) else set()
    absent |= set(Kind) - set(WORDS) if name.startswith("analyses.attention.items.") else set()
    absent |= elsewhere - {Kind.LATER} if name.startswith("analyses.dynamics.") else set()
    absent |= set(Kind) - set(WORDS) if name.endswith(".heads_of_kind") else set()
    drawn = {Kind.INDUCTION, Kind.ENTROPY}  # a figure takes a while
    absent |= set(Kind) - drawn if name.endswith(".heads_figure") else set()
    of_z = name == "analyses.circuits.result.Config.null"  # which these have not, or from a second model alone
    absent |= {Null.UNTRAINED, Null.PERMUTED} if of_z else set()
    of_text = name == "analyses.repair.result.Config.intervention"  # where nothing is corrupted or fitted
    absent |= set(Intervention) - set(repair_result.ALLOWED) if of_text else set()
    absent |= {ControlKind.INPUTS} if name == "analyses.claims.statement.Statement.control" else set()  # of a path
    absent |= {Comes.UNDECIDED} if name == "analyses.claims.statement.Statement.expected" else set()
    absent |= {Intervention.COUNTERFACTUAL} if name in _ON_ONE_TEXT else set()  # no twin
    fitting = {"interp.effects.ablate", "interp.side_by_side.side_by_side", "interp.pattern_changes.pattern_changes"}
    absent |= {Intervention.OPTIMAL} if name in fitting else set()  # fitted; on one text is enough
    changes = {kind for kind in Intervention if not kind.removes} - ({Intervention.SWAP} if name in _ALONE else set())
    absent |= changes if name in (*_OF_A_HEAD, *_ALONE) else set()  # want a number, or a second place
    return [member for member in CASES[name][0] if member not in absent]


_ON_ONE_TEXT = ("interp.token_effects.token_effects", "interp.pattern_changes.pattern_changes")
_OF_A_HEAD = (
    *("interp.ablation.ablated", "interp.ablation.hooks_for", "interp.effects.ablate"),
    "interp.side_by_side.side_by_side",
    *_ON_ONE_TEXT,
)
_ALONE = (
    *("interp.places.Place.intervention", "interp.places.head", "interp.places.memory", "interp.places.stating"),
    "interp.resolved_places.resolve_places",
    *("interp.intervention_kinds.parse_stated", "interp.intervention_kinds.require_amount"),
)


@pytest.mark.parametrize("name", CASES)
def test_a_value_does_what_its_member_does(name: str, lab: Lab) -> None:
    _, does = CASES[name]
    for member in members(name):
        expected, found = does(member, lab), does(member.value, lab)
        assert torch.equal(expected, found) if isinstance(expected, Tensor) else expected == found


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_choice_is_refused_with_the_choices(name: str, lab: Lab) -> None:
    choices, does = CASES[name]
    first = members(name)[0]
    for wrong in ("foo", f" {first.value}", *([first.name] if first.name != first.value else [])):
        with pytest.raises((ConfigError, InputError), match=f'"{wrong}".* {list(choices)[-1].value}'):
            does(wrong, lab)


@pytest.mark.parametrize("name", ["interp.ablation.ablated", "interp.attribution.logit_attribution"])
def test_each_choice_gives_other_numbers(name: str, lab: Lab) -> None:
    """Otherwise no value could be told from another."""
    found = [CASES[name][1](member, lab) for member in members(name)]
    assert not any(torch.equal(one, other) for place, one in enumerate(found) for other in found[:place])


def test_everything_that_takes_a_choice_is_tried_here() -> None:
    assert sorted(set(takers())) == sorted(CASES)


def takers() -> Iterator[str]:
    """Every public function, method and dataclass field of interp and analyses with a `StrEnum` among its types."""
    for module in modules():
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
                continue
            where = f"{module.__name__}.{name}"
            if is_dataclass(value) and isinstance(value, type):
                yield from (f"{where}.{each.name}" for each in fields(value) if named_in(each.type, module))
            if inspect.isfunction(value) and any(named_in(each, module) for each in parameters_of(value)):
                yield where
            for method, function in vars(value).items() if isinstance(value, type) else ():
                public = not method.startswith("_") or method == "__getitem__"
                if (
                    public
                    and inspect.isfunction(function)
                    and any(named_in(p, module) for p in parameters_of(function))
                ):
                    yield f"{where}.{method}"


def parameters_of(function: Any) -> list[Any]:
    found = inspect.signature(inspect.unwrap(function)).parameters.values()
    return [parameter.annotation for parameter in found]


def named_in(annotation: Any, module: ModuleType) -> bool:
    """Whether a choice can be meant by itself, not as the key of a table."""
    among = re.fullmatch(r"Sequence\[(.*)\]", str(annotation))  # several of them
    parts = [part.strip() for part in (among[1] if among else str(annotation)).split("|")]
    meant = [getattr(module, part, None) for part in parts if part.isidentifier()]
    return any(isinstance(each, type) and issubclass(each, StrEnum) for each in meant)


def modules() -> Iterator[ModuleType]:
    for package in (interp, analyses):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name != "interp.audit.reference":  # the model once more, from its config, which is checked
                yield importlib.import_module(found.name)
