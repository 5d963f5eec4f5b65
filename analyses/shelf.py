"""Which saved results belong to a run. Damage costs a sentence, never the other results.

A result is of the weights it was computed from. Where a run was trained again in place, its checkpoint holds others by
now, and the result is left out, with a sentence, as one that cannot be read is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from analyses.result_files import read_record
from analyses.results import RECORD, OtherVersion, SavedResult, load_result
from model.errors import CheckpointError, CutawayError
from model.manifest import MANIFEST, read_manifest
from model.run_folders import checkpoint_path


class OtherWeights(CheckpointError):
    """A result is whole, but the checkpoint of its step holds other weights by now."""

    def __init__(self, saved: SavedResult, sentence: str) -> None:
        super().__init__(sentence)
        self.saved = saved


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The saved results of one study of one run."""

    results: tuple[SavedResult, ...] = ()
    """Those that can be read, by step; of one step the run's own last, and the newest of these at the very end."""

    errors: tuple[CutawayError, ...] = ()
    """Why each of the others is left out."""

    @property
    def faults(self) -> tuple[str, ...]:
        """A sentence for each that is damaged, one for all of other weights, one for all of another version."""
        return fault_sentences(self.errors)

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps there are results for."""
        return tuple(sorted({saved.provenance.step for saved in self.results if saved.provenance.step is not None}))

    def every(self, step: int | None) -> tuple[SavedResult, ...]:
        """The results at `step`, one for each config, newest first."""
        return tuple(saved for saved in reversed(self.results) if saved.provenance.step == step)

    def at(self, step: int | None) -> SavedResult | None:
        """The newest result at `step`."""
        return next(iter(self.every(step)), None)


def whole_result(folder: Path) -> SavedResult:
    """The result in `folder`, read to the last tensor, so that damage is found here."""
    saved = load_result(folder)
    saved.result  # noqa: B018  (reading is the point)
    return saved


def of_its_weights(saved: SavedResult) -> SavedResult:
    """The result as it is, if the checkpoint of its step still holds the weights that were studied.

    Nothing can be compared, and the result stands, where the checkpoint is gone or no run was studied.

    Raises:
        OtherWeights: the checkpoint was written again, with other weights.
    """
    where = saved.provenance
    if where.run is None or where.step is None or where.weights_sha256 is None:
        return saved
    now = weights_now(saved.path.parents[2], where.step)
    if now is None or now == where.weights_sha256:
        return saved
    raise OtherWeights(
        saved,
        f"{saved.path} is of other weights ({where.weights_sha256[:8]}) than {where.run}@{where.step} holds by now "
        f"({now[:8]}); `{saved.command}` makes it again.",
    )


def weights_now(run_dir: Path, step: int) -> str | None:
    """The hash of a checkpoint's weights by its manifest; None where there is none to read."""
    folder = checkpoint_path(run_dir, step)
    try:
        return _weights(folder, (folder / MANIFEST).stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=1024)
def _weights(folder: Path, stamp: int) -> str | None:
    """A page asks about some dozens of results, so a manifest is read once for each time that it was written."""
    del stamp
    try:
        return read_manifest(folder).weights_sha256
    except CheckpointError:  # told where the checkpoint is opened
        return None


def studied_weights(folder: Path) -> str | None:
    """The hash of the weights that the result in `folder` is of, by its record alone; None where that does not say."""
    try:
        return _studied(folder, (folder / RECORD).stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=1024)
def _studied(folder: Path, stamp: int) -> str | None:
    del stamp
    try:
        known = read_record(folder)["provenance"]
    except CutawayError:
        return None
    weights = known.get("weights_sha256") if isinstance(known, dict) else None
    return weights if isinstance(weights, str) else None


def shelf(run_dir: Path, study: str, read: Callable[[Path], SavedResult] = whole_result) -> Shelf:
    """What is saved of `study` for the run in `run_dir`: its own, that of no run, and that of a pair it is half of.

    Args:
        run_dir: the run's folder, beside those of other runs.
        study: the study's name on the command line.
        read: opens a folder of a result; raises a `CutawayError` where it cannot.
    """
    return _shelf(Path(run_dir), study, read, [Path(run_dir).parent / "_studies", Path(run_dir) / "studies"])


def shelf_of_run(run_dir: Path, study: str, read: Callable[[Path], SavedResult] = whole_result) -> Shelf:
    """Like `shelf`, without what is saved of no run."""
    return _shelf(Path(run_dir), study, read, [Path(run_dir) / "studies"])


def _shelf(run_dir: Path, study: str, read: Callable[[Path], SavedResult], places: Sequence[Path]) -> Shelf:
    """The results in `places`, and those of pairs that the run is half of."""
    good: list[SavedResult] = []
    faults: list[CutawayError] = []
    for folder in (folder for place in places for folder in _folders(place / study)):
        try:
            good.append(of_its_weights(read(folder)))
        except CutawayError as error:
            faults.append(error)
    good += _of_pairs(run_dir, study, read)
    good.sort(key=lambda saved: (_step(saved), run_dir in saved.path.parents, saved.provenance.created))
    return Shelf(results=tuple(good), errors=tuple(faults))


def fault_sentences(faults: Sequence[CutawayError]) -> tuple[str, ...]:
    """What is left out and why: what can only be made again in one sentence for each study, with what makes it."""
    again: dict[tuple[type, str], list[SavedResult]] = {}
    for fault in faults:
        if isinstance(fault, OtherVersion | OtherWeights):
            again.setdefault((type(fault), fault.saved.study), []).append(fault.saved)
    damaged = [str(fault) for fault in faults if not isinstance(fault, OtherVersion | OtherWeights)]
    return (*damaged, *(_left_out(kind, study, saved) for (kind, study), saved in again.items()))


def _left_out(kind: type, study: str, saved: Sequence[SavedResult]) -> str:
    commands = list(dict.fromkeys(each.command.removesuffix(" --fresh") for each in saved))
    named = " and ".join(f"`{command}`" for command in commands[:_NAMED])
    more = "" if len(commands) <= _NAMED else f" and {len(commands) - _NAMED} more commands like these"
    several = len(saved) > 1
    n, are, them = (f"{len(saved)} results", "are", "them") if several else ("1 result", "is", "it")
    make = "make" if len(commands) > 1 else "makes"
    steps = ", ".join(str(each.provenance.step) for each in saved)
    why = f"saved by another version of {study}" if kind is OtherVersion else (
        f"of {study} at step{'s' if several else ''} {steps} {are} of other weights than the checkpoint"
        f"{'s hold' if several else ' holds'} by now, and"
    )  # fmt: skip
    return f"{n} {why} {are} left out; {named}{more} {make} {them} again."


_NAMED = 2
"""Commands written out in one sentence."""


def _of_pairs(run_dir: Path, study: str, read: Callable[[Path], SavedResult]) -> Iterator[SavedResult]:
    """Results of neighbouring runs that name this one as their twin; what is damaged there is told there."""
    for theirs in sorted(run_dir.parent.glob(f"*/studies/{study}")):
        for folder in _folders(theirs) if theirs.parents[1] != run_dir else ():
            try:
                saved = of_its_weights(read(folder))
            except CutawayError:
                continue
            twin = saved.provenance.config.get("twin")
            if isinstance(twin, str) and Path(twin).name == run_dir.name:
                yield saved


def _folders(results: Path) -> list[Path]:
    return sorted(record.parent for record in results.glob(f"[!.]*/{RECORD}"))


def _step(saved: SavedResult) -> int:
    return -1 if saved.provenance.step is None else saved.provenance.step
