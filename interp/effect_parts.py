"""What one ablation costs, as a record: its effect on every outcome, what matched sets cost, and how both were got."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation_plan import Ablation
from interp.places import print_places
from interp.sequential import Decision
from interp.stats import Interval
from model.errors import InputError

CONTROL_LEVEL = 0.05
"""The p at which a set stands out from its matched sets."""


@dataclass(frozen=True, kw_only=True)
class OutcomeEffect:
    """What an ablation does to one outcome."""

    name: str
    """The outcome, as in --metric."""

    meaning: str
    """The outcome in words."""

    clean: float
    """Its mean for the intact model."""

    harm: Interval
    """How much worse it is when ablated, paired by sequence; negative means that the places hurt."""

    p: float
    """Two-sided sign-flip p that the harm is zero."""

    scale: float | None
    """What a model has that knows token frequencies only; None where that is no scale."""

    share_interval: Interval | None = None
    """The harm as a share of what the intact model gains over token frequencies; None without a scale, and where that
    gain is not surely there."""

    unit: str = "nats"
    """What all of these are in, as in "0.2 nats"."""

    lower_is_better: bool = True
    """Whether a model that does worse has more of it."""

    @property
    def sign(self) -> int:
        """What a harm is multiplied by to be a change."""
        return 1 if self.lower_is_better else -1

    @property
    def ablated(self) -> float:
        """Its mean for the ablated model."""
        return self.clean + self.sign * self.harm.mean

    @property
    def share(self) -> float | None:
        """The mean of that share: harm over (scale - clean)."""
        return None if self.share_interval is None else self.share_interval.mean


@dataclass(frozen=True, kw_only=True)
class Control:
    """The same intervention on other sets with as many components of the same kind in every layer."""

    harm: Float[Tensor, " set"]
    """Mean harm of each set, in the metric's unit; empty where no such set exists."""

    shared: Int[Tensor, " set"]
    """How many components each set shares with the one that was ablated."""

    n_possible: int
    """How many such sets exist."""

    p: float | None
    """Share of sets that cost at least as much (gain, where `gains`), the ablated one counted among them; None without
    sets. Which of the two is read off the ablated set itself, so that by chance alone up to twice as many sets stand
    out, one way or the other, as p says.
    """

    note: str
    """What the sets are, or why there are none, in words."""

    n: int | None = None
    """Sequences that the ablated set and these were tried on; None without sets."""

    own: float | None = None
    """Mean harm of the ablated set on those sequences; None without sets."""

    gains: bool = False
    """Whether the ablated set makes the model better there, so that p counts sets that gain at least as much."""

    @property
    def smallest_p(self) -> float | None:
        """The smallest p that these sets can give."""
        return 1 / (1 + len(self.harm)) if len(self.harm) else None

    @property
    def median(self) -> float | None:
        """The median harm of the sets."""
        return float(self.harm.quantile(0.5)) if len(self.harm) else None

    @property
    def largest(self) -> float | None:
        """The harm of the costliest set; where p counts gains, that of the set that gains most."""
        if not len(self.harm):
            return None
        return float(self.harm.min() if self.gains else self.harm.max())

    @property
    def is_beaten(self) -> bool | None:
        """Whether the ablated set stands out at `CONTROL_LEVEL`; None where so few sets cannot decide that.

        With 18 sets or fewer even the costliest of all has p > 0.05: `smallest_p` says what they allow.
        """
        if self.p is None or self.smallest_p is None or self.smallest_p > CONTROL_LEVEL:
            return None
        return self.p <= CONTROL_LEVEL

    @property
    def is_exceeded(self) -> bool | None:
        """Whether the ablated set costs (gains) more than every one of the sets, many or few; None without sets."""
        return None if self.p is None else self.p == self.smallest_p


@dataclass(frozen=True, kw_only=True, repr=False)
class AblationEffect:
    """What ablating some places together costs on every outcome, with a control on one of them."""

    checkpoint: str
    """Which model, as RUN@STEP."""

    ablation: Ablation
    """What was put where, how much of it, at which positions, and what was held."""

    metric: str
    """The outcome that the control is about."""

    outcomes: tuple[OutcomeEffect, ...]
    """The effect on every outcome that was measured."""

    control: Control

    sources: tuple[str, ...]
    """What the replacements are taken from, in words; empty where nothing is taken from any sequence."""

    notes: tuple[str, ...]
    """Sentences on what could not be measured, and why."""

    seed: int
    """Draws the sequences, the donors, the resamples and the control sets."""

    kinds: tuple[str, ...]
    """What the measured sequences are, in words, one for each kind."""

    start: tuple[OutcomeEffect, ...] = ()
    """The same ablation at the run's step 0, on the same sequences; empty where this is step 0 or it was not kept."""

    decision: Decision | None = None
    """How many sequences it took to tell the harm on the metric from a bound; None where their number was fixed."""

    def __repr__(self) -> str:
        harm, unit = self.harm, self.effect.unit
        size = f"{self.metric} {harm.mean:.3g} {unit} [{harm.low:.3g}, {harm.high:.3g}], n = {harm.n}"
        return f"AblationEffect({self.checkpoint}, {self.ablation}, {size})"

    @property
    def places(self) -> str:
        """What was put where, in the grammar of places."""
        return print_places(self.ablation.places)

    def has(self, name: str) -> bool:
        """Whether the outcome called `name` was measured."""
        return any(outcome.name == name for outcome in self.outcomes)

    def on(self, name: str) -> OutcomeEffect:
        """The effect on the outcome called `name`; InputError where it was not measured."""
        return _named(self.outcomes, name, " ".join(self.notes))

    def at_start(self, name: str) -> OutcomeEffect | None:
        """The same at step 0; None where there is no step 0 beside this one."""
        return _named(self.start, name) if self.start else None

    @property
    def effect(self) -> OutcomeEffect:
        """The effect on the metric."""
        return self.on(self.metric)

    @property
    def harm(self) -> Interval:
        """How much worse the metric is when ablated."""
        return self.effect.harm

    @property
    def text(self) -> OutcomeEffect:
        """The effect on held-out text (on held-out repeats, where the run has no text: see `meaning`)."""
        return self.on("text_loss")

    @property
    def new_token(self) -> OutcomeEffect:
        """The same where there is nothing to copy: the control that always exists, whatever sets there are."""
        return self.on("new_token_loss")


def _named(outcomes: tuple[OutcomeEffect, ...], name: str, why: str = "") -> OutcomeEffect:
    found = next((outcome for outcome in outcomes if outcome.name == name), None)
    if found is None:
        known = ", ".join(outcome.name for outcome in outcomes)
        raise InputError(f"{name} was not measured; measured were {known}. {why}".strip())
    return found
