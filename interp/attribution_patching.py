"""Attribution patching: every patch at once, to first order (Nanda 2023; Kramar et al. 2024; Syed et al. 2023).

Activation patching takes a pass for each place. To first order its effect is a product, which two forward passes and
one backward give for all places together:

    effect(c)  ~  (c_source - c_base) . dM/dc at the base run

The approximation fails where the model is far from linear between the two runs, first of all in a softmax: where a
head attends with all its attention, dM/dq and dM/dk vanish and the patch looks like nothing. AtP*'s *QK fix* forms the
pattern A' with the patched queries (or keys), and goes on linearly from there:

    effect(q)  ~  sum over query and key positions of (A' - A) dM/dA

Two more gradients mend other faults. *GradDrop* (AtP*): where what a head adds by itself and what later layers make of
it cancel at the base run, the sum is blind, so each later layer is in turn left out of the way back, and the absolute
values of what comes are averaged (queries and keys with the QK fix). *Integrated* gradients (after EAP-IG): where the
metric is flat at the base run, as a divergence from it is by definition, the gradient is averaged on the way from the
source's embeddings to the base's.

So estimates are only a way to choose what to look at; beside them belong true effects (`interp.patching`), held
against each other by `interp.approximation`. Where a metric is flat (a loss of nearly zero), gradients die in the
metric itself: take a logit difference, or integrate. Edges from head to head: `interp.edge_attribution`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.gradients import fitting_rows
from interp.metrics import Metric, Sequences, split_rows
from interp.patching import Direction, Others, require_pairs
from interp.patching_gradients import (
    N_STEPS,
    Gradients,
    differentiated,
    dropped,
    gradients_in,
    integrated,
    require_steps,
)
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


class Method(StrEnum):
    """How an effect is estimated."""

    LINEAR = "linear"
    """Difference times gradient."""
    QK_FIX = "qk fix"
    """The pattern recomputed with the patched queries or keys, linear from there."""
    GRAD_DROP = "grad drop"
    """The mean absolute estimate over gradients that leave out one layer each (AtP*); a size, and no direction."""
    INTEGRATED = "integrated"
    """Difference times the mean gradient on the way from the source's embeddings to the base's."""


PLAIN = (Method.LINEAR, Method.QK_FIX)
"""What one backward pass gives; GradDrop takes another for each layer, integration one for each step."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Estimated effects of patching one kind of place, head by head; float64 on the CPU, in units of the metric."""

    tap: Tap
    method: Method
    direction: Direction

    effect: Float[Tensor, "sequence layer component"]
    """Patched minus base, as `interp.patching.Patched.effect`; components are key-value heads at K and V. By GradDrop
    its absolute size, so that means over sequences do not cancel either."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", as_enum(Method, self.method, "method"))
        object.__setattr__(self, "direction", as_enum(Direction, self.direction, "direction"))


def attribution_patching(
    gpt: GPT,
    clean: Sequences,
    corrupted: Others,
    metric: Metric,
    *,
    taps: Sequence[Tap] = OF_HEADS,
    direction: Direction | str = Direction.NOISING,
    methods: Sequence[Method | str] = PLAIN,
    n_steps: int = N_STEPS,
    batch_size: int | None = None,
) -> list[Estimates]:
    """Estimate the effect of patching every head at every one of `taps`, by each method that there is for it.

    Args:
        gpt: the model, its dropout off.
        clean: prompts on which it does something, of one length, without padding.
        corrupted: one for each of them, of the same shape.
        metric: what is measured, differentiable (`interp.metrics`).
        taps: among Tap.Q, Tap.K, Tap.V and Tap.Z.
        direction: the base run is the clean one (noising) or the corrupted one (denoising).
        methods: how; the QK fix is for queries and keys only.
        n_steps: runs that are integrated over, the base run the last of them.
        batch_size: pairs at a time; as many as fit into a gigabyte by default.
    """
    direction = as_enum(Direction, direction, "direction")
    chosen = tuple(as_enum(Method, each, "methods") for each in methods)
    require_pairs(gpt, clean, corrupted)
    require_deterministic(gpt)
    require_steps(n_steps)
    _require_estimable(gpt, taps, chosen)
    found: dict[tuple[Tap, Method], list[Tensor]] = {}
    for rows in split_rows(len(clean), batch_size or fitting_rows(gpt.config, clean.shape[1])):
        base, source = (each[rows].to(gpt.device) for each in (clean, corrupted))
        if direction is Direction.DENOISING:
            base, source = source, base
        pair = _Pair.of(gpt, base, source, metric, rows, taps)
        for tap, method, effect in pair.estimates(chosen, n_steps):
            found.setdefault((tap, method), []).append(effect.double().cpu())
    return [
        Estimates(tap=tap, method=method, direction=direction, effect=torch.cat(parts))
        for (tap, method), parts in found.items()
    ]


def _require_estimable(gpt: GPT, taps: Sequence[Tap], methods: Sequence[Method]) -> None:
    wrong = [tap for tap in taps if tap not in OF_HEADS]
    if wrong or not taps:
        raise InputError(f"attribution patching is of heads' Q, K, V and Z; taps={list(taps)} holds none or others.")
    if not methods or (set(methods) == {Method.QK_FIX} and not {Tap.Q, Tap.K} & set(taps)):
        raise InputError(
            f"methods={[str(each) for each in methods]} estimate nothing at {', '.join(tap.name for tap in taps)}; "
            f"choose among {', '.join(Method)}."
        )
    if Method.GRAD_DROP in methods and gpt.config.n_layers == 1:
        raise UndefinedError(
            "a model of one layer has no other layer to leave out, so no GradDrop.", setting="n_layers=1"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pair:
    """A batch of both runs: what the base run held, with gradients, and what the source held."""

    gpt: GPT
    tokens: tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]
    """Of the base and of the source."""
    metric: Metric
    rows: Int[Tensor, " batch"]
    taps: Sequence[Tap]
    names: Sequence[str]
    """Places whose gradients are taken."""
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
        names = list(dict.fromkeys([*patched, *final, *square]))
        own = differentiated(gpt, base, names, metric, rows)
        return cls(
            gpt=gpt, tokens=(base, source), metric=metric, rows=rows, taps=taps, names=names, base=own, source=other
        )

    def estimates(
        self, methods: Sequence[Method], n_steps: int
    ) -> Iterator[tuple[Tap, Method, Float[Tensor, "batch layer component"]]]:
        """Every tap by every method that there is for it, plain ones first."""
        here = gradients_in(self.base, self.names)
        for tap in self.taps:
            if Method.LINEAR in methods:
                yield tap, Method.LINEAR, self._layers(self._linear, tap, here)
            if Method.QK_FIX in methods and tap in (Tap.Q, Tap.K):
                yield tap, Method.QK_FIX, self._layers(self._fixed, tap, here)
        if Method.GRAD_DROP in methods:
            yield from ((tap, Method.GRAD_DROP, effect) for tap, effect in self._dropped().items())
        if Method.INTEGRATED in methods:
            base, source = self.tokens
            way = integrated(self.gpt, base, source, self.names, self.metric, self.rows, n_steps=n_steps)
            for tap in self.taps:
                yield tap, Method.INTEGRATED, self._layers(self._linear, tap, way)

    def _dropped(self) -> dict[Tap, Float[Tensor, "batch layer component"]]:
        """Mean |estimate| over the layers left out; a head's own layer is no such layer: without it nothing comes."""
        n_layers = self.gpt.config.n_layers
        total: dict[Tap, Tensor] = {}
        for left_out in range(n_layers):
            way = dropped(self.gpt, self.tokens[0], self.names, self.metric, self.rows, layer=left_out)
            for tap in self.taps:
                by = self._fixed if tap in (Tap.Q, Tap.K) else self._linear
                size = self._layers(by, tap, way).abs() / (n_layers - 1)
                total[tap] = total[tap] + size if tap in total else size
        return total

    def _layers(self, estimate: _Estimate, tap: Tap, way: Gradients) -> Float[Tensor, "batch layer component"]:
        return torch.stack([estimate(tap, layer, way) for layer in range(self.gpt.config.n_layers)], dim=1)

    def _linear(self, tap: Tap, layer: int, way: Gradients) -> Float[Tensor, "batch component"]:
        site = tap.at(layer)
        return ((self.source[site] - self.base[site]) * way[str(site)]).sum((1, 3))

    def _fixed(self, tap: Tap, layer: int, way: Gradients) -> Float[Tensor, "batch component"]:
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
        effect = (change * way[str(pattern)]).sum((2, 3))
        return effect if tap is Tap.Q else effect.unflatten(1, (-1, group)).sum(2)


_Estimate = Callable[[Tap, int, Gradients], Tensor]


def _scored(gpt: GPT) -> tuple[Tap, Tap]:
    """The queries and keys that scores are made of."""
    return (Tap.ROT_Q, Tap.ROT_K) if gpt.config.positions is Positions.ROPE else (Tap.Q, Tap.K)
