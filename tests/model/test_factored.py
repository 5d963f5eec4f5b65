"""A factored matrix is the product in everything but memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.errors import InputError
from model.factored import FactoredMatrix
from tests.conftest import make_gpt_with

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def factored(*leading: int, left: int = 9, inner: int = 4, right: int = 7, dtype=torch.float64, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(*leading, left, inner, generator=generator, dtype=dtype)
    return FactoredMatrix(A, torch.randn(*leading, inner, right, generator=generator, dtype=dtype))


def drawn(*shape: int, dtype=torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=dtype)


def same(found: Tensor, expected: Tensor) -> None:
    """Equal to rounding, relative to the largest entry."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert (found - expected).abs().max() <= TOLERANCE[found.dtype] * expected.abs().max().clamp_min(1)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("inner", [1, 4, 12])
def test_everything_asked_of_the_factors_is_so_of_the_product(dtype: torch.dtype, inner: int) -> None:
    matrix = factored(2, 3, inner=inner, right=9, dtype=dtype)
    dense = matrix.AB
    assert matrix.shape == dense.shape
    assert matrix.ndim == dense.ndim
    same(matrix.norm(), dense.norm(dim=(-2, -1)))
    same(matrix.trace, dense.diagonal(dim1=-2, dim2=-1).sum(-1))
    same(matrix.diagonal, dense.diagonal(dim1=-2, dim2=-1))
    same(matrix.T.AB, dense.mT)
    same((matrix * 2).AB, (3 * matrix).AB * 2 / 3)
    U, S, Vh = matrix.svd()
    same((U * S[..., None, :]) @ Vh, dense)
    same(S, torch.linalg.svdvals(dense)[..., : S.shape[-1]])
    rank = min(inner, 9)
    same(U.mT @ U, torch.eye(rank, dtype=dtype).expand(2, 3, -1, -1))
    same(Vh @ Vh.mT, torch.eye(rank, dtype=dtype).expand(2, 3, -1, -1))
    same(matrix.make_even().AB, dense)
    same(matrix.collapse_l().norm(dim=(-2, -1)), matrix.collapse_r().norm(dim=(-2, -1)))
    same(matrix.collapse_l().mT @ matrix.collapse_l(), dense.mT @ dense)
    same(matrix.collapse_r() @ matrix.collapse_r().mT, dense @ dense.mT)


def test_eigenvalues_are_those_of_the_product_but_for_zeros() -> None:
    matrix = factored(right=9)
    found = sorted(matrix.eigenvalues.tolist(), key=lambda each: (each.real, each.imag))
    largest = torch.linalg.eigvals(matrix.AB)
    largest = largest[largest.abs().topk(4).indices]
    assert found == pytest.approx(sorted(largest.tolist(), key=lambda each: (each.real, each.imag)), abs=1e-10)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_products_from_either_side_are_those_of_the_product(dtype: torch.dtype) -> None:
    matrix, dense = factored(2, 3, dtype=dtype), factored(2, 3, dtype=dtype).AB
    vector, row = drawn(7, dtype=dtype), drawn(9, dtype=dtype)
    same(matrix @ vector, dense @ vector)
    same(row @ matrix, row @ dense)
    wide, tall = drawn(7, 5, dtype=dtype), drawn(2, 1, 6, 9, dtype=dtype)
    same((matrix @ wide).AB, dense @ wide)
    same((tall @ matrix).AB, tall @ dense)
    for inner in (2, 8):
        other = factored(3, left=7, inner=inner, right=5, dtype=dtype, seed=1)
        product = matrix @ other
        same(product.AB, dense @ other.AB)
        assert product.mdim == min(4, inner)


def test_leading_axes_are_indexed_as_those_of_a_tensor() -> None:
    matrix = factored(2, 3)
    dense, picked, mask = matrix.AB, torch.tensor([2, 0]), torch.tensor([True, False])
    indices = [
        *(0, (1, 2), (slice(None), -1), (..., slice(0, 2), slice(1, 3)), (0, ...), (None, 1), (slice(None), None)),
        *((1, ..., slice(2, 4), slice(None)), (..., None, slice(None), slice(None)), (slice(None), picked)),
        *((mask,), (torch.tensor([0, 1]), picked), (0, 1, slice(3, 5)), (), ...),
    ]
    for index in indices:
        same(matrix[index].AB, dense[index])


def test_what_has_no_single_answer_is_refused_in_a_sentence() -> None:
    matrix = factored(2, 3)
    with pytest.raises(InputError, match="rows and columns .* are taken by slices"):
        matrix[0, 0, 3]
    with pytest.raises(InputError, match="index each of them once"):
        matrix[0, 0, :, :, 0]
    with pytest.raises(InputError, match="not square"):
        _ = matrix.eigenvalues
    with pytest.raises(InputError, match="do not multiply: 7 columns, 2 rows"):
        matrix @ torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(InputError, match="have no product"):
        FactoredMatrix(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(InputError, match="do not broadcast"):
        FactoredMatrix(torch.ones(2, 3, 3), torch.ones(4, 3, 3))
    with pytest.raises(InputError, match="by a number"):
        matrix * torch.ones(3)


def test_a_batch_of_vectors_is_never_taken_for_one_vector_per_matrix() -> None:
    """As many vectors as matrices, and as wide: on the right that is a matrix whose rows do not fit, and says so."""
    matrix = factored(2, left=7)
    with pytest.raises(InputError, match="a batch of vectors is a matrix of rows"):
        matrix @ torch.ones(2, 7, dtype=torch.float64)
    rows = torch.ones(2, 7, dtype=torch.float64)
    same((rows @ matrix).AB, rows @ matrix.AB)


def test_half_precision_has_singular_values() -> None:
    matrix = factored().to(torch.bfloat16)
    assert matrix.dtype == torch.bfloat16
    assert (matrix.S - torch.linalg.svdvals(matrix.AB.float())[:4]).abs().max() < 0.1


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_the_model_has_its_circuits_factored(n_kv_heads: int) -> None:
    gpt = make_gpt_with(n_kv_heads=n_kv_heads)
    assert gpt.OV.shape == gpt.QK.shape == (2, 4, 32, 32)
    block, key_head = gpt.layers[1].attn, 3 // (4 // n_kv_heads)
    same(gpt.OV[1, 3].AB, block.W_V[key_head] @ block.W_O[3])
    same(gpt.QK[1, 3].AB, block.W_Q[3] @ block.W_K[key_head].T)
    assert "not THE circuit" in type(gpt).QK.__doc__
    assert repr(gpt.QK) == "FactoredMatrix([2, 4, 32, 32], inner 8)"


def test_a_circuit_is_a_snapshot() -> None:
    gpt = make_gpt_with()
    before = gpt.OV
    with gpt.weights_edited(), torch.no_grad():
        gpt.layers[0].attn.W_V.zero_()
        assert gpt.OV.norm()[0].max() == 0
        assert before.norm()[0].min() > 0
