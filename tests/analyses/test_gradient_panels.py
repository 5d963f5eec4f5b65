"""Gradient flow panel by panel: frames hold what was planted, figures are valid, and unfair pairs are named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import altair as alt
import pytest
import torch
from safetensors.torch import save_file

from analyses.figures import theme
from analyses.gradients import panel_figures as figures
from analyses.gradients.fairness import DIFFERS, SAME, UNKNOWN, WANTED, fairness_rows, unfair
from analyses.gradients.figure import PLACEMENTS
from analyses.gradients.panels import (
    RMS,
    logged_maps,
    logged_step,
    loss_frame,
    matrix_kinds,
    matrix_map_frame,
    ratio_frame,
    size_map_frame,
    stream_map_frame,
    stream_slice_frame,
)
from analyses.gradients.tables import GRADIENT
from model.checkpoint import WEIGHTS, checkpoint_path
from model.config import Norm

PLACES = ("blocks.0.hook_resid_pre", "blocks.1.hook_resid_pre", "blocks.1.hook_resid_post")


def run_at(
    folder: Path, norm: str, *, steps: tuple[int, ...] = (0, 1, 4), weight: float = 1.0, **settings: Any
) -> Path:
    """A run whose gradient at the bottom is 8, 4 and 2 times that at the top."""
    folder.mkdir(parents=True)
    train = {"seed": 0, "batch_size": 4, "accumulate": 1, "steps": 5, "log_every": 1, "probe_sequences": 2}
    config = {
        "model": {"norm": norm, "n_layers": 2},
        "data": {"sources": ["stdlib"]},
        "train": train,
        "optim": {"lr": 0.1},
    }
    for name, value in settings.items():
        group, _, key = name.partition("_")
        config[group][key] = value
    (folder / "run.json").write_text(json.dumps({"config": config, "corpus_sha256": "a" * 64}), "utf-8")
    rows = [
        {
            "step": step, "tokens": 10 * step, "loss": 3.0 - step / 10, "eval_loss": 2.5,
            "resid_grad_norms": dict(zip(PLACES, (2.0 ** (3 - i), 1.0, 1.0), strict=True)),
            "resid_norms": dict(zip(PLACES, (1.0, 2.0, 3.0 + i), strict=True)),
            "grad_norms": {"L0.W_Q": 0.5, "L1.W_Q": 2.0, "L0.W_out": 1.0, "L1.W_out": 0.0, "embed": 9.0},
        }
        for i, step in enumerate(steps)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    start = checkpoint_path(folder, 0)
    start.mkdir(parents=True)
    save_file({"shared": torch.full((2,), weight), norm: torch.ones(1)}, start / WEIGHTS)
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return run_at(tmp_path / "pre", "pre"), run_at(tmp_path / "post", "post")


def test_frames_hold_what_was_logged_of_both_runs(pair: tuple[Path, Path]) -> None:
    maps = logged_maps(*pair)
    bottom = stream_map_frame(maps).query("run == 'post' and where == 'L0 pre'")
    assert bottom[GRADIENT].tolist() == [8.0, 4.0, 2.0]
    assert bottom["step"].tolist() == [0, 1, 4] and bottom["until"].tolist() == [1, 4, 7]
    assert ratio_frame(maps, "dL/dx, bottom over top").query("run == 'pre'")["ratio"].tolist() == [8.0, 4.0, 2.0]
    assert set(ratio_frame(maps, "W_Q, last over first layer")["ratio"]) == {4.0}
    assert "W_out, last over first layer" not in set(ratio_frame(maps)["what"])  # its last is zero: no ratio
    assert matrix_kinds(maps) == ["W_Q", "W_out"]
    assert set(matrix_map_frame(maps, "W_out")["where"]) == {"L0.W_out"}  # embed is no matrix of a layer, and 0 no norm
    assert size_map_frame(maps)[RMS].max() == 5.0
    losses = loss_frame(*pair, what="training batch")
    assert losses["loss"].tolist() == [3.0, 2.9, 2.6] * 2 and losses["run"].tolist() == ["pre"] * 3 + ["post"] * 3


def test_a_slice_is_of_the_last_logged_step_before_the_selected_one(pair: tuple[Path, Path]) -> None:
    maps = logged_maps(*pair)
    assert [logged_step(maps[0], step) for step in (0, 1, 3, 4, 99)] == [0, 1, 1, 4, 4]
    frame = stream_slice_frame(maps, 3)
    assert set(frame["step"]) == {1}
    assert frame.query("run == 'pre'")[GRADIENT].tolist() == [4.0, 1.0, 1.0]
    assert frame.query("run == 'pre'")["where"].tolist() == ["L0 pre", "L1 pre", "L1 post"]


def test_a_run_that_logged_no_gradients_is_left_out(pair: tuple[Path, Path]) -> None:
    (pair[1] / "metrics.jsonl").write_text('{"step": 0, "tokens": 0, "loss": 3.0}\n', "utf-8")
    assert [each.run for each in logged_maps(*pair)] == ["pre"]


def test_both_maps_are_on_one_colour_scale_and_every_figure_is_valid(pair: tuple[Path, Path]) -> None:
    maps = logged_maps(*pair)
    frame = stream_map_frame(maps)
    rows = figures.records(frame)
    low, high = figures.colour_domain(rows, GRADIENT)
    assert low < 1.0 < 8.0 < high
    halves = [
        figures.map_figure([row for row in rows if row["run"] == each.run], GRADIENT, (low, high), step=1)
        for each in maps
    ]
    scales = [half["layer"][0]["encoding"]["color"]["scale"] for half in halves]
    assert scales[0] == scales[1] and scales[0]["type"] == "log"
    assert figures.map_figure(rows, GRADIENT, (low, high), step=99)["layer"][1:] == []  # no rule beyond the axis
    slices = figures.records(stream_slice_frame(maps, 4))
    seeds = [{"norm": "pre", "seed": 0, "layer": i, "y": 1.0 + i} for i in (0, 1)]
    factors = [{"what": "now", "ratio": 2.0, "low": 1.5, "high": 3.0}]
    layers = [{"layer": i, "matrix": "W_Q", "step": 0, GRADIENT: 1.0 + i} for i in (0, 1)]
    every = [
        figures.side_by_side([("a", halves[0])]), figures.places_figure(slices, RMS, "size"),
        figures.steps_figure(figures.records(ratio_frame(maps)), "ratio", "ratio", step=4),
        figures.ratios_figure(factors),
        figures.layers_figure(layers, GRADIENT), figures.seeds_figure(seeds, "layer", "y", ("x", "y")),
    ]  # fmt: skip
    for figure in every:
        alt.Chart.from_dict({**figure, "config": theme()}, validate=True)


def test_an_axis_of_models_with_norms_is_not_stretched_by_those_without() -> None:
    rows = [
        {"norm": n, "seed": s, "layer": i, "y": y * 2**s}
        for n, y in (("pre", 1.0), ("none", 1e9))
        for s in (0, 2)
        for i in (0, 1)
    ]
    figure = figures.seeds_figure(rows, "layer", "y", ("layer", "y"))
    assert figure["layer"][0]["encoding"]["y"]["scale"]["domain"] == pytest.approx([0.95, 4.2])
    means = {(row["norm"], row["layer"]): row["y"] for row in figure["layer"][1]["data"]["values"]}
    assert means["pre", 0] == pytest.approx(2.0)  # of 1 and 4 the geometric mean
    assert math.isclose(means["none", 1], 2e9)
    (told,) = figure["layer"][2]["data"]["values"]
    assert told["said"] == "above the frame: none, up to 2e+09"


def test_no_two_placements_look_alike_without_their_colours() -> None:
    assert list(PLACEMENTS) == [norm.value for norm in Norm]
    colours, dashes = zip(*PLACEMENTS.values(), strict=True)
    assert len(set(colours)) == len(set(map(tuple, dashes))) == len(Norm)
    figure = figures.seeds_figure([{"norm": "none", "seed": 0, "layer": 0, "y": 1.0}], "layer", "y", ("x", "y"))
    scales = {name: figure["layer"][1]["encoding"][name]["scale"]["range"] for name in ("color", "strokeDash")}
    assert scales == {"color": [PLACEMENTS["none"][0]], "strokeDash": [PLACEMENTS["none"][1]]}, "its own, alone too"


def verdicts(first: Path, second: Path) -> dict[str, str]:
    rows = fairness_rows(first, second)
    return dict(zip(rows["what"], rows["verdict"], strict=True))


def test_a_matched_pair_is_fair(pair: tuple[Path, Path]) -> None:
    found = verdicts(*pair)
    assert found.pop("placement of the norms") == WANTED
    assert set(found.values()) == {SAME} and "initial weights" in found
    assert unfair(fairness_rows(*pair)) == []


def test_what_two_runs_should_share_and_do_not_is_named(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    other = run_at(tmp_path / "other", "post", weight=2.0, optim_lr=0.2, train_seed=3, train_log_every=2)
    found = verdicts(pair[0], other)
    wrong = {what for what, verdict in found.items() if verdict == DIFFERS}
    assert wrong == {"data order", "initial weights", "learning rate"}  # and not how often it was logged
    rows = fairness_rows(pair[0], other).set_index("what")
    assert tuple(rows.loc["learning rate", ["first", "second"]]) == ("lr 0.1", "lr 0.2")
    assert rows.loc["initial weights", "first"] == "0 of 1 shared tensors are equal at step 0"
    assert set(unfair(fairness_rows(pair[0], other))) == wrong


def test_two_runs_of_one_placement_have_nothing_to_compare(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    assert unfair(fairness_rows(pair[0], run_at(tmp_path / "again", "pre"))) == ["placement of the norms"]


def test_weights_that_cannot_be_compared_are_not_called_the_same(pair: tuple[Path, Path]) -> None:
    file = checkpoint_path(pair[1], 0) / WEIGHTS
    file.write_bytes(b"damaged")
    assert verdicts(*pair)["initial weights"] == UNKNOWN
    file.unlink()
    rows = fairness_rows(*pair)
    assert "not saved by both" in rows.set_index("what").loc["initial weights", "first"]
    assert unfair(rows) == ["initial weights"]
