"""One checkpoint after another on the same sequences: scores of every head, and losses (for training-dynamics).

Scores are by the functions of attention-patterns, but for three: fixed distances, which would be chosen anew at every
checkpoint, prefix matching and copying, which need sequences of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.attention.kinds import Kind, chance_levels, functions_on
from analyses.attention.stimuli import Sequences, Stimulus, decisive, period_of, sequences_for
from analyses.dynamics.result import CROSSED, Config, LossOverTraining, OverTraining, ReadingOverTraining
from interp.outcomes import Outcome, copy_outcome, first_copy_outcome, fitting_batch, get_outcome, token_losses
from interp.patterns import ScoreFunction, pattern_scores
from interp.requirements import require_next_token
from interp.stats import Intervals, bootstrap_means
from model.checkpoint import checkpoint_path, checkpoint_steps, load_checkpoint, read_manifest, step_of
from model.errors import CheckpointError
from model.gpt import GPT
from model.lab import Lab

_FEWEST_FOR_ICL = 11
"""Positions of a text from which late ones can be told from early ones."""


def shown_to(lab: Lab, config: Config) -> tuple[Sequences, ...]:
    """Repeats at the period that decides, their re-ordered control, and text: those of attention-patterns."""
    periods = () if config.period is None else (config.period,)
    every = sequences_for(lab, periods=periods, n_sequences=config.n_sequences, n_text=config.n_text, seed=config.seed)
    control = next(each for each in every if each.stimulus is Stimulus.CONTROL)
    text = [each for each in every if each.stimulus is Stimulus.TEXT]
    return (decisive(every), control, *text)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint, opened."""

    step: int
    tokens_seen: int
    gpt: GPT


def opened(lab: Lab, steps: Sequence[int], told: Callable[[str], None]) -> Iterator[Checkpoint]:
    """The checkpoints of a run one by one, the lab's own as it is; of one that is damaged `told` gets a sentence."""
    for step in steps:
        folder = checkpoint_path(lab.path, step)
        if step == lab.step:
            yield Checkpoint(step=step, tokens_seen=lab.tokens_seen, gpt=lab.gpt)
            continue
        try:
            gpt, seen = load_checkpoint(folder, lab.gpt.device), read_manifest(folder).tokens_seen
        except CheckpointError as error:
            told(f"Step {step} is left out: {error}")
            continue
        yield Checkpoint(step=step, tokens_seen=seen, gpt=gpt)


def incomplete(lab: Lab) -> list[str]:
    """A sentence for each checkpoint up to the lab's own of which files are missing."""
    whole = set(checkpoint_steps(lab.path))
    there = {step_of(folder) for folder in (lab.path / "checkpoints").glob("step-*")}
    lost = sorted(step for step in there if step is not None and step < lab.step and step not in whole)
    return [f"Step {step} is left out: its checkpoint is incomplete." for step in lost]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every checkpoint is asked."""

    sequences: Sequences
    functions: dict[str, ScoreFunction]
    outcomes: tuple[Outcome, ...]
    judged: Int[Tensor, "row pos"]
    """What the outcomes are measured on: the sequences themselves; of text more rows, which cost little there."""
    by_position: bool

    @classmethod
    def about(cls, sequences: Sequences, lab: Lab, config: Config) -> Asked:
        """The scores and outcomes that mean something on these sequences."""
        functions = functions_on(sequences)
        functions.pop(Kind.POSITIONAL.value, None)
        is_text = sequences.stimulus is Stimulus.TEXT
        outcomes: list[Outcome] = []
        if sequences.stimulus is Stimulus.REPEATS:
            outcomes = [copy_outcome(period_of(sequences)), first_copy_outcome(period_of(sequences))]
        elif is_text:
            outcomes = [get_outcome("text_loss", period=2)]
            if sequences.tokens.shape[1] >= _FEWEST_FOR_ICL:
                outcomes.append(get_outcome("icl_score", period=2))
        judged = lab.eval_tokens[: config.n_judged].cpu() if is_text else sequences.tokens
        return cls(
            sequences=sequences, functions=functions, outcomes=tuple(outcomes), judged=judged, by_position=is_text
        )

    @torch.no_grad()
    def of(self, gpt: GPT) -> Answers:
        """Scores and outcomes of one checkpoint."""
        require_next_token(gpt)
        scores = pattern_scores(gpt, self.sequences.tokens, self.functions)
        values, positions = [], []
        for batch in self.judged.split(fitting_batch(gpt, self.judged.shape[1])) if self.outcomes else ():
            here = batch.to(gpt.device)
            logits = gpt(here)
            values.append(torch.stack([each.of_logits(logits, here).double().cpu() for each in self.outcomes], 1))
            if self.by_position:
                positions.append(token_losses(logits, here).float().cpu())
        return Answers(
            scores=scores,
            outcomes=torch.cat(values) if values else None,
            by_position=torch.cat(positions) if positions else None,
        )


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What one checkpoint answered on one kind of sequence."""

    scores: dict[str, Float[Tensor, "sequence layer head"]]
    outcomes: Float[Tensor, "row outcome"] | None
    by_position: Float[Tensor, "row target"] | None


def reading_of(asked: Asked, answers: Sequence[Answers], config: Config) -> ReadingOverTraining:
    """The scores of every checkpoint with their intervals; kinds of which too few sequences hold a target left out."""
    sequences = asked.sequences
    levels = chance_levels(asked.functions, sequences.tokens)
    keeps = sequences.stimulus is Stimulus.REPEATS
    scores: dict[str, OverTraining] = {}
    for name in asked.functions:
        values = torch.stack([each.scores[name] for each in answers])
        whole = values.isfinite().flatten(2).all(2).all(0)
        if int(whole.sum()) < 2:
            continue
        values = values[:, whole]
        scores[name] = OverTraining(
            intervals=_intervals(values.transpose(0, 1), config),
            chance=levels[name],
            values=values if keeps and name in CROSSED else None,
        )
    return ReadingOverTraining(
        stimulus=sequences.stimulus,
        period=sequences.period,
        trained=sequences.trained,
        n_sequences=len(sequences.tokens),
        n_pos=sequences.tokens.shape[1],
        scores=scores,
    )


def losses_of(asked: Asked, answers: Sequence[Answers], config: Config) -> dict[str, LossOverTraining]:
    """The outcomes of every checkpoint by name; on repeats also what copying earns, first minus second copy."""
    found: dict[str, LossOverTraining] = {}
    for index, outcome in enumerate(asked.outcomes):
        values = torch.stack([each.outcomes[:, index] for each in answers if each.outcomes is not None])
        found[outcome.name] = _loss(outcome.meaning, values, config)
    if asked.sequences.stimulus is Stimulus.REPEATS:
        earned = found["first_copy_loss"].values - found["copy_loss"].values
        found["copying"] = _loss("loss on the first copy minus loss on the second", earned, config)
    return found


def by_position(answers: Sequence[Answers], config: Config) -> Intervals | None:
    """Loss on text at each target, [step, target]."""
    kept = [each.by_position for each in answers if each.by_position is not None]
    return _intervals(torch.stack(kept, 1), config) if kept else None


def _loss(meaning: str, values: Float[Tensor, "step sequence"], config: Config) -> LossOverTraining:
    return LossOverTraining(meaning=meaning, values=values, intervals=_intervals(values.T, config))


def _intervals(values: Float[Tensor, " sequence *shape"], config: Config) -> Intervals:
    return bootstrap_means(values, config.n_resamples, config.seed, config.level)
