"""Linear probes: what can be read off a place by a linear map, and how much of that is memory, the token, or chance.

A probe is a logistic regression (classes, scored by accuracy) or a ridge regression (numbers, scored by R^2) on what a
place held, standardised by its training part alone; its regularisation is chosen on validation documents, and its
score comes from documents that the probe was not trained on, and that the run held out (what an imported model was
trained on is not known). Beside it stand the commonest label, the
commonest label of each token, the same probe on the embedding (both: what the token alone tells), a control task with
its selectivity (Hewitt and Liang 2019; see `interp.probe_draws`), and, where a caller asks, the same probe of step 0.

    found = probe(lab, "previous-token", sites=["resid_post", "L0H3"])
    found.score("resid_post 0")        # an Interval over held-out documents

A score says what can be decoded, never that the model uses it. Its interval is over test units. That of the control
and of selectivity is over the random tables as well, which can differ more than units do; what one table would score
is another thing, and `Reading.above_memory` says it. Of the nineteen tables three choose their regularisation, the
others take the middle of the three. Cost: one forward pass over the windows, and per site and task 32 fits of
scikit-learn, which is imported when the first one is made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.probe_draws import Draw, draw, with_places
from interp.probe_features import EMBED, ProbeSite, probe_sites, stream_features
from interp.probe_labels import LabelFunction, Task, get_task
from interp.probe_text import Amounts, Part, ProbeText, probe_text
from interp.stats import Interval, bootstrap_crossed, bootstrap_mean
from model.errors import UnknownSiteError, closest

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.lab import Lab

STRENGTHS = (0.003, 0.03, 0.3, 3.0)
"""Values of C, the inverse of the L2 penalty's strength (ridge: alpha = 1/C), strongest penalty first."""
N_CHOOSING = 3
"""Control tables that choose their regularisation; the others are fitted at the middle of these choices."""
MAX_ITERATIONS = 500
TOLERANCE = 1e-4
"""The largest entry of the mean loss's gradient at which a solver stops."""
CONTROL_TOLERANCE = 3e-4
"""The same for the tables of the control task, in fp32: their mean moves by less than a point, in half the time."""
LONGEST = 256
"""Longest window that is fed, in tokens."""
SITES = (EMBED, "resid_post", "z")
"""What is probed where nothing else is asked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """One probe, at the regularisation that does best in validation (of equals, the strongest)."""

    score: Float[Tensor, " unit"]
    """Accuracy per test unit; or what averages to R^2."""
    validation: float
    """Its score on the validation part."""
    strength: float
    """The C that was chosen."""
    converged: bool
    """Whether the solver came to an end within its iterations."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the probes of one task score at every site of one model."""

    score: Float[Tensor, "site unit"]
    """Per test unit; the mean over units is the accuracy (R^2)."""
    validation: Float[Tensor, " site"]
    strength: Float[Tensor, " site"]
    """The C that was chosen."""
    converged: Bool[Tensor, " site"]
    controls: Float[Tensor, "control site unit"]
    """The same probe, trained and tested on each table of the control task; no table where controls were not asked
    for."""
    controls_converged: Bool[Tensor, "control site"]

    @property
    def control(self) -> Float[Tensor, "site unit"]:
        """The control's score, the mean over its tables; NaN without any."""
        return self.controls.mean(0)

    @property
    def selectivity(self) -> Float[Tensor, "site unit"]:
        """Score minus the control's."""
        return self.score - self.control

    def control_at(self, site: int, seed: int) -> Interval:
        """The control's score at a site, its interval over tables and test units."""
        return bootstrap_crossed(self.controls[:, site], seed=seed)

    def selectivity_at(self, site: int, seed: int) -> Interval:
        """Score minus the control's, paired by unit, its interval over tables and test units."""
        return bootstrap_crossed(self.score[site] - self.controls[:, site], seed=seed)

    def above_memory(self, site: int, seed: int) -> bool | None:
        """Whether a site's score is surely above what memory gives, surely below it (False), or neither (None).

        Surely: the whole interval of selectivity, and every table. A label that is itself such a table comes out above
        (below) nineteen others in one case of twenty.
        """
        score, tables = self.score[site].mean(), self.controls[:, site].mean(1)
        selectivity = self.selectivity_at(site, seed)
        if selectivity.low > 0 and bool((score > tables).all()):
            return True
        return False if selectivity.high < 0 and bool((score < tables).all()) else None

    @property
    def best(self) -> int:
        """The site with the highest validation score: chosen on text that no reported number comes from."""
        return int(self.validation.argmax())


@dataclass(frozen=True, kw_only=True, eq=False)
class Probed:
    """The answer of `probe`."""

    draw: Draw
    sites: tuple[str, ...]
    units: str
    """What an interval resamples, in words."""
    reading: Reading
    seed: int

    def score(self, site: str) -> Interval:
        """Accuracy (R^2) at a site, with its interval over test units."""
        return bootstrap_mean(self.reading.score[self._index(site)], seed=self.seed)

    def control(self, site: str) -> Interval:
        """The control task's score there, with its interval over random tables and test units."""
        return self.reading.control_at(self._index(site), self.seed)

    def selectivity(self, site: str) -> Interval:
        """Score minus the control's, paired by unit, with its interval over random tables and test units."""
        return self.reading.selectivity_at(self._index(site), self.seed)

    def _index(self, site: str) -> int:
        if site not in self.sites:
            raise UnknownSiteError(
                f'"{site}" was not probed.{closest(site, self.sites)} Sites: {", ".join(self.sites)}.'
            )
        return self.sites.index(site)


def probe(
    lab: Lab,
    task: Task | str | LabelFunction,
    sites: str | Sequence[str] = SITES,
    *,
    amounts: Amounts | None = None,
    longest: int = LONGEST,
    seed: int = 0,
) -> Probed:
    """Probe sites of one checkpoint for a task: by name, or given as `labels(tokens, lab)`.

    Sites are hook names, short names for all layers (`resid_post`, `z`), or places (`L0H3`, `L0M37`, `L0.ffn`), one or
    several; the embedding is always among them.
    """
    amounts = amounts or Amounts()
    if not isinstance(task, Task):
        task = get_task(task) if isinstance(task, str) else Task(name="labels", meaning="given label", labels=task)
    text = probe_text(lab, amounts, longest=longest, seed=seed)
    wanted = probe_sites(lab.config, sites)
    places, (drawn,) = with_places([draw(lab, text, task, amounts, seed)], text.tokens.shape[1])
    (reading,) = read_probes(lab.gpt, text, places, [drawn], wanted)
    labels = tuple(site.label for site in wanted)
    return Probed(draw=drawn, sites=labels, units=text.units, reading=reading, seed=seed)


def read_probes(
    gpt: GPT,
    text: ProbeText,
    places: Int[Tensor, "place 2"],
    draws: Sequence[Draw],
    sites: Sequence[ProbeSite],
    *,
    controls: bool = True,
    counted: Callable[[int, int], None] | None = None,
) -> tuple[Reading, ...]:
    """Fit and score every draw at every site of one model, with its controls or without: one reading per draw."""
    fits: list[list[list[Fit]]] = [[] for _ in draws]
    for done, (_, features) in enumerate(stream_features(gpt, text.tokens, places, sites)):
        if counted is not None:
            counted(done, len(sites))
        with _one_thread():
            for found, each in zip(fits, draws, strict=True):
                here = features[each.place]
                found.append([fit_probe(here, each, each.label), *(fit_controls(here, each) if controls else ())])
    return tuple(_reading(found) for found in fits)


def fit_controls(features: Float[Tensor, "sample feature"], drawn: Draw) -> list[Fit]:
    """The same probe on each table of the control task: the first choose their regularisation, the others share it."""
    precision = np.float64 if drawn.is_number else np.float32
    scaled = {part: values.astype(precision) for part, values in _scaled(features, drawn).items()}
    choosing = [_best(scaled, drawn, labels, STRENGTHS, CONTROL_TOLERANCE) for labels in drawn.controls[:N_CHOOSING]]
    middle = sorted(each.strength for each in choosing)[len(choosing) // 2]
    others = [_best(scaled, drawn, labels, (middle,), CONTROL_TOLERANCE) for labels in drawn.controls[N_CHOOSING:]]
    return choosing + others


def _one_thread() -> AbstractContextManager[object]:
    """Small matrices are done before a second thread wakes; on a busy machine it costs many times what it saves."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)


def fit_probe(
    features: Float[Tensor, "sample feature"], drawn: Draw, labels: Tensor, *, strengths: Sequence[float] = STRENGTHS
) -> Fit:
    """One probe for `labels` (the draw's own, or its control) on the features of the draw's samples."""
    return _best(_scaled(features, drawn), drawn, labels, strengths, TOLERANCE)


def _scaled(features: Float[Tensor, "sample feature"], drawn: Draw) -> dict[Part, np.ndarray]:
    """Features by part, in fp64, standardised by the training part."""
    x = {part: drawn.of(part, features).double() for part in Part}
    mean, std = x[Part.TRAIN].mean(0), x[Part.TRAIN].std(0, correction=0)
    std = torch.where(std > 0, std, torch.ones_like(std))
    return {part: ((values - mean) / std).numpy() for part, values in x.items()}


def _best(
    scaled: dict[Part, np.ndarray], drawn: Draw, labels: Tensor, strengths: Sequence[float], tolerance: float
) -> Fit:
    """The probe of the strength that does best in validation."""
    target = {part: drawn.of(part, labels).numpy() for part in Part}
    best: Fit | None = None
    x, y = scaled[Part.TRAIN], target[Part.TRAIN]
    fitted = _ridge(x, y, strengths) if drawn.is_number else _logistic(x, y, strengths, tolerance)
    for strength, converged, model in fitted:
        validation = _score(model(scaled[Part.VALIDATION]), target[Part.VALIDATION], drawn)
        if best is None or validation > best.validation:
            predicted = torch.from_numpy(model(scaled[Part.TEST]))
            score = drawn.by_unit(predicted, torch.from_numpy(target[Part.TEST]))
            best = Fit(score=score, validation=validation, strength=strength, converged=converged)
    if best is None:
        raise AssertionError("there are strengths to choose from")
    return best


_Fitted = tuple[float, bool, Callable[[np.ndarray], np.ndarray]]
"""C, whether the solver converged, and the probe as a function of features."""


def _logistic(x: np.ndarray, y: np.ndarray, strengths: Sequence[float], tolerance: float) -> list[_Fitted]:
    """Multinomial logistic regression at every strength, each begun where the stronger penalty ended."""
    if len(np.unique(y)) < 2:
        return [(strengths[0], True, lambda other: np.full(len(other), y[0]))]
    from sklearn.linear_model import LogisticRegression

    fitted: list[_Fitted] = []
    model = LogisticRegression(max_iter=MAX_ITERATIONS, tol=tolerance, warm_start=True)
    for strength in strengths:
        converged = _fit(model.set_params(C=strength), x, y)
        weights, offsets, classes = (np.array(part) for part in (model.coef_, model.intercept_, model.classes_))
        fitted.append((strength, converged, lambda other, w=weights, b=offsets, c=classes: _largest(other, w, b, c)))
    return fitted


def _largest(x: np.ndarray, weights: np.ndarray, offsets: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The class with the largest logit; of two classes one logit is kept, the second's."""
    logits = x @ weights.T + offsets
    return classes[(logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(1)]


def _ridge(x: np.ndarray, y: np.ndarray, strengths: Sequence[float]) -> list[_Fitted]:
    from sklearn.linear_model import Ridge

    return [(strength, True, Ridge(alpha=1 / strength).fit(x, y).predict) for strength in strengths]


def _fit(model: Any, x: np.ndarray, y: np.ndarray) -> bool:
    """Fit in place; whether the solver converged. What else it warns of is passed on."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(x, y)
    others = [each for each in said if not issubclass(each.category, ConvergenceWarning)]
    for each in others:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return len(others) == len(said)


def _score(predicted: np.ndarray, truth: np.ndarray, drawn: Draw) -> float:
    """Accuracy, or R^2 about the mean of the training part."""
    if not drawn.is_number:
        return float((predicted == truth).mean())
    spread = float(np.square(truth - float(drawn.of(Part.TRAIN, drawn.label).mean())).sum())
    return 1 - float(np.square(predicted - truth).sum()) / spread if spread > 0 else -math.inf


def _reading(fits: Sequence[Sequence[Fit]]) -> Reading:
    """By site the probe of the task, then those of its controls."""
    own = [each[0] for each in fits]
    scores = torch.stack([torch.stack([fit.score for fit in each]) for each in fits], dim=1)
    converged = torch.tensor([[fit.converged for fit in each] for each in fits]).T
    return Reading(
        score=scores[0],
        validation=torch.tensor([fit.validation for fit in own], dtype=torch.float64),
        strength=torch.tensor([fit.strength for fit in own], dtype=torch.float64),
        converged=converged[0],
        controls=scores[1:],
        controls_converged=converged[1:],
    )
