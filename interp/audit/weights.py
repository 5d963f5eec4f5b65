"""What can be said of weights before anything runs: finite, as many as the config says, tied or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.audit.record import Ledger

if TYPE_CHECKING:
    from model.gpt import GPT


def check_weights(gpt: GPT, ledger: Ledger) -> None:
    """Finite weights, their number, and the tie."""
    named = dict(gpt.named_parameters())  # a matrix under two names counts once
    broken = {name: int((~weights.isfinite()).sum()) for name, weights in named.items()}
    n_broken, n_numbers = sum(broken.values()), sum(weights.numel() for weights in named.values())
    first = next((name for name, n in broken.items() if n), "")
    told = "Whatever they reach is no number either, and fails with them" if first else ""
    ledger.measured(
        "finite weights", float(n_broken), 0.0, where=first, unit="weights that are NaN or infinite", reason=told
    )
    ledger.measured(
        "parameters",
        float(abs(n_numbers - gpt.config.n_params)),
        0.0,
        unit="numbers too many or too few",
        reason=f"{n_numbers:,} in tensors, {gpt.config.n_params:,} by formula",
    )
    is_shared = gpt.embed.weight.untyped_storage().data_ptr() == gpt.unembed.weight.untyped_storage().data_ptr()
    says = "tied" if gpt.config.tie_embeddings else "untied"
    ledger.measured(
        "tied matrix",
        float(is_shared != gpt.config.tie_embeddings),
        0.0,
        reason=f"The config says {says}; W_E and W_U have {'one storage' if is_shared else 'storages of their own'}",
    )
