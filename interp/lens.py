"""The logit lens: what the model would predict if a layer's stream were the last (nostalgebraist 2020).

The final norm is computed anew on every layer's stream, with that stream's own scale; the last layer's scale would be
wrong by the factor that the stream grows. The last reading is the model's own prediction. Under post and deepnorm the
stream is already normed where it is read, and W_U reads it as it is.

What it does not show: what a layer "knows". Early layers may write in a basis that only later layers turn into tokens.
Cost: one forward pass, and the unembedding once per layer; the logits of one layer exist at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.requirements import require_deterministic, targets_for
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LensReading:
    """The stream after the embedding and after each layer, read as a prediction."""

    labels: tuple[str, ...]
    """`embed`, then `L0`, `L1`, ...: after which part the stream was read."""

    log_probability: Float[Tensor, "reading batch pos"]
    """Of the target token, in nats."""

    divergence: Float[Tensor, "reading batch pos"]
    """KL(the model's own prediction || this reading), in nats."""

    likeliest: Int[Tensor, "reading batch pos"]
    """The token that this reading predicts."""

    agrees: Bool[Tensor, "reading batch pos"]
    """Whether the likeliest token is the model's own."""

    def __repr__(self) -> str:
        _, n_batch, n_pos = self.likeliest.shape
        return f"LensReading({', '.join(self.labels)}; [{n_batch}, {n_pos}] positions)"


@torch.no_grad()
def logit_lens(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    targets: Tensor | int,
    *,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
) -> LensReading:
    """Read the stream after the embedding and after every layer; `targets`: a token for every position, or for all."""
    require_deterministic(gpt)
    targets = targets_for(gpt, tokens, targets)
    layers = range(gpt.config.n_layers)
    places = [Tap.RESID_PRE.at(0), *(Tap.RESID_POST.at(layer) for layer in layers)]
    _, cache = gpt.run_with_cache(tokens, places, return_type=None, attention_mask=attention_mask)
    final = _log_softmax(gpt.unembed_stream(cache[places[-1]]))
    probabilities, own = final.exp(), final.argmax(-1)
    readings: list[tuple[Tensor, Tensor, Tensor]] = []
    for place in places:
        read = _log_softmax(gpt.unembed_stream(cache[place]))
        chosen = read.gather(-1, targets[..., None])[..., 0]
        divergence = (probabilities * (final - read)).sum(-1).clamp_min(0)
        readings.append((chosen, divergence, read.argmax(-1)))
    log_probability, divergence, likeliest = (torch.stack(each) for each in zip(*readings, strict=True))
    labels = ("embed", *(f"L{layer}" for layer in layers))
    return LensReading(
        labels=labels,
        log_probability=log_probability,
        divergence=divergence,
        likeliest=likeliest,
        agrees=likeliest == own,
    )


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
