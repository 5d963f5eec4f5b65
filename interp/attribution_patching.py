"""Attribution patching: every patch at once, to first order (Nanda 2023; Kramar et al. 2024; Syed et al. 2023).

Activation patching takes a pass for each place. To first order its effect is a product, which two forward passes and
one backward give for all places together:

    effect(c)  ~  (c_source - c_base) . dM/dc at the base run

The approximation fails where the model is far from linear between the two runs, first of all in a softmax: where a
head attends with all its attention, dM/dq and dM/dk vanish and the patch looks like nothing. AtP*'s *QK fix* forms the
pattern A' with the patched queries (or keys), and goes on linearly from there:

    effect(q)  ~  sum over query and key positions of (A' - A) dM/dA

So estimates are only a way to choose what to look at; beside them belong true effects (`interp.patching`), held
against each other by `interp.approximation`. Where a metric is flat (a loss of nearly zero), gradients die in the
metric itself: take a logit difference. Edges from head to head have such an estimate, too (`edge_attribution`, EAP).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.gradients import fitting_rows
from interp.metrics import Metric, Sequences, measured, split_rows
from interp.patching import Direction, Others, require_pairs
from interp.paths import Input, require_edges
from interp.requirements import require_deterministic
from model.config import Positions
from model.errors import InputError, UndefinedError
from model.settings import as_enum
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import ActivationCache

OF_HEADS = (Tap.Q, Tap.K, Tap.V, Tap.Z)
"""The places of heads whose effects are estimated."""

SplitTaps = {Input.Q: Tap.Q_INPUT, Input.K: Tap.K_INPUT, Input.V: Tap.V_INPUT}


class Method(StrEnum):
    """How an effect is estimated."""

    LINEAR = "linear"
    """Difference times gradient."""
    QK_FIX = "qk fix"
    """The pattern recomputed with the patched queries or keys, linear from there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Estimated effects of patching one kind of place, head by head; float64 on the CPU, in units of the metric."""

    tap: Tap
    method: Method
    direction: Direction

    effect: Float[Tensor, "sequence layer component"]
    """Patched minus base, as `interp.patching.Patched.effect`; components are key-value heads at K and V."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", as_enum(Method, self.method, "method"))
        object.__setattr__(self, "direction", as_enum(Direction, self.direction, "direction"))


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeEstimates:
    """Estimated effects of patching edges between heads, mean over sequences; FFNs and other heads held (EAP)."""

    by_input: Mapping[Input, Float[Tensor, "sender_layer sender receiver_layer receiver"]]
    """NaN where the receiver is not in a later layer; receivers are key-value heads at K and V."""


def attribution_patching(
    gpt: GPT,
    clean: Sequences,
    corrupted: Others,
    metric: Metric,
    *,
    taps: Sequence[Tap] = OF_HEADS,
    direction: Direction | str = Direction.NOISING,
    batch_size: int | None = None,
) -> list[Estimates]:
    """Estimate the effect of patching every head at every one of `taps`; queries and keys by both methods.

    Args:
        gpt: the model, its dropout off.
        clean: prompts on which it does something, of one length, without padding.
        corrupted: one for each of them, of the same shape.
        metric: what is measured, differentiable (`interp.metrics`).
        taps: among Tap.Q, Tap.K, Tap.V and Tap.Z.
        direction: the base run is the clean one (noising) or the corrupted one (denoising).
        batch_size: pairs at a time; as many as fit into a gigabyte by default.
    """
    direction = as_enum(Direction, direction, "direction")
    require_pairs(gpt, clean, corrupted)
    require_deterministic(gpt)
    wrong = [tap for tap in taps if tap not in OF_HEADS]
    if wrong or not taps:
        raise InputError(f"attribution patching is of heads' Q, K, V and Z; taps={list(taps)} holds none or others.")
    found: dict[tuple[Tap, Method], list[Tensor]] = {}
    for rows in split_rows(len(clean), batch_size or fitting_rows(gpt.config, clean.shape[1])):
        base, source = (each[rows].to(gpt.device) for each in (clean, corrupted))
        if direction is Direction.DENOISING:
            base, source = source, base
        for tap, method, effect in _Pair.of(gpt, base, source, metric, rows, taps).estimates():
            found.setdefault((tap, method), []).append(effect.double().cpu())
    return [
        Estimates(tap=tap, method=method, direction=direction, effect=torch.cat(parts))
        for (tap, method), parts in found.items()
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pair:
    """A batch of both runs: what the base run held, with gradients, and what the source held."""

    gpt: GPT
    taps: Sequence[Tap]
    base: ActivationCache
    source: ActivationCache

    @classmethod
    def of(
        cls,
        gpt: GPT,
        base: Int[Tensor, "batch pos"],
        source: Int[Tensor, "batch pos"],
        metric: Metric,
        rows: Int[Tensor, " batch"],
        taps: Sequence[Tap],
    ) -> _Pair:
        layers = range(gpt.config.n_layers)
        patched = [str(tap.at(layer)) for tap in taps for layer in layers]
        fixed = {Tap.Q, Tap.K} & set(taps)
        final = [str(tap.at(layer)) for tap in _scored(gpt) for layer in layers] if fixed else []
        square = [str(tap.at(layer)) for tap in (Tap.ATTN_SCORES, Tap.PATTERN) for layer in layers] if fixed else []
        with torch.no_grad():
            _, other = gpt.run_with_cache(source, [*patched, *final], return_type=None)
        own = differentiated(gpt, base, [*patched, *final, *square], metric, rows)
        return cls(gpt=gpt, taps=taps, base=own, source=other)

    def estimates(self) -> Iterator[tuple[Tap, Method, Float[Tensor, "batch layer component"]]]:
        """Every tap by every method that there is for it."""
        layers = range(self.gpt.config.n_layers)
        for tap in self.taps:
            yield tap, Method.LINEAR, torch.stack([self._linear(tap, layer) for layer in layers], dim=1)
            if tap in (Tap.Q, Tap.K):
                yield tap, Method.QK_FIX, torch.stack([self._fixed(tap, layer) for layer in layers], dim=1)

    def _linear(self, tap: Tap, layer: int) -> Float[Tensor, "batch component"]:
        site = tap.at(layer)
        change = self.source[site] - self.base[site]
        return (change * self.base[f"{site}_grad"]).sum((1, 3))

    def _fixed(self, tap: Tap, layer: int) -> Float[Tensor, "batch component"]:
        """(A' - A) dM/dA, with the queries or the keys of the source; keys change the whole group of heads."""
        at_q, at_k = (each.at(layer) for each in _scored(self.gpt))
        group = self.gpt.config.n_heads // self.gpt.config.kv_heads
        if tap is Tap.Q:
            q, k = self.source[at_q] - self.base[at_q], self.base[at_k]
        else:
            q, k = self.base[at_q], self.source[at_k] - self.base[at_k]
        k = k.repeat_interleave(group, dim=2)
        moved = torch.einsum("bqhe,bkhe->bhqk", q, k) / math.sqrt(self.gpt.config.head_width)
        scores, pattern = self.base[Tap.ATTN_SCORES.at(layer)], Tap.PATTERN.at(layer)
        change = (scores + moved).softmax(-1) - self.base[pattern]
        effect = (change * self.base[f"{pattern}_grad"]).sum((2, 3))
        return effect if tap is Tap.Q else effect.unflatten(1, (-1, group)).sum(2)


def edge_attribution(
    gpt: GPT, clean: Sequences, corrupted: Others, metric: Metric, *, batch_size: int | None = None
) -> EdgeEstimates:
    """Estimate the effect of every edge from a head to an input of a later head (EAP, Syed et al. 2023).

    The corrupted output of the sender in the clean run: (z' - z) W_O . dM/d(input), summed over positions. The true
    effects are those of `interp.path_patching` with frozen FFNs. Needs heads that write into the stream as they are.
    """
    require_edges(gpt.config)
    if gpt.config.n_layers == 1:
        said = "a model of one layer has no later head that could read an earlier one; there is no edge."
        raise UndefinedError(said, setting="n_layers=1")
    require_pairs(gpt, clean, corrupted)
    require_deterministic(gpt)
    layers = range(gpt.config.n_layers)
    writes = [str(Tap.Z.at(layer)) for layer in layers]
    reads = [str(tap.at(layer)) for tap in SplitTaps.values() for layer in layers]
    sums: dict[Input, Tensor] = {}
    for rows in split_rows(len(clean), batch_size or fitting_rows(gpt.config, clean.shape[1])):
        base, source = (each[rows].to(gpt.device) for each in (clean, corrupted))
        with torch.no_grad():
            _, other = gpt.run_with_cache(source, writes, return_type=None)
        own = differentiated(gpt, base, [*writes, *reads], metric, rows)
        change = torch.stack([other[name] - own[name] for name in writes])
        sent = torch.einsum("lbphe,lhem->lbphm", change, gpt.W_O)
        for each, tap in SplitTaps.items():
            gradient = torch.stack([own[f"{tap.at(layer)}_grad"] for layer in layers])
            score = torch.einsum("sbpum,rbpvm->surv", sent, gradient).double().cpu()
            sums[each] = sums[each] + score if each in sums else score
    later = torch.tensor([[receiver > sender for receiver in layers] for sender in layers])[:, None, :, None]
    return EdgeEstimates(by_input={each: (total / len(clean)).where(later, math.nan) for each, total in sums.items()})


def differentiated(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], names: Sequence[str], metric: Metric, rows: Int[Tensor, " batch"]
) -> ActivationCache:
    """What `names` held, with the gradients of each sequence's own metric under NAME_grad."""

    def summed(logits: Float[Tensor, "batch pos d_vocab"]) -> Tensor:
        return measured(metric, logits, rows).sum()  # sequences do not meet, so each has the gradient of its own number

    with torch.enable_grad():
        return gpt.run_with_cache(tokens, list(names), incl_bwd=True, loss_fn=summed, return_type=None)[1]


def _scored(gpt: GPT) -> tuple[Tap, Tap]:
    """The queries and keys that scores are made of."""
    return (Tap.ROT_Q, Tap.ROT_K) if gpt.config.positions is Positions.ROPE else (Tap.Q, Tap.K)
