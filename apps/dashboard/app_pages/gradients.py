"""Norms & gradients: how gradients flow through depth, at initialization, over training and at the checkpoint."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from analyses.results import SavedResult
from apps.dashboard import components, data, panels, selecting, telling
from apps.dashboard.asked import Choice, tabs
from apps.dashboard.gradients import over_training, studied
from apps.dashboard.gradients.source import logs

STUDY = "gradient-flow"

TABS = ("Over training", "Over depth", "Weights", "Held-out text", "Initialization")

run, chosen = selecting.run(), selecting.selection()
st.title("Norms & gradients")
components.run_line(run, chosen.step)
st.caption(components.literal(data.question(STUDY)))
if run.fault:
    components.end()

shelf = data.shelf(run, STUDY)
saved = components.on_shelf(STUDY, run, chosen.step, shelf)
if saved is None and shelf.results:
    saved = shelf.results[-1]
    where = "of no run" if saved.provenance.step is None else f"at step {saved.provenance.step:,}"
    components.caption(f"below, what a study adds is from the result {where} instead")
found = () if saved is None else data.findings(saved)
if found:
    st.header("What the study found")
    telling.findings(found)

logged = logs(run, chosen.step, saved)
if logged.maps:
    over_training.fairness(logged)


def _unlogged() -> None:
    why = f": it was imported from {run.imported_from}" if run.imported_from else ", so there is no map over training"
    components.missing(f"{run.name} has logged no gradient norms{why}.")


def _over_training() -> None:
    if not logged.maps:
        _unlogged()
        return
    over_training.ends(logged)
    st.subheader("Did both learn?" if logged.twin else "Did it learn?")
    over_training.losses(logged)
    over_training.maps(logged, tuple(each.sentence for each in found if each.of_run))


def _over_depth() -> None:
    if not logged.maps:
        _unlogged()
        return
    st.subheader(f"At step {chosen.step:,}")
    over_training.at_step(logged)
    over_training.sizes(logged)


def _weights() -> None:
    if logged.maps:
        over_training.matrices(logged)
    else:
        _unlogged()


def _held_out(result: SavedResult) -> None:
    if result.provenance.run:
        st.subheader(f"At step {result.provenance.step:,}")
    studied.checkpoint(result)


def _studied(draw: Callable[[SavedResult], None]) -> Callable[[], None]:
    return partial(components.studied, saved, STUDY, draw, where="of this run")


def _usual() -> str:
    """The tab that goes without saying: that of what the address asks for, else the first that shows something."""
    asked = next((tab for part, tab in (("matrix", "Weights"), ("depth", "Initialization")) if part in address), None)
    return asked or (TABS[0] if logged.maps or saved is None else "Held-out text")


address = st.query_params
tabs(
    Choice(name="tab", key="gradient_tab", options=TABS, usual=_usual()),
    dict(
        zip(
            TABS,
            (_over_training, _over_depth, _weights, _studied(_held_out), _studied(studied.initialization)),
            strict=True,
        )
    ),
)
if saved is not None:
    panels.whole_study(saved, n=saved.config.n_sequences, unit="held-out sequences")
