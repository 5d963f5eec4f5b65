"""Direct logit attribution: what each part of the model adds to a logit by itself (after Elhage et al. 2021).

The final stream is a sum of what was written to it, the final norm with its scale held at the run's own value is
affine, and so is W_U. So a logit is a sum of one number per component, exactly:

    logit_t = sum over components c of c . d_t + bias . W_U[:, t]        d_t = centre(gain * W_U[:, t] / scale)

Labels are `embed`, `pos_embed`, `L0H3` (a head), `L0.b_O` (an attention bias), `L0.ffn` and `final norm bias`; by
sublayers `L0.attn` stands for the heads and the bias. Where an output norm mixes the heads (sandwich, reordered), its
scale is held as well, and its bias is a component of its own. A stream that is no sum (post, deepnorm, no skip
connections) is refused: there is nothing to take apart.

What it does not show: what a component does through later layers, or to the scales, which it also sets. With tied
embeddings the embedding itself adds much to the logit of the current token. Cost: one forward pass, and then a vector
per position and component; logits over the vocabulary are never formed per component.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention_bases import Against
from interp.linear_norms import before_norm
from interp.places import head
from interp.requirements import require_deterministic, targets_for
from model.config import GPTConfig
from model.errors import UnknownNameError, closest
from model.settings import as_enum
from model.sites import Tap, sites

if TYPE_CHECKING:
    from model.block import Block
    from model.gpt import GPT
    from model.hooks import ActivationCache

FINAL_BIAS = "final norm bias"
"""The label of what the final norm's own bias adds."""

Direction = Float[Tensor, "batch pos d_model"]
"""What one unit of the stream, in each dimension, adds to the logit in question."""

Part = tuple[str, Float[Tensor, "batch pos"]]
"""A component's label and what it adds."""


class Detail(StrEnum):
    """How finely the stream is taken apart."""

    HEADS = "heads"
    """Every head, attention bias and FFN."""

    SUBLAYERS = "sublayers"
    """The attention and the FFN of each layer, each as a whole."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Attribution:
    """What each component adds to the logit of a token, or to its difference from another or from the mean."""

    labels: tuple[str, ...]
    """The components, in forward order."""

    values: Float[Tensor, "component batch pos"]
    """In logits; the sum over components is the model's own logit (or difference)."""

    frozen: tuple[str, ...]
    """Norms whose scale is held at the run's own value, by hook name without its last part."""

    def __repr__(self) -> str:
        n_components, n_batch, n_pos = self.values.shape
        parts = f"{n_components} components, {self.labels[0]} to {self.labels[-1]}"
        return f"Attribution({parts}; [{n_batch}, {n_pos}] positions)"

    @property
    def total(self) -> Float[Tensor, "batch pos"]:
        """The logit (or difference) at each position."""
        return self.values.sum(0)

    def of(self, label: str) -> Float[Tensor, "batch pos"]:
        """What one component adds."""
        if label not in self.labels:
            raise UnknownNameError(f'no component "{label}" was attributed.{closest(label, self.labels)}')
        return self.values[self.labels.index(label)]

    @property
    def note(self) -> str:
        """What was held fixed, in a sentence."""
        if not self.frozen:
            return "No norm stands on the way to the logits, so nothing was held fixed."
        return f"The scale of {', '.join(self.frozen)} is held at the run's own value."


@torch.no_grad()
def logit_attribution(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    targets: Tensor | int,
    against: Tensor | int | Against | str | None = None,
    *,
    detail: Detail | str = Detail.HEADS,
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
) -> Attribution:
    """Take apart the logit that each position gives to its target, or the target's logit less that of `against`.

    Args:
        gpt: a model with an additive stream, its dropout off.
        tokens: what it reads.
        targets: [batch, pos], a token for every position, such as the next one, or the likeliest; or one for all.
        against: another token for every position, or for all; the result is then the difference of two logits. With
            `Against.MEAN`, the difference to the mean logit over the vocabulary, which no number added to all logits
            can change.
        detail: heads, or whole sublayers.
        attention_mask: false for padding, where values mean nothing.

    Raises:
        NotAdditiveError: the stream of this model is not a sum.
        InputError: dropout is on, or a target is not a token.
    """
    detail = as_enum(Detail, detail, "detail")
    gpt.config.require_additive_stream("direct logit attribution")
    require_deterministic(gpt)
    towards = logit_direction(gpt, tokens, targets)
    if against is not None:
        towards = towards - logit_direction(gpt, tokens, against)
    _, cache = gpt.run_with_cache(tokens, _read(gpt.config, detail), return_type=None, attention_mask=attention_mask)
    parts = list(_parts(gpt, cache, towards, detail))
    return Attribution(
        labels=tuple(label for label, _ in parts),
        values=torch.stack([value for _, value in parts]),
        frozen=tuple(name.removesuffix(".hook_scale") for name in cache if name.endswith("hook_scale")),
    )


def logit_direction(gpt: GPT, tokens: Tensor, asked: Tensor | int | str) -> Direction:
    """What one unit of what W_U reads adds to a logit, or to what it is compared with, in fp32 at least."""
    precise = torch.promote_types(gpt.dtype, torch.float32)
    if isinstance(asked, str) and asked in set(Against):
        mean = gpt.unembed.weight.mean(0, dtype=precise)
        return (mean if asked == Against.MEAN else torch.zeros_like(mean)).expand(*tokens.shape, -1)
    return gpt.unembed.weight[targets_for(gpt, tokens, asked)].to(precise)  # type: ignore[arg-type]


def _read(config: GPTConfig, detail: Detail) -> list[str]:
    """The places that are needed: what is written, and the scales that are held."""
    by_head = detail is Detail.HEADS
    taps = {Tap.EMBED, Tap.POS_EMBED, Tap.MLP_OUT, Tap.LN_FINAL_SCALE}
    taps |= {Tap.Z, Tap.LN1_POST_SCALE} if by_head else {Tap.ATTN_OUT}
    return [name for name, site in sites(config).items() if site.tap in taps]


def _parts(gpt: GPT, cache: ActivationCache, towards: Direction, detail: Detail) -> Iterator[Part]:
    """Every component with what it adds, in forward order."""
    direction = towards if gpt.ln_final is None else before_norm(gpt.ln_final, cache[Tap.LN_FINAL_SCALE.at()], towards)
    for label, place in (("embed", Tap.EMBED.at()), ("pos_embed", Tap.POS_EMBED.at())):
        if place in cache:
            yield label, along(cache[place], direction)
    for layer, block in enumerate(gpt.layers):
        if detail is Detail.HEADS:
            yield from _heads(block, layer, cache, direction)
        else:
            yield f"L{layer}.attn", along(cache[Tap.ATTN_OUT.at(layer)], direction)
        if block.mlp is not None:
            yield f"L{layer}.ffn", along(cache[Tap.MLP_OUT.at(layer)], direction)
    if gpt.ln_final is not None and gpt.ln_final.b is not None:
        yield FINAL_BIAS, along(gpt.ln_final.b, towards)


def _heads(block: Block, layer: int, cache: ActivationCache, direction: Direction) -> Iterator[Part]:
    """A layer's heads and biases, each through the output norm if there is one."""
    written = direction
    if block.ln1_post is not None:
        written = before_norm(block.ln1_post, cache[Tap.LN1_POST_SCALE.at(layer)], direction)
    z = cache[Tap.Z.at(layer)].to(direction.dtype)
    per_unit = torch.einsum("hem,bpm->bphe", block.attn.W_O.to(direction.dtype), written)
    added = (z * per_unit).sum(-1)
    for index in range(added.shape[-1]):
        yield head(layer, index).label, added[..., index]
    if block.attn.o_proj.bias is not None:
        yield f"L{layer}.b_O", along(block.attn.o_proj.bias, written)
    if block.ln1_post is not None and block.ln1_post.b is not None:
        yield f"L{layer}.ln1_post bias", along(block.ln1_post.b, direction)


def along(written: Float[Tensor, "*batch d_model"], direction: Direction) -> Float[Tensor, "batch pos"]:
    """What a component adds: what it wrote, along `direction`, in the direction's format."""
    return (written.to(direction.dtype) * direction).sum(-1)
