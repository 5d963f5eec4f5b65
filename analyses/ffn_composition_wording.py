"""Claims about every layer, and numbers in words (for the findings of `analyses.ffn_composition`).

A claim about every layer is found where a p says so of each, corrected over layers; it is denied where one says the
opposite of some; else it is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from analyses.ffn_composition_result import Measured, Result
from analyses.verdicts import extremes, listed, rests_on
from interp.stats import Interval


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
    result: Result, layers: tuple[Sequence[int], Sequence[int]], *, holds: str, fails: str
) -> tuple[bool | None, str]:
    """Of a claim about every layer, with the layers it is surely true of and surely false of: found, and said."""
    sure, against = layers
    if len(sure) == result.n_layers:
        return True, f"In every layer {holds}" if result.n_layers > 1 else f"In the one layer {holds}"
    if against:
        return False, f"In {named_layers(against)} {fails}"
    so_far = f"it is in {named_layers(sure)}" if sure else "it is in none"
    return None, f"That in every layer {holds} is not shown ({so_far})"


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
    layers = "" if result.n_layers == 1 else f", Holm over {result.n_layers} layers at {result.config.alpha:g}"
    return f"{resting}{layers}"


def named_layers(layers: Sequence[int]) -> str:
    """As in "layers 0 and 2"."""
    return f"{'layer' if len(layers) == 1 else 'layers'} {listed(layers)}"


def share_of(interval: Interval) -> str:
    """A share with its interval, in per cent."""
    return f"{percent(interval.mean)} [{percent(interval.low)}, {percent(interval.high)}]"


def percent(share: Tensor | float) -> str:
    """As in "12.5%"; zero has no sign, and what is not a number nothing to say.

    >>> percent(0.125), percent(-1e-9), percent(math.nan)
    ('12.5%', '0.0%', 'none')
    """
    if math.isnan(float(share)):
        return "none"
    text = f"{100 * float(share):.1f}"
    return f"{text.removeprefix('-') if float(text) == 0 else text}%"
