"""Claims about a path: one head's output, read by one input of some later heads and by nothing else.

The sender's output is replaced, and the change is carried along the stream to the Q, K or V inputs of the receivers
alone (`interp.path_patching`). The effect by the path stands beside the sender's total effect, where everything reads
the replaced output: a claim's share is a share of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.claims.ground import Deltas, Ground, Values
from analyses.claims.statement import Sent, Statement
from interp.harm import Counted
from interp.metrics import outcome_metric, split_rows
from interp.outcomes import Outcome, fitting_batch
from interp.path_patching import path_effects
from interp.path_results import PathEffects
from interp.paths import Input, Path, Receiver
from interp.places import Head, head
from interp.recordings import Means, Recording, mean_held, record
from model.sites import Tap


@dataclass(frozen=True, kw_only=True, eq=False)
class Feeding:
    """One claim's path at one checkpoint."""

    stated: Statement
    ground: Ground
    sender: Head
    receivers: tuple[Head, ...]
    """Heads of later layers."""

    def __str__(self) -> str:
        names = ", ".join(head(*each).label for each in self.receivers)
        return f"{head(*self.sender).label} patched where {self._input.name} of {names} reads it"

    @property
    def whole(self) -> str:
        """What its harm may be a share of."""
        return "the sender's total effect"

    @property
    def stake(self) -> str:
        """What there is to lose, in words."""
        return self.whole

    @property
    def n_sequences(self) -> int:
        """How many sequences there are to measure on."""
        return len(self.ground.task.trial.measured)

    @property
    def outcome(self) -> Outcome:
        """What is measured."""
        return self.ground.trial(self.stated.metric).outcomes[0]

    def on(self, ground: Ground) -> Feeding:
        """The same path at another checkpoint."""
        return replace(self, ground=ground)

    def deltas(self, start: int, stop: int) -> Deltas:
        """What the path changes on the sequences start to stop - 1, and the sender's total effect there."""
        found = self._effects([self.sender], [self._input], start, stop)
        total = found.total[:, 0]
        return Deltas(harm=found.effect[:, 0, 0], clean=found.base, whole=total, at_stake=total)

    def by_other_inputs(self, stop: int) -> dict[str, Values]:
        """The sender's effect by each of the receivers' two other inputs."""
        others = [each for each in Input if each != self._input]
        found = self._effects([self.sender], others, 0, stop)
        return {each.name: found.effect[:, 0, column] for column, each in enumerate(others)}

    def other_senders(self) -> tuple[Head, ...]:
        """The other heads of the sender's layer."""
        layer, index = self.sender
        return tuple((layer, each) for each in range(self.ground.lab.config.n_heads) if each != index)

    def others(self, stop: int, counted: Counted | None) -> Float[Tensor, " set"]:
        """The mean effect of every other sender by the same path."""
        return self._effects(self.other_senders(), [self._input], 0, stop, counted).effect[:, :, 0].mean(0)

    @property
    def _input(self) -> Input:
        assert self.stated.input is not None, "a path has an input: its statement was checked"
        return self.stated.input

    def _effects(
        self, senders: Sequence[Head], inputs: Sequence[Input], start: int, stop: int, counted: Counted | None = None
    ) -> PathEffects:
        """Some senders' effects on some of the sequences, batch by batch."""
        gpt, task = self.ground.lab.gpt, self.ground.task
        part = task.trial.rows(start, stop)
        tokens, twins = part.measured, part.corrupted
        assert twins is not None, "repeated tokens have twins"
        paths = {
            each.name: Path(receivers=tuple(Receiver(layer=at, head=index, input=each) for at, index in self.receivers))
            for each in inputs
        }
        means = self._means(senders) if self.stated.placed == Sent.MEAN_PER_POSITION else None
        parts = []
        for chosen in split_rows(len(tokens), fitting_batch(gpt, tokens.shape[1])):
            here = tokens[chosen]
            source = means or self._recorded(twins[chosen], senders)
            metric = outcome_metric(self.outcome, here)
            parts.append(
                path_effects(
                    gpt, here, senders, paths, metric, source=source, ffns=self.stated.ffns, counted=counted,
                )
            )  # fmt: skip
        return replace(
            parts[0],
            base=torch.cat([part.base for part in parts]),
            total=torch.cat([part.total for part in parts]),
            effect=torch.cat([part.effect for part in parts]),
        )

    def _recorded(self, twins: Tensor, senders: Sequence[Head]) -> Recording:
        gpt = self.ground.lab.gpt
        return record(gpt, twins.to(gpt.device), _sites(senders), source="their twins with other first copies")

    def _means(self, senders: Sequence[Head]) -> Means:
        reference = self.ground.task.trial.reference
        source = f"{len(reference)} other sequences of {self.ground.task.trial.kind}"
        return mean_held(self.ground.lab.gpt, reference, _sites(senders), source=source)


def _sites(senders: Sequence[Head]) -> list[str]:
    return [str(Tap.Z.at(layer)) for layer in sorted({layer for layer, _ in senders})]
