"""Places that one model has: what is named in the grammar of `interp.places`, held against a model's sizes.

What is refused here is refused before anything is measured: a layer, head or memory that the model lacks, one component
named twice, and a place that is no head where heads are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from interp.intervention_kinds import Intervention, parse_stated
from interp.places import HOW, Head, Place, PlaceKind, Places, parse_places, stating
from model.config import FFNKind, GPTConfig
from model.errors import InputError, UnknownNameError


def resolve_places(
    places: Places, config: GPTConfig, intervention: Intervention | str = Intervention.MEAN
) -> tuple[Place, ...]:
    """Places that this model has, none twice, each with an intervention: its own, or else the one given here.

    Raises:
        InputError: a text outside the grammar, no place at all, or one component named twice.
        UnknownNameError: a layer, head, memory or FFN that the model does not have.
    """
    given = _given(places)
    parse_stated(intervention)
    if not given:
        raise InputError(f"no place given. {HOW}")
    for place in given:
        _require_in_model(place, config)
    _require_distinct(given)
    return tuple(place if place.intervention else stating(place, intervention) for place in given)


def named_heads(config: GPTConfig, heads: Places | None) -> list[Head]:
    """(layer, head) of each head that is named, in order; a whole sublayer stands for its heads, None for all.

    Raises:
        InputError: a memory or an FFN, or what `resolve_places` refuses.
        UnknownNameError: a head that the model does not have.
    """
    everyone = [f"L{layer}.attn" for layer in range(config.n_layers)]
    found = []
    for place in resolve_places(everyone if heads is None else heads, config):
        if not place.in_attention:
            raise InputError(f"{place.label} is no head; name heads, such as L0H1, or all of a layer, L0.attn.")
        several = range(config.n_heads) if place.kind is PlaceKind.ATTENTION else [place.number]
        found += [(place.layer, index) for index in several]
    return found


def named_head(config: GPTConfig, head: str | Place) -> Head:
    """(layer, head) of the one head that is named."""
    found = named_heads(config, head)
    if len(found) > 1:
        raise InputError(f"{head} names {len(found)} heads; name one, such as L{config.n_layers - 1}H0.")
    return found[0]


def _given(places: Places) -> tuple[Place, ...]:
    """Places of a text, of one place, or of several, each of them either."""
    if isinstance(places, str):
        return parse_places(places)
    several = (places,) if isinstance(places, Place) else tuple(places)
    return tuple(place for each in several for place in ((each,) if isinstance(each, Place) else parse_places(each)))


def _require_in_model(place: Place, config: GPTConfig) -> None:
    if (place.index is None) is (place.kind in (PlaceKind.HEAD, PlaceKind.MEMORY)):
        raise InputError(f"{place.label} is half a name: heads and memories have an index, sublayers none. {HOW}")
    if not 0 <= place.layer < config.n_layers:
        raise UnknownNameError(
            f"no {place.label}: this model has {_count(config.n_layers, 'layer')}. "
            f"Choose a layer from 0 to {config.n_layers - 1}."
        )
    if not place.in_attention and config.ffn is FFNKind.NONE:
        raise UnknownNameError(
            f"no {place.label}: this model is attention-only. Choose heads, such as L{place.layer}H0, or all of "
            f"a layer, L{place.layer}.attn."
        )
    size, noun = (config.n_heads, "head") if place.in_attention else (config.ffn_width, "memory")
    if place.index is not None and not 0 <= place.index < size:
        raise UnknownNameError(
            f"no {place.label}: layer {place.layer} has {_count(size, noun)}. Choose a {noun} from 0 to {size - 1}."
        )


def _require_distinct(places: Sequence[Place]) -> None:
    """Refuse a component that is named twice, by itself or within its sublayer."""
    by_sublayer: dict[tuple[int, bool], dict[int | None, Place]] = {}
    for place in places:
        named = by_sublayer.setdefault((place.layer, place.in_attention), {})
        other = named.get(place.index) or named.get(None)
        if place.index is None and named:
            other = next(iter(named.values()))
        if other is not None:
            part, whole = (other, place) if place.index is None else (place, other)
            raise InputError(f"{part.label} is already covered by {whole.label}. Name every component once.")
        named[place.index] = place


def _count(n: int, noun: str) -> str:
    plural = {"memory": "memories"}.get(noun, noun + "s")
    return f"{n} {noun if n == 1 else plural}"
