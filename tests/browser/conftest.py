"""One server and one Chromium for all browser tests; a fresh profile for each."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.browsing import CHROMIUM, FLAGS, PATIENCE, Server, wait_for, watched
from tests.dashboard_runs import whole_runs

__all__ = ["whole_runs"]  # a fixture


@pytest.fixture(scope="session")
def server(whole_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "server.log"
    code = f"from apps.dashboard.launch import launch; launch({str(whole_runs)!r}, {port})"
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=out, stderr=out, cwd=Path(__file__).parents[2])
        try:
            wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
            yield Server(f"http://127.0.0.1:{port}", log)
        finally:
            process.terminate()
            process.wait(20)


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
