"""The dashboard's server as a process of its own, which says on request what hooks are left in it.

    python -m bench.dashboard_server RUNS PORT FILE

On SIGUSR1 it writes to FILE, as JSON, how many models it holds, whether any has a lasting hook, and how many open
blocks of hooks there are in it at all.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0


def main() -> None:
    """Serve until told to end."""
    from apps.dashboard.launch import launch

    root, port, file = sys.argv[1:]
    signal.signal(signal.SIGUSR1, lambda *_: _say(Path(file)))
    launch(root, int(port))


def _say(file: Path) -> None:
    from model.gpt import GPT
    from model.hooks import Scope

    gc.collect()
    held = gc.get_objects()
    models = [each for each in held if isinstance(each, GPT)]
    told = {
        "models": len(models),
        "hooked": sum(model.hooked for model in models),
        "module_hooks": sum(
            len(part._forward_hooks) + len(part._forward_pre_hooks) for model in models for part in model.modules()
        ),
        "open_blocks": sum(isinstance(each, Scope) for each in held),
    }
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(told), encoding="utf-8")
    partial.rename(file)


@dataclass
class Server:
    """A server that runs."""

    url: str
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def resident(self) -> float:
        """MiB of memory that it holds."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text("utf-8").splitlines()
        (line,) = [line for line in lines if line.startswith("VmRSS:")]
        return int(line.split()[1]) / 1024

    @property
    def processor(self) -> float:
        """Seconds of processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def hooks(self) -> dict[str, Any]:
        """What it says of hooks now."""
        file = self.folder / "hooks.json"
        file.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        _until(file.is_file, "the server does not say what hooks it holds")
        return json.loads(file.read_text("utf-8"))

    def log(self) -> str:
        """What it wrote to its standard error."""
        return (self.folder / "stderr").read_text("utf-8", errors="replace")


@contextmanager
def serving(runs: Path) -> Iterator[Server]:
    """A server over a folder of runs, on a free port of this machine, ended behind the `with`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        command = [
            sys.executable,
            "-m",
            "bench.dashboard_server",
            str(runs.resolve()),
            str(port),
            str(folder / "hooks.json"),
        ]
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as errors:
            process = subprocess.Popen(command, stdout=out, stderr=errors, cwd=ROOT)
            server = Server(f"http://127.0.0.1:{port}", process, folder)
            try:
                _until(lambda: process.poll() is not None or _answers(server.url), "the server did not start")
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended: {server.log()[-2000:]}")
                yield server
            finally:
                process.terminate()
                process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1):
            return True
    except OSError:
        return False


def _until(holds: Any, otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
