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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.harm import Counted
from interp.linear_norms import after_norm
from interp.metrics import Logits, Metric, Sequences, on_cpu, split_rows
from interp.outcomes import fitting_batch
from interp.path_results import PathEffects
from interp.paths import (
    FFNs,
    Input,
    Path,
    Receiver,
    Scales,
    merged,
    reading_along,
    require_edges,
    require_head,
    require_linear,
    require_reached,
)
from interp.places import Head
from interp.recordings import Means, Recording
from interp.requirements import require_deterministic
from model.errors import InputError
from model.settings import as_enum
from model.sites import Tap, sites

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import ActivationCache, Hook, HookFunction

Stream = Float[Tensor, "batch pos d_model"]


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
        require_head(gpt.config, layer, index)
    require_reached(senders, paths)
    _require_source(source, tokens)
    if scales is Scales.FROZEN:
        require_linear(gpt.config, paths)
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
            senders=tuple(senders), paths=tuple(paths), shared=reading_along(gpt.config, paths),
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
        edits = [self._reading(receiver, arriving[receiver.layer]) for receiver in merged(reached, self.gpt.config)]
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
            read = after_norm(block.ln1, self.held[Tap.LN1_SCALE.at(receiver.layer)], change)
        held = self.held[projected.at(receiver.layer)][:, :, receiver.head]
        return str(projected.at(receiver.layer)), _putting(receiver.head, held + read @ weights[receiver.head])

    def _unembedded(self, change: Stream) -> Logits:
        norm = self.gpt.ln_final
        if self.scales is Scales.FROZEN and norm is not None:
            return self.logits + self.gpt.unembed(after_norm(norm, self.held[Tap.LN_FINAL_SCALE.at()], change))
        return self.gpt.unembed_stream(self.held[Tap.RESID_POST.at(self.gpt.config.n_layers - 1)] + change)


_TAPS = {
    Input.Q: (Tap.Q_INPUT, Tap.Q),
    Input.K: (Tap.K_INPUT, Tap.K),
    Input.V: (Tap.V_INPUT, Tap.V),
}
"""Where each input reads the stream, before the norm; and what it makes of it."""


def _measured(logits: Logits, rows: Int[Tensor, " batch"], metrics: Sequence[Metric]) -> Float[Tensor, "batch metric"]:
    return torch.stack([metric(logits, rows) for metric in metrics], dim=1)


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
