"""The bench in Chromium: a spec is typed, a hypothesis stated, run, read, saved, tested again; a long run is ended."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.browsing import IDLE, PATIENCE, SCREENSHOTS, Server, address, edit, go, unexpected

pytestmark = pytest.mark.browser

INTERVAL = re.compile(r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\] nats")


def type_into(made, key: str, text: str) -> None:
    field = made.locator(f".st-key-{key} input")
    field.fill(text)
    field.press("Tab")


def run_it(made) -> None:
    made.locator(".st-key-run_hypothesis button").click()


def test_a_hypothesis_is_stated_run_read_saved_and_tested_again(tab, server: Server, whole_runs: Path) -> None:
    made, watch = tab()
    go(made, server, "ablate?run=whole")
    made.locator(".st-key-harm_copy_loss .cell").nth(1).click(modifiers=["Shift"])
    expect(made.locator(".st-key-chosen_places")).to_contain_text("L0H1", timeout=PATIENCE)
    edit(made)
    made.locator(".st-key-ablate input").fill("L0H1,L1H3:zero")
    made.locator(".st-key-ablate input").press("Enter")
    expect(made.locator(".st-key-chosen_places")).to_contain_text("L1H3:zero", timeout=PATIENCE)
    type_into(made, "says", "without these <heads> copying *fails*")
    type_into(made, "bound", "harm >= 50")
    expect(made.get_by_text("Nothing is measured yet")).to_be_visible()
    assert "bound" not in address(made)
    run_it(made)
    expect(made.locator(".st-key-headline-effect")).to_contain_text(INTERVAL, timeout=PATIENCE)
    expect(made.locator(".st-key-headline-effect")).to_contain_text("n = 64")
    expect(made.locator(".st-key-headline-control")).to_contain_text(re.compile(r"p (=|≤|<=) [\d.]+ of \d+ sets"))
    expect(made.locator(".st-key-verdict")).to_contain_text("refuted")
    expect(made.locator(".st-key-verdict")).to_contain_text("without these <heads> copying *fails*")
    assert address(made)["bound"] == "harm >= 50"
    sentence = made.locator(".st-key-verdict").get_by_text(re.compile("is refuted at whole@24")).inner_text()

    claims = whole_runs / "whole" / "claims"
    assert not claims.exists()
    try:
        made.get_by_role("button", name=re.compile("^Save to ")).click()
        command = made.get_by_text(re.compile(r"^cutaway test ")).first
        expect(command).to_be_visible()
        _, *arguments = shlex.split(command.inner_text())
        found = subprocess.run(
            [str(Path(sys.executable).with_name("cutaway")), *arguments],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        named = sentence.replace(
            "The claim", "without-these-heads-copying-fails", 1
        )  # whose words stand above it there
        assert " ".join(named.split()) in " ".join(found.stdout.replace("`", "").split())
    finally:
        shutil.rmtree(claims, ignore_errors=True)

    SCREENSHOTS.mkdir(exist_ok=True)
    made.screenshot(path=SCREENSHOTS / "ablate-bench.png")
    other, _ = tab()
    other.goto(made.url)
    other.wait_for_selector(IDLE)
    expect(other.locator(".st-key-headline-effect")).to_contain_text(INTERVAL, timeout=PATIENCE)
    expect(other.locator(".st-key-says input")).to_have_value("without these <heads> copying *fails*")
    assert unexpected(watch) == []


def test_a_long_run_is_cancelled_and_leaves_no_trace(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "ablate?run=whole&ablate=L0H1,L0H2,L1H3:resample&n=512&fill=resample")
    loss = made.get_by_text(re.compile(r"the text goes on with .* intact"))
    made.get_by_role("button", name="Run the text").click()
    before = loss.inner_text()
    run_it(made)
    job = made.locator(".st-key-job-bench")
    expect(job).to_contain_text(re.compile(r"[\d,]+ of [\d,]+ passes, about \d+ (s|min) left"), timeout=PATIENCE)
    job.get_by_role("button", name="Cancel").click()
    expect(made.get_by_text("Cancelled: nothing of it was kept.")).to_be_visible(timeout=PATIENCE)
    expect(made.locator(".st-key-headline-effect")).to_have_count(0)
    assert made.locator(".st-key-job-bench").count() == 0

    other, _ = tab()
    go(other, server, "ablate?run=whole&ablate=L0H1,L0H2,L1H3:resample&n=512&fill=resample&seed=1")
    other.get_by_role("button", name="Run the text").click()
    expect(other.get_by_text(re.compile(r"the text goes on with .* intact"))).to_have_text(before)
    expect(other.get_by_text("Nothing is measured yet")).to_be_visible()
    assert unexpected(watch) == []


def test_a_token_shows_what_is_predicted_there_and_d_shows_the_difference(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "ablate?run=whole&ablate=L0H1:zero")
    made.get_by_role("button", name="Run the text").click()
    made.locator(".st-key-token_harm .token").nth(5).click()
    expect(made.get_by_role("heading", name=re.compile(r"^Predicted at 5, after"))).to_be_visible(timeout=PATIENCE)
    assert address(made)["token"] == "5"
    view = made.locator(".st-key-before_after")
    view.scroll_into_view_if_needed()
    made.wait_for_selector(IDLE)
    expect(view.get_by_role("button", name="intact", exact=True)).to_have_attribute("aria-pressed", "true")
    made.wait_for_timeout(700)
    sent = len(watch.frames)
    made.keyboard.press("d")
    expect(view.get_by_role("button", name="ablated", exact=True)).to_have_attribute("aria-pressed", "true")
    assert len(watch.frames) == sent
    assert unexpected(watch) == []
