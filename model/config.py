"""What a GPT is made of: one frozen config, one enum for each real choice.

Everything derived (head width, parameter count, cost) follows from it by formula, so that two models can be compared
before either is built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, no_type_check

from model.errors import ConfigError, NotAdditiveError
from model.settings import as_enum, strict_keywords


class Norm(StrEnum):
    """Where the norms stand relative to the sublayers and the residual sum."""

    PRE = "pre"
    """x + f(N(x)), and a final norm (GPT-2; Xiong et al. 2020)."""
    POST = "post"
    """N(x + f(x)), no final norm (Vaswani et al. 2017)."""
    SANDWICH = "sandwich"
    """x + N(f(N(x))), and a final norm (CogView; Peri-LN, Kim et al. 2025)."""
    REORDERED = "reordered"
    """x + N(f(x)), and a final norm (OLMo 2)."""
    DEEPNORM = "deepnorm"
    """N(alpha x + f(x)) with down-scaled initial weights (Wang et al. 2022)."""
    SCALED = "scaled"
    """Pre-norm whose norm outputs are divided by the square root of the layer number (Sun et al. 2025)."""
    NONE = "none"
    """x + f(x): no norm anywhere."""


class NormKind(StrEnum):
    """What a norm does to a vector."""

    LAYERNORM = "layernorm"
    """Centre, divide by the standard deviation, gain (and bias where biases are on)."""
    RMSNORM = "rmsnorm"
    """Divide by the root mean square, gain."""


class Positions(StrEnum):
    """How a token's position reaches the model."""

    ROPE = "rope"
    """Queries and keys are rotated, half-split pairing (Su et al. 2021; Llama's layout)."""
    LEARNED = "learned"
    """A learned vector per position is added to the embedding (GPT-2)."""
    SINUSOIDAL = "sinusoidal"
    """Fixed sines and cosines are added to the embedding (Vaswani et al. 2017)."""
    ALIBI = "alibi"
    """A head-specific linear penalty on distance is added to the scores (Press et al. 2022)."""
    NONE = "none"
    """Only the causal mask tells positions apart."""


class FFNKind(StrEnum):
    """The feed-forward sublayer."""

    GELU = "gelu"
    """The exact (erf) GELU."""
    GELU_TANH = "gelu_tanh"
    """GPT-2's tanh approximation."""
    RELU = "relu"
    """ReLU: memories have a natural zero (Geva et al. 2021)."""
    SWIGLU = "swiglu"
    """silu(x W_gate) * (x W_in) (Shazeer 2020)."""
    NONE = "none"
    """No FFN: an attention-only model."""


class AttentionKind(StrEnum):
    """Which keys a query may see."""

    CAUSAL = "causal"
    BIDIRECTIONAL = "bidirectional"


class Init(StrEnum):
    """How weights are drawn."""

    GPT2 = "gpt2"
    """Normal with std 0.02; matrices that write to the stream are divided by sqrt(2 n_layers)."""
    XAVIER = "xavier"
    """Normal with variance 2 / (fan_in + fan_out), per whole matrix."""


PRE_NORM_READS = frozenset({Norm.PRE, Norm.SCALED, Norm.SANDWICH})
"""Placements whose sublayers read through a norm."""
OUTPUT_NORMS = frozenset({Norm.SANDWICH, Norm.REORDERED})
"""Placements that norm what a sublayer writes."""
SUM_NORMS = frozenset({Norm.POST, Norm.DEEPNORM})
"""Placements that norm the sum, so that the stream is no sum of writes."""


@strict_keywords
@no_type_check  # at run time enums may be given by their value; `__post_init__` checks every field itself
@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig:
    """A complete description of a GPT's architecture and of how it is initialised.

    Built from flat keywords, enums as members or by their value. What is left out follows from the rest:
    `d_head` = d_model / n_heads, `n_kv_heads` = n_heads, `d_ff` = 4 d_model.

    >>> GPTConfig(n_layers=2, n_heads=4, d_model=64, n_ctx=32, d_vocab=257, norm="post").d_head
    16
    """

    n_layers: int
    n_heads: int
    d_model: int
    n_ctx: int
    """The longest sequence the model takes, in tokens."""
    d_vocab: int
    n_kv_heads: int | None = None
    """Key-value heads, each shared by n_heads / n_kv_heads query heads."""
    d_head: int | None = None
    d_ff: int | None = None
    """Memories per layer."""
    norm: Norm = Norm.PRE
    norm_kind: NormKind = NormKind.RMSNORM
    norm_eps: float = 1e-5
    positions: Positions = Positions.ROPE
    rope_base: float = 10_000.0
    ffn: FFNKind = FFNKind.GELU
    attention: AttentionKind = AttentionKind.CAUSAL
    init: Init = Init.GPT2
    embed_std: float = 0.02
    """Standard deviation of the initial token (and learned position) embeddings."""
    biases: bool = False
    """Biases on every projection, and on LayerNorm."""
    qk_norm: bool = False
    """RMS-normalise each head's queries and keys before they are rotated."""
    dropout: float = 0.0
    tie_embeddings: bool = True
    """W_U is the transpose of W_E, stored once."""
    skip_connections: bool = True
    """Off only for studies of rank collapse (Dong et al. 2021)."""
    smeared_keys: bool = False
    """Each key is in part the key of the token before, by a learned share (Olsson et al. 2022; model/smearing.py)."""

    def __post_init__(self) -> None:
        for field, cls in _ENUMS.items():
            object.__setattr__(self, field, as_enum(cls, getattr(self, field), field))
        self._check_sizes()
        self._check_kinds()
        self._derive()
        self._check_choices()

    def _check_sizes(self) -> None:
        for field in ("n_layers", "n_heads", "d_model", "n_ctx", "d_vocab", "n_kv_heads", "d_head", "d_ff"):
            size = getattr(self, field)
            if size is None and field in _DERIVED:
                continue
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ConfigError(f"{field}={size!r} is not a size; give a whole number of at least 1.")

    def _check_kinds(self) -> None:
        for field in ("biases", "qk_norm", "tie_embeddings", "skip_connections", "smeared_keys"):
            if not isinstance(getattr(self, field), bool):
                raise ConfigError(f"{field}={getattr(self, field)!r} is neither true nor false.")
        for field in ("norm_eps", "rope_base", "embed_std", "dropout"):
            number = getattr(self, field)
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise ConfigError(f"{field}={number!r} is not a finite number.")

    def _derive(self) -> None:
        if self.d_head is None and self.d_model % self.n_heads:
            nearest = max(self.d_model // self.n_heads, 1) * self.n_heads
            raise ConfigError(
                f"d_model={self.d_model} does not divide into n_heads={self.n_heads} heads; "
                f"take d_model={nearest} or {nearest + self.n_heads}, or set d_head yourself."
            )
        derived = {"d_head": self.d_model // self.n_heads, "n_kv_heads": self.n_heads, "d_ff": 4 * self.d_model}
        for field, value in derived.items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, value)

    def _check_choices(self) -> None:
        if self.n_heads % self.kv_heads:
            raise ConfigError(
                f"n_heads={self.n_heads} cannot share n_kv_heads={self.kv_heads} evenly; take a divisor of n_heads."
            )
        if self.positions is Positions.ROPE and self.head_width % 2:
            raise ConfigError(
                f"d_head={self.d_head} is odd, and rope rotates pairs; take an even d_head or other positions."
            )
        if self.positions is Positions.SINUSOIDAL and self.d_model % 2:
            raise ConfigError(f"d_model={self.d_model} is odd, and sinusoidal positions come in pairs; make it even.")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} is not a share; give a number from 0 up to, not including, 1.")
        for field in ("norm_eps", "rope_base", "embed_std"):
            if not getattr(self, field) > 0:
                raise ConfigError(f"{field}={getattr(self, field)} must be a positive number.")

    def varied(self, **changes: Any) -> GPTConfig:
        """This config with some fields changed; sizes that followed from others follow again.

        >>> GPTConfig(n_layers=2, n_heads=4, d_model=64, n_ctx=32, d_vocab=257).varied(d_model=128).d_ff
        512
        """
        follows = {"d_head": self.d_model / self.n_heads, "n_kv_heads": self.n_heads, "d_ff": 4 * self.d_model}
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        kept |= {field: None for field, value in follows.items() if kept[field] == value}
        return GPTConfig(**(kept | changes))

    __replace__ = varied

    # The three derived sizes are ints once constructed; these spell that for the type checker.

    @property
    def head_width(self) -> int:
        """d_head, as a plain int."""
        return _known(self.d_head)

    @property
    def kv_heads(self) -> int:
        """n_kv_heads, as a plain int."""
        return _known(self.n_kv_heads)

    @property
    def ffn_width(self) -> int:
        """d_ff, as a plain int; 0 for an attention-only model."""
        return 0 if self.ffn is FFNKind.NONE else _known(self.d_ff)

    @property
    def additive_stream(self) -> bool:
        """Whether the final stream is the embedding plus what the sublayers wrote."""
        return self.norm not in SUM_NORMS and self.skip_connections

    @property
    def additive_heads(self) -> bool:
        """Whether, in addition, each head's result enters the stream as it is (no output norm mixes them)."""
        return self.additive_stream and self.norm not in OUTPUT_NORMS

    def require_additive_stream(self, what: str) -> None:
        """Refuse `what` for a model whose stream is not a sum."""
        if not self.additive_stream:
            reason = f"norm={self.norm.value}" if self.skip_connections else "skip_connections=false"
            raise NotAdditiveError(
                f"{what} needs a residual stream that is a sum of what was written to it; with {reason} it is not "
                "(docs/vocabulary.md, additivity). Use a pre, scaled, sandwich, reordered or none placement."
            )

    @property
    def n_params(self) -> int:
        """Trained numbers, the tied matrix counted once: agrees exactly with the tensors."""
        embeddings = self.d_vocab * self.d_model * (1 if self.tie_embeddings else 2)
        positions = self.n_ctx * self.d_model if self.positions is Positions.LEARNED else 0
        return embeddings + positions + self.n_params_non_embedding

    @property
    def n_params_non_embedding(self) -> int:
        """Trained numbers of the blocks and norms."""
        norm_width = self.d_model * (2 if self.norm_kind is NormKind.LAYERNORM and self.biases else 1)
        n_norms = self.n_layers * len(self.norm_names) + (1 if self.has_final_norm else 0)
        return self.n_layers * self._block_params() + n_norms * norm_width

    def _block_params(self) -> int:
        query, key_value = self.n_heads * self.head_width, self.kv_heads * self.head_width
        weights = self._block_matrix_params()
        biases = query + 2 * key_value + self.d_model
        if self.ffn is not FFNKind.NONE:
            biases += self.ffn_width * (2 if self.ffn is FFNKind.SWIGLU else 1) + self.d_model
        gains = 2 * self.head_width if self.qk_norm else 0
        shares = self.kv_heads if self.smeared_keys else 0
        return weights + (biases if self.biases else 0) + gains + shares

    def _block_matrix_params(self) -> int:
        query, key_value = self.n_heads * self.head_width, self.kv_heads * self.head_width
        ffn_matrices = 3 if self.ffn is FFNKind.SWIGLU else 2
        return self.d_model * (2 * query + 2 * key_value + ffn_matrices * self.ffn_width)

    @property
    def norm_names(self) -> tuple[str, ...]:
        """The norms of one block, by attribute name."""
        halves = (1,) if self.ffn is FFNKind.NONE else (1, 2)
        before_or_on_sum = self.norm in PRE_NORM_READS or self.norm in SUM_NORMS
        names = []
        for half in halves:
            names += [f"ln{half}"] if before_or_on_sum else []
            names += [f"ln{half}_post"] if self.norm in OUTPUT_NORMS else []
        return tuple(names)

    @property
    def has_final_norm(self) -> bool:
        """Whether ln_final stands before the unembedding."""
        return self.norm not in SUM_NORMS and self.norm is not Norm.NONE

    def flops_per_token(self, n_pos: int | None = None) -> int:
        """Matrix-multiply FLOPs of a forward pass per token, at sequence length `n_pos` (default n_ctx).

        Two per weight used, and 4 n_pos n_heads d_head per layer for scores and values, counted over the full square as
        the explicit path computes it. Training costs three times as much.
        """
        n_pos = self.n_ctx if n_pos is None else n_pos
        attention = 4 * n_pos * self.n_heads * self.head_width
        return self.n_layers * (2 * self._block_matrix_params() + attention) + 2 * self.d_vocab * self.d_model


_DERIVED = ("n_kv_heads", "d_head", "d_ff")
_ENUMS: dict[str, Any] = {
    "norm": Norm,
    "norm_kind": NormKind,
    "positions": Positions,
    "ffn": FFNKind,
    "attention": AttentionKind,
    "init": Init,
}


def _known(size: int | None) -> int:
    if size is None:
        raise RuntimeError("derived sizes are set in __post_init__")
    return size
