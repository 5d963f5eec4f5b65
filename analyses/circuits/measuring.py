"""Measuring what feeds the copying heads: the heads that are asked about, and all numbers at one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from analyses.circuits.estimates import estimates
from analyses.circuits.result import (
    COPY_LOGIT,
    COPY_LOSS,
    PATHS,
    Config,
    Corruption,
    Measured,
    Paths,
    Result,
    Weights,
)
from analyses.registry import Progress
from interp.composition import composition
from interp.head_roles import HeadRoles, find_head_roles
from interp.metrics import Metric, Sequences, copy_logit, outcome_metric
from interp.outcomes import copy_outcome, fitting_batch
from interp.patching import redrawn_first_copy
from interp.path_patching import path_effects_by
from interp.path_results import PathEffects
from interp.paths import Input, feeding_paths
from interp.periods import trained_periods
from interp.places import Head, head
from interp.recordings import Means, Recording, mean_held, record
from interp.stats import bootstrap_mean, bootstrap_means, holm, sign_flip_ps
from interp.stimuli import copy_start
from interp.trials import CopyTask, copy_task
from model.config import Positions
from model.errors import InputError, NotAdditiveError
from model.gpt import GPT
from model.lab import Lab
from model.sites import Tap

_OTHER_FIRST_COPIES = 7919
"""Added to the seed for other first copies, so that they are no draw of the task itself."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """Sequences, senders and receivers: the same at every checkpoint they are asked of."""

    config: Config
    task: CopyTask
    discovery: HeadRoles
    senders: tuple[Head, ...]
    n_senders: int
    receivers: tuple[Head, ...]
    clean: Sequences
    corrupted: Sequences
    """With another random segment for the first copy."""
    reordered: Sequences
    """With the first copy in another order: the same tokens in the context, and no match."""

    @classmethod
    def of(cls, lab: Lab, config: Config) -> Question:
        """Find the heads on the discovery sequences, and corrupt the measured ones."""
        task = copy_task(lab, n_sequences=config.n_sequences, seed=config.seed, period=config.period)
        roles = find_head_roles(lab.gpt, task.discovery, period=task.period, rule=config.rule, seed=config.seed)
        score = roles.induction
        found = sorted(roles.induction_heads, key=lambda each: -float(score[each]))[: config.most_receivers]
        senders = _senders(roles, tuple(found))
        clean = task.trial.measured
        return cls(
            config=config,
            task=task,
            discovery=roles,
            senders=senders[: config.most_senders],
            n_senders=len(senders),
            receivers=tuple(sorted(found)),
            clean=clean,
            corrupted=redrawn_first_copy(clean, task.period, task.ids, seed=config.seed + _OTHER_FIRST_COPIES),
            reordered=reordered_first_copy(clean, task.period, seed=config.seed + _OTHER_FIRST_COPIES),
        )

    def answer(self, lab: Lab, now: Measured, before: Measured | None) -> Result:
        """The result, with what was asked."""
        trained = trained_periods(lab)
        return Result(
            **{each.name: getattr(now, each.name) for each in fields(Measured)},
            config=self.config,
            run=lab.name,
            step=lab.step,
            tokens_seen=lab.tokens_seen,
            period=self.task.period,
            trained_periods=(trained.start, trained.stop - 1) if trained else None,
            chance=self.task.trial.scale_of("copy_loss"),
            d_model=lab.config.d_model,
            discovery=self.discovery,
            senders=tuple(head(*each).label for each in self.senders),
            n_senders=self.n_senders,
            receivers=tuple(head(*each).label for each in self.receivers),
            shared=self.shared(lab),
            has_previous=self.has_previous,
            at_step_zero=before,
        )

    @property
    def has_previous(self) -> bool:
        """Whether the previous-token head is among the senders, and so the first of them."""
        return bool(self.senders) and self.senders[0] == self.discovery.previous_head

    def measured(self, lab: Lab, progress: Progress | None) -> Measured:
        """Everything at one checkpoint."""
        gpt = lab.gpt
        loss, losses = self._metrics[COPY_LOSS], []
        rows = torch.arange(len(self.clean))
        for tokens in (self.clean, self.corrupted, self.reordered):
            batches = zip(tokens.split(self._batch(gpt)), rows.split(self._batch(gpt)), strict=True)
            with torch.no_grad():
                found = [loss(gpt(batch.to(gpt.device)), here).double().cpu() for batch, here in batches]
            losses.append(torch.cat(found))
        paths, no_paths = self._paths(lab, progress)
        weights, no_weights = self._weights(gpt)
        return Measured(
            clean=bootstrap_mean(losses[0], seed=self.config.seed),
            gap=bootstrap_mean(losses[1] - losses[0], seed=self.config.seed),
            gap_reordered=bootstrap_mean(losses[2] - losses[0], seed=self.config.seed),
            paths=paths,
            no_paths=no_paths,
            weights=weights,
            no_weights=no_weights,
            estimates=estimates(
                lab,
                self.clean,
                self.corrupted,
                self._metrics[COPY_LOGIT],
                config=self.config,
                batch_size=self._batch(gpt),
                progress=progress,
            ),
        )

    # --- paths --------------------------------------------------------------------------------------------------------

    @property
    def _metrics(self) -> dict[str, Metric]:
        tokens, period = self.clean, self.task.period
        return {
            COPY_LOSS: outcome_metric(copy_outcome(period), tokens),
            COPY_LOGIT: copy_logit(tokens, period),
        }

    def _batch(self, gpt: GPT) -> int:
        return fitting_batch(gpt, self.clean.shape[1])

    def _paths(self, lab: Lab, progress: Progress | None) -> tuple[tuple[Paths, ...], str | None]:
        if not self.senders:
            return (), _no_senders(self.receivers)

        def counted(done: int, total: int) -> None:
            if progress is not None:
                progress(done, total, f"paths from every sender at step {lab.step}")

        try:
            found = path_effects_by(
                lab.gpt, self.clean, self.senders, feeding_paths(self.receivers), self._metrics,
                source=self._source(lab.gpt), ffns=self.config.ffns, counted=counted,
            )  # fmt: skip
        except NotAdditiveError as refusal:
            return (), str(refusal)
        return tuple(self._summed_up(name, effects) for name, effects in found.items()), None

    def _source(self, gpt: GPT) -> Recording | Means:
        """What the senders write instead."""
        sites = [Tap.Z.at(layer) for layer in sorted({layer for layer, _ in self.senders})]
        if self.config.corruption is Corruption.REDRAWN:
            parts = [
                record(gpt, batch.to(gpt.device), sites, source="the same sequences with other first copies")
                for batch in self.corrupted.split(self._batch(gpt))
            ]
            return _joined(parts)
        reference = self.task.trial.reference
        return mean_held(gpt, reference, sites, source=f"{len(reference)} other sequences of {self.task.trial.kind}")

    def _summed_up(self, metric: str, found: PathEffects) -> Paths:
        seed = self.config.seed
        p = sign_flip_ps(found.effect, seed=seed)
        inputs, rest = p[:, : PATHS.index("logits")], p[:, PATHS.index("logits") :]
        lead = None
        if len(found.senders) > 1:
            effect = found.effect * torch.where(found.effect[:, 0].mean(0) < 0, -1.0, 1.0)
            largest = effect[:, 1:].mean(0).argmax(0) + 1
            other = effect.gather(1, largest.expand(len(effect), 1, -1))[:, 0]
            lead = bootstrap_means(effect[:, 0] - other, seed=seed)
        return Paths(
            metric=metric,
            total=found.totals(seed=seed),
            effect=found.effects(seed=seed),
            share=found.shares(seed=seed),
            unexplained=found.unexplained,
            p=torch.cat([holm(inputs), holm(rest)], dim=1),
            lead=lead,
        )

    def shared(self, lab: Lab) -> tuple[str, ...]:
        """Heads of the receivers' key-value groups that are no receivers."""
        group = lab.config.n_heads // lab.config.kv_heads
        groups = {(layer, index // group) for layer, index in self.receivers}
        along = {(layer, kv * group + member) for layer, kv in groups for member in range(group)} - {*self.receivers}
        return tuple(head(*each).label for each in sorted(along))

    # --- weights ------------------------------------------------------------------------------------------------------

    def _weights(self, gpt: GPT) -> tuple[Weights | None, str | None]:
        if not self.senders:
            return None, _no_senders(self.receivers)
        try:
            found = composition(gpt, null=self.config.null, offsets=self._offsets(gpt), seed=self.config.seed)
        except (NotAdditiveError, InputError) as refusal:
            return None, str(refusal)
        kinds, place = [each.value for each in Input], self._pairs()
        table = torch.stack([found.z_of(kind) for kind in kinds])
        n_pairs, table = int((~table[0].isnan()).sum()), table.where(table.isfinite(), torch.nan)
        z = torch.stack([of_kind[place] for of_kind in table])
        larger = (table.flatten(1)[:, None, None] > z[..., None]).sum(-1)
        return Weights(
            score=torch.stack([found.of(kind)[place] for kind in kinds]),
            z=z,
            rank=larger.where(~z.isnan(), n_pairs),
            n_pairs=n_pairs,
            note=found.note,
        ), None

    def _pairs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where senders and receivers stand in a table of all pairs."""
        writers, readers = torch.tensor(self.senders), torch.tensor(self.receivers)
        return writers[:, None, 0], writers[:, None, 1], readers[None, :, 0], readers[None, :, 1]

    def _offsets(self, gpt: GPT) -> list[int] | None:
        """Evenly spaced distances over the context, where they make a difference."""
        if gpt.config.positions is not Positions.ROPE:
            return None
        n = min(self.config.most_offsets, gpt.config.n_ctx)
        return sorted({round(each) for each in torch.linspace(0, gpt.config.n_ctx - 1, n).tolist()})


def _senders(roles: HeadRoles, receivers: tuple[Head, ...]) -> tuple[Head, ...]:
    """Heads below the last receiver's layer: the previous-token head first, the rest by their previous-token score."""
    last = max((layer for layer, _ in receivers), default=0)
    below = [(layer, index) for layer in range(last) for index in range(roles.previous.shape[1])]
    return tuple(sorted(below, key=lambda each: (each != roles.previous_head, -float(roles.previous[each]))))


def reordered_first_copy(tokens: Sequences, period: int, *, seed: int) -> Sequences:
    """`tokens` with the first copy in a new random order, one for each sequence: the same tokens, and no match."""
    start = copy_start(tokens.shape[1], period)
    first = tokens[:, start : start + period]
    order = torch.rand(first.shape, generator=torch.Generator().manual_seed(seed)).argsort(1).to(tokens.device)
    return torch.cat([tokens[:, :start], first.gather(1, order), tokens[:, start + period :]], dim=1)


def _no_senders(receivers: tuple[Head, ...]) -> str:
    if not receivers:
        return "no head is an induction head, so there is nothing to feed"
    return "the induction heads are in the first layer, so no head comes before them"


def _joined(parts: list[Recording]) -> Recording:
    sites: dict[str, Any] = {name: torch.cat([part.by_site[name] for part in parts]) for name in parts[0].by_site}
    n_positions = torch.cat([part.n_positions for part in parts])
    return Recording(source=parts[0].source, n_positions=n_positions, by_site=sites)
