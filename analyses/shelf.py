"""Which saved results belong to a run. Damage costs a sentence, never the other results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyses.results import RECORD, OtherVersion, SavedResult, load_result
from model.errors import CutawayError


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The saved results of one study of one run."""

    results: tuple[SavedResult, ...] = ()
    """Those that can be read, by step; of one step the run's own last, and the newest of these at the very end."""

    faults: tuple[str, ...] = ()
    """A sentence for each that is damaged, and one for all that another version saved."""

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
            good.append(read(folder))
        except CutawayError as error:
            faults.append(error)
    good += _of_pairs(run_dir, study, read)
    good.sort(key=lambda saved: (_step(saved), run_dir in saved.path.parents, saved.provenance.created))
    return Shelf(results=tuple(good), faults=fault_sentences(faults))


def fault_sentences(faults: Sequence[CutawayError]) -> tuple[str, ...]:
    """What is left out and why: what another version saved in one sentence for each study, with what makes it again."""
    older: dict[str, list[SavedResult]] = {}
    for fault in faults:
        if isinstance(fault, OtherVersion):
            older.setdefault(fault.saved.study, []).append(fault.saved)
    damaged = [str(fault) for fault in faults if not isinstance(fault, OtherVersion)]
    return (*damaged, *(_left_out(study, saved) for study, saved in older.items()))


def _left_out(study: str, saved: Sequence[SavedResult]) -> str:
    commands = list(dict.fromkeys(each.command.removesuffix(" --fresh") for each in saved))
    named = " and ".join(f"`{command}`" for command in commands[:_NAMED])
    more = "" if len(commands) <= _NAMED else f" and {len(commands) - _NAMED} more commands like these"
    n, are, them = (f"{len(saved)} results", "are", "them") if len(saved) > 1 else ("1 result", "is", "it")
    make = "make" if len(commands) > 1 else "makes"
    return f"{n} saved by another version of {study} {are} left out; {named}{more} {make} {them} again."


_NAMED = 2
"""Commands written out in one sentence."""


def _of_pairs(run_dir: Path, study: str, read: Callable[[Path], SavedResult]) -> Iterator[SavedResult]:
    """Results of neighbouring runs that name this one as their twin; what is damaged there is told there."""
    for theirs in sorted(run_dir.parent.glob(f"*/studies/{study}")):
        for folder in _folders(theirs) if theirs.parents[1] != run_dir else ():
            try:
                saved = read(folder)
            except CutawayError:
                continue
            twin = saved.provenance.config.get("twin")
            if isinstance(twin, str) and Path(twin).name == run_dir.name:
                yield saved


def _folders(results: Path) -> list[Path]:
    return sorted(record.parent for record in results.glob(f"[!.]*/{RECORD}"))


def _step(saved: SavedResult) -> int:
    return -1 if saved.provenance.step is None else saved.provenance.step
