"""Wrong implementations, each a mistake that somebody has made, to be patched into the model by test_mutations.py.

A mutant takes a MonkeyPatch and changes one thing. What it leaves alone it calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import model.attention
import model.block
import model.generate
import model.gpt
import model.hooks
from model import GPT, GPTConfig, KeyValueCache, Norm
from model.attention import Attention, Pass
from model.block import Block
from model.ffn import FFN
from model.hooks import ActivationCache, HookPoint, Scope
from model.norms import NormLayer
from model.positions import Rotation
from model.weights import Weights

Patch = Callable[[pytest.MonkeyPatch], None]


def changed(owner: Any, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Patch:
    """The mutant in which `owner.name` is what `change` makes of it."""
    return lambda patch: patch.setattr(owner, name, change(getattr(owner, name)))


def both(*mutants: Patch) -> Patch:
    """Two mistakes that hide one another."""

    def patch_all(patch: pytest.MonkeyPatch) -> None:
        for mutant in mutants:
            mutant(patch)

    return patch_all


# --- heads ------------------------------------------------------------------------------------------------------------


def _scrambled(heads: Tensor) -> Tensor:
    """The same numbers with head and d_head exchanged in memory."""
    n_heads, d_head = heads.shape[2:]
    return heads.flatten(2).unflatten(2, (d_head, n_heads)).transpose(2, 3)


transposed_head_layout = changed(
    Attention, "_read", lambda right: lambda self, *given: tuple(map(_scrambled, right(self, *given)))
)
transposed_output_layout = changed(
    Attention,
    "_output_by_head",
    lambda right: lambda self: self.o_proj.weight.unflatten(1, (self.d_head, self.n_heads)).permute(2, 1, 0),
)
grouped_heads_paired_in_turn = changed(
    Attention,
    "_grouped",
    lambda right: lambda self, heads: heads.repeat(1, 1, self.n_heads // self.n_kv_heads, 1),
)


def _results_cut_from_what_is_written(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def write(self: Attention, z: Tensor, call: Any) -> Tensor:
        out = F.linear(z.flatten(2), self.o_proj.weight)
        width = out.shape[-1] // self.n_heads
        owner = torch.arange(out.shape[-1]) // width == torch.arange(self.n_heads)[:, None]
        edited = self.hook_result.beside(out[:, :, None] * owner, call)
        return right(self, z, None) if edited is None else edited.sum(2)

    return write


results_cut_from_what_is_written = changed(Attention, "_write", _results_cut_from_what_is_written)


# --- scores and masks -------------------------------------------------------------------------------------------------


def _unscaled(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, q, k, v, run: right(self, q * math.sqrt(self.d_head), k, v, run)


missing_scale_in_the_fused_path = changed(Attention, "_attend_fused", _unscaled)
missing_scale_in_the_explicit_path = changed(Attention, "_attend_explicitly", _unscaled)
missing_scale_in_both_paths = both(missing_scale_in_the_fused_path, missing_scale_in_the_explicit_path)


def _upside_down(right: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    def visible(self: Pass, n_query: int, n_key: int) -> Tensor | None:
        mask = right(self, n_query, n_key)
        return None if mask is None else ~mask

    return visible


wrong_mask_sign = changed(Pass, "visible", _upside_down)
mask_added_instead_of_taken_away = changed(
    model.attention, "_masked", lambda right: lambda scores, visible, value: right(scores, visible, -value)
)
no_mask_in_the_fused_path = changed(
    model.attention.F,
    "scaled_dot_product_attention",
    lambda right: lambda q, k, v, *, is_causal=False, **rest: right(q, k, v, **rest),
)
finite_mask = changed(
    model.attention, "_masked", lambda right: lambda scores, visible, value: right(scores, visible, -1e9)
)
padded_keys_seen = changed(
    Pass, "visible", lambda right: lambda self, n_query, n_key: right(replace(self, mask=None), n_query, n_key)
)
mask_off_by_one = changed(
    Pass,
    "visible",
    lambda right: (
        lambda self, n_query, n_key: torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query + 1)[None, None]
    ),
)


def _explicitly(self: Attention, q: Tensor, k: Tensor, run: Pass) -> Tensor:
    scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / math.sqrt(self.d_head)
    return scores if run.bias is None else scores + run.bias


def _softmax_before_mask(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def attend(self: Attention, q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
        pattern = _explicitly(self, q, k, run).softmax(-1)
        visible = run.visible(q.shape[1], k.shape[1])
        pattern = pattern if visible is None else pattern.masked_fill(~visible, 0)
        return torch.einsum("bhqk,bkhe->bqhe", pattern, v)

    return attend


def _scores_shown_after_the_softmax(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The cached scores are the pattern, and an edit of them is lost."""

    def softmax(self: Attention, scores: Tensor, run: Pass) -> Tensor:
        return scores

    def attend(self: Attention, q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
        scores = _explicitly(self, q, k, run)
        visible = run.visible(q.shape[1], k.shape[1])
        pattern = (scores if visible is None else scores.masked_fill(~visible, -torch.inf)).softmax(-1)
        self.hook_attn_scores(pattern, run.call)
        pattern = self.hook_pattern(pattern, run.call)
        return torch.einsum("bhqk,bkhe->bqhe", pattern, v)

    return attend


softmax_before_mask = changed(Attention, "_attend_explicitly", _softmax_before_mask)
scores_shown_after_the_softmax = changed(Attention, "_attend_explicitly", _scores_shown_after_the_softmax)


# --- positions --------------------------------------------------------------------------------------------------------


def _in_half_precision(right: Callable[..., Rotation]) -> Callable[..., Rotation]:
    def of(*given: Any) -> Rotation:
        exact = right(*given)
        return Rotation(exact.cos.bfloat16().to(exact.cos.dtype), exact.sin.bfloat16().to(exact.sin.dtype))

    return of


def _neighbours_turned_together(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def turn(self: Rotation, x: Tensor) -> Tensor:
        halves = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
        return right(self, halves).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)

    return turn


half_precision_rotary_tables = changed(Rotation, "of", _in_half_precision)
neighbours_turned_together = changed(Rotation, "__call__", _neighbours_turned_together)
rotation_off_by_one_under_the_cache = changed(
    KeyValueCache, "rotation", lambda right: lambda self, positions: right(self, positions + (self.length > 0))
)
padding_counted_in_positions = changed(
    model.gpt, "positions_of", lambda right: lambda mask: torch.arange(mask.shape[1]).expand(mask.shape)
)


def _of_the_next_token(right: Callable[..., Any]) -> Callable[..., Any]:
    def smeared(keys: Tensor, alpha: Tensor, before: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        mixed, last = right(keys.flip(1), alpha, before, past)
        return mixed.flip(1), last

    return smeared


keys_smeared_with_the_next_token = changed(model.attention, "smeared", _of_the_next_token)
keys_smeared_with_padding = changed(
    model.gpt, "predecessors", lambda right: lambda positions: right(positions - positions.amin(1, keepdim=True))
)
last_key_forgotten_between_steps = changed(KeyValueCache, "keep_last_key", lambda right: lambda self, layer, key: None)
alibi_that_favours_the_distant = changed(model.gpt, "alibi_bias", lambda right: lambda *given: -right(*given))


# --- norms, blocks, FFN -----------------------------------------------------------------------------------------------


def _in_the_models_own_format(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def fused(self: NormLayer, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if self.centres else x
        return x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.w

    return fused


def _edits_ignored(right: Callable[..., Any]) -> Callable[..., None]:
    def edited_normalized(self: NormLayer, x: Tensor, call: Any) -> None:
        right(self, x, call)

    return edited_normalized


def _placement_ignored(right: Callable[..., None]) -> Callable[..., None]:
    def init(self: GPT, config: GPTConfig, seed: int = 0) -> None:
        right(self, config.varied(norm=Norm.PRE) if config.norm is Norm.POST else config, seed)

    return init


norm_statistics_in_half_precision = changed(NormLayer, "_fused", _in_the_models_own_format)
edits_of_a_norm_ignored = changed(NormLayer, "_edited_normalized", _edits_ignored)
post_norm_computed_as_pre_norm = changed(GPT, "__init__", _placement_ignored)
deepnorm_without_alpha = changed(model.block, "residual_weight", lambda right: lambda config: 1.0)
output_norm_left_out = changed(
    Block, "_written", lambda right: lambda self, out, norm, call: right(self, out, None, call)
)
dropout_while_evaluating = changed(
    Block, "_written", lambda right: lambda self, out, norm, call: right(self, F.dropout(out, 0.1), norm, call)
)


def _gate_and_value_exchanged(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(self: FFN, x: Tensor, call: Any) -> Tensor:
        assert self.gate_proj is not None
        return self.out_proj(F.silu(self.in_proj(x)) * self.gate_proj(x))

    return forward


gate_and_value_exchanged = changed(FFN, "forward", _gate_and_value_exchanged)


# --- weights ----------------------------------------------------------------------------------------------------------


def _folded_in_place(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @torch.no_grad()
    def folded(self: Weights) -> Tensor:
        if self.final_norm is not None:
            self.unembed.weight.mul_(self.final_norm.w)
        return self.unembed.weight.T.clone()

    return folded


norm_folded_into_the_tied_matrix = changed(Weights, "folded_unembed", _folded_in_place)
tied_matrix_not_tied = changed(GPT, "tie_weights", lambda right: lambda self: None)


# --- hooks and caches -------------------------------------------------------------------------------------------------


def _views_stored(right: Callable[..., Any]) -> Callable[..., Any]:
    def reader(self: ActivationCache, **how: Any) -> Callable[..., None]:
        return lambda x, site: self._tensors.update({str(site): x.detach()})

    return reader


def _without_a_copy(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def edited(x: Tensor, edit: Any, hook: Any) -> Tensor:
        x = x if x.is_contiguous() else x.clone()  # torch itself refuses to write into an expanded tensor
        answer = edit(x, hook)
        return x if answer is None else answer

    return edited


place_fires_twice = changed(
    HookPoint, "_visit", lambda right: lambda self, x, call: right(self, right(self, x, call), call)
)
looking_takes_part_in_the_pass = changed(
    HookPoint, "beside", lambda right: lambda self, x, call: self._visit(x, call) if self.wanted(call) else None
)
positions_told_from_zero_under_the_cache = changed(
    model.hooks,
    "Hook",
    lambda right: lambda name, site, positions, keys: right(name, site, positions - positions[:, :1], keys),
)
gradient_halved_where_it_is_read = changed(
    model.hooks,
    "_differentiable",
    lambda right: lambda x, call, hook: (x.detach() + right(x, call, hook)) / 2,
)
cache_stores_views = changed(ActivationCache, "reader", _views_stored)
hooks_edit_the_models_own_tensor = changed(model.hooks, "_edited", _without_a_copy)
gradients_ignored_where_values_stay = changed(
    model.hooks, "_asks_for_gradients", lambda right: lambda visited, x: False
)


def hooks_shared_by_all_threads(patch: pytest.MonkeyPatch) -> None:
    """Scopes in one list for everybody."""
    everybodys: list[Scope] = []

    @contextmanager
    def scope(entry: Scope) -> Iterator[None]:
        everybodys.append(entry)
        try:
            yield
        finally:
            everybodys.remove(entry)

    patch.setattr(model.gpt, "scope", scope)
    patch.setattr(model.gpt, "scopes_of", lambda gpt: [entry for entry in everybodys if entry.model is gpt])


def hooks_inherited_by_tasks(patch: pytest.MonkeyPatch) -> None:
    """Scopes that a copied context keeps, whoever opened them and whether or not they have ended."""
    kept = model.hooks._SCOPES
    patch.setattr(model.gpt, "scopes_of", lambda gpt: [entry for entry in kept.get() if entry.model is gpt])


def hooks_that_outlive_an_exception(patch: pytest.MonkeyPatch) -> None:
    """Taken away after the block, but not by a `finally`."""
    everybodys: list[Scope] = []

    @contextmanager
    def scope(entry: Scope) -> Iterator[None]:
        everybodys.append(entry)
        yield
        everybodys.remove(entry)

    patch.setattr(model.gpt, "scope", scope)
    patch.setattr(model.gpt, "scopes_of", lambda gpt: [entry for entry in everybodys if entry.model is gpt])


sampling_from_the_global_generator = changed(
    model.generate, "_sample", lambda right: lambda *given: right(*given[:-1], torch.default_generator)
)
