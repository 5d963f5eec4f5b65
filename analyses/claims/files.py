"""Claims in TOML files: found, read strictly, and named in every error by file and claim."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses.claims.bounds import Bound
from analyses.claims.statement import Statement
from model.errors import CutawayError, Faults, InputError, UnknownNameError, closest
from model.files import read_bytes, sha256_of
from model.settings import from_plain

TABLE = "claim"
"""Each claim is a `[[claim]]`."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim and the file it is from."""

    stated: Statement
    file: Path
    file_sha256: str

    @property
    def name(self) -> str:
        """The claim's own name."""
        return self.stated.name

    @property
    def bound(self) -> Bound:
        """The expected effect."""
        return self.stated.bound

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let every foreseeable error inside say which claim of which file it is about."""
        with _named(self.file, self.name):
            yield


def load_claims(paths: Sequence[str | Path]) -> tuple[Claim, ...]:
    """The claims of TOML files, and of the `*.toml` in folders, in order.

    Raises:
        InputError: files that are no claims files, and claims that cannot be tested: all of them, a line each, which
            names file and claim.
        UnknownNameError: no such file, or a folder without any.
    """
    faults = Faults()
    claims: list[Claim] = []
    for path in paths:
        files: list[Path] = []
        with faults.noted():
            files = _files(Path(path))
        for file in files:
            with faults.noted():
                claims += read_claims(file)
    seen: dict[str, Path] = {}
    for claim in claims:
        if claim.name in seen:
            said = f'two claims are called "{claim.name}", in {seen[claim.name]} and {claim.file}; rename one.'
            faults.found.append(InputError(said))
        seen[claim.name] = claim.file
    faults.raise_any()
    return tuple(claims)


def read_claims(file: Path) -> tuple[Claim, ...]:
    """The claims of one file; what is wrong with each of them is said together."""
    content = read_bytes(file, InputError)
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no TOML file: {error}.") from None
    faults = Faults()
    for key in tables:
        if key != TABLE:
            said = f'{file} has "{key}", and claims files hold [[{TABLE}]] tables only.{closest(key, [TABLE])}'
            faults.found.append(InputError(said))
    found = tables.get(TABLE)
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        faults.raise_any()
        raise InputError(f"{file} holds no claim; write one as a [[{TABLE}]] table.")
    digest, claims = sha256_of(content), []
    for number, each in enumerate(found, start=1):
        with faults.noted():
            claims.append(Claim(stated=_statement(each, file, number), file=file, file_sha256=digest))
    faults.raise_any()
    return tuple(claims)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.is_file():
            raise UnknownNameError(f"There is no claims file {path}; give a .toml file or a folder of them.")
        return [path]
    files = sorted(path.glob("*.toml"))
    if not files:
        raise UnknownNameError(f"The folder {path} holds no claims (*.toml).")
    return files


def _statement(table: Mapping[str, Any], file: Path, number: int) -> Statement:
    name = table.get("name")
    with _named(file, name if isinstance(name, str) else f"number {number}"):
        step = table.get("step", "last")
        steps = [step] if isinstance(step, int) and not isinstance(step, bool) else step
        if isinstance(steps, list):
            steps = ",".join(str(each) for each in steps)
        return from_plain(Statement, {**table, "step": steps})


@contextmanager
def _named(file: Path, claim: str) -> Iterator[None]:
    try:
        yield
    except CutawayError as error:
        lines = (f'{file}, claim "{claim}": {line}' for line in str(error).splitlines())
        raise InputError("\n".join(lines)) from None
