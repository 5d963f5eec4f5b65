"""What claims at one checkpoint stand on: sequences by one seed, head scores on some of them, deltas on others.

Claims that agree in number of sequences, seed and period share a ground, so that heads are scored once. Discovery
sequences serve the rules alone; what is measured on was seen by no rule, and means come from a third draw
(`interp.trials`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from analyses.claims.statement import Selection, Statement
from interp.head_roles import HeadRoles, RoleRule, find_head_roles
from interp.outcomes import COPY_OUTCOMES, Outcome, get_outcome
from interp.places import Head, Place, head
from interp.resolved_places import resolve_places
from interp.trials import HELD_OUT_TEXT, CopyTask, Trial, copy_task, held_out_kind, text_trial
from model.lab import Lab

Values = Float[Tensor, " sequence"]


@dataclass(frozen=True, kw_only=True)
class Deltas:
    """What one ablation, or one path, changes on every sequence; worse is positive."""

    harm: Values
    clean: Values
    whole: Values | None
    """What the harm is a share of; None where nothing is."""
    at_stake: Values
    """What could be lost, in the harm's unit: how much better the intact model is than one that knows nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """The sequences of one seed for one checkpoint."""

    lab: Lab
    n_sequences: int
    seed: int
    period: int | None

    @classmethod
    def of(cls, lab: Lab, stated: Statement) -> Ground:
        """The ground that a claim asks for."""
        return cls(lab=lab, n_sequences=stated.sequences, seed=stated.seed, period=stated.period)

    @cached_property
    def task(self) -> CopyTask:
        """Repeated random tokens, in three draws."""
        return copy_task(self.lab, n_sequences=self.n_sequences, seed=self.seed, period=self.period)

    @cached_property
    def roles(self) -> HeadRoles:
        """Every head's scores on the discovery sequences; claims bring their own rules."""
        return find_head_roles(
            self.lab.gpt, self.task.discovery, period=self.task.period, rule=RoleRule(), seed=self.seed
        )

    def trial(self, metric: str) -> Trial:
        """The sequences that a metric is measured on, asked for that alone."""
        return self.trial_of(get_outcome(metric, period=self.task.period))

    def trial_of(self, outcome: Outcome) -> Trial:
        """The sequences that an outcome, named like a metric, is measured on."""
        if outcome.name in COPY_OUTCOMES:
            return replace(self.task.trial, outcomes=(outcome,)).with_references()
        outcome = replace(outcome, meaning=outcome.meaning.replace(HELD_OUT_TEXT, held_out_kind(self.lab)))
        return replace(self._text, outcomes=(outcome,)).with_references()

    @cached_property
    def _text(self) -> Trial:
        return text_trial(self.lab, n_sequences=self.n_sequences, seed=self.seed)

    def heads(self, selection: Selection) -> tuple[Head, ...]:
        """The heads that a rule finds here."""
        return () if selection.rule is None else selection.rule.heads(self.roles)

    def places(self, stated: Statement, selection: Selection) -> tuple[Place, ...]:
        """The places that a claim ablates here; none where no head passes its rule."""
        if selection.rule is None:
            return resolve_places(selection.text, self.lab.config, stated.placed)
        return tuple(head(*each, stated.placed) for each in self.heads(selection))
