"""A run is a function of its config, however often it is stopped and however closely it is watched."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from model import GPT
from model.checkpoint import checkpoint_path, checkpoint_steps, load_checkpoint, load_train_state, read_manifest
from model.errors import CheckpointError, ConfigError, TrainingError
from model.settings import with_settings
from model.training import Interrupted, RunConfig, train
from tests.model.training.conftest import lasting_rows

Small = Callable[..., RunConfig]


class StopAt:
    """A watcher that presses Ctrl-C when a step is reached."""

    def __init__(self, step: int, which: signal.Signals = signal.SIGINT) -> None:
        self.step, self.which = step, which
        self.said: list[str] = []
        self.rows: list[Mapping[str, Any]] = []

    def on_step(self, step: int, steps: int, row: Mapping[str, Any] | None) -> None:
        self.rows += [] if row is None else [row]
        if step == self.step:
            os.kill(os.getpid(), self.which)

    def message(self, text: str) -> None:
        self.said.append(text)


def weights_of(run_dir: Path, step: int) -> str:
    return read_manifest(checkpoint_path(run_dir, step)).weights_sha256


def assert_same_run(one: Path, other: Path, step: int) -> None:
    """Weights, optimizer state and metrics are the same, bit for bit."""
    assert weights_of(one, step) == weights_of(other, step)
    first, second = (load_train_state(checkpoint_path(run, step)) for run in (one, other))
    assert first is not None
    assert second is not None
    assert first[0].keys() == second[0].keys()
    assert all(torch.equal(first[0][name], second[0][name]) for name in first[0])
    assert lasting_rows(one) == lasting_rows(other)


def test_a_run_leaves_what_the_design_says(finished: Path) -> None:
    names = {"run.json", "metrics.jsonl", "tokenizer.json", "eval.safetensors", "checkpoints"}
    assert {path.name for path in finished.iterdir()} == names
    assert checkpoint_steps(finished) == [0, 1, 2, 4, 8, 12]
    assert read_manifest(checkpoint_path(finished, 8)).tokens_seen == 8 * 4 * 16


def test_rows_say_what_was_measured_at_every_logged_step(small: Small, finished: Path) -> None:
    rows = lasting_rows(finished)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4, 6, 8, 9, 12]
    first, last = rows[0], rows[-1]
    losses = {"loss", "eval_loss", "bits_per_byte", "copy_loss", "first_copy_loss"}
    norms = {"grad_norm", "grad_norms", "resid_norms", "resid_grad_norms"}
    assert {"step", "tokens", "lr", "update_ratio", *losses, *norms} == first.keys()
    assert first.keys() - last.keys() == {"update_ratio"}, "nothing is updated after the last step"
    assert first["grad_norms"].keys() == first["update_ratio"].keys() == GPT(small().model).parameter_groups().keys()
    assert last["loss"] < first["loss"]


def test_checkpoint_zero_is_the_initialisation_and_one_is_after_one_step(small: Small, finished: Path) -> None:
    gpt, start = GPT(small().model, seed=0), load_checkpoint(checkpoint_path(finished, 0))
    assert all(torch.equal(a, b) for a, b in zip(gpt.parameters(), start.parameters(), strict=True))
    after_one = load_checkpoint(checkpoint_path(finished, 1))
    moved = (after_one.embed.weight - start.embed.weight).abs().max()
    rate = lasting_rows(finished)[0]["lr"]
    assert 0 < moved < 1.2 * rate, "one Adam update of the first, warmed-up rate"


def test_the_same_seed_gives_identical_weights_and_another_does_not(
    small: Small, finished: Path, tmp_path: Path
) -> None:
    for name, seed in (("same", 0), ("other", 1)):
        train(small(seed=seed), tmp_path / name, device="cpu")
    assert_same_run(finished, tmp_path / "same", 12)
    assert weights_of(finished, 12) != weights_of(tmp_path / "other", 12)


def test_watching_a_run_closely_changes_nothing_in_it(small: Small, finished: Path, tmp_path: Path) -> None:
    train(small(log_every=1, eval_sequences=9, probe_sequences=4), tmp_path / "watched", device="cpu")
    assert weights_of(tmp_path / "watched", 12) == weights_of(finished, 12)


@pytest.mark.parametrize(
    ("changes", "which"),
    [
        ({}, signal.SIGTERM),
        ({"optim": {"optimizer": "muon"}}, signal.SIGINT),
        ({"model": {"dropout": 0.2}}, signal.SIGINT),
    ],
    ids=["adamw", "muon", "dropout"],
)
def test_a_run_stopped_and_resumed_equals_one_that_never_stopped(
    small: Small, tmp_path: Path, changes: dict[str, Any], which: signal.Signals
) -> None:
    config = small(accumulate=2, **changes)
    whole = train(config, tmp_path / "straight", device="cpu")
    assert (whole.steps, whole.tokens, whole.resumed_at) == (12, 12 * 4 * 16, 0)
    assert "12 steps, 768 tokens" in str(whole)
    with pytest.raises(Interrupted, match=r"Stopped at step 7 of 12; everything is saved .* and --resume"):
        train(config, tmp_path / "stopped", device="cpu", progress=StopAt(6, which))
    assert checkpoint_steps(tmp_path / "stopped")[-1] == 7
    watcher = StopAt(-1)
    summary = train(config, tmp_path / "stopped", resume=True, device="cpu", progress=watcher)
    assert summary.resumed_at == 7
    assert watcher.said == ["Going on from step 7."]
    assert_same_run(tmp_path / "straight", tmp_path / "stopped", 12)


def test_handlers_and_number_modes_are_as_before(small: Small, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted):
        train(small(), tmp_path / "run", device="cpu", progress=StopAt(2))
    assert signal.getsignal(signal.SIGINT) is before
    assert torch.tensor(1e-39) / 10 > 0, "denormal numbers are numbers again"


def test_only_the_last_checkpoints_keep_the_optimizer_state(finished: Path) -> None:
    has_state = [load_train_state(checkpoint_path(finished, step)) is not None for step in (0, 1, 2, 4, 8, 12)]
    assert has_state == [False, False, False, False, True, True]


def test_a_damaged_last_checkpoint_is_passed_over_and_made_again(small: Small, finished: Path, own_copy: Path) -> None:
    weights = checkpoint_path(own_copy, 12) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    watcher = StopAt(-1)
    train(small(), own_copy, resume=True, device="cpu", progress=watcher)
    assert "Checkpoint 12 cannot be used" in watcher.said[0]
    assert watcher.said[1] == "Going on from step 8."
    assert_same_run(finished, own_copy, 12)


def test_without_any_whole_state_resuming_is_refused_and_nothing_is_overwritten(small: Small, own_copy: Path) -> None:
    for step in (8, 12):
        (checkpoint_path(own_copy, step) / "train_state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"None of the checkpoints .* holds an undamaged optimizer state"):
        train(small(), own_copy, resume=True, device="cpu")
    assert checkpoint_steps(own_copy) == [0, 1, 2, 4, 8, 12]


def test_a_finished_run_is_resumed_without_effect(small: Small, finished: Path, own_copy: Path) -> None:
    assert train(small(), own_copy, resume=True, device="cpu").resumed_at == 12
    assert_same_run(finished, own_copy, 12)


def test_resuming_with_another_setting_is_refused_by_name(small: Small, finished: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.steps=12, and now train\.steps=20 is asked for"):
        train(small(steps=20), finished, resume=True, device="cpu")


def test_resuming_on_changed_text_is_refused(small: Small, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 200)
    config = with_settings(small(steps=2), [f"data.sources=text:{tmp_path / 'text.txt'}"])
    train(config, tmp_path / "run", device="cpu")
    (tmp_path / "text.txt").write_text("the dog sat on the mat\n" * 200)
    with pytest.raises(TrainingError, match=r"The text that .* was started on has changed"):
        train(config, tmp_path / "run", resume=True, device="cpu")


def test_resuming_on_damaged_metrics_is_refused_and_nothing_is_overwritten(small: Small, own_copy: Path) -> None:
    path = own_copy / "metrics.jsonl"
    path.write_text("broken\n" + path.read_text())
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"Line 1 of .*metrics\.jsonl is no row of metrics"):
        train(small(), own_copy, resume=True, device="cpu")
    assert path.read_bytes() == before


def test_text_that_is_never_drawn_is_counted_and_told_where_it_is_much(small: Small, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for index in range(50):
        (folder / f"short {index}.txt").write_text("the cat\n")
        (folder / f"long {index % 10}.txt").write_text("the cat sat on the mat\n" * 9)
    config = with_settings(small(steps=1), [f"data.sources=text:{folder}", "data.held_out=0.2"])
    watcher = StopAt(-1)
    train(config, tmp_path / "run", device="cpu", progress=watcher)
    corpus = json.loads((tmp_path / "run" / "run.json").read_text())["corpus"]
    unused, n_trained = corpus["n_tokens_never_drawn"], corpus["n_tokens"] - corpus["n_held_out_tokens"]
    assert 0 < unused < 50 * 8
    assert unused % 8 == 0
    assert (
        f"training documents ({unused / n_trained:.1%} of the training text) are too short for a row" in watcher.said[0]
    )
    assert watcher.said[0].startswith(f"{unused // 8} of the ")


def test_nothing_is_said_where_little_text_is_never_drawn(small: Small, tmp_path: Path) -> None:
    watcher = StopAt(-1)
    train(small(steps=1), tmp_path / "run", device="cpu", progress=watcher)
    assert not any("never drawn" in text for text in watcher.said)


def test_a_device_that_is_not_there_is_refused(small: Small, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='There is no device "tpu"; take auto, cpu or cuda'):
        train(small(), tmp_path / "run", device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch sees no CUDA device here; take --device cpu or auto"):
            train(small(), tmp_path / "run", device="cuda")


def test_the_placement_of_the_norm_set_from_outside_reaches_the_forward_pass(small: Small) -> None:
    rows = torch.arange(16)[None]
    pre, post = (GPT(with_settings(small(), [f"model.norm={norm}"]).model)(rows) for norm in ("pre", "post"))
    assert (pre - post).abs().max() > 1e-3
