"""The runner and the files it leaves: round trips, provenance, reuse, and files that are not what they were."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from analyses import registry, results, study
from analyses.records import decode, encode, same
from analyses.shelf import shelf
from model.errors import CheckpointError, ConfigError, CutawayError, InputError, UnknownNameError
from model.lab import Lab
from model.tokenizer import ByteTokenizer
from tests.analyses import toy_study
from tests.conftest import make_gpt_with
from tests.ranks import together

CONFIG = toy_study.Config()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    """The toy study under the name "toy"."""
    monkeypatch.setattr(registry, "STUDIES", MappingProxyType({"toy": "tests.analyses.toy_study"}))
    return "toy"


@dataclass(frozen=True, kw_only=True, eq=False)
class ToyLab(Lab):
    """An opened checkpoint with a weight to double; its hash is the step's."""

    weight: float

    @property
    def weights_sha256(self) -> str:
        return f"w{self.step}"


@pytest.fixture
def lab(tmp_path: Path) -> ToyLab:
    return ToyLab(
        gpt=make_gpt_with(n_layers=1), tokenizer=ByteTokenizer(), path=tmp_path / "tiny", step=8, tokens_seen=1024,
        run_config={"corpus_sha256": "def"}, weight=3.0,
    )  # fmt: skip


@pytest.fixture
def checkpoints(lab: ToyLab, monkeypatch: pytest.MonkeyPatch) -> ToyLab:
    """Three checkpoints of one run, opened by spec; the weight is the step."""
    steps = {0: 1.0, 4: 2.0, 8: 3.0}

    def opened(spec: str, _device: str) -> list[Callable[[], ToyLab]]:
        _, _, step = spec.partition("@")
        wanted = list(steps) if step == "all" else [int(step or 8)]
        return [partial(replace, lab, step=each, weight=steps[each]) for each in wanted]

    monkeypatch.setattr(study, "_checkpoints", opened)
    return lab


def test_a_record_comes_back_equal_and_typed() -> None:
    result = toy_study.run(None, CONFIG)
    tree, tensors = encode(result)
    back = decode(toy_study.Result, json.loads(json.dumps(tree, allow_nan=False)), tensors)
    assert same(back, result)
    assert back.colour is toy_study.Colour.BLUE
    assert isinstance(back.parts, tuple)
    assert back.config == CONFIG


def test_encoding_copies_so_that_a_later_edit_does_not_reach_the_record() -> None:
    result = toy_study.run(None, CONFIG)
    _, tensors = encode(result)
    result.doubled.zero_()
    assert tensors["doubled"][0, 0] == 2


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda tree: tree.pop("step"), "Result should have the fields"),
        (lambda tree: tree.update(extra=1), "has .*extra"),
        (lambda tree: tree.update(colour="green"), "colour='green' is not a value of Colour"),
        (lambda tree: tree.update(step=True), "step=True is not int"),
        (lambda tree: tree.update(doubled=[1.0]), "doubled should be a saved tensor"),
        (lambda tree: tree["parts"][1].update(name=3), r"parts\[1\].name=3 is not str"),
    ],
)
def test_a_tree_that_does_not_fit_the_class_is_refused_by_place(spoil: Any, sentence: str) -> None:
    tree, tensors = encode(toy_study.run(None, CONFIG))
    spoil(tree)
    with pytest.raises(CheckpointError, match=sentence):
        decode(toy_study.Result, tree, tensors)


def test_what_no_record_can_hold_is_a_type_error() -> None:
    @dataclass(frozen=True)
    class Odd:
        thing: object

    with pytest.raises(TypeError, match="thing is a object"):
        encode(Odd(object()))


def test_a_study_is_saved_with_its_provenance_and_read_back(toy: str, checkpoints: Any) -> None:
    saved = study.run_study(toy, "tiny@8", ["factor=3", "seed=5"])
    assert saved.path.parent == checkpoints.path / "studies" / "toy"
    assert saved.path.name.startswith("00000008-")
    names = {"result.safetensors", "result.json", "figure.json", "figure.svg", "table.csv"}
    assert {file.name for file in saved.path.iterdir()} == names
    again = study.load_result(saved.path)
    assert again.result.doubled[0, 0] == 9
    assert same(again.result, toy_study.run(SimpleNamespace(weight=3.0), toy_study.Config(factor=3.0, seed=5)))
    kept = again.provenance
    assert (kept.run, kept.step, kept.tokens_seen, kept.seed) == ("tiny", 8, 1024, 5)
    assert (kept.weights_sha256, kept.corpus_sha256) == ("w8", "def")
    assert kept.versions["torch"] == torch.__version__.partition("+")[0] or torch.__version__ in kept.versions["torch"]
    assert again.config == toy_study.Config(factor=3.0, seed=5)
    assert json.loads(again.to_json())["findings"][0]["sentence"] == "Twice the weight is 9."


def test_every_checkpoint_of_a_run_is_studied_for_all(toy: str, checkpoints: Any) -> None:
    last = study.run_study(toy, "tiny@all")
    found = shelf(checkpoints.path, toy).results
    assert [saved.provenance.step for saved in found] == [0, 4, 8]
    assert [float(saved.result.doubled[0, 0]) for saved in found] == [2, 4, 6]
    assert last.path == found[-1].path


def test_checkpoints_are_dealt_to_processes_and_the_first_one_has_all_results(
    toy: str, checkpoints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[int] = []
    real = toy_study.run
    monkeypatch.setattr(toy_study, "run", lambda s, c, **_: answered.append(s.step) or real(s, c))
    monkeypatch.setattr(toy_study, "NEEDS_RUN", True)
    monkeypatch.setattr(results, "clean_leftovers", lambda _folder: None)  # one process here, and so all its own
    leading, follower = together(2, lambda world: study.run_everywhere(toy, "tiny@all", world=world))
    assert follower == []
    assert [saved.provenance.step for saved in leading] == [0, 4, 8]
    assert [float(saved.result.doubled[0, 0]) for saved in leading] == [2, 4, 6]
    assert sorted(answered) == [0, 4, 8]
    answered.clear()
    one, other = together(2, lambda world: study.run_everywhere(toy, "tiny@8", reuse=False, world=world))
    assert ([saved.provenance.step for saved in one], other, answered) == ([8], [], [8])  # not a study that is shared


def test_a_saved_result_is_reused_until_weights_or_config_change(
    toy: str, checkpoints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []
    real = toy_study.run
    monkeypatch.setattr(toy_study, "run", lambda s, c, **_: calls.append(c.factor) or real(s, c))
    first = study.run_study(toy, "tiny@8")
    study.run_study(toy, "tiny@8")
    assert calls == [2.0]
    study.run_study(toy, "tiny@8", ["factor=4"])
    study.run_study(toy, "tiny@8", reuse=False)
    assert calls == [2.0, 4.0, 2.0]
    record = json.loads((first.path / "result.json").read_text())
    record["provenance"]["weights_sha256"] = "other"
    (first.path / "result.json").write_text(json.dumps(record))
    study.run_study(toy, "tiny@8")
    assert calls[3:] == [2.0]


def test_a_result_is_not_reused_when_a_file_the_study_reads_has_changed(
    toy: str, checkpoints: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("1\n")
    monkeypatch.setattr(toy_study, "inputs", lambda subject, config: [log], raising=False)
    first = study.run_study(toy, "tiny@8")
    assert study.run_study(toy, "tiny@8").provenance == first.provenance
    log.write_text("1\n2\n")
    assert study.run_study(toy, "tiny@8").provenance.inputs_sha256 != first.provenance.inputs_sha256


def test_a_study_of_no_run_lives_beside_the_runs(toy: str, tmp_path: Path) -> None:
    saved = study.run_study(toy, None, runs=tmp_path / "runs")
    assert saved.path.parent == tmp_path / "runs" / "_studies" / "toy"
    assert saved.path.name.startswith("init-")
    assert [r.path for r in shelf(tmp_path / "runs" / "any", toy).results] == [saved.path]


def test_a_failure_while_saving_leaves_the_older_result_and_no_litter(
    toy: str, checkpoints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = study.run_study(toy, "tiny@8")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "_write_drawings", full)
    with pytest.raises(CutawayError, match=r"The disk is full: .* could not be written"):
        study.run_study(toy, "tiny@8", reuse=False)
    assert [each.name for each in saved.path.parent.iterdir()] == [saved.path.name]
    assert study.load_result(saved.path).result.doubled[0, 0] == 6


def test_altered_tensors_are_noticed(toy: str, checkpoints: Any) -> None:
    saved = study.run_study(toy, "tiny@8")
    file = saved.path / "result.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(CheckpointError, match=r"not the file that result.json describes.*Run the study again"):
        _ = study.load_result(saved.path).result
    assert study.run_study(toy, "tiny@8").result.doubled[0, 0] == 6


@pytest.mark.parametrize(
    ("text", "sentence"), [("{", "cannot be read"), ("{}", "not a result of format 1"), (None, "missing")]
)
def test_a_broken_record_is_one_sentence(toy: str, checkpoints: Any, text: str | None, sentence: str) -> None:
    saved = study.run_study(toy, "tiny@8")
    file = saved.path / "result.json"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(CheckpointError, match=sentence):
        study.load_result(saved.path)


def test_unknown_names_say_what_exists(toy: str, checkpoints: Any) -> None:
    with pytest.raises(UnknownNameError, match=r'no study "toyy"\. Did you mean "toy"'):
        study.run_study("toyy", "tiny@8")
    with pytest.raises(ConfigError, match="factro"):
        study.run_study(toy, "tiny@8", ["factro=1"])


def test_a_study_that_needs_a_model_says_so() -> None:
    with pytest.raises(InputError, match="needy studies a trained model; name one"):
        study.Study("needy", _module(_needs_a_model)).run(None, None)


def _module(run: Any) -> ModuleType:
    module = ModuleType("made_up")
    module.run = run
    return module


def _needs_a_model(subject: Any, config: Any) -> None:
    raise AssertionError("must not be reached")


def test_progress_reaches_studies_that_take_it() -> None:
    seen: list[Any] = []

    def run(subject: Any, config: Any, *, progress: Any = None) -> None:
        progress(1, 2, "half")

    study.Study("p", _module(run)).run("a lab", None, progress=lambda *step: seen.append(step))
    assert seen == [(1, 2, "half")]


def test_the_device_is_decided_once_refused_if_unknown_and_recorded(
    toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = toy_study.run
    monkeypatch.setattr(study, "STUDIES", registry.STUDIES)
    monkeypatch.setattr(toy_study, "run", lambda s, c, *, progress, device: seen.append(device) or real(s, c))
    with pytest.raises(InputError, match='no device "banana"'):
        study.run_study(toy, None, device="banana", runs=tmp_path)
    saved = study.run_study(toy, None, device="auto", runs=tmp_path)
    assert seen == [saved.provenance.device]
    assert torch.device(saved.provenance.device).type in ("cpu", "cuda")
    assert study._parser(toy).parse_args([]).device == "auto"  # as in `cutaway run`


def test_studies_agree_with_what_the_registry_says_of_them() -> None:
    """A study takes `progress` by name, and one that needs no run takes `device` too: the registry passes them."""
    for name in registry.STUDIES:
        known = study.get_study(name)
        named = {p.name for p in inspect.signature(known.module.run).parameters.values() if p.kind is p.KEYWORD_ONLY}
        named -= {"keeper"} if known.is_shared else set()
        assert named == ({"progress"} if known.needs_run else {"progress", "device"}), name
    assert [name for name in registry.STUDIES if not study.get_study(name).needs_run] == ["gradient-flow"]


def test_the_module_command_prints_findings_or_json_and_exits_2_on_a_users_error(
    toy: str, checkpoints: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "STUDIES", registry.STUDIES)
    assert study.main(toy, ["tiny@8"]) == 0
    assert capsys.readouterr().out.startswith("Twice the weight is 6.\nSaved in ")
    assert study.main(toy, ["tiny@all", "--json"]) == 0
    assert [each["provenance"]["step"] for each in json.loads(capsys.readouterr().out)] == [0, 4, 8]
    assert study.main(toy, ["tiny@8", "--set", "factor=x"]) == 2
    assert "is not a number" in capsys.readouterr().err


def test_same_tells_records_apart() -> None:
    result = toy_study.run(None, CONFIG)
    other: Tensor = result.doubled.clone()
    other[0, 1] = 1
    assert same(result, replace(result))
    assert not same(result, replace(result, doubled=other))


def test_nan_is_the_same_as_nan_and_as_nothing_else() -> None:
    nan, zero = torch.tensor([float("nan")]), torch.tensor([0.0])
    assert same(nan, nan.clone())
    assert not same(nan, zero)
    assert not same(torch.tensor([float("inf")]), torch.tensor([torch.finfo(torch.float32).max]))
    assert not same(zero, zero.double())
    assert not same(zero, torch.zeros(2))
