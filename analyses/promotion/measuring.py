"""Measuring promotion: which memories, at which coefficients, against which sets, and what a model then writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.promotion.controls import controls
from analyses.promotion.memories import Chosen
from analyses.promotion.result import Config, Doses, Result, Sample, Start
from analyses.promotion.writing import Counted, Writing, lengths, slopes
from analyses.registry import Progress
from interp.concept_memories import TokenSet, chosen_concept, named_concept, standout
from interp.memory_stream import require_memories
from interp.promotion import Sampling, Written
from interp.stats import Interval, bootstrap_mean, bootstrap_means, holm, sign_flip_ps
from interp.trials import text_trial
from model.lab import Lab
from model.tokenizer import Tokenizer

_SAMPLES, _REFERENCE = 3, 256


def measured(subject: Lab, first: Lab | None, config: Config, progress: Progress | None) -> Result:
    """Everything that is asked of one checkpoint, and of step 0 where there is one beside it."""
    require_memories(subject.config)
    n_prompt, n_new = lengths(subject.config, config)
    trial = text_trial(subject, n_sequences=max(config.n_prompts, _REFERENCE), seed=config.seed)
    text = trial.reference if subject.tokenizer.bos is None else trial.reference[:, 1:]
    prompts = trial.measured[: config.n_prompts, :n_prompt]
    if config.concept:
        concept = named_concept(config.concept, subject.tokenizer)
        found = standout(subject.gpt, concept.member[None])[0]
    else:
        concept, found = chosen_concept(subject.gpt, subject.tokenizer, text, config.n_memories)
    sampling = Sampling(
        n_new_tokens=n_new, n_generations=config.n_generations, temperature=config.temperature, seed=config.seed
    )
    counted = Counted(progress, _n_runs(config, has_start=first is not None))
    writing = Writing(prompts=prompts, concept=concept, sampling=sampling, counted=counted)
    chosen = Chosen.of(subject.gpt, trial.reference, found, config)
    plain, doses = writing.of(subject.gpt), writing.at_doses(subject.gpt, chosen, config)
    on = doses[config.doses.index(config.strength)]
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        tokens_seen=subject.tokens_seen,
        concept=concept.name,
        tokens=concept.tokens,
        is_chosen=not config.concept,
        use=concept.share_of(text),
        kind=trial.kind,
        n_reference=trial.reference.numel(),
        n_prompts=len(prompts),
        n_prompt_tokens=n_prompt,
        n_new_tokens=n_new,
        memories=chosen.promoters(subject.gpt, subject.tokenizer),
        plain_share=bootstrap_mean(plain.share, seed=config.seed),
        plain_mass=plain.mass.mean(0),
        plain_loss=float(plain.loss.mean()),
        plain_distinct=float(plain.distinct.mean()),
        doses=_doses(plain, doses, config),
        slope=bootstrap_mean(slopes(doses, config), seed=config.seed),
        controls=tuple(controls(subject.gpt, chosen, writing, plain, doses, config)),
        samples=_samples(subject.tokenizer, prompts, concept, plain, on),
        start=None if first is None else _start(first, trial.reference, (plain, *doses), writing, config),
    )


def _n_runs(config: Config, *, has_start: bool) -> int:
    """Runs at every strength: the model's and those of matched sets, which are the off ones too; at one, two kinds."""
    curve = len(config.doses)
    return (1 + curve) * (2 if has_start else 1) + config.n_sets * (2 + curve)


def _doses(plain: Written, doses: Sequence[Written], config: Config) -> Doses:
    share = torch.stack([each.share for each in doses], dim=1)
    change = share - plain.share[:, None]

    def changed(read: Callable[[Written], Tensor]) -> Float[Tensor, "prompt dose"]:
        return torch.stack([read(each) - read(plain) for each in doses], dim=1)

    def spread(values: Float[Tensor, "prompt dose"]):  # noqa: ANN202
        return bootstrap_means(values, seed=config.seed)

    return Doses(
        strengths=config.doses,
        share=spread(share),
        share_change=spread(change),
        mass_by_step=torch.stack([each.mass.mean(0) for each in doses]),
        mass_change=spread(changed(lambda each: each.mass.mean(1))),
        first_change=spread(changed(lambda each: each.mass[:, 0])),
        loss_change=spread(changed(lambda each: each.loss)),
        distinct_change=spread(changed(lambda each: each.distinct)),
        p=holm(sign_flip_ps(change, seed=config.seed)),
    )


def _start(first: Lab, reference: Tensor, here: tuple[Written, ...], writing: Writing, config: Config) -> Start:
    """The same concept, prompts and strengths at step 0, where other memories stand out.

    `here` is what this step writes, as it is and at each strength.
    """
    found = standout(first.gpt, writing.concept.member[None])[0]
    chosen = Chosen.of(first.gpt, reference, found, config)
    there = (writing.of(first.gpt), *writing.at_doses(first.gpt, chosen, config))

    def beside(read: Callable[[tuple[Written, ...]], Tensor]) -> tuple[Interval, Interval]:
        """What is read of step 0, and by how much this step exceeds it."""
        own, at_zero = read(here), read(there)
        return bootstrap_mean(at_zero, seed=config.seed), bootstrap_mean(own - at_zero, seed=config.seed)

    on, off = 1 + config.doses.index(config.strength), 1 + config.doses.index(0.0)
    share_change, share_lead = beside(lambda each: each[on].share - each[0].share)
    first_change, first_lead = beside(lambda each: (each[on].mass - each[0].mass)[:, 0])
    slope, slope_lead = beside(lambda each: slopes(each[1:], config))
    off_change, off_lead = beside(lambda each: each[off].share - each[0].share)
    return Start(
        share=float(there[0].share.mean()),
        share_change=share_change,
        share_lead=share_lead,
        first_change=first_change,
        first_lead=first_lead,
        slope=slope,
        slope_lead=slope_lead,
        off_change=off_change,
        off_lead=off_lead,
        standout=float(torch.tensor([float(found[each]) for each in chosen.memories]).mean()),
    )


def _samples(
    tokenizer: Tokenizer, prompts: Tensor, concept: TokenSet, plain: Written, on: Written
) -> tuple[Sample, ...]:
    """The first prompts and the first text of each."""
    member = concept.member
    return tuple(
        Sample(
            prompt=tuple(tokenizer.str_tokens(prompts[row])),
            plain=tuple(tokenizer.str_tokens(plain.text[row, 0])),
            promoted=tuple(tokenizer.str_tokens(on.text[row, 0])),
            in_concept=tuple(member[on.text[row, 0]].tolist()),
            plain_in_concept=tuple(member[plain.text[row, 0]].tolist()),
        )
        for row in range(min(_SAMPLES, len(prompts)))
    )
