"""What a model's settings forbid is named by those settings, and nothing else is put down to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyses.attention.weights import read_weights
from tests.conftest import make_gpt_with
from tests.planted import D_VOCAB, N_CTX
from tests.planted_run import planted_lab


@pytest.mark.parametrize(
    ("variant", "names", "setting", "reason"),
    [
        ({"n_layers": 1}, {"q", "k", "v"}, "n_layers=1", "a model of one layer has no later head"),
        ({"qk_norm": True}, {"q", "k"}, "qk_norm=true", "divided by their own sizes"),
        ({"smeared_keys": True}, {"q", "k"}, "smeared_keys=true", "a key reads two tokens"),
        ({"norm": "post"}, {"copying", "q", "k", "v"}, "norm=post", "a residual stream that is a sum"),
        ({}, set(), "", ""),
    ],
    ids=lambda each: each if isinstance(each, str) and "=" in each else "",
)
def test_what_is_missing_has_its_setting_and_reason(
    variant: dict[str, Any], names: set[str], setting: str, reason: str, tmp_path: Path
) -> None:
    lab = planted_lab(tmp_path / "run", make_gpt_with(n_ctx=N_CTX, d_vocab=D_VOCAB, **variant))
    found = read_weights(lab, seed=0)
    assert set(found.missing) == names
    assert {each.setting for each in found.missing.values()} <= {setting}
    assert all(reason in each.reason for each in found.missing.values())
    assert set(found.composition) == {"q", "k", "v"} - names
    assert (found.copying is None) is ("copying" in names)
