"""Measuring promotion: which memories, at which coefficients, against which sets, and what a model then writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.memory_promotion_memories import Chosen, own_largest, writing_as_much
from analyses.memory_promotion_result import (
    Config,
    Control,
    ControlKind,
    Doses,
    Result,
    Sample,
    Start,
)
from analyses.registry import Progress
from interp.concept_memories import TokenSet, chosen_concept, named_concept, standout
from interp.controls import control_p
from interp.matched_places import in_order, matched_places
from interp.memory_stream import require_memories
from interp.places import Place, memory
from interp.promotion import Sampling, Written, written
from interp.stats import Interval, bootstrap_mean, bootstrap_means, holm, sign_flip_ps
from interp.trials import text_trial
from model.config import GPTConfig
from model.errors import InputError
from model.gpt import GPT
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
    n_runs = 1 + len(config.doses) + 4 * config.n_sets + (0 if first is None else 2)
    writing = _Writing(prompts=prompts, concept=concept, sampling=sampling, counted=_Counted(progress, n_runs))
    chosen = Chosen.of(subject.gpt, trial.reference, found, config)
    plain = writing.of(subject.gpt)
    doses = [writing.of(subject.gpt, chosen.at(strength)) for strength in config.doses]
    on = doses[config.doses.index(config.strength)]
    controls = tuple(_controls(subject.gpt, chosen, writing, plain, on, doses[0], config))
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
        slope=bootstrap_mean(_slopes(doses, config), seed=config.seed),
        controls=controls,
        samples=_samples(subject.tokenizer, prompts, concept, plain, on),
        start=None if first is None else _start(first, trial.reference, concept, writing, config),
    )


def lengths(model: GPTConfig, config: Config) -> tuple[int, int]:
    """Tokens of a prompt, and of what is generated: what was asked for, or what fits; refused where that does not."""
    n_prompt = config.n_prompt_tokens or max(1, min(32, model.n_ctx // 2))
    room = model.n_ctx - n_prompt + 1
    n_new = config.n_new_tokens or min(24, room)
    if n_new > room or room < 1:
        raise InputError(
            f"{n_prompt} tokens of a prompt and {n_new} more exceed n_ctx={model.n_ctx}; ask for smaller "
            "n_prompt_tokens or n_new_tokens."
        )
    return n_prompt, n_new


@dataclass(frozen=True, kw_only=True, eq=False)
class _Writing:
    """What is continued, how, and what is counted in it."""

    prompts: Int[Tensor, "prompt pos"]
    concept: TokenSet
    sampling: Sampling
    counted: Callable[[], None]

    def of(self, gpt: GPT, places: Sequence[Place] = (), directions: Mapping[int, Tensor] | None = None) -> Written:
        """What the model writes with these places in force."""
        found = written(gpt, self.prompts, self.concept.member, self.sampling, places, directions)
        self.counted()
        return found


class _Counted:
    """How many runs are done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self) -> None:
        self.done = min(self.done + 1, self.total)
        if self.progress is not None:
            self.progress(self.done, self.total, "generating")


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


def _slopes(doses: Sequence[Written], config: Config) -> Float[Tensor, " prompt"]:
    """Of a straight line through the share at every strength, prompt by prompt."""
    strength = torch.tensor(config.doses, dtype=torch.float64)
    centred = strength - strength.mean()
    return torch.stack([each.share for each in doses], dim=1) @ centred / centred.square().sum()


def _controls(
    gpt: GPT, chosen: Chosen, writing: _Writing, plain: Written, on: Written, off: Written, config: Config
) -> Iterator[Control]:
    """Every kind of control; the memories stand in the order in which matched sets have theirs."""
    bare = [memory(*each) for each in chosen.memories]
    strata = chosen.strata
    anyone = matched_places(bare, gpt.config, limit=config.n_sets, seed=config.seed)
    alike = matched_places(bare, gpt.config, limit=config.n_sets, seed=config.seed + 1, strata=strata)
    own = own_largest(_numbers(in_order(bare, gpt.config, strata)), chosen.activity, config.strength)
    sets = {
        ControlKind.RANDOM: (
            anyone,
            [own_largest(_numbers(each), chosen.activity, config.strength) for each in anyone.sets],
        ),
        ControlKind.MATCHED: (alike, [writing_as_much(_numbers(each), own, chosen.activity) for each in alike.sets]),
        ControlKind.OFF: (alike, [own_largest(_numbers(each), chosen.activity, 0.0) for each in alike.sets]),
    }
    for kind, (matched, several) in sets.items():
        found = [writing.of(gpt, places) for places in several]
        yield control_of(kind, matched.note, found, plain, off if kind is ControlKind.OFF else on)
        if kind is ControlKind.MATCHED:
            yield _directions(gpt, own, writing, plain, on, config)


def _directions(
    gpt: GPT, own: Sequence[Place], writing: _Writing, plain: Written, on: Written, config: Config
) -> Control:
    """The same coefficients with random directions, as long as the values that they stand for."""
    generator = torch.Generator().manual_seed(config.seed)
    rows = {layer: [place.index or 0 for place in own if place.layer == layer] for layer, _ in _numbers(own)}
    values = {layer: _values(gpt, layer)[numbers].float().cpu() for layer, numbers in sorted(rows.items())}
    found = []
    for _ in range(config.n_sets):
        directions = {}
        for layer, their in values.items():
            drawn = torch.randn(their.shape, generator=generator)
            directions[layer] = drawn / drawn.norm(dim=-1, keepdim=True) * their.norm(dim=-1, keepdim=True)
        found.append(writing.of(gpt, own, directions))
    note = f"{config.n_sets} draws of random directions as long as the values, at the same coefficients"
    return control_of(ControlKind.DIRECTION, note, found, plain, on)


def _values(gpt: GPT, layer: int) -> Float[Tensor, "memory d_model"]:
    ffn = gpt.layers[layer].mlp
    if ffn is None:
        raise RuntimeError("models without FFNs were refused")
    return ffn.W_out


def control_of(kind: ControlKind, note: str, found: Sequence[Written], plain: Written, own: Written) -> Control:
    """The changes of each set, and the rank of the memories' own among them: of falls, where they are turned off."""
    sign = -1 if kind is ControlKind.OFF else 1

    def change(read: Callable[[Written], Tensor]) -> tuple[float, Tensor]:
        base = read(plain).mean()
        each = [float(read(one).mean() - base) for one in found]
        return float(read(own).mean() - base), torch.tensor(each, dtype=torch.float64)

    (share, shares), (mass, masses) = change(lambda each: each.share), change(lambda each: each.mass)
    _, losses = change(lambda each: each.loss)
    return Control(
        kind=kind,
        note=note,
        share_change=shares,
        mass_change=masses,
        loss_change=losses,
        p=control_p(sign * share, sign * shares) if len(shares) else None,
        p_mass=control_p(sign * mass, sign * masses) if len(masses) else None,
    )


def _numbers(places: Sequence[Place]) -> list[tuple[int, int]]:
    return [(place.layer, place.index or 0) for place in places]


def _start(first: Lab, reference: Tensor, concept: TokenSet, writing: _Writing, config: Config) -> Start:
    """The same concept, prompts and strength at step 0, where other memories stand out."""
    found = standout(first.gpt, concept.member[None])[0]
    chosen = Chosen.of(first.gpt, reference, found, config)
    plain, on = writing.of(first.gpt), writing.of(first.gpt, chosen.at(config.strength))
    return Start(
        share=float(plain.share.mean()),
        share_change=_interval(on.share - plain.share, config),
        mass_change=_interval((on.mass - plain.mass).mean(1), config),
        standout=float(torch.tensor([float(found[each]) for each in chosen.memories]).mean()),
    )


def _interval(values: Float[Tensor, " prompt"], config: Config) -> Interval:
    return bootstrap_mean(values, seed=config.seed)


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
