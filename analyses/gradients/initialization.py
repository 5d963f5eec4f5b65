"""Gradients before any training: norm placements and depths, side by side, over seeds (for `analyses.gradient_flow`).

Models are drawn as in Xiong et al. 2020: Xavier weights, and embeddings of unit variance. With GPT-2's init (std
0.02, writes divided by sqrt(2 n_layers)) the stream starts small and grows little, and the laws below do not show.
Embeddings are untied, so that the embedding's gradient is that of its use at the bottom. Tokens are uniform and
independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.config_rules import at_least, require
from analyses.registry import Progress
from interp.gradients import (
    MATRICES,
    GradientNorms,
    depth_exponent,
    gradient_norms,
    layer_slope,
    layer_slopes,
)
from interp.stats import Interval, linear_fit, over_seeds
from model.config import FFNKind, GPTConfig, Init, Norm, NormKind, Positions
from model.errors import ConfigError
from model.gpt import GPT
from model.settings import as_enum
from model.sites import Tap

SHOWN = tuple(name for name in MATRICES if name != "W_gate")
"""The matrices of a layer in these models."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """Which models are drawn, and on how much their gradient is measured."""

    placements: tuple[Norm, ...] = tuple(Norm)
    depths: tuple[int, ...] = (4, 8, 16)
    """Numbers of layers."""
    n_seeds: int = 5
    d_model: int = 64
    n_heads: int = 4
    d_vocab: int = 257
    n_sequences: int = 8
    """Random sequences in the one batch."""
    n_pos: int = 64
    """Tokens in each."""
    norm_kind: NormKind = NormKind.LAYERNORM

    def __post_init__(self) -> None:
        placements = tuple(as_enum(Norm, each, "sweep.placements") for each in self.placements)
        object.__setattr__(self, "placements", placements)
        object.__setattr__(self, "norm_kind", as_enum(NormKind, self.norm_kind, "sweep.norm_kind"))
        for name in ("placements", "depths"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                shown = ",".join(map(str, given)) or "nothing"
                raise ConfigError(f"sweep.{name} is {shown}; give one or more, each once, separated by commas.")
        require(
            self,
            "sweep",
            depths=at_least(2),  # a slope over layers takes two of them
            n_seeds=at_least(2),  # and an interval over seeds two seeds
            n_pos=at_least(2),  # a token, and the one that is predicted
            n_sequences=at_least(1),
            d_vocab=at_least(2),
        )
        self.model(self.placements[0], self.depths[0])  # refuses what no model can be

    def model(self, placement: Norm | str, depth: int) -> GPTConfig:
        """The model of one cell."""
        return GPTConfig(
            n_layers=depth,
            n_heads=self.n_heads,
            d_model=self.d_model,
            n_ctx=self.n_pos,
            d_vocab=self.d_vocab,
            norm=as_enum(Norm, placement, "placement"),
            norm_kind=self.norm_kind,
            positions=Positions.ROPE,
            ffn=FFNKind.RELU,
            init=Init.XAVIER,
            embed_std=1.0,
            tie_embeddings=False,
        )


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Every seed of one placement and depth."""

    placement: Norm
    depth: int

    matrix_norms: Float[Tensor, "seed layer matrix"]
    """Frobenius norm of dL/dW; matrices as in `SHOWN`."""

    stream_norms: Float[Tensor, "seed boundary"]
    """Norm of dL/dx at resid_pre of each layer and at the last resid_post."""

    mean_square: Float[Tensor, "seed boundary"]
    """Mean of x^2 at the same places."""

    token_norms: Float[Tensor, " seed"]
    """Typical norm of one token's gradient at the last layer's W_out."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "placement", as_enum(Norm, self.placement, "placement"))

    @property
    def n_seeds(self) -> int:
        """Models drawn."""
        return len(self.token_norms)

    @property
    def w_out(self) -> Float[Tensor, "seed layer"]:
        """Gradient norm of the FFN's second matrix, the one that Xiong's theorem is about."""
        return self.matrix_norms[..., SHOWN.index("W_out")]


@dataclass(frozen=True, kw_only=True)
class DepthSlopes:
    """How norms change with the layer, in one placement at one depth: slopes of ln(norm), with intervals over seeds."""

    depth: int
    w_out: Interval
    w_query: Interval
    stream: Interval


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What one placement's profiles say about depth."""

    placement: Norm

    exponent: Interval | None
    """a of (one token's gradient at the last layer's W_out) ~ depth^a: what Xiong's theorem 1 is about; None where all
    models are of one depth."""

    batch_exponent: Interval | None
    """The same for the gradient of the mean loss over the batch, in which tokens may add up or cancel."""

    slopes: tuple[DepthSlopes, ...]
    """Per depth, in rising order."""

    growth: Interval
    """Rise of the mean square of the stream per layer, at the largest depth."""

    linearity: float
    """R^2 of a straight line through that mean square; NaN where it does not move."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "placement", as_enum(Norm, self.placement, "placement"))


@dataclass(frozen=True, kw_only=True)
class Initialization:
    """The whole sweep."""

    profiles: tuple[Profile, ...]
    scalings: tuple[Scaling, ...]
    n_tokens: int
    """Tokens in the one batch behind each gradient."""

    @property
    def depths(self) -> list[int]:
        """Numbers of layers, in rising order."""
        return sorted({profile.depth for profile in self.profiles})

    def slope_difference(self, first: Norm | str, second: Norm | str, depth: int) -> Interval:
        """Slope of ln |dL/dW_out| per layer in `first` minus that in `second`, paired by seed."""
        one, other = (layer_slopes(self.profile(norm, depth).w_out) for norm in (first, second))
        return over_seeds(one - other)

    def profile(self, placement: Norm | str, depth: int) -> Profile:
        """The profile of one placement and depth."""
        wanted = (as_enum(Norm, placement, "placement"), depth)
        return next(profile for profile in self.profiles if (profile.placement, profile.depth) == wanted)


def measured_initialization(
    sweep: Sweep, seed: int, *, progress: Progress | None = None, device: str = "cpu"
) -> Initialization:
    """Draw every model of the sweep and measure its gradient on `device`; seeds run from `seed` on."""
    cells = [(placement, depth) for placement in sweep.placements for depth in sorted(sweep.depths)]
    profiles = []
    for done, (placement, depth) in enumerate(cells):
        if progress is not None:
            progress(done, len(cells), f"gradients at initialization: {placement}, {depth} layers")
        profiles.append(_profile(placement, depth, list(_drawn(sweep, placement, depth, seed, device))))
    scalings = [
        _scaling(placement, [p for p in profiles if p.placement is placement]) for placement in sweep.placements
    ]
    return Initialization(profiles=tuple(profiles), scalings=tuple(scalings), n_tokens=sweep.n_sequences * sweep.n_pos)


def _profile(placement: Norm, depth: int, drawn: list[GradientNorms]) -> Profile:
    layers = range(depth)
    boundaries = [*(str(Tap.RESID_PRE.at(layer)) for layer in layers), str(Tap.RESID_POST.at(depth - 1))]
    return Profile(
        placement=placement,
        depth=depth,
        matrix_norms=torch.tensor([[[d.parameters[f"L{i}.{name}"] for name in SHOWN] for i in layers] for d in drawn]),
        stream_norms=torch.tensor([[d.stream[name] for name in boundaries] for d in drawn]),
        mean_square=torch.tensor([[d.mean_square[name] for name in boundaries] for d in drawn]),
        token_norms=torch.tensor([d.last_w_out_per_token for d in drawn]),
    )


def _drawn(sweep: Sweep, placement: Norm, depth: int, seed: int, device: str) -> Iterator[GradientNorms]:
    for each in range(seed, seed + sweep.n_seeds):
        generator = torch.Generator().manual_seed(each)
        tokens = torch.randint(sweep.d_vocab, (sweep.n_sequences, sweep.n_pos), generator=generator)
        yield gradient_norms(GPT(sweep.model(placement, depth), seed=each).to(device), tokens)


def _scaling(placement: Norm, profiles: list[Profile]) -> Scaling:
    depths = [profile.depth for profile in profiles]
    growth, linearity = linear_fit(profiles[-1].mean_square)
    return Scaling(
        placement=placement,
        exponent=_exponent(depths, [profile.token_norms for profile in profiles]),
        batch_exponent=_exponent(depths, [profile.w_out[:, -1] for profile in profiles]),
        slopes=tuple(_slopes(profile) for profile in profiles),
        growth=growth,
        linearity=linearity,
    )


def _exponent(depths: list[int], norms: list[Float[Tensor, " seed"]]) -> Interval | None:
    return depth_exponent(depths, torch.stack(norms, dim=1)) if len(depths) > 1 else None


def _slopes(profile: Profile) -> DepthSlopes:
    return DepthSlopes(
        depth=profile.depth,
        w_out=layer_slope(profile.w_out),
        w_query=layer_slope(profile.matrix_norms[..., SHOWN.index("W_Q")]),
        stream=layer_slope(profile.stream_norms),
    )
