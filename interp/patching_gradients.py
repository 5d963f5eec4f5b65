"""The gradients that estimates of patching are made of: at one run, on the way to another, or with a layer left out.

    one run       dM/da at the base run                                      (Nanda 2023)
    integrated    mean over k = 1 ... m of dM/da at the run whose embeddings are
                  source + (k / m) (base - source)                           (EAP-IG, Hanna et al. 2024, 2403.17806)
    dropped       dM/da where nothing flows back through what one layer writes
                                                                             (GradDrop, Kramar et al. 2024, 2403.00745)

Sequences do not meet in a pass, so that one backward pass gives each sequence the gradient of its own number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.metrics import Metric, measured
from model.errors import InputError
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import ActivationCache, Hook

Gradients = Mapping[str, Tensor]
"""By hook name."""

N_STEPS = 5
"""Steps between two runs, as in the paper."""


def differentiated(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], names: Sequence[str], metric: Metric, rows: Int[Tensor, " batch"]
) -> ActivationCache:
    """What `names` held, with the gradients of each sequence's own metric under NAME_grad."""

    def summed(logits: Float[Tensor, "batch pos d_vocab"]) -> Tensor:
        return measured(metric, logits, rows).sum()  # sequences do not meet, so each has the gradient of its own number

    with torch.enable_grad():
        return gpt.run_with_cache(tokens, list(names), incl_bwd=True, loss_fn=summed, return_type=None)[1]


def gradients_in(run: ActivationCache, names: Sequence[str]) -> Gradients:
    """The gradients that `differentiated` left beside the activations."""
    return {name: run[f"{name}_grad"] for name in names}


def integrated(
    gpt: GPT,
    base: Int[Tensor, "batch pos"],
    source: Int[Tensor, "batch pos"],
    names: Sequence[str],
    metric: Metric,
    rows: Int[Tensor, " batch"],
    *,
    n_steps: int = N_STEPS,
) -> Gradients:
    """The mean gradient over `n_steps` runs from the source's embeddings, not included, to the base's own."""
    require_steps(n_steps)
    with torch.no_grad():
        start, end = gpt.embed(source), gpt.embed(base)
    total: dict[str, Tensor] = {}
    for step in range(1, n_steps + 1):
        between = torch.lerp(start, end, step / n_steps)

        def replaced(embedding: Tensor, hook: Hook, between: Tensor = between) -> Tensor:
            del embedding, hook
            return between

        with gpt.hooks(fwd_hooks=[(Tap.EMBED.at(), replaced)]):
            run = differentiated(gpt, base, names, metric, rows)
        for name, gradient in gradients_in(run, names).items():
            total[name] = total[name] + gradient / n_steps if name in total else gradient / n_steps
    return total


def dropped(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    names: Sequence[str],
    metric: Metric,
    rows: Int[Tensor, " batch"],
    *,
    layer: int,
) -> Gradients:
    """The gradients at the run of `tokens` when none flows back through what `layer` writes into the stream."""
    writes = [Tap.ATTN_OUT.at(layer), Tap.MLP_OUT.at(layer)]
    present = [(site, _nothing) for site in writes if str(site) in gpt.named_sites()]
    with gpt.hooks(bwd_hooks=present):
        return gradients_in(differentiated(gpt, tokens, names, metric, rows), names)


def require_steps(n_steps: int) -> None:
    """Refuse no step at all."""
    if n_steps < 1:
        raise InputError(f"n_steps={n_steps} leads nowhere; give 1 (the base run alone) or more, 5 as in the paper.")


def _nothing(gradient: Float[Tensor, "batch pos d_model"], hook: Hook) -> Tensor:
    del hook
    return torch.zeros_like(gradient)
