"""What an ablation does to the prediction of each token of one text."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation import Ablation, Frozen, ablated, ablation_of, mean_activations
from interp.optimal import fit_optimal, require_whole
from interp.outcomes import token_losses
from interp.places import Intervention, Places
from interp.requirements import require_deterministic, require_next_token
from interp.supplies import Supplies
from model.errors import InputError

if TYPE_CHECKING:
    from model.lab import Lab


@dataclass(frozen=True, kw_only=True)
class TokenEffects:
    """Losses of the tokens of one text with and without an ablation."""

    ablation: Ablation
    """What was put where, and how."""

    tokens: Int[Tensor, " pos"]
    strings: tuple[str, ...]
    """Each token, printable."""

    clean: Float[Tensor, " target"]
    """Loss of predicting tokens[1:], in nats."""

    ablated: Float[Tensor, " target"]
    """The same under the ablation; on average over the donors, where it resamples."""

    clean_top: tuple[str, ...]
    """The likeliest token after each position."""

    ablated_top: tuple[str, ...]
    """The same under the ablation."""

    candidates: Int[Tensor, "pos candidate"]
    """The tokens that either run finds likeliest after each position, by the larger of both chances."""

    clean_chance: Float[Tensor, "pos candidate"]
    """What the intact model gives each of them."""

    ablated_chance: Float[Tensor, "pos candidate"]
    """The same under the ablation."""

    source: str | None
    """What replacements come from, in words; None where they need no other sequences."""

    @property
    def harm(self) -> Float[Tensor, " target"]:
        """Ablated minus clean loss of each token after the first, in nats."""
        return self.ablated - self.clean


@torch.no_grad()
def token_effects(
    lab: Lab,
    text: str | Int[Tensor, "1 pos"],
    places: Places | Ablation,
    *,
    intervention: Intervention | str = Intervention.MEAN,
    frozen: Frozen | None = None,
    n_reference: int = 64,
) -> TokenEffects:
    """Losses of every token of `text` with `places` ablated, beside the intact ones.

    Replacements come from at most `n_reference` held-out rows of the run, those that begin with this very text left
    out. A counterfactual is refused: a text of one's own has no corrupted twin.
    """
    tokens = lab.tokens(text) if isinstance(text, str) else text.to(lab.gpt.device)
    if tokens.shape[1] < 2:
        raise InputError("the text has no second token, so nothing is predicted; give at least two tokens.")
    require_next_token(lab.gpt)
    require_deterministic(lab.gpt)
    ablation = ablation_of(places, lab.config, intervention, frozen=frozen)
    require_whole([ablation])
    supplies = text_supplies(lab, tokens, ablation, n_reference)
    on_one_path = lab.gpt.explicit_attention if ablation.held_patterns(lab.config) else nullcontext
    with on_one_path():
        clean = lab.gpt(tokens)
        losses, chances = _ablated(lab, tokens, ablation, supplies)
    before = clean[0].softmax(-1)
    likely = torch.maximum(before, chances).topk(min(CANDIDATES, chances.shape[-1]), dim=-1).indices
    return TokenEffects(
        ablation=ablation,
        tokens=tokens[0].cpu(),
        strings=tuple(lab.str_tokens(tokens)),
        clean=token_losses(clean, tokens)[0].cpu(),
        ablated=losses.cpu(),
        clean_top=tuple(lab.str_tokens(clean[0].argmax(-1))),
        ablated_top=tuple(lab.str_tokens(chances.argmax(-1))),
        candidates=likely.cpu(),
        clean_chance=before.gather(-1, likely).cpu(),
        ablated_chance=chances.gather(-1, likely).cpu(),
        source=supplies.source or None,
    )


def text_supplies(lab: Lab, tokens: Int[Tensor, "1 pos"], ablation: Ablation, n_reference: int) -> Supplies:
    """What an ablation on one text replaces with: held-out rows that do not begin with it, as far as it takes any."""
    if ablation.takes(Intervention.COUNTERFACTUAL):
        raise InputError(
            f"{ablation} needs the corrupted twin of this text, and nothing says which of its tokens to change; take "
            "resample here, or patch in a twin of your own (interp.patching)."
        )
    if not ablation.takes(*_FROM_OTHERS):
        return Supplies(source="")
    rows = _other_rows(lab.eval_tokens, tokens)[:n_reference]
    source = f"{len(rows)} held-out rows"
    averaged, fitted = (
        ablation.takes(Intervention.MEAN, Intervention.MEAN_PER_POSITION),
        ablation.takes(Intervention.OPTIMAL),
    )
    return Supplies(
        source=source,
        means=mean_activations(lab.gpt, rows, source=source, places=averaged) if averaged else None,
        donors=rows,
        optimal=fit_optimal(lab.gpt, rows, [fitted], source=source) if fitted else None,
    )


CANDIDATES = 12
"""Next tokens that are kept for each position."""

_FROM_OTHERS = (
    Intervention.MEAN,
    Intervention.MEAN_PER_POSITION,
    Intervention.RESAMPLE,
    Intervention.OPTIMAL,
)


def _ablated(
    lab: Lab, tokens: Int[Tensor, "1 pos"], ablation: Ablation, supplies: Supplies
) -> tuple[Float[Tensor, " target"], Float[Tensor, "pos d_vocab"]]:
    """The loss of each target under the ablation, and the chances of the next tokens, on average over its draws."""
    losses, chances = [], []
    for draw in range(ablation.draws(supplies)):
        with ablated(lab.gpt, ablation, supplies=supplies, tokens=tokens, draw=draw):
            changed = lab.gpt(tokens)
        losses.append(token_losses(changed, tokens)[0])
        chances.append(changed[0].softmax(-1))
    return torch.stack(losses).mean(0), torch.stack(chances).mean(0)


def _other_rows(rows: Int[Tensor, "row row_pos"], tokens: Int[Tensor, "1 pos"]) -> Int[Tensor, "other row_pos"]:
    """The rows that do not begin with `tokens`."""
    if tokens.shape[1] > rows.shape[1]:
        return rows
    return rows[(rows[:, : tokens.shape[1]] != tokens).any(dim=1)]
