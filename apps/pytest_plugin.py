"""A pytest plugin that tests written claims: `pytest claims/ --cutaway-run runs/demo`.

Each `[[claim]]` of a TOML file becomes a test, at each checkpoint that `--cutaway-step` names (or the file does).

    passed     the verdict is the one that the file expects: supported, or refuted where it says expected = "refuted"
    failed     it is the opposite; the failure is the verdict's sentence, with effect, interval, n, seed, control and p
    skipped    it is undecided: the reason says why, and that is neither good news nor bad

Claims that run at the same checkpoint in one session are tested together: their p-values are corrected for each other.
Without `--cutaway-run` the plugin does nothing and imports nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from analyses.hypotheses import Claim, Record

_HOLDS_CLAIMS = re.compile(rb"^\s*\[\[?\s*claims?\b", re.MULTILINE)
"""Also where the brackets or the name are wrong: then reading it says so, and no claim is silently left out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Three options, without which nothing is collected."""
    group = parser.getgroup("cutaway", "written claims about a trained model")
    group.addoption("--cutaway-run", metavar="RUN[@STEP]", help="Test the claims of TOML files on this run.")
    group.addoption("--cutaway-step", metavar="last|all|N[,N]", help="Which checkpoints; else what the files say.")
    group.addoption("--cutaway-device", metavar="auto|cpu|cuda", default="cpu", help="Where to compute (cpu).")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """TOML files with claims, if a run was named."""
    if parent.config.getoption("cutaway_run") is None or file_path.suffix != ".toml":
        return None
    is_asked = any(Path(str(each).partition("::")[0]).resolve() == file_path for each in parent.config.args)
    if not is_asked and not _HOLDS_CLAIMS.search(file_path.read_bytes()):
        return None
    return ClaimsFile.from_parent(parent, path=file_path)


class ClaimsFile(pytest.File):
    """One file of claims."""

    def collect(self) -> Iterator[pytest.Item]:
        """A test for each claim and checkpoint."""
        from analyses.claims.files import read_claims
        from analyses.hypotheses import steps_of
        from model.errors import CutawayError

        option = self.config.getoption
        try:
            steps = steps_of(read_claims(self.path), str(option("cutaway_run")), option("cutaway_step"))
        except CutawayError as error:
            raise self.CollectError(str(error)) from None
        for step, here in steps.items():
            for claim in here:
                yield ClaimItem.from_parent(self, name=f"{claim.name}[{step}]", claim=claim, step=step)


class ClaimItem(pytest.Item):
    """One claim at one checkpoint."""

    def __init__(self, *, claim: Claim, step: int, **rest: Any) -> None:
        super().__init__(**rest)
        self.claim = claim
        self.step = step

    def runtest(self) -> None:
        """Pass, fail or skip by the verdict."""
        from analyses.hypotheses import sentence

        verdict = _Together.of(self.session).record(self).verdict
        if verdict.as_expected is None:
            pytest.skip(sentence(verdict))
        if not verdict.as_expected:
            raise _UnexpectedVerdict(sentence(verdict))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A sentence for a verdict and for every foreseeable error; a traceback means a bug of ours."""
        from model.errors import CutawayError

        if isinstance(excinfo.value, _UnexpectedVerdict | CutawayError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the claim stands, and its words."""
        return self.path, None, self.name


class _UnexpectedVerdict(Exception):
    """A claim that did not come out as its file says."""


_TOGETHER = pytest.StashKey["_Together"]()


class _Together:
    """The claims of a session, tested together at each checkpoint when the first of them is run."""

    def __init__(self, session: pytest.Session) -> None:
        self.items = [item for item in session.items if isinstance(item, ClaimItem)]
        self.run = str(session.config.getoption("cutaway_run"))
        self.device = str(session.config.getoption("cutaway_device"))
        self.records: dict[int, dict[str, Record | Exception]] = {}

    @classmethod
    def of(cls, session: pytest.Session) -> _Together:
        """The one of this session; made after items were deselected."""
        return session.config.stash.setdefault(_TOGETHER, cls(session))

    def record(self, item: ClaimItem) -> Record:
        """The verdict on one claim; raises what its own file has wrong, never what another's has."""
        if item.step not in self.records:
            self.records[item.step] = self._tested(item.step)
        found = self.records[item.step][item.nodeid]
        if isinstance(found, Exception):
            raise found
        return found

    def _tested(self, step: int) -> dict[str, Record | Exception]:
        from analyses.hypotheses import check, records_at
        from model.errors import CutawayError
        from model.lab import open_run, parse_run_spec

        path, _ = parse_run_spec(self.run)
        lab = open_run(f"{path}@{step}", self.device)
        found: dict[str, Record | Exception] = {}
        sound = []
        for item in self.items:
            if item.step == step:
                try:
                    check([item.claim], lab)
                    sound.append(item)
                except CutawayError as error:
                    found[item.nodeid] = error
        several = len({item.step for item in self.items}) > 1
        records = records_at([item.claim for item in sound], path, step, device=self.device, excuse=several)
        return found | {item.nodeid: record for item, record in zip(sound, records, strict=True)}
