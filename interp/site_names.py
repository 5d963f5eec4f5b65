"""The ways to say where: a hook name, a site, or the short form that caches take; and sentences for what is none.

    blocks.0.attn.hook_z    Tap.Z.at(0)    ("z", 0)    "embed"

A layer counts from the end, ("z", -1), only where the model is known: when recording and averaging.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from model.errors import UnknownSiteError
from model.hooks import hook_name
from model.sites import Site, Tap, resolve, site_named

Where = str | Site | Tap | tuple[Any, ...]
"""One place, in any of the ways; a tap only where it has no layer."""

_PLACE = re.compile(r"L(?P<layer>\d+)(?:H(?P<head>\d+)|M(?P<memory>\d+)|\.(?P<sublayer>attn|ffn))?(?::.*)?")


def as_site(where: Where, n_layers: int | None = None) -> Site:
    """The place that is meant, in whatever model has it; -1 is the last of `n_layers`.

    >>> as_site(("z", 0)) == as_site("blocks.0.attn.hook_z") == Tap.Z.at(0)
    True
    """
    if isinstance(where, Tap):
        where = _without_layer(where)
    if isinstance(where, Site):
        return _counted(where, n_layers)
    if isinstance(where, tuple):
        return site_named(hook_name(where, n_layers))
    if not isinstance(where, str):
        raise UnknownSiteError(
            f'{where!r} is no place; give a hook name, a short form such as ("z", 0), or Tap.Z.at(0).'
        )
    _refuse_near_misses(where)
    return site_named(hook_name(where, n_layers))


def names_in(
    wanted: Where | Sequence[Where] | Callable[[str], bool], known: dict[str, Site], n_layers: int
) -> list[str]:
    """The hook names that are meant, in a model with the places `known`, in forward order."""
    if callable(wanted):
        return resolve(wanted, known, n_layers)
    if isinstance(wanted, str | Site | Tap) or _is_short(wanted):
        return resolve(as_site(wanted, n_layers), known, n_layers)
    return resolve([as_site(each, n_layers) for each in wanted], known, n_layers)


def _is_short(wanted: Any) -> TypeGuard[tuple[Any, ...]]:
    """A tuple with a layer in it is one place; one of names is several."""
    return isinstance(wanted, tuple) and any(isinstance(part, int) for part in wanted)


def _without_layer(tap: Tap) -> Site:
    if tap.per_layer:
        raise UnknownSiteError(f"Tap.{tap.name} is a kind of place, one in each layer; write Tap.{tap.name}.at(layer).")
    return tap.at()


def _counted(site: Site, n_layers: int | None) -> Site:
    """A site whose layer counts from the start."""
    if site.layer is None or site.layer >= 0:
        return site
    if n_layers is None:
        raise UnknownSiteError(
            f"layer {site.layer} counts from the end of a model, and none is known here; name the layer."
        )
    if site.layer < -n_layers:
        raise UnknownSiteError(f"there is no layer {site.layer}: this model has layers -{n_layers} to {n_layers - 1}.")
    return site.tap.at(site.layer + n_layers)


def _refuse_near_misses(name: str) -> None:
    """A component of the ablation grammar, and the short form of a place that every layer has."""
    component = _PLACE.fullmatch(name)
    if component is not None:
        tap = Tap.MLP_POST if component["memory"] or component["sublayer"] == "ffn" else Tap.Z
        index = component["head"] or component["memory"]
        which = "" if index is None else f", components={index}"
        label = name.partition(":")[0]
        raise UnknownSiteError(
            f'"{name}" names a component and not a hook; use interp.ablation.ablated(gpt, "{label}:zero"),'
            f" or give the hook: ({_short(tap)!r}, {component['layer']}){which}."
        )
    if any(tap.per_layer and _short(tap) == name for tap in Tap):
        raise UnknownSiteError(f'every layer has its own "{name}"; say which, as ("{name}", 0).')


def _short(tap: Tap) -> str:
    return tap.template.rpartition("hook_")[2]
