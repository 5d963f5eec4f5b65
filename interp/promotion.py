"""Turning memories on while a model writes: do the tokens that their values promote come more often?

Geva et al. (2022, arXiv 2203.14680) keep a few values on by giving them a coefficient at every token that is
generated, and GPT-2 becomes less toxic. Here coefficients are set by `interp.ablation` (`L1M37:set=2.5`), at every
position of prompt and text, with the key-value cache. What is counted, prompt by prompt:

* the share of generated tokens that are of the concept, and the probability that the model gives the concept at each
  step (at temperature 1, whatever is sampled with). At the first step all models read the same prompt; later ones read
  what they have written themselves;
* what it costs: the loss of the text under the model as it is, in nats per generated token, and the share of distinct
  tokens among those generated.

The same random numbers are used for every model, so that texts differ where the models do. A prompt is the unit: texts
of one prompt are averaged.

What it does not show: that this is what the memories do by themselves. They never fire all at once, nor everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.ablation import ablated
from interp.places import Place
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import Hook


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How text is generated."""

    n_new_tokens: int
    n_generations: int
    """Texts for each prompt."""
    temperature: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a model wrote behind each prompt, and how much of it is of the concept; float64 on the CPU."""

    text: Int[Tensor, "prompt generation new_token"]

    share: Float[Tensor, " prompt"]
    """Share of the generated tokens that are of the concept."""

    mass: Float[Tensor, "prompt new_token"]
    """Probability of the concept at each step."""

    loss: Float[Tensor, " prompt"]
    """Nats per generated token, under the model without edits."""

    distinct: Float[Tensor, " prompt"]
    """Distinct tokens among the generated ones, as a share of them."""


@torch.no_grad()
def written(
    gpt: GPT,
    prompts: Int[Tensor, "prompt pos"],
    member: Bool[Tensor, " d_vocab"],
    sampling: Sampling,
    places: Sequence[Place] = (),
    directions: Mapping[int, Float[Tensor, "memory d_model"]] | None = None,
) -> Written:
    """Continue every prompt with `places` replaced all along, which need nothing but their numbers.

    With `directions`, the places of a layer write these instead of their values, row by row in the order of `places`.
    """
    texts, masses = [], []
    rows = prompts.to(gpt.device).repeat_interleave(sampling.n_generations, 0)
    whole = prompts.shape[1] + sampling.n_new_tokens
    for number, part in enumerate(rows.split(_fitting(gpt, whole))):
        told = _Told(member.to(gpt.device))
        with _edited(gpt, places, directions), gpt.hooks(fwd_hooks=[(Tap.LOGITS.at(), told.look)]):
            texts.append(
                gpt.generate(
                    part,
                    max_new_tokens=sampling.n_new_tokens,
                    temperature=sampling.temperature,
                    seed=sampling.seed + number,
                )
            )
        masses.append(torch.stack(told.mass, dim=1))
    text = torch.cat(texts)
    new = text[:, prompts.shape[1] :].cpu()
    by_prompt = (len(prompts), sampling.n_generations)
    loss = torch.cat([_losses(gpt, part, sampling.n_new_tokens) for part in text.split(_fitting(gpt, whole))])
    distinct = torch.tensor([len(row.unique()) / len(row) for row in new], dtype=torch.float64)
    return Written(
        text=new.unflatten(0, by_prompt),
        share=member[new].double().mean(1).unflatten(0, by_prompt).mean(1),
        mass=torch.cat(masses).double().cpu().unflatten(0, by_prompt).mean(1),
        loss=loss.unflatten(0, by_prompt).mean(1),
        distinct=distinct.unflatten(0, by_prompt).mean(1),
    )


class _Told:
    """The probability of some tokens at each step."""

    def __init__(self, member: Tensor) -> None:
        self.member = member
        self.mass: list[Tensor] = []

    def look(self, logits: Tensor, hook: Hook) -> None:
        del hook
        last = logits[:, -1]
        last = last.to(torch.promote_types(last.dtype, torch.float32))
        self.mass.append(last.softmax(-1)[:, self.member].sum(-1))


@contextmanager
def _edited(gpt: GPT, places: Sequence[Place], directions: Mapping[int, Tensor] | None) -> Iterator[None]:
    """The model with its places replaced, and perhaps values, until the `with` ends."""
    if not places:
        yield
        return
    with _values_replaced(gpt, places, directions or {}), ablated(gpt, tuple(places)):
        yield


@contextmanager
def _values_replaced(gpt: GPT, places: Sequence[Place], directions: Mapping[int, Tensor]) -> Iterator[None]:
    """Other rows in W_out for the memories among `places`; the model's own are put back, however it ends."""
    rows = {layer: [place.number for place in places if place.layer == layer] for layer in directions}
    tables = {
        layer: block.mlp.W_out for layer, block in enumerate(gpt.layers) if layer in rows and block.mlp is not None
    }
    kept = {layer: table[rows[layer]].clone() for layer, table in tables.items()}
    try:
        for layer, table in tables.items():
            table[rows[layer]] = directions[layer].to(table)
        yield
    finally:
        for layer, table in tables.items():
            table[rows[layer]] = kept[layer]


def _losses(gpt: GPT, text: Int[Tensor, "row pos"], n_new: int) -> Float[Tensor, " row"]:
    """Nats per generated token under the model as it is."""
    logits = gpt(text)[:, -n_new - 1 : -1]
    nats = torch.nn.functional.cross_entropy(logits.double().transpose(1, 2), text[:, -n_new:], reduction="none")
    return nats.mean(1).cpu()


def _fitting(gpt: GPT, n_pos: int) -> int:
    """Rows at a time: their logits at all positions take at most a quarter of a gigabyte."""
    return max(1, _LOGITS // (n_pos * gpt.config.d_vocab))


_LOGITS = 2**26
"""Logits held at once, at most."""
