"""Multi-head attention whose every quantity can be read and edited.

    q, k, v = x W_Q, x W_K, x W_V       scores = q k^T / sqrt(d_head) (+ ALiBi), -inf where masked
    pattern = softmax(scores)           z = pattern v           out = sum over heads of z W_O + b_O

Keys may be smeared, for studies: see model/smearing.py.

Torch's fused kernel computes z unless somebody watches the scores or the pattern of this layer; then the *explicit
path* forms them. Both agree to 1e-5 in fp32, and an effect should always be the difference of two runs on the same
path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from model.config import GPTConfig
from model.errors import InputError
from model.hooks import Call, HookPoint
from model.kv_cache import KeyValueCache
from model.norms import NormLayer
from model.positions import Rotation
from model.sites import Tap
from model.smearing import smeared

Heads = Float[Tensor, "batch pos head d_head"]
KeyValueHeads = Float[Tensor, "batch pos kv_head d_head"]
Stream = Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True, slots=True)
class Pass:
    """What all layers share in one forward pass."""

    positions: Int[Tensor, "batch pos"]
    call: Call | None = None
    rotation: Rotation | None = None
    mask: Bool[Tensor, "batch one query key"] | None = None
    """Which keys each query may see; None: nothing is padded, and the queries are the last of the keys."""
    causal: bool = True
    bias: Float[Tensor, "batch head query key"] | None = None
    kv_cache: KeyValueCache | None = None
    explicit: bool = False
    before: Int[Tensor, "one_or_batch pos_and_next"] | None = None
    """Which token precedes each, for smeared keys (`model.smearing.predecessors`)."""

    def visible(self, n_query: int, n_key: int) -> Bool[Tensor, "batch one query key"] | None:
        """The mask as a tensor; None where every key is visible, as to the last query."""
        if self.mask is not None or not self.causal or n_query == 1:
            return self.mask
        square = torch.ones(n_query, n_key, dtype=torch.bool, device=self.positions.device)
        return square.tril(n_key - n_query)[None, None]


class Attention(nn.Module):
    """The attention sublayer: reads the stream through `norm`, returns what its heads write."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.n_heads, self.n_kv_heads, self.d_head = config.n_heads, config.kv_heads, config.head_width
        self.dropout = config.dropout
        self.norm_eps = config.norm_eps
        query, key_value = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
        self.q_proj = Linear(config.d_model, query, bias=config.biases)
        self.k_proj = Linear(config.d_model, key_value, bias=config.biases)
        self.v_proj = Linear(config.d_model, key_value, bias=config.biases)
        self.o_proj = Linear(query, config.d_model, bias=config.biases)
        self.q_gain = nn.Parameter(torch.ones(self.d_head)) if config.qk_norm else None
        self.k_gain = nn.Parameter(torch.ones(self.d_head)) if config.qk_norm else None
        self.k_smear = nn.Parameter(torch.zeros(self.n_kv_heads)) if config.smeared_keys else None
        for tap in _TAPS:
            setattr(self, tap.template.rpartition(".")[2], HookPoint(tap.at(layer)))

    hook_attn_in: HookPoint
    hook_q_input: HookPoint
    hook_k_input: HookPoint
    hook_v_input: HookPoint
    hook_q: HookPoint
    hook_k: HookPoint
    hook_v: HookPoint
    hook_rot_q: HookPoint
    hook_rot_k: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_z: HookPoint
    hook_result: HookPoint

    def forward(self, x: Stream, norm: Callable[[Tensor, Call | None], Tensor], run: Pass) -> Stream:
        """What the heads write, for a stream `x` that they read through `norm`."""
        q, k, v = self._read(x, norm, run)
        if run.rotation is not None:
            q = self.hook_rot_q(run.rotation(q), run.call)
            k = self.hook_rot_k(run.rotation(k), run.call)
        if run.kv_cache is not None:
            k, v = run.kv_cache.extend(self.layer, k, v)
        attend = self._attend_explicitly if self._needs_pattern(run) else self._attend_fused
        return self.written(attend(q, self._grouped(k), self._grouped(v), run), run)

    def written(self, z: Heads, run: Pass) -> Stream:
        """What the heads write, from what they hold before W_O."""
        return self._write(self.hook_z(z, run.call), run.call)

    # --- reading the stream -------------------------------------------------------------------------------------------

    def _read(
        self, x: Stream, norm: Callable[[Tensor, Call | None], Tensor], run: Pass
    ) -> tuple[Heads, KeyValueHeads, KeyValueHeads]:
        """Queries, keys and values, from the shared normed stream or from each head's own edited copy of it."""
        call = run.call
        shared = norm(x, call)
        per_head = _own_copies(self.hook_attn_in, x, None, self.n_heads, call)
        grouped = None if per_head is None else per_head.unflatten(2, (self.n_kv_heads, -1)).mean(3)
        # Under grouped heads a key belongs to several heads: it reads the mean of their copies of the stream.
        own_q = _own_copies(self.hook_q_input, x, per_head, self.n_heads, call)
        own_k = _own_copies(self.hook_k_input, x, grouped, self.n_kv_heads, call)
        own_v = _own_copies(self.hook_v_input, x, grouped, self.n_kv_heads, call)
        if own_q is not None or own_k is not None or own_v is not None:
            self._refuse_edited_norm(norm, call)
        q = _projected(self.q_proj, shared if own_q is None else norm(own_q, None), self.n_heads)
        k = _projected(self.k_proj, shared if own_k is None else norm(own_k, None), self.n_kv_heads)
        v = _projected(self.v_proj, shared if own_v is None else norm(own_v, None), self.n_kv_heads)
        if self.q_gain is not None and self.k_gain is not None:
            q = F.rms_norm(q, self.q_gain.shape, self.q_gain, self.norm_eps)
            k = F.rms_norm(k, self.k_gain.shape, self.k_gain, self.norm_eps)
        return self.hook_q(q, call), self.hook_k(self._smeared(k, run), call), self.hook_v(v, call)

    def _smeared(self, keys: KeyValueHeads, run: Pass) -> KeyValueHeads:
        """Keys mixed with those of the tokens before them, where the model smears."""
        if self.k_smear is None or run.before is None:
            return keys
        past = None if run.kv_cache is None else run.kv_cache.last_key(self.layer)
        mixed, last = smeared(keys, self.k_smear, run.before, past)
        if run.kv_cache is not None:
            run.kv_cache.keep_last_key(self.layer, last)
        return mixed

    def _refuse_edited_norm(self, norm: Callable[[Tensor, Call | None], Tensor], call: Call | None) -> None:
        """Per-head inputs are normed one by one, past the shared norm: an edit of that norm would be lost, silently."""
        edited = [name for name in _NORM_TAPS if call is not None and call.changes(name.format(self.layer))]
        if edited and isinstance(norm, NormLayer):
            raise InputError(
                f"{edited[0].format(self.layer)} and the per-head inputs of layer {self.layer} cannot be edited, or "
                "differentiated, in one run; take two."
            )

    def _grouped(self, heads: Tensor) -> Tensor:
        """Key-value heads repeated for the query heads that share them: [batch, key, head, d_head]."""
        return (
            heads.repeat_interleave(self.n_heads // self.n_kv_heads, dim=2) if self.n_kv_heads < self.n_heads else heads
        )

    # --- attending ----------------------------------------------------------------------------------------------------

    def _needs_pattern(self, run: Pass) -> bool:
        return run.explicit or self.hook_attn_scores.wanted(run.call) or self.hook_pattern.wanted(run.call)

    def _attend_fused(self, q: Heads, k: Tensor, v: Tensor, run: Pass) -> Heads:
        q, k, v = (heads.transpose(1, 2) for heads in (q, k, v))  # [batch, head, pos, d_head]
        n_query, n_key = q.shape[-2], k.shape[-2]
        dropout = self.dropout if self.training else 0.0
        if run.mask is None and run.bias is None and n_query in (1, n_key):
            z = F.scaled_dot_product_attention(q, k, v, is_causal=run.causal and n_query > 1, dropout_p=dropout)
            return z.transpose(1, 2)
        visible = run.visible(n_query, n_key)
        blind = None if run.mask is None else ~run.mask.any(-1, keepdim=True)
        if visible is not None and blind is not None:
            visible = visible | blind  # a query that sees nothing attends anywhere, and its z is zeroed below
        mask = visible if run.bias is None else _masked(run.bias, visible, -math.inf).to(q.dtype)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return (z if blind is None else z.masked_fill(blind, 0)).transpose(1, 2)

    def _attend_explicitly(self, q: Heads, k: Tensor, v: Tensor, run: Pass) -> Heads:
        exact = torch.promote_types(q.dtype, torch.float32)
        scores = torch.einsum("bqhe,bkhe->bhqk", q.to(exact), k.to(exact)) / math.sqrt(self.d_head)
        if run.bias is not None:
            scores = scores + run.bias
        scores = _masked(scores, run.visible(q.shape[1], k.shape[1]), -math.inf)
        scores = self.hook_attn_scores(scores, run.call)
        pattern = self.hook_pattern(self._softmax(scores, run), run.call)
        if self.dropout:
            pattern = F.dropout(pattern, self.dropout, self.training)
        return torch.einsum("bhqk,bkhe->bqhe", pattern.to(v.dtype), v)

    def _softmax(self, scores: Tensor, run: Pass) -> Tensor:
        """Rows sum to 1; a row that is masked as a whole is 0."""
        edited = run.call is not None and self.hook_attn_scores.name in run.call.edits
        if run.mask is None and not edited:
            return scores.softmax(-1)
        blind = scores.isneginf().all(-1, keepdim=True)
        return scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, z: Heads, call: Call | None) -> Stream:
        if self.hook_result.wanted(call):
            result = torch.einsum("bphe,hed->bphd", z, self._output_by_head())
            edited = self.hook_result.beside(result, call)
            if edited is not None:
                out = edited.sum(2)
                return out if self.o_proj.bias is None else out + self.o_proj.bias
        return self.o_proj(z.flatten(2))

    def _output_by_head(self) -> Float[Tensor, "head d_head d_model"]:
        return self.o_proj.weight.unflatten(1, (self.n_heads, self.d_head)).permute(1, 2, 0)

    # --- writable views of the weights --------------------------------------------------------------------------------

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Query weights; writing into the view changes the model."""
        return _by_head(self.q_proj.weight.detach(), self.n_heads)

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Key weights; writing into the view changes the model."""
        return _by_head(self.k_proj.weight.detach(), self.n_kv_heads)

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Value weights; writing into the view changes the model."""
        return _by_head(self.v_proj.weight.detach(), self.n_kv_heads)

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """Output weights; writing into the view changes the model."""
        return self._output_by_head().detach()


_NORM_TAPS = tuple(tap.template for tap in (Tap.LN1_SCALE, Tap.LN1_NORMALIZED, Tap.LN1_OUT))
_TAPS = (
    *(Tap.ATTN_IN, Tap.Q_INPUT, Tap.K_INPUT, Tap.V_INPUT, Tap.Q, Tap.K, Tap.V, Tap.ROT_Q, Tap.ROT_K),
    *(Tap.ATTN_SCORES, Tap.PATTERN, Tap.Z, Tap.RESULT),
)


class Linear(nn.Linear):
    """A linear map whose weights wait for `init_weights`."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


def _by_head(weight: Float[Tensor, "head_x_d_head d_model"], n_heads: int) -> Float[Tensor, "head d_model d_head"]:
    return weight.unflatten(0, (n_heads, -1)).transpose(1, 2)


def _copies(x: Stream, n_heads: int) -> Float[Tensor, "batch pos head d_model"]:
    """The stream once per head, without using memory for it."""
    return x.unsqueeze(2).expand(-1, -1, n_heads, -1)


def _own_copies(point: HookPoint, x: Stream, edited: Tensor | None, n_heads: int, call: Call | None) -> Tensor | None:
    """Each head's own copy of the stream, where an edit made it one: [batch, pos, head, d_model]; else None."""
    if not point.wanted(call):
        return edited
    visited = point.beside(_copies(x, n_heads) if edited is None else edited, call)
    return edited if visited is None else visited


def _projected(linear: nn.Linear, read: Tensor, n_heads: int) -> Tensor:
    """What heads make of the stream they share, [batch, pos, d_model], or of their own, [batch, pos, head, d_model]."""
    if read.ndim == 3:
        return linear(read).view(*read.shape[:2], n_heads, -1)
    heads = torch.einsum("bphd,hde->bphe", read, _by_head(linear.weight, n_heads))
    return heads if linear.bias is None else heads + linear.bias.view(n_heads, -1)


def _masked(scores: Tensor, visible: Tensor | None, value: float) -> Tensor:
    return scores if visible is None else scores.masked_fill(~visible, value)
