"""The payloads of the views: nothing lost, nothing hostile, nothing a browser cannot read."""

from __future__ import annotations

import base64
import json
import re
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analyses.views import (
    Scale,
    TokenRow,
    View,
    attention_payload,
    embed,
    head_grid_payload,
    page,
    sources,
    token_rows_payload,
    visible,
)
from analyses.views.attention import BUDGET
from analyses.views.behaviour import SERIES, distance_figure, distance_rows
from analyses.views.payload import checked, fitted, packed
from analyses.views.pooled import pool_max
from interp.head_behaviour import behaviour_of
from interp.prefixes import cut_windows
from model.errors import InputError
from tests.conftest import make_gpt_with

HOSTILE = ["<img src=x onerror=alert(1)>", "</script>", "\u202e", "\x00", "\ud800", "\n", "", "👩\u200d💻", "\u2028"]


def causal_pattern(n_layers: int = 2, n_heads: int = 4, size: int = 9, seed: int = 0) -> torch.Tensor:
    scores = torch.randn(n_layers, n_heads, size, size, generator=torch.Generator().manual_seed(seed))
    hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)


def decoded(payload: dict, head: int) -> torch.Tensor:
    levels = np.frombuffer(base64.b64decode(payload["weights"]), dtype="<u2")
    rows = torch.from_numpy(levels.astype("float64") / 65535).reshape(len(payload["held"]), -1)
    full = torch.zeros(payload["size"], payload["size"], dtype=torch.float64)
    at = torch.tril_indices(payload["size"], payload["size"])
    full[at[0], at[1]] = rows[payload["held"].index(head)]
    return full


def test_the_browser_gets_every_weight_to_a_131000th() -> None:
    pattern = causal_pattern()
    payload = attention_payload(pattern, ["x"] * 9, head=(1, 2))
    assert payload["focus"] == 6
    assert payload["held"] == list(range(8))
    for head in range(8):
        error = (decoded(payload, head) - pattern.flatten(0, 1)[head].double()).abs().max()
        assert error <= 0.5 / 65535 + 1e-9


def test_signed_values_reach_the_browser_with_their_sign_and_zero_is_exactly_the_middle_colour() -> None:
    values = torch.randn(1, 2, 9, 9, generator=torch.Generator().manual_seed(0)).tril()
    values[0, 1] = 0
    reach = float(values.abs().max())
    payload = attention_payload(
        values, ["x"] * 9, scale=Scale(kind="diverging", low=-reach, high=reach), label="logits"
    )
    there = payload["scale"]["low"] + decoded(payload, 0) * (payload["scale"]["high"] - payload["scale"]["low"])
    assert (there - values[0, 0].double()).tril().abs().max() <= reach / 65535 + 1e-6
    thumbs = np.frombuffer(base64.b64decode(payload["thumbs"]), dtype="u1").reshape(2, 45)
    assert set(np.unique(thumbs[1])) <= {127, 128}
    assert np.array_equal(thumbs[0][15:21] > 127, (values[0, 0, 5, :6] > 0).numpy())
    assert payload["fit"]
    assert not attention_payload(causal_pattern(), ["x"] * 9)["fit"]


def test_pooling_keeps_what_is_largest_by_size() -> None:
    values = torch.tensor([[[1.0, -3.0], [2.0, 0.0]]])
    assert pool_max(values, 2).tolist() == [[[-3.0]]]
    assert pool_max(-values, 2).tolist() == [[[3.0]]]


def test_only_the_head_in_focus_is_sent_when_all_would_be_too_many() -> None:
    size = int((2 * BUDGET / 16) ** 0.5) + 2
    payload = attention_payload(torch.rand(2, 8, size, size), ["x"] * size, head=(1, 1))
    assert payload["held"] == [9]
    assert len(payload["heads"]) == 16


def test_hostile_tokens_are_text_everywhere() -> None:
    payload = attention_payload(causal_pattern(size=len(HOSTILE)), HOSTILE)
    html = page("attention", payload, "</title><script>alert(1)</script>")
    assert html.count("<script") == 2
    assert "<img" not in html
    assert "<script>alert" not in html
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["tokens"] == payload["tokens"]
    html.encode("utf-8")


ATTRIBUTES = ['"', "'", '" onmouseover="alert(1)', "' autofocus onfocus='alert(1)", "`", "&quot;", "\t", "<b>"]


def test_quotes_in_a_token_or_title_end_no_attribute_or_script() -> None:
    html = page("attention", attention_payload(causal_pattern(size=len(ATTRIBUTES)), ATTRIBUTES), ATTRIBUTES[2])
    handlers = [
        name
        for tag in re.findall(r"<[a-z][^>]*>", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL))
        for name in re.findall(r"\son[a-z]+", tag)
    ]
    assert handlers == []
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert "<" not in data[1]
    assert json.loads(data[1])["tokens"] == [visible(token) for token in ATTRIBUTES]


def test_equal_tokens_stay_apart() -> None:
    """Rows, columns and cells go by position: a text of one repeated token has as many of each as it has tokens."""
    payload = attention_payload(causal_pattern(size=9), ["the"] * 9)
    assert payload["tokens"] == ["the"] * 9
    assert decoded(payload, 0).shape == (9, 9)
    row = token_rows_payload([TokenRow(tokens=["a", "a", "b", "a"], values=[0.1, 0.2, 0.3, 0.4])])["rows"][0]
    assert row["tokens"] == ["a", "a", "b", "a"]
    assert row["values"] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_eight_heads_over_512_tokens_are_under_three_megabytes_and_a_second() -> None:
    pattern = causal_pattern(1, 8, 512)
    start = time.process_time()
    html = page("attention", attention_payload(pattern, ["token"] * 512), "Attention")
    assert len(html.encode()) <= 3_000_000
    assert time.process_time() - start <= 1


@given(st.text(st.characters(), max_size=12))
def test_visible_text_has_no_character_that_hides_or_acts(token: str) -> None:
    shown = visible(token)
    assert shown
    assert not re.search("[\\s\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]", shown)
    shown.encode("utf-8")


@pytest.mark.parametrize("value", [np.float32(1), float("nan"), b"x", {"a": np.int64(1)}, [float("inf")]])
def test_a_value_that_would_break_silently_is_refused_by_name(value: object) -> None:
    with pytest.raises(InputError, match="'bad' holds something that JSON cannot carry"):
        checked({"good": 1, "bad": value})


def test_shapes_that_disagree_are_refused() -> None:
    with pytest.raises(InputError, match="9 queries by 9 keys does not fit 8 tokens"):
        attention_payload(causal_pattern(), ["x"] * 8)
    with pytest.raises(InputError, match=r"no head L2H0; layers run 0\.\.1"):
        attention_payload(causal_pattern(), ["x"] * 9, head=(2, 0))
    with pytest.raises(InputError, match=r"cell 9\.0 lies outside"):
        attention_payload(causal_pattern(), ["x"] * 9, lock=(9, 0))
    with pytest.raises(InputError, match="row of 2 tokens has 1 values"):
        token_rows_payload([TokenRow(tokens=["a", "b"], values=[1.0])])


def test_signed_values_get_a_scale_symmetric_about_zero() -> None:
    payload = head_grid_payload(torch.tensor([[-0.1, 0.4]]), "harm, nats")
    assert payload["scale"] == {"kind": "diverging", "low": pytest.approx(-0.4), "high": pytest.approx(0.4)}
    assert head_grid_payload(torch.tensor([[0.1, 0.4]]), "score")["scale"]["low"] == 0.0
    assert fitted([], "sequential") == Scale(low=0.0, high=1.0)


def test_what_is_not_a_number_is_sent_as_none() -> None:
    payload = head_grid_payload(torch.tensor([[float("nan"), 0.5]]), "score")
    assert payload["values"] == [[None, 0.5]]


def test_a_word_in_a_head_s_cell_arrives() -> None:
    assert head_grid_payload(torch.tensor([[0.1, 0.4]]), "score", marks=[["1 back", "2 back"]])["marks"] == [
        ["1 back", "2 back"]
    ]
    assert head_grid_payload(torch.tensor([[0.1, 0.4]]), "score")["marks"] is None


def test_distances_are_told_in_stretches_that_lose_no_attention() -> None:
    gpt = make_gpt_with()
    corpus = np.arange(40) % 50
    seen = behaviour_of(gpt, corpus, cut_windows([(0, 40)], gpt.config.n_ctx), bos=None)
    rows = distance_rows(seen, (1, 2))
    for name in SERIES:
        assert rows[name].sum() == pytest.approx(1, abs=1e-5)
    assert rows["band"].tolist()[:4] == ["first", "0", "1", "2"]
    assert rows["raw"].tolist()[2] == pytest.approx(float(seen.distance[1, 2, 1]))
    spec = distance_figure(seen, (1, 2)).to_dict()
    assert {each["mark"]["type"] for each in spec["layer"]} == {"bar", "tick", "point"}


def test_packing_clamps_and_never_wraps_around() -> None:
    levels = np.frombuffer(base64.b64decode(packed(torch.tensor([-1.0, 0.0, 1.0, 2.0]), 8)), dtype="u1")
    assert levels.tolist() == [0, 0, 255, 255]


@pytest.mark.parametrize("view", list(View))
def test_every_view_is_one_module_that_needs_nothing_else(view: View) -> None:
    parts = sources(view)
    assert parts.js.count("export default function") == 1
    assert f"export default function {parts.entry}" in parts.js
    assert not re.search(
        r"^\s*import\b|innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?://(?!www\.w3\.org/)",
        parts.js,
        re.M,
    )
    assert "http" not in parts.css


def test_two_views_in_one_page_have_names_of_their_own() -> None:
    rows = token_rows_payload([TokenRow(tokens=["a"], values=[0.5])])
    other = token_rows_payload([TokenRow(tokens=["b"], values=[0.5])])
    names = [re.search(r'id="([^"]+)"', embed(View.TOKEN_ROWS, each)) for each in (rows, other)]
    assert len({name[1] for name in names if name}) == 2
