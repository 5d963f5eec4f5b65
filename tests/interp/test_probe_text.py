"""Windows of different parts share no document, and what is tested on was held out from the model too."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from interp.probe_text import GAP, Amounts, Part, ProbeText, probe_text
from model.errors import InputError
from model.lab import Lab
from model.tokenizer import ByteTokenizer
from tests.conftest import make_gpt_with
from tests.probe_runs import AMOUNTS, letters_lab, written_run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return letters_lab(tmp_path_factory.mktemp("letters"))


def offsets_of(lab: Lab, text: ProbeText) -> list[int]:
    """Where each window stands in the corpus: letters at random, so that no window comes twice."""
    corpus = lab.text(torch.from_numpy(lab.corpus.tokens.astype("int64")))
    found = [corpus.index(lab.text(row)) for row in text.tokens]
    assert len(set(found)) == len(found)
    return found


def test_no_document_is_in_two_parts_and_only_held_out_ones_are_tested_on(lab: Lab) -> None:
    text = probe_text(lab, AMOUNTS, longest=256, seed=0)
    names = [lab.corpus.where(offset)[0] for offset in offsets_of(lab, text)]
    held_out = {name for name, out in zip(lab.corpus.names, lab.corpus.is_held_out, strict=True) if out}
    parts = {part: {name for name, each in zip(names, text.part, strict=True) if each == part} for part in Part}
    assert parts[Part.TEST] == held_out
    assert not parts[Part.TRAIN] & parts[Part.VALIDATION]
    assert not (parts[Part.TRAIN] | parts[Part.VALIDATION]) & held_out
    assert len(set(zip(names, text.unit.tolist(), strict=True))) == len(set(names)) == len(text.unit.unique())
    assert text.units == "held-out documents"


def test_a_window_lies_in_one_document_behind_bos(lab: Lab) -> None:
    text = probe_text(lab, AMOUNTS, longest=256, seed=0)
    assert (text.tokens[:, 0] == lab.tokenizer.bos).all()
    for offset in offsets_of(lab, text):
        assert lab.corpus.where(offset)[0] == lab.corpus.where(offset + lab.config.n_ctx - 2)[0]
    assert probe_text(lab, AMOUNTS, longest=16, seed=0).tokens.shape[1] == 16


def test_a_seed_deals_the_same_windows_again_and_another_seed_others(lab: Lab) -> None:
    first, again, other = (probe_text(lab, AMOUNTS, longest=256, seed=seed).tokens for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_few_documents_are_cut_into_stretches_with_a_gap(tmp_path: Path) -> None:
    lab = letters_lab(tmp_path, n_documents=2, length=60_000)
    text = probe_text(lab, AMOUNTS, longest=16, seed=0)
    offsets, gap = offsets_of(lab, text), GAP * 15
    assert text.units == f"stretches of held-out text, {gap} tokens or more apart,"
    assert len(text.unit[text.part == Part.TEST].unique()) >= 10
    ordered = sorted(zip(offsets, text.unit.tolist(), strict=True))
    for (here, unit), (there, other) in itertools.pairwise(ordered):
        assert unit == other or there - (here + 15) >= gap
    # the end of a document that is held out follows on what is trained on: its beginning is left out too
    for start, _ in lab.corpus.held_out.spans:
        assert not any(start <= offset < start + gap for offset in offsets)


def test_too_little_text_is_refused_with_what_to_do(tmp_path: Path) -> None:
    lab = letters_lab(tmp_path, n_documents=2, length=1000)
    with pytest.raises(InputError, match="too little held-out text to probe.*give more text, or shorter windows"):
        probe_text(lab, AMOUNTS, longest=256, seed=0)


def test_a_run_without_text_is_read_on_fresh_repeats(tmp_path: Path) -> None:
    lab = written_run(tmp_path / "run", make_gpt_with(d_vocab=257), ByteTokenizer(), "repeats")
    text = probe_text(lab, Amounts(train=80, validation=16, test=24), longest=256, seed=0)
    assert (text.is_text, text.units, tuple(text.tokens.shape)) == (False, "fresh sequences of repeats", (15, 24))
    assert torch.equal(text.unit, torch.arange(15))
    assert [int((text.part == part).sum()) for part in Part] == [10, 2, 3]
