"""What a pattern looks like, as one number per sequence and head, each beside the number that indifference would give.

    pattern A [batch, head, query, key]: rows sum to 1, and under causal attention key j > query i gets nothing

Every score is a mean over stated query rows of the attention that falls on the score's targets. A head that spreads
its attention evenly over what it may see puts 1/(i+1) on each key of row i, so *chance* for one target per row is the
mean of 1/(i+1) over the same rows: not zero, and larger on early rows. Scores read patterns and never change them.

Sources: Olsson et al. 2022, appendix (prefix matching, previous token); Voita et al. 2019 (positional heads);
TransformerLens' head detector for the target masks, here restricted to rows that have a target, so that a perfect head
scores 1.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Pattern = Float[Tensor, "batch head query key"]
Score = Float[Tensor, "batch head"]
Targets = Bool[Tensor, "batch query key"]

WINDOW = 8
"""How many keys count as local, the token itself among them."""


def stripe(pattern: Pattern, distance: int, start: int, stop: int | None = None) -> Score:
    """Mean attention from row i to key i - distance, over rows start to stop - 1 (all that have such a key)."""
    first = max(start, distance)
    last = pattern.shape[-2] if stop is None else stop
    return pattern.diagonal(-distance, dim1=-2, dim2=-1)[..., first - distance : last - distance].mean(-1)


def previous_token(pattern: Pattern, *, start: int = 2) -> Score:
    """Attention to the token before. Rows from 2, where the token before is no BOS."""
    return stripe(pattern, 1, start)


def current_token(pattern: Pattern, *, start: int = 1) -> Score:
    """Attention to the token itself. Row 0 sees nothing else and is left out."""
    return stripe(pattern, 0, start)


def first_position(pattern: Pattern, *, start: int = 1) -> Score:
    """Attention to position 0, where the BOS is if there is one: how much the head rests."""
    return pattern[..., start:, 0].mean(-1)


def duplicate_stripe(pattern: Pattern, period: int, *, start: int) -> Score:
    """On repeated segments: attention from the later copies (rows from `start`) to the same token one copy earlier."""
    return stripe(pattern, period, start)


def induction_stripe(pattern: Pattern, period: int, *, start: int) -> Score:
    """On repeated segments: attention from the later copies to the token after the same token one copy earlier."""
    return stripe(pattern, period - 1, start)


def prefix_matching(pattern: Pattern, period: int, *, start: int) -> Score:
    """Olsson et al. 2022: from every token that has come before, to all the tokens right after its earlier copies.

    The first of several copies of `period` distinct tokens begins at `start`. Attention is summed over all earlier
    copies, then averaged over the rows of the second copy and later; the target is the token after (offset + 1).
    """
    n_rows = pattern.shape[-2] - start - period
    back = range(period, pattern.shape[-2] - start, period)
    mass = [pattern.diagonal(1 - each, dim1=-2, dim2=-1)[..., start + 1 :].sum(-1) for each in back]
    return torch.stack(mass).sum(0) / n_rows


def offset_profile(pattern: Pattern, longest: int, *, start: int) -> Float[Tensor, "batch head offset"]:
    """Attention at each fixed distance from 0 to `longest`, all over the rows from `start`, so that chance is one."""
    return torch.stack([stripe(pattern, each, start) for each in range(longest + 1)], dim=-1)


def best_offsets(
    profiles: Float[Tensor, "sequence layer head offset"],
) -> tuple[Int[Tensor, "layer head"], Float[Tensor, "measured layer head"]]:
    """Each head's strongest fixed distance on sequences 0, 2, 4, ..., and the attention there on 1, 3, 5, ...

    The distance is measured on sequences that had no part in choosing it, so that the choice does not flatter it.
    """
    offsets = profiles[0::2].double().mean(0).argmax(-1)
    measured = profiles[1::2]
    return offsets, measured.gather(-1, offsets.expand(len(measured), -1, -1)[..., None])[..., 0]


def local_mass(pattern: Pattern, *, window: int = WINDOW) -> Score:
    """Attention to the last `window` keys, the token itself among them; rows from `far_start`."""
    return offset_profile(pattern, window - 1, start=far_start(window)).sum(-1)


def far_mass(pattern: Pattern, *, window: int = WINDOW) -> Score:
    """Attention to all keys before the last `window` but position 0, where heads rest; rows from `far_start`."""
    start = far_start(window)
    total = pattern[..., start:, :].sum(-1).mean(-1)
    return (total - first_position(pattern, start=start) - local_mass(pattern, window=window)).clamp(min=0)


def far_start(window: int = WINDOW) -> int:
    """The first row with a key that is neither local nor position 0.

    >>> far_start(8)
    9
    """
    return window + 1


def even_pattern(n_pos: int) -> Float[Tensor, "one one query key"]:
    """The pattern of a head that attends evenly to all it may see: its score is the chance level, whatever the score.

    >>> even_pattern(2).tolist()
    [[[[1.0, 0.0], [0.5, 0.5]]]]
    """
    visible = torch.ones(n_pos, n_pos, dtype=torch.float64).tril()
    return (visible / visible.sum(-1, keepdim=True))[None, None]


def chance(start: int, stop: int) -> float:
    """Mean of 1/(i+1) over rows start to stop - 1: what one target per row gets from even attention.

    >>> chance(1, 3)
    0.41666666666666663
    """
    return float((1 / torch.arange(start + 1, stop + 1, dtype=torch.float64)).mean())


def can_reach(multiple: int | float, level: float) -> bool:
    """Whether a score can be `multiple` times its chance level: on short sequences that is more than all attention.

    >>> can_reach(10, chance(21, 41)), can_reach(10, chance(5, 9))
    (True, False)
    """
    return multiple * level < 1


def duplicate_targets(tokens: Int[Tensor, "batch pos"], *, ignore: int | None = None) -> Targets:
    """Earlier positions with the same token; `ignore` (the BOS) is neither query nor key."""
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    return same if ignore is None else same & (tokens != ignore)[:, :, None]


def induction_targets(tokens: Int[Tensor, "batch pos"], *, ignore: int | None = None) -> Targets:
    """Positions right after an earlier copy of the query's token, the query's own position excluded."""
    earlier = duplicate_targets(tokens, ignore=ignore)
    return torch.nn.functional.pad(earlier[..., :-1], (1, 0)).tril(-1)


def on_targets(pattern: Pattern, targets: Targets) -> Score:
    """Mean over the rows that have a target of the attention on all of the row's targets; NaN where no row has one."""
    rows = targets.any(-1)
    mass = torch.einsum("bhqk,bqk->bhq", pattern, targets.to(pattern.dtype))
    return mass.sum(-1) / rows.sum(-1)[:, None]


def targets_chance(targets: Targets) -> Float[Tensor, " batch"]:
    """What even causal attention gets in `on_targets`, for each sequence."""
    visible = torch.arange(1, targets.shape[1] + 1, device=targets.device, dtype=torch.float64)
    share = targets.sum(-1) / visible
    return share.sum(-1) / targets.any(-1).sum(-1)


def entropy(pattern: Pattern, *, start: int = 1) -> Score:
    """Mean entropy of the rows over its largest value ln(i+1): 0 looks at one key, 1 at all alike."""
    rows = pattern[..., start:, :]
    largest = torch.arange(start + 1, pattern.shape[-2] + 1, device=pattern.device, dtype=pattern.dtype).log()
    return (torch.special.entr(rows).sum(-1) / largest).mean(-1)


def distance(pattern: Pattern, *, start: int = 1) -> Score:
    """Mean distance i - j in tokens, weighted by attention."""
    query = torch.arange(pattern.shape[-2], device=pattern.device, dtype=pattern.dtype)
    away = (query[:, None] - query[None, : pattern.shape[-1]]).clamp(min=0)
    return torch.einsum("bhqk,qk->bhq", pattern, away)[..., start:].mean(-1)


def distance_chance(start: int, stop: int) -> float:
    """Mean distance of even attention, i/2, over rows start to stop - 1.

    >>> distance_chance(1, 4)
    1.0
    """
    return (start + stop - 1) / 4
