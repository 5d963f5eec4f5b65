"""From the last stream to the logits: what was written adds up, the lens of the last layer, direct attribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attribution import logit_attribution
from interp.audit.layers import ROUNDED, Written
from interp.audit.quantity import Quantity, exact, rounding
from interp.audit.record import Ledger
from interp.audit.reference import normed
from model.config import OUTPUT_NORMS, GPTConfig, Norm
from model.sites import Tap

if TYPE_CHECKING:
    from model.gpt import GPT
    from model.hooks import ActivationCache

_CHUNK = 8192
"""Columns of W_U that are converted to fp64 at a time."""


def check_sums(
    gpt: GPT,
    cache: ActivationCache,
    written: Sequence[Written],
    last: Float[Tensor, "batch pos d_model"],
    ledger: Ledger,
) -> Quantity:
    """The last stream as the sum of what was written to it; its size, for what is computed from it."""
    config = gpt.config
    if not config.additive_stream:
        reason = f"{placement_of(config)}: not additive; the sums through its norms are checked under stream"
        for name in ("additive stream", "additive heads", "attribution"):
            ledger.skipped(name, reason)
        return Quantity.of(last)
    begin = Quantity.of(cache[Tap.EMBED.at()])
    if Tap.POS_EMBED.at() in cache:
        begin = begin + Quantity.of(cache[Tap.POS_EMBED.at()])
    ffns = [layer.mlp_out for layer in written if layer.mlp_out is not None]
    whole = sum_of([begin, *(layer.attn_out for layer in written), *ffns])
    n_sums = 2 * (len(written) + 1)
    ledger.measured("additive stream", whole.error(last), rounding(gpt.dtype, n_sums, n_stored=n_sums), unit=ROUNDED)
    if config.norm in OUTPUT_NORMS:
        ledger.skipped(
            "additive heads",
            f"{placement_of(config)}: an output norm stands between the heads and the stream; they add up before it "
            "(attention output), and to the logits with its scale held (attribution)",
        )
        return Quantity(exact(last), whole.size)
    heads = sum_of([begin, *(layer.results for layer in written), *ffns])
    n_terms = config.n_heads * config.head_width * config.n_layers
    ledger.measured(
        "additive heads", heads.error(last), rounding(gpt.dtype, n_terms, n_stored=2 * n_sums), unit=ROUNDED
    )
    return Quantity(exact(last), heads.size)


def check_lens(
    gpt: GPT,
    cache: ActivationCache,
    last: Float[Tensor, "batch pos d_model"],
    logits: Float[Tensor, "batch pos d_vocab"],
    ledger: Ledger,
) -> None:
    """The last stream through the final norm and W_U gives the logits, and so does the lens that users call."""
    read, lens = _final(gpt, Quantity.of(last), ledger, cache), gpt.unembed_stream(last)
    tolerance = rounding(gpt.dtype, 2 * gpt.config.d_model)
    for start in range(0, gpt.config.d_vocab, _CHUNK):
        part = slice(start, start + _CHUNK)
        expected = read.through(gpt.unembed.weight[part], None)
        for found in (logits, lens):
            ledger.measured("last lens", expected.error(found[..., part]), tolerance, unit=ROUNDED)


def check_attribution(
    gpt: GPT,
    tokens: Int[Tensor, "batch pos"],
    last: Quantity,
    logits: Float[Tensor, "batch pos d_vocab"],
    ledger: Ledger,
    generator: torch.Generator,
) -> None:
    """Parts of the logits of the likeliest and of random tokens, summed, are those logits."""
    if not gpt.config.additive_stream:
        return
    read = _final(gpt, last)
    config = gpt.config
    drawn = torch.randint(config.d_vocab, tokens.shape, generator=generator).to(tokens.device)
    n_parts = config.n_layers * (config.n_heads + 3) + 3
    tolerance = rounding(gpt.dtype, 3 * config.d_model + n_parts, n_stored=2 * config.n_layers + 6)
    for targets in (logits.argmax(-1), drawn):
        with gpt.explicit_attention():  # the path on which the logits were made
            found = logit_attribution(gpt, tokens, targets).total
        towards = exact(gpt.unembed.weight[targets])
        size = (read.size * towards.abs()).sum(-1)
        chosen = logits.gather(-1, targets[..., None])[..., 0]
        ledger.measured("attribution", Quantity(exact(chosen), size).error(found), tolerance, unit=ROUNDED)


def _final(gpt: GPT, last: Quantity, ledger: Ledger | None = None, cache: ActivationCache | None = None) -> Quantity:
    """What W_U reads; the final norm is checked on the way where a ledger is given."""
    if gpt.ln_final is None:
        return last
    expected = normed(last, gpt.ln_final, gpt.config)
    if ledger is not None and cache is not None:
        inner = torch.promote_types(gpt.dtype, torch.float32)
        for quantity, tap, dtype in (
            (expected.scale, Tap.LN_FINAL_SCALE, inner),
            (expected.normalized, Tap.LN_FINAL_NORMALIZED, inner),
            (expected.out, Tap.LN_FINAL_OUT, gpt.dtype),
        ):
            tolerance = rounding(dtype, gpt.config.d_model)
            ledger.measured("norms", quantity.error(cache[tap.at()]), tolerance, where="ln_final", unit=ROUNDED)
    return expected.out


def sum_of(parts: Sequence[Quantity]) -> Quantity:
    """All of them added."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def placement_of(config: GPTConfig) -> str:
    """Where norms stand and streams add up, in words."""
    if not config.skip_connections:
        return "without skip connections"
    words = {Norm.NONE: "no norm", Norm.DEEPNORM: "DeepNorm", Norm.SCALED: "scaled pre-norm"}
    return words.get(config.norm, f"{config.norm.value}-norm")
