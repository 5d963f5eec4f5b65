"""How a layer's prediction is made of its memories, and the model's of a layer's and of the stream's.

Geva et al. 2021 (arXiv 2012.14913), section 5, at single prefixes. With r the stream that enters an FFN, y what it
adds and o = r + y, each read as a token (`interp.ffn_parts`):

* Memories (5.1). How many are active, and how many agree: have the layer's own token top(y) as theirs. There are four
  ways to count (`Counted`). A layer in which none agrees makes a prediction that none of its memories makes.
* Stream (5.2). Whether the stream before an FFN already says what the model says in the end, top(r) = top(o^L), and
  how probable that token is there.
* Breakdown (5.2). Where top(o) comes from: the stream, the FFN, both, or neither, the composition of two predictions
  that is a third. That both agree and o says something else cannot be where logits of a sum are the sum of logits. With
  the bias of a final LayerNorm it can: the bias is added after the scale, and so counts for more in a larger stream.

Beside them stand two updates that the layer did not make there: its own at another prefix (of another window), and one
of the same coefficients with the layer's values dealt anew to its memories.

What it does not show: causes. That a memory has the layer's token does not say that the layer has it from there, and a
layer may work on tokens that never come first. Tokens of early layers assume that they write in the basis in which the
last stream is read. Two logit vectors per prefix and layer are formed, and one more for the dealt values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ffn_composed import Case, Composed, Counted
from interp.ffn_parts import LayerParts, StreamDecoder, decoder_of, top_tokens, written_values
from interp.memory_values import fitting_memories
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryTokens:
    """What every memory says by itself; on the model's device."""

    top: Int[Tensor, "layer memory"]
    """top(v): what a positive coefficient promotes."""
    bottom: Int[Tensor, "layer memory"]
    """top(-v): what a negative one does."""
    norm: Float[Tensor, "layer memory"]
    """|v|, of what is written per unit of coefficient (`interp.ffn_parts.written_values`)."""


@dataclass(frozen=True)
class _Asked:
    """What is asked of one layer."""

    layer: int
    values: Tensor
    threshold: Tensor
    other: Tensor
    order: Tensor


@torch.no_grad()
def memory_tokens(gpt: GPT) -> MemoryTokens:
    """Every memory's own tokens and norm; scores of some memories of one layer exist at a time."""
    decoder, found = decoder_of(gpt), []
    for layer in range(gpt.config.n_layers):
        values = written_values(gpt, layer)
        scores = (decoder.linear(values[some]) for some in fitting_memories(len(values), gpt.config.d_vocab))
        ends = [torch.stack([top_tokens(each), top_tokens(-each)]) for each in scores]
        found.append((*torch.cat(ends, dim=1), values.norm(dim=1)))
    top, bottom, norm = (torch.stack(each) for each in zip(*found, strict=True))
    return MemoryTokens(top=top, bottom=bottom, norm=norm)


@torch.no_grad()
def composed(
    gpt: GPT,
    parts: Sequence[LayerParts],
    memories: MemoryTokens,
    *,
    threshold: Float[Tensor, "layer memory"],
    other: Int[Tensor, " prefix"],
    dealt: Sequence[Int[Tensor, " memory"]],
) -> Composed:
    """Take every layer apart at some prefixes.

    Args:
        gpt: the model; `interp.ffn_parts.require_composition` lets it through.
        parts: what `interp.ffn_parts.read_parts` found there.
        memories: what its memories say (`memory_tokens`).
        threshold: the |m| above which a memory is called strong.
        other: for each prefix, which other prefix's update stands beside its own.
        dealt: for each layer, whose value each memory gets (`interp.null_models.dealt_orders`).
    """
    if len(parts) != gpt.config.n_layers or bool((other.cpu() == torch.arange(len(other))).any()):
        raise InputError("give the parts of every layer, and for each prefix another prefix than itself.")
    decoder = decoder_of(gpt)
    final = _Entering.of(decoder, parts[-1].stream).output(parts[-1].update, decoder.linear(parts[-1].update))[1]
    layers = []
    for layer, (each, order) in enumerate(zip(parts, dealt, strict=True)):
        asked = _Asked(layer, written_values(gpt, layer), threshold[layer], other, order)
        layers.append(_layer(_Entering.of(decoder, each.stream), each, memories, asked, final))
    stacked = {name: torch.stack([each[name] for each in layers], dim=-1).cpu() for name in layers[0]}
    return Composed(final_token=final.cpu(), **stacked)


@dataclass(frozen=True)
class _Entering:
    """The stream r before an FFN, and what it becomes with one update or another."""

    decoder: StreamDecoder
    stream: Tensor
    linear: Tensor
    token: Tensor

    @staticmethod
    def of(decoder: StreamDecoder, stream: Tensor) -> _Entering:
        linear = decoder.linear(stream)
        return _Entering(decoder, stream, linear, top_tokens(decoder.ranked(linear, stream)))

    def output(self, update: Tensor, linear: Tensor) -> tuple[Tensor, Tensor]:
        """top(y) and top(o) of an update with these linear logits."""
        added = top_tokens(linear)
        scores = self.decoder.ranked(self.linear + linear, self.stream + update)
        return added, _settled(scores, self.token, added)

    def case(self, update: Tensor, linear: Tensor) -> Tensor:
        """The case with this update."""
        return _case(self.token, *self.output(update, linear))


def _layer(
    entering: _Entering, parts: LayerParts, memories: MemoryTokens, asked: _Asked, final: Int[Tensor, " prefix"]
) -> dict[str, Tensor]:
    """What is kept of one layer, by name."""
    decoder, layer, m, update = entering.decoder, asked.layer, parts.coefficients, parts.update
    dealt = update + parts.summed(m, asked.values[asked.order] - asked.values)
    linear, linear_dealt = decoder.linear(update), decoder.linear(dealt)
    added, output = entering.output(update, linear)
    top, bottom, threshold = memories.top[layer], memories.bottom[layer], asked.threshold
    return {
        "active": (m > 0).float().mean(1),
        "strong": (m.abs() > threshold).float().mean(1),
        "carrying": _carrying(m.abs() * memories.norm[layer]),
        "n_agreeing": _agreeing(m, threshold, top, bottom, added),
        "n_agreeing_dealt": _agreeing(m, threshold, top[asked.order], bottom[asked.order], top_tokens(linear_dealt)),
        "stream_token": entering.token,
        "update_token": added,
        "output_token": output,
        "stream_probability": _probability(decoder.logits(entering.linear, parts.stream), final),
        "output_probability": _probability(decoder.logits(entering.linear + linear, parts.stream + update), final),
        "case": _case(entering.token, added, output),
        "case_other": entering.case(update[asked.other], linear[asked.other]),
        "case_dealt": entering.case(dealt, linear_dealt),
    }


def _settled(logits: Tensor, stream_token: Tensor, update_token: Tensor) -> Int[Tensor, " prefix"]:
    """top(o); of equal ones that of r, then that of y, so that rounding makes no case of its own."""
    high, token = logits.amax(-1), top_tokens(logits)
    for preferred in (update_token, stream_token):
        level = logits.gather(-1, preferred.clamp_min(0)[:, None])[:, 0]
        token = torch.where((preferred >= 0) & (token >= 0) & (level >= high), preferred, token)
    return token


def _case(r: Tensor, y: Tensor, o: Tensor) -> Int[Tensor, " prefix"]:
    case = torch.full_like(o, Case.COMPOSITION)
    case[(o == y) & (o != r)] = Case.FFN
    case[(o == r) & (o != y)] = Case.RESIDUAL
    case[(o == r) & (o == y)] = Case.AGREEMENT
    case[(r == y) & (o != r)] = Case.IMPOSSIBLE
    return case


def _agreeing(
    m: Tensor, threshold: Tensor, top: Tensor, bottom: Tensor, asked: Tensor
) -> Int[Tensor, "counted prefix"]:
    """How many memories have the asked token as theirs, by each way to count; none where nothing is asked."""
    own, signed = asked[:, None] == top, asked[:, None] == torch.where(m > 0, top, bottom)
    kinds = {
        Counted.ALL: own,
        Counted.ACTIVE: own & (m > 0),
        Counted.SIGNED: signed & (m != 0),
        Counted.STRONG: signed & (m.abs() > threshold),
    }
    return torch.stack([(kinds[kind] & (asked >= 0)[:, None]).sum(1) for kind in Counted])


def _carrying(weight: Float[Tensor, "prefix memory"], share: float = 0.9) -> Float[Tensor, " prefix"]:
    ordered = weight.double().sort(dim=1, descending=True).values.cumsum(1)
    whole = ordered[:, -1:]
    n = 1 + (ordered < share * whole).sum(1)
    return torch.where(whole[:, 0] > 0, n, 0).float() / weight.shape[1]


def _probability(logits: Tensor, token: Tensor) -> Float[Tensor, " prefix"]:
    """Of a token at each prefix; that of a model with nothing to say is one of the vocabulary's."""
    chosen = logits.gather(-1, token.clamp_min(0)[:, None])[:, 0]
    return (chosen - logits.logsumexp(-1)).exp()
