"""The pages of the studies: what they show in Python runs as it stands, on a run with the demo's architecture."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from analyses.registry import STUDIES, get_study
from analyses.shelf import shelf_of_run
from model.presets import demo
from model.settings import with_settings
from model.training.loop import train

pytestmark = pytest.mark.whole

PAGES = Path(__file__).parents[2] / "docs/studies"
QUICK = {
    "attention-patterns": ("n_sequences=2", "n_text=2", "n_resamples=100", "n_tokens=1024", "max_ablated=1"),
    "head-ablation": ("n_sequences=2", "n_controls=2"),
    "head-circuits": ("n_sequences=2", "period=4", "most_patched=1", "most_offsets=2"),
    "head-importance": ("n_sequences=2", "n_reference=8", "n_random=2", "n_controls=2", "fitting.n_steps=1"),
    "self-repair": ("n_sequences=2", "n_paired=2"),
    "ffn-memories": ("n_tokens=1024", "n_permutations=20", "n_random_sets=20", "n_deleted=2", "n_sampled=32"),
    "ffn-composition": ("n_prefixes=64",),
    "memory-promotion": ("n_memories=2", "n_prompts=2", "n_sets=2", "alpha=0.4", "n_new_tokens=2", "strengths=2.0"),
    "gradient-flow": ("initialization=false", "n_sequences=4", "n_groups=2"),
    "probes": ("tasks=previous-token", "sites=resid_post", "n_train=100", "n_validation=30", "n_test=50"),
    "training-dynamics": ("n_sequences=2", "n_text=2", "n_judged=2", "n_resamples=100"),
}
"""Settings under which a study takes a second; what its page shows does not depend on them."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which runs/demo has the demo's architecture, and one step of training."""
    folder = tmp_path_factory.mktemp("work")
    few = ["train.steps=1", "train.batch_size=2", "train.probe_sequences=2", "data.stdlib_bytes=200000"]
    train(with_settings(demo(), few), folder / "runs/demo", device="cpu")
    return folder


@pytest.mark.parametrize("study", STUDIES)
def test_what_the_page_shows_in_python_is_true(study: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    _make_quick(study, monkeypatch)
    monkeypatch.setattr("analyses.results._write_drawings", lambda *_: None)  # no page reads what is drawn
    outcome = doctest.testfile(str(PAGES / f"{study}.md"), module_relative=False)
    assert outcome.attempted >= 4
    assert outcome.failed == 0
    assert len(shelf_of_run(Path("runs/demo"), study).results) == 1


def _make_quick(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the study, asked with its own settings, compute with those of QUICK."""
    module = get_study(study).module
    in_full = module.run

    def run(subject: Any, config: Any, **options: Any) -> Any:
        return in_full(subject, with_settings(config, list(QUICK[study])), **options)

    monkeypatch.setattr(module, "run", run)
