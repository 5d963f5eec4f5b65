"""Self-repair: how much of what a component adds to a logit by itself the rest of the model makes good when it goes.

Write a logit, less the vocabulary's mean, as a sum of direct effects with the final norm's scale s held,

    logit_t = sum over c of DE_c        DE_c(t) = what c wrote . centre(gain * (W_U[:, t] - mean W_U) / s)

(`interp.attribution`). An ablation takes away the direct effect of what it replaces. If nothing else changed, the logit
would fall by just that. What it does not fall by, the others made good (Rushing and Nanda 2024, 2402.15390):

    self-repair = change of the logit - change of DE of what was ablated

and exactly, with nothing left over but rounding,

    change of the logit = change of DE of what was ablated
                        + sum over later heads and FFNs of the change of their DE
                        + what the output norms do (sandwich, reordered: their scales are part of what heads write)
                        + what the final norm does: (what leaves the last layer . direction) * (s / s' - 1)

The last term is the self-repair that goes away when the final scale is frozen. So a component that nothing reads later
(the last FFN; in an attention-only model the last layer's heads) has the norm's share alone. Direct and total effect
are those that McGrath et al. 2023 (2307.15771) hold against each other, per layer, as Delta unembed and Delta ablate.

Every stream that is a sum is taken apart; others are refused. What it does not show: whether a repair was learned as
such, or follows from parts that mostly say the same; nor what is made good in other logits than the next token's.
Cost: one pass, and for each ablation the layers from its own on; several donors cost as many passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.ablation import Ablation, ablation_of
from interp.direct_effects import IntactRun, Numbers, components_of, covered
from interp.harm import Counted
from interp.metrics import split_rows
from interp.outcomes import fitting_batch
from interp.places import PlaceKind, Places
from interp.repaired import SelfRepair
from interp.requirements import require_deterministic, require_next_token
from interp.supplies import Supplies, edits_of
from model.config import GPTConfig
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT


@torch.no_grad()
def measure_self_repair(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    ablations: Sequence[Places | Ablation],
    *,
    supplies: Supplies | None = None,
    chosen: Bool[Tensor, "sequence target"] | None = None,
    batch_size: int | None = None,
    counted: Counted | None = None,
) -> SelfRepair:
    """Ablate heads or whole sublayers, and take apart what happens to the logit of every next token.

    Args:
        gpt: a causal model with an additive stream, its dropout off.
        tokens: what it reads; a target is the token after.
        ablations: sets of heads, attention sublayers or FFNs, each replaced together; by their mean where nothing is
            said. Of resampling, every number is the mean over the donors.
        supplies: what replacements are taken from (`interp.trials.Trial.supplies_of`); zeros need none.
        chosen: the targets over which single components are averaged (all where it is left out).
        batch_size: sequences at a time.
        counted: called as counted(ablations done, ablations in all), each batch counting anew.

    Raises:
        NotAdditiveError: the stream of this model is no sum (post, deepnorm, no skip connections).
        InputError: dropout is on, the model sees the next token, a single memory is ablated, or the supplies lack
            something.
    """
    gpt.config.require_additive_stream("self-repair")
    require_next_token(gpt)
    require_deterministic(gpt)
    asked = [_checked(each, gpt.config) for each in ablations]
    if not asked:
        raise InputError("no ablation was given; name at least one, such as L1H3 or L1.ffn.")
    taken = _every_target(tokens) if chosen is None else _fitting(chosen, tokens)
    supplies = supplies or Supplies(source="none")
    supplies.require(asked, tokens)
    size = batch_size or fitting_batch(gpt, tokens.shape[1])
    components = tuple(components_of(gpt.config))
    ablated = torch.stack([covered(each.places, components) for each in asked])
    batches = split_rows(len(tokens), size)
    found: list[Numbers] = []
    holding = any(each.held_patterns(gpt.config) for each in asked)
    with gpt.explicit_attention() if holding else nullcontext():
        for number, rows in enumerate(batches):
            batch = tokens[rows].to(gpt.device)
            view = IntactRun.of(gpt, batch, sorted({each.first_layer for each in asked}))
            done = []
            for numbers in _each(view, asked, ablated, taken[rows], supplies, rows):
                done.append(numbers)
                if counted is not None:
                    counted(number * len(asked) + len(done), len(batches) * len(asked))
            found.append({key: torch.stack([each[key] for each in done], dim=1) for key in done[0]})
            found[-1]["clean"] = view.logit.double().cpu()
    joined = {key: torch.cat([each[key] for each in found]) for key in found[0]}
    return SelfRepair(
        ablations=tuple(str(each) for each in asked), components=components, ablated=ablated, chosen=taken, **joined
    )


def _each(
    view: IntactRun,
    ablations: Sequence[Ablation],
    ablated: Bool[Tensor, "ablation component"],
    chosen: Bool[Tensor, "batch target"],
    supplies: Supplies,
    rows: Int[Tensor, " batch"],
) -> Iterator[Numbers]:
    """Each ablation's numbers on one batch, the mean over its draws. Runs that it takes from are made for it alone."""
    for ablation, own in zip(ablations, ablated, strict=True):
        stock, n_draws = supplies.drawn(view.gpt, view.tokens, rows, [ablation]), ablation.draws(supplies)
        total: Numbers = {}
        for draw in range(n_draws):
            stock = stock if draw == 0 else stock.redrawn(view.gpt, draw)
            found = view.taken_apart(edits_of(view.gpt, ablation, stock), ablation.first_layer, own, chosen)
            total = {key: total[key] + value if total else value for key, value in found.items()}
        yield {key: value / n_draws for key, value in total.items()}


def _checked(places: Places | Ablation, config: GPTConfig) -> Ablation:
    """The ablation; of a memory alone it is refused, as the rest of its FFN would be neither ablated nor after it."""
    made = ablation_of(places, config)
    for place in made.places:
        if place.kind is PlaceKind.MEMORY:
            raise InputError(
                f"{place.label} is one memory of an FFN; self-repair is of heads and whole sublayers. Name a head, "
                f"L{place.layer}.attn or L{place.layer}.ffn."
            )
    return made


def _every_target(tokens: Int[Tensor, "sequence pos"]) -> Bool[Tensor, "sequence target"]:
    if tokens.ndim != 2 or tokens.shape[1] < 2:
        raise InputError(
            f"tokens have shape {tuple(tokens.shape)}; give [sequence, pos] with at least two positions, as a target "
            "is the token after."
        )
    return torch.ones(len(tokens), tokens.shape[1] - 1, dtype=torch.bool)


def _fitting(chosen: Bool[Tensor, "sequence target"], tokens: Tensor) -> Bool[Tensor, "sequence target"]:
    whole = _every_target(tokens)
    if chosen.shape != whole.shape or not bool(chosen.any(1).all()):
        raise InputError(
            f"chosen has shape {tuple(chosen.shape)} or leaves a sequence without a target; choose at least one of "
            f"each sequence, as a mask of shape {tuple(whole.shape)}."
        )
    return chosen.cpu()
