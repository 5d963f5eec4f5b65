"""What an ablation does to the prediction of each token of one text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation import ablated, mean_activations
from interp.outcomes import token_losses
from interp.places import Intervention, Places, parse_intervention, print_places, resolve_places
from interp.requirements import require_deterministic, require_next_token
from model.errors import InputError

if TYPE_CHECKING:
    from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class TokenEffects:
    """Losses of the tokens of one text with and without an ablation."""

    places: str
    """What was put where, in the grammar of places."""

    tokens: Int[Tensor, " pos"]
    strings: tuple[str, ...]
    """Each token, printable."""

    clean: Float[Tensor, " target"]
    """Loss of predicting tokens[1:], in nats."""

    ablated: Float[Tensor, " target"]
    """The same under the ablation."""

    clean_top: tuple[str, ...]
    """The likeliest token after each position."""

    ablated_top: tuple[str, ...]
    """The same under the ablation."""

    means: str | None
    """Where the means come from, in words; None where nothing was replaced by a mean."""

    @property
    def harm(self) -> Float[Tensor, " target"]:
        """Ablated minus clean loss of each token after the first, in nats."""
        return self.ablated - self.clean


@torch.no_grad()
def token_effects(
    lab: Lab,
    text: str | Int[Tensor, "1 pos"],
    places: Places,
    *,
    intervention: Intervention | str = Intervention.MEAN,
    n_reference: int = 64,
) -> TokenEffects:
    """Losses of every token of `text` with `places` ablated, beside the intact ones.

    Means come from at most `n_reference` held-out rows of the run, those that begin with this very text left out.
    """
    tokens = lab.tokens(text) if isinstance(text, str) else text.to(lab.gpt.device)
    if tokens.shape[1] < 2:
        raise InputError("the text has no second token, so nothing is predicted; give at least two tokens.")
    require_next_token(lab.gpt)
    require_deterministic(lab.gpt)
    resolved = resolve_places(places, lab.config, parse_intervention(intervention))
    averaged = [place for place in resolved if place.intervention is not Intervention.ZERO]
    rows = _other_rows(lab.eval_tokens, tokens)[:n_reference] if averaged else tokens
    source = f"{len(rows)} held-out rows"
    means = mean_activations(lab.gpt, rows, source=source, places=averaged) if averaged else None
    clean = lab.gpt(tokens)
    with ablated(lab.gpt, resolved, means):
        changed = lab.gpt(tokens)
    return TokenEffects(
        places=print_places(resolved),
        tokens=tokens[0].cpu(),
        strings=tuple(lab.str_tokens(tokens)),
        clean=token_losses(clean, tokens)[0].cpu(),
        ablated=token_losses(changed, tokens)[0].cpu(),
        clean_top=tuple(lab.str_tokens(clean[0].argmax(-1))),
        ablated_top=tuple(lab.str_tokens(changed[0].argmax(-1))),
        means=source if averaged else None,
    )


def _other_rows(rows: Int[Tensor, "row row_pos"], tokens: Int[Tensor, "1 pos"]) -> Int[Tensor, "other row_pos"]:
    """The rows that do not begin with `tokens`."""
    if tokens.shape[1] > rows.shape[1]:
        return rows
    return rows[(rows[:, : tokens.shape[1]] != tokens).any(dim=1)]
