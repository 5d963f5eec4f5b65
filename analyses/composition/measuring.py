"""Measuring how FFN layers' predictions are composed, at one checkpoint (for `analyses.ffn_composition`).

The windows are read twice: once for every memory's largest coefficient on the sample, and once to take layers apart.
What is held of all prefixes is some numbers per layer; logits, coefficients and streams are those of one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor

from analyses.composition.result import Config, Measured, SinceStart
from analyses.composition.summing import Taken, Units, promotion, since_start, sub_update_shares, targets
from interp.ffn_composed import Case, Counted, first_to_stay, joined
from interp.ffn_composition import composed, memory_tokens
from interp.ffn_parts import decoder_of, largest_coefficients, read_parts
from interp.memory_stream import fitting_windows
from interp.null_models import dealt_orders
from interp.prefix_draws import DrawnPrefixes, elsewhere
from interp.prefixes import window_batches
from interp.ratio_tests import Ratio
from interp.stats import Interval, bootstrap_ratios
from interp.sub_updates import joined_saturations, joined_updates, saturations, sub_updates
from model.config import GPTConfig
from model.lab import Lab

KEPT, RARE, HALF = 0.6, 0.1, 0.5
"""Levels that layers are held against: residual and agreement cases, ffn cases, and halves (Geva et al. 2021)."""


@dataclass(frozen=True)
class Sample:
    """The prefixes that every checkpoint of a run is asked about."""

    tokens: Integer[np.ndarray, " corpus"]
    drawn: DrawnPrefixes
    bos: int | None
    units: Units
    common: Tensor
    """Which tokens are common in the text that is read, by id."""


def measure(
    lab: Lab, config: Config, sample: Sample, counted: Callable[[int, int], None] | None = None
) -> tuple[Measured, Taken]:
    """Everything that is said of one checkpoint; counted(batches done, batches in all) is called after each."""
    gpt, drawn = lab.gpt, sample.drawn
    n_batches = _n_batches(lab.config, config, drawn)
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if counted is not None:
            counted(done, 2 * n_batches)

    largest = torch.zeros(lab.config.n_layers, lab.config.ffn_width, device=gpt.device)
    for tokens, taken, _ in _batches(sample, n_batches):
        largest = torch.maximum(largest, largest_coefficients(gpt, tokens, taken))
        count()
    memories, deals = memory_tokens(gpt), dealt_orders(gpt, config.seed)
    ks = _fitting(config, lab.config)
    pieces: list[Taken] = []
    for tokens, taken, window in _batches(sample, n_batches):
        parts, _ = read_parts(gpt, tokens, taken)
        other, seed = torch.from_numpy(elsewhere(window)), config.seed * 1_000_003 + len(pieces)
        found = composed(gpt, parts, memories, threshold=config.strong * largest, other=other, dealt=deals)
        updates = sub_updates(gpt, parts, memories, found.final_token, ks=ks, seed=seed)
        pieces.append((found, updates, saturations(gpt, parts, memories, found, other, seed)))
        count()
    layers, updates, events = zip(*pieces, strict=True)
    found = joined(layers), joined_updates(updates), joined_saturations(events)
    return _measured(lab, sample, found, largest, ks), found


def since(lab: Lab, config: Config, sample: Sample, now: Taken, start: Taken) -> SinceStart:
    """What training has made of it."""
    return since_start(now, start, _fitting(config, lab.config), sample.common, sample.units)


def _fitting(config: Config, model: GPTConfig) -> list[int]:
    """How many memories together, of those that a layer has."""
    return [k for k in config.ks if k <= model.ffn_width] or [model.ffn_width]


def _n_batches(model: GPTConfig, config: Config, drawn: DrawnPrefixes) -> int:
    """Batches of two windows or more, whose logits (some 2^23 at a time) and coefficients fit."""
    n_pos = int(drawn.windows.lengths.max()) + 1
    per_window = -(-len(drawn) // len(drawn.windows))
    most = min(config.batch_size, max(2, 2**23 // (model.d_vocab * per_window)))
    size = max(2, fitting_windows(model, n_pos, most))
    return max(1, min(-(-len(drawn.windows) // size), len(drawn.windows) // 2))


def _batches(sample: Sample, n: int) -> Iterator[tuple[Tensor, Tensor, np.ndarray]]:
    """Tokens, which positions were drawn, and the window of each prefix; batches as even as can be."""
    windows = sample.drawn.windows
    edges = np.linspace(0, len(windows), n + 1).astype(int)
    for first, behind in pairwise(edges.tolist()):
        some = windows[first:behind]
        tokens, ends = next(window_batches(sample.tokens, some, bos=sample.bos, batch_size=len(some)))
        inside = (sample.drawn.window >= first) & (sample.drawn.window < behind)
        taken = torch.from_numpy(np.isin(ends.numpy(), sample.drawn.ends[inside]))
        last = 1 + int(taken.any(0).nonzero().max())
        yield tokens[:, :last], taken[:, :last], sample.drawn.window[inside]


def _measured(lab: Lab, sample: Sample, found: Taken, largest: Tensor, ks: list[int]) -> Measured:
    layers, updates, events = found
    units, final = sample.units, layers.final_token[:, None]
    before, after = layers.stream_token == final, layers.output_token == final
    agrees = before.double()
    steps = torch.cat([agrees[:, 1:], torch.ones_like(agrees[:, :1])], dim=1) - agrees
    none, none_dealt = ((each == 0).double().movedim(0, 1) for each in (layers.n_agreeing, layers.n_agreeing_dealt))
    active = list(Counted).index(Counted.ACTIVE)
    counts = layers.n_agreeing.double()
    quartiles = torch.tensor([0.25, 0.5, 0.75])
    cases, cases_other = _of_each(layers.case), _of_each(layers.case_other)
    kept, kept_other = (each[:, Case.RESIDUAL] + each[:, Case.AGREEMENT] for each in (cases, cases_other))
    changes, changes_other = (_changes(units, each) for each in (cases, cases_other))
    if decoder_of(lab.gpt).bias is None and bool(cases[:, Case.IMPOSSIBLE].any()):
        raise RuntimeError("two that agree made a third token of a sum: the decoder is not linear")
    n_layers = agrees.shape[1]
    stays = (first_to_stay(each).bincount(minlength=n_layers + 1) for each in (before, after))
    return Measured(
        step=lab.step,
        active=units.share(layers.active),
        active_quartiles=layers.active.quantile(quartiles, dim=0),
        p_active=units.ps(layers.active, HALF),
        strong=units.share(layers.strong),
        strong_quartiles=layers.strong.quantile(quartiles, dim=0),
        carrying=units.share(layers.carrying),
        carrying_quartiles=layers.carrying.quantile(quartiles, dim=0),
        dead=(largest <= 1e-6).sum(1).cpu(),
        zero_agreement=units.share(none),
        zero_agreement_dealt=units.share(none_dealt),
        n_agreeing=(counts.sum(1) / (counts > 0).sum(1)).float(),
        p_zero=units.ps(none[:, active], HALF),
        p_zero_dealt=units.apart_ps(none[:, active], none_dealt[:, active]),
        targets=targets(lab.tokenizer, layers, sample.common, torch.from_numpy(sample.drawn.lengths), units),
        residual_agreement=units.share(agrees),
        residual_probability=units.share(layers.stream_probability),
        output_agreement=units.share(after.double()),
        output_probability=units.share(layers.output_probability),
        steps=units.share(steps),
        p_steps=units.apart_ps(steps + agrees, agrees),
        rise=None if n_layers == 1 else units.share(agrees[:, -1:] - agrees[:, :1])[0],
        saturation=torch.stack(list(stays)),
        breakdown=units.share(cases),
        breakdown_other=units.share(cases_other),
        breakdown_dealt=units.share(_of_each(layers.case_dealt)),
        p_kept=units.ps(kept, KEPT),
        p_kept_other=units.apart_ps(kept, kept_other),
        p_ffn=units.ps(cases[:, Case.FFN], RARE),
        p_ffn_other=units.apart_ps(cases[:, Case.FFN], cases_other[:, Case.FFN]),
        composed_changes=_interval(changes, units),
        composed_changes_other=_interval(changes_other, units),
        p_composed=units.p([changes], level=HALF),
        p_composed_other=units.p([changes], less=[changes_other]),
        sub_updates=sub_update_shares(updates, ks, units),
        promotion=promotion(events, n_layers, units),
    )


def _of_each(case: Tensor) -> Tensor:
    """Whether each prefix and layer is of each case, [prefix case layer]."""
    return torch.stack([case == each for each in Case], dim=1).double()


def _changes(units: Units, cases: Tensor) -> Ratio:
    """Composition among the cases in which the stream's token changes; what is impossible is a change as well."""
    third = (cases[:, Case.COMPOSITION] + cases[:, Case.IMPOSSIBLE]).sum(1, keepdim=True)
    return units.part_of(third, third + cases[:, Case.FFN].sum(1, keepdim=True))


def _interval(ratio: Ratio, units: Units) -> Interval:
    return bootstrap_ratios(ratio.part, ratio.whole, seed=units.seed)[0]
