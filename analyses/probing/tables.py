"""What probes read, as rows (for `analyses.probes`, its figure, and the page of a head): one per task and site."""

from __future__ import annotations

from typing import Any

from analyses.probing.result import Result, TaskResult

Rows = list[dict[str, Any]]


def site_rows(result: Result) -> Rows:
    """One row per task and site: accuracy, every guess, the control, and how sure they are."""
    return [_row(result, task, index) for task in result.tasks for index in range(len(result.sites))]


def _row(result: Result, task: TaskResult, index: int) -> dict[str, Any]:
    here, untrained = task.here, task.untrained
    score, seed = result.interval(here.score[index]), result.config.seed
    control, selectivity = here.control_at(index, seed), here.selectivity_at(index, seed)
    row: dict[str, Any] = {
        "task": task.name,
        "site": result.sites[index],
        "accuracy": score.mean,
        "low": score.low,
        "high": score.high,
        "majority": float(task.majority.mean()),
        "test majority": float(task.test_majority.mean()),
        "token table": float(task.by_token.mean()),
        "control": control.mean,
        "control low": control.low,
        "control high": control.high,
        "selectivity": selectivity.mean,
        "selectivity low": selectivity.low,
        "selectivity high": selectivity.high,
        "untrained": None,
        "gain": None,
        "gain low": None,
        "gain high": None,
        "validation": float(here.validation[index]),
        "C": float(here.strength[index]),
        "converged": bool(here.converged[index] and here.controls_converged[:, index].all()),
        "n train": task.n_train,
        "n test": task.n_test,
        "test units": task.n_units,
    }
    if untrained is not None:
        gain = result.interval(here.score[index] - untrained.score[index])
        row |= {"untrained": float(untrained.score[index].mean())}
        row |= {"gain": gain.mean, "gain low": gain.low, "gain high": gain.high}
    return row
