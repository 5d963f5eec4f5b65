"""The paths of path patching: which input of which heads reads what is sent, what stands in between, what is refused.

A path is a set of receivers, each one input (Q, K or V) of one head, or, without any, the logits. Under grouped
key-value heads a K or V input belongs to a group of heads, so others may read along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from interp.places import Head, head
from model.config import GPTConfig
from model.errors import InputError, NotAdditiveError
from model.settings import as_enum


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


def require_edges(config: GPTConfig) -> None:
    """Refuse a model in which no head reads just what another one wrote."""
    config.require_additive_stream("path patching")
    if not config.additive_heads:
        raise NotAdditiveError(
            f"path patching needs heads that write into the stream as they are; with norm={config.norm.value} a norm "
            "acts on what they wrote together. Use a pre, scaled or none placement."
        )


def require_head(config: GPTConfig, layer: int, index: int) -> None:
    """Refuse a head that this model has not."""
    if not (0 <= layer < config.n_layers and 0 <= index < config.n_heads):
        raise InputError(
            f"There is no head L{layer}H{index}; layers run 0 to {config.n_layers - 1}, heads 0 to "
            f"{config.n_heads - 1}."
        )


def require_reached(senders: Sequence[Head], paths: Mapping[str, Path]) -> None:
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


def require_linear(config: GPTConfig, paths: Mapping[str, Path]) -> None:
    """With a frozen scale a change is carried through the projection, which must be linear."""
    inputs = {receiver.input for path in paths.values() for receiver in path.receivers}
    if config.qk_norm and inputs & {Input.Q, Input.K}:
        raise InputError("qk_norm norms queries and keys once more, so a frozen scale says little; recompute it.")
    if config.smeared_keys and Input.K in inputs:
        raise InputError("smeared keys read two positions, so a frozen scale cannot be carried on; recompute it.")


def merged(receivers: Sequence[Receiver], config: GPTConfig) -> list[Receiver]:
    """Each input once, K and V by the key-value head that they belong to."""
    group = config.n_heads // config.kv_heads
    found = {
        Receiver(layer=each.layer, head=each.head if each.input is Input.Q else each.head // group, input=each.input)
        for each in receivers
    }
    return sorted(found, key=lambda each: (each.layer, each.input, each.head))


def reading_along(config: GPTConfig, paths: Mapping[str, Path]) -> tuple[str, ...]:
    """Heads of the same key-value groups that are no receivers of K or V themselves."""
    group = config.n_heads // config.kv_heads
    named = {(each.layer, each.head) for path in paths.values() for each in path.receivers if each.input is not Input.Q}
    groups = {(layer, index // group) for layer, index in named}
    along = {(layer, kv * group + member) for layer, kv in groups for member in range(group)} - named
    return tuple(head(*each).label for each in sorted(along))
