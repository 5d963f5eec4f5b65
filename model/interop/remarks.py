"""What there is to say about every imported model, whatever its format: odd numbers, and ids without a token."""

from __future__ import annotations

from model.checkpoint import stored_weights
from model.gpt import GPT
from model.imported_tokenizer import ImportedTokenizer
from model.tokenizer import Tokenizer

_NAMED = 5
"""How many tensors a sentence names before it counts the rest."""


def remarks_on(gpt: GPT, tokenizer: Tokenizer | None) -> tuple[str, ...]:
    """Sentences for the notes of an import; mostly none."""
    return (*_on_numbers(gpt), *on_padding(tokenizer))


def on_padding(tokenizer: Tokenizer | None) -> tuple[str, ...]:
    """That a vocabulary was padded: the model has ids that the tokenizer has no token for."""
    n = len(tokenizer.ids_without_token) if isinstance(tokenizer, ImportedTokenizer) else 0
    if tokenizer is None or not n:
        return ()
    ids, stand = ("id", "stands") if n == 1 else ("ids", "stand")
    return (
        f"The model has {tokenizer.d_vocab} ids and the tokenizer {tokenizer.d_vocab - n} tokens: {n} {ids} {stand} "
        "for no token (a padded vocabulary), and the model may still predict them.",
    )


def _on_numbers(gpt: GPT) -> tuple[str, ...]:
    """Which weights are not numbers, and how many of each."""
    counts = {name: int((~weights.isfinite()).sum()) for name, weights in stored_weights(gpt).items()}
    odd = [f"{name} ({n} of {gpt.get_parameter(name).numel()})" for name, n in counts.items() if n]
    if not odd:
        return ()
    more = f" and {len(odd) - _NAMED} more tensors" if len(odd) > _NAMED else ""
    return (
        f"Some weights are NaN or infinite, as stored: {', '.join(odd[:_NAMED])}{more}. "
        "What is computed with them is no number either.",
    )
