"""How gradients flow through depth (Xiong et al. 2020, "On layer normalization in the Transformer architecture").

The gradient is that of the mean next-token loss over one batch, taken whole: the batch's gradient first, its norm
then (Xiong's "expected gradient"; the mean of per-sequence norms would measure noise). Nothing is clipped and no
optimizer rescales it, so a small norm does not mean a small update under Adam. Norms are Frobenius, in fp64 sums over
fp32 gradients.

* By parameter group, as `GPT.parameter_groups` names them: "L0.W_Q", ..., "embed". A tied embedding collects the
  gradient of both of its uses.
* By place on the residual stream: dL/dx_l over batch, pos and d_model, for x = resid_pre of each layer, resid_mid,
  and the last resid_post. Under every placement these are what the next reader gets.
* For the last layer's W_out also token by token. Xiong's theorem 1 is about the loss at one position. Over a batch,
  tokens add up where their gradients point the same way, and in a deep post-norm model they do so more and more.

Slopes are least squares of ln(norm) on layer (or on ln depth: an exponent), one per seed; the interval is Student's
over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.requirements import require_deterministic
from interp.stats import Interval, ols_slope, over_seeds
from model.errors import InputError
from model.sites import Site, Tap

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.gpt import GPT
    from model.hooks import Hook

MATRICES = ("W_Q", "W_K", "W_V", "W_O", "W_gate", "W_in", "W_out")
"""Weight matrices of a layer, in the order the forward pass uses them; which of them a model has, its config says."""


@dataclass(frozen=True, kw_only=True)
class GradientNorms:
    """One batch's gradient, by where it arrives."""

    loss: float
    """Mean next-token loss, in nats."""

    parameters: dict[str, float]
    """Frobenius norm of dL/dW per parameter group ("L0.W_Q")."""

    stream: dict[str, float]
    """Frobenius norm of dL/dx per place of the stream ("blocks.0.hook_resid_pre")."""

    mean_square: dict[str, float]
    """Mean of x^2 over batch, pos and d_model at the same places."""

    last_w_out_per_token: float
    """Root mean square, over predicted tokens, of the norm of one token's loss gradient at the last layer's W_out; NaN
    without FFN, or with fewer memories than d_model."""


def stream_sites(gpt: GPT) -> list[Site]:
    """The places of the stream in forward order: what each sublayer reads, and what leaves the last layer."""
    names = set(gpt.named_sites())
    taps = (Tap.RESID_PRE, Tap.RESID_MID)
    inside = [tap.at(layer) for layer in range(gpt.config.n_layers) for tap in taps if str(tap.at(layer)) in names]
    return [*inside, Tap.RESID_POST.at(gpt.config.n_layers - 1)]


def gradient_norms(gpt: GPT, tokens: Int[Tensor, "batch pos"], *, batch_size: int | None = None) -> GradientNorms:
    """Gradient norms of the mean loss on `tokens`; parameters' .grad stays as it is. Refuses active dropout.

    All rows go through the model at once where their activations fit into a gigabyte, else as many as do; `batch_size`
    says how many instead. The gradient is the same, summed in another order.
    """
    members = [parameter for group in gpt.parameter_groups().values() for _, parameter in group]
    found = _whole_gradient(gpt, tokens, members, batch_size)
    squares = iter([0.0 if gradient is None else _sum_of_squares(gradient) for gradient in found.parameters])
    n_predicted = tokens.shape[0] * (tokens.shape[1] - 1)
    size = tokens.numel() * gpt.config.d_model
    return GradientNorms(
        loss=found.loss,
        parameters={
            name: math.sqrt(sum(next(squares) for _ in members)) for name, members in gpt.parameter_groups().items()
        },
        stream={name: math.sqrt(square) for name, square in found.stream.items()},
        mean_square={name: square / size for name, square in found.squares.items()},
        # each token's share of the mean loss is 1 / n_predicted
        last_w_out_per_token=math.sqrt(n_predicted * found.token_squares),
    )


def stream_gradient_norms(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], *, batch_size: int | None = None
) -> dict[str, float]:
    """The norms on the stream alone, as in `gradient_norms`, without the work for the weights."""
    return {name: math.sqrt(square) for name, square in _whole_gradient(gpt, tokens, [], batch_size).stream.items()}


def _whole_gradient(
    gpt: GPT, tokens: Int[Tensor, "batch pos"], parameters: Sequence[Tensor], batch_size: int | None
) -> _Gradient:
    """The gradient of the mean loss on `tokens`, from as many rows at a time as fit."""
    require_deterministic(gpt)
    found: _Gradient | None = None
    for rows in tokens.split(batch_size or fitting_rows(gpt.config, tokens.shape[1])):
        part = _gradient(gpt, rows.to(gpt.device), len(rows) / len(tokens), parameters)
        found = part if found is None else found.plus(part)
    if found is None:
        raise InputError("A gradient takes at least one sequence; give tokens [batch, pos] with some.")
    return found


def fitting_rows(config: GPTConfig, n_pos: int) -> int:
    """How many sequences to differentiate at once: as many as keep what a pass remembers below a gigabyte."""
    per_layer = 10 * config.d_model + 5 * config.ffn_width + 2 * n_pos * config.n_heads
    numbers = n_pos * (config.n_layers * per_layer + 4 * config.d_vocab)
    return max(1, _NUMBERS // numbers)


_NUMBERS = 2**28
"""Largest number of fp32 numbers that one pass may remember for its gradient, estimated."""


@dataclass(frozen=True, kw_only=True)
class _Gradient:
    """The gradient of some rows' part of the mean loss, and sums of squares, which add up over rows."""

    loss: float
    parameters: list[Tensor | None]
    stream: dict[str, float]
    """Sum of squares of dL/dx per place."""
    squares: dict[str, float]
    """Sum of squares of x per place."""
    token_squares: float
    """Sum over tokens of the squared norm of one token's gradient at the last W_out; NaN where no weight was asked."""

    def plus(self, other: _Gradient) -> _Gradient:
        """Both together."""
        pairs = zip(self.parameters, other.parameters, strict=True)
        return _Gradient(
            loss=self.loss + other.loss,
            parameters=[one if two is None else two if one is None else one + two for one, two in pairs],
            stream={name: square + other.stream[name] for name, square in self.stream.items()},
            squares={name: square + other.squares[name] for name, square in self.squares.items()},
            token_squares=self.token_squares + other.token_squares,
        )


def _gradient(gpt: GPT, tokens: Int[Tensor, "batch pos"], share: float, parameters: Sequence[Tensor]) -> _Gradient:
    """The gradient of `share` times the mean loss on `tokens`, on the stream and on `parameters`."""
    places: dict[str, Tensor] = {}

    def keep(x: Tensor, hook: Hook) -> Tensor:
        places[hook.name] = x
        return x

    stream = [str(site) for site in stream_sites(gpt)]
    last_post = str(Tap.MLP_POST.at(gpt.config.n_layers - 1))
    watched = [*stream, *(name for name in gpt.named_sites() if name == last_post)]
    with torch.enable_grad():
        loss = gpt.run_with_hooks(tokens, [(name, keep) for name in watched], return_type="loss") * share
        gradients = torch.autograd.grad(loss, [*parameters, *places.values()], allow_unused=True)
    arriving = dict(zip(places, gradients[len(parameters) :], strict=True))
    by_token = bool(parameters) and last_post in places
    return _Gradient(
        loss=loss.item(),
        parameters=list(gradients[: len(parameters)]),
        stream={name: _sum_of_squares(arriving[name]) for name in stream},
        squares={name: _sum_of_squares(places[name]) for name in stream},
        token_squares=_token_squares(gpt, places[last_post], arriving[last_post]) if by_token else math.nan,
    )


def _token_squares(gpt: GPT, coefficients: Tensor, arriving: Tensor) -> float:
    """The sum over tokens of the squared size of one token's gradient at the last W_out.

    That gradient is the outer product of the token's coefficients m and of g = dL/d(m W_out), which nothing in the last
    layer mixes between tokens. What is known at the hook is dL/dm = W_out g, from which g follows exactly.
    """
    if gpt.config.ffn_width < gpt.config.d_model:
        return math.nan
    at_output = arriving.double() @ torch.linalg.pinv(gpt.W_out[-1].double()).T
    squares = at_output.square().sum(-1) * coefficients.detach().double().square().sum(-1)
    return float(squares.sum())


def layer_slope(norms: Float[Tensor, "seed layer"]) -> Interval:
    """Slope of ln(norm) on the layer, with its interval over seeds: 0.1 is about ten percent more per layer."""
    return over_seeds(layer_slopes(norms))


def layer_slopes(norms: Float[Tensor, "seed layer"]) -> Float[Tensor, " seed"]:
    """Slope of ln(norm) on the layer, for each seed."""
    return ols_slope([float(layer) for layer in range(norms.shape[1])], norms.double().log())


def depth_exponent(depths: Sequence[int], norms: Float[Tensor, "seed depth"]) -> Interval:
    """The a of norm ~ depth^a, with its interval over seeds: by Xiong's theorem 1, 0 for post-norm and -1/2 for pre."""
    return over_seeds(ols_slope([math.log(depth) for depth in depths], norms.double().log()))


def _sum_of_squares(x: Tensor) -> float:
    return float(x.detach().double().square().sum())
