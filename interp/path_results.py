"""What path patching finds: effects by sender and path, their shares of the whole, and what they leave unexplained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.paths import FFNs, Scales
from interp.places import Head, head
from interp.stats import Interval, Intervals, bootstrap_means, bootstrap_ratios
from model.errors import UnknownNameError, closest
from model.settings import as_enum


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
        """The effect of one sender by one path, and its share of the total.

        Raises:
            UnknownNameError: this sender was not patched, or there is no path of this name.
        """
        senders = tuple(head(*each).label for each in self.senders)
        for name, known, kind in ((head(*sender).label, senders, "sender"), (path, self.paths, "path")):
            if name not in known:
                raise UnknownNameError(
                    f'no {kind} "{name}" was patched.{closest(name, known)} There are {", ".join(known)}.'
                )
        place = self.senders.index(sender), self.paths.index(path)
        return self.effects(seed=seed)[place], self.shares(seed=seed)[place]
