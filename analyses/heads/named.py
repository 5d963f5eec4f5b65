"""Heads of a set that bear a name: what may be ablated in place of a set that nothing can be compared with."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.attention.verdicts import Verdict
from analyses.claims.usual import matchable
from interp.places import Place, PlaceKind, print_places
from model.config import GPTConfig


def named_parts(verdicts: Sequence[Verdict], places: Sequence[Place], config: GPTConfig) -> dict[str, str]:
    """Smaller sets out of `places`, in the grammar, by the name that their heads bear; each has other sets beside it.

    Args:
        verdicts: of attention-patterns; a name is one that they support.
        places: the set; what is put there stays.
        config: the model's shape.
    """
    names = {verdict.label: verdict.name for verdict in verdicts if verdict.name}
    found: dict[str, list[Place]] = {}
    for place in places:
        if place.kind is PlaceKind.HEAD and place.label in names:
            found.setdefault(str(names[place.label]), []).append(place)
    return {
        name: print_places(tuple(part))
        for name, part in found.items()
        if len(part) < len(places) and matchable(part, config).n_sets
    }
