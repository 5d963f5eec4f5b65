"""The audit of a model: weights, one run taken apart layer by layer, and whole runs that must agree.

Cost: about twenty forward passes over a few short sequences, and the whole algebra once more in fp64 (twice, with its
sizes). One layer's activations and one layer's fp64 weights exist at a time. Seconds for a small model; a minute or two
for 135 million parameters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from interp.audit.layers import COPIES, LayerAudit
from interp.audit.outputs import check_attribution, check_lens, check_sums, placement_of
from interp.audit.places import all_there
from interp.audit.record import Audit, Ledger
from interp.audit.runs import RunAudit, check_dropout, differing
from interp.audit.weights import check_weights
from model.config import FFNKind, GPTConfig, Positions
from model.errors import InputError
from model.gpt import GPT
from model.sites import Tap, sites

LARGE = 20_000_000
"""Parameters from which on fewer and shorter sequences are drawn."""

_ALONE = "the share of numbers that are others when the layer is run alone"
_ROOM = 512
"""Positions that are run at a time."""


def audit(gpt: GPT, tokens: Int[Tensor, "batch pos"] | None = None, *, seed: int = 0) -> Audit:
    """Measure every identity that applies to this model, on its own weights; nothing about the model is changed.

    Args:
        gpt: any model, in whatever mode; what needs evaluation mode is measured in it.
        tokens: what to run; left out, a few sequences of random ids, as long as fits.
        seed: names everything that is drawn.
    """
    if not isinstance(gpt, GPT):
        tail = "give its model: .gpt" if hasattr(gpt, "gpt") else "give a GPT, or open one: open_run(...).gpt"
        raise InputError(f"audit measures a model, and this is a {type(gpt).__name__}; {tail}.")
    if tokens is not None:
        return audited(gpt, tokens, "given tokens", seed=seed, ledger=Ledger())
    drawn = torch.randint(gpt.config.d_vocab, sample_shape(gpt), generator=torch.Generator().manual_seed(seed))
    return audited(gpt, drawn, f"random ids, seed {seed}", seed=seed, ledger=Ledger())


def sample_shape(gpt: GPT) -> tuple[int, int]:
    """How many sequences of how many tokens an audit runs when nobody says."""
    rows, n_pos = (2, 24) if gpt.config.n_params > LARGE else (4, 32)
    return rows, min(n_pos, gpt.config.n_ctx)


@torch.no_grad()
def audited(gpt: GPT, tokens: Int[Tensor, "batch pos"], kind: str, *, seed: int, ledger: Ledger) -> Audit:
    """The report on a model, after what the ledger holds already; `kind` says what the tokens are."""
    began = time.monotonic()
    gpt.check_tokens(tokens)
    tokens, generator = tokens.to(gpt.device), torch.Generator().manual_seed(seed)
    check_weights(gpt, ledger)
    check_dropout(gpt, tokens, ledger)
    with _evaluating(gpt):
        for batch in tokens.split(max(_ROOM // tokens.shape[1], 1)):
            _check_places(gpt, batch, ledger, generator)
            RunAudit(gpt, batch, ledger, generator).run()
    return Audit(
        checks=ledger.checks(),
        subject=_subject(gpt),
        tokens=f"{_counted(len(tokens), 'sequence')} of {tokens.shape[1]} {kind}",
        seconds=time.monotonic() - began,
    )


def _check_places(gpt: GPT, tokens: Tensor, ledger: Ledger, generator: torch.Generator) -> None:
    """Everything that one run shows, a layer at a time."""
    if gpt.config.positions is not Positions.ROPE:
        ledger.skipped("rotation", f"positions={gpt.config.positions.value}: nothing is rotated")
    if gpt.config.ffn is FFNKind.NONE:
        for name in ("FFN input", "coefficients", "FFN output"):
            ledger.skipped(name, "attention-only: there is no FFN")
    if not (gpt.config.norm_names or gpt.config.has_final_norm):
        ledger.skipped("norms", f"norm={gpt.config.norm.value}: there is no norm")
    known = list(sites(gpt.config).values())
    streams = [Tap.RESID_PRE.at(layer) for layer in range(gpt.config.n_layers)]
    streams.append(Tap.RESID_POST.at(gpt.config.n_layers - 1))
    around = [*streams, *(site for site in known if site.layer is None)]
    with gpt.explicit_attention():
        logits, cache = gpt.run_with_cache(tokens, around)
    if not all_there(gpt.config, cache, around, tokens.shape, ledger):
        return
    written = []
    for layer, (before, after) in enumerate(pairwise(streams)):
        inside = [site for site in known if site.layer == layer and site.tap not in COPIES]
        _, held = gpt.run_with_cache(
            cache[before], inside, start_at_layer=layer, stop_at_layer=layer + 1, return_type=None
        )
        if not all_there(gpt.config, held, inside, tokens.shape, ledger):
            return
        moved = differing(held[Tap.RESID_POST.at(layer)], cache[after])
        ledger.measured("stream", moved, 0.0, where=f"L{layer}", unit=_ALONE)
        written.append(LayerAudit(gpt, layer, held, ledger).run())
    last = cache[streams[-1]]
    check_lens(gpt, cache, last, logits, ledger)
    check_attribution(gpt, tokens, check_sums(gpt, cache, written, last, ledger), logits, ledger, generator)


@contextmanager
def _evaluating(gpt: GPT) -> Iterator[None]:
    """Evaluation mode until the `with` ends; then every part has the mode it had."""
    modes = {module: module.training for module in gpt.modules()}
    gpt.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _subject(gpt: GPT) -> str:
    config = gpt.config
    number = str(gpt.dtype).removeprefix("torch.")
    return (
        f"{_counted(config.n_layers, 'layer')} x {_counted(config.n_heads, 'head')}, {_norms(config)}, "
        f"{_positions(config)}, {config.n_params:,} parameters, {number} on {gpt.device}"
    )


def _norms(config: GPTConfig) -> str:
    has_norm = bool(config.norm_names) or config.has_final_norm
    return f"{placement_of(config)} ({config.norm_kind.value})" if has_norm else placement_of(config)


def _positions(config: GPTConfig) -> str:
    return "no positions" if config.positions is Positions.NONE else f"{config.positions.value} positions"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
