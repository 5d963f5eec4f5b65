"""What all pages of the dashboard share in words: leads of findings, the chosen position, a prompt that is too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.dashboard.findings.studies import newest_in
from apps.dashboard.frame.inputs import MOST_TYPED
from apps.dashboard.state import Selection
from apps.dashboard.telling import lead
from tests.dashboard_pages import opened, said
from tests.dashboard_runs import whole_runs

__all__ = ["whole_runs"]


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Where it is re-ordered, L1H4 puts 0.41 [0.40, 0.43] of its attention there, against 0.02 by chance.",
         "Where it is re-ordered, L1H4 puts 0.41 [0.40, 0.43] of its attention there"),
        ("The price: the text costs 2.07 [1.90, 2.25] nats per token more than what it writes (1.35), 2.03 (median).",
         "The price: the text costs 2.07 [1.90, 2.25] nats per token more than what it writes"),
        ("The best probe tells the depth (levels of 4) worse than at step 0 by 5 points: accuracy 0.53 [0.48, 0.62].",
         "The best probe tells the depth worse than at step 0 by 5 points"),
        ("L1H4: attends like an induction head, and copying is worse without it. 0.71 [0.70, 0.73] of it.",
         "L1H4 attends like an induction head, and copying is worse without it"),
        ("L0H5: previous-token head. 0.98 [0.98, 0.98] of its attention on the token before.",
         "L0H5 is a previous-token head"),
    ],
)  # fmt: skip
def test_a_lead_is_a_clause_and_a_number_in_it_has_interval_and_unit(sentence: str, told: str) -> None:
    assert lead(sentence) == told


def test_the_chosen_position_is_the_token_else_the_query_of_the_locked_cell() -> None:
    assert Selection().position is None, "a default is a page's own, and is not chosen"
    assert Selection(cell=(51, 3)).position == 51
    assert Selection(cell=(51, 3), token=7).position == 7
    assert Selection(token=0).position_in(1) == 0
    assert Selection(token=7).position_in(7) is None


def test_a_report_is_as_new_as_its_newest_result_whatever_its_files_times_are() -> None:
    rows = ["0.1 s on cpu, 2026-11-30T16:14:49+00:00", "0.2 s on cuda, 2026-11-30T16:15:00+00:00"]
    assert newest_in("; ".join(rows)) == "2026-11-30T16:15:00+00:00"
    assert newest_in("<p>no result</p>") == ""


@pytest.mark.whole
def test_a_prompt_that_is_too_long_is_cut_and_that_is_told(whole_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened(whole_runs, "findings", monkeypatch, prompt="x" * 22_000)
    assert at.session_state["prompt"] == "x" * MOST_TYPED
    assert [f"The first {MOST_TYPED:,} of 22,000 characters are kept" in each.value for each in at.warning] == [True]
    at.text_area(key="prompt").set_value("y" * 5000).run()
    assert at.session_state["prompt"] == "y" * MOST_TYPED
    assert "of 5,000 characters" in said(at)
    at.text_area(key="prompt").set_value("short").run()
    assert not at.warning
    assert not at.exception
