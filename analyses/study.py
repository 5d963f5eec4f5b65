"""Running a study: open the checkpoint, ask the question, keep the answer with where it came from.

`run_study("attention-patterns", "runs/demo@512")` opens the checkpoint, runs the study's pure `run`, and saves
result, table and figure under the run. A result of the same weights and config that is already there is returned
instead. `RUN@all` runs every checkpoint. The command `cutaway run` and `python -m analyses.attention_patterns` are
both this.

Under `torchrun` the processes share out checkpoints (RUN@all), or the corpus of a study that streams one
(`analyses.streamed`); of any other study the first process does all. It alone answers, and with what one process would
have: the others return nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from analyses import training_curve
from analyses.kept_states import Keeper
from analyses.registry import STUDIES, Finding, Progress, Study, get_study
from analyses.results import Provenance, SavedResult, load_result, result_folder, save_result
from analyses.streamed import ShareRead
from analyses.versions import versions
from model.checkpoint import checkpoint_steps
from model.errors import CheckpointError, CutawayError, InputError
from model.files import sha256_of
from model.lab import RUN, Lab, imported_from, open_run, parse_run_spec, read_run
from model.settings import config_hash, to_plain, with_settings
from model.training.distributed import World, connected, pick_device

__all__ = [
    "STUDIES", "Finding", "Progress", "Provenance", "SavedResult", "Study", "get_study", "load_result", "main",
    "run_everywhere", "run_study", "save_result", "untold",
]  # fmt: skip


def run_study(
    name: str,
    spec: str | Path | None,
    settings: Sequence[str] = (),
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    reuse: bool = True,
    runs: Path = Path("runs"),
) -> SavedResult:
    """Run study `name` on `spec` (RUN, RUN@STEP, RUN@all, or None) and save what it found.

    For RUN@all every checkpoint is run and saved, and the last one's result is returned; `run_everywhere` returns
    them all. With `reuse` a saved result of the same config and the same weights is returned without running. `runs`
    is where the results of studies without a run go (`runs/_studies`).
    """
    return run_everywhere(name, spec, settings, device=device, progress=progress, reuse=reuse, runs=runs)[-1]


def run_everywhere(
    name: str,
    spec: str | Path | None,
    settings: Sequence[str] = (),
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    reuse: bool = True,
    runs: Path = Path("runs"),
    world: World | None = None,
    told: Callable[[str], None] | None = None,
) -> list[SavedResult]:
    """Like `run_study`, with one result for each checkpoint that `spec` names, in order of step.

    `device` is auto, cpu or cuda; what it comes to is where every model runs, and what the record says. The processes
    of a `world` share the work, and those that do not lead return no result. `told` is given what is worth a sentence
    and not an error, such as kept work that cannot be used.
    """
    study, place, world = get_study(name), str(pick_device(device)), world or World()
    asked = _Question(
        study=study,
        config=with_settings(study.config_class(), list(settings)),
        device=place,
        progress=progress if world.leads else None,
        reuse=reuse,
        world=world,
        told=told if world.leads and told is not None else _unheard,
        no_run=runs / "_studies",
    )
    if spec is None:
        if study.needs_run:
            raise InputError(f"{name} studies a checkpoint; say which, as RUN or RUN@STEP, for example runs/demo@512.")
        return asked.answers([lambda: None])
    return asked.answers(_checkpoints(str(spec), place))


def _checkpoints(spec: str, device: str) -> list[Callable[[], Lab]]:
    """What opens each checkpoint that a spec names."""
    path, step = parse_run_spec(spec)
    specs = [f"{path}@{each}" for each in checkpoint_steps(path)] if step == "all" else [spec]
    if not specs:
        raise CheckpointError(f"{path} has no complete checkpoint to study; train it first.")
    return [partial(open_run, each, device=device) for each in specs]


def _unheard(sentence: str) -> None:
    del sentence


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is asked, the same for every checkpoint it is asked of."""

    study: Study
    config: Any
    device: str
    """Where it is asked: cpu, or cuda with its number."""
    progress: Progress | None
    reuse: bool
    world: World
    """The processes that answer."""
    told: Callable[[str], None]
    no_run: Path
    """Where results of no run go."""

    def answers(self, subjects: Sequence[Callable[[], Lab | None]]) -> list[SavedResult]:
        """A result for each subject, in the leading process; several are dealt to the processes, one is shared."""
        if len(subjects) == 1 or self.world.size == 1:
            found = [self.answer(opened()) for opened in subjects]
            return [saved for saved in found if saved is not None]
        alone, rank, size = replace(self, world=World()), self.world.rank, self.world.size
        mine = {index: alone.answer(subjects[index]()) for index in range(rank, len(subjects), size)}
        self.world.wait()
        if not self.world.leads:
            return []
        return [mine.get(index) or self._saved(opened()) for index, opened in enumerate(subjects)]

    def answer(self, lab: Lab | None) -> SavedResult | None:
        """The saved result if it is there and still the answer, else a new one; None where another process leads."""
        studies = self._studies(lab)
        asked = self._provenance(lab)
        known = _known(studies, asked) if self.reuse else None
        self.world.wait()  # before the leading process saves a result that another one then finds
        if known is not None or not (self.world.leads or self.study.is_shared):
            return known if self.world.leads else None
        keeper = self._keeper(studies, asked)
        started = time.perf_counter()
        try:
            result = self.study.run(lab, self.config, progress=self.progress, device=self.device, keeper=keeper)
        except ShareRead:
            return None
        seconds = round(time.perf_counter() - started, 3)
        saved = save_result(studies, result, replace(asked, seconds=seconds, created=_now()))
        keeper.forget()
        return saved

    def _saved(self, lab: Lab | None) -> SavedResult:
        """What another process has just saved."""
        return load_result(result_folder(self._studies(lab), self._provenance(lab)))

    def _studies(self, lab: Lab | None) -> Path:
        return self.no_run if lab is None else Path(lab.path) / "studies"

    def _keeper(self, studies: Path, asked: Provenance) -> Keeper:
        """Where unfinished work on this question is kept: beside its result, under a hidden name."""
        final = result_folder(studies, asked)
        return Keeper(
            folder=final.with_name(f".unfinished-{final.name}"),
            asked=[*_what_decides(asked), self.device.partition(":")[0]],
            world=self.world,
            told=self.told,
        )

    def _provenance(self, lab: Lab | None) -> Provenance:
        return Provenance(
            study=self.study.name,
            run=None if lab is None else lab.name,
            step=None if lab is None else lab.step,
            tokens_seen=None if lab is None else lab.tokens_seen,
            weights_sha256=None if lab is None else lab.weights_sha256,
            corpus_sha256=None if lab is None else _corpus_sha256(lab),
            inputs_sha256=_inputs_sha256(self.study.inputs(lab, self.config)),
            config=to_plain(self.config),
            config_hash=config_hash(self.config),
            seed=self.config.seed,
            device=str(self.device if lab is None else lab.gpt.device),
            seconds=0.0,
            created=_now(),
            versions=versions(),
        )


def _known(studies: Path, asked: Provenance) -> SavedResult | None:
    """A readable saved result of the same weights, config and software; anything else is computed afresh."""
    folder = result_folder(studies, asked)
    if not folder.is_dir():
        return None
    try:
        saved = load_result(folder)
        saved.result  # noqa: B018  (read now, so that a broken file is found here)
    except CheckpointError:
        return None
    return saved if _what_decides(saved.provenance) == _what_decides(asked) else None


def _what_decides(provenance: Provenance) -> tuple[Any, ...]:
    """What two results must share to be the same answer: everything but when, where and how fast."""
    hashes = provenance.weights_sha256, provenance.corpus_sha256, provenance.inputs_sha256
    return *hashes, provenance.config, provenance.versions


def _corpus_sha256(lab: Lab) -> str | None:
    """The hash recorded when the run began; the corpus itself need not be there any more."""
    recorded = lab.run_config.get("corpus_sha256")
    return recorded if isinstance(recorded, str) else None


def _inputs_sha256(paths: Sequence[Path]) -> str | None:
    """One hash over the files a study reads beside weights and corpus; None where it reads none."""
    if not paths:
        return None
    return sha256_of("".join(sha256_of(path.read_bytes()) if path.is_file() else "-" for path in paths).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main(study: str, arguments: Sequence[str] | None = None) -> int:
    """`python -m analyses.STUDY RUN[@STEP|@all]`: run, save, say what was found; 2 and a sentence on a user's error."""
    given = _parser(study).parse_args(arguments)
    try:
        with connected(pick_device(given.device)) as world:
            results = run_everywhere(
                study,
                given.run,
                given.settings,
                device=given.device,
                reuse=not given.fresh,
                world=world,
                told=_complain,
            )
        if results:
            sys.stdout.write(_json_text(results) if given.json else "\n".join(map(_spoken, results)) + "\n")
    except CutawayError as error:
        _complain(str(error))
        return 2
    return 0


def _complain(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


def _parser(study: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {STUDIES[study]}", description=get_study(study).question)
    parser.add_argument("run", nargs="?", metavar="RUN[@STEP|@all]", help="what to study, for example runs/demo@512")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="one setting")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="write the record instead of sentences")
    parser.add_argument("--fresh", action="store_true", help="run again even if the result is saved")
    return parser


def untold(saved: SavedResult) -> str | None:
    """For an imported run, that nothing is known of its training; None for every other."""
    run, folder = saved.provenance.run, saved.path.parents[2]
    source = imported_from(read_run(folder)) if run is not None and (folder / RUN).is_file() else None
    return None if run is None or source is None else training_curve.untold(run, source)


def _spoken(saved: SavedResult) -> str:
    said = [finding.sentence for finding in saved.findings()]
    return "\n".join([*said, *filter(None, [untold(saved)]), f"Saved in {saved.path}."])


def _json_text(results: Sequence[SavedResult]) -> str:
    """One object for one result, a list for several."""
    if len(results) == 1:
        return results[0].to_json()
    return json.dumps([json.loads(saved.to_json()) for saved in results], indent=1) + "\n"
