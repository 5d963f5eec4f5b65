"""Whether a run met the places that the config promises, in the shapes that docs/sites.md states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.audit.record import Ledger
from model.sites import Site

if TYPE_CHECKING:
    from model.config import GPTConfig
    from model.hooks import ActivationCache


def all_there(
    config: GPTConfig, cache: ActivationCache, wanted: Sequence[Site], shape: Sequence[int], ledger: Ledger
) -> bool:
    """Whether all places are in the cache in their shapes, for tokens of this shape; noted either way."""
    sizes = _sizes(config, *shape)
    wrong = []
    for site in wanted:
        expected = tuple(sizes[axis] for axis in site.tap.axes)
        if site not in cache:
            wrong.append(f"{site} is never met")
        elif tuple(cache[site].shape) != expected:
            wrong.append(f"{site} is {tuple(cache[site].shape)}, not {expected}")
    first = wrong[0] if wrong else ""
    unit = "places missing or in another shape"
    ledger.measured(
        "places",
        float(len(wrong)),
        0.0,
        where=first.split(" ")[0],
        unit=unit,
        reason=f"First, {first}" if wrong else "",
    )
    return not wrong


def _sizes(config: GPTConfig, n_batch: int, n_pos: int) -> dict[str, int]:
    """The length of every axis that docs/vocabulary.md names."""
    return {
        "batch": n_batch,
        "pos": n_pos,
        "query": n_pos,
        "key": n_pos,
        "one": 1,
        "head": config.n_heads,
        "kv_head": config.kv_heads,
        "d_head": config.head_width,
        "d_model": config.d_model,
        "memory": config.ffn_width,
        "d_vocab": config.d_vocab,
    }
