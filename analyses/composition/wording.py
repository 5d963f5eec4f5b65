"""Claims about every layer, and numbers in words (for the findings of `analyses.ffn_composition`).

A claim about every layer is found where a p says so of each, corrected over layers, and another that each is apart from
its control: what holds of a control as well is said, and not found. It is denied where a p says the opposite of some
layer; else it is open. Of a model before any training nothing is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from analyses.composition.result import Measured, Result
from analyses.registry import Finding
from analyses.verdicts import MANY, extremes, rests_on
from analyses.wording import named_layers, percent
from interp.ratio_tests import FEWEST
from interp.wording import nothing_earlier


@dataclass(frozen=True)
class Beyond:
    """What a claim about layers must go beyond, to be more than a description."""

    control: str
    """As in "more than with another prefix's update"."""
    layers: Sequence[int]
    """Those that surely do."""


def sides(mean: Tensor, level: float, p: Tensor, alpha: float) -> tuple[list[int], list[int]]:
    """The layers that are surely above a level, and those surely below it.

    >>> import torch
    >>> sides(torch.tensor([0.7, 0.6, 0.3]), 0.5, torch.tensor([0.01, 0.2, 0.02]), 0.05)
    ([0], [2])
    """
    sure = p < alpha
    above, below = (mean > level) & sure, (mean < level) & sure
    return above.nonzero()[:, 0].tolist(), below.nonzero()[:, 0].tolist()


def verdict_of(
    result: Result, layers: tuple[Sequence[int], Sequence[int]], beyond: Beyond | None, *, holds: str, fails: str
) -> tuple[bool | None, str]:
    """Of a claim about every layer: found, and said.

    Args:
        result: what the claim is about.
        layers: those that it is surely true of, and those that it is surely false of.
        beyond: the layers that surely go beyond a control; None where there is none, being that of step 0.
        holds: what is claimed.
        fails: the opposite.
    """
    sure, against = layers
    where = "In every layer" if result.n_layers > 1 else "In the one layer"
    if len(sure) == result.n_layers:
        but = what_is_missing(result, beyond)
        return (None if but else True), f"{where} {holds}{but}"
    if against:
        return False, f"In {named_layers(against)} {fails}"
    so_far = f"it is in {named_layers(sure)}" if sure else "it is in none"
    return None, f"That {where[0].lower()}{where[1:]} {holds} is not shown ({so_far})"


def what_is_missing(result: Result, beyond: Beyond | None) -> str:
    """Why what holds is still no finding; empty where nothing is missing."""
    if result.step == 0:
        return ", before any training"
    if beyond is None:
        return f"; whether training made it so cannot be told (there is {nothing_earlier(result.step)})"
    left = [layer for layer in range(result.n_layers) if layer not in beyond.layers]
    if not left:
        return ""
    in_which = "" if len(left) == result.n_layers else f" in {named_layers(left)}"
    return f", but that it is{in_which} {beyond.control} is not shown"


def since_start(result: Result, control: str, mean: Callable[[Measured], Tensor], p: Tensor | None) -> Beyond | None:
    """The layers in which a number lies surely above that of step 0 (below it, for the negative of a number)."""
    if result.at_step_zero is None or p is None:
        return None
    return Beyond(control, sides(mean(result.now) - mean(result.at_step_zero), 0.0, p, result.config.alpha)[0])


def about_layers(
    result: Result, said: tuple[bool | None, str], of: Callable[[int], str], values: Tensor, *, after: str = ""
) -> Finding:
    """A verdict (`verdict_of`) with what is said of every layer: one sentence, and lines for a terminal."""
    found, opening = said
    rests = f"({resting_on(result)})."
    each = each_layer(result, of, values)
    layers = [of(layer) for layer in range(result.n_layers)] if result.n_layers <= MANY else [each]
    lines = [f"{opening}:", *(f"  {layer}" for layer in layers), *([f"  {after}"] if after else []), f"  {rests}"]
    return Finding(
        sentence=f"{opening}: {each}{f'; {after}' if after else ''} {rests}", found=found, lines=tuple(lines)
    )


def each_layer(result: Result, of: Callable[[int], str], values: Tensor) -> str:
    """What is said of every layer; of many, of the two with the least and the most."""
    return extremes([of(layer) for layer in range(result.n_layers)], values.tolist())


def at_start(result: Result, share: Callable[[Measured], Tensor | float]) -> str:
    """The same share at step 0, where that was taken apart."""
    return "" if result.at_step_zero is None else f", at step 0 {percent(share(result.at_step_zero))}"


def resting_on(result: Result) -> str:
    """What the numbers rest on, for the brackets behind a sentence."""
    resting = rests_on(
        result.run,
        step=result.step,
        n=result.n_prefixes,
        unit=f"prefixes of {result.text}",
        seed=result.config.seed,
        intervals=f"over {result.n_units} {result.unit}",
    )
    resting += "" if result.n_units >= FEWEST else f", too few to decide anything ({FEWEST} are needed)"
    layers = "" if result.n_layers == 1 else f", Holm over {result.n_layers} layers at {result.config.alpha:g}"
    return f"{resting}{layers}"
