"""Take the pictures of docs/dashboard.md: play the researcher's session of `tests.browser.session` in Chromium.

    python -m docs.make_dashboard_pictures RUNS

RUNS holds the runs `demo` and `demo-post` that `cutaway demo` makes. They are copied first: the session saves a claim
and pins, which belong to nobody's runs. Pictures are cut to what matters, and reduced to 160 colours.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

from model.lab import open_run
from tests.browser.browsing import CHROMIUM, FLAGS, PATIENCE, Server, Watch, serving, watched
from tests.browser.session import IDLE, Plan, Session, play

FOLDER = Path(__file__).with_name("img") / "dashboard"
NAMES = {
    "overview": "1-overview", "training": "2-training", "heads": "3-head", "examples": "4-examples",
    "effect": "5-effect", "memory": "6-memory", "lens": "7-lens", "findings": "8-findings",
}  # fmt: skip
"""Stations of which there is a picture, and its name."""
SIZE = {"width": 1440, "height": 1300}
MARGIN, BELOW = 14, 64
"""Pixels around what matters; the facts that numbers rest on stand below."""
COLOURS = 160
MOST_BYTES = 200_000


def main(runs: Path, folder: Path = FOLDER) -> None:
    """Play the session on a copy of the runs, and write the pictures to `folder`."""
    if CHROMIUM is None:
        raise SystemExit(
            "There is no Chromium to open the pages with. Install one, on Debian: apt-get install chromium"
        )
    missing = [name for name in ("demo", "demo-post") if not (runs / name).is_dir()]
    if missing:
        raise SystemExit(f"There is no {' and no '.join(missing)} in {runs}; `cutaway demo` makes both.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        own = Path(temporary) / "runs"
        for name in ("demo", "demo-post"):
            shutil.copytree(runs / name, own / name, ignore=shutil.ignore_patterns("claims"))
        last = open_run(own / "demo").step
        with serving(own, Path(temporary) / "server.log", Path(temporary)) as server:
            photograph(server, Plan(run="demo", twin="demo-post", last=last), Path(temporary), folder)


def photograph(server: Server, plan: Plan, downloads: Path, folder: Path) -> None:
    """Play the session and take its pictures."""
    with sync_playwright() as drivers:
        browser = drivers.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        def fresh() -> tuple[Page, Watch]:
            page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
            page.set_default_timeout(PATIENCE)
            return page, watched(page)

        page, _ = fresh()
        session = Session(made=page, server=server, plan=plan, folder=downloads, fresh=fresh)

        def at(station: str, shown: Sequence[Locator]) -> None:
            if station in NAMES:
                take(page, shown, folder / f"{NAMES[station]}.png")

        for station, seconds in play(session, at).items():
            print(f"{station:12} {seconds:5.1f} s")  # noqa: T201
        browser.close()


def take(page: Page, shown: Sequence[Locator], file: Path) -> None:
    """Save what lies around all of `shown` on the page, as a small picture."""
    first = shown[0]
    first.evaluate("element => element.scrollIntoView({block: 'start'})")
    page.mouse.move(2, 2)
    page.wait_for_timeout(700)
    page.wait_for_selector(IDLE)
    boxes = [box for each in shown if (box := each.bounding_box())]
    main = page.locator("[data-testid='stMain']").bounding_box()
    assert main is not None
    top = max(0.0, min(box["y"] for box in boxes) - MARGIN)
    below = min(float(SIZE["height"]), max(box["y"] + box["height"] for box in boxes) + BELOW)
    left = main["x"] + 50
    clip = {"x": left, "y": top, "width": SIZE["width"] - left - 20, "height": below - top}
    page.screenshot(path=file, clip=clip, animations="disabled")  # type: ignore[arg-type]
    with Image.open(file) as picture:
        reduced = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(file, optimize=True)
    if file.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{file.name} has {file.stat().st_size:,} bytes; at most {MOST_BYTES:,} are wanted.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, help="a folder with the runs demo and demo-post")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where the pictures go")
    given = parser.parse_args()
    main(given.runs, given.out)
