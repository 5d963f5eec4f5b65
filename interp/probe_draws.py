"""Which positions a probe is trained and tested on, with their labels and controls: the same for every site and model.

The control task (Hewitt and Liang 2019, arXiv 1909.03368) gives every type (every token, or every position)
one random label for good, drawn from the labels of the training part. It can only be learned by memory, so what a probe
scores on it says how much of its score could be memory: selectivity is the score minus the control's. One such table
may be easy by luck (where one label is common, most tokens get it), so there are several, their mean is taken, and how
much they differ is part of its interval.

Two guesses need no probe: the commonest label of the training part, and the commonest label of each token there,
which is all that the token alone can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.probe_labels import Task, Types
from interp.probe_text import MIN_UNITS, Amounts, Part, ProbeText
from model.errors import InputError

if TYPE_CHECKING:
    from model.lab import Lab

N_CONTROLS = 19
"""Tables of random labels: a label that is one more comes out above all of them in one case of twenty."""
_ALIKE = 0.25
"""Share of the test units that may have too few labelled positions, and are left out."""


class UnprobedError(InputError):
    """A task that this text does not ask: no labels, or one only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """The positions of one task. Test samples stand unit by unit, equally many of each."""

    task: Task
    place: Int[Tensor, " sample"]
    """Window times positions plus position, until `with_places` makes it an index into shared places."""
    part: Int[Tensor, " sample"]
    label: Int[Tensor, " sample"] | Float[Tensor, " sample"]
    """Which of the classes, in their order (as many as there are: none of them); or the number."""
    controls: Int[Tensor, "control sample"] | Float[Tensor, "control sample"]
    """The random label of its type, by each of several tables."""
    token: Int[Tensor, " sample"]
    classes: tuple[str, ...]
    """In words; none where numbers are predicted."""
    n_units: int
    """Units of the test part."""
    labelled_share: float
    """Share of all positions, BOS not counted, that have a label that is asked for."""

    @property
    def is_number(self) -> bool:
        """Whether numbers are predicted, and scored by R^2, and not classes, scored by accuracy."""
        return self.label.is_floating_point()

    def n(self, part: Part) -> int:
        """Positions of a part."""
        return int((self.part == part).sum())

    def of(self, part: Part, values: Tensor) -> Tensor:
        """The values of one part's samples."""
        return values[self.part == part]

    def by_unit(self, predicted: Tensor, truth: Tensor | None = None) -> Float[Tensor, " unit"]:
        """Score per test unit of predictions for the test part; their mean is the accuracy, or R^2.

        R^2 is about the mean of the training part: 1 - n_units SSE_unit / SST.
        """
        truth = self.of(Part.TEST, self.label) if truth is None else truth
        if not self.is_number:
            return (predicted == truth).double().view(self.n_units, -1).mean(1)
        mean = self.of(Part.TRAIN, self.label).mean()
        errors = (predicted - truth).square().view(self.n_units, -1).sum(1)
        return 1 - self.n_units * errors / (truth - mean).square().sum()

    def majority(self) -> Float[Tensor, " unit"]:
        """The score of always saying the commonest label (the mean) of the training part."""
        guess = _typical(self.of(Part.TRAIN, self.label), is_number=self.is_number)
        return self.by_unit(guess.expand(self.n(Part.TEST)))

    def test_majority(self) -> Float[Tensor, " unit"]:
        """The score of always saying the commonest label (the mean) of the test part, which no guess can know."""
        labels = self.of(Part.TEST, self.label)
        known = labels if self.is_number else labels[labels < len(self.classes)]
        guess = _typical(known if len(known) else labels, is_number=self.is_number)
        return self.by_unit(guess.expand(len(labels)))

    def by_token(self) -> Float[Tensor, " unit"]:
        """The score of the commonest label (the mean) of each token in training; of an unknown one, of all."""
        labels, tokens = self.of(Part.TRAIN, self.label), self.of(Part.TRAIN, self.token)
        usual = _typical(labels, is_number=self.is_number)
        table = {
            token: _typical(labels[tokens == token], is_number=self.is_number) for token in tokens.unique().tolist()
        }
        return self.by_unit(torch.stack([table.get(token, usual) for token in self.of(Part.TEST, self.token).tolist()]))


def draw(lab: Lab, text: ProbeText, task: Task, amounts: Amounts, seed: int) -> Draw:
    """The positions of one task, drawn by the seed: the same positions for tasks that label the same.

    Raises `UnprobedError` where the text has fewer than two labels of the task.
    """
    if task.needs_text and not text.is_text:
        raise UnprobedError(f"the {task.meaning} means nothing in {text.units}: {lab.name} has no text.")
    labels = _checked(task.labels(text.tokens, lab), text, task)
    labels = labels if task.n_commonest is None else _commonest(labels, text, task.n_commonest)
    is_number = labels.is_floating_point()
    is_labelled = ~labels.isnan() if is_number else labels >= 0
    chosen, n_units = _chosen(is_labelled, text, amounts, seed, task)
    window, position = chosen // labels.shape[1], chosen % labels.shape[1]
    drawn, part = labels[window, position], text.part[window]
    trained = drawn[part == Part.TRAIN]
    if len(trained.unique()) < 2:
        raise UnprobedError(f"the {task.meaning} has one value only in the {len(trained)} positions to train on.")
    if not is_number:
        drawn = _as_index(drawn, trained.unique())
    tokens = text.tokens[window, position]
    types = tokens if task.types is Types.TOKEN else position
    n_positions = text.tokens.numel() - (len(text.tokens) if lab.tokenizer.bos is not None else 0)
    return Draw(
        task=task,
        place=chosen,
        part=part,
        label=drawn,
        controls=_controls(drawn[part == Part.TRAIN], types, seed),
        token=tokens,
        classes=() if is_number else tuple(task.spelled(label, lab) for label in trained.unique().tolist()),
        n_units=n_units,
        labelled_share=float(is_labelled.sum()) / n_positions,
    )


def with_places(draws: Sequence[Draw], n_pos: int) -> tuple[Int[Tensor, "place 2"], tuple[Draw, ...]]:
    """Every position that any draw needs as (window, position), by rising window; and the draws by index into these."""
    places = torch.cat([each.place for each in draws]).unique()
    shared = tuple(replace(each, place=torch.searchsorted(places, each.place)) for each in draws)
    return torch.stack([places // n_pos, places % n_pos], dim=1), shared


def _checked(labels: object, text: ProbeText, task: Task) -> Tensor:
    """One label per position, classes as int64 and numbers as fp64."""
    if not isinstance(labels, Tensor) or labels.shape != text.tokens.shape or labels.dtype == torch.bool:
        shape = f"{labels.dtype} {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise InputError(
            f"The labels of {task.name} are {shape}; give a tensor {tuple(text.tokens.shape)} of whole numbers "
            "(classes, -1 for none) or of floats (NaN for none)."
        )
    return labels.double().cpu() if labels.is_floating_point() else labels.long().cpu()


def _commonest(labels: Tensor, text: ProbeText, n: int) -> Tensor:
    """The labels that are among the n commonest of the training part; -1 for all others."""
    if labels.is_floating_point():
        raise InputError("n_commonest chooses among classes, and these labels are numbers; leave it out.")
    known, counts = labels[(text.part == Part.TRAIN)[:, None] & (labels >= 0)].unique(return_counts=True)
    kept = known[counts.argsort(descending=True, stable=True)[:n]]
    return torch.where(torch.isin(labels, kept), labels, -1)


def _chosen(
    is_labelled: Tensor, text: ProbeText, amounts: Amounts, seed: int, task: Task
) -> tuple[Int[Tensor, " sample"], int]:
    """Labelled positions in random order, as many of every unit: flat indices, and how many test units there are."""
    n_pos = is_labelled.shape[1]
    order = np.random.default_rng(seed + 1).random(is_labelled.numel())
    kept, n_units = [], 0
    for part in Part:
        flat = ((text.part == part)[:, None] & is_labelled).flatten().nonzero()[:, 0].numpy()
        if not len(flat):
            raise UnprobedError(f"the {task.meaning} has no labelled position in the {part.name.lower()} part.")
        unit = text.unit.numpy()[flat // n_pos]
        sorted_ = np.lexsort((order[flat], unit))
        flat, unit = flat[sorted_], unit[sorted_]
        _, first, counts = np.unique(unit, return_index=True, return_counts=True)
        wanted = -(-(amounts.train, amounts.validation, amounts.test)[part] // len(counts))
        rank = np.arange(len(flat)) - np.repeat(first, counts)
        if part is Part.TEST:
            wanted = min(wanted, max(1, int(np.quantile(counts, _ALIKE, method="lower"))))
            n_units = int((counts >= wanted).sum())
            rank[np.repeat(counts, counts) < wanted] = wanted
        kept.append(torch.from_numpy(flat[rank < wanted]))
    if n_units < MIN_UNITS:
        raise UnprobedError(
            f"the {task.meaning} has labels in {n_units} of the {text.units.removesuffix(',')} to test on; an interval "
            f"needs {MIN_UNITS}."
        )
    return torch.cat(kept), n_units


def _as_index(labels: Tensor, known: Tensor) -> Tensor:
    """Which of the known labels each is; as many as there are for one that is none of them."""
    place = torch.searchsorted(known, labels).clamp(max=len(known) - 1)
    return torch.where(known[place] == labels, place, len(known))


def _controls(trained: Tensor, types: Tensor, seed: int) -> Tensor:
    """By each table one label for each type, drawn from those of the training part."""
    generator = torch.Generator().manual_seed(seed + 2)
    known, which = types.unique(return_inverse=True)
    return trained[torch.randint(len(trained), (N_CONTROLS, len(known)), generator=generator)][:, which]


def _typical(labels: Tensor, *, is_number: bool) -> Tensor:
    return labels.mean() if is_number else labels.mode().values
