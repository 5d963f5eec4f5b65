"""Study of probes: what can be read off each place by a linear map, beyond what the token alone and step 0 tell?

Linear probes are fitted on documents that the run was trained on and judged on those it held out, at the embedding,
after every layer and at the heads' outputs. Each is asked for the position, the previous token, the bracket depth and
the indentation depth of code, and each stands beside the commonest label, the best that the token alone tells, a
control task with its selectivity (Hewitt and Liang 2019, arXiv 1909.03368), and the same probe of the run's step 0.
Positions are the same for every site, control and model.

What it does not show: that the model uses what a probe reads, or that what no linear probe reads is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import pandas as pd

from analyses.checkpoints import first_checkpoint, first_checkpoint_file
from analyses.probing.figure import drawn
from analyses.probing.findings import spoken
from analyses.probing.result import Config, Result, TaskResult
from analyses.probing.tables import site_rows
from analyses.registry import Finding, Progress
from interp.probe_draws import Draw, UnprobedError, draw, with_places
from interp.probe_features import ProbeSite, probe_sites
from interp.probe_labels import get_task
from interp.probe_text import Part, ProbeText, probe_text
from interp.probes import Reading, read_probes
from model.errors import InputError
from model.gpt import GPT
from model.lab import TOKENIZER, Lab

__all__ = ["QUESTION", "Config", "Result", "figure", "findings", "inputs", "run", "table"]

QUESTION = "What does a linear probe read off each place, beyond what the token alone and step 0 tell?"


def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Draw the positions, then probe the checkpoint and an untrained model at every site."""
    wanted = probe_sites(subject.config, config.sites)
    if len(wanted) == 1:
        raise InputError(
            f"sites={','.join(config.sites)} names no place beside the embedding, with which every other is compared; "
            "name some, for example sites=resid_post,z or sites=L0H3."
        )
    text = probe_text(subject, config.amounts, longest=config.window, seed=config.seed)
    drawn_tasks, skipped = _drawn(subject, text, config)
    untrained = _untrained(subject, config)
    asked = _Asked(text, drawn_tasks, wanted, progress, n_models=1 if untrained is None else 2)
    here = asked.of(subject.gpt, 0, f"probing step {subject.step}")
    there = [None] * len(here) if untrained is None else asked.of(untrained[0], 1, f"probing {untrained[1]}")
    return Result(
        config=config,
        run=subject.name,
        step=subject.step,
        sites=tuple(site.label for site in wanted),
        units=text.units,
        is_imported=subject.imported_from is not None,
        untrained=None if untrained is None else untrained[1],
        n_windows=len(text.tokens),
        tasks=tuple(_task(*each) for each in zip(drawn_tasks, here, there, strict=True)),
        skipped=skipped,
    )


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside weights and corpus: the tokenizer, and step 0."""
    return [subject.path / TOKENIZER, *([first_checkpoint_file(subject)] if config.untrained else [])]


def table(result: Result) -> pd.DataFrame:
    """One row per task and site: accuracy beside every guess, control and selectivity, gain over the untrained."""
    return pd.DataFrame(site_rows(result))


def figure(result: Result) -> alt.ConcatChart:
    """A panel per task: accuracy by site, beside the control, the untrained model and what needs no probe."""
    return drawn(result)


def findings(result: Result) -> list[Finding]:
    """For each task, whether a probe reads it at the site chosen in validation; then what was not asked."""
    return spoken(result)


@dataclass(frozen=True)
class _Asked:
    """What every model is asked, at the same positions."""

    text: ProbeText
    draws: Sequence[Draw]
    sites: Sequence[ProbeSite]
    progress: Progress | None
    n_models: int

    def of(self, gpt: GPT, which: int, doing: str) -> tuple[Reading, ...]:
        """One reading per draw; controls are of the first model, the checkpoint."""
        places, draws = with_places(self.draws, self.text.tokens.shape[1])

        def counted(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(which * total + done, self.n_models * total, doing)

        return read_probes(gpt, self.text, places, draws, self.sites, controls=which == 0, counted=counted)


def _drawn(lab: Lab, text: ProbeText, config: Config) -> tuple[tuple[Draw, ...], tuple[str, ...]]:
    """The positions of every task that this text asks, and a sentence for each other; refused where it asks none."""
    drawn_tasks, skipped = [], []
    for name in config.tasks:
        try:
            drawn_tasks.append(draw(lab, text, get_task(name), config.amounts, config.seed))
        except UnprobedError as why:
            skipped.append(f"{name} was not probed: {why}")
    if not drawn_tasks:
        raise InputError(f"{lab.name} can be asked none of the tasks. {' '.join(skipped)} Name others with tasks=.")
    return tuple(drawn_tasks), tuple(skipped)


def _untrained(lab: Lab, config: Config) -> tuple[GPT, str] | None:
    """The model beside which a claim about training is made, and what it is; None at step 0 of a run trained here."""
    first = first_checkpoint(lab) if config.untrained else None
    if first is not None:
        return first.gpt, "step 0"
    if not config.untrained or (lab.step == 0 and lab.imported_from is None):
        return None
    fresh = GPT(lab.config, seed=config.seed).eval().to(lab.gpt.device)
    return fresh, "random weights of the same shape"


def _task(drawn_task: Draw, here: Reading, untrained: Reading | None) -> TaskResult:
    return TaskResult(
        name=drawn_task.task.name,
        meaning=drawn_task.task.meaning,
        types=drawn_task.task.types.value,
        classes=drawn_task.classes,
        n_commonest=drawn_task.task.n_commonest,
        labelled_share=drawn_task.labelled_share,
        n_train=drawn_task.n(Part.TRAIN),
        n_validation=drawn_task.n(Part.VALIDATION),
        n_test=drawn_task.n(Part.TEST),
        majority=drawn_task.majority(),
        test_majority=drawn_task.test_majority(),
        by_token=drawn_task.by_token(),
        here=here,
        untrained=untrained,
    )


if __name__ == "__main__":
    from analyses.study import main

    raise SystemExit(main("probes"))
