"""What gradient flow says, in sentences that deny what is not there (for `analyses.gradient_flow`).

Sentences about initialization are about models drawn for the study, and say so; they hold or fail whatever the run is.
A denial needs an interval that lies inside a stated floor; one that merely holds zero leaves the matter open.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from analyses.gradients.checkpoint import CheckpointGradients
from analyses.gradients.initialization import Initialization, Scaling
from analyses.gradients.result import Result
from analyses.gradients.runs import Pair, TrainingMap
from analyses.registry import Finding
from analyses.verdicts import Verdict, listed, rests_on, together, verdict
from interp.stats import Interval
from model.config import Norm

PREDICTED = {Norm.POST: 0.0, Norm.PRE: -0.5}
"""Exponent of the last layer's W_out gradient in depth, by Xiong et al. 2020, theorem 1."""
NEAR = {Norm.POST: 0.12, Norm.PRE: 0.1}
"""How near counts as agreeing (twice to four times the spread over seeds at the default sizes)."""

FLOOR = math.log(1.5)
"""Smallest change of a ratio of norms that is claimed, as a logarithm."""
GROWTH_FLOOR = 0.1
"""Smallest rise of the stream's mean square per layer that is claimed."""
LINEAR = 0.95
"""Smallest R^2 of a straight line."""
SLOPE_FLOOR = 0.02
"""Smallest slope over layers that is claimed: two percent per layer."""
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
    depths = drawn.depths
    token = {s.placement: s.exponent for s in drawn.scalings if s.exponent is not None}
    batch = {s.placement: s.batch_exponent for s in drawn.scalings if s.batch_exponent is not None}
    if not PREDICTED.keys() <= token.keys():
        sentence = (
            "Whether gradients at initialization follow Xiong et al. 2020 (theorem 1) was not measured: it takes post "
            f"and pre at two depths or more, and here are {', '.join(_by_norm(drawn))} at {len(depths)}."
        )
        return Finding(sentence=sentence, found=None)
    law = "with depth as predicted (Xiong et al. 2020, theorem 1: exponent 0 in post-norm, -1/2 in pre-norm)"
    gradient = "one token's gradient at the last layer's W_out"
    case = _off_predicted(token)
    match case:
        case Verdict.BELOW:
            opening = f"{gradient} scales {law}"
        case Verdict.EFFECT:
            opening = f"{gradient} does not scale {law}"
        case Verdict.OPEN:
            opening = f"it cannot be told whether {gradient} scales {law}"
    measured = ", ".join(f"{token[norm]:.2f} in {norm}-norm" for norm in PREDICTED)
    of_batch = ", ".join(f"{batch[norm]:.2f} ({norm})" for norm in PREDICTED)
    others = ", ".join(f"{norm} {exponent:.2f}" for norm, exponent in token.items() if norm not in PREDICTED)
    sentence = (
        f"At initialization, in drawn models and not in this run, {opening}: {measured}, over {listed(depths)} layers, "
        f"{drawn.n_tokens} random tokens each; for the gradient of the batch's mean loss {of_batch}"
        f"{f'; other placements: {others}' if others else ''} ({_drawn_models(drawn, seed)}). Within "
        f"{' or '.join(f'{near:g} ({norm})' for norm, near in NEAR.items())} counts as agreeing."
    )
    return Finding(sentence=sentence, found=case is Verdict.BELOW)


def _off_predicted(exponents: Mapping[Norm, Interval]) -> Verdict:
    """How far the exponents are from the predicted ones: one that is surely off is enough to refute."""
    off = [verdict(_minus(exponents[norm], a), NEAR[norm]) for norm, a in PREDICTED.items()]
    return Verdict.EFFECT if Verdict.EFFECT in off else together(off)


def _growth(drawn: Initialization, seed: int) -> Finding:
    scalings = _by_norm(drawn)
    if not PREDICTED.keys() <= scalings.keys():
        return _not_compared("How the stream grows", scalings)
    pre, depth = scalings[Norm.PRE], drawn.depths[-1]
    off = float((drawn.profile(Norm.POST, depth).mean_square[:, 1:] - 1).abs().max())
    fixed = off < 1e-3
    sentence = (
        f"At initialization {_growth_words(pre)} in pre-norm ({pre.growth:.2f} per layer at {depth} layers, R^2 "
        f"{pre.linearity:.3f}; Xiong et al. 2020, lemma 2, bound it by 1/2 and 3/2) and "
        f"{'stays 1' if fixed else 'does not stay 1'} in post-norm (largest deviation {off:.0e}; "
        f"{_drawn_models(drawn, seed)})."
    )
    return Finding(sentence=sentence, found=_grows(pre) and pre.linearity > LINEAR and fixed)


def _growth_words(pre: Scaling) -> str:
    stream = "the mean square of the stream"
    match verdict(pre.growth, GROWTH_FLOOR):
        case Verdict.EFFECT if _grows(pre):
            return f"{stream} grows {'linearly with the layer' if pre.linearity > LINEAR else 'but not linearly'}"
        case Verdict.EFFECT:
            return f"{stream} falls with the layer"
        case Verdict.BELOW:
            return f"{stream} does not grow by {GROWTH_FLOOR:g} per layer"
        case Verdict.OPEN:
            return f"{stream} is not shown to grow, nor not to,"


def _grows(pre: Scaling) -> bool:
    return verdict(pre.growth, GROWTH_FLOOR) is Verdict.EFFECT and pre.growth.mean > 0


def _slopes(drawn: Initialization, seed: int) -> Finding:
    """Post rises more steeply towards the output than pre; "flat in pre-norm" is not claimed, as it does not hold."""
    scalings = _by_norm(drawn)
    if not PREDICTED.keys() <= scalings.keys():
        return _not_compared("Slopes over layers", scalings)
    judged = [depth for depth in drawn.depths if depth >= SLOPES_FROM] or drawn.depths[-1:]
    more = {depth: drawn.slope_difference(Norm.POST, Norm.PRE, depth) for depth in judged}
    post, pre = ({slope.depth: slope.w_out for slope in scalings[norm].slopes} for norm in (Norm.POST, Norm.PRE))
    measured = "; ".join(
        f"{depth} layers: post {post[depth]:.3f}, pre {pre[depth]:.3f}, paired difference {difference:.3f}"
        for depth, difference in more.items()
    )
    sentence = (
        f"At initialization {_slope_opening(more)} (slope of ln norm per layer, {measured}; "
        f"{_drawn_models(drawn, seed)}; less than {SLOPE_FLOOR:g} is not claimed). Xiong et al. 2020 draw pre-norm as "
        f"flat over layers: here pre-norm {_direction([pre[depth] for depth in judged])}, and post-norm "
        f"{_direction([post[depth] for depth in judged])}."
    )
    return Finding(sentence=sentence, found=all(difference.low >= SLOPE_FLOOR for difference in more.values()))


def _slope_opening(more: dict[int, Interval]) -> str:
    """Post against pre at every depth judged, or at which depths it is not shown."""
    tail = "more from layer to layer in post-norm than in pre-norm"
    unshown = [depth for depth, difference in more.items() if difference.low < SLOPE_FLOOR]
    if not unshown:
        return f"the gradient of W_out rises {tail}"
    if all(difference.high < SLOPE_FLOOR for difference in more.values()):
        return f"the gradient of W_out does not rise {tail}"
    return f"that the gradient of W_out rises {tail} is not shown, nor that it does not, at {listed(unshown)} layers"


def _direction(slopes: Collection[Interval]) -> str:
    """What slopes at several depths say together."""
    if all(slope.low >= SLOPE_FLOOR for slope in slopes):
        return "rises towards the output"
    if all(slope.high <= -SLOPE_FLOOR for slope in slopes):
        return "falls towards the output"
    flat = together([verdict(slope, SLOPE_FLOOR) for slope in slopes]) is Verdict.BELOW
    return "is flat" if flat else "cannot at every depth be told from flat"


def _not_compared(what: str, scalings: Collection[Norm]) -> Finding:
    sentence = f"{what} at initialization was not compared: it takes pre and post, and here is {', '.join(scalings)}."
    return Finding(sentence=sentence, found=None)


def _drawn_models(drawn: Initialization, seed: int) -> str:
    n_seeds = drawn.profiles[0].n_seeds
    return f"n = {n_seeds} seeds from {seed}, 95% intervals over seeds"


def _pair(pair: Pair) -> Finding:
    first, second = _log_ratios(pair.first), _log_ratios(pair.second)
    differ = _quartiles_apart(first, second)
    words = "; ".join(
        f"{logged.run} ({logged.norm}-norm): {_factor(ratios)} over n = {len(logged.steps)} logged steps from "
        f"{int(logged.steps[0])} to {int(logged.steps[-1])}"
        for logged, ratios in ((pair.first, first), (pair.second, second))
    )
    if not pair.matched:
        opening = "What the placement changes in the gradient through training is not known"
    elif differ:
        opening = "Through training the placement changes how much of the stream's gradient arrives at the bottom"
    else:
        opening = "That the placement changes the gradient through training is not shown"
    sentence = (
        f"{opening}: |dL/dx| at the bottom over the top is {words} (median, middle half in brackets). "
        f"{pair.spoken()}. One seed each ({pair.seed} in {pair.first.run}), so there is no interval over seeds."
    )
    return Finding(sentence=sentence, found=differ if pair.matched else None)


def _no_twin(logged: TrainingMap) -> Finding:
    sentence = (
        f"What the placement of the norms changed in training is not known: {logged.run} ({logged.norm}-norm) was "
        "looked at without a twin; name one with twin=RUN."
    )
    return Finding(sentence=sentence, found=None)


def _checkpoint(looked_at: CheckpointGradients) -> Finding:
    now, initial, change = looked_at.now, looked_at.initial, looked_at.change
    unit = f"held-out sequences in {looked_at.n_groups} groups"
    rests = rests_on(looked_at.run, step=now.step, n=looked_at.n_sequences, unit=unit, intervals="over groups")
    ratio = f"|dL/dx| at the bottom of the stream is {_as_factor(now.ratio)} times that at the top"
    if change is None or initial is None:
        why = "this is step 0" if now.step == 0 else "step 0 is not saved"
        sentence = f"What training changed about the stream's gradient is not known ({why}): {ratio} ({rests})."
        return Finding(sentence=sentence, found=None)
    what = "how much of the stream's gradient reaches the bottom"
    case = verdict(change, FLOOR)
    opening = {
        Verdict.EFFECT: f"Training changed {what}",
        Verdict.BELOW: f"Training changed by less than a factor of 1.5 {what}",
        Verdict.OPEN: f"Whether training changed by a factor of 1.5 {what} cannot be told",
    }[case]
    sentence = (
        f"{opening}: {ratio}, and {_as_factor(initial.ratio)} times at step 0; paired change {_as_factor(change)} "
        f"({rests})."
    )
    return Finding(sentence=sentence, found=case is Verdict.EFFECT)


def _by_norm(drawn: Initialization) -> dict[Norm, Scaling]:
    return {scaling.placement: scaling for scaling in drawn.scalings}


def _minus(interval: Interval, value: float) -> Interval:
    return replace(interval, mean=interval.mean - value, low=interval.low - value, high=interval.high - value)


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
