"""A matrix kept as the product of two thin ones, such as the QK and OV circuits of a head.

W_Q W_K^T and W_V W_O are [d_model, d_model] of rank d_head at most. Everything asked of them here (norms, eigenvalues,
singular values, products) is computed from the factors, through matrices no larger than d_head x d_head; `.AB` alone
forms the product. Names are those of TransformerLens's FactoredMatrix, with four differences: `svd()` gives Vh, as
torch.linalg.svd does, and `.V` its transpose; a single row or column is not cut out of a product; multiplying never
forms one; and a number scales it by `*` alone, so that -M is written M * -1.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from model.errors import InputError

Index = int | slice | EllipsisType | Tensor | None


class SVD(NamedTuple):
    """M = U diag(S) Vh; columns of U and rows of Vh are orthonormal, S falls."""

    U: Float[Tensor, "*leading ldim rank"]
    S: Float[Tensor, "*leading rank"]
    Vh: Float[Tensor, "*leading rank rdim"]


class FactoredMatrix:
    """The product A @ B, [*leading, ldim, rdim], known by its factors; leading axes broadcast.

    Args:
        A: [*leading, ldim, mdim].
        B: [*leading, mdim, rdim].
    """

    __slots__ = ("A", "B")

    def __init__(self, A: Tensor, B: Tensor) -> None:
        if A.ndim < 2 or B.ndim < 2 or A.shape[-1] != B.shape[-2]:
            raise InputError(
                f"factors of shapes {list(A.shape)} and {list(B.shape)} have no product; "
                "give [..., left, inner] and [..., inner, right]."
            )
        try:
            leading = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        except RuntimeError:
            raise InputError(
                f"the leading axes of factors of shapes {list(A.shape)} and {list(B.shape)} do not broadcast; "
                "give factors that differ there only where one has length 1."
            ) from None
        self.A: Float[Tensor, "*leading ldim mdim"] = A.expand(*leading, *A.shape[-2:])
        self.B: Float[Tensor, "*leading mdim rdim"] = B.expand(*leading, *B.shape[-2:])

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """Of the product: [*leading, ldim, rdim]."""
        return torch.Size((*self.A.shape[:-1], self.B.shape[-1]))

    @property
    def ndim(self) -> int:
        """How many axes the product has."""
        return self.A.ndim

    @property
    def ldim(self) -> int:
        """Rows of the product."""
        return self.A.shape[-2]

    @property
    def mdim(self) -> int:
        """The inner size, which bounds the rank."""
        return self.A.shape[-1]

    @property
    def rdim(self) -> int:
        """Columns of the product."""
        return self.B.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """The factors' number format."""
        return self.A.dtype

    @property
    def device(self) -> torch.device:
        """Where the factors are."""
        return self.A.device

    def __repr__(self) -> str:
        return f"FactoredMatrix({list(self.shape)}, inner {self.mdim})"

    @property
    def AB(self) -> Float[Tensor, "*leading ldim rdim"]:
        """The product, formed."""
        return self.A @ self.B

    @property
    def BA(self) -> Float[Tensor, "*leading mdim mdim"]:
        """The inner product, which has the same nonzero eigenvalues; of a square matrix."""
        self._require_square("BA")
        return self.B @ self.A

    @property
    def T(self) -> FactoredMatrix:
        """The transpose of the last two axes."""
        return FactoredMatrix(self.B.mT, self.A.mT)

    def to(self, *args: Any, **kwargs: Any) -> FactoredMatrix:
        """Both factors on another device or in another number format, as torch's `to`."""
        return FactoredMatrix(self.A.to(*args, **kwargs), self.B.to(*args, **kwargs))

    def __getitem__(self, index: Index | tuple[Index, ...]) -> FactoredMatrix:
        """As torch indexes the product, but that rows and columns are taken by slices only."""
        leading, rows, columns = self._split(index if isinstance(index, tuple) else (index,))
        # Whatever the leading index does to the leading axes it does to both factors alike.
        return FactoredMatrix(self.A[leading][..., rows, :], self.B[leading][..., :, columns])

    def _split(self, index: tuple[Index, ...]) -> tuple[tuple[Index, ...], slice, slice]:
        """The index in three: of the leading axes, of the rows, of the columns."""
        n_taken = sum(map(_n_axes, index))
        dots = [place for place, each in enumerate(index) if each is Ellipsis]
        if len(dots) > 1 or n_taken > self.ndim:
            raise InputError(f"{self!r} has {self.ndim} axes; index each of them once, with one `...` at most.")
        place = dots[0] if dots else len(index)
        full = (slice(None),) * (self.ndim - n_taken)
        whole = (*index[:place], *full, *index[place + 1 :])
        *leading, rows, columns = whole
        if not isinstance(rows, slice) or not isinstance(columns, slice):
            raise InputError(
                f"rows and columns of {self!r} are taken by slices; form the product for single ones: M.AB[...]."
            )
        return tuple(leading), rows, columns

    # --- products -----------------------------------------------------------------------------------------------------

    def __matmul__(self, other: Tensor | FactoredMatrix) -> Any:
        """M @ v: a tensor [*leading, ldim]; M @ matrix or M @ factored: factored, its inner size the smaller one."""
        if isinstance(other, FactoredMatrix):
            _require_fit(self, other, self.rdim, other.ldim)
            middle = self.B @ other.A
            if self.mdim <= other.mdim:
                return FactoredMatrix(self.A, middle @ other.B)
            return FactoredMatrix(self.A @ middle, other.B)
        if not isinstance(other, Tensor):
            return NotImplemented
        _require_fit(self, other, self.rdim, other.shape[-2 if other.ndim > 1 else -1])
        if other.ndim == 1:
            return (self.A @ (self.B @ other)[..., None])[..., 0]
        return FactoredMatrix(self.A, self.B @ other)

    def __rmatmul__(self, other: Tensor) -> Any:
        """As v @ M: a tensor [*leading, rdim]; matrix @ M: factored."""
        if not isinstance(other, Tensor):
            return NotImplemented
        _require_fit(other, self, other.shape[-1], self.ldim)
        if other.ndim == 1:
            return ((other @ self.A)[..., None, :] @ self.B)[..., 0, :]
        return FactoredMatrix(other @ self.A, self.B)

    def __mul__(self, scalar: int | float | Tensor) -> FactoredMatrix:
        """Times a number."""
        if isinstance(scalar, Tensor) and scalar.ndim:
            raise InputError(
                f"* multiplies by a number, not by a tensor {list(scalar.shape)}; use @, or scale .A yourself."
            )
        return FactoredMatrix(self.A * scalar, self.B)

    __rmul__ = __mul__

    # --- what is known without the product ----------------------------------------------------------------------------

    def norm(self) -> Float[Tensor, "*leading"]:
        """The Frobenius norm, from ||A B||^2 = tr((A^T A)(B B^T)), summed in fp64."""
        A, B = self.A.double(), self.B.double()
        return ((A.mT @ A) * (B @ B.mT)).sum((-2, -1)).clamp_min(0).sqrt().to(self.dtype)

    @property
    def trace(self) -> Float[Tensor, "*leading"]:
        """The sum of the diagonal."""
        self._require_square("a trace")
        return (self.A * self.B.mT).sum((-2, -1))

    @property
    def diagonal(self) -> Float[Tensor, "*leading ldim"]:
        """The entries [i, i]."""
        self._require_square("a diagonal")
        return (self.A * self.B.mT).sum(-1)

    @property
    def eigenvalues(self) -> Complex[Tensor, "*leading mdim"]:
        """Of the inner product B A: those of A B but for zeros (where mdim <= ldim)."""
        self._require_square("eigenvalues")
        found = torch.linalg.eigvals(self.B.double() @ self.A.double())
        return found.to(self._at_least_fp32.to_complex())

    def svd(self) -> SVD:
        """The thin SVD through QR of both factors, in fp64 and given back in fp32 or better: `U, S, Vh = M.svd()`."""
        QA, RA = torch.linalg.qr(self.A.double())
        QB, RB = torch.linalg.qr(self.B.double().mT)
        U, S, Vh = torch.linalg.svd(RA @ RB.mT, full_matrices=False)
        return SVD(*(each.to(self._at_least_fp32) for each in (QA @ U, S, Vh @ QB.mT)))

    @property
    def U(self) -> Float[Tensor, "*leading ldim rank"]:
        """Left singular vectors, as columns."""
        return self.svd().U

    @property
    def S(self) -> Float[Tensor, "*leading rank"]:
        """Singular values, falling."""
        return self.svd().S

    @property
    def V(self) -> Float[Tensor, "*leading rdim rank"]:
        """Right singular vectors, as columns."""
        return self.svd().Vh.mT

    def collapse_l(self) -> Float[Tensor, "*leading rank rdim"]:
        """diag(S) Vh: what the matrix writes, up to a rotation of what it reads."""
        _, S, Vh = self.svd()
        return S[..., :, None] * Vh

    def collapse_r(self) -> Float[Tensor, "*leading ldim rank"]:
        """U diag(S): what the matrix reads, up to a rotation of what it writes."""
        U, S, _ = self.svd()
        return U * S[..., None, :]

    def make_even(self) -> FactoredMatrix:
        """The same matrix in factors U sqrt(S) and sqrt(S) Vh."""
        U, S, Vh = self.svd()
        root = S.sqrt()
        return FactoredMatrix(U * root[..., None, :], root[..., :, None] * Vh)

    @property
    def _at_least_fp32(self) -> torch.dtype:
        return torch.promote_types(self.dtype, torch.float32)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _require_square(self, what: str) -> None:
        if self.ldim != self.rdim:
            raise InputError(f"{self!r} is not square, so it has no {what.removeprefix('a ')}; norms and svd it has.")


def _require_fit(left: Tensor | FactoredMatrix, right: Tensor | FactoredMatrix, n_columns: int, n_rows: int) -> None:
    if n_columns != n_rows:
        raise InputError(
            f"matrices {list(left.shape)} @ {list(right.shape)} do not multiply: {n_columns} columns, {n_rows} rows. "
            "A vector has one axis; a batch of vectors is a matrix of rows, on the left."
        )


def _n_axes(index: Index) -> int:
    """How many axes of a tensor one entry of an index uses up."""
    if index is None or index is Ellipsis:
        return 0
    return index.ndim if isinstance(index, Tensor) and index.dtype == torch.bool else 1
