"""One grammar for what is where in a model, shared by the command, claims, URLs and the dashboard.

    L1H3        a head: layer 1, head 3            L0.attn     the whole attention sublayer of layer 0
    L1M37       a memory: layer 1, FFN neuron 37   L0.ffn      the whole FFN sublayer of layer 0
    L1          all of layer 1: L1.attn,L1.ffn

After a colon stands what is put there, such as `:zero`, `:mean` or `:set=2.5` (`interp.intervention_kinds`). Places are
separated by commas, and an intervention reaches back over the places before it that have none: `L1H1,L1H3:mean`
replaces both by their means, `L1M3,L1M9:swap` lets both exchange what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from interp.intervention_kinds import Intervention, parse_intervention, parse_stated, print_stated, require_amount
from model.config import FFNKind, GPTConfig
from model.errors import InputError, UnknownNameError
from model.settings import as_enum


class PlaceKind(StrEnum):
    """What sort of component a place is."""

    HEAD = "head"
    """One attention head, printed L1H3."""

    MEMORY = "memory"
    """One FFN neuron seen as a key-value memory (Geva et al. 2021), printed L1M37."""

    ATTENTION = "attn"
    """Every head of a layer at once, printed L1.attn."""

    FFN = "ffn"
    """Every memory of a layer at once, printed L1.ffn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A component of the model and, when stated, what is put there."""

    kind: PlaceKind
    layer: int
    index: int | None = None
    """Which head or memory; None for a whole sublayer."""

    intervention: Intervention | None = None
    """None leaves the choice to whoever ablates."""

    amount: float | None = None
    """The number of an intervention that takes one: 2.5 of set=2.5."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", as_enum(PlaceKind, self.kind, "kind"))
        if self.intervention is None:
            return
        stated = parse_intervention(self.intervention)
        object.__setattr__(self, "intervention", stated)
        require_amount(stated, self.amount)
        if self.amount is not None:
            object.__setattr__(self, "amount", float(self.amount) + 0.0)  # zero has no sign
        if stated is Intervention.SET and self.kind is not PlaceKind.MEMORY:
            raise InputError(
                f"{self} cannot be: only a memory holds one number. Write memories, such as L1M37:set=2.5."
            )
        if stated is Intervention.SWAP and self.is_whole:
            raise InputError(f"{self} cannot be: heads or memories of one layer swap, as in L1M3,L1M9:swap.")

    def __str__(self) -> str:
        return self.label + (f":{self.stated}" if self.intervention else "")

    @property
    def stated(self) -> str:
        """What is put there as it is written, such as mean or set=2.5; nothing where that is left open."""
        return print_stated(self.intervention, self.amount) if self.intervention else ""

    @property
    def label(self) -> str:
        """The place without its intervention, such as `L1H3`.

        >>> parse_place("L1H3:mean").label
        'L1H3'
        """
        match self.kind:
            case PlaceKind.HEAD:
                return f"L{self.layer}H{self.index}"
            case PlaceKind.MEMORY:
                return f"L{self.layer}M{self.index}"
            case _:
                return f"L{self.layer}.{self.kind}"

    @property
    def in_attention(self) -> bool:
        """Whether the place belongs to an attention sublayer (otherwise to an FFN)."""
        return self.kind in (PlaceKind.HEAD, PlaceKind.ATTENTION)

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole sublayer."""
        return self.kind in (PlaceKind.ATTENTION, PlaceKind.FFN)


Head = tuple[int, int]
"""A head as (layer, head)."""

Places = str | Place | Sequence[str | Place]
"""Places as one text in the grammar, or one by one."""


def head(layer: int, index: int, intervention: Intervention | str | None = None) -> Place:
    """The place of one attention head.

    >>> str(head(1, 3, Intervention.ZERO))
    'L1H3:zero'
    """
    return _stated(Place(kind=PlaceKind.HEAD, layer=layer, index=index), intervention)


def memory(layer: int, index: int, intervention: Intervention | str | None = None) -> Place:
    """The place of one FFN memory.

    >>> str(memory(1, 37, "set=2.5"))
    'L1M37:set=2.5'
    """
    return _stated(Place(kind=PlaceKind.MEMORY, layer=layer, index=index), intervention)


def _stated(place: Place, intervention: Intervention | str | None) -> Place:
    """The place with this put there; as it is where nothing is said."""
    if intervention is None:
        return place
    kind, amount = parse_stated(intervention)
    return replace(place, intervention=kind, amount=amount)


def every_head(n_layers: int, n_heads: int) -> list[Head]:
    """The heads of a model, layer by layer.

    >>> every_head(2, 2)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return [(layer, index) for layer in range(n_layers) for index in range(n_heads)]


_PLACE = re.compile(
    r"L(?P<layer>\d+)(?:H(?P<head>\d+)|M(?P<memory>\d+)|\.(?P<sublayer>attn|ffn))(?:\s*:\s*(?P<intervention>.*))?"
)
_LAYER = re.compile(r"(?P<layer>L\d+)(?P<intervention>\s*:.*)?")
_HOW = (
    "Write a head as L1H3, a memory as L1M37, a sublayer as L1.attn or L1.ffn, a layer as L1, "
    "with :zero, :mean or another intervention after it if you like."
)


def parse_place(text: str) -> Place:
    """Read one place.

    >>> parse_place("L0.ffn:mean@pos").intervention.value
    'mean@pos'

    Raises:
        InputError: the text is not in the grammar.
    """
    found = _PLACE.fullmatch(text.strip())
    if _LAYER.fullmatch(text.strip()):
        raise InputError(f'"{text.strip()}" is a whole layer, two places; name one: {" or ".join(_spelt_out(text))}.')
    if found is None:
        raise InputError(f'"{text.strip()}" is not a place. {_meant(text.strip()) or _HOW}')
    layer = int(found["layer"])
    if found["sublayer"]:
        return _stated(Place(kind=PlaceKind(found["sublayer"]), layer=layer), found["intervention"])
    kind = PlaceKind.HEAD if found["head"] else PlaceKind.MEMORY
    return _stated(Place(kind=kind, layer=layer, index=int(found["head"] or found["memory"])), found["intervention"])


def _meant(text: str) -> str | None:
    """What to write for a near miss, in a sentence; None where nothing is near."""
    if not text:
        return "There is a comma too many; write one between two places, and none at the end."
    hook = re.fullmatch(r"blocks\.(\d+)\.(attn|mlp)\b.*", text)
    if hook is not None:
        sublayer = {"attn": "attn", "mlp": "ffn"}[hook[2]]
        return f"It is the name of a hook; the whole sublayer is L{hook[1]}.{sublayer}, one head such as L{hook[1]}H0."
    name, colon, rest = text.partition(":")
    several = name.split()
    if len(several) > 1 and all(map(_is_place, several)):
        return f"Put commas between places: {','.join(several)}{colon}{rest}."
    likely = re.sub(r"\.(?:mlp|feedforward|ff)$", ".ffn", re.sub(r"\.(?:attention|att)$", ".attn", name.lower()))
    likely = re.sub(r"^l(?=\d)", "L", re.sub(r"(?<=\d)[.]?([hm])(?=\d)", lambda found: found[1].upper(), likely))
    return f"Did you mean {likely}{colon}{rest}?" if likely != name and _is_place(likely) else None


def _is_place(text: str) -> bool:
    return bool(_PLACE.fullmatch(text) or _LAYER.fullmatch(text))


def parse_places(text: str) -> tuple[Place, ...]:
    """Read places separated by commas; an intervention also covers the places before it that have none.

    >>> [str(place) for place in parse_places("L1H1, L1H3:mean, L0")]
    ['L1H1:mean', 'L1H3:mean', 'L0.attn', 'L0.ffn']
    """
    if not text.strip():
        raise InputError(f"no place given. {_HOW}")
    places: list[Place] = []
    reaching_back: str | None = None
    parts = [part for each in text.split(",") for part in _spelt_out(each)]
    for part in reversed(parts):
        place = parse_place(part)
        reaching_back = place.stated or reaching_back
        places.append(place if place.intervention else _stated(place, reaching_back))
    return tuple(reversed(places))


def _spelt_out(text: str) -> list[str]:
    """A whole layer as its two sublayers; anything else as it is."""
    found = _LAYER.fullmatch(text.strip())
    if found is None:
        return [text]
    return [f"{found['layer']}.{sublayer}{found['intervention'] or ''}" for sublayer in ("attn", "ffn")]


def print_places(places: Iterable[Place]) -> str:
    """The places as one text in the grammar, which parse_places reads back.

    >>> print_places(parse_places("L1H1,L1H3:mean"))
    'L1H1:mean,L1H3:mean'
    """
    return ",".join(str(place) for place in places)


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
        raise InputError(f"no place given. {_HOW}")
    for place in given:
        _require_in_model(place, config)
    _require_distinct(given)
    return tuple(place if place.intervention else _stated(place, intervention) for place in given)


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
        several = range(config.n_heads) if place.kind is PlaceKind.ATTENTION else [place.index or 0]
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
        raise InputError(f"{place.label} is half a name: heads and memories have an index, sublayers none. {_HOW}")
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
