"""What a run has of claims: the verdicts that `cutaway test` saved, and claims that are written with it.

    runs/NAME/claims/FILE.toml               claims as they were written
    runs/NAME/claims/FILE/CLAIM/STEP.json    their verdicts

A file that cannot be read costs a sentence, not the others; so does a verdict on other weights than the checkpoint
holds by now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analyses.claims.files import Claim, read_claims
from analyses.claims.records import Record, load_record
from analyses.claims.wording import sentence, short_effect
from analyses.registry import Finding
from analyses.shelf import weights_now
from model.errors import CheckpointError, CutawayError

FOLDER = "claims"

COLUMNS = (
    "file", "claim", "step", "verdict", "expected", "harm", "low", "high", "level", "unit", "effect", "claimed", "p",
    "control", "control beaten", "n", "seed", "metric", "ablated", "stated", "reason",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ClaimShelf:
    """Verdicts and claims of one run."""

    records: tuple[Record, ...]
    """By file, claim and step."""
    claims: tuple[Claim, ...]
    """In the order of their files."""
    faults: tuple[str, ...]
    """One sentence for each file that cannot be read."""

    def of(self, file: str, claim: str) -> tuple[Record, ...]:
        """The verdicts on one claim of the file with this stem, in the order of steps."""
        return tuple(
            record for record in self.records if (Path(record.verdict.file).stem, record.verdict.claim) == (file, claim)
        )

    @property
    def tested(self) -> tuple[tuple[str, str], ...]:
        """File and claim of every verdict, each once."""
        every = ((Path(record.verdict.file).stem, record.verdict.claim) for record in self.records)
        return tuple(dict.fromkeys(every))

    @property
    def untested(self) -> tuple[Claim, ...]:
        """Claims that are written with the run and have no verdict of it."""
        return tuple(claim for claim in self.claims if (claim.file.stem, claim.name) not in self.tested)


def claim_shelf(run_dir: Path) -> ClaimShelf:
    """Everything about claims that is saved with a run."""
    folder, records, claims, faults = run_dir / FOLDER, [], [], []
    for path in sorted(folder.glob("*/*/*.json")):
        try:
            records.append(_of_its_weights(load_record(path), path, run_dir))
        except CutawayError as error:
            faults.append(str(error))
    for path in sorted(folder.glob("*.toml")):
        try:
            claims += read_claims(path)
        except CutawayError as error:
            faults += str(error).splitlines()
    return ClaimShelf(records=tuple(records), claims=tuple(claims), faults=tuple(faults))


def _of_its_weights(record: Record, path: Path, run_dir: Path) -> Record:
    tested = record.verdict.checkpoint
    now = weights_now(run_dir, tested.step)
    if now in (None, tested.weights_sha256):
        return record
    raise CheckpointError(
        f"{path} is the verdict on other weights ({tested.weights_sha256[:8]}) than step {tested.step} holds by now "
        f"({now[:8]}); test the claim again, or delete the file."
    )


def verdict_rows(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each verdict: the effect with its interval in the outcome's unit, the bound, p, control, n, seed."""
    return pd.DataFrame([_row(record) for record in records], columns=list(COLUMNS))


def verdict_finding(record: Record) -> Finding:
    """A verdict as a sentence that affirms, denies, or cannot tell."""
    found = {"supported": True, "refuted": False}.get(record.verdict.standing.value)
    return Finding(sentence=sentence(record.verdict), found=found)


def _row(record: Record) -> dict[str, Any]:
    verdict, found = record.verdict, record.verdict.measured
    row: dict[str, Any] = {
        "file": Path(verdict.file).stem,
        "claim": verdict.claim,
        "step": verdict.checkpoint.step,
        "verdict": verdict.standing.value,
        "expected": verdict.expected.value,
        "effect": short_effect(verdict),
        "claimed": verdict.bound,
        "p": verdict.p,
        "seed": verdict.seed,
        "metric": verdict.metric,
        "stated": None if verdict.stated is None else verdict.stated.value,
        "reason": verdict.reason,
    }
    if found is None:
        return row
    harm, beside = found.harm, found.beside
    return row | {
        "harm": harm.mean, "low": harm.low, "high": harm.high, "level": harm.level, "unit": found.unit,
        "control": beside.kind.value, "control beaten": beside.beaten, "n": found.n, "ablated": found.subject,
    }  # fmt: skip
