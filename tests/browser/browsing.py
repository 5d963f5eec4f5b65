"""Opening the dashboard in Chromium: what every browser test needs."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
IDLE = "[data-testid='stApp'][data-test-connection-state='CONNECTED'][data-test-script-state='notRunning']"
ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "screenshots"
PATIENCE = 60_000
"""Milliseconds; a busy machine may need many seconds for a first page."""


@dataclass
class Server:
    address: str
    log: Path
    folder: Path = ROOT
    """Where it was started; commands that a page shows are typed there."""


@dataclass
class Watch:
    """What went wrong on a page, and what was sent."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the dashboard's server did not start")


@contextmanager
def serving(runs: Path, log: Path, folder: Path = ROOT) -> Iterator[Server]:
    """The dashboard over a folder of runs, started in `folder`, on a free port, until the `with` ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = f"from apps.dashboard.launch import launch; launch({str(runs)!r}, {port})"
    with log.open("w") as out:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=out, stderr=out, cwd=folder)
        try:
            wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
            yield Server(f"http://127.0.0.1:{port}", log, folder)
        finally:
            process.terminate()
            process.wait(20)


def watched(made) -> Watch:
    watch = Watch()
    made.on("pageerror", lambda error: watch.errors.append(str(error)))
    made.on("console", lambda message: watch.errors.append(message.text) if message.type == "error" else None)
    made.on("request", lambda request: watch.requests.append(request.url))
    made.on("response", lambda response: watch.missing.append(response.url) if response.status == 404 else None)
    made.on("websocket", lambda channel: channel.on("framesent", lambda frame: watch.frames.append(len(frame))))
    return watch


def unexpected(watch: Watch) -> list[str]:
    """Errors on the page, without Streamlit's own two misses: it looks for its addresses below the page's first."""
    own = [url for url in watch.missing if re.search(r"/\w+/_stcore/(health|host-config)(\?|$)", url)]
    others = list(watch.errors)
    for _ in own:
        others.remove("Failed to load resource: the server responded with a status of 404 (Not Found)")
    return others


def go(made, server: Server, path: str) -> None:
    made.goto(f"{server.address}/{path}")
    made.wait_for_selector(IDLE)
    made.wait_for_selector("h1")
    made.wait_for_selector("html[data-cutaway-keys]", state="attached")
    made.wait_for_selector(IDLE)


def address(made) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(made.url).query).items()}


def menu(made, page: str) -> None:
    """Click on a page in the menu."""
    made.locator(".st-key-menu a:visible").filter(has_text=page).click()


def edit(made) -> None:
    """Show the selection as text inputs, at the top of the page."""
    button = made.locator(".st-key-bar .edit")
    if button.get_attribute("aria-expanded") == "false":
        button.click()
