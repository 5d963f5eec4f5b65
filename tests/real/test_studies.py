"""Four studies on the real model, imported as a run, within stated time and memory.

Each runs in a process of its own, as the command runs it, so that what they cost is not what other tests hold. Their
time is processor time, which other work on the machine changes little: so many minutes of it are at most as many on the
clock, and half of them where two cores are free.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from analyses import attention_patterns, head_ablation
from analyses.shelf import shelf
from analyses.study import STUDIES, SavedResult, untold
from model.interop.exchange import import_model, text_of
from model.lab import open_run

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]

SETTINGS = {
    "attention-patterns": (
        *("n_sequences=8", "n_text=8", "periods=16", "n_resamples=1000"),
        *("n_tokens=2048", "max_ablated=8"),
    ),
    "head-ablation": ("n_sequences=4", "n_controls=19", "period=12"),
    "ffn-memories": ("n_tokens=20000",),
    "gradient-flow": ("n_sequences=8", "n_groups=4", "initialization=false"),
}
MINUTES, GIGABYTES = 30, 6.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The studies' answers, and what all of them cost."""

    answers: dict[str, SavedResult]
    minutes: float
    """Of processor time, together."""
    gigabytes: float
    """The largest of their processes."""


@pytest.fixture(scope="module")
def asked(gguf_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    run = import_model(gguf_file, tmp_path_factory.mktemp("runs") / "smollm2", data=text_of(["stdlib"]), n_ctx=32)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for study, settings in SETTINGS.items():
        stated = [part for setting in settings for part in ("--set", setting)]
        subprocess.run(
            [sys.executable, "-m", STUDIES[study], str(run), *stated], check=True, cwd=Path(__file__).parents[2]
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answers = {study: shelf(run, study).results[0] for study in SETTINGS}
    return Asked(answers=answers, minutes=seconds / 60, gigabytes=after.ru_maxrss / 2**20)


@pytest.fixture(scope="module")
def answers(asked: Asked) -> dict[str, SavedResult]:
    return asked.answers


def test_they_fit_into_the_time_and_the_memory_of_a_small_machine(asked: Asked) -> None:
    assert asked.minutes < MINUTES
    assert asked.gigabytes < GIGABYTES


def test_each_says_that_nothing_is_known_of_the_training(answers: dict[str, SavedResult]) -> None:
    for saved in answers.values():
        said = untold(saved)
        assert said is not None
        assert "smollm2 was imported from the GGUF file" in said
        assert "nothing is on record of how it was trained" in said
    patterns, gradients = answers["attention-patterns"].result, answers["gradient-flow"].result
    assert patterns.at_step_zero is None
    assert patterns.trained_periods is None
    assert gradients.run is None
    assert gradients.checkpoint.initial is None
    assert answers["ffn-memories"].result.initial is None


def test_induction_heads_are_found_and_the_model_copies(answers: dict[str, SavedResult]) -> None:
    patterns, ablations = answers["attention-patterns"].result, answers["head-ablation"].result
    heads = attention_patterns.found_heads(patterns, attention_patterns.Kind.INDUCTION)
    assert {(18, 6), (17, 4)} <= set(heads)
    assert ablations.copying.mean > 3
    assert head_ablation.findings(ablations)


def test_memories_are_replayed_to_their_coefficients(answers: dict[str, SavedResult]) -> None:
    result = answers["ffn-memories"].result
    assert result.n_replayed >= 30 * 16
    assert result.replay_error < 1e-2
    assert len(result.reading.summary.layers) == 30
    assert result.n_prefixes >= 20_000
    assert (result.reading.activity.negative_rate.median(-1).values > 0.3).all(), "swiglu goes below zero as often"


def test_values_of_deep_layers_agree_with_their_triggers_and_those_of_early_layers_hardly(
    answers: dict[str, SavedResult],
) -> None:
    shares = [layer.agreement.share for layer in answers["ffn-memories"].result.reading.summary.layers]
    assert sum(shares[20:]) >= 3 * sum(shares[:10])


def test_the_run_is_the_model_with_a_shorter_context(answers: dict[str, SavedResult]) -> None:
    lab = open_run(answers["head-ablation"].path.parents[2])
    assert lab.step == 1, "the file says no step, and step 0 would mean untrained"
    assert lab.config.n_ctx == 32
    assert lab.config.n_params == 134_515_008
    assert lab.imported_from is not None
