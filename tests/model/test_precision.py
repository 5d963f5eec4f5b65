"""Every number format keeps to a stated tolerance, and what must not be rounded is not (docs/precision.md).

Measured against numpy in extended precision on the model's own, already rounded weights, so that what is left is the
rounding of the computation. Errors are shares of the root mean square of the exact numbers; `eps` is the format's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, GPTConfig
from model.norms import NormLayer
from model.positions import Rotation
from tests.model.longdouble import Reference, error_of
from tests.model.variants import ALL, EXTRAS, POSITIONS, name_of

MakeGPT = Callable[..., GPT]
HALF = (torch.bfloat16, torch.float16)
EPS_PER_LAYER = {torch.float64: 32, torch.float32: 32, torch.bfloat16: 8, torch.float16: 8}
"""A layer rounds numbers of the stream's size about 16 times (norm, q, k, v, z, what is written, the sum, for both
halves), each by at most eps / 2: 8 eps. In half precision the sums inside are formed in fp32 and cost nothing. In fp32
and fp64 they are rounded too, over 32 to 128 terms: four times as much."""
IN_FP32 = ("hook_attn_scores", "hook_pattern", "hook_scale", "hook_normalized")
"""What a half-precision model holds in fp32."""
SMOOTH = [variant for variant in ALL if variant.get("ffn") != "relu"]
"""ReLU's own gradient jumps at 0, so rounding may change it by any amount."""
MAX_POSITION = 4090


def tolerance(dtype: torch.dtype, n_layers: int) -> float:
    return EPS_PER_LAYER[dtype] * n_layers * torch.finfo(dtype).eps


# --- the forward pass, the loss, the gradient -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("variant", ALL, ids=name_of)
def test_logits_and_every_residual_keep_to_the_tolerance(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], dtype: torch.dtype
) -> None:
    gpt = make_gpt(**variant).to(dtype)
    exact = Reference(gpt, tokens).found
    _, fused = gpt.run_with_cache(tokens, list(exact))
    with gpt.explicit_attention():
        _, explicit = gpt.run_with_cache(tokens, list(exact))
    for cache in (fused, explicit):
        errors = {name: error_of(cache[name], exact[name]) for name in exact}
        assert max(errors.values()) <= tolerance(dtype, gpt.config.n_layers), errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm", ["pre", "post", "sandwich", "reordered", "deepnorm", "scaled"])
def test_the_error_grows_no_faster_than_the_number_of_layers(
    make_gpt: MakeGPT, tokens: Tensor, norm: str, dtype: torch.dtype
) -> None:
    gpt = make_gpt(norm=norm, n_layers=6).to(dtype)
    exact = Reference(gpt, tokens).found
    _, cache = gpt.run_with_cache(tokens, list(exact))
    for layer in (0, 2, 5):
        name = f"blocks.{layer}.hook_resid_post"
        assert error_of(cache[name], exact[name]) <= tolerance(dtype, layer + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("variant", SMOOTH, ids=name_of)
def test_loss_and_gradient_keep_to_the_tolerance(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], dtype: torch.dtype
) -> None:
    gpt = make_gpt(**variant).to(dtype)
    exact = copy.deepcopy(gpt).double()
    losses, gradients = zip(*(loss_and_gradient(each, tokens) for each in (gpt, exact)), strict=True)
    assert abs(losses[0] / losses[1] - 1) <= 4 * torch.finfo(dtype).eps
    error = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert error <= tolerance(dtype, gpt.config.n_layers)


def test_the_gradient_in_fp64_is_the_slope_of_the_loss(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt, step = make_gpt().double(), 1e-5
    _, gradient = loss_and_gradient(gpt, tokens)
    direction = torch.randn(gradient.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    direction /= direction.norm()
    losses = []
    for sign in (1, -1):
        with torch.no_grad(), gpt.weights_edited():
            torch.nn.utils.vector_to_parameters(
                torch.nn.utils.parameters_to_vector(gpt.parameters()) + sign * step * direction, gpt.parameters()
            )
            losses.append(gpt.loss(tokens).item())
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(float(gradient @ direction), rel=1e-7)


def loss_and_gradient(gpt: GPT, tokens: Tensor) -> tuple[float, Tensor]:
    gpt.zero_grad()
    loss = gpt.loss(tokens)
    loss.backward()
    return loss.item(), torch.cat([parameter.grad.double().flatten() for parameter in gpt.parameters()])


# --- number formats, place by place -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ALL, ids=name_of)
def test_fp64_stays_fp64_at_every_place_and_equals_fp32_to_fp32_accuracy(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any]
) -> None:
    single = make_gpt(**variant)
    double = copy.deepcopy(single).double()
    (out, cache), (_, rough) = (gpt.run_with_cache(tokens, lambda name: True) for gpt in (double, single))
    assert {tensor.dtype for tensor in cache.values()} == {out.dtype} == {torch.float64}
    assert {tensor.dtype for tensor in rough.values()} == {torch.float32}
    assert double.loss(tokens).dtype is torch.float64
    for name in double.named_sites():
        exact = cache[name][cache[name].isfinite()]
        error = (rough[name][rough[name].isfinite()].double() - exact).abs().max() / exact.square().mean().sqrt()
        assert error <= tolerance(torch.float32, 2), name


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
def test_half_precision_holds_scores_patterns_and_norms_in_fp32_and_the_rest_in_its_own_format(
    make_gpt: MakeGPT, tokens: Tensor, norm_kind: str, dtype: torch.dtype
) -> None:
    gpt = make_gpt(norm_kind=norm_kind, qk_norm=True).to(dtype)
    out, cache = gpt.run_with_cache(tokens, lambda name: True)
    assert out.dtype is dtype
    for name, tensor in cache.items():
        assert tensor.dtype is (torch.float32 if name.endswith(IN_FP32) else dtype), name


@pytest.mark.parametrize(
    ("dtype", "answer"),
    [
        (torch.float32, torch.float64),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.float64),
        (torch.float16, torch.float32),
    ],
    ids=str,
)
def test_every_place_can_be_edited_in_every_format_whatever_format_the_edit_has(
    make_gpt: MakeGPT, tokens: Tensor, dtype: torch.dtype, answer: torch.dtype
) -> None:
    """A mean taken in fp64 is put into a bf16 model: the place keeps its format, and nothing downstream mixes two."""
    gpt = make_gpt(ffn="swiglu", n_kv_heads=2, biases=True, n_layers=1, positions="rope").to(dtype)
    for name in gpt.named_sites():
        changed = gpt.run_with_hooks(tokens[:1, :6], [(name, lambda x, hook: (x * 1.5).to(answer))])
        assert changed.dtype is dtype, name
        assert changed.isfinite().all(), name


# --- what must not be rounded -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize(
    "variant", [*POSITIONS, {"n_kv_heads": 2}, {"qk_norm": True}, {"smeared_keys": True}], ids=name_of
)
def test_scores_and_softmax_are_exact_to_fp32_in_every_format(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], dtype: torch.dtype
) -> None:
    gpt = make_gpt(**variant).to(dtype)
    rotated = variant.get("positions", "rope") == "rope"
    _, cache = gpt.run_with_cache(tokens)
    eps = torch.finfo(torch.float32).eps
    for layer in range(2):
        q, k = (cache[f"rot_{part}" if rotated else part, layer].double() for part in "qk")
        k = k.repeat_interleave(4 // k.shape[2], dim=2)
        exact = torch.einsum("bqhe,bkhe->bhqk", q, k) / math.sqrt(8)
        if variant.get("positions") == "alibi":
            exact = exact - distances(12) * 4.0 ** -torch.arange(1, 5).double()[:, None, None]
        scores, pattern = cache["attn_scores", layer].double(), cache["pattern", layer].double()
        visible = torch.ones(12, 12, dtype=torch.bool).tril().expand_as(scores)
        assert (scores - exact)[visible].abs().max() <= 8 * eps * exact[visible].abs().max()
        assert (pattern.sum(-1) - 1).abs().max() <= 4 * eps
        assert (pattern - scores.softmax(-1)).abs().max() <= 8 * eps


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("mean", [0.0, 100.0, 1000.0])
def test_a_norm_in_half_precision_is_the_exact_norm_rounded_once(
    make_gpt: MakeGPT, norm_kind: str, dtype: torch.dtype, mean: float
) -> None:
    """Also far from 0, where a mean or a mean square summed in half precision would be useless."""
    norm = NormLayer(GPTConfig(n_layers=1, n_heads=1, d_model=256, n_ctx=4, d_vocab=9, norm_kind=norm_kind), "ln_final")
    x = (8 * torch.randn(64, 256, generator=torch.Generator().manual_seed(0)) + mean).to(dtype)
    exact = norm.double()(x.double())
    found = norm.to(dtype)(x).double()
    allowed = 0.5 * torch.finfo(dtype).eps * exact.abs() + 1e-5 * max(1.0, mean / 100)
    assert ((found - exact).abs() <= allowed).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16], ids=str)
@pytest.mark.parametrize("variant", [*POSITIONS, *EXTRAS], ids=name_of)
def test_the_fused_kernel_in_half_precision_is_within_rounding_of_the_explicit_path(
    make_gpt: MakeGPT, tokens: Tensor, variant: dict[str, Any], dtype: torch.dtype
) -> None:
    gpt = make_gpt(**variant).to(dtype)
    for mask in (None, torch.arange(12).expand(3, -1) >= 3):
        _, fused = gpt.run_with_cache(tokens, "blocks.0.attn.hook_z", attention_mask=mask)
        with gpt.explicit_attention():
            _, explicit = gpt.run_with_cache(tokens, "blocks.0.attn.hook_z", attention_mask=mask)
        difference = (fused["z", 0].double() - explicit["z", 0].double()).abs().max()
        assert difference <= 2 * torch.finfo(dtype).eps * explicit["z", 0].abs().max()


def distances(n_pos: int) -> Tensor:
    return (torch.arange(n_pos)[:, None] - torch.arange(n_pos)).abs().double()


# --- rotation: a product of rotated vectors depends on the distance alone ---------------------------------------------


@pytest.mark.parametrize("d_head", [16, 64, 128])
@pytest.mark.parametrize("base", [10_000.0, 100_000.0, 500_000.0])
def test_in_bf16_rotated_products_depend_on_the_distance_alone(d_head: int, base: float) -> None:
    """Over positions 0 to 4090: to 1e-4 before the cast, and after it as well as exactly rotated vectors could."""
    for offset in (1, 5, 64, 1000):
        q, k = (torch.randn(d_head, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (1, 2))

        def turn(x: Tensor, first: int, tables: torch.dtype) -> Tensor:
            positions = torch.arange(first, first + MAX_POSITION + 1)[None]
            rotation = Rotation.of(positions, d_head, base, tables)
            return rotation(x.expand(1, MAX_POSITION + 1, 1, d_head))

        before = spread(turn(q.float(), offset, torch.bfloat16), turn(k.float(), 0, torch.bfloat16))
        after = spread(turn(q, offset, torch.bfloat16), turn(k, 0, torch.bfloat16))
        cost = spread(*(turn(x.double(), at, torch.float64).bfloat16() for x, at in ((q, offset), (k, 0))))
        assert before <= 1e-4
        assert after <= 1.2 * cost


@pytest.mark.parametrize("d_head", [16, 64])
def test_a_model_cast_to_bf16_keeps_its_rotation(d_head: int) -> None:
    """The same measure on what the model's own hooks show, the same q and k standing at every position."""
    shape = {"n_layers": 1, "n_heads": 1, "d_model": d_head, "n_ctx": MAX_POSITION + 1, "d_vocab": 9, "ffn": "none"}
    single = GPT(GPTConfig(**shape)).eval()
    q, k = (torch.randn(d_head, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (1, 2))
    found = {gpt.dtype: rotated_by(gpt, q, k) for gpt in (single, copy.deepcopy(single).to(torch.bfloat16))}
    exact = rotated_by(copy.deepcopy(single).double(), q, k)
    assert found[torch.bfloat16][0].dtype is torch.bfloat16
    for offset in (0, 1, 5, 64, 1000):
        kept = MAX_POSITION + 1 - offset
        apart = {dtype: (rot_q[:, offset:], rot_k[:, :kept]) for dtype, (rot_q, rot_k) in found.items()}
        cost = spread(exact[0][:, offset:].bfloat16(), exact[1][:, :kept].bfloat16())
        assert spread(*apart[torch.float32]) <= 1e-4
        assert spread(*apart[torch.bfloat16]) <= 1.2 * cost


def test_tables_rounded_to_bf16_would_fail_both_halves_of_that_measure() -> None:
    """So it measures something: this is what `.to(torch.bfloat16)` does to a table that is stored."""
    rough, right = [], []
    for seed, first in ((1, 5), (2, 0)):
        x = torch.randn(64, generator=torch.Generator().manual_seed(seed)).bfloat16().float()
        rotation = Rotation.of(torch.arange(first, first + MAX_POSITION + 1)[None], 64, 10_000.0, torch.float32)
        rounded = Rotation(rotation.cos.bfloat16().float(), rotation.sin.bfloat16().float())
        for turned, how in ((rough, rounded), (right, rotation)):
            turned.append(how(x.expand(1, MAX_POSITION + 1, 1, 64)))
    assert spread(*rough) > 10 * 1e-4
    assert spread(*(x.bfloat16() for x in rough)) > 1.2 * spread(*(x.bfloat16() for x in right))


def rotated_by(gpt: GPT, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """rot_q and rot_k of a model whose queries are all q and whose keys are all k."""
    names = [f"blocks.0.attn.hook_rot_{part}" for part in "qk"]
    planted = [
        (f"blocks.0.attn.hook_{part}", lambda x, hook, vector=vector: vector.to(x.dtype).expand_as(x))
        for part, vector in (("q", q), ("k", k))
    ]
    with torch.no_grad(), gpt.hooks(planted):
        _, cache = gpt.run_with_cache(torch.zeros(1, MAX_POSITION + 1, dtype=torch.long), names)
    return cache["rot_q", 0], cache["rot_k", 0]


def spread(rot_q: Tensor, rot_k: Tensor) -> float:
    """Standard deviation of q.k / sqrt(d_head) over positions."""
    return (rot_q.double() * rot_k.double()).sum(-1).div(math.sqrt(rot_q.shape[-1])).std().item()
