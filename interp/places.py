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
from model.errors import InputError
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
    def number(self) -> int:
        """Which head or memory of its layer it is.

        Raises:
            InputError: a whole sublayer, which has no number.
        """
        if self.index is None:
            raise InputError(f"{self.label} has no number; name one head or memory of it, such as L1H3 or L1M37.")
        return self.index

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
    return stating(Place(kind=PlaceKind.HEAD, layer=layer, index=index), intervention)


def memory(layer: int, index: int, intervention: Intervention | str | None = None) -> Place:
    """The place of one FFN memory.

    >>> str(memory(1, 37, "set=2.5"))
    'L1M37:set=2.5'
    """
    return stating(Place(kind=PlaceKind.MEMORY, layer=layer, index=index), intervention)


def stating(place: Place, intervention: Intervention | str | None) -> Place:
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
HOW = (
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
        raise InputError(f'"{text.strip()}" is not a place. {_meant(text.strip()) or HOW}')
    layer = int(found["layer"])
    if found["sublayer"]:
        return stating(Place(kind=PlaceKind(found["sublayer"]), layer=layer), found["intervention"])
    kind = PlaceKind.HEAD if found["head"] else PlaceKind.MEMORY
    return stating(Place(kind=kind, layer=layer, index=int(found["head"] or found["memory"])), found["intervention"])


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
        raise InputError(f"no place given. {HOW}")
    places: list[Place] = []
    reaching_back: str | None = None
    parts = [part for each in text.split(",") for part in _spelt_out(each)]
    for part in reversed(parts):
        place = parse_place(part)
        reaching_back = place.stated or reaching_back
        places.append(place if place.intervention else stating(place, reaching_back))
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
