"""Optimal ablation: the constant that hurts least in a component's place (Li and Janson 2024, 2409.09951, section 2).

    a* = argmin_a E_x L(model with z := a),        Delta_opt = E_x L(a*) - E_x L(clean)

Zero and the mean are constants too, so by construction Delta_opt is at most theirs on the sequences that a* was fitted
on. What they cost beyond it is not that the model misses the component's information, but that it is told something
wrong. a* is one vector for all positions, as for a mean over positions, and learned on reference sequences only.

Each component's constant starts at its mean and moves in units of its spread there (Adam, a falling rate). Many
ablations are separate problems side by side on the batch axis: one backward pass serves them all, none sees another.
At stated steps all fitting sequences are run, and of zero, the mean and what stood at those steps the best is kept.
So a constant is the best that was met, not surely the best there is: `Optima.slope_left` says how far the loss had
flattened there.

It is fitted for places that are wholly replaced, everywhere, in a model that runs on as it does. With a gate it stays
the constant of the whole dose, not the best beside what is left. At some positions only, or with later patterns held,
it may cost more than the mean even where it was fitted: `require_whole` refuses that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation_plan import Ablation, Frozen, ablation_of
from interp.harm import Counted
from interp.loss_gradients import loss_weights
from interp.optimal_problems import Problems, Spread, intact_loss, measured_spread
from interp.outcomes import TEXT, Outcome
from interp.places import Intervention, Place, Places
from interp.requirements import require_deterministic, require_next_token
from interp.resolved_places import resolve_places
from interp.sweep import MEMORY, begun_together, entry_of
from model.errors import InputError

if TYPE_CHECKING:
    from model.gpt import GPT


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitting:
    """How constants are learned."""

    n_steps: int = 60
    """Steps of Adam."""
    n_sequences: int = 8
    """Sequences of each step, the same for every ablation; all of them are run where the loss is looked at."""
    rate: float = 0.3
    """First step in units of the component's spread; falls to nothing along a half cosine."""
    n_looks: int = 4
    """How often the loss on all fitting sequences is looked at, at even distances, the last time at the end."""
    seed: int = 0
    """Draws the order of the sequences."""

    def __post_init__(self) -> None:
        counts = {"n_steps": self.n_steps, "n_sequences": self.n_sequences, "n_looks": self.n_looks}
        wrong = next((f"{name}={value}" for name, value in counts.items() if value < 1), None)
        if wrong is None and not self.rate > 0:
            wrong = f"rate={self.rate}"
        if wrong is not None:
            raise InputError(f"{wrong} fits nothing; give a number above 0.")
        if self.n_looks > self.n_steps:
            raise InputError(f"n_looks={self.n_looks} are more than n_steps={self.n_steps}; look once a step at most.")

    @property
    def looks(self) -> tuple[int, ...]:
        """The steps after which the loss is looked at.

        >>> Fitting(n_steps=10, n_looks=4).looks
        (2, 5, 8, 10)
        """
        return tuple(round(self.n_steps * (number + 1) / self.n_looks) for number in range(self.n_looks))


@dataclass(frozen=True, kw_only=True, eq=False)
class Optima:
    """The best constants met for some ablations, and what they cost on the sequences they were fitted on."""

    source: str
    """What they were fitted on, in words."""

    places: tuple[tuple[Place, ...], ...]
    """The ablations, each a set of places replaced together by what is optimal: as `measure_harms` takes them."""

    outcome: str
    """Name of the outcome whose mean was made small."""

    values: tuple[dict[str, Tensor], ...] = field(repr=False)
    """For each ablation the constant of each of its places, by label (`L1H3`)."""

    clean: float
    """The intact model on the fitting sequences, mean outcome."""

    zero: Float[Tensor, " ablation"]
    """Mean outcome there with zeros in those places."""

    mean: Float[Tensor, " ablation"]
    """With the means of those sequences there."""

    looks: tuple[int, ...]
    """Steps after which the fitting sequences were run."""

    curve: Float[Tensor, "ablation look"]
    """Mean outcome there with the constants of that step."""

    slope: Float[Tensor, "ablation 2"]
    """Norm of the gradient there at the mean and at what was kept, in outcome per spread of the component."""

    @property
    def optimal(self) -> Float[Tensor, " ablation"]:
        """With the constants that were kept: exactly the least of zero, mean and the curve."""
        return torch.cat([self.zero[:, None], self.mean[:, None], self.curve], dim=1).amin(1)

    @property
    def slope_left(self) -> Float[Tensor, " ablation"]:
        """The loss's slope at what was kept, as a share of that at the mean: near 0 at an optimum.

        Slopes are norms of the gradient over all fitting sequences, in units of the component's spread. Where the loss
        is nearly quadratic, what is left to gain is about the square of it, as a share of what was gained. It may pass
        1 where the loss is not, as with weights that nobody trained; 0 where the mean is flat already.
        """
        return torch.where(
            self.slope[:, 0] > 0, self.slope[:, 1] / self.slope[:, 0].where(self.slope[:, 0] > 0, 1.0), 0.0
        )

    def constants(self, places: Sequence[Place]) -> dict[str, Tensor]:
        """The constant of each of `places` by label, where this very set was fitted; interventions do not matter.

        Raises InputError otherwise: what is best for a head alone is not what is best beside another ablated one.
        """
        labels = frozenset(place.label for place in places)
        for each, values in zip(self.places, self.values, strict=True):
            if labels == frozenset(place.label for place in each):
                return values
        known = "; ".join(",".join(place.label for place in each) for each in self.places[:8])
        more = f" and {len(self.places) - 8} more" if len(self.places) > 8 else ""
        raise InputError(
            f"no optimal constants were fitted for {','.join(sorted(labels))} together (only for {known}{more}). "
            "Fit this very set with interp.optimal.fit_optimal."
        )


def fit_optimal(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    ablations: Sequence[Places],
    outcome: Outcome = TEXT,
    *,
    source: str,
    fitting: Fitting | None = None,
    memory: int = MEMORY,
    counted: Counted | None = None,
) -> Optima:
    """Learn the constants that make each ablation hurt least on `tokens`, each for itself.

    Args:
        gpt: a causal model, its dropout off.
        tokens: the sequences to fit on, of one length, without padding. Not those under study: a constant with so many
            free numbers would know them.
        ablations: sets of places, each replaced together, such as ["L0H1", "L1H3,L1.ffn"]. Whatever intervention they
            name, constants are fitted.
        outcome: a mean of next-token losses over some targets (`interp.outcomes`), none with a negative weight: what is
            good for a difference may be bad for every loss in it.
        source: what the tokens are, in words.
        fitting: how long and how fast.
        memory: bytes that passes may take beside the model and the constants.
        counted: called as counted(steps done, steps in all) after every step of every stack.

    The same seed gives the same constants, up to rounding however many fit into the memory at a time.
    """
    require_next_token(gpt)
    require_deterministic(gpt)
    fitting = fitting or Fitting()
    if gpt.hooked:
        raise InputError(
            "hooks are in force here, and constants are fitted for the model as it is; leave their `with`."
        )
    if not ablations or tokens.ndim != 2 or not len(tokens):
        raise InputError("fit_optimal needs tokens [sequence, pos] and at least one ablation, such as L0H1.")
    if bool((loss_weights(outcome, tokens) < 0).any()):
        raise InputError(
            f"{outcome.name} gains where some losses rise, so constants fitted for it would ruin those; fit them for a "
            "mean of losses, such as text_loss."
        )
    resolved = [_optimal(resolve_places(each, gpt.config, Intervention.OPTIMAL)) for each in ablations]
    spread = measured_spread(gpt, tokens, resolved, source=source)
    clean = intact_loss(gpt, tokens, outcome, memory=memory)
    fitted: list[_Fitted | None] = [None] * len(resolved)
    entries = [entry_of(ablation_of(each, gpt.config)) for each in resolved]
    most = Problems.most(gpt, tokens.shape[1], entries, fitting.n_sequences, memory=memory)
    stacks = list(begun_together(entries, most))
    for number, members in enumerate(stacks):
        problems = Problems(
            gpt=gpt,
            tokens=tokens,
            outcome=outcome,
            members=[resolved[member] for member in members],
            entry=entries[members[0]],
            memory=memory,
        )

        def stepped(step: int, number: int = number) -> None:
            if counted is not None:
                counted(number * fitting.n_steps + step, len(stacks) * fitting.n_steps)

        for member, found in zip(members, _fit(problems, spread, fitting, stepped), strict=True):
            fitted[member] = found
    done = [each for each in fitted if each is not None]
    return Optima(
        source=source,
        places=tuple(resolved),
        outcome=outcome.name,
        values=tuple(each.values for each in done),
        clean=clean,
        zero=torch.stack([each.losses[0] for each in done]),
        mean=torch.stack([each.losses[1] for each in done]),
        looks=fitting.looks,
        curve=torch.stack([each.losses[2:] for each in done]),
        slope=torch.stack([each.slope for each in done]),
    )


def require_whole(ablations: Iterable[Ablation]) -> None:
    """Refuse optimal constants where something else is replaced than what they are fitted for."""
    for each in ablations:
        fitted = each.takes(Intervention.OPTIMAL)
        if fitted and (each.frozen is not Frozen.NOTHING or each.positions is not None):
            instead = str(replace(fitted[0], intervention=Intervention.MEAN))
            raise InputError(
                f"{each} asks for a constant that was fitted for something else: for all positions, and for later "
                f"layers that run on; leave that out, or use {instead}."
            )


def _optimal(places: Sequence[Place]) -> tuple[Place, ...]:
    return tuple(replace(place, intervention=Intervention.OPTIMAL) for place in places)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fitted:
    """One ablation's best constants, and the losses with zero, the mean, and at every look."""

    values: dict[str, Tensor]
    losses: Float[Tensor, " candidate"]
    slope: Float[Tensor, " 2"]


def _fit(problems: Problems, spread: Spread, fitting: Fitting, stepped: Callable[[int], None]) -> list[_Fitted]:
    """Every problem of a stack, in one descent."""
    means, scales = problems.laid_out(spread.mean), problems.laid_out(spread.deviation)
    moved = {name: torch.zeros_like(each).requires_grad_() for name, each in means.items()}
    candidates = [{name: torch.zeros_like(each) for name, each in means.items()}, means]
    losses = [problems.losses(each) for each in candidates]
    optimizer = torch.optim.Adam(list(moved.values()), lr=fitting.rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, fitting.n_steps)
    order = _order(problems.n_sequences, fitting)
    for step in range(1, fitting.n_steps + 1):
        values = {name: means[name] + scales[name] * each for name, each in moved.items()}
        gradients = problems.gradients(values, order[step - 1])
        for name, each in moved.items():
            each.grad = gradients[name] * scales[name]
        optimizer.step()
        schedule.step()
        if step in fitting.looks:
            now = {name: means[name] + scales[name] * each.detach() for name, each in moved.items()}
            candidates.append(now)
            losses.append(problems.losses(now))
        stepped(step)
    table = torch.stack(losses, dim=1)
    kept = _chosen(candidates, table.argmin(1))
    slopes = torch.stack([problems.slope(each, scales) for each in (means, kept)], dim=1)
    return [
        _Fitted(values=problems.values_of(member, kept), losses=table[member], slope=slopes[member])
        for member in range(len(table))
    ]


def _chosen(candidates: Sequence[dict[str, Tensor]], best: Int[Tensor, " member"]) -> dict[str, Tensor]:
    """Of every member the candidate that is its best."""
    members = torch.arange(len(best))
    return {name: torch.stack([each[name] for each in candidates])[best, members] for name in candidates[0]}


def _order(n: int, fitting: Fitting) -> list[Tensor]:
    """The sequences of every step: in a random order, then in another, so that each is met equally often."""
    generator = torch.Generator().manual_seed(fitting.seed)
    size = min(n, fitting.n_sequences)
    needed = fitting.n_steps * size
    order = torch.cat([torch.randperm(n, generator=generator) for _ in range(-(-needed // n))])
    return list(order[:needed].split(size))
