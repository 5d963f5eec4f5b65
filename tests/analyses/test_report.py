"""The report says what the results say, denies what is not there, and needs nothing but itself."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from analyses import html, training_curve
from analyses.registry import Finding, get_study
from analyses.report import Report, answers, found_in_short, gathered
from analyses.report_page import page, write_report
from analyses.results import RECORD
from analyses.study import SavedResult, load_result, run_study
from model.presets import tiny
from model.settings import config_hash, with_settings
from model.training.loop import train
from tests.undrawn import undrawn

pytestmark = pytest.mark.whole

QUICK = {
    "attention-patterns": ("n_sequences=8", "n_text=8", "n_resamples=100", "n_tokens=2048"),
    "head-ablation": ("n_sequences=8", "n_controls=5"),
    "ffn-memories": (),
    "ffn-composition": ("n_prefixes=400",),
    "memory-promotion": ("n_memories=2", "n_prompts=4", "n_sets=19", "n_new_tokens=4", "strengths=2.0"),
    "gradient-flow": ("initialization=false", "n_sequences=4", "n_groups=2"),
}
"""Settings that make a study quick; what is denied does not depend on them."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step, whose step 0 is a random model."""
    folder = tmp_path_factory.mktemp("runs") / "random"
    config = with_settings(tiny(), ["train.steps=1", "train.batch_size=2", "data.stdlib_bytes=60000"])
    train(config, folder, device="cpu")
    return folder


@pytest.fixture(scope="module")
def untrained(run: Path) -> list[SavedResult]:
    """Every study of a model that has learned nothing."""
    with undrawn():
        return [run_study(name, f"{run}@0", list(settings)) for name, settings in QUICK.items()]


@pytest.fixture(scope="module")
def report(run: Path, untrained: list[SavedResult]) -> Report:
    return gathered(run, untrained)


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    """The page."""
    return page(report)


@pytest.mark.parametrize("study", [study for study in QUICK if study != "gradient-flow"])
def test_of_a_random_model_every_finding_about_it_is_denied(study: str, untrained: list[SavedResult]) -> None:
    affirmed = [finding.sentence for finding in answers(untrained)[study].findings() if finding.found]
    assert affirmed == []


def test_the_page_about_a_random_model_affirms_nothing(report: Report) -> None:
    about_the_model = [result for result in report.results if result.study != "gradient-flow"]
    text = page(replace(report, results=about_the_model))
    assert '<li class="found">' not in text
    assert re.search(r"Nothing was found, \d+ looked for and not found", text)
    assert "Nothing was found" in text
    assert text.count('<li class="denied">') >= 6
    assert "has not learned yet" in text


def test_the_logged_loss_says_over_how_many_rows_it_is(report: Report, text: str, run: Path) -> None:
    n = training_curve.n_judged(run, report.record)
    assert n is not None
    section = unescape(text).partition('<section id="training">')[2].partition("</section>")[0]
    assert f"n = {n} rows of its eval batch" in section
    assert f"n = {n} rows, the run's eval batch" in section


def test_every_sentence_of_every_study_is_on_the_page(text: str, report: Report) -> None:
    shown = unescape(text)
    for said in answers(report.results).values():
        for finding in said.findings():
            assert finding.sentence in shown


def test_the_page_asks_nothing_of_a_network(text: str) -> None:
    assert "<script" not in text
    assert "default-src 'none'" in text
    asked = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')>\s]+)""", text)
    assert [address for address in asked if not address.startswith("#")] == []


def test_no_two_things_on_the_page_share_an_id(text: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_every_reference_within_the_page_finds_its_target(text: str) -> None:
    ids = set(re.findall(r'\bid="([^"]+)"', text))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= ids


def test_the_page_is_closed_where_it_is_opened(text: str) -> None:
    balance = _Balance()
    balance.feed(text)
    assert balance.open == []


def test_each_figure_says_how_to_read_it(text: str, report: Report) -> None:
    assert text.count("<figure") == text.count("How to read it.") == len(report.results) + 1


def test_the_report_is_written_whole(report: Report, tmp_path: Path) -> None:
    path = write_report(report, tmp_path / "report.html")
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_result_that_can_no_longer_be_read_costs_a_sentence_and_not_the_report(
    run: Path, untrained: list[SavedResult], tmp_path: Path
) -> None:
    older = [_of_another_version(saved, tmp_path / saved.study) for saved in untrained[:2]]
    report = gathered(run, [*older, *untrained[2:]])
    assert list(report.results) == untrained[2:]
    assert len(report.faults) == 2
    shown = unescape(page(report))
    for saved in older:
        left_out = f"1 result saved by another version of {saved.study} is left out; "
        assert left_out in shown
        assert "should have the fields" not in shown
        assert f"cutaway run {saved.study} " in shown.partition(left_out)[2][:200]
    assert "Everything that was looked for" in shown


def _of_another_version(saved: SavedResult, folder: Path) -> SavedResult:
    """The same result with a field fewer, as a version that did not have it would have saved."""
    shutil.copytree(saved.path, folder)
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    del record["result"]["config"]
    (folder / RECORD).write_text(json.dumps(record), encoding="utf-8")
    return load_result(folder)


def test_several_settings_of_one_study_are_said_beside_the_counts(report: Report, text: str) -> None:
    (saved,) = answers(report.results)["head-ablation"].last
    other = replace(saved, provenance=replace(saved.provenance, config_hash="0" * 12))
    assert "Counted for each of several settings" not in text
    assert "Counted for each of several settings: head-ablation (2)." in page(replace(report, results=[saved, other]))


def test_a_run_that_logged_nothing_is_told_apart_from_one_that_learned_nothing(report: Report) -> None:
    text = page(replace(report, metrics=[], results=[]))
    assert "has logged no loss" in text
    assert "Nothing was found, 0 looked for and not found, 1 cannot be told." in text
    assert text.count('<li class="unknown">') == 1


def test_laws_of_drawn_models_and_what_cannot_be_told_are_not_counted_as_found_or_denied() -> None:
    said = [
        Finding(sentence="a law", found=True, of_run=False),
        Finding(sentence="open", found=None),
        Finding(sentence="there", found=True),
        Finding(sentence="not there", found=False),
    ]
    assert found_in_short(said) == "One thing was found, 1 looked for and not found, 1 cannot be told."


def test_what_is_found_at_step_zero_is_shown_and_not_counted(report: Report, run: Path) -> None:
    with undrawn():
        later = run_study("ffn-memories", f"{run}@1", list(QUICK["ffn-memories"]))
    both = replace(report, results=[*report.results, later])
    assert answers(both.results)["ffn-memories"].findings() == list(later.findings())
    assert "The same, before training (step 0)" in page(both)


def test_the_commands_it_prints_compute_the_same_results_again(
    report: Report, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parents[1])
    commands = unescape(page(report)).partition("<pre>")[2].partition("</pre>")[0].splitlines()
    assert len(commands) == len(report.results)
    for command, saved in zip(commands, report.results, strict=True):
        words = shlex.split(command)
        assert words[:4] == ["cutaway", "run", saved.study, f"{run.parent.name}/{run.name}@0"]
        assert words[-1] == "--fresh"
        asked = with_settings(get_study(saved.study).config_class(), [each for each in words[4:-1] if each != "--set"])
        assert config_hash(asked) == saved.provenance.config_hash


def test_a_loss_far_from_ln_v_is_said_to_start_uneven() -> None:
    assert "by guessing evenly" in training_curve.start([_row(0, 5.56)], d_vocab=257)
    assert "did not begin by guessing evenly" in training_curve.start([_row(0, 9.0)], d_vocab=257)


def test_learning_is_claimed_only_where_the_loss_is_well_below_ln_v() -> None:
    (learned,) = training_curve.findings([_row(0, 5.56), _row(100, 2.1)], d_vocab=257, name="run", seed=3)
    (not_yet,) = training_curve.findings([_row(0, 5.56), _row(100, 5.3)], d_vocab=257, name="run", seed=3)
    assert learned.found
    assert "At step 100 (10,000 tokens, seed 3) the loss of run on held-out text is 2.100" in learned.sentence
    assert "3.45 below ln\u00a0V" in learned.sentence
    assert not_yet.found is False
    assert "has not learned yet" in not_yet.sentence


def test_one_training_batch_says_nothing_of_learning() -> None:
    (unknown,) = training_curve.findings([{"step": 9, "tokens": 9, "loss": 0.1}], d_vocab=257, name="run", seed=0)
    assert unknown.found is None


def test_text_from_a_corpus_cannot_become_markup() -> None:
    hostile = pd.DataFrame({"trigger": ["<img src=x onerror=alert(1)>", "a & b"], "value": [0.123456, float("nan")]})
    shown = html.table(hostile)
    assert "<img" not in shown
    assert "a &amp; b" in shown
    assert "0.1235" in shown
    finding = Finding(sentence="<b>bold</b>", found=True)
    assert "<b>" not in html.findings_list([finding])


def test_two_drawings_keep_their_own_gradients() -> None:
    svg = '<svg><defs><linearGradient id="g"/></defs><rect fill="url(#g)"/><use href="#g"/></svg>'
    drawn = html.inline_svg(svg, "one") + html.inline_svg(svg, "two")
    assert 'id="one-g"' in drawn
    assert 'fill="url(#two-g)"' in drawn
    assert 'href="#one-g"' in drawn
    ET.fromstring(f"<page>{drawn}</page>")


def _row(step: int, loss: float) -> dict[str, float]:
    return {"step": step, "tokens": step * 100, "loss": loss + 0.1 * (step > 0), "eval_loss": loss}


class _Balance(HTMLParser):
    """Which elements are still open."""

    void = frozenset({"meta", "br", "img", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that closes itself opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
