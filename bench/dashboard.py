"""The dashboard's bars: what its payloads weigh, how soon it answers, and what twenty people at once do to it.

    python -m bench.dashboard RUN[@STEP] [--smoke] [--only PART ...] [--json FILE]

RUN is a trained run with saved results, such as runs/demo; the folder it lies in is served. Without one a small run is
trained and studied first. The load on the machine is told with the numbers: they are upper bounds where it is busy.

* payload: the encoded attention view of 8 and of 32 heads over 512 tokens.
* hover: pointing at a pattern of 512 tokens, until the frame is painted.
* lock: a click on a cell, until the browser paints it and until Python's answer stands in the address.
* pages: every page, opened by its address in a browser that has seen it, until its first panel; Findings with two pins.
* sessions: real sessions over WebSockets (no browser paints them) that look and ablate for two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.notebook import file as notebook_file
from analyses.notebook.pins import added, new_pin
from analyses.views import attention_payload
from analyses.views.by_layer import Point, Series, by_layer_figure
from bench.dashboard_browser import chromium, hover, lock, pages, random_patterns, tokens
from bench.dashboard_server import Server, serving
from bench.dashboard_sessions import Load
from bench.dashboard_sessions import measured as sessions
from bench.timing import write_results
from model.errors import CutawayError
from model.lab import open_run

PARTS = ("payload", "hover", "lock", "pages", "sessions")

TITLES = {
    "": "Overview",
    "heads": "Heads",
    "memories": "FFN memories",
    "gradients": "Norms & gradients",
    "training": "Training dynamics",
    "ablate": "Ablate",
    "lens": "Lens",
    "findings": "Findings",
}
"""Every page; nothing is asked of it but what its address says."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured."""

    moves: int
    clicks: int
    rounds: int
    n_sessions: int
    seconds: float


FULL = Size(moves=200, clicks=20, rounds=5, n_sessions=20, seconds=120.0)
SMOKE = Size(moves=20, clicks=3, rounds=1, n_sessions=3, seconds=10.0)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One number that has to stay below a limit."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return self.value <= self.limit


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; 1 where a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", help="a run with saved results, such as runs/demo@512")
    parser.add_argument("--smoke", action="store_true", help="a few of everything, to see that it works")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="which parts")
    given = parser.parse_args(arguments)
    size = SMOKE if given.smoke else FULL
    load = os.getloadavg()[0]
    try:
        with _run(given.run) as spec:
            told = measured(spec, size, given.only)
    except CutawayError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = list(bars(told))
    _print(found, told, load)
    loads = {"load_before": load, "load_after": os.getloadavg()[0], "cores": os.cpu_count()}
    path = write_results(
        "dashboard", {"measured": told, "bars": [vars(bar) | {"holds": bar.holds} for bar in found], **loads}
    )
    print(f"\nwritten to {path}")
    return 0 if all(bar.holds for bar in found) else 1


def measured(spec: str, size: Size, parts: Sequence[str]) -> dict[str, Any]:
    """Every part that is asked for."""
    told: dict[str, Any] = {}
    lab = open_run(spec)
    address = {"run": lab.name, "step": str(lab.step), "n": "8"}
    if "payload" in parts:
        told["payload"] = {f"{heads} heads x 512 tokens": payload_bytes(heads, 512) for heads in (8, 32)}
    if not {"hover", "lock", "pages", "sessions"} & set(parts):
        return told
    root = Path(lab.path).parent
    with serving(root) as server:
        if {"hover", "lock", "pages"} & set(parts):
            told |= _in_browser(server, root, address, size, parts)
        if "sessions" in parts:
            config = lab.config
            load = Load(
                n_sessions=size.n_sessions, seconds=size.seconds, address=address, n_layers=config.n_layers,
                n_heads=config.n_heads, n_memories=config.d_ff or 4 * config.d_model,
            )  # fmt: skip
            told["sessions"] = sessions(server, load)
    return told


def _in_browser(
    server: Server, root: Path, address: dict[str, str], size: Size, parts: Sequence[str]
) -> dict[str, Any]:
    told: dict[str, Any] = {}
    with chromium() as browser:
        if "hover" in parts:
            told["hover"] = hover(browser, 512, 8, size.moves)
        if "lock" in parts:
            told["lock"] = lock(browser, server.url, address, size.clicks)
        if "pages" in parts:
            with two_pins(root, address) as notes:
                asked = {path: address | ({"notes": notes} if path == "findings" else {}) for path in TITLES}
                told["pages"] = pages(browser, server.url, asked, TITLES, size.rounds)
    return told


@contextmanager
def two_pins(root: Path, address: dict[str, str]) -> Iterator[str]:
    """The name of a notebook of two pins with a figure each, which is removed afterwards."""
    token = notebook_file.new_token()
    path = notebook_file.notebook_path(root, token)
    notebook_file.begin(path)
    shares = [0.1, 0.4, 0.2]
    points = [Point(layer=layer, series=Series.NOW, value=share) for layer, share in enumerate(shares)]
    try:
        for title in ("One share", "Another share"):
            pin = new_pin(
                page="heads", query=address, title=title, sentences=[title], about={"run": address["run"], "n": 3},
                python="rows = None", rows=pd.DataFrame({"share": shares}), figure=by_layer_figure(points, title),
            )  # fmt: skip
            notebook_file.change(path, added(pin))
        yield token
    finally:
        path.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)


def payload_bytes(n_heads: int, n_tokens: int) -> int:
    """Bytes of what the attention view is sent, as JSON."""
    payload = attention_payload(random_patterns(n_heads, n_tokens), tokens(n_tokens), head=(0, 0))
    return len(json.dumps(payload).encode())


def bars(told: dict[str, Any]) -> Iterator[Bar]:
    """What has to hold of the parts that were measured."""
    limits = {"8 heads x 512 tokens": 0.4e6, "32 heads x 512 tokens": 4e6}
    for name, size in told.get("payload", {}).items():
        yield Bar(name=f"payload, {name}", value=size / 1e6, limit=limits[name] / 1e6, unit="MB")
    if "hover" in told:
        yield Bar(name="hover frame, 512 tokens, 95%", value=told["hover"]["frame"]["p95_ms"], limit=50, unit="ms")
    if "lock" in told:
        yield Bar(name="lock painted, median", value=told["lock"]["painted"]["median_ms"], limit=50, unit="ms")
        yield Bar(name="lock confirmed, median", value=told["lock"]["confirmed"]["median_ms"], limit=350, unit="ms")
    for name, each in told.get("pages", {}).items():
        yield Bar(name=f"{name}, first panel, median", value=each["first panel"]["median_ms"], limit=2000, unit="ms")
    if "sessions" in told:
        yield from _bars_of_sessions(told["sessions"])


def _bars_of_sessions(found: dict[str, Any]) -> Iterator[Bar]:
    hooks = found["hooks"]
    left = hooks["hooked"] + hooks["module_hooks"] + hooks["open_blocks"] + (not found["same_attention_after"])
    yield Bar(name=f"errors in {found['sessions']} sessions", value=found["n_errors"], limit=0, unit="")
    yield Bar(name="lines in the server's log", value=len(found["log"].splitlines()), limit=0, unit="")
    yield Bar(name="hooks left", value=left, limit=0, unit="")
    yield Bar(name="growth of memory over the last half", value=100 * found["memory"]["growth"], limit=5, unit="%")


def _print(bars: Sequence[Bar], told: dict[str, Any], load: float) -> None:
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores\n")
    for bar in bars:
        mark = "holds" if bar.holds else "DOES NOT HOLD"
        print(f"{bar.name:<48}{bar.value:>10.2f} {bar.unit:<3} at most {bar.limit:g}   {mark}")
    if "sessions" in told:
        found = told["sessions"]
        print(
            f"\n{found['sessions']} sessions, {found['seconds']:.0f} s, {found['ablations']} ablations; "
            f"the server had {found['processor_share']:.2f} processors; memory {found['memory']['start_mib']:.0f}, "
            f"{found['memory']['early_mib']:.0f}, {found['memory']['late_mib']:.0f} MiB (start, third and last quarter)"
        )
        for name, each in found["actions"].items():
            print(f"  {name:<20}n {each['n']:>4}   median {each['median_ms']:>7.0f} ms   95% {each['p95_ms']:>7.0f} ms")
        for error in found["errors"][:5]:
            print(f"  {error}")


@contextmanager
def _run(spec: str | None) -> Iterator[str]:
    """The run that was named; else a small one, trained and studied in a folder that is removed afterwards."""
    if spec is not None:
        yield spec
        return
    from analyses.study import run_study
    from tests.dashboard_runs import STEP, STUDIES, trained

    with tempfile.TemporaryDirectory() as folder:
        run = trained(Path(folder), "small")
        for study, settings in STUDIES.items():
            for step in (0, STEP):
                run_study(study, f"{run}@{step}", settings)
        yield f"{run}@{STEP}"


if __name__ == "__main__":
    sys.exit(main())
