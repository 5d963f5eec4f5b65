from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from model.errors import CheckpointError, ConfigError, InputError
from model.tokenizer import ByteTokenizer
from model.training.batches import BatchSource
from model.training.corpus import Corpus, DataConfig, build_corpus
from model.training.eval_rows import EvalRows

N_CTX, BOS = 32, 256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty documents in which no window occurs twice."""
    words = np.random.default_rng(0)
    for index in range(20):
        lines = "".join(f"{words.integers(10**9)} words in document {index}\n" for _ in range(12 + index))
        (tmp_path / f"{index:02}.txt").write_text(lines)
    return tmp_path


def source_of(folder: Path, text: float = 1, repeats: float = 0, n_ctx: int = N_CTX, **settings) -> BatchSource:
    names = [f"text:{folder}/*.txt={text}"] * (text > 0) + [f"repeats={repeats}"] * (repeats > 0)
    config = DataConfig(sources=tuple(names), held_out=0.2, **{"min_period": 4, "max_period": 12} | settings)
    return BatchSource(config, build_corpus(config, ByteTokenizer()), ByteTokenizer(), n_ctx)


def corpus_of(folder: Path) -> Corpus:
    return build_corpus(DataConfig(sources=(f"text:{folder}/*.txt",), held_out=0.2), ByteTokenizer())


def is_text(rows: Tensor) -> Tensor:
    repeats = [(rows[:, 1 + period :] == rows[:, 1:-period]).all(1) for period in range(4, 13)]
    return ~torch.stack(repeats).any(0)


def period_of(row: Tensor) -> int:
    return next(p for p in range(1, len(row)) if torch.equal(row[p:], row[:-p]))


def test_a_batch_is_rows_of_ids_behind_bos(folder: Path) -> None:
    rows = source_of(folder, 0.5, 0.5).batch(0, 16, seed=0)
    assert rows.shape == (16, N_CTX + 1)
    assert rows.dtype == torch.int64
    assert (rows[:, 0] == BOS).all()
    assert ((rows[:, 1:] >= 0) & (rows[:, 1:] < BOS)).all()


def test_a_batch_is_a_function_of_seed_and_step_alone(folder: Path) -> None:
    first, second = source_of(folder, 1, 1), source_of(folder, 1, 1)
    first.batch(3, 8, seed=1)
    assert torch.equal(first.batch(7, 8, seed=1), second.batch(7, 8, seed=1))
    assert not torch.equal(first.batch(7, 8, seed=1), first.batch(8, 8, seed=1))
    assert not torch.equal(first.batch(7, 8, seed=1), first.batch(7, 8, seed=2))


@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_the_rows_that_one_would_have(folder: Path, world: int) -> None:
    source = source_of(folder, 1, 1)
    shared = [source.batch(5, 8 // world, seed=0, rank=rank, world=world) for rank in range(world)]
    assert torch.equal(torch.cat(shared), source.batch(5, 8, seed=0))


def test_the_data_order_of_a_release_is_the_data_order_of_the_next() -> None:
    config = DataConfig(sources=("repeats",))
    source = BatchSource(config, build_corpus(config, ByteTokenizer()), ByteTokenizer(), 64)
    digest = hashlib.sha256(source.batch(512, 32, seed=3).numpy().astype("<i8").tobytes()).hexdigest()
    assert digest[:12] == "edefde709d8a"


def test_text_rows_are_windows_of_training_documents_only(folder: Path) -> None:
    corpus = corpus_of(folder)
    train = {tuple(corpus.window(int(o), N_CTX).tolist()) for o in corpus.train.windows(N_CTX, stride=1)}
    held_out = {tuple(corpus.window(int(o), N_CTX).tolist()) for o in corpus.held_out.windows(N_CTX, stride=1)}
    rows = torch.cat([source_of(folder).batch(step, 32, seed=0) for step in range(8)])[:, 1:]
    seen = {tuple(row) for row in rows.tolist()}
    assert seen <= train
    assert not seen & (held_out - train)


def test_every_training_window_is_equally_likely(folder: Path) -> None:
    corpus, source = corpus_of(folder), source_of(folder)
    index_of = {tuple(corpus.window(int(o), N_CTX).tolist()): i for i, o in enumerate(corpus.train.windows(N_CTX, 1))}
    rows = torch.cat([source.batch(step, 64, seed=0) for step in range(200)])[:, 1:]
    places = np.array([index_of[tuple(row)] for row in rows.tolist()]) / len(index_of)
    # Twenty equal parts of the corpus; a uniform draw has a standard deviation of 24.7 around 640 in each.
    counts = np.histogram(places, bins=20, range=(0, 1))[0]
    assert abs(counts - len(rows) / 20).max() < 5 * 24.7


@pytest.mark.parametrize(("text", "repeats"), [(0.5, 0.5), (3, 1), (0.1, 0.9)])
def test_every_batch_holds_each_sources_share_to_within_a_row(folder: Path, text: float, repeats: float) -> None:
    source, share, n_rows = source_of(folder, text, repeats), text / (text + repeats), 16
    counts = [int(is_text(source.batch(step, n_rows, seed=0)).sum()) for step in range(100)]
    assert all(abs(count - share * n_rows) < 1 for count in counts)
    assert np.mean(counts) == pytest.approx(share * n_rows, abs=0.25)


def test_the_place_of_a_row_does_not_tell_its_source(folder: Path) -> None:
    source = source_of(folder, 1, 1)
    mean = torch.stack([is_text(source.batch(step, 8, seed=0)) for step in range(200)]).float().mean(0)
    assert ((mean > 0.35) & (mean < 0.65)).all()


def test_repeats_have_random_periods_over_the_whole_range(folder: Path) -> None:
    rows = torch.cat([source_of(folder, 0, 1).batch(step, 32, seed=0) for step in range(20)])[:, 1:]
    periods = np.array([period_of(row) for row in rows])
    assert set(periods) == set(range(4, 13))
    assert np.bincount(periods)[4:].min() > len(periods) / 9 / 2


def test_segments_are_independent_uniform_draws_not_permutations(folder: Path) -> None:
    source = source_of(folder, 0, 1, min_period=24, max_period=24)
    segments = torch.cat([source.batch(step, 64, seed=0) for step in range(40)])[:, 1:25]
    doubles = sum(len(set(segment)) < 24 for segment in segments.tolist()) / len(segments)
    expected = 1 - np.prod(1 - np.arange(24) / 256)  # the birthday problem: 0.67
    assert doubles == pytest.approx(expected, abs=0.05)
    counts = torch.bincount(segments.flatten(), minlength=257)
    assert counts[BOS] == 0
    assert counts[:BOS].min() > 0.7 * segments.numel() / 256


def test_eval_rows_are_held_out_text_with_their_offsets(folder: Path) -> None:
    corpus, rows = corpus_of(folder), source_of(folder, 1, 1).eval_rows()
    assert (rows.tokens[:, 0] == BOS).all()
    assert rows.tokens.shape[1] == N_CTX
    laid = set(corpus.held_out.windows(N_CTX - 1).tolist())
    assert set(rows.offsets.tolist()) == laid  # fewer than asked for: all of them, each once
    for row, offset in zip(rows.tokens, rows.offsets.tolist(), strict=True):
        assert torch.equal(row[1:], corpus.window(offset, N_CTX - 1))
    few = source_of(folder).eval_rows(5)
    assert len(few.offsets) == 5
    assert set(few.offsets.tolist()) <= laid


def test_eval_rows_without_text_are_repeats_that_training_does_not_show(folder: Path) -> None:
    source = source_of(folder, 0, 1)
    rows = source.eval_rows(64)
    assert rows.tokens.shape == (64, N_CTX)
    assert (rows.offsets == -1).all()
    trained = {tuple(row) for step in range(50) for row in source.batch(step, 64, seed=0)[:, 1:9].tolist()}
    assert not trained & {tuple(row) for row in rows.tokens[:, 1:9].tolist()}


def test_eval_rows_are_read_as_they_were_written(folder: Path, tmp_path: Path) -> None:
    rows, path = source_of(folder).eval_rows(), tmp_path / "eval.safetensors"
    rows.save(path)
    read = EvalRows.load(path)
    assert torch.equal(read.tokens, rows.tokens)
    assert torch.equal(read.offsets, rows.offsets)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CheckpointError, match="holds no held-out rows"):
        EvalRows.load(path)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"eval\.safetensors could not be read"):
        EvalRows.load(path)


def test_documents_that_a_window_does_not_fit_into_are_never_drawn_and_counted(folder: Path) -> None:
    exact, short = "exact fit, in thirty-two letters", "not quite: thirty-one letters.."
    assert (len(exact), len(short)) == (N_CTX, N_CTX - 1)
    for index in range(60):
        (folder / f"exact {index:02}.txt").write_text(exact)
        (folder / f"short {index:02}.txt").write_text(short)
    source = source_of(folder)
    rows = torch.cat([source.batch(step, 64, seed=0) for step in range(60)])[:, 1:]
    texts = {bytes(row) for row in rows.tolist()}
    assert exact.encode() in texts
    assert not any(text.startswith(short[:8].encode()) for text in texts)
    n_documents = len(source.never_drawn.spans)
    assert 0 < n_documents < 60  # the others are held out
    assert source.never_drawn.n_tokens == n_documents * len(short)


def test_text_shorter_than_a_window_is_refused_in_a_sentence(folder: Path) -> None:
    with pytest.raises(InputError, match=r"is as long as one window of 5000 tokens; lower model\.n_ctx"):
        source_of(folder, n_ctx=5000)


def test_held_out_text_shorter_than_a_window_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some words\n" * 30)
    with pytest.raises(InputError, match=r"No held-out document is as long as one window of 99 tokens.*data\.held_out"):
        source_of(tmp_path, n_ctx=100).eval_rows()


def test_a_period_without_room_for_a_second_copy_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.max_period=40 leaves no second copy in 32 tokens"):
        source_of(folder, 0, 1, max_period=40)


@pytest.mark.parametrize("wrong", [{"step": -1}, {"batch_size": 0}, {"rank": 2, "world": 2}])
def test_a_batch_that_does_not_exist_is_refused(folder: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="No batch has step"):
        source_of(folder).batch(**{"step": 0, "batch_size": 4, "seed": 0} | wrong)
