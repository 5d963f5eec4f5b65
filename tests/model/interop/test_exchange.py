"""Another program's model becomes a run like any other, whole or not at all, and says where it came from."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from analyses.report import gathered
from analyses.report_page import write_report
from analyses.study import run_study
from interp.periods import deciding_period, trained_periods
from model import GPT, FFNKind
from model.checkpoint import checkpoint_steps, load_checkpoint, weights_sha256
from model.errors import CheckpointError, ConfigError, CutawayError, InputError, TrainingError, UnknownNameError
from model.interop import Imported, exchange
from model.interop.exchange import export_model, import_model, text_of, with_context
from model.interop.hf import from_hf
from model.interop.nanogpt import from_nanogpt
from model.interop.recognise import Kind, recognised
from model.lab import list_runs, open_run
from model.presets import tiny
from model.training import DataConfig, train
from tests.model.interop.imports import TEXT, imported_run

pytestmark = pytest.mark.whole

Opened = Callable[..., Imported]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `source/ckpt.pt`, its text, and `runs/nano` imported from it."""
    root = tmp_path_factory.mktemp("work")
    imported_run(root / "runs")
    return root


@pytest.fixture
def work(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that, as the working folder."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


CHARS = "chars:source/input.txt"


# --- a run like any other ---


def test_an_imported_run_opens_with_the_weights_bit_for_bit(work: Path) -> None:
    import_model("source/ckpt.pt", "runs/again", tokenizer=CHARS)
    lab = open_run("again")
    original = from_nanogpt("source/ckpt.pt").gpt
    assert lab.weights_sha256 == weights_sha256(original)
    assert lab.run_config["imported"]["weights_sha256"] == lab.weights_sha256
    assert (lab.step, lab.tokens_seen) == (250, 0)
    assert torch.equal(lab.gpt(lab.tokens("the fox")), original(lab.tokens("the fox")))
    assert lab.text(lab.tokens("the lazy dog.")) == "the lazy dog."
    assert lab.imported_from == "the nanoGPT checkpoint source/ckpt.pt"


def test_its_held_out_rows_are_the_end_of_the_given_text(work: Path) -> None:
    import_model("source/ckpt.pt", "runs/again", tokenizer=CHARS)
    lab = open_run("again")
    assert lab.eval_tokens.shape[1] == lab.config.n_ctx
    for row, offset in zip(lab.eval_rows.tokens, lab.eval_rows.offsets.tolist(), strict=True):
        assert torch.equal(row, lab.corpus.window(offset, lab.config.n_ctx)), "there is no BOS to stand first"
    assert 0.08 < lab.corpus.held_out.n_tokens / len(TEXT) <= 0.1, "the last tenth, from a line's beginning on"
    assert lab.run_config["config"]["data"]["sources"] == ["text:source/input.txt"]


def test_what_is_not_known_of_its_training_is_not_in_the_record(work: Path) -> None:
    record = json.loads(Path("runs/nano/run.json").read_text())
    assert record["config"].keys() == {"model", "data"}
    assert "tokenizer" not in record["config"]["data"]
    assert not Path("runs/nano/metrics.jsonl").exists()
    assert record["imported"].keys() == {"source", "format", "notes", "weights_sha256", "step", "when"}
    assert any("GELU" in note for note in record["imported"]["notes"])
    assert checkpoint_steps(Path("runs/nano")) == [250]


def test_a_file_that_says_no_step_is_never_step_0(work: Path) -> None:
    content = torch.load("source/ckpt.pt", weights_only=True)
    torch.save({**content, "iter_num": 0}, "source/ckpt.pt")
    import_model("source/ckpt.pt", "runs/stepless", tokenizer=CHARS)
    assert open_run("stepless").step == exchange.STEP_UNKNOWN == 1
    assert open_run("stepless").run_config["imported"]["step"] is None


def test_a_text_that_changed_since_the_import_is_refused(work: Path) -> None:
    import_model("source/ckpt.pt", "runs/again", tokenizer=CHARS)
    Path("source/input.txt").write_text(TEXT + "the dog\n")
    with pytest.raises(InputError, match="The text that again was imported to be studied on has changed"):
        _ = open_run("again").corpus


def test_data_of_ones_own_is_held_out_by_a_quarter(work: Path) -> None:
    Path("own.txt").write_text("lazy fox.\n" * 100)
    import_model("source/ckpt.pt", "runs/own", tokenizer=CHARS, data=text_of(["text:own.txt"]))
    lab = open_run("own")
    assert lab.corpus.held_out.n_tokens == 240, "the last quarter, from a line's beginning on"
    assert lab.corpus.sha256 == lab.run_config["corpus_sha256"]


def test_no_period_counts_as_trained(work: Path) -> None:
    lab = open_run("nano")
    assert deciding_period(lab) == 12
    assert not trained_periods(lab)


def test_a_nanogpt_goes_on_to_hugging_face_and_back(work: Path) -> None:
    lab = open_run("nano")
    export_model(lab, "exported")
    back = from_hf("exported")
    assert back.gpt.config == lab.config and lab.config.ffn is FFNKind.GELU
    assert weights_sha256(back.gpt) == lab.weights_sha256


def test_a_path_in_place_of_an_opened_run_is_answered_in_a_sentence(work: Path) -> None:
    with pytest.raises(InputError, match=r"takes an opened run, not 'runs/nano'; give open_run\('runs/nano'\)"):
        export_model("runs/nano", "exported")  # pyright: ignore[reportArgumentType]
    assert not Path("exported").exists()


def test_a_given_tokenizer_stands_in_for_one_that_cannot_be_read(work: Path) -> None:
    export_model(open_run("nano"), "exported")
    Path("exported/tokenizer.json").write_text("{}")
    with pytest.raises((CheckpointError, InputError), match="tokenizer"):
        import_model("exported", "runs/again")
    import_model("exported", "runs/again", tokenizer=CHARS)
    assert open_run("again").tokenizer.kind == "chars"


# --- the context ---


def test_a_cropped_context_keeps_the_first_positions_and_is_said(work: Path) -> None:
    import_model("source/ckpt.pt", "runs/short", tokenizer=CHARS, n_ctx=10)
    lab, whole = open_run("short"), open_run("nano")
    assert lab.config.n_ctx == lab.eval_tokens.shape[1] == 10
    assert torch.equal(lab.gpt.W_pos, whole.gpt.W_pos[:10])
    tokens = whole.eval_tokens[:2, :10]
    assert torch.equal(lab.gpt(tokens), whole.gpt(tokens))
    note = "The context was cropped from 24 to 10 tokens, and its learned positions with it."
    assert note in lab.run_config["imported"]["notes"]


def test_a_context_without_a_next_token_is_refused(work: Path) -> None:
    with pytest.raises(ConfigError, match="A context of 1 leaves no next token to predict; give an n_ctx of 2 or more"):
        import_model("source/ckpt.pt", "runs/one", tokenizer=CHARS, n_ctx=1)
    assert not Path("runs/one").exists()


def test_nothing_is_exported_into_a_run(work: Path) -> None:
    with pytest.raises(InputError, match="is inside the run nano"):
        export_model(open_run("nano"), "runs/nano/checkpoints/step-00000777")
    assert checkpoint_steps(Path("runs/nano")) == [250]


def test_learned_positions_cannot_be_lengthened(work: Path) -> None:
    with pytest.raises(ConfigError, match=r"n_ctx=25 is longer than the model's context of 24.*Take at most 24"):
        import_model("source/ckpt.pt", "runs/long", tokenizer=CHARS, n_ctx=25)
    assert not Path("runs/long").exists()


@pytest.mark.parametrize("n_ctx", [8, 40])
def test_other_positions_take_any_context_and_tied_weights_stay_tied(n_ctx: int, make_gpt: Callable[..., GPT]) -> None:
    gpt = make_gpt(norm_kind="layernorm", biases=True)
    imported = with_context(Imported(gpt=gpt, tokenizer=None, source="x", format="llama"), n_ctx)
    assert imported.gpt.config == gpt.config.varied(n_ctx=n_ctx)
    assert imported.gpt.unembed.weight is imported.gpt.embed.weight
    tokens = torch.arange(8)[None]
    assert torch.equal(imported.gpt(tokens), gpt(tokens))
    assert ("beyond 24 the model is untried" in imported.notes[0]) == (n_ctx == 40)


def test_a_text_too_short_for_the_context_says_which_context_fits(work: Path) -> None:
    Path("own.txt").write_text("lazy fox.\n" * 4)
    with pytest.raises(InputError, match=r"No row of 24 tokens.*text:own\.txt: give --n-ctx 10 or less, or longer tex"):
        import_model("source/ckpt.pt", "runs/own", tokenizer=CHARS, data=text_of(["text:own.txt"]))
    import_model("source/ckpt.pt", "runs/own", tokenizer=CHARS, data=text_of(["text:own.txt"]), n_ctx=10)
    assert open_run("own").eval_tokens.shape == (1, 10)


# --- what is refused, and nothing left ---


REFUSED: dict[str, tuple[dict[str, Any], type[CutawayError], str]] = {
    "no tokenizer": ({}, InputError, "A run needs a tokenizer. The file holds no tokenizer.*as chars:input.txt"),
    "another tokenizer": ({"tokenizer": "bytes"}, InputError, "bytes are 256 ids, or 257 with BOS, and the model's"),
    "unknown characters": (
        {"tokenizer": CHARS, "data": text_of(["stdlib"])},
        InputError,
        r"cannot be tokenised\. The character .* For an import, --data names text that the model's tokenizer can cut",
    ),
    "no text": ({"tokenizer": CHARS, "data": DataConfig(sources=("repeats",))}, ConfigError, "repeats is no text"),
    "no such text": ({"tokenizer": CHARS, "data": text_of(["text:no.txt"])}, UnknownNameError, "matches no file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_leaves_nothing(case: str, work: Path) -> None:
    options, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        import_model("source/ckpt.pt", "runs/new", **options)
    assert _names(Path("runs")) == ["nano"]


def test_a_folder_that_is_taken_is_refused_and_kept(work: Path) -> None:
    Path("runs/mine").mkdir()
    Path("runs/mine/thesis.txt").write_text("years")
    before = Path("runs/nano/run.json").read_bytes()
    with pytest.raises(TrainingError, match="nano already holds a run; choose another --out"):
        import_model("source/ckpt.pt", "runs/nano", tokenizer=CHARS)
    with pytest.raises(TrainingError, match="is not empty, and a run needs a folder of its own"):
        import_model("source/ckpt.pt", "runs/mine", tokenizer=CHARS)
    assert before == Path("runs/nano/run.json").read_bytes()
    assert _names(Path("runs/mine")) == ["thesis.txt"]


STAGES = ("Tokenizer.save", "EvalRows.save", "save_checkpoint", "write_json", "_description")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_fault_at_any_stage_leaves_nothing_and_a_second_try_works(
    stage: str, fault: BaseException, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _, name = f"{'' if '.' in stage else 'exchange.'}{stage}".rpartition(".")
    places: dict[str, Any] = {"Tokenizer": exchange.Tokenizer, "EvalRows": exchange.EvalRows, "exchange": exchange}
    with monkeypatch.context() as patch:
        patch.setattr(places[owner], name, _raising(fault))
        with pytest.raises((CutawayError, type(fault))):
            import_model("source/ckpt.pt", "runs/new", tokenizer=CHARS)
    assert _names(Path("runs")) == ["nano"]
    import_model("source/ckpt.pt", "runs/new", tokenizer=CHARS)
    assert open_run("new").step == 250


@pytest.mark.parametrize("n_writes", range(0, 12, 2))
def test_a_disk_that_fills_up_at_any_write_leaves_nothing(
    n_writes: int, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(n_writes))

    def flush(*_: object) -> None:
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("model.files.flush_to_disk", flush)
    with pytest.raises(CutawayError, match=r"The disk is full: \S+ could not be written"):
        import_model("source/ckpt.pt", "runs/new", tokenizer=CHARS)
    assert _names(Path("runs")) == ["nano"]


def test_what_a_killed_import_left_is_no_run_and_is_cleaned_by_the_next(work: Path) -> None:
    left = Path("runs/.partial-new.999999999.0123abcd")
    shutil.copytree("runs/nano", left)
    assert [run.name for run in list_runs("runs")] == ["nano"]
    import_model("source/ckpt.pt", "runs/new", tokenizer=CHARS)
    assert _names(Path("runs")) == ["nano", "new"]


def _raising(fault: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise fault

    return fail


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- recognised by content ---


def test_a_format_is_told_by_content_and_not_by_name(work: Path) -> None:
    Path("source/ckpt.pt").rename("source/weights.gguf")
    assert recognised("source/weights.gguf").kind is Kind.NANOGPT
    assert recognised("source").where == "source/weights.gguf", "the only model in a folder is meant"
    Path("llama").write_bytes(b"GGUF\x03\x00\x00\x00")
    assert recognised("llama").kind is Kind.GGUF
    torch.save({"model": {}}, "older", _use_new_zipfile_serialization=False)
    assert recognised("older").kind is Kind.NANOGPT
    Path("hf").mkdir()
    Path("hf/config.json").write_text("{}")
    save_file({"a": torch.ones(1)}, "hf/model.safetensors")
    for named in ("hf", "hf/config.json", "hf/model.safetensors"):
        assert recognised(named) == recognised("hf")
        assert (recognised(named).kind, recognised(named).where) == (Kind.HUGGING_FACE, "hf")


@pytest.mark.parametrize(("spec", "name"), [("hf:gpt2", "gpt2"), ("owner/some-model", "owner/some-model")])
def test_a_name_that_is_no_path_is_one_of_the_hub(spec: str, name: str, work: Path) -> None:
    assert (recognised(spec).kind, recognised(spec).where) == (Kind.HUB, name)


def test_a_folder_of_that_name_comes_before_the_hub(work: Path) -> None:
    Path("gpt2").mkdir()
    Path("gpt2/config.json").write_text("{}")
    assert recognised("gpt2").kind is Kind.HUGGING_FACE
    assert recognised("hf:gpt2").kind is Kind.HUB


UNKNOWN: dict[str, tuple[str, type[CutawayError], str]] = {
    "a missing file": (
        "nothing/ckpt.pt",
        UnknownNameError,
        r"There is nothing at nothing/ckpt\.pt; give a Hugging Face",
    ),
    "a missing folder": ("./nothing", UnknownNameError, r"There is nothing at \./nothing; give"),
    "no name of the hub": ("hf:a b", UnknownNameError, '"a b" is no name on the Hugging Face hub; write hf:gpt2'),
    "a run": ("runs/nano", InputError, "runs/nano is a run of Cutaway already; use it as it is"),
    "an empty folder": ("empty", InputError, "empty holds no model: no config.json, no .gguf and no ckpt.pt"),
    "two models": ("two", InputError, r"two holds 2 models \(a\.pt, b\.pt\); name one"),
    "a text": ("source/input.txt", InputError, r"input\.txt is no model that can be imported; give"),
    "an empty file": ("blank", InputError, "blank is no model that can be imported"),
    "a plain pickle": ("meta.pkl", InputError, r"meta\.pkl is no model that can be imported"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_none_of_the_formats_is_refused_with_what_is(case: str, work: Path) -> None:
    where, error, said = UNKNOWN[case]
    for folder in ("empty", "two"):
        Path(folder).mkdir()
    for file in ("a.pt", "b.pt"):
        shutil.copy("source/ckpt.pt", f"two/{file}")
    Path("blank").touch()
    Path("meta.pkl").write_bytes(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.")
    with pytest.raises(error, match=said):
        import_model(where, "runs/new")
    assert _names(Path("runs")) == ["nano"]


def test_each_kind_is_opened_by_its_own_reader(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    own = from_nanogpt("source/ckpt.pt", CHARS)

    def reader(module: str, function: str) -> None:
        fake: Any = ModuleType(f"model.interop.{module}")
        setattr(fake, function, lambda where, **options: asked.append((function, where)) or own)
        monkeypatch.setitem(__import__("sys").modules, fake.__name__, fake)

    reader("hf", "from_hf")
    reader("gguf", "from_gguf")
    Path("hf").mkdir()
    Path("hf/config.json").write_text("{}")
    Path("llama").write_bytes(b"GGUF")
    for where in ("hf", "hf:owner/name", "llama"):
        assert exchange.opened(where) is own
    assert asked == [("from_hf", "hf"), ("from_hf", "owner/name"), ("from_gguf", "llama")]
    replaced = exchange.opened("llama", CHARS).tokenizer
    assert replaced is not None
    assert replaced is not own.tokenizer, "a tokenizer that is named comes before the source's own"


# --- the rest copes ---


def test_training_does_not_go_on_with_an_imported_run(work: Path) -> None:
    before = _names(Path("runs/nano"))
    with pytest.raises(
        TrainingError, match="nano was imported from the nanoGPT checkpoint .*no training here to go on"
    ):
        train(tiny(), "runs/nano", resume=True, device="cpu")
    assert _names(Path("runs/nano")) == before


def test_a_report_says_where_an_imported_run_is_from(work: Path) -> None:
    page = write_report(gathered(Path("runs/nano"), []), Path("report.html")).read_text()
    assert "nano was imported from the nanoGPT checkpoint" in page
    assert "nothing is on record of how it was trained" in page
    assert "Imported from" in page
    assert "steps of" not in page


TINY_STUDIES = {
    "attention-patterns": ["n_sequences=8", "n_text=4", "n_resamples=100", "n_tokens=2048"],
    "head-ablation": ["n_sequences=8", "n_controls=4"],
    "head-circuits": ["n_sequences=4", "most_patched=4"],
    "head-importance": ["n_sequences=4", "n_reference=8", "n_random=2", "n_controls=2", "fitting.n_steps=2"],
    "self-repair": ["n_sequences=4", "n_paired=2"],
    "ffn-memories": [
        *("n_tokens=1024", "n_triggers=3", "n_shown=3", "n_permutations=20"),
        *("n_random_sets=20", "n_deleted=2", "n_sampled=32"),
    ],
    "ffn-composition": ["n_prefixes=200"],
    "memory-promotion": ["n_memories=2", "n_prompts=4", "n_sets=2", "alpha=0.4", "n_new_tokens=4", "strengths=2.0"],
    "gradient-flow": ["initialization=false", "n_sequences=8", "n_groups=4"],
    "probes": ["tasks=previous-token", "sites=resid_post", "n_train=200", "n_validation=60", "n_test=100"],
    "training-dynamics": ["n_sequences=4", "n_text=4", "n_judged=4", "n_resamples=100"],
}


@pytest.mark.slow
def test_every_study_runs_on_an_imported_run(work: Path) -> None:
    results = [run_study(study, "nano", settings) for study, settings in TINY_STUDIES.items()]
    assert all(saved.findings() and saved.provenance.step == 250 for saved in results)
    assert "ffn-memories" in write_report(gathered(Path("runs/nano"), results), Path("report.html")).read_text()


def test_a_twin_that_was_imported_is_answered_in_a_sentence(work: Path) -> None:
    shutil.copytree("runs/nano", "runs/other")
    settings = ["initialization=false", "n_sequences=8", "n_groups=4", "twin=other"]
    with pytest.raises(InputError, match="has logged no gradient norms"):
        run_study("gradient-flow", "nano", settings)


def test_a_damaged_imported_run_is_refused_like_any_other(work: Path) -> None:
    file = Path("runs/nano/checkpoints/step-00000250/model.safetensors")
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="was altered or cut short"):
        load_checkpoint(file.parent)


def test_importing_the_model_package_imports_no_interop() -> None:
    import subprocess
    import sys

    code = "import sys, model; print([name for name in sys.modules if name.startswith('model.interop')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
