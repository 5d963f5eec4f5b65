"""The demo: from nothing to a studied model and its report, in a few minutes on two cores.

Trains a small GPT and its post-norm twin on the same tokens, asks every study about them, says what they found
(or that they found nothing) and writes the report. What an earlier call completed is used again; what it left half
done is resumed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analyses.report import answers, gathered
from analyses.study import SavedResult, get_study, load_result, run_study
from apps.console import remark, say
from apps.parallel import Job, Reporter, all_done, cores
from apps.progress import Bar
from model.checkpoint import checkpoint_steps
from model.errors import InputError
from model.presets import demo, demo_post
from model.settings import with_settings
from model.training.config import RunConfig
from model.training.distributed import pick_device
from model.training.loop import Interrupted, train
from model.training.run_files import saved_config


@dataclass(frozen=True, kw_only=True)
class Question:
    """A study to run, and its settings."""

    study: str
    settings: tuple[str, ...] = ()

    also_untrained: bool = False
    """Asked of step 0 too: what the numbers are like where there is nothing to find."""

    beside_twin: bool = False
    """Whether the run's twin is looked at as well."""

    also_of_twin: bool = False
    """Asked of the twin too, with an answer of its own: so that the dashboard can lay the two over one another."""


QUESTIONS = (
    Question(study="attention-patterns", also_untrained=True),
    Question(study="head-ablation", also_untrained=True),
    Question(study="head-circuits"),
    Question(study="head-importance"),
    Question(study="self-repair"),
    Question(study="ffn-memories", also_untrained=True),
    Question(study="ffn-composition"),
    Question(study="memory-promotion"),
    Question(study="gradient-flow", beside_twin=True),
    Question(study="probes"),
    Question(study="training-dynamics", also_of_twin=True),
)
"""What is asked of the run's last checkpoint."""


def run_demo(
    out: Path,
    *,
    seed: int = 0,
    device: str = "auto",
    configs: tuple[RunConfig, RunConfig] | None = None,
    questions: Sequence[Question] = QUESTIONS,
    workers: int | None = None,
) -> list[SavedResult]:
    """Train `configs` (the demo preset and its twin) into OUT and OUT-post, study them, write OUT/report.html.

    The two runs are trained at once, then the questions asked at once: as many as there are cores, unless `workers`
    says how many. A GPU does one thing after the other.
    """
    started = time.perf_counter()
    if workers is None:
        workers = 1 if pick_device(device).type == "cuda" else cores()
    twin = _twin_of(out)
    try:
        results = _made(
            out, twin, configs or (demo(), demo_post()), questions, seed=seed, device=device, workers=workers
        )
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(
            f"Stopped; what was done is saved in {out} and {twin}. The same command goes on there."
        ) from None
    _tell(results)
    from analyses.report_page import write_report  # draws; no worker needs that

    report = write_report(gathered(out, results), out / "report.html")
    say(f"\nThe report: {report}")
    say(f"The dashboard: cutaway dashboard {out.parent}")
    remark(f"{time.perf_counter() - started:.0f} s in all.")
    return results


def _made(
    out: Path,
    twin: Path,
    configs: tuple[RunConfig, RunConfig],
    questions: Sequence[Question],
    *,
    seed: int,
    device: str,
    workers: int,
) -> list[SavedResult]:
    """Train the pair, then ask the questions; the answers about the run, those of the twin being the dashboard's."""
    pair = [with_settings(config, [f"train.seed={seed}"]) for config in configs]
    folders = zip(pair, (out, twin), strict=True)
    for sentence in all_done([Job(at.name, trained, (config, at, device)) for config, at in folders], workers=workers):
        say(sentence)
    asked = [job for question in questions for job in _asked(question, out, twin, device)]
    results = [load_result(path) for path in all_done(asked, workers=workers)]
    return [saved for saved in results if saved.provenance.run != twin.name]


def _twin_of(out: Path) -> Path:
    """The folder beside OUT that the twin goes to; refused where OUT has no name that could be lengthened."""
    if out.name in ("", ".."):
        raise InputError(
            f"--out {out} has no name of its own, to call the twin after; name a folder such as runs/demo."
        )
    return out.with_name(f"{out.name}-post")


def trained(config: RunConfig, folder: Path, device: str, watcher: Bar | Reporter) -> str:
    """A complete run in `folder`, used as it is, resumed or trained; which, as a sentence."""
    tokens = config.train.steps * config.tokens_per_step
    budget = (
        f"{config.train.steps:,} steps, {tokens:,} tokens, seed {config.train.seed}, norm {config.model.norm.value}"
    )
    if _is_complete(config, folder):
        return f"{folder} is there already: {budget}."
    summary = train(config, folder, resume=(folder / "run.json").exists(), device=device, progress=watcher)
    return f"Trained {folder}: {budget}, in {summary.seconds:.0f} s."


def _is_complete(config: RunConfig, folder: Path) -> bool:
    """Whether a run of exactly this config was trained to its end; one of another config is for `train` to refuse."""
    if not (folder / "run.json").exists() or saved_config(folder) != config:
        return False
    return checkpoint_steps(folder)[-1:] == [config.train.steps]


def _asked(question: Question, run: Path, twin: Path, device: str) -> list[Job]:
    """The question at the last checkpoint, before it at step 0 and after it of the twin where that is asked for."""
    specs = [f"{run}@0"] if question.also_untrained else []
    settings = (*question.settings, *([f"twin={twin}"] if question.beside_twin else []))
    specs += [str(run), *([str(twin)] if question.also_of_twin else [])]
    return [Job(question.study, answered, (question.study, spec, settings, device)) for spec in specs]


def answered(study: str, spec: str, settings: Sequence[str], device: str, watcher: Bar | Reporter) -> Path:
    """Where the answer of a study is saved."""
    return run_study(study, spec, settings, device=device, progress=watcher.on_progress).path


WORDS = {True: "found         ", False: "not found     ", None: "cannot be told"}
"""How a sentence is marked."""


def _tell(results: Sequence[SavedResult]) -> None:
    """What was found at the last checkpoint, study by study, each sentence once."""
    for study, said in answers(results).items():
        say(f"\n{get_study(study).question}")
        for finding in said.findings():
            word = WORDS[finding.found] if finding.of_run else "law           "  # of drawn models, whatever this run is
            say(f"  {word}  {finding.sentence}")
