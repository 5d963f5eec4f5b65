"""One memory beside itself: at the other checkpoints that were studied, and in the checkpoint it is compared with."""

from __future__ import annotations

import shlex
from functools import partial

import streamlit as st

from analyses.memories.over_steps import over_steps, side_by_side
from analyses.memories.tables import Memory
from analyses.results import SavedResult, from_here
from apps.dashboard import components, data, panels
from apps.dashboard.data import Run
from apps.dashboard.findings import pins
from apps.dashboard.panels import Panel, about_saved
from apps.dashboard.selecting import Compared
from apps.dashboard.state import memory_name
from model.errors import InputError


def over_steps_of(saved: SavedResult, run: Run, memory: Memory) -> None:
    """A table over the checkpoints that were studied alike, or how to study another."""
    alike = [
        each
        for each in data.shelf(run, saved.study).results
        if (each.provenance.run, each.provenance.config_hash) == (run.name, saved.provenance.config_hash)
    ]
    if len(alike) > 1:
        _over_steps(saved, alike, memory)
        return
    settings = "".join(f" --set {shlex.quote(each)}" for each in saved.settings)
    other = next((step for step in run.steps if step != saved.provenance.step), None)
    commands = [] if other is None else [f"cutaway run {saved.study} {data.spelled(run, other)}{settings}"]
    components.missing("No other checkpoint was studied with the same settings.", *commands)


def _over_steps(saved: SavedResult, alike: list[SavedResult], memory: Memory) -> None:
    result, name = saved.result, memory_name(*memory)
    paths = [str(from_here(each.path)) for each in alike]
    panel = Panel(
        key="over_steps", title=f"{name} over training",
        rows=partial(over_steps, [each.result for each in alike], memory),
        about=about_saved(
            saved, n=result.n_prefixes, unit="prefixes", memory=name, steps=[each.provenance.step for each in alike],
            weights={str(each.provenance.step): each.provenance.weights_sha256 for each in alike},
        ),
        python="from analyses.memories.over_steps import over_steps\nfrom analyses.results import load_result\n\n"
               f"results = [load_result(path).result for path in {paths!r}]\nrows = over_steps(results, {memory})\n",
    )  # fmt: skip
    panels.table(panel, alt=f"{name} at every step that was studied", height="content")
    pins.offer(title=panel.title, sentences=[], panel=panel)
    components.caption(
        "kept: share of the last step's stored triggers, and of its promoted tokens, that are there already",
        f"n = {result.n_prefixes:,} prefixes at each step", f"seed {result.config.seed}",
    )  # fmt: skip


def beside(saved: SavedResult, run: Run, memory: Memory, other: Compared) -> None:
    """What is told of it beside the memory of the same name in another model."""
    name = memory_name(*memory)
    st.subheader(f"Beside {components.literal(other.spec)}")
    shelf = data.shelf(other.run, saved.study)
    theirs = next(
        (each for each in shelf.every(other.step) if each.provenance.config_hash == saved.provenance.config_hash),
        shelf.at(other.step),
    )
    if theirs is None:
        components.faults(saved.study, other.run, other.step, commands=False)
        components.missing_result(saved.study, other.run, other.step, shelf)
        return
    named = {f"{run.name}@{saved.provenance.step}": saved, other.spec: theirs}
    try:
        rows = side_by_side({label: each.result for label, each in named.items()}, memory)
    except InputError as error:
        components.unasked(error)
        return
    paths = {label: str(from_here(each.path)) for label, each in named.items()}
    panel = Panel(
        key="beside", title=f"{name} beside {other.spec}", rows=lambda: rows,
        about=about_saved(
            saved, n=saved.result.n_prefixes, unit="prefixes", memory=name, compared_with=other.spec,
            compared_weights_sha256=theirs.provenance.weights_sha256, compared_n=theirs.result.n_prefixes,
        ),
        python="from analyses.memories.over_steps import side_by_side\nfrom analyses.results import load_result\n\n"
               f"results = {{name: load_result(path).result for name, path in {paths!r}.items()}}\n"
               f"rows = side_by_side(results, {memory})\n",
    )  # fmt: skip
    panels.table(panel, alt=f"{name} in both models", height="content")
    same = other.run.name == run.name
    settings = saved.provenance.config_hash == theirs.provenance.config_hash
    components.caption(
        f"{run.name}@{saved.provenance.step}: n = {saved.result.n_prefixes:,} prefixes",
        f"{other.spec}: n = {theirs.result.n_prefixes:,} prefixes",
        f"seeds {saved.provenance.seed} and {theirs.provenance.seed}",
        None if same else "two runs: memories of one name need not do the same thing",
        None if settings else f"with other settings: {data.settings_of(theirs)}",
    )  # fmt: skip
