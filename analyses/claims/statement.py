"""A claim as its file states it: flat keys, read strictly, before any model is opened.

    [[claim]]
    name = "induction-heads-carry-copying"
    says = "The induction heads carry the copying of repeated tokens."
    ablate = "induction >= 0.4 and induction >= 2 * reordered"      # or heads by name: "L1H1,L1H3:mean"
    metric = "copy_loss"
    effect = "harm >= 1.0"
    control = "text"

What is in `ablate`, `sender` and `receivers` is either places by name, which begin with a layer (`L1H3`), or a rule
(`analyses.claims.rules`). With `sender`, `receivers` and `input` the claim is about a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from analyses.claims.bounds import Bound, Quantity, Standing, parse_bound
from analyses.claims.rules import HeadRule, parse_rule
from analyses.config_rules import SEED, Rule, at_least, between, require
from interp.ablation import Frozen
from interp.intervention_kinds import parse_stated
from interp.outcomes import get_outcome
from interp.paths import FFNs, Input
from interp.places import parse_places, print_places
from model.errors import ConfigError, Faults, InputError
from model.settings import as_enum


class ControlKind(StrEnum):
    """What an effect is held against."""

    MATCHED = "matched"
    """The same with other sets that have as many components in each layer (of a path: other heads as the sender)."""

    TEXT = "text"
    """The same ablation on held-out text where the current token is new, so that there is nothing to copy."""

    STEP0 = "step0"
    """The same at step 0 of the run, on the same sequences."""

    INPUTS = "inputs"
    """The same sender, read by the receivers' other inputs."""

    NONE = "none"
    """Nothing: the bound alone."""


class Stated(StrEnum):
    """When a claim's bound was stated, beside the first look at numbers about what the claim names."""

    BEFORE = "before"
    """Before any were seen."""

    AFTER = "after"
    """After some were seen: what was picked to fit numbers is no surprise in them."""

    UNKNOWN = "unknown"
    """Nobody knows: they were there already when it was written down."""


class Sent(StrEnum):
    """What a path's sender writes instead of its own output."""

    COUNTERFACTUAL = "counterfactual"
    """What it writes when the first copy is another random segment, on the same sequence otherwise."""

    MEAN_PER_POSITION = "mean@pos"
    """Its mean over other sequences of the same kind, one for each position."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """The keys of one `[[claim]]`."""

    name: str
    """Letters, digits and hyphens; what files and tests are called."""
    says: str
    """The claim in words."""
    effect: str
    """What is expected: `harm >= 1.0`, `|harm| <= 0.05`, `share >= 0.5` (`analyses.claims.bounds`)."""
    control: ControlKind
    """What the effect is held against; a claim has to say so, also if it is none."""
    ablate: str | None = None
    """What is ablated: places by name, or a rule for heads."""
    sender: str | None = None
    """Of a path: the head whose output is replaced."""
    receivers: str | None = None
    """Of a path: the heads that read it."""
    input: Input | None = None
    """Of a path: by which input, q, k or v."""
    intervention: str | None = None
    """What is put in the places; mean if nothing is said. Of a path: counterfactual, or mean@pos."""
    gate: float = 0.0
    """The share of what was there that stays: 0 is wholly replaced; at 1 nothing would be tried."""
    positions: tuple[int, ...] | None = None
    """Absolute positions where it is replaced; all if nothing is said."""
    freeze: str = "nothing"
    """What later layers keep of the intact run: nothing, or patterns."""
    ffns: FFNs = FFNs.FROZEN
    """Of a path: whether FFNs in between are frozen or recomputed."""
    metric: str = "copy_loss"
    """The outcome that is measured (`cutaway ablate --metric`)."""
    alpha: float = 0.05
    """The level of the interval is 1 - alpha; no more than alpha is the chance of a false verdict."""
    sequences: int = 64
    """Sequences to measure on; of held-out text there may be fewer."""
    sequential: bool = False
    """Whether to stop at the first of several looks that decides (`interp.sequential`)."""
    seed: int = 0
    """Draws sequences, resamples and control sets."""
    period: int | None = None
    """Of the repeated tokens; the one at which the run is judged if nothing is said."""
    run: str | None = None
    """The run to test on, where the command names none."""
    step: str = "last"
    """Which checkpoints: last, all, or steps such as 512 or [0, 64, 512]."""
    expected: Standing = Standing.SUPPORTED
    """What should come out: supported, or refuted for a claim that is there to fail."""
    stated: Stated | None = None
    """When the bound was stated: before numbers were seen, after, or unknown; None where the file does not say."""

    def __post_init__(self) -> None:
        faults = Faults()
        for name, choices in _CHOICES.items():
            with faults.noted():
                given = getattr(self, name)
                object.__setattr__(self, name, None if given is None else as_enum(choices, given, name))
        for name, rule in _NUMBERS.items():
            with faults.noted():
                require(self, "", **{name: rule})
        for name, read in (("step", parse_steps), ("name", _require_name), ("effect", parse_bound)):
            with faults.noted():
                read(getattr(self, name))
        with faults.noted():
            get_outcome(self.metric, period=2)  # refuses an unknown one
        with faults.noted():
            _require_form(self)
        if self.expected == Standing.UNDECIDED:
            faults.found.append(ConfigError('expected="undecided" expects nothing; say supported or refuted.'))
        faults.raise_any()
        _require_control(self)  # reads the bound and the form

    @property
    def is_path(self) -> bool:
        """Whether the claim is about what travels from one head to others."""
        return self.ablate is None

    @property
    def bound(self) -> Bound:
        """The expected effect, read."""
        return parse_bound(self.effect)

    @property
    def placed(self) -> str:
        """What stands in the places: the intervention's name."""
        return self.intervention or (Sent.COUNTERFACTUAL.value if self.is_path else "mean")


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Places by name, or a rule for heads."""

    text: str
    rule: HeadRule | None
    """None where the places are named."""


def parse_selection(text: str) -> Selection:
    """Read places or a rule; what begins like a place is one.

    >>> parse_selection("L1H1, L1H3:zero").text
    'L1H1:zero,L1H3:zero'
    >>> parse_selection("induction >= 0.4").rule.top is None
    True
    """
    if re.match(r"\s*L\d", text):
        return Selection(text=print_places(parse_places(text)), rule=None)
    rule = parse_rule(text)
    return Selection(text=rule.text, rule=rule)


def parse_steps(text: str) -> str | tuple[int, ...]:
    """`last`, `all`, or the steps in order.

    >>> parse_steps("512, 0")
    (0, 512)
    """
    if text in ("last", "all"):
        return text
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(f'step="{text}" is no choice of checkpoints; write last, all, or steps such as 0,64,512.')
    return tuple(sorted({int(part) for part in parts}))


_CHOICES = {"control": ControlKind, "ffns": FFNs, "expected": Standing, "input": Input, "stated": Stated}
"""Keys that take one of a few words."""


_NUMBERS = {
    "gate": Rule(lambda gate: 0 <= gate < 1, "a number from 0 up to, not including, 1"),
    "alpha": between(0, 1),
    "sequences": at_least(2),
    "seed": SEED,
    "period": at_least(2),
    "positions": at_least(0),
}
"""What the numbers of a claim may be."""


LONGEST_NAME = 200
"""Characters of a claim's name: files are called by it, with an ending and, while they are written, a number."""


def _require_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ConfigError(f'name="{name}" cannot name a file; use letters, digits, hyphens and underscores.')
    if len(name) > LONGEST_NAME:
        raise ConfigError(f"a name of {len(name)} characters cannot name a file; use at most {LONGEST_NAME}.")


def _require_form(stated: Statement) -> None:
    """Exactly one of the two forms, and no key of the other; everything that can be read is."""
    path = {name: getattr(stated, name) for name in ("sender", "receivers", "input")}
    given = [name for name, value in path.items() if value is not None]
    if (stated.ablate is None) is (not given):
        raise ConfigError(
            "a claim says either what to ablate (ablate) or a path (sender, receivers and input); "
            f"this one has {'both' if given else 'neither'}."
        )
    if stated.ablate is None:
        missing = [name for name in path if name not in given]
        if missing:
            raise ConfigError(f"a path needs sender, receivers and input; {' and '.join(missing)} is missing.")
        _require_unused(stated, ("gate", "positions", "freeze"), "an ablation")
        _require_path(stated)
    else:
        _require_unused(stated, ("ffns",), "a path")
        parse_stated(stated.placed)
        parse_selection(stated.ablate)
        as_enum(Frozen, stated.freeze, "freeze")


def _require_path(stated: Statement) -> None:
    as_enum(Sent, stated.placed, "intervention")
    sender, _ = parse_selection(stated.sender or ""), parse_selection(stated.receivers or "")
    if sender.rule is None and len(parse_places(sender.text)) > 1:
        raise ConfigError(f'sender="{stated.sender}" names several heads; a path has one sender.')
    if sender.rule is not None and sender.rule.top != 1:
        raise ConfigError(f'sender="{stated.sender}" may find several heads; end it with `and top 1`.')
    if stated.metric != "copy_loss":
        raise ConfigError(f'metric="{stated.metric}" is not measured along paths; use copy_loss.')


def _require_unused(stated: Any, names: tuple[str, ...], whose: str) -> None:
    usual = {field: default.default for field, default in Statement.__dataclass_fields__.items()}
    for name in names:
        if getattr(stated, name) != usual[name]:
            raise ConfigError(f"{name} belongs to {whose}, which this claim is not; leave it out.")


def _require_control(stated: Statement) -> None:
    """A control that means something for this form and this bound."""
    kind, bound = stated.control, stated.bound
    allowed = [ControlKind.NONE] if bound.quantity == Quantity.SIZE else [ControlKind.MATCHED, ControlKind.NONE]
    if bound.at_least:
        allowed += [ControlKind.STEP0, ControlKind.INPUTS if stated.is_path else ControlKind.TEXT]
    if kind not in allowed:
        what = "a path" if stated.is_path else "an ablation"
        why = f"with {what} and `{bound}`" + (", which has no side" if bound.quantity == Quantity.SIZE else "")
        raise InputError(f'control="{kind}" says nothing {why}; use {" or ".join(allowed)}.')
