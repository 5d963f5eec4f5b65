"""`cutaway import` and `cutaway export`: what they make and say, how they fail; and who meets an imported run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner, Result

from apps.cli import app
from apps.dashboard import launch
from model import GPT, GPTConfig
from model.checkpoint import checkpoint_steps, save_checkpoint
from model.lab import open_run
from tests.dashboard_pages import said
from tests.model.interop.imports import nano_file
from tests.undrawn import undrawn

pytestmark = pytest.mark.whole

CHARS = ("--tokenizer", "chars:source/input.txt")
STUDIES = {
    "attention-patterns": ("n_sequences=8", "n_text=4", "n_resamples=100", "n_tokens=2048"),
    "head-ablation": ("n_sequences=8", "n_controls=4"),
}
"""Studies that are asked of the imported run, with settings under which they take a second."""


def cutaway(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a nanoGPT checkpoint and the run imported from it, which two studies have been asked of."""
    root = tmp_path_factory.mktemp("work")
    nano_file(root / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert cutaway("import", "source/ckpt.pt", "--out", "runs/nano", *CHARS).exit_code == 0
        for study, settings in STUDIES.items():
            chosen = [part for setting in settings for part in ("--set", setting)]
            with undrawn():
                asked = cutaway("run", study, "nano", "--device", "cpu", *chosen)
            assert asked.exit_code == 0
            assert "nano@250" in asked.stdout
            assert "nano was imported from the nanoGPT checkpoint source/ckpt.pt: nothing is on record" in asked.stderr
    return root


@pytest.fixture
def work(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- import ---


def test_an_import_says_what_it_made_and_every_note(work: Path) -> None:
    result = cutaway("import", "source", *CHARS, "--n-ctx", 16, "--data", "text:source/input.txt")
    assert result.exit_code == 0
    assert "Imported the nanoGPT checkpoint source/ckpt.pt as runs/source@250: " in result.stdout
    assert "2 layers of 4 heads, context 16." in result.stdout
    for note in json.loads(Path("runs/source/run.json").read_text())["imported"]["notes"]:
        assert note in result.stderr
    assert "cropped from 24 to 16" in result.stderr
    assert open_run("source").config.n_ctx == 16


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("source/ckpt.pt", "source"),
        ("source", "source"),
        ("hf:owner/some.model", "some.model"),
        ("gpt2", "gpt2"),
        ("models/llama-q4.gguf", "llama-q4"),
        ("models/llama/config.json", "llama"),
    ],
)
def test_without_a_name_a_run_is_called_as_its_source(where: str, name: str, work: Path) -> None:
    from apps.commands.exchange import _name_of

    assert _name_of(where) == name


MISTAKES = {
    "nothing there": (
        ("import", "source/none.pt"),
        r"There is nothing at source/none\.pt; give a Hugging Face directory",
    ),
    "no model": (("import", "source/input.txt"), r"input\.txt is no model that can be imported"),
    "no tokenizer": (("import", "source/ckpt.pt"), r"A run needs a tokenizer.*With --tokenizer give bytes, chars:FILE"),
    "a taken name": (("import", "source/ckpt.pt", "--out", "runs/nano", *CHARS), "already holds a run; choose another"),
    "a run": (("import", "runs/nano"), "runs/nano is a run of Cutaway already; use it as it is"),
    "a context too long": (("import", "source/ckpt.pt", "--n-ctx", 99, *CHARS), "n_ctx=99 is longer than the model's"),
    "an unknown source of text": (("import", "source", "--data", "stdlb", *CHARS), 'no data source "stdlb"'),
    "an unknown format": (("export", "nano", "--out", "new", "--format", "onnx"), 'There is no export format "onnx"'),
    "a run that is not there": (("export", "none", "--out", "new"), 'There is no run "none"'),
    "a folder in use": (("export", "nano", "--out", "source"), "source is not an empty folder; choose another"),
    "going on with what was imported": (("train", "tiny", "--out", "runs/nano", "--resume"), "nano was imported from"),
    "no text to begin with": (("generate", "nano"), "has no BOS to begin a document with; give a text as --prompt"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_a_sentence_and_exit_2(mistake: str, work: Path) -> None:
    arguments, expected = MISTAKES[mistake]
    before = sorted(work.rglob("*"))
    result = cutaway(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert re.search(expected, result.stderr.replace("\n", " ")), result.stderr
    assert sorted(work.rglob("*")) == before


def test_weights_that_are_no_numbers_are_said_with_their_tensor_and_count(work: Path) -> None:
    content = torch.load("source/ckpt.pt", weights_only=True)
    content["model"]["transformer.wpe.weight"][3, :2] = torch.tensor([float("nan"), float("inf")])
    torch.save(content, "source/ckpt.pt")
    result = cutaway("import", "source", *CHARS)
    assert result.exit_code == 0
    assert "Some weights are NaN or infinite, as stored: pos_embed.weight (2 of 384)" in result.stderr
    note = next(note for note in open_run("source").run_config["imported"]["notes"] if "NaN" in note)
    assert "blocks" not in note


# --- export ---


def test_an_exported_run_comes_back_bit_for_bit(work: Path) -> None:
    config = GPTConfig(
        n_layers=2, n_heads=4, n_kv_heads=2, d_model=32, n_ctx=24, d_vocab=257, ffn="swiglu", embed_std=1.0
    )
    assert cutaway("train", "tiny", "--set", "train.steps=1", "--set", "data.stdlib_bytes=60000",
                   "--device", "cpu").exit_code == 0  # fmt: skip
    save_checkpoint(Path("runs/tiny"), GPT(config, seed=4), step=1, tokens_seen=64)
    result = cutaway("export", "runs/tiny@1", "--out", "theirs")
    assert result.exit_code == 0
    assert "Wrote runs/tiny@1 to theirs: " in result.stdout
    assert "AutoModelForCausalLM.from_pretrained('theirs')" in result.stdout
    for file in Path("theirs").iterdir():
        assert f"{file.name} ({file.stat().st_size:,} bytes)" in result.stdout
    again = cutaway("export", "runs/tiny@1", "--out", "theirs")
    assert again.exit_code == 2
    assert "theirs is not an empty folder; choose another" in again.stderr
    assert cutaway("import", "theirs").exit_code == 0
    ours, back = open_run("tiny@1"), open_run("theirs")
    assert back.weights_sha256 == ours.weights_sha256
    assert (back.config.n_kv_heads, back.config.ffn) == (2, config.ffn)
    tokens = ours.tokens("def first(self):\n")
    assert torch.equal(back.tokens("def first(self):\n"), tokens)
    assert torch.equal(back.gpt(tokens), ours.gpt(tokens))
    assert checkpoint_steps(back.path) == [1], "the files say no step, and an imported run has no step 0"


# --- who meets an imported run ---


def test_runs_lists_it_as_imported(work: Path) -> None:
    line = cutaway("runs").stdout.splitlines()[-1]
    assert line.split()[0] == "nano"
    assert "imported" in line
    assert "2 x 4" in line
    assert "attention-patterns, head-ablation" in line


def test_it_generates(work: Path) -> None:
    result = cutaway("generate", "nano", "--prompt", "the ", "--max-new-tokens", 5)
    assert result.exit_code == 0
    assert result.stdout.startswith("the ")
    assert len(result.stdout.rstrip("\n")) == 9


def test_an_ablation_on_it_has_its_interval(work: Path) -> None:
    assert "With L0H1:mean ablated" in cutaway("ablate", "nano", "L0H1").stdout


PAGES = {
    "overview": "nano was imported from the nanoGPT checkpoint source/ckpt.pt: nothing is on record",
    "heads": "induction",
    "ablate": "step 0 is not saved",
    "memories": "There is no ffn-memories result at step 250",
    "gradients": "There is no gradient-flow result at step 250",
}
"""What each page says of the imported run, among other things."""


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_what_there_is_of_an_imported_run(
    template: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(template)
    monkeypatch.setenv(launch.ROOT_VARIABLE, str(template / "runs"))
    at = AppTest.from_file(str(launch.SCRIPT), default_timeout=60)
    for name, value in {"run": "nano", "text": "held-out", "ablate": "L1H1"}.items():
        at.query_params[name] = value
    at = at.run() if page == "overview" else at.switch_page(f"app_pages/{page}.py").run()
    text = said(at)
    assert not at.exception
    assert not at.error
    assert PAGES[page] in text
    assert "nano@250" in text
    assert "imported" in text
    assert not re.search(r"\d tokens seen", text)
    if page == "heads":
        assert "small: step 0" not in text
    if page == "overview":
        (states,) = [table.value["state"] for table in at.dataframe if "state" in table.value]
        assert set(states) == {"imported"}
