"""Ablation: put something else in the place of heads, memories or whole sublayers, and run the rest of the model.

A head is replaced at z, before W_O, and a memory at its coefficient, before W_out. So the output biases stay, every
norm placement runs on as it is, and removing all heads of a layer leaves exactly b_O. What stands there instead, and
what each choice assumes: `interp.intervention_kinds`; how much of it, where, and with which patterns held:
`interp.ablation_plan`; what it is taken from: `interp.supplies`. Whatever it is, it never carries the future of a
sequence to its past.

The places of the grammar (`interp.places`) become replacements of `interp.interventions`, which see to positions,
padding and the key-value cache. Cost: one forward pass for each ablation; `interp.harm` shares the layers below between
many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.ablation_plan import Ablation, Frozen, ablation_of, parse_positions, print_positions, site_of
from interp.interventions import Edits
from interp.places import Intervention, Place, Places
from interp.recordings import Means, Recording, mean_held, record
from interp.site_names import Where
from interp.supplies import OF_A_RUN, Stock, Supplies, edits_of
from model.errors import InputError
from model.hooks import Hook, HookFunction
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT

__all__ = [
    "Ablation",
    "Edits",
    "Frozen",
    "Means",
    "ablated",
    "ablation_of",
    "hooks_for",
    "mean_activations",
    "parse_positions",
    "print_positions",
    "site_of",
    "sites_of",
]


def sites_of(gpt: GPT) -> list[str]:
    """Every hook where something can be replaced in this model, in forward order."""
    endings = ("attn.hook_z", "mlp.hook_post")
    return [name for name in gpt.named_sites() if name.endswith(endings)]


def mean_activations(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    *,
    source: str,
    places: Sequence[Place] | None = None,
    sites: Sequence[Where] = (),
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
    batch_size: int = 32,
) -> Means:
    """Average what `places` and `sites` hold over the sequences of `tokens`, at each position; padding counts nowhere.

    Where neither is given, every head and memory. `source` says in words what the tokens are. Refuses active dropout.
    """
    wanted = [*{site_of(place): None for place in places or ()}, *sites] or sites_of(gpt)
    return mean_held(gpt, tokens, wanted, source=source, attention_mask=attention_mask, batch_size=batch_size)


def hooks_for(
    gpt: GPT,
    places: Places | Ablation,
    means: Means | None = None,
    intervention: Intervention | str = Intervention.MEAN,
    *,
    supplies: Supplies | None = None,
    tokens: Int[Tensor, "batch pos"] | None = None,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
    draw: int = 0,
) -> Edits:
    """Hooks that carry out an ablation: one for each site it touches, for `gpt.hooks` or `gpt.run_with_hooks`.

    A place with an intervention of its own keeps it; the others take `intervention`. Both means need `means`; what else
    there is to replace with stands in `supplies` instead. What is taken from runs of these or of other sequences, and
    held patterns, need the `tokens` that will run, so that those runs can be made beforehand: the hooks then refuse
    other tokens. Of resampling, this is draw number `draw`; `interp.harm` averages over all of them.
    """
    ablation = ablation_of(places, gpt.config, intervention)
    if supplies is None:
        supplies = Supplies(source="" if means is None else means.source, means=means)
    elif means is not None:
        raise InputError("give means, or supplies that have means, not both.")
    if not (ablation.takes(*OF_A_RUN) or ablation.held_patterns(gpt.config)):
        supplies.require([ablation], torch.zeros(0, 0, dtype=torch.long))
        return edits_of(gpt, ablation, Stock(supplies=supplies))
    if tokens is None:
        raise InputError(
            f"{ablation} takes what runs of given tokens hold. Pass tokens=, those that will run, so that these runs "
            f"can be made first; or use {ablation.places[0].label}:mean with nothing held."
        )
    tokens = tokens.to(gpt.device)
    n_pos = None if supplies.donors is None else supplies.donors.shape[1]
    stock = supplies.drawn(gpt, tokens, range(len(tokens)), [ablation], draw, attention_mask, n_pos=n_pos)
    given = record(gpt, tokens, Tap.EMBED, source="tokens given", attention_mask=attention_mask)
    return [_refusing_others(given, str(ablation)), *edits_of(gpt, ablation, stock)]


@contextmanager
def ablated(
    gpt: GPT,
    places: Places | Ablation,
    means: Means | None = None,
    intervention: Intervention | str = Intervention.MEAN,
    *,
    supplies: Supplies | None = None,
    tokens: Int[Tensor, "batch pos"] | None = None,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
    draw: int = 0,
) -> Iterator[GPT]:
    """The model under an ablation until the `with` ends, also for `gpt.generate`; arguments as for `hooks_for`.

    with ablated(gpt, "L1H3:zero"):
        logits = gpt(tokens)
    """
    made = hooks_for(
        gpt,
        places,
        means,
        intervention,
        supplies=supplies,
        tokens=tokens,
        attention_mask=attention_mask,
        draw=draw,
    )
    with gpt.hooks(fwd_hooks=made):
        yield gpt


def _refusing_others(given: Recording, what: str) -> tuple[str, HookFunction]:
    """A look at the embeddings: other tokens than those an ablation was prepared for would get what is not theirs."""

    def look(embedded: Tensor, hook: Hook) -> None:
        if len(hook.positions) != len(given.n_positions):
            raise InputError(
                f"{what} was prepared for {len(given.n_positions)} sequences, and {len(hook.positions)} run; pass the "
                "tokens= that will run."
            )
        prepared = given.at(Tap.EMBED)
        known = (hook.positions >= 0) & (hook.positions < given.n_positions[:, None])
        rows = torch.arange(len(prepared), device=prepared.device)[:, None]
        differs = (prepared[rows, hook.positions.clamp(0, prepared.shape[1] - 1)] != embedded).any(-1) & known
        if bool(differs.any()):
            row, column = (int(number) for number in differs.nonzero()[0])
            raise InputError(
                f"{what} was prepared for other tokens: those of sequence {row} differ at position "
                f"{int(hook.positions[row, column])}. Pass the tokens= that will run."
            )

    return str(Tap.EMBED.at()), look
