"""What is continued in a study of promotion, how, and how much of the work is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.promotion.memories import Chosen
from analyses.promotion.result import Config
from analyses.registry import Progress
from interp.concept_memories import TokenSet
from interp.places import Place
from interp.promotion import Sampling, Written, written
from interp.stats import ols_slope
from model.config import GPTConfig
from model.errors import InputError
from model.gpt import GPT


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
class Writing:
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

    def at_doses(self, gpt: GPT, chosen: Chosen, config: Config) -> tuple[Written, ...]:
        """What it writes with the chosen memories at each strength."""
        return tuple(self.of(gpt, chosen.at(strength)) for strength in config.doses)


class Counted:
    """How many runs are done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self) -> None:
        """One more is done."""
        self.done = min(self.done + 1, self.total)
        if self.progress is not None:
            self.progress(self.done, self.total, "generating")


def slopes(doses: Sequence[Written], config: Config) -> Float[Tensor, " prompt"]:
    """Of a straight line through the share at every strength, prompt by prompt."""
    return ols_slope(config.doses, torch.stack([each.share for each in doses], dim=1))
