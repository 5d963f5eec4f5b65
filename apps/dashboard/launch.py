"""Starting the dashboard: one local server over one folder of runs, quiet, and talking to nobody."""

from __future__ import annotations

import gc
import os
import socket
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from model.dotted import dotted
from model.errors import InputError

LOOPBACK = "127.0.0.1"
ROOT_VARIABLE = "CUTAWAY_RUNS"
"""How the folder of runs reaches the app's script, which takes no arguments."""

SCRIPT = Path(__file__).with_name("streamlit_app.py")
THEME = Path(__file__).parent / ".streamlit" / "config.toml"


def launch(root: Path | str = "runs", port: int = 8501) -> None:
    """Serve the runs under `root` at http://127.0.0.1:`port` until interrupted.

    A folder that is not there is served like an empty one: the page says what makes a run, and shows it when it is.

    Raises:
        InputError: if `root` is a file, or the port is not free.
    """
    folder = Path(root).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{root} is a file; name the folder that holds the runs, such as runs")
    _require_free(port)
    import streamlit as st  # takes seconds, so only where it is needed
    from starlette.middleware import Middleware

    from apps.dashboard.frame.arrival import SentOn

    os.environ[ROOT_VARIABLE] = str(folder)
    preload()
    st.App(SCRIPT, middleware=[Middleware(SentOn)]).run(config=settings(port))


PRELOADED = (
    "torch", "pandas", "altair", "pyarrow.pandas_compat", "PIL.Image", "model.lab", "analyses.views",
    "analyses.notebook.page", "analyses.attention_patterns",
)  # fmt: skip
"""What pages need and takes seconds to import."""


def preload() -> None:
    """Import what pages need, before the first is asked for, and take it out of the garbage collector's sight.

    Streamlit collects garbage after every run of a page, and nothing else is done meanwhile, sending included: among
    modules, which never are garbage, that takes 0.16 s each time.
    """
    for name in PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()


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
        **dotted(tomllib.loads(THEME.read_text("utf-8"))),
    }


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
