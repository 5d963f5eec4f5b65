"""Heads by a rule instead of by name, so that a claim holds over seeds and checkpoints.

    induction >= 0.4                                    a score on the discovery sequences, a share of attention
    induction >= 0.4 and induction >= 2 * reordered     against another score, or a multiple of it or of chance
    previous_token >= 0.4 and layer = 0 and top 1       of those that pass, the one with the highest previous_token

Scores are those of `interp.head_roles`, on sequences that nothing else is measured on:

    induction        attention from the second copy to what followed the same token in the first
    reordered        the same where the second copy is in another order: distance without content
    previous_token   attention to the token before
    chance           what even attention would get; only to the right of a sign

`top N` takes the first score that the rule names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.head_roles import HeadRoles
from interp.places import Head
from model.config import GPTConfig
from model.errors import InputError, UnknownNameError, closest

Scores = Mapping[str, Float[Tensor, "layer head"]]

SCORES = ("induction", "reordered", "previous_token")
_SIGNS = {
    ">=": torch.ge,
    "<=": torch.le,
    ">": torch.gt,
    "<": torch.lt,
    "=": torch.eq,
}
_PART = re.compile(r"(?P<left>[a-z_]+)\s*(?P<sign>>=|<=|>|<|=)\s*(?P<right>.+)")
_RIGHT = re.compile(r"(?:(?P<times>\d*\.?\d+)\s*\*\s*)?(?P<name>[a-z_]+)|(?P<number>\d*\.?\d+)")
_TOP = re.compile(r"top\s+(?P<n>\d+)")
_HOW = (
    "A rule joins parts by `and`: `induction >= 0.4`, `induction >= 2 * reordered`, `previous_token >= 5 * chance`, "
    "`layer = 1`, `top 1`."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One score, or the layer, beside a number or a multiple of another score."""

    left: str
    sign: str
    times: float
    """The number, or what the score on the right is multiplied with."""
    right: str | None
    """A score, or chance; None where the right side is a number."""

    def holds(self, scores: Scores, chance: Mapping[str, float]) -> Bool[Tensor, "layer head"]:
        """Which heads satisfy it."""
        left = scores[self.left]
        if self.right is None:
            limit = torch.full_like(left, self.times)
        else:
            limit = self.times * (torch.full_like(left, chance[self.left]) if self.right == "chance" else
                                  scores[self.right])  # fmt: skip
        return _SIGNS[self.sign](left, limit)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadRule:
    """Which heads a claim is about."""

    text: str
    conditions: tuple[Condition, ...]
    top: int | None
    """At most so many, the highest by the first score; None for all that pass."""

    def __str__(self) -> str:
        return self.text

    @property
    def first_score(self) -> str | None:
        """The score that the rule names first, by which `top` ranks."""
        return next((each.left for each in self.conditions if each.left in SCORES), None)

    def heads(self, roles: HeadRoles) -> tuple[Head, ...]:
        """The heads that pass, by layer and index."""
        scores = {"induction": roles.induction, "reordered": roles.reordered, "previous_token": roles.previous}
        layers = torch.arange(len(roles.induction))[:, None].expand_as(roles.induction)
        chance = {"induction": roles.induction_chance, "reordered": roles.induction_chance}
        chance["previous_token"] = roles.previous_chance
        passing = torch.ones_like(roles.induction, dtype=torch.bool)
        for condition in self.conditions:
            passing &= condition.holds(scores | {"layer": layers.to(roles.induction.dtype)}, chance)
        found = [(int(layer), int(index)) for layer, index in passing.nonzero()]
        if self.top is not None and self.first_score is not None:
            ranked = scores[self.first_score]
            found = sorted(found, key=lambda each: -float(ranked[each]))[: self.top]
        return tuple(sorted(found))

    def best(self, roles: HeadRoles) -> float | None:
        """The highest value of the first score, over all heads."""
        scores = {"induction": roles.induction, "reordered": roles.reordered, "previous_token": roles.previous}
        return None if self.first_score is None else float(scores[self.first_score].max())

    def require_in_model(self, config: GPTConfig) -> None:
        """Refuse a rule that no head of this model can pass because of its layer."""
        for each in self.conditions:
            layers = torch.arange(config.n_layers, dtype=torch.float32)
            if each.left == "layer" and not _SIGNS[each.sign](layers, torch.tensor(each.times)).any():
                raise UnknownNameError(
                    f'"{self.text}" asks for a layer that this model does not have; '
                    f"layers run from 0 to {config.n_layers - 1}."
                )


def parse_rule(text: str) -> HeadRule:
    """Read a rule.

    >>> parse_rule("induction >= 0.4 and top 2").top
    2

    Raises:
        InputError: not a rule, or one that can hold for no head or for every one.
    """
    conditions: list[Condition] = []
    top = None
    for part in re.split(r"\s+and\s+", text.strip()):
        if found := _TOP.fullmatch(part):
            if top is not None or int(found["n"]) == 0:
                raise InputError(f'"{text}" says `{part}`; give one `top N`, with N at least 1.')
            top = int(found["n"])
        else:
            conditions.append(_condition(part, text))
    rule = HeadRule(text=" ".join(text.split()), conditions=tuple(conditions), top=top)
    if top is not None and rule.first_score is None:
        raise InputError(f'"{text}" ranks by no score; name one, such as `induction >= 0.1 and top {top}`.')
    return rule


def _condition(part: str, text: str) -> Condition:
    found = _PART.fullmatch(part.strip())
    right = None if found is None else _RIGHT.fullmatch(found["right"].strip())
    if found is None or right is None:
        raise InputError(f'"{part.strip()}" in "{text}" is no part of a rule. {_HOW}')
    left, sign = found["left"], found["sign"]
    _require_name(left, (*SCORES, "layer"), text)
    if left == "layer":
        if right["name"] or not right["number"].isdecimal():
            raise InputError(f'"{part.strip()}" in "{text}" compares a layer with no whole number; write `layer = 1`.')
        return Condition(left=left, sign=sign, times=float(right["number"]), right=None)
    if sign == "=":
        raise InputError(f'"{part.strip()}" in "{text}" asks a score to be a number exactly; use >= or <=.')
    if right["name"]:
        _require_name(right["name"], (*SCORES, "chance"), text)
        return Condition(left=left, sign=sign, times=float(right["times"] or 1), right=right["name"])
    limit = float(right["number"])
    if not 0 < limit < 1:
        raise InputError(
            f'"{part.strip()}" in "{text}" can hold for every head or for none: scores are shares of attention, '
            "between 0 and 1."
        )
    return Condition(left=left, sign=sign, times=limit, right=None)


def _require_name(name: str, known: tuple[str, ...], text: str) -> None:
    if name not in known:
        raise InputError(f'"{name}" in "{text}" is no score.{closest(name, known)} There are {", ".join(known)}.')
