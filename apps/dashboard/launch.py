"""Starting the dashboard: one local server over one folder of runs, quiet, and talking to nobody."""

from __future__ import annotations

import os
import socket
import threading
import time
import tomllib
import urllib.request
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from model.errors import InputError, UnknownNameError

LOOPBACK = "127.0.0.1"
ROOT_VARIABLE = "CUTAWAY_RUNS"
"""How the folder of runs reaches the app's script, which takes no arguments."""

SCRIPT = Path(__file__).with_name("streamlit_app.py")
THEME = Path(__file__).parent / ".streamlit" / "config.toml"


def launch(root: Path | str = "runs", port: int = 8501, *, open_browser: bool = False) -> None:
    """Serve the runs under `root` at http://127.0.0.1:`port` until interrupted.

    Raises:
        UnknownNameError: if `root` is not a folder.
        InputError: if the port is not free.
    """
    folder = Path(root).expanduser().resolve()
    if not folder.is_dir():
        raise UnknownNameError(f"there is no folder {root}; `cutaway demo` makes runs/demo, and `cutaway train` others")
    _require_free(port)
    import streamlit as st  # takes seconds, so only where it is needed

    os.environ[ROOT_VARIABLE] = str(folder)
    if open_browser:
        threading.Thread(target=_open_when_ready, args=(port,), daemon=True).start()
    st.App(SCRIPT).run(config=settings(port))


def settings(port: int) -> dict[str, Any]:
    """Return the server's settings: loopback only, no telemetry, no file watching, nothing served beside the app.

    The theme is among them: Streamlit looks for it beside the command that was typed, not beside the app.
    """
    return {
        "server.address": LOOPBACK,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.allowedHosts": [LOOPBACK, "localhost"],
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "browser.gatherUsageStats": False,
        "browser.serverAddress": LOOPBACK,
        "runner.magicEnabled": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "full",
        "client.showErrorLinks": False,
        **dict(_flat(tomllib.loads(THEME.read_text("utf-8")))),
    }


def _flat(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted names."""
    for name, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _require_free(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError):
            raise InputError(
                f"port {port} cannot be used on this machine; give another one, for example --port {_some_free_port()}"
            ) from None


def _some_free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _open_when_ready(port: int, patience_s: float = 30.0) -> None:
    """Open the browser once the server answers, so that the first thing seen is not an error."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/_stcore/health", timeout=1):
                webbrowser.open(f"http://{LOOPBACK}:{port}")
                return
        except OSError:
            time.sleep(0.2)
