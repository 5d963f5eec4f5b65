"""A pass that is shared, killed and gone on with finds what one undisturbed process finds, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from analyses import ffn_memories, study
from analyses.corpus_text import study_text, text_paths
from analyses.kept_states import Keeper, Kept
from analyses.records import same
from analyses.streamed import Pass, ShareRead, batches_of, piece_count, streamed
from interp.topk import positions_of, values_of
from model.errors import CheckpointError, InputError, UnknownNameError
from model.lab import Lab
from model.training.distributed import World
from model.training.interrupts import Interrupted
from tests.memory_runs import python_lab, quick
from tests.ranks import together

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How often each piece was read."""

    times: Int[Tensor, " piece"]
    name: str


N = 10


def counting(read: list[int] | None = None, before: Callable[[int], None] = lambda piece: None) -> Pass[Tally]:
    """A pass that counts its pieces; `read` lists them as they come, `before` may stop it."""

    def one_more(tally: Tally, piece: int) -> Tally:
        before(piece)
        if read is not None:
            read.append(piece)
        return replace(tally, times=tally.times + torch.eye(N, dtype=torch.int64)[piece])

    return Pass(
        name="now",
        what="counting pieces",
        n_pieces=N,
        empty=Tally(times=torch.zeros(N, dtype=torch.int64), name="tally"),
        read=one_more,
        merge=lambda one, other: replace(one, times=one.times + other.times),
        state_class=Tally,
    )


def keeper_in(folder: Path, **settings: Any) -> Keeper:
    return Keeper(folder=folder / ".unfinished", asked=["weights", {"n": 1}], **settings)


def each_once(states: tuple[Tally, ...]) -> None:
    assert [state.times.tolist() for state in states] == [[1] * N] * len(states)


def stop_at(piece: int) -> Callable[[int], None]:
    """Raises where a piece is about to be read."""

    def stop(at: int) -> None:
        if at == piece:
            raise RuntimeError("the power is gone")

    return stop


@pytest.mark.parametrize("n_batches", [1, 3, 63, 64, 65, 1000])
def test_pieces_are_all_batches_in_order_and_never_more_than_64(n_batches: int) -> None:
    pieces = [batches_of(piece, n_batches) for piece in range(piece_count(n_batches))]
    assert [batch for piece in pieces for batch in piece] == list(range(n_batches))
    assert len(pieces) == min(n_batches, 64)
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_without_a_keeper_every_piece_is_read_in_order_and_nothing_is_written(tmp_path: Path) -> None:
    read: list[int] = []
    each_once(streamed([counting(read), counting(read)]))
    assert read == [*range(N), *range(N)]
    told: list[tuple[int, int, str]] = []
    streamed([counting(), counting()], progress=lambda *step: told.append(step))
    assert [step[0] for step in told] == list(range(2 * N))
    assert {step[1:] for step in told} == {(2 * N, "counting pieces")}
    each_once(streamed([counting()], keeper=keeper_in(tmp_path)))
    assert list(tmp_path.iterdir()) == []  # within half a minute there is nothing to save


@pytest.mark.parametrize("size", [2, 3, 12])
def test_several_processes_share_the_pieces_and_the_first_one_answers(tmp_path: Path, size: int) -> None:
    read: list[int] = []
    answers = together(
        size, lambda world: streamed([counting(read), counting(read)], keeper=keeper_in(tmp_path, world=world))
    )
    each_once(answers[0])
    assert sorted(read) == sorted([*range(N), *range(N)])
    assert all(isinstance(answer, ShareRead) for answer in answers[1:])


def test_after_an_error_only_what_is_left_is_read(tmp_path: Path) -> None:
    keeper, read = keeper_in(tmp_path), []
    with pytest.raises(RuntimeError, match="the power is gone"):
        streamed([counting(read, stop_at(6))], keeper=keeper)
    assert read == [0, 1, 2, 3, 4, 5]
    read.clear()
    each_once(streamed([counting(read)], keeper=keeper))
    assert read == [6, 7, 8, 9]
    keeper.forget()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("first", "then"), [(2, 1), (1, 3), (3, 2)])
def test_another_number_of_processes_goes_on(tmp_path: Path, first: int, then: int) -> None:
    """As after a kill: what each process had saved by then is there, and nothing else."""
    for rank in range(first):
        pieces = frozenset(range(rank, 6, first))
        times = torch.tensor([int(piece in pieces) for piece in range(N)])
        keeper_in(tmp_path, world=World(rank=rank, size=first)).keep(
            "now", Kept(Tally(times=times, name="t"), pieces), N
        )
    read: list[int] = []
    answers = together(then, lambda world: streamed([counting(read)], keeper=keeper_in(tmp_path, world=world)))
    each_once(answers[0])
    assert sorted(read) == [6, 7, 8, 9]


def test_ctrl_c_saves_says_how_to_go_on_and_ends(tmp_path: Path) -> None:
    keeper, read = keeper_in(tmp_path), []

    def press(piece: int) -> None:
        if piece == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="4 of 10 pieces read and kept; the same command goes on from there"):
        streamed([counting(read, press)], keeper=keeper)
    each_once(streamed([counting(read)], keeper=keeper))
    assert read == list(range(N))


@needs_fork
def test_a_killed_process_loses_only_what_it_had_not_saved(tmp_path: Path) -> None:
    def die(piece: int) -> None:
        if piece == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        streamed([counting(before=die)], keeper=keeper_in(tmp_path, seconds=0.0))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    read: list[int] = []
    each_once(streamed([counting(read)], keeper=keeper_in(tmp_path)))
    assert read == [7, 8, 9]


def damaged(content: bytes) -> dict[str, bytes]:
    middle = bytearray(content)
    middle[-3] ^= 1  # inside the tensors, where the format itself has no guard
    pieces = (rb"pieces\": [0, 1, 2, 3, 4, 5]", rb"pieces\": [0, 1, 2, 3, 4, 7]")
    assert pieces[0] in content
    return {
        "truncated": content[:-5],
        "altered": bytes(middle),
        "other pieces": content.replace(*pieces),
        "another state": content.replace(b"tally", b"valid"),
        "empty": b"",
        "other": b"{}" * 100,
    }


@pytest.mark.parametrize("fault", ["truncated", "altered", "other pieces", "another state", "empty", "other"])
def test_a_damaged_file_is_told_and_the_pass_begins_afresh(tmp_path: Path, fault: str) -> None:
    told: list[str] = []
    keeper, read = keeper_in(tmp_path, told=told.append), []
    with pytest.raises(RuntimeError):
        streamed([counting(before=stop_at(6))], keeper=keeper)
    (file,) = keeper.folder.iterdir()
    file.write_bytes(damaged(file.read_bytes())[fault])
    each_once(streamed([counting(read)], keeper=keeper))
    assert read == list(range(N))
    assert len(told) == 1
    assert "is damaged and cannot be gone on from" in told[0]
    assert "read afresh" in told[0]


def test_no_changed_bit_of_a_file_goes_unseen(tmp_path: Path) -> None:
    told: list[str] = []
    keeper = keeper_in(tmp_path, told=told.append)
    keeper.keep("now", Kept(Tally(times=torch.arange(N), name="tally"), frozenset(range(6))), N)
    (file,) = keeper.folder.iterdir()
    content = file.read_bytes()
    places, n_found = range(0, len(content), 3), 0
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 7
        file.write_bytes(bytes(changed))
        n_found += len(keeper.found("now", Tally, N))
    assert (n_found, len(told)) == (0, len(places))
    file.write_bytes(content)
    assert len(keeper.found("now", Tally, N)) == 1


def test_of_files_that_share_pieces_the_one_with_most_of_them_is_taken(tmp_path: Path) -> None:
    """As when a process was killed after the leading one had merged all states, and before the others were removed."""
    for rank, last in enumerate((1, 6, 3)):
        times = torch.tensor([int(piece < last) for piece in range(N)])
        keeper_in(tmp_path, world=World(rank=rank, size=3)).keep(
            "now", Kept(Tally(times=times, name="t"), frozenset(range(last))), N
        )
    read: list[int] = []
    each_once(streamed([counting(read)], keeper=keeper_in(tmp_path)))
    assert read == [6, 7, 8, 9]


@pytest.mark.parametrize("change", [{"asked": ["other weights", {"n": 1}]}, {"asked": ["weights", {"n": 2}]}])
def test_a_file_of_another_question_is_told_and_left_aside(tmp_path: Path, change: dict[str, Any]) -> None:
    told: list[str] = []
    with pytest.raises(RuntimeError):
        streamed([counting(before=stop_at(6))], keeper=keeper_in(tmp_path))
    read: list[int] = []
    each_once(streamed([counting(read)], keeper=replace(keeper_in(tmp_path, told=told.append), **change)))
    assert read == list(range(N))
    assert ["is of other weights, settings, text or versions" in sentence for sentence in told] == [True]


def test_a_share_that_nobody_saved_is_an_error_and_not_a_smaller_corpus(tmp_path: Path) -> None:
    def lost(world: World) -> Any:
        keeper = keeper_in(tmp_path if world.leads else tmp_path / "elsewhere", world=world)
        return streamed([counting()], keeper=keeper)

    answers = together(2, lost)
    assert isinstance(answers[0], CheckpointError)
    assert "Of 10 pieces 5 are missing" in str(answers[0])
    read: list[int] = []
    each_once(streamed([counting(read)], keeper=keeper_in(tmp_path)))
    assert read == [1, 3, 5, 7, 9]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return python_lab(tmp_path_factory.mktemp("streamed") / "run")


CONFIG = quick(n_tokens=300, batch_size=2, n_triggers=5, n_permutations=20)


def test_the_streams_of_one_process_of_two_and_of_one_that_stopped_are_the_same(lab: Lab, tmp_path: Path) -> None:
    source = study_text(lab, "train")
    windows = ffn_memories.planned_windows(lab, CONFIG)
    work = ffn_memories._pass(lab, CONFIG, source, windows)
    assert work.n_pieces > 5
    (whole,) = streamed([work])
    leading, follower = together(2, lambda world: streamed([work], keeper=keeper_in(tmp_path / "two", world=world)))
    assert isinstance(follower, ShareRead)
    assert same(leading[0], whole)
    keeper = keeper_in(tmp_path / "stopped")

    def read(state: ffn_memories.State, piece: int) -> ffn_memories.State:
        stop_at(4)(piece)
        return work.read(state, piece)

    with pytest.raises(RuntimeError):
        streamed([replace(work, read=read)], keeper=keeper)
    (resumed,) = streamed([work], keeper=keeper)
    assert same(resumed, whole)
    assert sum(stream.n_prefixes for stream in whole) == 2 * windows.n_prefixes


def test_what_is_kept_does_not_grow_with_the_corpus(lab: Lab, tmp_path: Path) -> None:
    sizes = []
    for n_tokens in (300, 1500):
        config = replace(CONFIG, n_tokens=n_tokens, batch_size=16)
        windows = ffn_memories.planned_windows(lab, config)
        work = ffn_memories._pass(lab, config, study_text(lab, "train"), windows)
        keeper = keeper_in(tmp_path / str(n_tokens))
        keeper.keep("now", Kept(streamed([work])[0], frozenset(range(work.n_pieces))), work.n_pieces)
        (file,) = keeper.folder.iterdir()
        sizes.append(file.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 500  # the list of pieces


def test_a_stopped_study_leaves_a_hidden_folder_and_a_finished_one_none(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    saved: list[Tally] = []

    def running(stop: Callable[[int], None]) -> Callable[..., Tally]:
        def run(subject: Lab, config: Any, *, progress: Any = None, keeper: Any = None) -> Tally:
            return streamed([counting(read, stop)], keeper=keeper, progress=progress)[0]

        return run

    monkeypatch.setattr(study, "save_result", lambda _studies, result, _asked: saved.append(result))
    folder = lab.path / "studies" / "ffn-memories"
    monkeypatch.setattr(ffn_memories, "run", running(stop_at(4)))
    with pytest.raises(RuntimeError):
        study.run_everywhere("ffn-memories", lab.path)
    assert [path.name.startswith(".unfinished-00000008-") for path in folder.iterdir()] == [True]
    monkeypatch.setattr(ffn_memories, "run", running(lambda piece: None))
    study.run_everywhere("ffn-memories", lab.path, ["n_tokens=9"])  # another question
    assert read == [0, 1, 2, 3, *range(N)]
    study.run_everywhere("ffn-memories", lab.path)
    assert read[-6:] == [4, 5, 6, 7, 8, 9]
    assert len(read) == 4 + N + 6
    each_once(tuple(saved))
    assert list(folder.iterdir()) == []


def test_a_text_of_the_users_is_read_in_place_of_the_corpus(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("def f():\n    return 1\n" * 20)
    (tmp_path / "two.txt").write_text("x = [0] * 3\n" * 20)
    text = study_text(lab, "train", str(tmp_path / "*.txt"))
    assert [lab.tokenizer.decode(text.tokens[start:stop].tolist())[:6] for start, stop in text.spans] == [
        "def f(",
        "x = [0",
    ]
    assert text.files == (tmp_path / "one.txt", tmp_path / "two.txt")
    config = replace(CONFIG, text=str(tmp_path / "one.txt"), n_tokens=1000, n_deleted=0, batch_size=8)
    assert ffn_memories.inputs(lab, config)[-1] == tmp_path / "one.txt"
    windows = ffn_memories.planned_windows(lab, config)
    assert windows.n_prefixes == 440 - 1
    (streams,) = streamed([ffn_memories._pass(lab, config, study_text(lab, "train", config.text), windows)])
    assert streams[0].n_prefixes == 440 - 1
    tokens = lab.tokenizer.encode((tmp_path / "one.txt").read_text())
    end = int(positions_of(streams[1].top)[3, 0])
    start = int(windows.start_of(torch.tensor(end)))
    given = torch.tensor([[lab.tokenizer.bos, *tokens[start : end + 1]]])
    _, cache = lab.gpt.run_with_cache(given)
    assert float(cache["post", 1][0, -1, 3]) == pytest.approx(float(values_of(streams[1].top)[3, 0]), abs=1e-5)


def test_a_text_that_cannot_be_read_is_one_sentence(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="matches no file"):
        study_text(lab, "train", str(tmp_path / "none.txt"))
    (tmp_path / "short.txt").write_text("x")
    with pytest.raises(InputError, match="holds fewer than two tokens"):
        study_text(lab, "train", str(tmp_path / "short.txt"))
    with pytest.raises(InputError, match='no split "test"'):
        study_text(lab, "test")
    assert text_paths("") == []


SCRIPT = """
import functools, os, signal, sys
from types import SimpleNamespace
from analyses import ffn_memories, kept_states, study
from analyses.records import encode

kill_at, seen, real = int(sys.argv[2]), [], ffn_memories.stream_prefixes

def reading(*given):
    seen.append(1)
    if len(seen) == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given)

def saving(studies, result, asked):  # the drawings take longer than all the rest
    print("saved", kept_states._hash_of({}, encode(result)[1]))
    return SimpleNamespace(findings=tuple, provenance=asked, path=studies / "a" / "b" / "c" / "d")


study.Keeper = functools.partial(study.Keeper, seconds=0.0)
ffn_memories.stream_prefixes, study.save_result, study.untold = reading, saving, lambda saved: None
settings = ["n_tokens=300", "batch_size=2", "n_random_sets=20", "n_deleted=2", "n_permutations=20"]
words = [word for setting in settings for word in ("--set", setting)]
sys.exit(study.main("ffn-memories", [sys.argv[1], "--device", "cpu", *words]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_process_two_under_torchrun_and_a_killed_one_write_the_same_bytes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}

    def answered(*start: str, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
        command = [*start, str(script), str(run.path), str(kill_at)]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)

    def saved(done: subprocess.CompletedProcess[str]) -> list[str]:
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("saved ")]

    run = python_lab(tmp_path / "run")
    (one,) = saved(answered(sys.executable))
    assert saved(answered(*launch)) == [one]  # the other process says nothing
    assert answered(sys.executable, kill_at=5).returncode == -signal.SIGKILL
    (kept,) = (run.path / "studies" / "ffn-memories").glob(".unfinished-*/*.safetensors")
    assert kept.name == "step-8.0.safetensors"
    assert answered(*launch, kill_at=2).returncode != 0  # two go on, and are killed as well
    assert saved(answered(sys.executable)) == [one]
