"""Passes over a corpus that several processes share, and that go on where they were killed.

A pass is cut into pieces that depend on the corpus and the config alone. Under `torchrun` each process reads every
n-th of the pieces that are not yet read, keeps its state on disk, and ends without a word; the first one merges all
states and goes on alone. Without `torchrun` the first process is the only one and does the same. States must merge to
the same bits in any order (counts, top k, `interp.exact_sums`, samples by hash), and then one process, several, and
one that was killed and started again find the same, bit for bit.

With a `Keeper` (`analyses.kept_states`) a state is saved every half minute, and when Ctrl-C, SIGTERM or an error ends
the pass. Without one, in a notebook or a test, nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from analyses.kept_states import Keeper, Kept, clean
from analyses.registry import Progress
from model.errors import CheckpointError
from model.training.distributed import World
from model.training.interrupts import Interrupted, stop_requests

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class Pass(Generic[State]):
    """One pass over a corpus."""

    name: str
    """Names its files: letters, digits and hyphens; of several passes of one study each has its own."""
    what: str
    """What it does, for the progress bar."""
    n_pieces: int
    empty: State
    """What is known before anything is read."""
    read: Callable[[State, int], State]
    """What is known after one more piece."""
    merge: Callable[[State, State], State]
    """What two disjoint parts say together."""
    state_class: Any
    """The type of the state, as `analyses.records.decode` needs it."""


class ShareRead(Exception):
    """In a process that does not lead: its share of every pass is read and saved, and nothing is left to do."""


def piece_count(n_batches: int) -> int:
    """Into how many pieces a pass of so many batches is cut: at most 64, each of neighbouring batches."""
    return min(n_batches, 64)


def batches_of(piece: int, n_batches: int) -> range:
    """The batches of a piece."""
    n_pieces = piece_count(n_batches)
    return range(piece * n_batches // n_pieces, (piece + 1) * n_batches // n_pieces)


def streamed(
    passes: Sequence[Pass[State]], *, keeper: Keeper | None = None, progress: Progress | None = None
) -> tuple[State, ...]:
    """The state after each whole pass; raises `ShareRead` in processes that do not lead."""
    world = World() if keeper is None else keeper.world
    done = [_known(each, keeper) for each in passes]
    n_total, n_done = sum(each.n_pieces for each in passes), sum(len(kept.pieces) for kept in done)
    with nullcontext(_never) if keeper is None else stop_requests() as asked:
        for index, each in enumerate(passes):
            left = [piece for piece in range(each.n_pieces) if piece not in done[index].pieces]
            begun = done[index] if world.leads else Kept(each.empty, frozenset())
            told = _told(progress, each.what, n_done, n_total, world.size)
            done[index] = _read(each, begun, left[world.rank :: world.size], keeper, asked, told)
            n_done += len(left)
    if keeper is None or world.size == 1:
        return tuple(kept.state for kept in done)
    world.wait()
    if not world.leads:
        raise ShareRead
    return tuple(_gathered(each, kept, keeper) for each, kept in zip(passes, done, strict=True))


def _known(each: Pass[State], keeper: Keeper | None) -> Kept[State]:
    """What was kept earlier: in the leading process its state, in the others only which pieces are in it."""
    nothing = Kept(each.empty, frozenset())
    if keeper is None:
        return nothing
    if keeper.world.leads:
        clean(keeper.folder)
        found = keeper.found(each.name, each.state_class, each.n_pieces)
        known = _joined(each, nothing, found)
        keeper.replace(each.name, known if found else None, each.n_pieces)
        keeper.world.wait()
        return known
    keeper.world.wait()
    return Kept(each.empty, keeper.pieces(each.name))


def _read(
    each: Pass[State],
    kept: Kept[State],
    pieces: Sequence[int],
    keeper: Keeper | None,
    asked: Callable[[], bool],
    told: Callable[[int], None],
) -> Kept[State]:
    """The state after `pieces` more, saved now and then, and before anything ends the reading."""
    saved, since = kept, time.monotonic()
    try:
        for done, piece in enumerate(pieces):
            told(done)
            kept = Kept(each.read(kept.state, piece), kept.pieces | {piece})
            if asked():
                raise Interrupted(
                    f"Stopped while {each.what}, {len(kept.pieces)} of {each.n_pieces} pieces read and kept; "
                    "the same command goes on from there."
                )
            if keeper is not None and time.monotonic() - since >= keeper.seconds:
                keeper.keep(each.name, kept, each.n_pieces)
                saved, since = kept, time.monotonic()
    except BaseException:
        if keeper is not None and saved is not kept:
            keeper.keep(each.name, kept, each.n_pieces)
        raise
    if keeper is not None and not keeper.world.leads:
        keeper.keep(each.name, kept, each.n_pieces)
    return kept


def _gathered(each: Pass[State], mine: Kept[State], keeper: Keeper) -> State:
    """The state of the whole pass, from this process's and those that the others have kept."""
    whole = _joined(each, mine, keeper.found(each.name, each.state_class, each.n_pieces, of_others=True))
    if len(whole.pieces) != each.n_pieces:
        keeper.replace(each.name, whole, each.n_pieces)
        raise CheckpointError(
            f"Of {each.n_pieces} pieces {each.n_pieces - len(whole.pieces)} are missing from what the processes saved "
            f"in {keeper.folder}; give all of them the same folder and run the command again."
        )
    return whole.state


def _joined(each: Pass[State], first: Kept[State], others: Sequence[Kept[State]]) -> Kept[State]:
    def merged(one: Kept[State], other: Kept[State]) -> Kept[State]:
        return Kept(each.merge(one.state, other.state), one.pieces | other.pieces)

    return reduce(merged, others, first)


def _told(progress: Progress | None, what: str, n_done: int, n_total: int, n_processes: int) -> Callable[[int], None]:
    """Tell how far all processes are, from how many pieces this one has read."""

    def tell(done: int) -> None:
        if progress is not None:
            progress(min(n_done + done * n_processes, n_total), n_total, what)

    return tell


def _never() -> bool:
    return False
