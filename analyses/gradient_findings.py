"""What gradient flow says, in sentences that deny what is not there (for `analyses.gradient_flow`).

Sentences about initialization are about models drawn for the study, and say so; they hold or fail whatever the run is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from analyses.registry import Finding
from interp.stats import Interval
from model.config import Norm

if TYPE_CHECKING:
    from analyses.gradient_checkpoint import CheckpointGradients
    from analyses.gradient_flow import Result
    from analyses.gradient_initialization import Initialization, Scaling
    from analyses.gradient_runs import Pair, TrainingMap

PREDICTED = {Norm.POST: 0.0, Norm.PRE: -0.5}
"""Exponent of the last layer's W_out gradient in depth, by Xiong et al. 2020, theorem 1."""
NEAR = {Norm.POST: 0.12, Norm.PRE: 0.1}
"""How near counts as agreeing (twice to four times the spread over seeds at the default sizes)."""

FLOOR = math.log(1.5)
"""Smallest change of a ratio of norms that is claimed, as a logarithm."""
SLOPES_FROM = 8
"""Layers from which on slopes over layers are judged; with fewer, an interval over a handful of layers says little."""


def spoken(result: Result) -> list[Finding]:
    """Initialization first, then training, then the checkpoint."""
    said: list[Finding] = []
    if result.initialization is not None:
        laws = (_exponents, _growth, _slopes)
        said += [replace(law(result.initialization, result.seed), of_run=False) for law in laws]
    if result.pair is not None:
        said.append(_pair(result.pair))
    elif result.run is not None:
        said.append(_no_twin(result.run))
    if result.checkpoint is not None:
        said.append(_checkpoint(result.checkpoint))
    return said


def _exponents(drawn: Initialization, seed: int) -> Finding:
    scalings = _by_norm(drawn)
    depths = drawn.depths
    n_seeds = drawn.profiles[0].n_seeds
    if len(depths) < 2 or not PREDICTED.keys() <= scalings.keys():
        sentence = (
            "Whether gradients at initialization follow Xiong et al. 2020 (theorem 1) was not measured: it takes post "
            f"and pre at two depths or more, and here are {', '.join(scalings)} at {len(depths)}."
        )
        return Finding(sentence=sentence, found=False)
    agrees = all(abs(scalings[norm].exponent.mean - a) <= NEAR[norm] for norm, a in PREDICTED.items())
    measured = ", ".join(f"{scalings[norm].exponent:.2f} in {norm}-norm" for norm in PREDICTED)
    batch = ", ".join(f"{scalings[norm].batch_exponent:.2f} ({norm})" for norm in PREDICTED)
    others = ", ".join(f"{s.placement} {s.exponent.mean:.2f}" for norm, s in scalings.items() if norm not in PREDICTED)
    sentence = (
        f"At initialization (drawn models, not this run) one token's gradient at the last layer's W_out "
        f"{'scales' if agrees else 'does not scale'} with depth as Xiong et al. 2020 predict (theorem 1: exponent 0 in "
        f"post-norm, -1/2 in pre-norm): {measured}, over {_listed(depths)} layers, n={n_seeds} seeds from {seed}, "
        f"{drawn.n_tokens} random tokens each; for the gradient of the batch's mean loss {batch}"
        f"{f'; other placements: {others}' if others else ''}. Brackets are 95% intervals over seeds."
    )
    return Finding(sentence=sentence, found=agrees)


def _growth(drawn: Initialization, seed: int) -> Finding:
    scalings = _by_norm(drawn)
    if not PREDICTED.keys() <= scalings.keys():
        return Finding(
            sentence="How the stream grows at initialization was not compared: it takes pre and post.", found=False
        )
    pre, depth = scalings[Norm.PRE], drawn.depths[-1]
    post_squares = drawn.profile(Norm.POST, depth).mean_square[:, 1:]
    off = float((post_squares - 1).abs().max())
    linear, fixed = pre.linearity > 0.95 and pre.growth.low > 0, off < 1e-3
    sentence = (
        f"At initialization the mean square of the stream {'grows' if linear else 'does not grow'} linearly with the "
        f"layer in pre-norm ({pre.growth:.2f} per layer at {depth} layers, R^2 {pre.linearity:.3f}; Xiong et al. "
        f"2020, lemma 2, bound it by 1/2 and 3/2) and {'stays 1' if fixed else 'does not stay 1'} in post-norm "
        f"(largest deviation {off:.0e}; n={pre.growth.n} seeds from {seed})."
    )
    return Finding(sentence=sentence, found=linear and fixed)


def _slopes(drawn: Initialization, seed: int) -> Finding:
    """Post rises more steeply towards the output than pre; "flat in pre-norm" is not claimed, as it does not hold."""
    scalings = _by_norm(drawn)
    if not PREDICTED.keys() <= scalings.keys():
        return Finding(
            sentence="Slopes over layers at initialization were not compared: it takes pre and post.", found=False
        )
    judged = [depth for depth in drawn.depths if depth >= SLOPES_FROM] or drawn.depths[-1:]
    differences = {depth: drawn.slope_difference(Norm.POST, Norm.PRE, depth) for depth in judged}
    apart = all(difference.low > 0 for difference in differences.values())
    post, pre = ({slope.depth: slope.w_out for slope in scalings[norm].slopes} for norm in (Norm.POST, Norm.PRE))
    measured = "; ".join(
        f"{depth} layers: post {post[depth]:.3f}, pre {pre[depth]:.3f}, paired difference {difference:.3f}"
        for depth, difference in differences.items()
    )
    flat = all(not pre[depth].excludes(0) for depth in judged)
    rises = any(post[depth].low > 0 for depth in judged)
    sentence = (
        f"At initialization the gradient of W_out {'rises' if apart else 'does not rise'} more from layer to layer in "
        f"post-norm than in pre-norm (slope of ln norm per layer, {measured}; n={drawn.profiles[0].n_seeds} seeds "
        f"from {seed}). "
        "Xiong et al. 2020 draw pre-norm as flat over layers: here it "
        f"{'cannot be told from flat' if flat else 'is not, it falls towards the output'}"
        f"{'' if rises else ', and post-norm shows no rise of its own'}."
    )
    return Finding(sentence=sentence, found=apart)


def _pair(pair: Pair) -> Finding:
    first, second = _log_ratios(pair.first), _log_ratios(pair.second)
    differ = pair.matched and _quartiles_apart(first, second)
    words = "; ".join(
        f"{logged.norm}: {_factor(ratios)} over {len(logged.steps)} logged steps to {int(logged.steps[-1])}"
        for logged, ratios in ((pair.first, first), (pair.second, second))
    )
    opening = (
        "Through training the placement changes how much of the stream's gradient arrives at the bottom"
        if differ
        else "That the placement changes the gradient through training is not shown"
    )
    sentence = (
        f"{opening}: |dL/dx| at the bottom over the top is {words} (median, middle half in brackets). "
        f"{pair.spoken()}. One seed each, so there is no interval over seeds."
    )
    return Finding(sentence=sentence, found=differ)


def _no_twin(logged: TrainingMap) -> Finding:
    sentence = (
        f"What the placement of the norms changed in training is not known: {logged.run} ({logged.norm}-norm) was "
        "looked at without a twin; name one with twin=RUN."
    )
    return Finding(sentence=sentence, found=False)


def _checkpoint(looked_at: CheckpointGradients) -> Finding:
    now, change = looked_at.now, looked_at.change
    on = f"on {looked_at.n_sequences} held-out sequences in {looked_at.n_groups} groups"
    ratio = _as_factor(now.ratio)
    if change is None or looked_at.initial is None:
        sentence = (
            f"At step {now.step} |dL/dx| at the bottom of the stream is {ratio} times that at the top ({on}); what "
            "training changed about it is not known, as step 0 is not kept."
        )
        return Finding(sentence=sentence, found=False)
    if now.step == 0:
        sentence = f"At step 0 |dL/dx| at the bottom of the stream is {ratio} times that at the top ({on}): untrained."
        return Finding(sentence=sentence, found=False)
    changed = change.excludes(0) and abs(change.mean) >= FLOOR
    sentence = (
        f"Training {'changed' if changed else 'did not change'} how much of the stream's gradient reaches the bottom: "
        f"|dL/dx| there is {ratio} times that at the top at step {now.step} and "
        f"{_as_factor(looked_at.initial.ratio)} times at step 0 ({on}; 95% "
        f"intervals over groups, paired change {_as_factor(change)}; less than a factor of 1.5 is not claimed)."
    )
    return Finding(sentence=sentence, found=changed)


def _by_norm(drawn: Initialization) -> dict[Norm, Scaling]:
    return {scaling.placement: scaling for scaling in drawn.scalings}


def _log_ratios(logged: TrainingMap) -> Tensor:
    """The logarithm of |dL/dx| at the bottom over the top, at every logged step."""
    return (logged.stream_norms[:, 0] / logged.stream_norms[:, -1]).log()


def _quartiles_apart(first: Tensor, second: Tensor) -> bool:
    ranges = [values.quantile(torch.tensor([0.25, 0.75])).tolist() for values in (first, second)]
    return ranges[0][1] < ranges[1][0] or ranges[1][1] < ranges[0][0]


def _factor(logs: Tensor) -> str:
    low, middle, high = logs.quantile(torch.tensor([0.25, 0.5, 0.75])).exp().tolist()
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def _as_factor(logs: Interval) -> str:
    mean, low, high = (math.exp(min(value, 700.0)) for value in (logs.mean, logs.low, logs.high))
    return f"{mean:.3g} [{low:.3g}, {high:.3g}]"


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
