"""One layer held against its own weights: norms, attention, FFN, and the sums on the stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.audit.quantity import Quantity, exact, rounding
from interp.audit.record import Ledger
from interp.audit.reference import (
    carried,
    coefficients,
    mixed_with_previous,
    normed,
    position_bias,
    shrink_of,
    turned,
    unit_heads,
    visible,
)
from model.config import PRE_NORM_READS, SUM_NORMS, Positions
from model.sites import Tap

if TYPE_CHECKING:
    from model.attention import Attention
    from model.ffn import FFN
    from model.gpt import GPT
    from model.hooks import ActivationCache
    from model.norms import NormLayer

ROUNDED = "relative to the terms added; rounding of so many terms in this number format explains no more"
COPIES = frozenset({Tap.ATTN_IN, Tap.Q_INPUT, Tap.K_INPUT, Tap.V_INPUT, Tap.MLP_IN})
"""Copies of the stream, which no check reads."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a layer added to the stream."""

    attn_out: Quantity
    results: Quantity
    """All heads' results and b_O, before an output norm."""
    mlp_out: Quantity | None


class LayerAudit:
    """The checks of one layer, on what it held in one run."""

    def __init__(self, gpt: GPT, layer: int, cache: ActivationCache, ledger: Ledger) -> None:
        self.config, self.layer, self.block = gpt.config, layer, gpt.layers[layer]
        self.dtype = gpt.dtype
        self.inner = torch.promote_types(gpt.dtype, torch.float32)
        self.cache, self.ledger = cache, ledger

    def run(self) -> Written:
        """Check everything; what the layer wrote, for sums over layers."""
        stream, carry = self._read(Tap.RESID_PRE), carried(self.config)
        attn_out, results = self._attention(stream)
        after_attention = Tap.RESID_POST if self.block.mlp is None else Tap.RESID_MID
        self._sum(stream.times(carry) + attn_out, "ln1", self.block.ln1, after_attention)
        if self.block.mlp is None:
            return Written(attn_out, results, None)
        mlp_out = self._ffn(self.block.mlp)
        self._sum(self._read(Tap.RESID_MID).times(carry) + mlp_out, "ln2", self.block.ln2, Tap.RESID_POST)
        return Written(attn_out, results, mlp_out)

    # --- attention ----------------------------------------------------------------------------------------------------

    def _attention(self, stream: Quantity) -> tuple[Quantity, Quantity]:
        attn, config = self.block.attn, self.config
        read = self._sublayer_input("ln1", self.block.ln1, stream)
        self._projections(attn, read)
        if config.positions is Positions.ROPE:
            n_pos = stream.value.shape[1]  # a turn of so many radians is itself known to fp64 only
            tolerance = rounding(self.dtype, 4) + rounding(torch.float64, 4 * n_pos)
            for tap, rotated in ((Tap.Q, Tap.ROT_Q), (Tap.K, Tap.ROT_K)):
                self._compare("rotation", turned(self._read(tap), config), rotated, tolerance)
        self._scores()
        self._pattern()
        pattern, v = self._raw(Tap.PATTERN), self._shared(self._raw(Tap.V))
        mixed = Quantity.of(pattern).product("bhqk,bkhe->bqhe", v)
        self._compare("values mixed", mixed, Tap.Z, rounding(self.dtype, pattern.shape[-1]))
        return self._writing(attn)

    def _projections(self, attn: Attention, read: Quantity) -> None:
        """Row h * d_head + e of a projection's weight belongs to dimension e of head h."""
        config = self.config
        for tap, linear, n_heads, gain in (
            (Tap.Q, attn.q_proj, config.n_heads, attn.q_gain),
            (Tap.K, attn.k_proj, config.kv_heads, attn.k_gain),
            (Tap.V, attn.v_proj, config.kv_heads, None),
        ):
            flat = read.through(linear.weight, linear.bias)
            heads = Quantity(*(each.reshape(*each.shape[:-1], n_heads, -1) for each in (flat.value, flat.size)))
            expected = heads if gain is None else unit_heads(heads, gain, config)
            if tap is Tap.K and attn.k_smear is not None:
                expected = mixed_with_previous(expected, attn.k_smear)
            self._compare("queries, keys, values", expected, tap, rounding(self.dtype, config.d_model + 8))

    def _scores(self) -> None:
        config, is_rope = self.config, self.config.positions is Positions.ROPE
        q = self._raw(Tap.ROT_Q if is_rope else Tap.Q)
        k = self._shared(self._raw(Tap.ROT_K if is_rope else Tap.K))
        found = exact(self._raw(Tap.ATTN_SCORES))
        expected = Quantity.of(q).product("bqhe,bkhe->bhqk", k).times(1 / math.sqrt(config.head_width))
        expected = expected + Quantity.of(position_bias(config, q.shape[1]))
        seen = visible(config, q.shape[1]).expand_as(found)
        shown = Quantity(torch.where(seen, expected.value, 0.0), expected.size)
        tolerance = rounding(self.inner, config.head_width)
        self._note("scores", shown.error(torch.where(seen, found, 0.0)), tolerance)
        hidden = found.isneginf()
        wrong = (hidden == seen) | (~seen & (exact(self._raw(Tap.PATTERN)) != 0))
        self._note("mask", float(wrong.double().mean()), 0.0, "the share of scores whose mask is wrong")

    def _pattern(self) -> None:
        scores, found = exact(self._raw(Tap.ATTN_SCORES)), exact(self._raw(Tap.PATTERN))
        powers = (scores - scores.amax(-1, keepdim=True)).exp()
        expected = powers / powers.sum(-1, keepdim=True)
        off = (found - expected).abs() / expected.amax(-1, keepdim=True)
        sums = (found.sum(-1) - 1).abs()
        tolerance = rounding(self.inner, scores.shape[-1] + 8)
        self._note("pattern", max_of(off, sums), tolerance, f"relative to the largest of each row; {ROUNDED}")

    def _writing(self, attn: Attention) -> tuple[Quantity, Quantity]:
        """Each head's result from its own z and its own columns of the output matrix, then all of them together."""
        config, weight = self.config, exact(attn.o_proj.weight)
        by_head = weight.reshape(config.d_model, config.n_heads, config.head_width)
        result = Quantity.of(self._raw(Tap.Z)).product("bphe,dhe->bphd", by_head)
        self._compare("head results", result, Tap.RESULT, rounding(self.dtype, config.head_width))
        read = exact(self._raw(Tap.RESULT))
        together = Quantity(read.sum(2), result.size.sum(2))
        if attn.o_proj.bias is not None:
            together = together + Quantity.of(attn.o_proj.bias)
        expected = self._output("ln1_post", self.block.ln1_post, together)
        tolerance = rounding(self.dtype, 2 * config.n_heads * config.head_width + config.d_model)
        self._compare("attention output", expected, Tap.ATTN_OUT, tolerance)
        return Quantity.of(self._raw(Tap.ATTN_OUT)), together

    # --- FFN ----------------------------------------------------------------------------------------------------------

    def _ffn(self, ffn: FFN) -> Quantity:
        config = self.config
        read = self._sublayer_input("ln2", self.block.ln2, self._read(Tap.RESID_MID))
        tolerance = rounding(self.dtype, config.d_model + 1)
        first = ffn.in_proj if ffn.gate_proj is None else ffn.gate_proj
        self._compare("FFN input", read.through(first.weight, first.bias), Tap.MLP_PRE, tolerance)
        linear = None
        if ffn.gate_proj is not None:
            straight = read.through(ffn.in_proj.weight, ffn.in_proj.bias)
            self._compare("FFN input", straight, Tap.MLP_PRE_LINEAR, tolerance)
            linear = self._read(Tap.MLP_PRE_LINEAR)
        post = coefficients(config.ffn, self._read(Tap.MLP_PRE), linear)
        self._compare("coefficients", post, Tap.MLP_POST, rounding(self.dtype, 8))
        written = self._read(Tap.MLP_POST).through(ffn.out_proj.weight, ffn.out_proj.bias)
        expected = self._output("ln2_post", self.block.ln2_post, written)
        self._compare("FFN output", expected, Tap.MLP_OUT, rounding(self.dtype, config.ffn_width + config.d_model))
        return self._read(Tap.MLP_OUT)

    # --- norms and sums -----------------------------------------------------------------------------------------------

    def _sublayer_input(self, name: str, norm: NormLayer | None, stream: Quantity) -> Quantity:
        """What a sublayer reads: the stream, through the norm before it if there is one."""
        if norm is None or self.config.norm not in PRE_NORM_READS:
            return stream
        self._norm(name, norm, stream, shrink_of(self.config, self.layer))
        return self._read(Tap[f"{name.upper()}_OUT"])

    def _output(self, name: str, norm: NormLayer | None, written: Quantity) -> Quantity:
        return written if norm is None else self._norm(name, norm, written)

    def _sum(self, total: Quantity, name: str, norm: NormLayer | None, after: Tap) -> None:
        """The stream after a sublayer is the sum; under post and deepnorm, the norm of it."""
        on_sum = norm is not None and self.config.norm in SUM_NORMS
        expected = self._norm(name, norm, total) if norm is not None and on_sum else total
        n_terms = self.config.d_model if on_sum else 2
        self._compare("stream", expected, after, rounding(self.dtype, n_terms))

    def _norm(self, name: str, norm: NormLayer, x: Quantity, shrink: float = 1.0) -> Quantity:
        expected = normed(x, norm, self.config, shrink=shrink)
        taps = {part: Tap[f"{name.upper()}_{part}"] for part in ("SCALE", "NORMALIZED", "OUT")}
        inner = self.dtype if name.endswith("_post") or self.config.norm in SUM_NORMS else self.inner
        # A norm on something that was itself rounded to the model's format is known no better than that.
        n_terms = self.config.d_model + (self.config.ffn_width or 0) + self.config.n_heads * self.config.head_width
        self._compare("norms", expected.scale, taps["SCALE"], rounding(inner, n_terms))
        self._compare("norms", expected.normalized, taps["NORMALIZED"], rounding(inner, n_terms))
        self._compare("norms", expected.out, taps["OUT"], rounding(self.dtype, n_terms))
        return expected.out

    # --- reading and noting -------------------------------------------------------------------------------------------

    def _raw(self, tap: Tap) -> Tensor:
        return self.cache[tap.at(self.layer)]

    def _read(self, tap: Tap) -> Quantity:
        return Quantity.of(self._raw(tap))

    def _shared(self, heads: Tensor) -> Tensor:
        """Key-value heads as the query heads see them: consecutive query heads share one."""
        owner = torch.arange(self.config.n_heads) * self.config.kv_heads // self.config.n_heads
        return heads[:, :, owner.to(heads.device)]

    def _compare(self, name: str, expected: Quantity, tap: Tap, tolerance: float) -> None:
        self._note(name, expected.error(self._raw(tap)), tolerance)

    def _note(self, name: str, error: float, tolerance: float, unit: str = ROUNDED) -> None:
        self.ledger.measured(name, error, tolerance, where=f"L{self.layer}", unit=unit)


def max_of(*tensors: Tensor) -> float:
    """The largest entry; not a number if any entry is."""
    return float(torch.stack([tensor.max() for tensor in tensors]).max())
