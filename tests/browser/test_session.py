"""A researcher's session from beginning to end, as `tests.browser.session` plays it.

On the small runs of the tests; on real ones with CUTAWAY_DEMO=FOLDER, which holds `demo` and `demo-post` as
`cutaway demo` makes them (they are copied). `-s` prints what each station took.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Locator

from model.lab import open_run
from tests.browser.browsing import serving, unexpected
from tests.browser.session import STATIONS, Plan, Session, play
from tests.dashboard_runs import STEP

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1800)]


def real(folder: str, into: Path) -> Plan:
    """The session on a copy of the runs of `cutaway demo`."""
    for name in ("demo", "demo-post"):
        shutil.copytree(Path(folder) / name, into / name, ignore=shutil.ignore_patterns("claims"))
    return Plan(run="demo", twin="demo-post", last=open_run(into / "demo").step)


def small(runs: Path, into: Path) -> Plan:
    """The session on a copy of the tests' runs, which have learned next to nothing."""
    shutil.copytree(runs, into, dirs_exist_ok=True)
    return Plan(run="whole", twin="bare", last=STEP, control="text with nothing to copy", n=16)


def test_a_question_is_asked_tested_pinned_and_sent_on(tab, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = os.environ.get("CUTAWAY_DEMO")
    runs = tmp_path / "runs"
    runs.mkdir()
    plan = real(folder, runs) if folder else small(request.getfixturevalue("whole_runs"), runs)
    with serving(runs, tmp_path / "server.log") as server:
        made, watch = tab()
        session = Session(made=made, server=server, plan=plan, folder=tmp_path, fresh=tab)

        def at(station: str, shown: Sequence[Locator]) -> None:
            assert made.locator("[data-testid='stException']").count() == 0, station
            assert made.get_by_text("BidiComponent Error").count() == 0, station
            assert all(each.first.is_visible() for each in shown), station

        seconds = play(session, at)
        assert unexpected(watch) == []
        assert [url for url in watch.requests if not re.match(r"(blob:)?https?://127\.0\.0\.1[:/]|data:", url)] == []
        assert "Traceback" not in server.log.read_text()
    assert list(seconds) == list(STATIONS)
    assert ("supported" if folder else "refuted") in session.seen["verdict"]
    print(*(f"{station:12} {took:6.1f} s" for station, took in seconds.items()), sep="\n")  # noqa: T201
    print(f"{'in all':12} {sum(seconds.values()):6.1f} s")  # noqa: T201
