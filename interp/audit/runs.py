"""Runs of the whole model that must agree: to rounding, or bit for bit.

How far rounding carries through a whole model depends on the model: sharp attention and many layers amplify it. So the
tolerance of these checks is measured on the model itself: every place of the run is shaken by its own rounding, and
four times what that does to the logits is allowed (`rounding_noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation import ablated, hooks_for
from interp.audit.layers import ROUNDED
from interp.audit.quantity import Quantity, exact, rounding, unit_roundoff
from interp.audit.record import Ledger
from interp.audit.reference import normed
from model.config import AttentionKind
from model.hooks import Hook
from model.kv_cache import KeyValueCache
from model.sites import ON_DEMAND, Tap, sites

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.norms import NormLayer

MOST_NOISE = 0.05
"""However sharply a model amplifies rounding, two runs may not differ by more than this share of its largest logit."""

_STEPS = 4
"""Tokens that are decoded one by one."""

_SHAKEN = "relative to the largest logit; four times what shaking every place by its own rounding changes"
_BITS = "the share of logits that are not bit for bit equal"
_BESIDE = frozenset({*ON_DEMAND, *(tap for tap in Tap if tap.template.endswith(("hook_scale", "hook_normalized")))})


class RunAudit:
    """The checks that run the model several times on the same tokens."""

    def __init__(self, gpt: GPT, tokens: Int[Tensor, "batch pos"], ledger: Ledger, generator: torch.Generator) -> None:
        self.gpt, self.config, self.tokens = gpt, gpt.config, tokens
        self.ledger, self.generator = ledger, generator
        with gpt.explicit_attention():
            self.logits: Float[Tensor, "batch pos d_vocab"] = gpt(tokens)
        self.fused: Float[Tensor, "batch pos d_vocab"] = gpt(tokens)
        self.noise = 4 * rounding_noise(gpt, tokens, self.logits, generator)

    def run(self) -> None:
        """Every check."""
        self._agree("fused attention", self.fused, self.logits)
        self._decode()
        self._padding()
        self._causality()
        self._ablation()
        self._head_ablation()
        self._reading()
        self._idle_edit()

    def _decode(self) -> None:
        if self.config.attention is AttentionKind.BIDIRECTIONAL:
            self.ledger.skipped("cached decode", "bidirectional attention: it does not generate")
        elif not self._too_short("cached decode"):
            self._agree("cached decode", self._decoded(), self.fused)
            with ablated(self.gpt, "L0H0:zero"):
                self._agree("cached decode", self._decoded(), self.gpt(self.tokens), where="with L0H0 ablated")

    def _decoded(self) -> Tensor:
        """The first half at once, a few tokens one by one, the rest at once."""
        n_batch, n_pos = self.tokens.shape
        cache = KeyValueCache(self.config, n_batch, device=self.gpt.device, dtype=self.gpt.dtype)
        first, second = self.tokens.split((n_pos // 2, n_pos - n_pos // 2), dim=1)
        steps = [first, *second[:, :_STEPS].split(1, dim=1), second[:, _STEPS:]]
        return torch.cat([self.gpt(step, kv_cache=cache) for step in steps if step.shape[1]], dim=1)

    def _padding(self) -> None:
        """Two lengths of padding on the left in one batch, beside the same tokens alone."""
        if self._too_short("padding"):
            return
        n_batch, n_pos = self.tokens.shape
        longest = min(n_pos - 1, 5)
        pads = torch.where(torch.arange(n_batch) % 2 == 0, longest, (longest + 1) // 2)
        padded = torch.stack([torch.roll(row, n) for row, n in zip(self.tokens, pads.tolist(), strict=True)])
        beside = self.gpt(padded, (torch.arange(n_pos) >= pads[:, None]).to(padded.device))
        for n in set(pads.tolist()):
            rows = pads == n
            self._agree("padding", beside[rows, n:], self.gpt(self.tokens[rows, : n_pos - n]))

    def _causality(self) -> None:
        if self.config.attention is AttentionKind.BIDIRECTIONAL:
            self.ledger.skipped("causality", "bidirectional attention: every position sees the later ones")
            return
        if self._too_short("causality"):
            return
        kept = self.tokens.shape[1] // 2
        other = torch.randint(self.config.d_vocab, self.tokens.shape, generator=self.generator).to(self.tokens)
        changed = torch.cat((self.tokens[:, :kept], other[:, kept:]), dim=1)
        self._same_bits("causality", self.gpt(changed)[:, :kept], self.fused[:, :kept])

    def _ablation(self) -> None:
        """With nothing at z and at the coefficients, sublayers write their output bias, through an output norm."""
        taps = (Tap.ATTN_OUT,) if self.config.ffn_width == 0 else (Tap.ATTN_OUT, Tap.MLP_OUT)
        layers = range(self.config.n_layers)
        kinds = ("attn", "ffn")[: len(taps)]
        everything = ",".join(f"L{layer}.{kind}:zero" for layer in layers for kind in kinds)
        with ablated(self.gpt, everything):
            _, cache = self.gpt.run_with_cache(
                self.tokens, [tap.at(layer) for layer in layers for tap in taps], return_type=None
            )
        for layer, block in enumerate(self.gpt.layers):
            sublayers = [(Tap.ATTN_OUT, block.attn.o_proj.bias, block.ln1_post)]
            if block.mlp is not None:
                sublayers.append((Tap.MLP_OUT, block.mlp.out_proj.bias, block.ln2_post))
            for tap, bias, norm in sublayers:
                error = self._only(bias, norm).error(cache[tap.at(layer)])
                tolerance = rounding(self.gpt.dtype, self.config.d_model)
                self.ledger.measured("ablation", error, tolerance, where=f"L{layer}", unit=ROUNDED)

    def _only(self, bias: Tensor | None, norm: NormLayer | None) -> Quantity:
        nothing = torch.zeros(self.config.d_model)
        written = Quantity.of(nothing if bias is None else bias)
        return written if norm is None else normed(written, norm, self.config).out

    def _head_ablation(self) -> None:
        """One head of each layer, ablated at z and, in another run, left out of the results."""
        layers = range(self.config.n_layers)
        heads = {layer: layer % self.config.n_heads for layer in layers}
        at_z = hooks_for(self.gpt, ",".join(f"L{layer}H{head}:zero" for layer, head in heads.items()))

        def leave_out(result: Tensor, hook: Hook) -> None:
            result[:, :, heads[hook.layer or 0]] = 0

        left_out = [(Tap.RESULT.at(layer), leave_out) for layer in layers]
        with self.gpt.explicit_attention():
            one, other = (self.gpt.run_with_hooks(self.tokens, hooks) for hooks in (at_z, left_out))
        self._agree("head ablation", one, other)

    def _reading(self) -> None:
        with self.gpt.explicit_attention():
            read, _ = self.gpt.run_with_cache(self.tokens, lambda name: True, pos_slice=0)
        self._same_bits("reading", read, self.logits)

    def _idle_edit(self) -> None:
        with self.gpt.explicit_attention():
            edited = self.gpt.run_with_hooks(self.tokens, [(lambda name: True, lambda x, hook: None)])
        self._same_bits("idle edit", edited, self.logits)

    def _too_short(self, name: str) -> bool:
        if self.tokens.shape[1] > 1:
            return False
        self.ledger.skipped(name, "there is one position only")
        return True

    def _agree(self, name: str, found: Tensor, expected: Tensor, *, where: str = "") -> None:
        most = float(self.logits.abs().max())
        error = float((exact(found) - exact(expected)).abs().max())
        error = error / most if most else error
        self.ledger.measured(name, error, min(self.noise, MOST_NOISE), where=where, unit=_SHAKEN)

    def _same_bits(self, name: str, found: Tensor, expected: Tensor) -> None:
        self.ledger.measured(name, differing(found, expected), 0.0, unit=_BITS)


def check_dropout(gpt: GPT, tokens: Int[Tensor, "batch pos"], ledger: Ledger) -> None:
    """Two runs in the mode in which the model was given; the caller's random numbers stay as they were."""
    is_on = gpt.config.dropout > 0 and any(module.training for module in gpt.modules())
    reason = "Call gpt.eval(); the other checks are measured in evaluation mode" if is_on else ""
    with torch.random.fork_rng([gpt.device] if gpt.device.type == "cuda" else []):
        ledger.measured("dropout", differing(gpt(tokens), gpt(tokens)), 0.0, unit=_BITS, reason=reason)


def rounding_noise(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    logits: Float[Tensor, "batch pos d_vocab"],
    generator: torch.Generator,
) -> float:
    """What rounding does to the logits of this model, relative to the largest of them.

    Every place of the forward pass is multiplied by 1 plus or minus what a sum of d_model terms is off by: one unit
    roundoff of the number format, and sqrt(d_model) of fp32 (or better) for the adding.
    """
    inner = torch.promote_types(gpt.dtype, torch.float32)
    amplitude = unit_roundoff(gpt.dtype) + math.sqrt(gpt.config.d_model) * unit_roundoff(inner)

    def shake(x: Tensor, hook: Hook) -> Tensor:
        del hook
        exactly = torch.promote_types(x.dtype, torch.float32)
        signs = (torch.randint(2, x.shape, generator=generator) * 2 - 1).to(x.device, exactly)
        return (x.to(exactly) * (1 + amplitude * signs)).to(x.dtype)

    shaken = [name for name, site in sites(gpt.config).items() if site.tap not in _BESIDE]
    hooks: list[tuple[str, Callable[[Tensor, Hook], Tensor]]] = [(name, shake) for name in shaken]
    with gpt.explicit_attention():
        moved = exact(gpt.run_with_hooks(tokens, hooks)) - exact(logits)
    most = float(logits.abs().max())
    return float(moved.abs().max()) / most if most else 0.0


def differing(found: Tensor, expected: Tensor) -> float:
    """The share of entries whose bits differ; two that are no numbers are equal."""
    same = (found == expected) | (found.isnan() & expected.isnan())
    return float((~same).double().mean())
