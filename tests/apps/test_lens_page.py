"""The lens page: what it says and sends, what each choice changes, and what it says where something cannot be had."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from analyses.views import visible
from apps.dashboard import address
from apps.dashboard.lens import attribution, parts
from apps.dashboard.lens.asked import LAYER
from interp.live_lens import attribution_on, lens_on
from model.checkpoint import checkpoint_path, read_manifest
from model.hooks import scopes_of
from model.lab import open_run
from tests.dashboard_pages import fire, opened, pick, said, views
from tests.dashboard_runs import STEP, own_runs, whole_runs

pytestmark = pytest.mark.whole

__all__ = ["own_runs", "whole_runs"]  # fixtures

PROMPT = "def f(x):\n    return x"
PLACES = ["embed", "L0.mid", "L0", "L1.mid", "L1"]


def lens(root: Path, monkeypatch: pytest.MonkeyPatch, **asked: str) -> AppTest:
    return opened(root, "lens", monkeypatch, **({"run": "whole", "prompt": PROMPT} | asked))


def table(at: AppTest) -> dict[str, Any]:
    sent = views(at)["lens_table"]
    return sent | {"words": sent["words"].split(" ")}


def sums(at: AppTest) -> tuple[int, float, float, float]:
    """How many parts, their sum, the model's own number and the rest, as the page says them."""
    found = re.search(r"(\d+) parts sum to (-?[\d.]+);.* is (-?[\d.]+)\. The rest, ([-+.e\d]+), is rounding", said(at))
    assert found is not None, said(at)
    return int(found[1]), *(float(number) for number in found.groups()[1:])  # type: ignore[return-value]


def test_the_page_says_what_the_library_finds_and_what_it_rests_on(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = lens(whole_runs, monkeypatch, token="9")
    lab = open_run(whole_runs / "whole")
    seen = lens_on(lab, "prompt", PROMPT)
    sent, text = table(at), said(at)
    assert sent["tables"][0]["places"] == PLACES
    assert len(sent["tokens"]) == len(seen.tokens)
    assert (sent["token"], sent["chosen"], sent["cells"]) == (9, "L1", "probability")
    assert "Position 9 ‘:’ → ‘\\n’" in text or "Position 9 ‘:’ → ‘⏎’" in text.replace("\\n", "⏎")
    assert f"rank {int(seen.reading.rank[-1, 0, 9])}" in text or "is first from" in text
    for part in (f"whole@{STEP}", "n = 1", f"weights {lab.weights_sha256[:8]}", "through the final norm", "tied"):
        assert part in text
    assert f"positions 0 to {len(seen.tokens) - 1} of {len(seen.tokens)}: the table scrolls sideways" in text
    taken = attribution_on(lab, "prompt", PROMPT)
    n, total, own, rest = sums(at)
    assert n == len(taken.found.labels)
    assert total == pytest.approx(float(taken.found.total[0, 9]), abs=1e-5)
    assert own == pytest.approx(float(taken.logit[9]), abs=1e-5)
    assert abs(rest) < 1e-5
    assert not any(scopes_of(parts.data.lab(*of(at)).gpt))


def of(at: AppTest) -> tuple[Any, int]:
    run = next(run for run in parts.data.runs() if run.name == at.session_state["run"])
    return run, at.session_state["step"]


def test_what_is_picked_moves_the_page_and_its_address(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lens(whole_runs, monkeypatch)
    last = len(table(at)["tokens"]) - 1
    assert table(at)["token"] is None, "nothing is chosen, so nothing is locked"
    assert table(at)["begin"] == last - 1
    assert f"Position {last - 1} " in said(at), "and the page looks at the last position that a token follows"
    assert f"below: position {last - 1}, the last that a token follows; none is chosen" in said(at)
    at = pick(at, "lens_table", {"token": str(last), "place": "L0"})
    assert "the last: no token follows; the model's choice is" in said(at)
    at.session_state["cell"] = "3.1"
    at = pick(at, "lens_table", {"token": "", "place": ""})
    assert table(at)["token"] == 3, "the query of the locked cell"
    at.session_state["cell"] = ""
    at = pick(at, "lens_table", {"token": "4", "place": "L0.mid"})
    assert at.session_state["token"] == "4"
    assert (table(at)["token"], table(at)["chosen"]) == (4, "L0.mid")
    assert "Position 4" in said(at)
    assert "Likeliest at L0.mid" in said(at)
    at = pick(at, "lens_table", {"cells": "rank"})
    assert table(at)["cells"] == "rank"
    assert at.query_params["place"] == "L0.mid"
    assert at.query_params["mode"] == "rank"
    at = pick(at, "lens_table", {"token": "", "place": ""})
    assert "place" not in at.query_params
    assert table(at)["chosen"] == "L1"
    assert not at.exception


def test_a_quick_second_pick_with_the_old_address_undoes_nothing(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser sends what it knows: an address from before the first pick was answered."""
    at = lens(whole_runs, monkeypatch)
    at = pick(at, "lens_table", {"cells": "rank"})
    del at.query_params["mode"]
    at = pick(at, "lens_table", {"token": "4", "place": "L0"})
    assert (table(at)["cells"], table(at)["chosen"], at.query_params["mode"]) == ("rank", "L0", "rank")
    monkeypatch.setattr(address, "SOON", 0.0)
    del at.query_params["mode"]
    assert table(at.run())["cells"] == "probability", "later it is one that was gone back to"


def test_keys_go_from_token_to_token_and_through_the_colours(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lens(whole_runs, monkeypatch, token="4")

    def press(*keys: str, start: int) -> AppTest:
        return fire(at, "keys", "pressed", [{"id": start + place, "key": key} for place, key in enumerate(keys)])

    at = press("j", "j", "k", "j", start=1)
    assert table(at)["token"] == 6
    at = press("v", start=10)
    assert table(at)["cells"] == "divergence"
    at = press("v", "v", start=20)
    assert table(at)["cells"] == "probability"
    at = press(*"k" * 30, start=40)
    assert table(at)["token"] == 0
    assert not at.exception


def test_the_target_can_be_the_models_choice_or_a_named_token(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = lens(whole_runs, monkeypatch, token="4")
    at.button_group(key="lens_target").set_value("own").run()
    assert table(at)["target"] == "own choice"
    assert at.query_params["target"] == "own"
    own = lens_on(open_run(whole_runs / "whole"), "prompt", PROMPT, target="own")
    assert sent_targets(at) == [visible(own.spelled[int(word)]) for word in own.targets]
    at.button_group(key="lens_target").set_value("token").run()
    assert "no token is named" in said(at)
    at.text_input(key="lens_word").input("·").run()
    assert set(sent_targets(at)) == {"·"}, "a space, typed as the table shows it"
    at.text_input(key="lens_word").input("\\n").run()
    assert set(sent_targets(at)) == {"\\n"}
    at.text_input(key="lens_word").input("two").run()
    assert "'two' is 3 tokens of this model ('t', 'w', 'o'), not one" in said(at)
    assert "Below: the next token." in said(at)
    assert table(at)["target"] == "next token"
    assert not at.exception


def sent_targets(at: AppTest) -> list[str]:
    sent = table(at)
    return [sent["words"][index] for index in sent["tables"][0]["targets"]]


def test_a_logit_is_compared_and_taken_apart_as_asked(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lens(whole_runs, monkeypatch, token="4", by="sublayers")
    lab = open_run(whole_runs / "whole")
    assert sums(at)[0] == 5
    at.button_group(key="lens_against").set_value("nothing").run()
    plain = attribution_on(lab, "prompt", PROMPT, against="nothing")
    assert sums(at)[2] == pytest.approx(float(plain.logit[4]), abs=1e-5)
    at.button_group(key="lens_against").set_value("token").run()
    at.text_input(key="lens_other").input("e").run()
    other = attribution_on(lab, "prompt", PROMPT, against_word="e")
    assert sums(at)[1] == pytest.approx(float(other.found.total[0, 4]), abs=1e-5)
    assert "less that of ‘e’" in said(at)
    at.text_input(key="lens_other").input("ee").run()
    assert "Below: less the mean logit." in said(at)
    at.button_group(key="lens_order").set_value("size").run()
    assert (at.query_params["order"], at.query_params["by"]) == ("size", "sublayers")
    assert not at.exception


@pytest.mark.parametrize(
    ("label", "kept"),
    [("L1H2", {"head": "L1H2"}), ("L1.ffn", {LAYER: "1"}), ("embed", {}), ("all others (27)", {}), ("L0.b_O", {})],
)
def test_a_click_on_a_bar_selects_a_head_or_the_memories_of_a_layer(
    label: str, kept: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state: dict[str, Any] = {attribution.KEY: SimpleNamespace(selection={"part": [{"component": label}]})}
    monkeypatch.setattr(st, "session_state", state)
    attribution._clicked()
    assert {name: value for name, value in state.items() if name != attribution.KEY} == kept


def test_memories_of_a_layer_are_listed_and_one_can_be_selected(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = lens(whole_runs, monkeypatch, token="4", ffn="1", head="L1H2", memory="L1M5")
    assert "Memories of L1 that add most" in said(at)
    rows = next(table.value for table in at.dataframe if "memory" in table.value)
    assert list(rows["adds"].abs()) == sorted(rows["adds"].abs(), reverse=True)
    assert all(name.startswith("L1M") for name in rows["memory"])
    links = [link.proto.label for link in at.get("page_link")]
    assert "L1H2 in Heads" in links
    assert "L1M5 in FFN memories" in links


def test_two_checkpoints_stand_in_one_table(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lens(whole_runs, monkeypatch, token="4", b="whole@0")
    sent = table(at)
    assert sent["names"] == [f"whole@{STEP}", "whole@0"]
    assert [each["places"] for each in sent["tables"]] == [PLACES, PLACES]
    assert sent["difference"]["kind"] == "diverging"
    theirs = read_manifest(checkpoint_path(whole_runs / "whole", 0)).weights_sha256
    assert sent["rests_on"][-2:] == ["compared with whole@0", f"weights {theirs[:8]}"], "a picture of two cites both"
    assert "Likeliest at L1, whole@0" in said(at)
    at.session_state["b"] = f"bare@{STEP}"
    at.run()
    assert table(at)["names"][1] == f"bare@{STEP}"
    assert "bare@24 is not drawn beside it: direct logit attribution needs" in said(at)
    at.session_state["b"] = None
    at.run()
    assert len(table(at)["tables"]) == 1
    assert not any("compared" in part for part in table(at)["rests_on"])
    assert not at.exception


def test_where_the_stream_is_no_sum_the_lens_is_read_and_the_rest_refused(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = lens(whole_runs, monkeypatch, run="bare")
    assert table(at)["tables"][0]["places"] == PLACES
    assert "stands behind its own norm" in said(at)
    assert "with norm=post it is not (docs/vocabulary.md, additivity)" in said(at)
    assert "What a head or an FFN does can be told by ablating it." in said(at)
    assert "parts sum to" not in said(at)
    assert not at.exception


def test_an_address_that_asks_for_what_is_not_there_is_answered_in_words(
    whole_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"token": "30", "place": "<b>", "mode": "x", "target": "y", "against": "z", "order": "q", "ffn": "77"}
    at = lens(whole_runs, monkeypatch, **bad)
    assert not at.exception
    text = said(at)
    for part in (
        *("token: there is no position 30", 'place: the stream is not read at "<b>"; places are embed, L0.mid'),
        *('there is no mode "x"', 'there is no target "y"', 'there is no reference "z"', 'there is no order "q"'),
        "ffn: there is no FFN of layer 77",
    ):
        assert part in text
    assert (table(at)["chosen"], table(at)["cells"], table(at)["target"]) == ("L1", "probability", "next token")


HOSTILE = "<img src=x onerror=alert(1)>\u202e\u2028\0</script>*a* $x$"


def test_hostile_text_is_sent_as_visible_text(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lens(whole_runs, monkeypatch, prompt=HOSTILE)
    assert not at.exception
    sent = table(at)
    for word in (*sent["tokens"], *sent["words"]):
        assert not re.search(r"[\u202e\u2028\0]", word)
    drawn = "\n".join(item.value for kind in (at.header, at.caption, at.subheader) for item in kind)
    assert not re.search(r"(?<!\\)<img", drawn)


def test_an_unreadable_text_costs_a_sentence(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lens(whole_runs, monkeypatch)
    at.text_area(key="prompt").input("").run()
    assert "the prompt is empty" in said(at)
    assert "lens_table" not in views(at)
    at.text_area(key="prompt").input("ab").run()
    assert len(table(at)["tokens"]) == 3
    assert not at.exception


def test_damaged_and_missing_checkpoints_are_told(own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in own_runs.glob("whole/checkpoints/*/model.safetensors"):
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)
    at = lens(own_runs, monkeypatch)
    assert not at.exception
    assert "model.safetensors was altered or cut short" in said(at)
    for file in own_runs.glob("bare/checkpoints/*/manifest.json"):
        file.unlink()
    at = lens(own_runs, monkeypatch, run="bare")
    assert not at.exception
    assert "bare cannot be opened" in said(at)
