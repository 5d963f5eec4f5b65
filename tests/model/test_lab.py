from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from model import GPT, GPTConfig
from model.checkpoint import checkpoint_path, save_checkpoint, weights_sha256
from model.errors import CheckpointError, InputError, UnknownNameError
from model.files import write_json
from model.lab import Lab, list_runs, open_run, parse_run_spec, read_metrics, resolve_run
from model.settings import to_plain
from model.training.batches import BatchSource
from model.training.corpus import DataConfig, build_corpus, build_tokenizer

STEPS = (0, 1, 2, 4, 512)
CONFIG = GPTConfig(n_layers=1, n_heads=2, d_model=16, n_ctx=16, d_vocab=257)


def models_of_the_run() -> dict[int, GPT]:
    return {step: GPT(CONFIG, seed=step).eval() for step in STEPS}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a text and a run as training leaves it, except that its weights are random."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "text").mkdir()
    (folder / "text" / "words.txt").write_text("".join(f"line {line} of some words\n" for line in range(60)))
    path = folder / "runs" / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        data = DataConfig(sources=("text:text", "repeats"), min_period=2, max_period=5)
        tokenizer = build_tokenizer(data)
        corpus = build_corpus(data, tokenizer)
    tokenizer.save(path / "tokenizer.json")
    BatchSource(data, corpus, tokenizer, CONFIG.n_ctx).eval_rows().save(path / "eval.safetensors")
    write_json(path / "run.json", {"format": 1, "config": {"data": to_plain(data)}, **corpus.describe()})
    for step, gpt in models_of_the_run().items():
        save_checkpoint(path, gpt, step=step, tokens_seen=step * 100)
    return folder


@pytest.fixture
def models(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, GPT]:
    """A working folder of one's own, with the runs demo and demo-post; gives the models of both by step."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    shutil.copytree(template / "runs" / "demo", tmp_path / "runs" / "demo-post")
    monkeypatch.chdir(tmp_path)
    return models_of_the_run()


@pytest.fixture
def lab(models: dict[int, GPT]) -> Lab:
    return open_run("runs/demo@4")


@pytest.mark.parametrize(
    ("spec", "step"), [("runs/demo@4", 4), ("demo@0", 0), ("runs/demo", 512), ("demo", 512), ("./runs/demo/@2", 2)]
)
def test_a_run_is_opened_by_path_or_name_at_a_step_or_the_last(models: dict[int, GPT], spec: str, step: int) -> None:
    lab = open_run(spec)
    assert (lab.name, lab.step, lab.tokens_seen) == ("demo", step, step * 100)
    assert lab.weights_sha256 == weights_sha256(models[step])
    assert lab.checkpoint_path.samefile(checkpoint_path(Path("runs/demo"), step))
    assert lab.config == CONFIG
    assert not lab.gpt.training


def test_an_absolute_path_opens_too_whatever_it_contains(template: Path, tmp_path: Path) -> None:
    shutil.copytree(template / "runs" / "demo", tmp_path / "a@b" / "run@1")
    assert open_run(tmp_path / "a@b" / "run@1").step == 512
    assert open_run(f"{tmp_path}/a@b/run@1@4").step == 4


def test_a_text_becomes_tokens_behind_bos_and_text_again(lab: Lab) -> None:
    tokens = lab.tokens("añ\n")
    assert tokens.tolist() == [[256, 97, 195, 177, 10]]
    assert lab.text(tokens) == "añ\n"
    assert lab.str_tokens(tokens) == lab.str_tokens("añ\n") == ["<bos>", "a", "\\xc3", "\\xb1", "\\n"]
    assert lab.str_tokens(tokens[0, 1:]) == ["a", "\\xc3", "\\xb1", "\\n"]
    assert lab.gpt(tokens).shape == (1, 5, 257)
    with pytest.raises(InputError, match=r"Tokens of shape \[2, 5\] are 2 sequences"):
        lab.str_tokens(tokens.repeat(2, 1))


def test_the_held_out_tokens_are_those_of_the_run_and_of_its_corpus(lab: Lab) -> None:
    assert lab.eval_tokens.shape[1] == CONFIG.n_ctx
    assert (lab.eval_tokens[:, 0] == 256).all()
    for row, offset in zip(lab.eval_rows.tokens, lab.eval_rows.offsets.tolist(), strict=True):
        assert torch.equal(row[1:], lab.corpus.window(offset, CONFIG.n_ctx - 1))
        assert lab.corpus.where(offset)[0] == "words.txt (end)"
    assert torch.equal(open_run("demo-post@0").eval_tokens, lab.eval_tokens)
    assert lab.gpt.loss(lab.eval_tokens) > 0


def test_a_corpus_that_has_changed_since_training_is_refused(lab: Lab) -> None:
    path = Path("text/words.txt")
    path.write_text(path.read_text() + "one more line\n")
    with pytest.raises(InputError, match=r"The text that demo was trained on has changed.*Restore the files"):
        _ = lab.corpus


def test_an_edited_model_does_not_pass_for_the_trained_one(lab: Lab) -> None:
    before = lab.weights_sha256
    with torch.no_grad():
        lab.gpt.embed.weight[0, 0] += 1
    assert lab.weights_sha256 != before


# --- what does not exist, or is damaged ---


def test_an_unknown_run_names_the_nearest_and_lists_all(models: dict[int, GPT]) -> None:
    with pytest.raises(UnknownNameError) as error:
        open_run("dmo@4")
    assert str(error.value) == 'There is no run "dmo". Did you mean "demo"? Runs in runs: demo, demo-post.'
    with pytest.raises(UnknownNameError, match=r'There is no run "runs/other"\. Runs in runs: demo, demo-post'):
        resolve_run("runs/other")
    with pytest.raises(
        UnknownNameError, match=r"The folder text is no run: it holds no run\.json\. Runs in runs: demo"
    ):
        open_run("text")


def test_where_there_are_no_runs_it_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match="There are no runs in runs yet; `cutaway demo`"):
        open_run("demo")


def test_an_unknown_step_names_the_nearest_and_lists_the_steps(models: dict[int, GPT]) -> None:
    with pytest.raises(
        UnknownNameError, match=r"no checkpoint at step 500; the nearest is runs/demo@512\. There are 0, 1"
    ):
        open_run("demo@500")
    with pytest.raises(UnknownNameError, match='"last" in "demo@last" is no step; write a number, as in demo@512'):
        open_run("demo@last")
    with pytest.raises(InputError, match='"demo@all" names every checkpoint'):
        open_run("demo@all")


def test_a_run_without_checkpoints_says_so(models: dict[int, GPT]) -> None:
    write_json(Path("runs/new/run.json"), {})
    with pytest.raises(UnknownNameError, match="The run runs/new has no whole checkpoint yet; train it first"):
        open_run("new")


def test_a_damaged_last_checkpoint_is_passed_over_and_a_named_one_is_refused(models: dict[int, GPT]) -> None:
    (checkpoint_path(Path("runs/demo"), 512) / "model.safetensors").unlink()
    assert open_run("demo").step == 4
    with pytest.raises(CheckpointError, match=r"step-00000512 is incomplete: model\.safetensors is missing"):
        open_run("demo@512")


@pytest.mark.parametrize("name", ["run.json", "tokenizer.json"])
def test_a_damaged_file_of_the_run_is_named(models: dict[int, GPT], name: str) -> None:
    path = Path("runs/demo") / name
    path.write_text(path.read_text()[:10])
    with pytest.raises(CheckpointError, match=f"{name} is not readable JSON"):
        open_run("demo@4")


@pytest.mark.parametrize("content", ["[]", "3", "null", '"run"'])
def test_a_run_json_that_holds_no_settings_is_named(models: dict[int, GPT], content: str) -> None:
    Path("runs/demo/run.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"run\.json is not what training wrote: it holds no settings"):
        open_run("demo@4")


@pytest.mark.parametrize("content", ["{}", '{"config": []}', '{"config": {"data": null}}'])
def test_a_run_that_does_not_say_what_it_was_trained_on_has_no_corpus(models: dict[int, GPT], content: str) -> None:
    Path("runs/demo/run.json").write_text(content)
    lab = open_run("demo@4")
    with pytest.raises(
        CheckpointError, match=r"run\.json does not say what the run was trained on; restore its config"
    ):
        _ = lab.corpus


def test_a_tokenizer_of_another_run_is_refused(models: dict[int, GPT]) -> None:
    from model.tokenizer import CharTokenizer

    CharTokenizer.train("abc").save(Path("runs/demo/tokenizer.json"))
    with pytest.raises(CheckpointError, match="of different runs: the tokenizer has 4 tokens, the model 257"):
        open_run("demo")


@pytest.mark.parametrize("device", ["gpu", "warp:1"])
def test_an_unknown_device_is_refused(models: dict[int, GPT], device: str) -> None:
    with pytest.raises(InputError, match=f'There is no device "{device}"; take auto, cpu or cuda'):
        open_run("demo", device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_where_there_is_none_is_refused(models: dict[int, GPT], device: str) -> None:
    with pytest.raises(InputError, match="torch sees no CUDA device here"):
        open_run("demo", device=device)


def test_a_spec_is_taken_apart(models: dict[int, GPT]) -> None:
    assert parse_run_spec("demo") == (Path("runs/demo"), None)
    assert parse_run_spec("runs/demo@7") == (Path("runs/demo"), 7)
    assert parse_run_spec("demo@all") == (Path("runs/demo"), "all")


def test_runs_are_listed_by_name(models: dict[int, GPT], tmp_path: Path) -> None:
    (tmp_path / "runs" / "_studies").mkdir()
    assert [path.name for path in list_runs("runs")] == ["demo", "demo-post"]
    assert list_runs("nowhere") == []


def test_metrics_leave_out_an_unfinished_line_and_count_a_repeated_step_once(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    lines = [json.dumps({"step": step, "loss": loss}) for step, loss in [(0, 5.0), (1, 4.0), (2, 3.0), (1, 4.5)]]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 3, "lo')
    assert [(row["step"], row["loss"]) for row in read_metrics(tmp_path)] == [(0, 5.0), (1, 4.5), (2, 3.0)]


def test_a_damaged_line_of_metrics_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    with pytest.raises(CheckpointError, match=r"Line 2 of .*metrics\.jsonl is no row of metrics"):
        read_metrics(tmp_path)
