"""A run's folder is given to one writer, for one configuration, and refused in a sentence otherwise."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model.errors import ConfigError, CutawayError, TrainingError
from model.settings import with_settings
from model.training import RunConfig, saved_config, train
from model.training.run_files import claimed, refuse_changes, refuse_unless_free

Small = Callable[..., RunConfig]


def test_a_folder_that_holds_a_run_is_refused_without_resume(small: Small, finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    with pytest.raises(TrainingError, match="already holds a run; add --resume to go on with it, or choose another"):
        train(small(), finished, device="cpu")
    assert before == {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}


def test_a_folder_of_other_things_is_refused_either_way(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(TrainingError, match="is not empty, and a run needs a folder of its own"):
        refuse_unless_free(tmp_path, resume=False)
    with pytest.raises(TrainingError, match=r"is not a run: it holds other files and no run\.json"):
        refuse_unless_free(tmp_path, resume=True)


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(TrainingError, match="is a file, not a folder"):
        refuse_unless_free(tmp_path / "run", resume=False)


def test_resuming_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"There is no run at .*missing to resume; check the name"):
        refuse_unless_free(tmp_path / "missing", resume=True)


def test_an_empty_folder_and_one_that_a_kill_left_half_set_up_are_free(tmp_path: Path) -> None:
    refuse_unless_free(tmp_path, resume=False)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / ".partial-run.json.1.abcdef01").write_text("{")
    refuse_unless_free(tmp_path, resume=True)
    refuse_unless_free(tmp_path, resume=False)


def test_two_writers_cannot_hold_one_folder(tmp_path: Path) -> None:
    first, second = claimed(tmp_path / "run"), claimed(tmp_path / "run")
    with first, pytest.raises(TrainingError, match="Another process is training in"), second:
        pass
    with claimed(tmp_path / "run"):
        pass


def test_a_refused_run_leaves_no_folder_behind(small: Small, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model\.d_vocab=300, but the bytes tokenizer has 257 tokens; set model\.d_vocab"
    ):
        train(small(model={"d_vocab": 300}), tmp_path / "run", device="cpu")
    assert list(tmp_path.iterdir()) == []


def refuse(*_arguments: Any, **_options: Any) -> None:
    raise PermissionError(errno.EACCES, "denied")


def test_a_folder_without_rights_is_refused_in_a_sentence(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:  # root may do anything, so the refusal is the system's in name only
        monkeypatch.setattr(Path, "mkdir", refuse)
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(CutawayError, match="run could not be written: no right to do so"):
        train(small(), tmp_path / "run", device="cpu")


def test_a_changed_setting_is_named_when_a_run_is_resumed(small: Small, tmp_path: Path) -> None:
    config = small()
    for setting, sentence in {
        "optim.lr=0.5": r"started with optim\.lr=0\.01, and now optim\.lr=0\.5 is asked for",
        "model.norm=post": r"started with model\.norm=pre, and now model\.norm=post",
        "data.sources=stdlib": r"started with data\.sources=stdlib=0\.5,repeats=0\.5, and now data\.sources=stdlib is",
        "train.copy_period=2": r"started with train\.copy_period=none, and now train\.copy_period=2",
    }.items():
        with pytest.raises(ConfigError, match=sentence):
            refuse_changes(config, with_settings(config, [setting]), tmp_path)
    refuse_changes(config, with_settings(config, ["optim.lr=0.01"]), tmp_path)


def test_run_json_shows_every_setting_and_where_the_loss_began(small: Small, tmp_path: Path) -> None:
    config = with_settings(small(steps=1), ["model.norm=post", "optim.weight_decay=0.03", "data.seed=4"])
    train(config, tmp_path / "run", device="cpu")
    content = json.loads((tmp_path / "run" / "run.json").read_text())
    assert content["config"]["model"]["norm"] == "post"
    assert content["config"]["optim"]["weight_decay"] == 0.03
    assert content["config"]["data"]["seed"] == 4
    assert content["config"]["model"]["d_ff"] == 64, "what followed from other settings is spelled out"
    assert content["n_params"] == config.model.n_params
    assert content["loss_at_step_0"] == pytest.approx(content["ln_d_vocab"], abs=0.1)
    assert {"torch", "python", "cutaway"} <= content["versions"].keys()
    assert len(content["corpus_sha256"]) == 64
    assert saved_config(tmp_path / "run") == config


def test_a_run_json_that_is_none_is_refused(tmp_path: Path) -> None:
    for content in ("[]", "{}", '{"config": []}', '{"config": {}}'):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(TrainingError, match="is not what training wrote"):
            saved_config(tmp_path)
    with pytest.raises(TrainingError, match="holds no run"):
        saved_config(tmp_path / "elsewhere")
