"""Path patching: what travels from one head to another along the edge between them, and nothing else.

Activation patching shows that a head matters; path patching shows by which way (Wang et al. 2022; Goldowsky-Dill et al.
2023). A *sender*'s output is replaced by another one, the change is carried along the residual stream to the Q, K or V
input of some *receivers* (or to the logits), and there alone it is read; every other head is held at its clean output
on the way. From the receivers on, the model runs freely.

    total     everything reads the replaced output
    Q, K, V   this input of the receivers reads it, nothing else does
    logits    the final norm and W_U read it, no later head does

All effects are per sequence, patched minus clean in units of the metric. The share of a path is the ratio of means,
effect over total; shares of several paths need not sum to 1, as inputs of one head act together. A mean can hide that
paths explain some sequences too much and others too little, so beside it stands the *average unexplained effect*

    AUE = E |total - effect| / E |total|        0: the path is all of the effect, on every sequence

* FFNs between sender and receiver are frozen at clean (the direct edge), or recomputed with what arrives (`FFNs`).
* The receiver's norm is recomputed on what it now reads, so that the effect is exact, or its scale is held at clean
  (`Scales`), so that what is read is linear in what was sent.
* Under grouped key-value heads a K or V input belongs to a group of heads: it cannot be patched for one head of the
  group alone. `PathEffects.shared` says which heads read along.

A sender reaches the receivers of later layers only. Heads whose output a norm mixes before it enters the stream
(sandwich, reordered), and streams that are no sums (post, deepnorm, no skip connections), have no such edges.
Cost: for each sender one pass, and one more for each path; a path costs the layers from its first receiver on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.controls import Head
from interp.metrics import Logits, Metric, on_cpu, split_rows
from interp.outcomes import fitting_batch
from interp.places import head
from interp.recordings import Means, Recording
from interp.requirements import require_deterministic
from interp.stats import Interval, Intervals, bootstrap_means, bootstrap_ratios
from model.config import GPTConfig
from model.errors import InputError, NotAdditiveError
from model.settings import as_enum
from model.sites import Tap, sites

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import ActivationCache, Hook, HookFunction
    from model.norms import NormLayer

Stream = Float[Tensor, "batch pos d_model"]
Sequences = Int[Tensor, "sequence pos"]
Counted = Callable[[int, int], None]
"""Called as counted(senders done, senders in all) over all batches; may raise to stop the work."""


class Input(StrEnum):
    """What a receiver reads the stream for."""

    Q = "q"
    """Where it attends from."""
    K = "k"
    """What it can be found by."""
    V = "v"
    """What it hands on."""


class FFNs(StrEnum):
    """What FFNs between sender and receiver do."""

    FROZEN = "frozen"
    """They write what they wrote in the clean run: only the direct edge counts."""
    RECOMPUTED = "recomputed"
    """They read what the sender changed, and what they make of it belongs to the path."""


class Scales(StrEnum):
    """What the norm that a receiver reads through does."""

    RECOMPUTED = "recomputed"
    """It is computed on what is read now: exact."""
    FROZEN = "frozen"
    """Its scale stays that of the clean run: what is read is linear in what was sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receiver:
    """One input of one head."""

    layer: int
    head: int
    input: Input

    def __post_init__(self) -> None:
        object.__setattr__(self, "input", as_enum(Input, self.input, "input"))

    @property
    def label(self) -> str:
        """The receiver in words, such as `L1H2.K`."""
        return f"{head(self.layer, self.head).label}.{self.input.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """Where what is sent is read: some inputs of heads together, or, without any, the logits."""

    receivers: tuple[Receiver, ...]

    @property
    def label(self) -> str:
        """The path in words."""
        return " ".join(receiver.label for receiver in self.receivers) or "logits"


LOGITS = Path(receivers=())
"""From the sender straight to the logits."""


def feeding_paths(receivers: Sequence[Head]) -> dict[str, Path]:
    """The paths into the same heads by their Q, K and V inputs, and the one to the logits.

    >>> list(feeding_paths([(1, 2)]))
    ['Q', 'K', 'V', 'logits']
    """
    into = {
        each.name: Path(receivers=tuple(Receiver(layer=layer, head=index, input=each) for layer, index in receivers))
        for each in Input
    }
    if not receivers:
        raise InputError("no receivers were given; name at least one head, as (layer, head).")
    return into | {"logits": LOGITS}


@dataclass(frozen=True, kw_only=True, eq=False)
class PathEffects:
    """What senders do by each path, sequence by sequence; float64 on the CPU, in units of the metric."""

    senders: tuple[Head, ...]
    paths: tuple[str, ...]

    shared: tuple[str, ...]
    """Heads that read along with the receivers because they share their keys and values; none without such groups."""

    source: str
    """What the senders' outputs were replaced by, in words."""

    ffns: FFNs
    scales: Scales

    base: Float[Tensor, " sequence"]
    """The metric of the clean run."""

    total: Float[Tensor, "sequence sender"]
    """What replacing each sender's output changes where everything reads it."""

    effect: Float[Tensor, "sequence sender path"]
    """What it changes where only the path reads it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ffns", as_enum(FFNs, self.ffns, "ffns"))
        object.__setattr__(self, "scales", as_enum(Scales, self.scales, "scales"))

    def totals(self, *, seed: int = 0) -> Intervals:
        """Mean total effect of each sender with its interval over sequences."""
        return bootstrap_means(self.total, seed=seed)

    def effects(self, *, seed: int = 0) -> Intervals:
        """Mean effect of each sender by each path, [sender, path]."""
        return bootstrap_means(self.effect, seed=seed)

    def shares(self, *, seed: int = 0) -> Intervals:
        """Mean effect over mean total effect, [sender, path]; NaN for a sender without any effect."""
        return bootstrap_ratios(self.effect, self.total[:, :, None].expand_as(self.effect), seed=seed)

    @property
    def unexplained(self) -> Float[Tensor, "sender path"]:
        """E |total - effect| / E |total|: 0 if the path is all of the effect on every sequence; NaN without any."""
        missing = (self.total[:, :, None] - self.effect).abs().mean(0)
        size = self.total.abs().mean(0)[:, None]
        return torch.where(size > 0, missing / size, math.nan)

    def of(self, sender: Head, path: str, *, seed: int = 0) -> tuple[Interval, Interval]:
        """The effect of one sender by one path, and its share of the total."""
        place = self.senders.index(sender), self.paths.index(path)
        return self.effects(seed=seed)[place], self.shares(seed=seed)[place]


@torch.no_grad()
def path_effects(
    gpt: GPT,
    tokens: Sequences,
    senders: Sequence[Head],
    paths: Mapping[str, Path],
    metric: Metric,
    *,
    source: Recording | Means,
    ffns: FFNs | str = FFNs.FROZEN,
    scales: Scales | str = Scales.RECOMPUTED,
    batch_size: int | None = None,
    counted: Counted | None = None,
) -> PathEffects:
    """Replace each sender's output and let each path alone read it.

    Args:
        gpt: a model whose heads write into the stream as they are (pre, scaled, none), its dropout off.
        tokens: the clean prompts, without padding.
        senders: heads as (layer, head).
        paths: by name; `feeding_paths(heads)` gives the three inputs of some heads and the logits.
        metric: what is measured (`interp.metrics`).
        source: what the senders write instead: what z held in a run of other prompts, one for each of these
            (`interp.recordings.record`, with the z of every sender's layer), or means by position.
        ffns: whether FFNs in between are frozen or recomputed.
        scales: whether the norms that receivers (or the unembedding) read through are recomputed or frozen.
        batch_size: sequences at a time.
        counted: told of every sender in every batch.

    Raises:
        NotAdditiveError: this model has no edges between heads.
        InputError: a head that does not exist, a path that no sender reaches, or a source that does not fit.
    """
    return path_effects_by(
        gpt, tokens, senders, paths, {"": metric}, source=source, ffns=ffns, scales=scales, batch_size=batch_size,
        counted=counted,
    )[""]  # fmt: skip


@torch.no_grad()
def path_effects_by(
    gpt: GPT,
    tokens: Sequences,
    senders: Sequence[Head],
    paths: Mapping[str, Path],
    metrics: Mapping[str, Metric],
    *,
    source: Recording | Means,
    ffns: FFNs | str = FFNs.FROZEN,
    scales: Scales | str = Scales.RECOMPUTED,
    batch_size: int | None = None,
    counted: Counted | None = None,
) -> dict[str, PathEffects]:
    """`path_effects` by several metrics, from the same runs."""
    ffns, scales = as_enum(FFNs, ffns, "ffns"), as_enum(Scales, scales, "scales")
    require_edges(gpt.config)
    require_deterministic(gpt)
    gpt.check_tokens(tokens)
    for layer, index in [*senders, *((each.layer, each.head) for path in paths.values() for each in path.receivers)]:
        _require_head(gpt.config, layer, index)
    _require_reached(senders, paths)
    _require_source(source, tokens)
    if scales is Scales.FROZEN:
        _require_linear(gpt.config, paths)
    kept = [on_cpu(metric) for metric in metrics.values()]
    base, runs = [], []
    batches = split_rows(len(tokens), batch_size or fitting_batch(gpt, tokens.shape[1]))
    for rows in batches:
        run = _Clean.of(gpt, tokens[rows].to(gpt.device), _replaced_z(source, rows, senders), ffns, scales)
        base.append(_measured(run.logits, rows, kept))
        by_sender = []
        for sender in senders:
            logits = [_measured(each, rows, kept) for each in run.by_each_way(sender, paths)]
            by_sender.append(torch.stack(logits, dim=1))
            if counted is not None:
                counted(len(runs) * len(senders) + len(by_sender), len(batches) * len(senders))
        runs.append(torch.stack(by_sender, dim=1))
    clean, patched = torch.cat(base), torch.cat(runs)
    change = patched - clean[:, None, None]
    return {
        name: PathEffects(
            senders=tuple(senders), paths=tuple(paths), shared=_reading_along(gpt.config, paths),
            source=source.source, ffns=ffns, scales=scales,
            base=clean[:, row], total=change[:, :, 0, row], effect=change[:, :, 1:, row],
        )
        for row, name in enumerate(metrics)
    }  # fmt: skip


_FINAL = -1
"""Stands for the logits among the layers of receivers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Clean:
    """One batch's clean run, with all that is held at its values."""

    gpt: GPT
    logits: Logits
    held: ActivationCache
    replaced: Mapping[int, Float[Tensor, "sequence pos head d_head"]]
    """Layer -> z of the source, for this batch or, where it has one sequence, for all."""
    ffns: FFNs
    scales: Scales

    @classmethod
    def of(cls, gpt: GPT, tokens: Tensor, replaced: Mapping[int, Tensor], ffns: FFNs, scales: Scales) -> _Clean:
        taps = {Tap.RESID_PRE, Tap.RESID_POST, Tap.Z, Tap.LN_FINAL_SCALE}
        taps |= {Tap.LN1_SCALE, Tap.Q, Tap.K, Tap.V} if scales is Scales.FROZEN else set()
        names = [name for name, site in sites(gpt.config).items() if site.tap in taps]
        logits, held = gpt.run_with_cache(tokens, names)
        moved = {layer: values.to(gpt.device, gpt.dtype) for layer, values in replaced.items()}
        return cls(gpt=gpt, logits=logits, held=held, replaced=moved, ffns=ffns, scales=scales)

    def by_each_way(self, sender: Head, paths: Mapping[str, Path]) -> Iterator[Logits]:
        """The logits where everything reads what is sent, then those of each path."""
        sent = self.sent(sender)
        yield self.everywhere(sender, sent)
        arriving = self.arriving(sender, sent, {each.layer for path in paths.values() for each in path.receivers})
        for path in paths.values():
            yield self.read_by(path, sender, arriving)

    def sent(self, sender: Head) -> Float[Tensor, "batch pos d_head"]:
        """What the sender's z becomes."""
        layer, index = sender
        z = self.held[Tap.Z.at(layer)]
        return self.replaced[layer][:, : z.shape[1], index].expand_as(z[:, :, index])

    def everywhere(self, sender: Head, sent: Float[Tensor, "batch pos d_head"]) -> Logits:
        """The logits where everything reads what is sent."""
        layer, index = sender
        edits = [(str(Tap.Z.at(layer)), _putting(index, sent))]
        return self.gpt.run_with_hooks(self.held[Tap.RESID_PRE.at(layer)], edits, start_at_layer=layer)

    def arriving(self, sender: Head, sent: Float[Tensor, "batch pos d_head"], layers: set[int]) -> dict[int, Stream]:
        """By how much the stream that later layers, and the unembedding, read differs from the clean one."""
        layer, index = sender
        change = (sent - self.held[Tap.Z.at(layer)][:, :, index]) @ self.gpt.layers[layer].attn.W_O[index]
        later = {each for each in layers if each > layer}
        if self.ffns is FFNs.FROZEN or self.gpt.layers[layer].mlp is None:
            return dict.fromkeys([*later, _FINAL], change)
        n_layers = self.gpt.config.n_layers
        edits: list[tuple[str, HookFunction]] = [(str(Tap.Z.at(layer)), _putting(index, sent))]
        edits += [(str(Tap.Z.at(each)), _holding(self.held[Tap.Z.at(each)])) for each in range(layer + 1, n_layers)]
        reads = [str(Tap.RESID_PRE.at(each)) for each in later] + [str(Tap.RESID_POST.at(n_layers - 1))]
        with self.gpt.hooks(edits):
            start = self.held[Tap.RESID_PRE.at(layer)]
            _, now = self.gpt.run_with_cache(start, reads, start_at_layer=layer, return_type=None)
        found = {each: now[Tap.RESID_PRE.at(each)] - self.held[Tap.RESID_PRE.at(each)] for each in later}
        last = Tap.RESID_POST.at(n_layers - 1)
        return found | {_FINAL: now[last] - self.held[last]}

    def read_by(self, path: Path, sender: Head, arriving: Mapping[int, Stream]) -> Logits:
        """The logits where only the path reads what arrives."""
        reached = [receiver for receiver in path.receivers if receiver.layer > sender[0]]
        if not path.receivers:
            return self._unembedded(arriving[_FINAL])
        first = min(receiver.layer for receiver in reached)
        edits = [self._reading(receiver, arriving[receiver.layer]) for receiver in _merged(reached, self.gpt.config)]
        return self.gpt.run_with_hooks(self.held[Tap.RESID_PRE.at(first)], edits, start_at_layer=first)

    def _reading(self, receiver: Receiver, change: Stream) -> tuple[str, HookFunction]:
        """The hook by which one input reads the clean stream and the change."""
        split, projected = _TAPS[receiver.input]
        if self.scales is Scales.RECOMPUTED:
            return str(split.at(receiver.layer)), _adding(receiver.head, change)
        block = self.gpt.layers[receiver.layer]
        weights = {Input.Q: block.attn.W_Q, Input.K: block.attn.W_K, Input.V: block.attn.W_V}[receiver.input]
        read = change
        if block.ln1 is not None:
            read = _linear(block.ln1, self.held[Tap.LN1_SCALE.at(receiver.layer)], change)
        held = self.held[projected.at(receiver.layer)][:, :, receiver.head]
        return str(projected.at(receiver.layer)), _putting(receiver.head, held + read @ weights[receiver.head])

    def _unembedded(self, change: Stream) -> Logits:
        norm = self.gpt.ln_final
        if self.scales is Scales.FROZEN and norm is not None:
            return self.logits + self.gpt.unembed(_linear(norm, self.held[Tap.LN_FINAL_SCALE.at()], change))
        return self.gpt.unembed_stream(self.held[Tap.RESID_POST.at(self.gpt.config.n_layers - 1)] + change)


_TAPS = {
    Input.Q: (Tap.Q_INPUT, Tap.Q),
    Input.K: (Tap.K_INPUT, Tap.K),
    Input.V: (Tap.V_INPUT, Tap.V),
}
"""Where each input reads the stream, before the norm; and what it makes of it."""


def _measured(logits: Logits, rows: Int[Tensor, " batch"], metrics: Sequence[Metric]) -> Float[Tensor, "batch metric"]:
    return torch.stack([metric(logits, rows) for metric in metrics], dim=1)


def _merged(receivers: Sequence[Receiver], config: GPTConfig) -> list[Receiver]:
    """Each input once, K and V by the key-value head that they belong to."""
    group = config.n_heads // config.kv_heads
    found = {
        Receiver(layer=each.layer, head=each.head if each.input is Input.Q else each.head // group, input=each.input)
        for each in receivers
    }
    return sorted(found, key=lambda each: (each.layer, each.input, each.head))


def _reading_along(config: GPTConfig, paths: Mapping[str, Path]) -> tuple[str, ...]:
    """Heads of the same key-value groups that are no receivers of K or V themselves."""
    group = config.n_heads // config.kv_heads
    named = {(each.layer, each.head) for path in paths.values() for each in path.receivers if each.input is not Input.Q}
    groups = {(layer, index // group) for layer, index in named}
    along = {(layer, kv * group + member) for layer, kv in groups for member in range(group)} - named
    return tuple(head(*each).label for each in sorted(along))


def _adding(index: int, change: Stream) -> HookFunction:
    def add(x: Tensor, hook: Hook) -> Tensor:
        del hook
        x[:, :, index] = x[:, :, index] + change
        return x

    return add


def _putting(index: int, values: Float[Tensor, "batch pos d_head"]) -> HookFunction:
    def put(x: Tensor, hook: Hook) -> Tensor:
        del hook
        x[:, :, index] = values
        return x

    return put


def _holding(values: Tensor) -> HookFunction:
    def hold(x: Tensor, hook: Hook) -> Tensor:
        del x, hook
        return values

    return hold


def _linear(norm: NormLayer, scale: Float[Tensor, "batch pos one"], change: Stream) -> Stream:
    """What a norm whose scale is held makes of a change of the stream."""
    centred = change - change.mean(-1, keepdim=True) if norm.centres else change
    return (centred / scale * norm.w * norm.shrink).to(change.dtype)


def _replaced_z(
    source: Recording | Means, rows: Int[Tensor, " batch"], senders: Sequence[Head]
) -> dict[int, Float[Tensor, "sequence pos head d_head"]]:
    """What z holds in the source, in every sender's layer, of these sequences (or the one that stands for all)."""
    layers = sorted({layer for layer, _ in senders})
    if isinstance(source, Means):
        return {layer: source.at(Tap.Z.at(layer))[None] for layer in layers}
    found = {layer: source.at(Tap.Z.at(layer)) for layer in layers}
    return {layer: z if len(z) == 1 else z[rows.to(z.device)] for layer, z in found.items()}


def _require_source(source: Recording | Means, tokens: Sequences) -> None:
    """What is sent instead covers every position, and belongs to each of the sequences or to all."""
    if isinstance(source, Means):
        covered, n_sequences = len(source.n_at), 1
    else:
        covered, n_sequences = int(source.n_positions.min()), len(source.n_positions)
    if covered < tokens.shape[1] or n_sequences not in (1, len(tokens)):
        raise InputError(
            f"the source holds {n_sequences} sequences of {covered} positions and the prompts are {len(tokens)} of "
            f"{tokens.shape[1]}; record one other prompt of the same length for each, or take means of as long ones."
        )


def require_edges(config: GPTConfig) -> None:
    """Refuse a model in which no head reads just what another one wrote."""
    config.require_additive_stream("path patching")
    if not config.additive_heads:
        raise NotAdditiveError(
            f"path patching needs heads that write into the stream as they are; with norm={config.norm.value} a norm "
            "acts on what they wrote together. Use a pre, scaled or none placement."
        )


def _require_head(config: GPTConfig, layer: int, index: int) -> None:
    if not (0 <= layer < config.n_layers and 0 <= index < config.n_heads):
        raise InputError(
            f"There is no head L{layer}H{index}; layers run 0 to {config.n_layers - 1}, heads 0 to "
            f"{config.n_heads - 1}."
        )


def _require_reached(senders: Sequence[Head], paths: Mapping[str, Path]) -> None:
    """Every sender has a later receiver on every path; otherwise its effect there would be zero by definition."""
    if not senders or not paths:
        raise InputError("path patching needs at least one sender and one path.")
    for sender in senders:
        for name, path in paths.items():
            if path.receivers and not any(receiver.layer > sender[0] for receiver in path.receivers):
                raise InputError(
                    f"{head(*sender).label} cannot reach the path {name} ({path.label}): no receiver is in a later "
                    "layer. Leave this sender out, or name later receivers."
                )


def _require_linear(config: GPTConfig, paths: Mapping[str, Path]) -> None:
    """With a frozen scale a change is carried through the projection, which must be linear."""
    inputs = {receiver.input for path in paths.values() for receiver in path.receivers}
    if config.qk_norm and inputs & {Input.Q, Input.K}:
        raise InputError("qk_norm norms queries and keys once more, so a frozen scale says little; recompute it.")
    if config.smeared_keys and Input.K in inputs:
        raise InputError("smeared keys read two positions, so a frozen scale cannot be carried on; recompute it.")
