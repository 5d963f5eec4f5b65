"""A researcher's session: from a question to a tested answer that somebody else can open.

Played by `test_session.py`, which holds each station against what it should show, and by
`docs/make_dashboard_pictures.py`, which takes a picture there. Every step is one that a person makes: a click, a key,
a word typed. Nothing is looked up behind the page.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.browsing import IDLE, PATIENCE, Server, Watch, address, go, menu

INTERVAL = re.compile(r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]")
FIRST_ROW = 48
"""Pixels from the top of a table to the middle of its first row."""
NOTE = "Both heads together; which of them is enough is the next question."


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the session is about."""

    run: str
    twin: str
    """A run whose norms stand elsewhere."""
    last: int
    """The last checkpoint, which has results of every study."""
    says: str = "without these two heads the model copies worse"
    bound: str = "harm >= 0.5"
    """What the ablation is expected to cost, in nats of copy_loss."""
    control: str = "matched random sets"
    """What it is held against: the beginning of its name on the page."""
    n: int = 64
    """Sequences that the ablation is measured on."""


@dataclass
class Session:
    """One researcher's browser, and what was seen in it."""

    made: Page
    server: Server
    plan: Plan
    folder: Path
    """For what is downloaded."""
    fresh: Callable[[], tuple[Page, Watch]]
    """Opens a page in a profile that knows nothing of this one."""
    seen: dict[str, str] = field(default_factory=dict)
    """What was read at one station and is looked for at another."""

    def overview(self) -> Sequence[Locator]:
        """The run, what was found in it, and three questions to begin with."""
        go(self.made, self.server, f"?run={self.plan.run}")
        starts = self.main.locator("[data-testid='stVerticalBlock']").filter(has=self.made.locator("h3"))
        begin = self.made.get_by_role("link", name="Begin").first
        expect(begin).to_be_visible(timeout=PATIENCE)
        self.drawn("stVegaLiteChart")
        assert starts.count() >= 3
        return [self.made.locator("h1"), begin, self.main.locator("[data-testid='stVegaLiteChart']").first]

    def heads_asked(self) -> Sequence[Locator]:
        """The first question: heads in order of their induction score."""
        self.made.get_by_role("link", name="Begin").first.click()
        self.heading("Heads")
        expect(self.made.locator(".st-key-panel-ranking")).to_be_visible(timeout=PATIENCE)
        assert address(self.made)["order"] == "By this score"
        return []

    def training(self) -> Sequence[Locator]:
        """When they formed: a click on the jump chooses a checkpoint, and letting go of the slider the last one."""
        menu(self.made, "Training dynamics")
        self.heading("Training dynamics")
        figure = self.made.locator(".st-key-head_lines svg.marks")
        figure.scroll_into_view_if_needed(timeout=PATIENCE)
        box = figure.bounding_box()
        assert box is not None
        jump = figure.locator("path[aria-roledescription='rect mark']").first
        where = jump.bounding_box() if jump.count() else None
        x = box["width"] / 2 if where is None else where["x"] + 0.7 * where["width"] - box["x"]
        figure.click(position={"x": x, "y": box["height"] / 3})
        step = self.made.locator(".st-key-step input")
        expect(step).not_to_have_value(str(self.plan.last), timeout=PATIENCE)
        self.seen["jump"] = step.input_value()
        expect(self.made).to_have_url(re.compile(rf"step={self.seen['jump']}\b"), timeout=PATIENCE)
        self.settle()
        return [self.made.get_by_role("heading", name="Over training", exact=True), figure]

    def scrub(self) -> Sequence[Locator]:
        """Every head through training, in the browser; Enter chooses the checkpoint for all pages."""
        grid = self.made.locator(".st-key-training_grid")
        slider = grid.get_by_role("slider", name="training step")
        slider.focus()
        slider.press("End")
        expect(grid.locator(".step")).to_have_text(f"step {self.plan.last:,}", timeout=PATIENCE)
        slider.press("Enter")
        expect(self.made.locator(".st-key-step input")).to_have_value(str(self.plan.last), timeout=PATIENCE)
        return []

    def heads(self) -> Sequence[Locator]:
        """The strongest heads, one after another, and what one token of a text looks back at."""
        menu(self.made, "Heads")
        self.heading("Heads")
        expect(self.made.locator(".st-key-grid .cell").first).to_be_visible(timeout=PATIENCE)
        expect(self.made.locator(".st-key-panel-ranking")).to_be_visible(timeout=PATIENCE)
        self.go_to(1)
        self.go_to(5)
        self.go_to(1)
        self.seen["head"] = self.made.locator(".st-key-head input").input_value()
        self.made.locator(".st-key-text").get_by_text("repeats", exact=True).click()
        expect(self.made).to_have_url(re.compile(r"text=repeats\b"), timeout=PATIENCE)
        view = self.made.locator(".st-key-attention")
        expect(self.made.get_by_text(re.compile(r"^n = 1: .*random")).first).to_be_visible(timeout=PATIENCE)
        self.settle()
        view.locator(".token").last.click()
        expect(view.locator(".live")).to_contain_text("locked", timeout=PATIENCE)
        expect(self.made.get_by_text(re.compile(r"^locked: query \d+"))).to_be_visible(timeout=PATIENCE)
        assert re.fullmatch(r"\d+\.\d+", address(self.made)["cell"])
        return [self.made.locator(".st-key-head_heading"), view]

    def examples(self) -> Sequence[Locator]:
        """What it does on the corpus, not only at its best: from every tenth of its range; X takes it to Ablate."""
        self.made.get_by_role("tab", name="Examples").click()
        self.made.locator(".st-key-examples button").filter(has_text="across its range").click()
        rows = self.made.locator(".st-key-corpus_rows .line")
        expect(self.made.get_by_text("the share of queries at which it writes less")).to_be_visible(timeout=PATIENCE)
        expect(rows.first).to_be_visible(timeout=PATIENCE)
        self.press("x")
        ablate = self.made.locator(".st-key-ablate input")
        expect(ablate).to_have_value(self.seen["head"], timeout=PATIENCE)
        self.go_to(2)
        self.press("x")
        expect(ablate).to_have_value(re.compile(rf"^{self.seen['head']},L\d+H\d+$"), timeout=PATIENCE)
        self.seen["ablate"] = ablate.input_value()
        self.settle()
        return [self.made.locator(".st-key-head_heading"), self.made.locator(".st-key-corpus_rows")]

    def hypothesis(self) -> Sequence[Locator]:
        """Stated before anything is measured."""
        menu(self.made, "Ablate")
        self.heading("Ablate")
        expect(self.made.locator(".st-key-ablate input")).to_have_value(self.seen["ablate"], timeout=PATIENCE)
        self.write("says", self.plan.says)
        self.write("bound", self.plan.bound)
        self.choose("control", self.plan.control)
        self.choose("fill", "what other sequences hold")
        self.write("n_sequences", str(self.plan.n))
        expect(self.made.get_by_text("Nothing is measured yet")).to_be_visible(timeout=PATIENCE)
        return []

    def effect(self) -> Sequence[Locator]:
        """The effect with its interval, beside as many other heads, and the verdict."""
        self.made.locator(".st-key-run_hypothesis button").click()
        told = self.made.locator(".st-key-headline-effect")
        expect(told).to_contain_text(INTERVAL, timeout=10 * PATIENCE)
        expect(told).to_contain_text(f"n = {self.plan.n}", timeout=PATIENCE)
        control = self.made.locator(".st-key-headline-control")
        expect(control).to_contain_text(re.compile(r"p (=|≤|<=) [\d.]+ of \d+ sets"), timeout=PATIENCE)
        verdict = self.made.locator(".st-key-verdict")
        expect(verdict).to_contain_text(self.plan.says, timeout=PATIENCE)
        self.seen["effect"] = told.inner_text()
        told_in_full = verdict.get_by_text(re.compile(rf"is \w+ at {self.plan.run}@{self.plan.last}"))
        self.seen["verdict"] = told_in_full.inner_text()
        self.settle()
        return [
            self.made.get_by_role("heading", name="Result", exact=True),
            verdict,
            self.made.locator(".st-key-panel-effect"),
        ]

    def claim(self) -> Sequence[Locator]:
        """Kept as a file, of which the command line gives the same verdict."""
        self.made.get_by_role("button", name=re.compile("^Save to ")).click()
        command = self.made.get_by_text(re.compile(r"^cutaway test ")).first
        expect(command).to_be_visible(timeout=PATIENCE)
        self.seen["command"] = command.inner_text()
        _, *arguments = shlex.split(self.seen["command"])
        done = subprocess.run(
            [str(Path(sys.executable).with_name("cutaway")), *arguments],
            capture_output=True, text=True, check=False, cwd=self.server.folder,
        )  # fmt: skip
        verdict = words(self.seen["verdict"]).removeprefix("The claim")  # whose file the command names in its place
        assert verdict in words(done.stdout).replace("`", ""), done.stdout + done.stderr
        return []

    def pin(self) -> Sequence[Locator]:
        """P keeps what was seen."""
        self.press("p")
        self.pinned()
        return []

    def memory(self) -> Sequence[Locator]:
        """An FFN memory: what fires it, what it writes."""
        menu(self.made, "FFN memories")
        self.heading("FFN memories")
        search = self.made.locator(".st-key-wanted input")
        search.fill("self")
        name = self.made.locator(".st-key-memory input")
        expect(self.made.get_by_text(re.compile(r"found, of [\d,]+ memories")).first).to_be_visible(timeout=PATIENCE)
        self.settle()
        table = self.made.locator(".st-key-memory_table .dvn-scroller")
        table.click(position={"x": 16, "y": FIRST_ROW})
        expect(name).to_have_value(re.compile(r"^L\d+M\d+$"), timeout=PATIENCE)
        heading = self.made.get_by_role("heading", name=name.input_value(), exact=True)
        expect(heading).to_be_visible(timeout=PATIENCE)
        rows = self.made.locator(".st-key-triggers .line")
        expect(rows.first).to_be_visible(timeout=PATIENCE)
        self.settle()
        return [heading, self.made.locator(".st-key-triggers")]

    def lens(self) -> Sequence[Locator]:
        """What the stream says on the way to the last token, and which heads its logit is the sum of."""
        menu(self.made, "Lens")
        self.heading("Lens")
        cells = self.made.locator(".st-key-lens_table td.cell[data-place='3']")
        expect(cells.first).to_be_visible(timeout=PATIENCE)
        position = cells.count() - 2
        cells.nth(position).click()
        told = self.made.get_by_role("heading", name=re.compile(rf"^Position {position} "))
        expect(told).to_be_visible(timeout=PATIENCE)
        expect(self.made.locator(".st-key-lens_parts svg.marks")).to_be_visible(timeout=PATIENCE)
        self.settle()
        return [self.made.locator(".st-key-lens_table"), told, self.made.locator(".st-key-panel-lens_top_0")]

    def gradients(self) -> Sequence[Locator]:
        """The same run beside one whose norms stand elsewhere; pinned too."""
        menu(self.made, "Norms & gradients")
        self.heading("Norms & gradients")
        self.made.locator(".st-key-b input").fill(f"{self.plan.twin}@{self.plan.last}")
        self.made.get_by_role("option", name=f"{self.plan.twin}@{self.plan.last}", exact=True).click()
        expect(self.made).to_have_url(re.compile(rf"b={self.plan.twin}(@|%40){self.plan.last}"), timeout=PATIENCE)
        expect(self.made.get_by_text("one colour scale").first).to_be_visible(timeout=PATIENCE)
        self.drawn("stVegaLiteChart")
        self.settle()
        self.press("p")
        self.pinned()
        self.settle()
        charts = self.main.locator("[data-testid='stVegaLiteChart']")
        return [self.made.get_by_role("tab", name="Over training", exact=True), charts.nth(0), charts.nth(1)]

    def findings(self) -> Sequence[Locator]:
        """Both pins with their numbers; a note; and all of it as one file."""
        menu(self.made, "Findings")
        self.heading("Findings")
        pins = self.made.locator("[class*='st-key-pin-']:has(> * h3), [class*='st-key-pin-'] h3")
        titles = self.made.locator("[class*='st-key-pin-'] h3")
        expect(titles).to_have_count(2, timeout=PATIENCE)
        note = self.made.get_by_label("Note", exact=True).first
        note.fill(NOTE)
        note.press("Control+Enter")
        self.settle()
        assert pins.count() >= 2
        self.seen["pins"] = " | ".join(titles.all_inner_texts())
        claims = self.made.get_by_role("heading", name="Written claims", exact=True)
        expect(self.main).to_contain_text(self.plan.says, timeout=PATIENCE)
        return [self.made.locator("h1"), note, claims]

    def report(self) -> Sequence[Locator]:
        """The exported page, opened from disk: it asks nobody for anything."""
        self.made.get_by_text("Export and import").click()
        html = self.made.locator("[class*='st-key-export']").get_by_role("button", name="HTML", exact=True)
        expect(html).to_be_visible(timeout=PATIENCE)
        with self.made.expect_download() as caught:
            html.click()
        file = self.folder / caught.value.suggested_filename
        caught.value.save_as(file)
        notebook = self.made.get_by_text(re.compile(r"/findings\?run=")).first
        self.seen["notebook"] = notebook.inner_text()
        alone, watch = self.fresh()
        alone.goto(file.as_uri())
        for title in self.seen["pins"].split(" | "):
            expect(alone.get_by_role("heading", name=title.split(". ", 1)[1])).to_be_visible(timeout=PATIENCE)
        expect(alone.locator("main")).to_contain_text(NOTE)
        assert watch.errors == []
        assert [url for url in watch.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        return []

    def link(self) -> Sequence[Locator]:
        """The link, in a browser that knows nothing: the same effect; and the notebook's own, with the same pins."""
        menu(self.made, "Ablate")
        self.heading("Ablate")
        expect(self.made.locator(".st-key-headline-effect")).to_contain_text(INTERVAL, timeout=PATIENCE)
        self.made.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.press("l")
        told = self.made.locator(".st-key-bar [role=status]")
        expect(told).to_contain_text("Link copied, without your notebook", timeout=PATIENCE)
        copied = self.made.evaluate("navigator.clipboard.readText()")
        assert "notes=" not in copied
        other, _ = self.fresh()
        other.goto(copied)
        other.wait_for_selector(IDLE)
        there = other.locator(".st-key-headline-effect")
        expect(there).to_have_text(self.seen["effect"], timeout=10 * PATIENCE, use_inner_text=True)
        expect(other.locator(".st-key-says input")).to_have_value(self.plan.says)
        other.goto(self.seen["notebook"])
        expect(other.locator("[class*='st-key-pin-'] h3")).to_have_count(2, timeout=PATIENCE)
        expect(other.get_by_label("Note", exact=True).first).to_have_value(NOTE)
        return []

    @property
    def main(self) -> Locator:
        """The page without the menu."""
        return self.made.locator("[data-testid='stMain']")

    def heading(self, name: str) -> None:
        """Wait for a page."""
        expect(self.made.get_by_role("heading", name=name, exact=True).first).to_be_visible(timeout=PATIENCE)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is computed and what was sent is drawn."""
        self.made.wait_for_timeout(400)
        self.made.wait_for_selector(IDLE, timeout=PATIENCE)
        self.made.wait_for_timeout(200)

    def drawn(self, test_id: str) -> None:
        """Wait for the first figure."""
        expect(self.main.locator(f"[data-testid='{test_id}'] svg.marks").first).to_be_visible(timeout=PATIENCE)

    def press(self, key: str) -> None:
        """Press a key with the cursor nowhere."""
        self.made.evaluate("document.activeElement?.blur()")
        self.made.keyboard.press(key)

    def go_to(self, place: int) -> None:
        """Go through the list with J and K, until the page says where one is."""
        told = self.made.get_by_text(re.compile(r"^\d+ of \d+ in the list$"))
        expect(told).to_be_visible(timeout=PATIENCE)
        while (away := place - int(told.inner_text().split()[0])) != 0:
            at = told.inner_text()
            self.press("j" if away > 0 else "k")
            expect(told).not_to_have_text(at, timeout=PATIENCE)
        self.settle()

    def write(self, key: str, text: str) -> None:
        """Type into an input and leave it."""
        self.made.locator(f".st-key-{key} input").fill(text)
        self.made.locator(f".st-key-{key} input").press("Tab")

    def choose(self, key: str, starts: str) -> None:
        """Choose what starts like this from a list."""
        self.made.locator(f".st-key-{key} input").click()
        self.made.get_by_role("option", name=re.compile(f"^{re.escape(starts)}")).first.click()

    def pinned(self) -> None:
        """Wait for the word that it is pinned."""
        expect(self.made.get_by_text("Pinned to Findings").first).to_be_visible(timeout=PATIENCE)
        expect(self.made).to_have_url(re.compile(r"notes=[A-Za-z0-9_-]{32}"), timeout=PATIENCE)


STATIONS = (
    *("overview", "heads_asked", "training", "scrub", "heads", "examples", "hypothesis", "effect", "claim", "pin"),
    *("memory", "lens", "gradients", "findings", "report", "link"),
)


def play(session: Session, at: Callable[[str, Sequence[Locator]], Any]) -> dict[str, float]:
    """Play the session; the seconds of each station, with `at(station, what matters there)` called after it."""
    seconds: dict[str, float] = {}
    for station in STATIONS:
        start = time.monotonic()
        shown = getattr(session, station)()
        seconds[station] = time.monotonic() - start
        at(station, shown)
    return seconds


def words(text: str) -> str:
    """Without line breaks."""
    return " ".join(text.split())
