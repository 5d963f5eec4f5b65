"""The memories that are turned on, and those of the controls: which, and at which coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from analyses.promotion.result import ALIVE, Config, Promoter
from interp.activity import MemoryActivity, activity_strata, memory_activity
from interp.concept_memories import best_memories
from interp.matched_places import Strata
from interp.memory_values import value_scores
from interp.places import Place, memory
from model.errors import InputError
from model.gpt import GPT
from model.tokenizer import Tokenizer

_TOP = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """The memories that stand out most, with how active all are."""

    memories: tuple[tuple[int, int], ...]
    """(layer, memory), the one that stands out most first."""
    found: Float[Tensor, "layer memory"]
    """How far each stands out."""
    activity: MemoryActivity

    @classmethod
    def of(cls, gpt: GPT, reference: Int[Tensor, "sequence pos"], found: Tensor, config: Config) -> Chosen:
        """Of those that are ever active on the reference text."""
        activity = memory_activity(gpt, reference)
        alive = activity.largest > ALIVE
        best = best_memories(found, alive, config.n_memories)
        if not best:
            raise InputError(
                "no memory of this model has a coefficient above zero on the held-out text, so there is none to turn "
                "on; study a checkpoint whose FFNs are active."
            )
        return cls(memories=tuple(best), found=found, activity=activity)

    @property
    def strata(self) -> Strata:
        """Which memories usually write about as much."""
        return activity_strata(self.activity)

    def at(self, strength: float) -> tuple[Place, ...]:
        """The memories at that multiple of their largest coefficients."""
        return own_largest(self.memories, self.activity, strength)

    def promoters(self, gpt: GPT, tokenizer: Tokenizer) -> tuple[Promoter, ...]:
        """What there is to say of each."""
        unembed, several = gpt.folded_unembed(), []
        for layer, index in self.memories:
            scores = value_scores(gpt, layer, slice(index, index + 1), unembed)[0]
            several.append(
                Promoter(
                    label=memory(layer, index).label,
                    standout=float(self.found[layer, index]),
                    largest=float(self.activity.largest[layer, index]),
                    firing=float(self.activity.firing[layer, index]),
                    top=tuple(tokenizer.str_tokens(scores.topk(min(_TOP, len(scores))).indices)),
                )
            )
        return tuple(several)


def own_largest(memories: Sequence[tuple[int, int]], activity: MemoryActivity, strength: float) -> tuple[Place, ...]:
    """Memories set to a multiple of the largest coefficient that each reaches; one that is never active stays at 0."""
    return tuple(_set(*each, strength * max(0.0, float(activity.largest[each]))) for each in memories)


def writing_as_much(
    memories: Sequence[tuple[int, int]], own: Sequence[Place], activity: MemoryActivity
) -> tuple[Place, ...]:
    """Memories set so that each writes as long a vector as the place it stands for; one without a value is at 0."""
    made = []
    for each, place in zip(memories, own, strict=True):
        length = abs(_coefficient(place)) * float(activity.value_norm[place.layer, place.number])
        norm = float(activity.value_norm[each])
        made.append(_set(*each, length / norm if norm > 0 else 0.0))
    return tuple(made)


def _coefficient(place: Place) -> float:
    if place.amount is None:
        raise InputError(f"{place} is set to no number, so that nothing can write as much; write it as L1M37:set=2.5.")
    return place.amount


def _set(layer: int, index: int, coefficient: float) -> Place:
    return memory(layer, index, f"set={coefficient!r}")
