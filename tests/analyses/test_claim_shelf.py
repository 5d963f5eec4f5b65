"""What a run has of claims: verdicts and claims are found, damaged files cost a sentence, figures say the bound."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from analyses.claims.bounds import Judged, Standing
from analyses.claims.records import Record, save_record
from analyses.claims.shelf import claim_shelf, verdict_finding, verdict_rows
from analyses.claims.statement import ControlKind
from analyses.claims.verdict_figure import verdict_figure
from analyses.claims.verdicts import Beside, Checkpoint, Measured, Verdict
from analyses.figures import theme
from interp.stats import Interval
from model.manifest import MANIFEST, Manifest, sealed
from model.run_folders import checkpoint_path


def verdict(step: int, mean: float, standing: Standing, bound: str = "harm >= 1", claim: str = "copies") -> Record:
    interval = Interval(mean=mean, low=mean - 0.25, high=mean + 0.25, n=8, level=0.95, method="percentile")
    found = Measured(
        subject="L1H1:mean ablated", meaning="loss on the second copy", unit="nats", whole="", clean=1.0,
        harm=interval, judged=Judged(interval=interval, standing=standing, p=0.001), alpha=0.05, n=8, looks=1,
        obstacle="", beside=Beside(kind=ControlKind.TEXT, beaten=True, said="text costs 0.1"),
    )  # fmt: skip
    said = Verdict(
        claim=claim, says="It copies.", bound=bound, file="claims/copying.toml", file_sha256="b" * 64,
        checkpoint=Checkpoint(run="demo", step=step, tokens_seen=1, weights_sha256="c" * 64),
        standing=standing, expected=Standing.SUPPORTED, reason="", measured=found, p=0.001, n_together=1,
        metric="copy_loss", seed=0, period=6,
    )  # fmt: skip
    return Record(verdict=said, statement={}, together=(claim,), device="cpu", seconds=1.0, created="2026", versions={})


EVERY = verdict(0, 0.0, Standing.REFUTED), verdict(512, 2.0, Standing.SUPPORTED)


def test_verdicts_and_claims_are_found_by_file_claim_and_step(tmp_path: Path) -> None:
    for record in reversed(EVERY):
        save_record(tmp_path, record)
    claim = '[[claim]]\nname = "{}"\nsays = "x"\nablate = "L1H1"\neffect = "harm >= 1"\ncontrol = "none"\n'
    (tmp_path / "claims" / "copying.toml").write_text(claim.format("copies") + claim.format("later"), "utf-8")
    shelf = claim_shelf(tmp_path)
    assert shelf.records == EVERY and shelf.of("copying", "copies") == EVERY
    assert shelf.tested == (("copying", "copies"),)
    assert [each.name for each in shelf.untested] == ["later"]
    assert shelf.faults == ()
    rows = verdict_rows(shelf.records)
    assert rows["verdict"].tolist() == ["refuted", "supported"] and rows["step"].tolist() == [0, 512]
    assert rows.loc[1, ["harm", "low", "high", "n", "control beaten"]].tolist() == [2.0, 1.75, 2.25, 8, True]
    assert [verdict_finding(each).found for each in EVERY] == [False, True]


def test_a_damaged_file_costs_a_sentence_and_not_the_others(tmp_path: Path) -> None:
    save_record(tmp_path, EVERY[1])
    (tmp_path / "claims" / "copying" / "copies" / "00000000.json").write_text("{", "utf-8")
    (tmp_path / "claims" / "mine.toml").write_text("[[claim]]\nname = 3\n", "utf-8")
    shelf = claim_shelf(tmp_path)
    assert shelf.records == EVERY[1:]
    assert any("00000000.json" in fault for fault in shelf.faults) and any(
        "mine.toml" in fault for fault in shelf.faults
    )
    assert claim_shelf(tmp_path / "no run").records == ()


def test_a_verdict_on_other_weights_than_the_checkpoint_holds_is_left_out(tmp_path: Path) -> None:
    for record in EVERY:
        save_record(tmp_path, record)
    for step, weights in ((0, "c" * 64), (512, "d" * 64)):
        folder = checkpoint_path(tmp_path, step)
        folder.mkdir(parents=True)
        manifest = Manifest(step=step, tokens_seen=0, weights_sha256=weights, files={}, extra={})
        (folder / MANIFEST).write_text(json.dumps(sealed(manifest)))
    shelf = claim_shelf(tmp_path)
    assert shelf.records == EVERY[:1]
    (fault,) = shelf.faults
    assert (
        "the verdict on other weights (cccccccc) than step 512 holds by now (dddddddd); test the claim again" in fault
    )


@pytest.mark.parametrize(
    ("bound", "shaded"), [("harm >= 1", (1.0, None)), ("harm <= 0.5", (None, 0.5)), ("|harm| <= 0.5", (-0.5, 0.5))]
)
def test_a_figure_shades_what_the_claim_allows(bound: str, shaded: tuple[float | None, float | None]) -> None:
    figure = verdict_figure([replace(each, verdict=replace(each.verdict, bound=bound)) for each in EVERY])
    (allowed,) = figure["layer"][0]["data"]["values"]
    low, high = figure["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert (allowed["from"], allowed["to"]) == (
        low if shaded[0] is None else shaded[0],
        high if shaded[1] is None else shaded[1],
    )
    assert low < -0.25 and high > 2.25  # every interval is on the axis
    assert [row["mean"] for row in figure["data"]["values"]] == [0.0, 2.0]
    alt.Chart.from_dict({**figure, "config": theme()}, validate=True)


def test_a_verdict_that_measured_nothing_is_no_point() -> None:
    empty = replace(EVERY[0], verdict=replace(EVERY[0].verdict, measured=None, reason="no head was found"))
    assert verdict_figure([empty])["data"]["values"] == []
    assert verdict_rows([empty])["harm"].isna().all()
