"""What many ablations cost on the same sequences, one number per sequence: how much worse an outcome gets.

An ablation leaves what comes before it as it was. So each batch runs once, intact, and keeps what enters every ablated
place: for heads the stream that enters their layer and what its heads hold (z), since neither queries, keys, values nor
patterns of that layer change; for memories the stream that enters their FFN. Each ablation goes on from there, beside
others that begin there too (`interp.sweep`): of the 12 L H sublayers that L H ablations of a head take in full runs
(L layers of H heads, two sublayers each) about half are left. It changes no number (a test holds it against whole
runs), and works in a stated memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.ablation import Means
from interp.ablation_plan import Ablation, Frozen, ablation_of
from interp.asked import Answers, Asked
from interp.interventions import Edits
from interp.outcomes import Outcome
from interp.places import Places
from interp.requirements import require_deterministic, require_next_token
from interp.supplies import Supplies, edits_of
from interp.sweep import MEMORY, Room, begun_together, entry_of, stacked
from model.errors import InputError
from model.resume import Entry, Kept, kept_at, resumed

if TYPE_CHECKING:
    from model.gpt import GPT

Counted = Callable[[int, int], None]
"""Called as counted(runs done, runs in all) after each batch of each ablation; may raise to stop the work."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Harms:
    """Outcomes with and without each of several ablations; float64 on the CPU."""

    outcomes: tuple[Outcome, ...]

    clean: Float[Tensor, "sequence outcome"]
    """Of the intact model, in each outcome's unit."""

    ablated: Float[Tensor, "sequence ablation outcome"]
    """Under each ablation; averaged over donors where it resamples."""

    clean_by_token: Float[Tensor, "sequence target"] | None = field(default=None, repr=False)
    """What the first outcome reads at each target, NaN where it weighs none; None unless asked for."""

    ablated_by_token: Float[Tensor, "sequence ablation target"] | None = field(default=None, repr=False)
    """The same under each ablation."""

    @property
    def harm(self) -> Float[Tensor, "sequence ablation outcome"]:
        """How much worse each outcome gets: a loss that rises and an accuracy that falls are both positive."""
        signs = torch.tensor([outcome.sign for outcome in self.outcomes], dtype=torch.float64)
        return signs * (self.ablated - self.clean[:, None])

    @property
    def token_harm(self) -> Float[Tensor, "sequence ablation target"]:
        """How much worse the first outcome's reading gets at each target (that of token t+1 in column t)."""
        if self.clean_by_token is None or self.ablated_by_token is None:
            raise InputError("harms by token were not measured; pass by_token=True.")
        return self.outcomes[0].sign * (self.ablated_by_token - self.clean_by_token[:, None])


@torch.no_grad()
def measure_harms(
    gpt: GPT,
    tokens: Int[Tensor, "sequence pos"],
    ablations: Sequence[Ablation | Places],
    outcomes: Sequence[Outcome],
    *,
    supplies: Supplies | None = None,
    means: Means | None = None,
    batch_size: int | None = None,
    memory: int = MEMORY,
    by_token: bool = False,
    counted: Counted | None = None,
) -> Harms:
    """Run `tokens` intact and under each ablation (a set of places replaced together).

    Places without an intervention of their own are replaced by their mean. Sequences and ablations run together as far
    as `memory` bytes hold what that takes beside the model and the means; `batch_size` sequences where it is given.
    Under hooks that are in force here every ablation is a whole run of its own.

    Args:
        gpt: the model, in evaluation mode.
        tokens: the sequences under study, without padding.
        ablations: each an `Ablation`, or places in the grammar.
        outcomes: what is measured; those that share a measure share its cost.
        supplies: what replacements are taken from; `means` alone will do for zeros and means.
        means: short for supplies with nothing but means.
        batch_size: sequences at a time; by default as many as fit, at most 32.
        memory: bytes to work in.
        by_token: also keep what the first outcome reads at every target.
        counted: told of every ablation of every batch, of every draw of donors.

    Raises:
        InputError: dropout is active (two runs would differ by chance), there is no outcome, or an ablation takes
            something that the supplies do not have.
    """
    require_next_token(gpt)
    require_deterministic(gpt)
    if not outcomes:
        raise InputError("outcomes is empty, so nothing would be measured; give at least one (interp.outcomes).")
    if supplies is not None and means is not None:
        raise InputError("supplies hold the means already; give supplies or means, not both.")
    plan = [ablation_of(each, gpt.config) for each in ablations]
    stores = supplies or Supplies(source="other sequences" if means is None else means.source, means=means)
    stores.require(plan, tokens)
    most, n_pos = min(32, len(tokens)), tokens.shape[1]
    room = Room.within(
        memory,
        gpt.config,
        plan,
        dtype=gpt.dtype,
        device=gpt.device,
        n_pos=n_pos,
        most=most,
        exactly=batch_size,
        whole=gpt.hooked,
    )
    batches = torch.arange(len(tokens)).split(room.n_sequences)
    told = _Told(counted, len(batches) * sum(each.draws(stores) for each in plan))
    clean, ablated = [], []
    for rows in batches:
        asked = Asked.of(tokens[rows].to(gpt.device), outcomes, by_token=by_token)
        runs = _WholeRuns(gpt, asked) if gpt.hooked else _ResumedRuns(gpt, asked, plan, room)
        clean.append(runs.clean)
        ablated.append(_of_batch(runs, plan, stores, rows, told))
    return Harms(
        outcomes=tuple(outcomes),
        clean=torch.cat([each.values[0] for each in clean]),
        ablated=torch.cat([each.values.transpose(0, 1) for each in ablated]),
        clean_by_token=torch.cat([_tokens(each)[0] for each in clean]) if by_token else None,
        ablated_by_token=torch.cat([_tokens(each).transpose(0, 1) for each in ablated]) if by_token else None,
    )


def _of_batch(
    runs: _WholeRuns | _ResumedRuns, plan: Sequence[Ablation], supplies: Supplies, rows: Tensor, told: _Told
) -> Answers:
    """Every ablation of one batch, averaged over its draws."""
    gpt, asked, clean = runs.gpt, runs.asked, runs.clean
    values = clean.values.new_zeros(len(plan), *clean.values.shape[1:])
    by_token = None if clean.by_token is None else clean.by_token.new_zeros(len(plan), *clean.by_token.shape[1:])
    n_draws = [each.draws(supplies) for each in plan]
    stock = supplies.drawn(gpt, asked.tokens, rows, plan) if plan else None
    for draw in range(max(n_draws, default=0)):
        if stock is None:
            raise RuntimeError("there is a stock wherever there is an ablation")
        stock = stock.redrawn(gpt, draw) if draw else stock
        running = [number for number, n in enumerate(n_draws) if draw < n]
        for group in begun_together([_begin(plan[number]) for number in running], runs.n_together):
            members = [running[place] for place in group]
            found = runs.ablated(entry_of(plan[members[0]]), [edits_of(gpt, plan[each], stock) for each in members])
            shares = 1 / torch.tensor([n_draws[each] for each in members], dtype=torch.float64)[:, None, None]
            values[members] += shares * found.values
            if by_token is not None:
                by_token[members] += shares * _tokens(found)
            told.of(len(members))
    return Answers(values=values, by_token=by_token)


def _begin(ablation: Ablation) -> tuple[Entry, Frozen]:
    """What ablations must share to run side by side; held patterns make a whole pass take the explicit path."""
    return entry_of(ablation), ablation.frozen


def _tokens(answers: Answers) -> Tensor:
    if answers.by_token is None:
        raise RuntimeError("answers by token were not asked for")
    return answers.by_token


class _ResumedRuns:
    """Runs of one batch, each going on from where its ablation begins."""

    def __init__(self, gpt: GPT, asked: Asked, plan: Sequence[Ablation], room: Room) -> None:
        self.gpt, self.asked, self.n_rows, self.n_together = gpt, asked, room.n_rows, room.n_ablations
        self.final, self.kept = kept_at(gpt, asked.tokens, set(map(entry_of, plan)))
        self.clean = asked.answers(gpt, self.final, intact=None, n_rows=room.n_rows)

    kept: Mapping[Entry, Kept]

    def ablated(self, entry: Entry, edits: Sequence[Edits]) -> Answers:
        """Ablations that begin at `entry`, side by side."""
        with self.gpt.hooks(fwd_hooks=stacked(edits, len(self.asked.tokens))):
            final = resumed(self.gpt, self.kept[entry].repeated(len(edits)))
        return self.asked.answers(self.gpt, final, intact=self.final, n_rows=self.n_rows)


class _WholeRuns:
    """Runs of one batch from the first layer to the logits, one by one: hooks in force may stand anywhere."""

    def __init__(self, gpt: GPT, asked: Asked) -> None:
        self.gpt, self.asked, self.n_together = gpt, asked, 1
        self.logits = gpt(asked.tokens)
        self.clean = asked.of_logits(self.logits, self.logits)

    def ablated(self, entry: Entry, edits: Sequence[Edits]) -> Answers:
        """One ablation."""
        del entry
        with self.gpt.hooks(fwd_hooks=edits[0]):
            return self.asked.of_logits(self.gpt(self.asked.tokens), self.logits)


class _Told:
    """How many runs are done, told after each."""

    def __init__(self, counted: Counted | None, total: int) -> None:
        self.counted, self.total, self.done = counted, total, 0

    def of(self, n: int) -> None:
        for _ in range(n):
            self.done += 1
            if self.counted is not None:
                self.counted(self.done, self.total)
