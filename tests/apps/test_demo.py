"""The demo from end to end, with models so small that it takes seconds."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from analyses.report import answers
from analyses.shelf import shelf
from analyses.study import STUDIES, SavedResult
from apps.demo import QUESTIONS as DEFAULT
from apps.demo import Question, run_demo
from apps.progress import Bar
from model.checkpoint import checkpoint_steps
from model.config import Norm
from model.errors import InputError
from model.presets import tiny
from model.settings import with_settings
from model.training.config import RunConfig
from model.training.loop import Interrupted
from tests.undrawn import undrawn

pytestmark = pytest.mark.whole

ATTENDED = ("n_sequences=2", "n_text=2", "n_resamples=100", "n_tokens=1024", "max_ablated=2")
PROBED = ("tasks=previous-token", "sites=resid_post", "n_train=100", "n_validation=30", "n_test=50")
WEIGHED = ("n_sequences=2", "n_reference=8", "n_random=2", "n_controls=2", "fitting.n_steps=1")
DEVELOPED = ("n_sequences=2", "n_text=2", "n_judged=2", "n_resamples=100")
TURNED_ON = ("n_memories=2", "n_prompts=2", "n_sets=2", "alpha=0.4", "n_new_tokens=2", "strengths=2.0")

QUESTIONS = (
    Question(study="attention-patterns", settings=ATTENDED, also_untrained=True),
    Question(study="head-ablation", settings=("n_sequences=4", "n_controls=2"), also_untrained=True),
    Question(study="head-circuits", settings=("n_sequences=2", "most_patched=1", "most_offsets=2")),
    Question(study="head-importance", settings=WEIGHED),
    Question(study="self-repair", settings=("n_sequences=2", "n_paired=2")),
    Question(
        study="ffn-memories",
        settings=("n_tokens=2048", "n_permutations=20", "n_random_sets=20", "n_deleted=2", "n_sampled=32"),
    ),
    Question(study="ffn-composition", settings=("n_prefixes=60",)),
    Question(study="memory-promotion", settings=TURNED_ON),
    Question(study="gradient-flow", settings=("initialization=false", "n_sequences=4", "n_groups=2"), beside_twin=True),
    Question(study="probes", settings=PROBED),
    Question(study="training-dynamics", settings=DEVELOPED, also_of_twin=True),
)


def configs() -> tuple[RunConfig, RunConfig]:
    small = with_settings(tiny(), ["train.steps=4", "train.batch_size=2", "data.stdlib_bytes=60000"])
    return small, with_settings(small, [f"model.norm={Norm.POST.value}"])


def run(out: Path) -> list[SavedResult]:
    return run_demo(out, device="cpu", configs=configs(), questions=QUESTIONS, workers=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "demo"
    with undrawn():
        run(out)
    return out


def test_it_leaves_two_matched_runs(finished: Path) -> None:
    assert checkpoint_steps(finished) == checkpoint_steps(finished.with_name("demo-post")) == [0, 1, 2, 4]


def test_every_study_has_an_answer_in_the_run(finished: Path) -> None:
    assert {path.name for path in (finished / "studies").iterdir()} == set(STUDIES)


def test_every_study_is_asked_and_the_first_two_of_step_zero_too() -> None:
    assert [question.study for question in DEFAULT] == list(STUDIES)
    assert [question.study for question in DEFAULT if question.also_untrained][:2] == list(STUDIES)[:2]


def test_step_zero_is_there_to_compare_with(finished: Path) -> None:
    for study in ("attention-patterns", "head-ablation"):
        assert shelf(finished, study).steps == (0, 4)


def test_the_pair_is_looked_at_once_and_belongs_to_both_runs(finished: Path) -> None:
    (pair,) = shelf(finished, "gradient-flow").results
    assert pair.result.pair is not None
    assert shelf(finished.with_name("demo-post"), "gradient-flow").results[0].path == pair.path
    assert not any("without a twin" in finding.sentence for finding in pair.findings())


def test_training_is_looked_at_in_both_runs_and_only_the_run_is_reported(finished: Path) -> None:
    twin = finished.with_name("demo-post")
    assert shelf(twin, "training-dynamics").results[-1].result.run == "demo-post"
    assert (finished / "report.html").read_text(encoding="utf-8").count('id="training-dynamics"') == 1
    assert "up to step 4" in (finished / "report.html").read_text(encoding="utf-8")
    assert "What formed when in demo-post" not in (finished / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("out", [".", "/", "runs/.."])
def test_a_folder_without_a_name_is_refused_in_words(out: str) -> None:
    with pytest.raises(InputError, match="has no name of its own.*runs/demo"):
        run_demo(Path(out))


def test_it_leaves_a_report_of_one_file(finished: Path) -> None:
    text = (finished / "report.html").read_text(encoding="utf-8")
    assert "What was found in demo" in text
    assert text.count("<figure") == len(QUESTIONS) + 1, "every question, and the training curve"
    assert text.count("The same, before training (step 0)") == 2


def test_a_second_call_reuses_what_is_complete_and_says_what_was_found(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _files_but_the_report(finished.parent)
    results = run(finished)
    said = capsys.readouterr().out
    assert "is there already" in said
    assert _files_but_the_report(finished.parent) == before
    for answered in answers(results).values():
        assert all(finding.sentence in said for finding in answered.findings())
        if answered.first is not None:
            assert not any(finding.sentence in said for finding in answered.first.findings())
    assert str(finished / "report.html") in said
    assert f"cutaway dashboard {finished.parent}" in said


def test_control_c_says_that_the_same_command_goes_on_and_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bar, "on_step", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted, match=r"saved in .*demo and .*demo-post. The same command goes on there"):
        run_demo(tmp_path / "demo", device="cpu", configs=configs(), questions=(), workers=1)
    monkeypatch.undo()
    run_demo(tmp_path / "demo", device="cpu", configs=configs(), questions=(), workers=1)
    assert checkpoint_steps(tmp_path / "demo-post")[-1] == 4


def _files_but_the_report(root: Path) -> dict[str, tuple[int, int]]:
    """Every file with when it was written and how large it is."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "report.html"]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
