"""What memories that are turned on are held against: other memories, memories that write as much, random directions.

Each kind answers one question: is it these memories, or any of the layer; or is it how much is written, or where to;
and of memories that are turned off, is it these that are missed. Matched sets are tried at every strength, so that they
have a dose curve of their own; the other kinds at the strength in question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.promotion.memories import Chosen, own_largest, writing_as_much
from analyses.promotion.result import Config, Control, ControlKind
from analyses.promotion.writing import Writing, slopes
from interp.controls import control_p
from interp.matched_places import MatchedPlaces, in_order, matched_places
from interp.places import Place, memory
from interp.promotion import Written
from model.gpt import GPT
from model.settings import as_enum


def controls(
    gpt: GPT, chosen: Chosen, writing: Writing, plain: Written, doses: Sequence[Written], config: Config
) -> Iterator[Control]:
    """Every kind of control, beside the memories at each strength."""
    own = dict(zip(config.doses, doses, strict=True))
    bare, strata = [memory(*each) for each in chosen.memories], chosen.strata
    anyone = matched_places(bare, gpt.config, limit=config.n_sets, seed=config.seed)
    alike = matched_places(bare, gpt.config, limit=config.n_sets, seed=config.seed + 1, strata=strata)
    ordered = _numbers(in_order(bare, gpt.config, strata))  # so that the first of a matched set is for the first here
    on = own_largest(ordered, chosen.activity, config.strength)
    random = [writing.of(gpt, own_largest(_numbers(each), chosen.activity, config.strength)) for each in anyone.sets]
    yield control_of(ControlKind.RANDOM, anyone.note, random, plain, own[config.strength])
    curves = _curves(gpt, chosen, ordered, alike, writing, config)
    matched = control_of(ControlKind.MATCHED, alike.note, curves[config.strength], plain, own[config.strength])
    yield _with_slopes(matched, curves, doses, config)
    yield _directions(gpt, on, writing, plain, own[config.strength], config)
    yield control_of(ControlKind.OFF, alike.note, curves[0.0], plain, own[0.0])


def control_of(kind: ControlKind | str, note: str, found: Sequence[Written], plain: Written, own: Written) -> Control:
    """The changes of each set, and the rank of the memories' own among them: of falls, where they are turned off."""
    kind = as_enum(ControlKind, kind, "kind")
    sign = -1 if kind is ControlKind.OFF else 1

    def change(read: Callable[[Written], Tensor]) -> tuple[float, Tensor]:
        base = read(plain).mean()
        each = [float(read(one).mean() - base) for one in found]
        return float(read(own).mean() - base), torch.tensor(each, dtype=torch.float64)

    (share, shares), (first, firsts) = change(lambda each: each.share), change(lambda each: each.mass[:, 0])
    (_, masses), (_, losses) = change(lambda each: each.mass), change(lambda each: each.loss)
    return Control(
        kind=kind,
        note=note,
        share_change=shares,
        mass_change=masses,
        first_change=firsts,
        loss_change=losses,
        slope=torch.empty(0, dtype=torch.float64),
        p=control_p(sign * share, sign * shares) if found else None,
        p_first=control_p(sign * first, sign * firsts) if found else None,
        p_slope=None,
    )


def _curves(
    gpt: GPT,
    chosen: Chosen,
    ordered: Sequence[tuple[int, int]],
    alike: MatchedPlaces,
    writing: Writing,
    config: Config,
) -> Mapping[float, list[Written]]:
    """What each matched set writes at each strength, where it writes as much as the memories do at that."""
    curves = {}
    for strength in config.doses:
        own = own_largest(ordered, chosen.activity, strength)
        curves[strength] = [
            writing.of(gpt, writing_as_much(_numbers(each), own, chosen.activity)) for each in alike.sets
        ]
    return curves


def _with_slopes(
    control: Control, curves: Mapping[float, Sequence[Written]], doses: Sequence[Written], config: Config
) -> Control:
    """The control with the slope of each set's curve, and the rank of the memories' own."""
    sets = zip(*(curves[strength] for strength in config.doses), strict=True)
    found = torch.tensor([float(slopes(each, config).mean()) for each in sets], dtype=torch.float64)
    own = float(slopes(doses, config).mean())
    return replace(control, slope=found, p_slope=control_p(own, found) if len(found) else None)


def _directions(
    gpt: GPT, own: Sequence[Place], writing: Writing, plain: Written, on: Written, config: Config
) -> Control:
    """The same coefficients with random directions, as long as the values that they stand for."""
    generator = torch.Generator().manual_seed(config.seed)
    rows = {layer: [place.number for place in own if place.layer == layer] for layer, _ in _numbers(own)}
    values = {layer: _values(gpt, layer)[numbers].float().cpu() for layer, numbers in sorted(rows.items())}
    found = []
    for _ in range(config.n_sets):
        directions = {}
        for layer, their in values.items():
            drawn = torch.randn(their.shape, generator=generator)
            directions[layer] = drawn / drawn.norm(dim=-1, keepdim=True) * their.norm(dim=-1, keepdim=True)
        found.append(writing.of(gpt, own, directions))
    note = f"{config.n_sets} draws of random directions as long as the values, at the same coefficients"
    return control_of(ControlKind.DIRECTION, note, found, plain, on)


def _values(gpt: GPT, layer: int) -> Float[Tensor, "memory d_model"]:
    ffn = gpt.layers[layer].mlp
    if ffn is None:
        raise RuntimeError("models without FFNs were refused")
    return ffn.W_out


def _numbers(places: Sequence[Place]) -> list[tuple[int, int]]:
    return [(place.layer, place.number) for place in places]
