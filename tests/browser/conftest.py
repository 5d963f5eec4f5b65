"""One server and one Chromium for all browser tests; a fresh profile for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.browsing import CHROMIUM, FLAGS, PATIENCE, Server, serving, watched
from tests.dashboard_runs import whole_runs

__all__ = ["whole_runs"]  # a fixture


@pytest.fixture(scope="session")
def server(whole_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(whole_runs, tmp_path_factory.mktemp("server") / "server.log") as started:
        yield started


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    if CHROMIUM is None:
        pytest.fail(
            "There is no Chromium to open the pages with. Install one, on Debian with: apt-get install chromium"
        )
    with sync_playwright() as drivers:
        browser = drivers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium, request):
    """Open a fresh tab of a fresh browser profile, watched."""
    contexts = []

    def fresh(scheme: str = "light", **more):
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 1000}, "color_scheme": scheme} | more)
        contexts.append(context)
        made = context.new_page()
        made.set_default_timeout(PATIENCE)
        return made, watched(made)

    yield fresh
    for context in contexts:
        context.close()
