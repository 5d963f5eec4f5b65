"""Payloads out of a file: what a builder made is drawn, and what only looks like it is refused in a sentence."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from analyses.claims.wording import share
from analyses.notebook.pins import Pin, as_json, from_json
from analyses.views import Scale, TokenRow, View, attention_payload, head_grid_payload, token_rows_payload
from analyses.views.payload_shapes import payload_fault
from analyses.wording import share_of
from interp.stats import Interval
from interp.wording import amount, share_phrase, with_interval
from model.errors import CheckpointError
from tests.analyses.test_notebook import Notebook, pinned

PAYLOADS: dict[View, dict[str, Any]] = {
    View.ATTENTION: attention_payload(torch.full((2, 2, 3, 3), 1 / 3).tril(), list("abc"), head=(1, 0)),
    View.HEAD_GRID: head_grid_payload(torch.rand(2, 2), "share"),
    View.TOKEN_ROWS: token_rows_payload([TokenRow(tokens=["a", "b"], values=[0.5, None])], scale=Scale()),
}
JUNK = [
    (View.ATTENTION, {"tokens": 3}, '"tokens" has to be a list of texts'),
    (View.ATTENTION, {"tokens": ["a"]}, "its size is 3 for 1 tokens"),
    (View.ATTENTION, {"focus": 4}, "beyond its 4"),
    (View.ATTENTION, {"look": 4}, "beyond its 4"),
    (View.ATTENTION, {"look": "L0H1"}, "its look is no whole number"),
    (View.ATTENTION, {"scale": {"kind": "sequential"}}, '"scale" has to be a scale'),
    (View.ATTENTION, {"window": None}, '"window" has to be'),
    (View.HEAD_GRID, {"values": [["x"]]}, '"values" has to be rows of numbers'),
    (View.HEAD_GRID, {"values": [[1.0], [1.0, 2.0]]}, "of different lengths"),
    (View.TOKEN_ROWS, {"rows": [{"tokens": ["a"]}]}, "rows of tokens and values"),
    (View.TOKEN_ROWS, {"rows": [{"tokens": ["a"], "values": [1.0, 2.0]}]}, "a value for each of its tokens"),
    (View.LENS_TABLE, {"tokens": ["a"], "tables": []}, 'it has no "hint"'),
]  # fmt: skip


@pytest.mark.parametrize(("view", "change", "said"), JUNK, ids=lambda value: str(value)[:40])
def test_a_payload_that_no_view_can_draw_is_refused_at_import(view: View, change: dict[str, Any], said: str) -> None:
    whole = PAYLOADS.get(view, {})
    if whole:
        pin: Pin = pinned(figure=None, view=view.value, payload=whole)
        assert payload_fault(view, json.loads(json.dumps(whole))) == ""
        assert from_json(as_json(Notebook(pins=(pin,))), "mine").pins == (pin,)
    tree = json.loads(as_json(Notebook(pins=(pinned(figure=None),))))
    tree["pins"][0] |= {"view": view.value, "payload": whole | change}
    with pytest.raises(CheckpointError, match=f'pin 1: "payload" is nothing that the view {view} can draw: .*') as told:
        from_json(json.dumps(tree), "findings.json")
    assert said in str(told.value)


def test_an_interval_without_ends_is_told_in_words() -> None:
    vague = Interval(mean=0.14, low=-math.inf, high=math.inf, n=8, level=0.95, method="")
    told = [share(vague), share_phrase(vague), share_of(vague)]
    assert all("no interval: what it is a share of may be nothing" in each for each in told)
    told += [with_interval(vague), amount(vague, "nats")]
    assert all("14" in each and "(no interval" in each and "inf" not in each for each in told)
