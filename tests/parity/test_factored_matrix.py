"""Our FactoredMatrix against TransformerLens's: the same numbers under the same names, and where the two differ.

TransformerLens is imported where it is used: `make test-slow` installs it.
"""

from __future__ import annotations

import pytest
import torch

from model.factored import FactoredMatrix
from tests.conftest import make_gpt_with

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the library's own deprecations are not ours to answer for
]


def both() -> tuple[FactoredMatrix, FactoredMatrix]:
    from transformer_lens import FactoredMatrix as Theirs

    gpt = make_gpt_with().double()
    return gpt.OV, Theirs(gpt.W_V, gpt.W_O)


@pytest.mark.parametrize(
    "read",
    [
        *(
            lambda m: m.norm(),
            lambda m: m.S,
            lambda m: m.AB,
            lambda m: m.T.AB,
            lambda m: m[1, 2].AB,
            lambda m: m[:, 1].AB,
        ),
        *(lambda m: m.eigenvalues.abs().sort().values, lambda m: m.collapse_l().mT @ m.collapse_l()),
        *(lambda m: m.collapse_r() @ m.collapse_r().mT, lambda m: m.make_even().AB, lambda m: (m * 3).AB),
        *(lambda m: m @ torch.arange(32.0).double(), lambda m: torch.arange(32.0).double() @ m, lambda m: (m @ m).AB),
        *(lambda m: (m @ torch.eye(32).double()[:, :3]).AB, lambda m: (torch.eye(32).double()[:3] @ m).AB),
        *(lambda m: (m.U * m.S[..., None, :]) @ m.V.mT, lambda m: (m.U * m.V).abs().sum(-2)),
        *(lambda m: torch.tensor([m.ldim, m.mdim, m.rdim, m.ndim, *m.shape]), lambda m: m[..., :3, 2:5].AB),
    ],
    ids=[
        *("norm", "S", "AB", "T", "one head", "a head of each layer", "eigenvalues", "collapse_l", "collapse_r"),
        *(
            "make_even",
            "times 3",
            "on a vector",
            "vector on it",
            "itself twice",
            "on a matrix",
            "matrix on it",
            "USV",
            "UV",
        ),
        *("sizes", "a corner"),
    ],
)
def test_the_same_numbers_under_the_same_names(read) -> None:
    ours, theirs = (read(each) for each in both())
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_where_the_two_differ() -> None:
    """Theirs forms the product where the inner size is the larger, gives V as Vh, and keeps a cut row as a matrix."""
    ours, theirs = both()
    assert torch.allclose(ours.svd().Vh, theirs.svd()[2].mT * (ours.svd().Vh * theirs.svd()[2].mT).sum(-1, True).sign())
    assert theirs[0, 0, 3].shape == (1, 32)
    narrow = type(theirs)(theirs.B, theirs.A)  # [8, 32] @ [32, 8]
    ours_narrow = FactoredMatrix(ours.B, ours.A)
    matrix = torch.ones(8, 5).double()
    assert (narrow @ matrix).A.shape[-2:] == (8, 8)
    assert (ours_narrow @ matrix).A.shape[-2:] == (8, 32)
    torch.testing.assert_close((narrow @ matrix).AB, (ours_narrow @ matrix).AB)
