"""Path expansion: the logits of an attention-only model as a sum over the paths that lead to them (Elhage et al. 2021).

Hold every pattern, and every norm's scale, at the value that the run gave it. What is left is linear, so that the
logits are a sum over paths: straight from the embedding, through one head, through a head that reads what another one
wrote, and so on. The *order* of a path is the number of heads it passes through.

    direct        N_f(embed) W_U
    L0H1          N_f(A1 N_0(embed) W_V W_O) W_U
    L0H1>L1H2     N_f(A2 N_1(A1 N_0(embed) W_V W_O) W_V W_O) W_U

The sum is exact: what a model computed is taken apart, nothing is approximated. Constants count where they enter: b_O
and the final norm's bias pass through no head (order 0), b_V and the bias of ln1 through the head they are in.

The terms of one order are found by recursion over layers, not by listing paths, of which there are exponentially many.
Cost: n_layers / 2 times that of the value half of attention. What it does not show: how a pattern or a scale came
about, to which paths contribute as well. A model with an FFN is refused: a path cannot be carried through a
nonlinearity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attribution import along
from interp.linear_norms import after_norm, before_norm
from interp.outcomes import Outcome, Tokens, fitting_batch
from interp.places import head
from interp.requirements import require_deterministic, require_next_token, targets_for
from model.config import FFNKind, GPTConfig
from model.errors import NotAdditiveError, UnknownNameError, closest
from model.sites import Tap, sites

if TYPE_CHECKING:
    from model.attention import Attention
    from model.gpt import GPT
    from model.hooks import ActivationCache
    from model.norms import NormLayer

Streams = Float[Tensor, "path batch pos d_model"]
"""Parts of the stream, each the sum of some paths."""

Mask = Bool[Tensor, "batch pos"]

DIRECT = "direct"
"""The path through no head."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PathTerms:
    """What each path adds to the logit of a token, or to the difference of two logits."""

    labels: tuple[str, ...]
    """`direct`, one for each head (`L0H1`), one for each two heads of different layers (`L0H1>L1H2`), then each higher
    order as a whole (`order 3`)."""

    orders: tuple[int, ...]
    """How many heads each path passes through."""

    values: Float[Tensor, "path batch pos"]
    """In logits; their sum is the model's own logit (or difference)."""

    def __repr__(self) -> str:
        return f"PathTerms({len(self.labels)} terms, orders 0 to {max(self.orders)})"

    @property
    def total(self) -> Float[Tensor, "batch pos"]:
        """The logit (or difference) at each position."""
        return self.values.sum(0)

    def of(self, label: str) -> Float[Tensor, "batch pos"]:
        """What one path adds."""
        if label not in self.labels:
            raise UnknownNameError(f'no path "{label}" was taken apart.{closest(label, self.labels)}')
        return self.values[self.labels.index(label)]

    def of_order(self, order: int) -> Float[Tensor, "batch pos"]:
        """What all paths through so many heads add together."""
        return sum(
            (value for value, each in zip(self.values, self.orders, strict=True) if each == order),
            torch.zeros_like(self.values[0]),
        )


@torch.no_grad()
def order_logits(
    gpt: GPT, tokens: Tokens, *, attention_mask: Mask | None = None
) -> Float[Tensor, "order batch pos d_vocab"]:
    """The part of the logits that passes through 0, 1, ..., n_layers heads; the sum over orders is the logits.

    Raises:
        NotAdditiveError: the model has an FFN, or a stream that is no sum.
        InputError: dropout is on.
    """
    frozen = _Frozen.of(gpt, tokens, attention_mask)
    return frozen.unembedded(frozen.by_order())


@torch.no_grad()
def order_losses(
    gpt: GPT, tokens: Tokens, outcome: Outcome, *, batch_size: int | None = None
) -> Float[Tensor, "sequence order"]:
    """Each sequence's loss from the terms of order n and below, in nats, for n = 0, 1, ..., n_layers.

    This is Elhage's term-importance ablation: run with frozen patterns, and let a head see only what the heads of the
    passes before wrote. Differences of neighbours are what an order adds given those below; the last is the model's own
    loss. A loss is no sum, so they depend on that order of adding.
    """
    require_next_token(gpt)
    rows = []
    for batch in tokens.split(batch_size or fitting_batch(gpt, tokens.shape[1])):
        here = batch.to(gpt.device)
        frozen = _Frozen.of(gpt, here, None)
        running = (frozen.unembedded(stream[None])[0] for stream in frozen.by_order().cumsum(0))  # one at a time
        rows.append(torch.stack([outcome.of_logits(logits, here) for logits in running], dim=1).double().cpu())
    return torch.cat(rows)


@torch.no_grad()
def path_attribution(
    gpt: GPT,
    tokens: Tokens,
    targets: Tensor | int,
    against: Tensor | int | None = None,
    *,
    attention_mask: Mask | None = None,
) -> PathTerms:
    """Take apart the logit that each position gives to its target (or its difference to that of `against`) by path.

    Args:
        gpt: an attention-only model, its dropout off.
        tokens: what it reads.
        targets: [batch, pos], a token for every position; or one for all.
        against: another token for every position, or for all.
        attention_mask: false for padding, where values mean nothing.

    Raises:
        NotAdditiveError: the model has an FFN, a stream that is no sum, or heads that an output norm mixes.
        InputError: dropout is on, or a target is not a token.
    """
    if not gpt.config.additive_heads:
        gpt.config.require_additive_stream("path expansion")
        raise NotAdditiveError(
            f"with norm={gpt.config.norm.value} a norm acts on what the heads of a layer wrote together, so a path "
            "through a single head has no weight of its own; use order_logits, or a pre, scaled or none placement."
        )
    frozen = _Frozen.of(gpt, tokens, attention_mask)
    asked = [targets_for(gpt, tokens, each) for each in (targets, against) if each is not None]
    unembedding = gpt.unembed.weight.to(frozen.dtype)
    towards = unembedding[asked[0]]
    if len(asked) == 2:
        towards = towards - unembedding[asked[1]]
    parts = list(frozen.terms(towards))
    return PathTerms(
        labels=tuple(label for label, _, _ in parts),
        orders=tuple(order for _, order, _ in parts),
        values=torch.stack([value for _, _, value in parts]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Frozen:
    """A model with its patterns and scales held at what one run gave them; sums are in fp32 at least."""

    gpt: GPT
    cache: ActivationCache

    @classmethod
    def of(cls, gpt: GPT, tokens: Tokens, attention_mask: Mask | None) -> _Frozen:
        _require_expandable(gpt.config)
        require_deterministic(gpt)
        taps = {Tap.EMBED, Tap.POS_EMBED, Tap.PATTERN, Tap.LN1_SCALE, Tap.LN1_POST_SCALE, Tap.LN_FINAL_SCALE}
        names = [name for name, site in sites(gpt.config).items() if site.tap in taps]
        _, cache = gpt.run_with_cache(tokens, names, return_type=None, attention_mask=attention_mask)
        return cls(gpt=gpt, cache=cache)

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in: terms of half precision would not sum to the logits."""
        return torch.promote_types(self.gpt.dtype, torch.float32)

    @property
    def embedded(self) -> Float[Tensor, "batch pos d_model"]:
        """What enters the first layer."""
        places = [place for place in (Tap.EMBED.at(), Tap.POS_EMBED.at()) if place in self.cache]
        return torch.stack([self.cache[place].to(self.dtype) for place in places]).sum(0)

    def by_order(self) -> Streams:
        """The part of the final stream that passes through 0, 1, ..., n_layers heads."""
        start = self.embedded
        streams = torch.cat([start[None], start.new_zeros(len(self.gpt.layers), *start.shape)])
        for layer in range(len(self.gpt.layers)):
            written = self._attention(streams[:-1], layer)
            written[0] += self._constant(layer)
            streams = torch.cat([streams[:1] + self._bias(layer), streams[1:] + written])
        return streams

    def terms(self, towards: Float[Tensor, "batch pos d_model"]) -> Iterator[tuple[str, int, Tensor]]:
        """Every path up to two heads by itself, and the higher orders as wholes: label, order, value."""
        direction = self._final_pulled(towards)
        biases = sum((self._bias(layer) for layer in range(len(self.gpt.layers))), torch.zeros_like(self.embedded))
        yield DIRECT, 0, along(self.embedded + biases, direction) + self._final_constant(towards)
        written: list[Tensor] = []
        pairs: list[tuple[str, int, Tensor]] = []
        for layer in range(len(self.gpt.layers)):
            entering = self.embedded + sum((self._bias(below) for below in range(layer)), torch.zeros_like(biases))
            first = self._heads(entering[None], layer)[0] + self._constant_heads(layer)
            for index, result in enumerate(first.unbind(2)):
                yield head(layer, index).label, 1, along(result, direction)
            for below, results in enumerate(written):
                pairs += self._pairs(results, below, layer, direction)
            written.append(first)
        yield from pairs
        if len(self.gpt.layers) > 2:
            for order, stream in enumerate(self.by_order()[3:], start=3):
                yield f"order {order}", order, along(stream, direction)

    def _pairs(
        self,
        results: Float[Tensor, "batch pos head d_model"],
        below: int,
        layer: int,
        direction: Float[Tensor, "batch pos d_model"],
    ) -> list[tuple[str, int, Tensor]]:
        """Each head of `layer` on what each head of a layer below wrote."""
        found = []
        for index, result in enumerate(results.unbind(2)):
            composed = self._heads(result[None], layer)[0]
            added = torch.einsum("bphm,bpm->hbp", composed, direction)
            found += [
                (f"{head(below, index).label}>{head(layer, second).label}", 2, value)
                for second, value in enumerate(added)
            ]
        return found

    # --- the linear pieces --------------------------------------------------------------------------------------------

    def _heads(self, streams: Streams, layer: int) -> Float[Tensor, "path batch pos head d_model"]:
        """What each head writes for parts of the stream, without constants."""
        attention = self.gpt.layers[layer].attn
        z = self._attended(_values(attention, self._read(streams, layer)), layer)
        return torch.einsum("sbphe,hem->sbphm", z, attention.W_O.to(z.dtype))

    def _attention(self, streams: Streams, layer: int) -> Streams:
        """What the heads of a layer write together for parts of the stream, without constants."""
        block = self.gpt.layers[layer]
        z = self._attended(_values(block.attn, self._read(streams, layer)), layer)
        out = torch.einsum("sbphe,hem->sbpm", z, block.attn.W_O.to(z.dtype))
        return self._through(block.ln1_post, Tap.LN1_POST_SCALE, layer, out)

    def _constant_heads(self, layer: int) -> Float[Tensor, "batch pos head d_model"]:
        """What each head writes because of the bias of ln1 and of b_V."""
        block = self.gpt.layers[layer]
        like = self.embedded[None]
        read = torch.zeros_like(like)
        if block.ln1 is not None and block.ln1.b is not None:
            read = read + block.ln1.b * block.ln1.shrink
        values = _values(block.attn, read)
        if block.attn.v_proj.bias is not None:
            values = values + _expanded(block.attn, block.attn.v_proj.bias.view(block.attn.n_kv_heads, -1))
        z = self._attended(values, layer)
        return torch.einsum("sbphe,hem->sbphm", z, block.attn.W_O.to(z.dtype))[0]

    def _constant(self, layer: int) -> Float[Tensor, "batch pos d_model"]:
        """The same of all heads together, as it enters the stream."""
        together = self._constant_heads(layer).sum(2)
        return self._through(self.gpt.layers[layer].ln1_post, Tap.LN1_POST_SCALE, layer, together[None])[0]

    def _bias(self, layer: int) -> Float[Tensor, "batch pos d_model"]:
        """What the layer writes through no head: b_O and the bias of an output norm."""
        block = self.gpt.layers[layer]
        bias = torch.zeros_like(self.embedded)
        if block.attn.o_proj.bias is not None:
            bias = bias + block.attn.o_proj.bias
        bias = self._through(block.ln1_post, Tap.LN1_POST_SCALE, layer, bias[None])[0]
        return bias if block.ln1_post is None or block.ln1_post.b is None else bias + block.ln1_post.b

    def _read(self, streams: Streams, layer: int) -> Streams:
        return self._through(self.gpt.layers[layer].ln1, Tap.LN1_SCALE, layer, streams)

    def _through(self, norm: NormLayer | None, scale: Tap, layer: int, streams: Streams) -> Streams:
        return streams if norm is None else after_norm(norm, self.cache[scale.at(layer)], streams)

    def _attended(
        self, values: Float[Tensor, "path batch pos head d_head"], layer: int
    ) -> Float[Tensor, "path batch pos head d_head"]:
        pattern = self.cache[Tap.PATTERN.at(layer)].to(values.dtype)
        return torch.einsum("bhqk,sbkhe->sbqhe", pattern, values)

    def unembedded(self, streams: Streams) -> Float[Tensor, "path batch pos d_vocab"]:
        """The logits of parts of the final stream, the first of them with the constants."""
        norm = self.gpt.ln_final
        unembedding = self.gpt.unembed.weight.to(streams.dtype)
        if norm is None:
            return streams @ unembedding.T
        read = after_norm(norm, self.cache[Tap.LN_FINAL_SCALE.at()], streams)
        if norm.b is not None:
            read = torch.cat([read[:1] + norm.b, read[1:]])
        return read @ unembedding.T

    def _final_pulled(self, towards: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """The direction that, before the final norm, does what `towards` does after it."""
        norm = self.gpt.ln_final
        return towards if norm is None else before_norm(norm, self.cache[Tap.LN_FINAL_SCALE.at()], towards)

    def _final_constant(self, towards: Float[Tensor, "batch pos d_model"]) -> Tensor:
        norm = self.gpt.ln_final
        if norm is None or norm.b is None:
            return torch.zeros_like(towards[..., 0])
        return along(norm.b.expand_as(towards), towards)


def _require_expandable(config: GPTConfig) -> None:
    config.require_additive_stream("path expansion")
    if config.ffn is not FFNKind.NONE:
        raise NotAdditiveError(
            f"path expansion needs an attention-only model: with ffn={config.ffn.value} paths lead through a "
            'nonlinearity and have no weight of their own. Train one with ffn="none", or use path patching '
            "(interp.path_patching), which holds the FFNs fixed."
        )


def _values(attention: Attention, read: Streams) -> Float[Tensor, "path batch pos head d_head"]:
    """What heads take from parts of the stream they read, without b_V; grouped heads share theirs."""
    return _expanded(attention, torch.einsum("sbpm,hme->sbphe", read, attention.W_V.to(read.dtype)))


def _expanded(attention: Attention, heads: Float[Tensor, "*any kv_head d_head"]) -> Float[Tensor, "*any head d_head"]:
    return heads.repeat_interleave(attention.n_heads // attention.n_kv_heads, dim=-2)
