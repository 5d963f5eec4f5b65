"""What is sent to the views: exact where that is said, pooled by what is largest elsewhere, and within its bytes."""

from __future__ import annotations

import base64
import html
import json

import numpy as np
import pytest
import torch

from analyses.views import (
    Frames,
    Scale,
    TokenRow,
    View,
    attention_payload,
    head_grid_payload,
    shown,
    sources,
    token_rows_payload,
)
from analyses.views.attention import EXACT_SIDE, WINDOW
from analyses.views.payload import LIVE, apart, live_fields, packed_floats
from analyses.views.pooled import SIDES, cells, pool_max, small, thumb_side
from analyses.views.sources import SCRIPTS, follower
from model.errors import InputError


def causal_pattern(n_layers: int, n_heads: int, size: int, seed: int = 0) -> torch.Tensor:
    scores = torch.randn(n_layers, n_heads, size, size, generator=torch.Generator().manual_seed(seed))
    hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def words(n: int) -> list[str]:
    return [f" word{at}" for at in range(n)]


def sent(payload: dict) -> int:
    return len(json.dumps(payload).encode())


def test_eight_heads_of_512_tokens_are_sent_in_less_than_400_kilobytes_with_the_focused_head_exact() -> None:
    pattern = causal_pattern(1, 8, 512)
    payload = attention_payload(pattern, words(512), head=(0, 3))
    assert sent(payload) <= 400_000
    assert payload["held"] == [3]
    there = unpacked(payload["weights"], "<u2").astype("float64") / 65535
    assert np.abs(there - cells(pattern[0, 3:4], causal=True)[0].double().numpy()).max() <= 0.5 / 65535 + 1e-9
    assert payload["thumb_size"] == 64
    assert "other heads: max-pooled 8x, 8 bits" in payload["sent"]


def test_thirty_two_heads_of_512_tokens_are_sent_in_half_a_megabyte_and_compared_in_one() -> None:
    pattern = causal_pattern(4, 8, 512)
    assert sent(attention_payload(pattern, words(512))) <= 500_000
    both = attention_payload(pattern, words(512), other=pattern.flip(1))
    assert sent(both) <= 1_000_000


def test_all_heads_are_exact_while_they_fit_the_budget() -> None:
    pattern = causal_pattern(2, 4, 24)
    assert attention_payload(pattern, words(24))["held"] == list(range(8))
    assert attention_payload(pattern, words(24), budget=1000, head=(1, 1))["held"] == [5]
    with_other = attention_payload(pattern, words(24), other=pattern, budget=8 * 300 * 2 * 2 - 100)
    assert with_other["held"] == [0]


def test_a_thumbnail_keeps_the_strongest_weight_of_each_square_with_its_sign() -> None:
    values = torch.zeros(1, 200, 200)
    values[0, 150, 20], values[0, 151, 21], values[0, 90, 80] = 0.25, -1.0, 0.49
    assert pool_max(values, 4)[0, 37, 5] == -1.0
    assert float(pool_max(values, 4)[0, 22, 20]) == pytest.approx(0.49)
    levels = unpacked(small(values, Scale(kind="diverging", low=-1.0, high=1.0), 64, causal=True), "u1")
    at = 37 * 38 // 2 + 5
    assert levels[at] == 0
    assert levels[22 * 23 // 2 + 20] == round(255 * (1 + 0.7) / 2)
    assert set(np.delete(levels, [at, 22 * 23 // 2 + 20])) <= {127, 128}


def test_what_is_masked_is_never_pooled_into_what_is_seen() -> None:
    pattern = torch.full((1, 1, 130, 130), 0.9)
    payload = attention_payload(pattern.tril(-1) * 0.1 + pattern.triu(1), words(130), budget=0)
    thumbs = unpacked(payload["thumbs"], "u1")
    assert thumbs.max() == round(255 * (0.9 * 0.1) ** 0.5 + 1e-3)


def test_a_long_text_is_pooled_but_for_a_window_that_holds_what_is_locked() -> None:
    size = 700
    pattern = causal_pattern(1, 2, size)
    for lock in (None, (600, 500), (300, 7), (0, 0), (699, 699)):
        payload = attention_payload(pattern, words(size), lock=lock)
        window = payload["window"]
        query, key = lock or (size - 1, size - 1)
        assert window["query"] <= query < window["query"] + WINDOW
        assert window["key"] <= key < window["key"] + WINDOW
        exact = unpacked(payload["weights"], "<u2").reshape(WINDOW, WINDOW) / 65535
        rows, columns = (slice(window[axis], window[axis] + WINDOW) for axis in ("query", "key"))
        assert np.abs(exact - pattern[0, 0, rows, columns].numpy()).max() <= 1 / 65535
        assert len(payload["tokens"]) == payload["size"] == size
        assert payload["lock"] == (None if lock is None else {"query": query, "key": key})
    far = unpacked(payload["overview"], "u1")
    side = -(-size // 2)
    assert payload["overview_factor"] == 2
    assert len(far) == side * (side + 1) // 2
    assert side <= EXACT_SIDE
    assert "exact at queries 572-699 and keys 572-699; elsewhere max-pooled 2x" in payload["sent"]


def test_neighbouring_locks_of_a_long_text_leave_what_is_sent_as_it_is() -> None:
    pattern = causal_pattern(1, 1, 700)
    first, second = (attention_payload(pattern, words(700), lock=(400 + by, 300 + by)) for by in (0, 9))
    assert apart(first)[0] == apart(second)[0]


def test_a_click_changes_only_what_is_sent_apart() -> None:
    pattern = causal_pattern(2, 4, 24)
    plain, locked = (attention_payload(pattern, words(24), lock=lock) for lock in (None, (7, 3)))
    assert apart(plain)[0] == apart(locked)[0]
    assert apart(locked)[1] == {"lock": {"query": 7, "key": 3}} == live_fields({"lock": (7, 3)})
    values = torch.rand(2, 4)
    grids = [head_grid_payload(values, "score", chosen=name, ablated=[name]) for name in ("L0H0", "L1H2")]
    assert apart(grids[0])[0] == apart(grids[1])[0]
    assert apart(grids[1])[1] == {"chosen": "L1H2", "set": ["L1H2"], "step": None}
    frames = Frames(steps=[0, 8, 64], values=torch.rand(3, 2, 4))
    moved = [head_grid_payload(None, "score", frames=frames, step=step) for step in (0, 8)]
    assert apart(moved[0])[0] == apart(moved[1])[0]
    with pytest.raises(InputError, match=r"no click changes 'scale'; allowed are lock, look, chosen, set, step, token"):
        live_fields({"scale": 1})
    assert set(apart(locked)[1]) <= set(LIVE)


def test_a_second_pattern_is_compared_on_a_scale_symmetric_about_zero() -> None:
    first, second = causal_pattern(1, 2, 40), causal_pattern(1, 2, 40, seed=1)
    payload = attention_payload(first, words(40), other=second, names=("intact", "ablated"))
    reach = float((first - second).abs().max())
    assert payload["difference"]["scale"] == {"kind": "diverging", "low": -reach, "high": reach}
    assert payload["names"] == ["intact", "ablated"]
    thumbs = unpacked(payload["difference"]["thumbs"], "u1").reshape(2, -1)
    assert payload["thumb_factor"] == 1
    at = torch.tril_indices(40, 40)
    apart = (first - second)[0][:, at[0], at[1]] / reach
    rooted = (1 + apart.sign() * apart.abs().sqrt()) / 2
    assert np.abs(thumbs / 255 - rooted.numpy()).max() <= 0.5 / 255 + 1e-6, "the first minus the second, signs kept"
    same = attention_payload(first, words(40), other=first)
    assert set(unpacked(same["difference"]["thumbs"], "u1")) <= {127, 128}
    with pytest.raises(InputError, match="of one shape, heads and text alike; these are 1x2x40x40 and 1x2x39x39"):
        attention_payload(first, words(40), other=second[..., :39, :39])


def test_a_value_beyond_the_given_scale_widens_it_and_is_not_cut() -> None:
    values = torch.tensor([[[[0.5, 0.0], [3.0, 0.1]]]])
    payload = attention_payload(values, ["a", "b"], scale=Scale(high=2.0), label="stream units")
    assert payload["scale"]["high"] == 3.0
    assert attention_payload(values / 3, ["a", "b"])["scale"] == {"kind": "sequential", "low": 0.0, "high": 1.0}
    with pytest.raises(InputError, match="not finite; masked cells must be 0"):
        attention_payload(values.masked_fill(values == 0.5, float("nan")), ["a", "b"])


@pytest.mark.parametrize(("n_heads", "side"), [(8, 64), (32, 64), (72, 64), (73, 32), (270, 32), (960, 16)])
def test_with_more_heads_thumbnails_get_smaller(n_heads: int, side: int) -> None:
    assert thumb_side(n_heads, causal=True) == side
    assert side in SIDES


def test_frames_arrive_to_the_last_bit_and_what_is_no_number_as_nan() -> None:
    values = torch.rand(3, 2, 4)
    values[1, 0, 0] = float("inf")
    payload = head_grid_payload(None, "score", frames=Frames(steps=[0, 8, 64], values=values), step=8)
    there = unpacked(payload["frames"]["values"], "<f4").reshape(3, 2, 4)
    assert np.isnan(there[1, 0, 0])
    assert np.array_equal(there[[0, 2]], values[[0, 2]].numpy())
    assert payload["step"] == 8
    assert payload["frames"]["of"] == 64
    assert payload["values"] == values[2].double().tolist()
    assert np.isnan(unpacked(packed_floats(torch.tensor([float("-inf")])), "<f4")).all()


FAULTS = [
    (Frames(steps=[8, 0], values=torch.rand(2, 2, 4)), None, r"steps that ascend; these are \[8, 0\]"),
    (Frames(steps=[0], values=torch.rand(2, 2, 4)), None, "1 steps need values of shape step x layer x head"),
    (Frames(steps=[0, 8], values=torch.rand(2, 2, 4)), 4, "no frame at step 4; there are 0, 8"),
    (Frames(steps=[0, 8], values=torch.rand(2, 2, 4), low=torch.rand(2, 2, 4)), None, "both ends of their intervals"),
    (Frames(steps=[0, 8], values=torch.rand(2, 3, 4)), None, "values of shape 2x4 do not fit frames of 3x4"),
]


@pytest.mark.parametrize(("frames", "step", "said"), FAULTS)
def test_frames_that_do_not_fit_are_refused(frames: Frames, step: int | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        head_grid_payload(torch.rand(2, 4), "score", frames=frames, step=step)


def test_grids_to_compare_share_one_scale_and_their_difference_is_symmetric() -> None:
    payload = head_grid_payload(torch.tensor([[0.2, 0.4]]), "score", other=torch.tensor([[0.9, 0.1]]))
    assert payload["scale"]["high"] == pytest.approx(0.9)
    assert payload["difference"] == {"kind": "diverging", "low": pytest.approx(-0.7), "high": pytest.approx(0.7)}
    with pytest.raises(InputError, match="of one shape; these are 1x2 and 2x1"):
        head_grid_payload(torch.rand(1, 2), "score", other=torch.rand(2, 1))
    with pytest.raises(InputError, match="needs values, or frames"):
        head_grid_payload(None, "score")


def test_tokens_keep_their_original_beside_what_is_shown() -> None:
    row = TokenRow(tokens=[" a", "\n", "\ud800"], values=[1.0, 2.0, None], second=[0.0, -4.0, None])
    payload = token_rows_payload([row], "harm", second_label="KL", pick="token", token=1)
    assert payload["rows"][0]["tokens"] == ["·a", "⏎", "\\ud800"]
    assert payload["rows"][0]["raw"] == [" a", "\n", "\ud800"]
    assert payload["second_reach"] == 4.0
    assert json.loads(json.dumps(payload))["rows"][0]["raw"] == [" a", "\n", "\ud800"]
    with pytest.raises(InputError, match="row of 3 tokens has 2 second values"):
        token_rows_payload([TokenRow(tokens=["a", "b", "c"], second=[1.0, 2.0])])


def test_a_notebook_gets_one_frame_that_nothing_in_a_token_can_end() -> None:
    hostile = ['"></iframe><script>alert(1)</script>', "\ud800", "'", "&quot;"]
    drawn = shown(View.ATTENTION, attention_payload(causal_pattern(1, 1, 4), hostile), '"><b>')._repr_html_()
    assert drawn.count("<") == 2
    assert drawn.startswith("<iframe ")
    assert drawn.endswith("</iframe>")
    inner = html.unescape(drawn.split('srcdoc="')[1].split('" title=')[0])
    assert "<script>alert" not in inner
    drawn.encode("utf-8")


@pytest.mark.parametrize("view", list(SCRIPTS))
def test_no_name_is_declared_twice_in_the_joined_script_of_a_view(view: View) -> None:
    declared = [
        word
        for line in sources(view).js.splitlines()
        for word in [line.removeprefix("export ").removeprefix("default ").removeprefix("async ")]
        if word.startswith(("const ", "let ", "function "))
    ]
    names = [name for line in declared if (name := line.split("(")[0].split("=")[0].split()[-1]).isidentifier()]
    assert len(names) > 20
    assert sorted(names) == sorted(set(names))
    assert "export default function follow" in follower().js
