"""A run whose tokenizer has no BOS: no token is added, none is dropped, and every study works (known-pitfalls.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from analyses import attention_patterns, ffn_memories, head_ablation
from analyses.attention.readings import Kind
from interp.live import LiveText, coefficients, live_tokens
from interp.trials import copy_task
from model.lab import Lab, open_run
from model.settings import to_plain
from model.tokenizer import CharTokenizer
from model.training.batches import BatchSource
from model.training.corpus import build_corpus
from model.training.eval_rows import EvalRows
from model.training.probe import repeated_rows
from model.training.sources import DataConfig
from tests import planted
from tests.planted_run import planted_lab

pytestmark = pytest.mark.whole

LETTERS = "abcdefghijklmnopqrst"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """The planted run, its twentieth id a letter like the others."""
    folder = tmp_path / "run"
    planted_lab(folder)
    CharTokenizer(LETTERS, has_bos=False).save(folder / "tokenizer.json")
    rows = torch.randint(20, (24, planted.N_CTX), generator=torch.Generator().manual_seed(3))
    EvalRows(tokens=rows, offsets=torch.arange(24) * planted.N_CTX).save(folder / "eval.safetensors")
    return open_run(f"{folder}@8")


def test_text_becomes_its_own_tokens_and_nothing_else(lab: Lab) -> None:
    assert lab.tokens("abt").tolist() == [[0, 1, 19]]
    assert lab.text(lab.tokens("abt")) == "abt"
    assert lab.str_tokens("abt") == ["a", "b", "t"]
    assert live_tokens(lab, LiveText.PROMPT, "abt")[0].tolist() == [0, 1, 19]


def test_stimuli_begin_with_their_first_token_and_use_every_id(lab: Lab) -> None:
    task = copy_task(lab, n_sequences=30, seed=0, period=8)
    for tokens in (task.discovery, task.trial.measured, task.trial.reference):
        assert tokens.shape[1] == 16
        assert torch.equal(tokens[:, :8], tokens[:, 8:])
        assert set(tokens.flatten().tolist()) == set(range(20))
    assert torch.equal(*repeated_rows(5, 8, lab.tokenizer).split(8, dim=1))


def test_training_rows_begin_with_text(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(LETTERS[index % 20] for index in range(4000)))
    data = DataConfig(sources=(f"text:{tmp_path / 'text.txt'}",))
    rows = BatchSource(data, build_corpus(data, lab.tokenizer), lab.tokenizer, 12).batch(0, 8, 0)
    assert rows.shape == (8, 13)
    assert torch.equal((rows[:, :-1] + 1) % 20, rows[:, 1:]), "every row is 13 letters in a row"


def test_the_planted_circuit_is_found_by_every_study_of_heads(lab: Lab) -> None:
    patterns = attention_patterns.run(lab, attention_patterns.Config(n_sequences=8, n_text=8, n_resamples=100))
    assert attention_patterns.found_heads(patterns, Kind.INDUCTION) == [planted.INDUCTION_HEAD]
    assert attention_patterns.found_heads(patterns, Kind.PREVIOUS) == [planted.PREVIOUS_HEAD]
    harm = head_ablation.run(lab, head_ablation.Config(n_sequences=12)).single("copy_loss").harm.mean
    needed = {planted.PREVIOUS_HEAD, planted.INDUCTION_HEAD}
    assert {(layer, index) for layer, index in (harm[0] > 1).nonzero().tolist()} == needed


def test_memories_are_read_at_the_positions_of_the_text(tmp_path: Path) -> None:
    folder, gpt = tmp_path / "run", planted.memory_model()
    tokenizer = CharTokenizer(LETTERS, has_bos=False)
    planted_lab(folder, gpt)
    tokenizer.save(folder / "tokenizer.json")
    (tmp_path / "text.txt").write_text("abcdf" * 800)
    data = DataConfig(sources=(f"text:{tmp_path / 'text.txt'}",), held_out=0.2)
    (folder / "run.json").write_text(json.dumps({"config": {"data": to_plain(data)}}))
    lab = open_run(f"{folder}@8")
    text = "abdfabdfgh"
    found = coefficients(lab, LiveText.PROMPT, text, 0)[:, 2]
    assert found.nonzero().flatten().tolist() == [index for index in range(10) if text[index - 1 : index + 1] == "df"]
    result = ffn_memories.run(lab, ffn_memories.Config(n_tokens=400))
    assert result.replay_error < 1e-4
