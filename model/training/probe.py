"""What a run is asked at the steps it is looked at: three fixed batches that training never sees.

Held-out text gives the loss that counts (nats per token, bits per byte). Fresh random tokens shown twice, at a period
that training does not use, give the copy loss, which falls only when the model has learned to copy whatever the
distance (Olsson et al. 2022). A small probe batch gives the size of the residual stream at every depth and of the
gradient that flows back through it (Xiong et al. 2020): their course over training is what the norm's placement
shapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from model.gpt import GPT
from model.tokenizer import Tokenizer
from model.training.config import RunConfig
from model.training.eval_rows import EvalRows

COPY_SEED = 0x5EED
"""Draws the fresh repeated tokens; the same in every run, so that runs can be compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """The fixed batches of one run, on its device."""

    held_out: Int[Tensor, "row pos"]
    """Rows that training never shows: text, or repeats where the run trains on no text."""
    n_bytes: int
    """Bytes of the text tokens that are predicted; 0 where the rows are no text."""
    repeated: Int[Tensor, "repeated_row repeated_pos"] | None
    """Random tokens shown twice, behind a BOS where there is one; None where no period is free for it."""
    period: int | None
    has_bos: bool
    stream: Int[Tensor, "stream_row pos"]
    """The batch on which the residual stream is read."""
    rows_at_once: int

    def losses(self, gpt: GPT) -> dict[str, float]:
        """Held-out losses in nats per token, and the text loss in bits per byte."""
        nats = self._per_token(gpt, self.held_out)
        row = {"eval_loss": nats.mean().item()}
        if self.n_bytes:
            row["bits_per_byte"] = nats.sum().item() / (self.n_bytes * math.log(2))
        if self.repeated is not None and self.period is not None:
            nats = self._per_token(gpt, self.repeated)
            # Entry i predicts token i + 1. The second copy's first token does not count: when it comes cannot be known.
            second = self.period + int(self.has_bos)
            row["copy_loss"] = nats[:, second:].mean().item()
            row["first_copy_loss"] = nats[:, : second - 1].mean().item()
        return row

    def stream_norms(self, gpt: GPT) -> dict[str, dict[str, float]]:
        """The stream at every residual site, and the gradient there of the probe's loss in nats per predicted token.

        `resid_norms` are root mean squares: over rows, positions and components, BOS included; the size of one number
        of the stream, whatever the model's width. `resid_grad_norms` are Frobenius norms: the root of the *sum* of
        squares over all of the same [row, pos, d_model], so they depend on the number of rows and on the width, and
        compare only between runs that have both in common.
        """
        last = f"blocks.{gpt.config.n_layers - 1}.hook_resid_post"
        sites = [
            name for name in gpt.named_sites() if name.endswith(("hook_resid_pre", "hook_resid_mid")) or name == last
        ]
        _, cache = gpt.run_with_cache(self.stream, names_filter=sites, incl_bwd=True, return_type="loss")
        norms = {site: cache[site].double().square().mean().sqrt() for site in sites}
        gradient_norms = {site: cache[f"{site}_grad"].double().norm() for site in sites}
        return {"resid_norms": as_numbers(norms), "resid_grad_norms": as_numbers(gradient_norms)}

    @torch.no_grad()
    def _per_token(self, gpt: GPT, tokens: Int[Tensor, "row pos"]) -> Tensor:
        chunks = tokens.split(self.rows_at_once)
        return torch.cat([gpt.loss(chunk, per_token=True) for chunk in chunks]).double()


def as_numbers(tensors: dict[str, Tensor]) -> dict[str, float]:
    """One number per scalar tensor, fetched from the device together."""
    return dict(zip(tensors, torch.stack(list(tensors.values())).tolist(), strict=True)) if tensors else {}


def build_probe(config: RunConfig, tokenizer: Tokenizer, rows: EvalRows, device: torch.device) -> Probe:
    """The probe of a run, from its held-out `rows`."""
    train, period = config.train, config.copy_period
    held_out = spread(rows.tokens, train.eval_sequences)
    repeated = None if period is None else repeated_rows(train.eval_sequences, period, tokenizer).to(device)
    return Probe(
        held_out=held_out.to(device),
        n_bytes=tokenizer.n_bytes(held_out[:, 1:]) if bool((rows.offsets >= 0).all()) else 0,
        repeated=repeated,
        period=period,
        has_bos=tokenizer.bos is not None,
        stream=spread(rows.tokens, train.probe_sequences).to(device),
        rows_at_once=train.batch_size // train.accumulate,
    )


def spread(rows: Int[Tensor, "row pos"], n_rows: int) -> Int[Tensor, "some_row pos"]:
    """Up to `n_rows` of the rows, evenly spread: neighbours are of the same document."""
    return rows[torch.linspace(0, len(rows) - 1, min(n_rows, len(rows))).round().long()]


def repeated_rows(n_rows: int, period: int, tokenizer: Tokenizer) -> Int[Tensor, "row pos"]:
    """Rows of `period` random ordinary tokens shown twice, behind a BOS where there is one.

    Within a row no token comes twice where the vocabulary allows it: what comes next is then wholly determined.
    """
    ordinary = torch.tensor([token for token in range(tokenizer.d_vocab) if token != tokenizer.bos])
    generator = torch.Generator().manual_seed(COPY_SEED)
    if period <= len(ordinary):
        picks = [torch.randperm(len(ordinary), generator=generator)[:period] for _ in range(n_rows)]
    else:
        picks = [torch.randint(len(ordinary), (period,), generator=generator) for _ in range(n_rows)]
    segment = ordinary[torch.stack(picks)]
    bos = [] if tokenizer.bos is None else [torch.full((n_rows, 1), tokenizer.bos)]
    return torch.cat([*bos, segment, segment], dim=1)
