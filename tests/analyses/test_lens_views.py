"""The lens as a table and as rows: nothing lost on the way to the browser, nothing hostile, at most a megabyte."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd
import pytest
import torch

from analyses.lens.figures import attribution_figure, top_figure, trajectory_figure
from analyses.lens.rows import OTHERS, attribution_rows, largest_first, lens_rows, memory_rows, target_rows, top_rows
from analyses.views import lens_table_payload, page, visible
from analyses.views.payload import packed_floats
from interp.attribution import Attribution
from interp.lens import LensReading, logit_lens
from interp.live_lens import LiveAttribution, LiveLens
from interp.live_targets import Target
from interp.memory_attribution import MemoryAttribution
from model.errors import InputError
from tests.conftest import make_gpt_with
from tests.unchecked import unchecked

HOSTILE = ["<img src=x onerror=alert(1)>", "</script>", "\u202e", "\x00", "\ud800", "\n", "", "\u2028"]


def seen(seed: int = 0, n_top: int = 6, start: int = 0, n_text: int = 12) -> LiveLens:
    gpt = make_gpt_with(seed=seed)
    tokens = torch.randint(50, (1, 12), generator=torch.Generator().manual_seed(7))
    reading = logit_lens(gpt, tokens, tokens.roll(-1, 1), detail="sublayers", n_top=n_top)
    spelled = {token: (HOSTILE[token] if token < len(HOSTILE) else f"t{token}") for token in range(50)}
    return LiveLens(
        tokens=tuple(spelled[int(each)] for each in tokens[0]), ids=tokens[0], start=start, n_text=n_text,
        targets=tokens[0].roll(-1), reading=reading, spelled=spelled, source="n = 1: a text",
    )  # fmt: skip


def test_the_browser_gets_every_number_and_each_word_once() -> None:
    text = seen()
    sent = lens_table_payload(text, token=3, place="L0.mid", n_top=4)
    sent["words"] = sent["words"].split(" ")
    table, reading = sent["tables"][0], text.reading
    numbers = np.frombuffer(base64.b64decode(table["numbers"]), "<f4").reshape(4, 5, 12)
    expected = [reading.log_probability, reading.divergence, reading.entropy, reading.rank.float()]
    for found, wanted in zip(numbers, expected, strict=True):
        assert np.array_equal(found, wanted[:, 0].numpy())
    top = np.frombuffer(base64.b64decode(table["top"]), "<u2").reshape(5, 12, 4)
    assert [sent["words"][index] for index in top[1, 3]] == [shown(text, word) for word in reading.top[1, 0, 3, :4]]
    level = np.frombuffer(base64.b64decode(table["probability"]), "<u2").reshape(5, 12, 4) / 65535
    assert np.abs(level - reading.top_probability[:, 0, :, :4].numpy()).max() <= 0.5 / 65535 + 1e-7
    assert [sent["words"][index] for index in table["targets"]] == [shown(text, word) for word in text.targets]
    assert len(set(sent["words"])) == len(sent["words"])


def shown(text: LiveLens, word: torch.Tensor) -> str:
    return visible(text.spelled[int(word)])


def test_hostile_tokens_are_inert_in_a_file() -> None:
    text = seen()
    html = page("lens_table", lens_table_payload(text), "A lens")
    assert html.count("<script") == 2
    assert "<img" not in html
    html.encode("utf-8")
    rows = lens_rows(text)
    assert len(rows) == 12 * 5
    json.dumps(lens_table_payload(text), allow_nan=False)


def test_what_is_locked_must_be_in_the_table() -> None:
    text = replace(seen(), start=128, n_text=200)
    assert lens_table_payload(text, token=130)["last"] == 199
    with pytest.raises(InputError, match=r"position 3 is not in this table; it holds 128\.\.139"):
        lens_table_payload(text, token=3)
    with pytest.raises(InputError, match='not read at "L7"; places are embed, L0.mid, L0'):
        lens_table_payload(text, place="L7")


def test_two_models_share_words_and_scale_and_must_read_the_same_tokens() -> None:
    one, two = seen(), seen(seed=3)
    sent = lens_table_payload(one, other=two, names=("here", "there"))
    reach = (one.reading.log_probability - two.reading.log_probability).abs().max()
    assert sent["difference"]["high"] == pytest.approx(float(reach))
    far = two.reading.log_probability.clone()
    far[:, :, 5] -= 100.0
    elsewhere = replace(two, reading=replace(two.reading, log_probability=far), targets=two.targets.index_fill(
        0, torch.tensor([5]), 1 + int(one.targets[5])))  # fmt: skip
    apart = (one.reading.log_probability - two.reading.log_probability).abs()
    apart[:, :, 5] = 0
    sent = lens_table_payload(one, other=elsewhere)
    assert sent["difference"]["high"] == pytest.approx(float(apart.max())), "of positions with one target for both"
    assert len(sent["tables"]) == 2
    other = replace(two, ids=two.ids + 1)
    with pytest.raises(InputError, match="the two models read other tokens here"):
        lens_table_payload(one, other=other)


def test_128_positions_at_61_places_with_five_different_tokens_each_stay_under_a_megabyte() -> None:
    n_places, n_pos, d_vocab = 61, 128, 49152
    generator = torch.Generator().manual_seed(0)
    top = torch.randperm(d_vocab, generator=generator)[: n_places * n_pos * 5].view(n_places, 1, n_pos, 5)
    flat = torch.rand(n_places, 1, n_pos, generator=generator)
    reading = LensReading(
        labels=tuple(map(str, range(n_places))), log_probability=-flat, rank=(flat * d_vocab).long() + 1,
        divergence=flat, entropy=flat, top=top, top_probability=torch.rand(top.shape, generator=generator),
        agrees=flat > 2, note="",
    )  # fmt: skip
    spelled = {token: f" token{token % 1000}" for token in range(d_vocab)}
    text = LiveLens(
        tokens=(" token",) * n_pos, ids=torch.zeros(n_pos, dtype=torch.int64), start=0, n_text=n_pos,
        targets=torch.arange(n_pos), reading=reading, spelled=spelled, source="",
    )  # fmt: skip
    with unchecked():
        sent = json.dumps(lens_table_payload(text))
    assert 500_000 < len(sent) <= 1_000_000, "every word another one: the most there can be"


def test_rows_say_what_the_reading_holds() -> None:
    text = seen()
    reading = text.reading
    rows = lens_rows(text, n_top=3)
    row = rows[(rows["position"] == 4) & (rows["place"] == "L1.mid")].iloc[0]
    assert row["target is"] == "next token"
    assert row["target rank"] == int(reading.rank[3, 0, 4])
    assert row["likeliest"] == text.spelled[int(reading.likeliest[3, 0, 4])]
    assert len(row["top"]) == 3
    later = replace(text, start=128, n_text=200)
    assert list(lens_rows(later)["position"].unique()) == list(range(128, 140)), "positions are those of the text"
    assert set(lens_rows(later)["target is"]) == {"next token"}, "the text goes on behind the stretch"
    assert set(rows[rows["position"] == 11]["target is"]) == {"model's own choice"}, "nothing follows the last token"
    assert set(lens_rows(replace(text, target=Target.TOKEN))["target is"]) == {"named token"}, "at the last one too"
    way = target_rows(text, 4)
    assert list(way["place"]) == list(reading.labels)
    assert list(way["KL to final"]) == reading.divergence[:, 0, 4].tolist()
    top = top_rows(text, 4, "L0")
    assert sum(top["target"]) == 1, "the target stands in the list, or behind it"
    assert list(top["rank"][:6]) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(InputError, match=r"position 12 was not read; 0\.\.11 were"):
        target_rows(text, 12)
    with pytest.raises(InputError, match='not read at "x"'):
        top_rows(text, 4, "x")


def taken(n: int = 40) -> LiveAttribution:
    values = torch.randn(n, 1, 3, generator=torch.Generator().manual_seed(0))
    labels = ("embed", *(f"L{place // 8}H{place % 8}" for place in range(n - 3)), "L4.ffn", "final norm bias")
    found = Attribution(labels=labels, values=values, frozen=("ln_final",))
    ids = torch.zeros(3, dtype=torch.int64)
    return LiveAttribution(
        tokens=("a", "b", "c"), targets=ids, target_names=("a",) * 3, found=found, logit=found.total[0], source=""
    )


def test_components_by_size_keep_their_sum() -> None:
    rows = attribution_rows(taken(), 1)
    assert list(rows["kind"].unique()) == ["embedding", "head", "FFN", "bias"]
    assert sum(rows["adds"]) == pytest.approx(float(taken().logit[1]), abs=1e-5)
    few = largest_first(rows, 10)
    assert len(few) == 11
    assert few["component"].iloc[-1] == f"{OTHERS} (30)"
    assert sum(few["adds"]) == pytest.approx(sum(rows["adds"]), abs=1e-9)
    assert list(few["adds"].abs()[:10]) == sorted(rows["adds"].abs(), reverse=True)[:10]
    assert len(largest_first(rows, 39)) == 40, "one alone needs no sum"
    with pytest.raises(InputError, match="no position 3"):
        attribution_rows(taken(), 3)


def test_memories_come_by_the_size_of_what_they_add() -> None:
    found = MemoryAttribution(
        layer=1, coefficient=torch.tensor([1.0, 2.0, 0.5]), added=torch.tensor([0.1, -0.4, 0.2]), biases=0.5
    )
    assert list(memory_rows(found, 2)["memory"]) == ["L1M1", "L1M2"]
    assert found.total == pytest.approx(0.4)


@pytest.mark.parametrize("upright", [True, False])
def test_figures_are_what_vega_lite_allows(upright: bool) -> None:
    text, rows = seen(), attribution_rows(taken(), 0)
    ways = {"here": target_rows(text, 2), "there": target_rows(seen(seed=2), 2)}
    figures = [
        top_figure(top_rows(text, 2, "L0")),
        trajectory_figure(ways, "target rank", "rank", "L0"),
        trajectory_figure(dict(list(ways.items())[:1]), "target log-probability", "nats"),
        attribution_figure(rows, "logits", upright=upright, other=rows, names=("a", "b")),
        attribution_figure(largest_first(rows), "logits", upright=upright),
    ]
    for figure in figures:
        json.dumps(figure, allow_nan=False)
        (alt.LayerChart if "layer" in figure else alt.Chart).from_dict(figure)


def test_the_axis_of_ranks_holds_every_rank_and_has_1_on_top() -> None:
    for worst, bottom in ((1, 10), (10, 10), (11, 100), (49152, 100_000)):
        rows = pd.DataFrame({"place": ["a", "b"], "likeliest": ["x", "y"], "target rank": [worst, 1]})
        figure = trajectory_figure({"m": rows}, "target rank", "rank")
        assert figure["layer"][0]["encoding"]["y"]["scale"]["domain"] == [bottom, 1]


def test_floats_arrive_as_they_are() -> None:
    values = torch.tensor([1.5, -2.25])
    assert np.frombuffer(base64.b64decode(packed_floats(values)), "<f4").tolist() == values.tolist()
