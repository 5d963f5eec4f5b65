"""Mistakes that others made, made on purpose: each is caught by a test that is named here, and which passes without it.

A row is a mutant (tests/model/mutants.py), the test that must fail, and the test's arguments besides its fixtures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from model import Norm
from tests.conftest import make_gpt_with
from tests.model import (
    mutants,
    test_every_hook,
    test_generate,
    test_gpt,
    test_hook_scopes,
    test_hooks,
    test_pitfalls_hooks,
    test_pitfalls_weights,
    test_positions,
    test_precision,
    test_weights,
)
from tests.model.covering import CONFIGS


@dataclass(frozen=True)
class Mutation:
    mistake: str
    """The name of the mutant."""
    caught_by: Callable[..., None]
    given: Mapping[str, Any] = field(default_factory=dict)
    """The test's arguments besides its fixtures."""

    def __str__(self) -> str:
        return f"{self.mistake}-{self.caught_by.__name__}"

    def test(self) -> None:
        """Run the test as pytest would, its models built now."""
        make: dict[str, Callable[[], Any]] = {
            "make_gpt": lambda: make_gpt_with,
            "tiny": make_gpt_with,
            "tokens": tokens,
            "clean": lambda: make_gpt_with()(tokens()),
        }
        names = inspect.signature(self.caught_by).parameters.keys() - self.given.keys()
        self.caught_by(**{name: make[name]() for name in names}, **self.given)


def tokens() -> torch.Tensor:
    return torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(7))


LOOP = test_gpt.test_attention_equals_a_loop_over_heads
PLACEMENTS = test_gpt.test_the_placements_are_the_equations_of_the_papers
PADDING = test_gpt.test_left_padding_changes_nothing
DEFAULT = {"config": CONFIGS[0]}
SMEARED = {"smeared_keys": True}
DECODING = test_generate.test_cached_decoding_equals_the_full_pass

MUTATIONS = [
    Mutation("transposed_head_layout", LOOP, {"dtype": torch.float32, "n_kv_heads": 4}),
    Mutation("transposed_output_layout", test_hooks.test_results_of_the_heads_sum_to_what_attention_writes),
    Mutation("grouped_heads_paired_in_turn", LOOP, {"dtype": torch.float32, "n_kv_heads": 2}),
    Mutation("results_cut_from_what_is_written", test_hooks.test_a_result_is_what_its_own_head_writes, {"variant": {}}),
    Mutation("missing_scale_in_the_fused_path", test_gpt.test_fused_and_explicit_attention_agree, {"variant": {}}),
    Mutation("missing_scale_in_the_explicit_path", test_gpt.test_fused_and_explicit_attention_agree, {"variant": {}}),
    Mutation("missing_scale_in_both_paths", LOOP, {"dtype": torch.float32, "n_kv_heads": 4}),
    Mutation(
        "missing_scale_in_both_paths",
        test_gpt.test_scaling_by_the_root_of_d_head_keeps_the_variance_of_scores_at_one,
        {"d_head": 64},
    ),
    Mutation("wrong_mask_sign", test_gpt.test_masked_scores_are_minus_infinity),
    Mutation("wrong_mask_sign", test_gpt.test_fused_and_explicit_attention_agree, {"variant": {"positions": "alibi"}}),
    Mutation("mask_added_instead_of_taken_away", test_gpt.test_masked_scores_are_minus_infinity),
    Mutation("finite_mask", test_gpt.test_masked_scores_are_minus_infinity),
    Mutation(
        "no_mask_in_the_fused_path",
        test_gpt.test_a_future_token_changes_no_earlier_logit_bit,
        {"variant": {}, "explicit": False},
    ),
    Mutation(
        "mask_off_by_one",
        test_gpt.test_a_future_token_changes_no_earlier_logit_bit,
        {"variant": {}, "explicit": True},
    ),
    Mutation("softmax_before_mask", test_gpt.test_fused_and_explicit_attention_agree, {"variant": {}}),
    Mutation(
        "scores_shown_after_the_softmax",
        test_pitfalls_hooks.test_cached_scores_are_the_scores_and_their_softmax_is_the_pattern,
    ),
    Mutation(
        "scores_shown_after_the_softmax",
        test_pitfalls_hooks.test_an_edit_of_the_scores_makes_another_pattern_and_other_logits,
        {"in_place": True},
    ),
    Mutation(
        "half_precision_rotary_tables",
        test_positions.test_a_rotated_product_depends_on_the_distance_alone_up_to_position_4090,
    ),
    Mutation(
        "half_precision_rotary_tables", test_precision.test_a_model_cast_to_bf16_keeps_its_rotation, {"d_head": 64}
    ),
    Mutation("neighbours_turned_together", test_positions.test_rotation_pairs_the_two_halves),
    Mutation("rotation_off_by_one_under_the_cache", DECODING, {"variant": {}}),
    Mutation("padding_counted_in_positions", PADDING, {"variant": {"positions": "learned"}, "explicit": False}),
    Mutation(
        "keys_smeared_with_the_next_token",
        test_gpt.test_a_future_token_changes_no_earlier_logit_bit,
        {"variant": SMEARED, "explicit": False},
    ),
    Mutation("keys_smeared_with_padding", PADDING, {"variant": SMEARED, "explicit": False}),
    Mutation("last_key_forgotten_between_steps", DECODING, {"variant": SMEARED}),
    Mutation(
        "alibi_that_favours_the_distant",
        test_precision.test_scores_and_softmax_are_exact_to_fp32_in_every_format,
        {"variant": {"positions": "alibi"}, "dtype": torch.float32},
    ),
    Mutation(
        "norm_statistics_in_half_precision",
        test_precision.test_a_norm_in_half_precision_is_the_exact_norm_rounded_once,
        {"norm_kind": "rmsnorm", "dtype": torch.bfloat16, "mean": 0.0},
    ),
    Mutation(
        "edits_of_a_norm_ignored",
        test_every_hook.test_noise_at_three_positions_of_any_place_changes_the_logits,
        DEFAULT,
    ),
    Mutation("post_norm_computed_as_pre_norm", PLACEMENTS, {"norm": Norm.POST}),
    Mutation(
        "post_norm_computed_as_pre_norm", test_pitfalls_hooks.test_every_placement_of_the_norms_is_another_function
    ),
    Mutation("deepnorm_without_alpha", PLACEMENTS, {"norm": Norm.DEEPNORM}),
    Mutation("output_norm_left_out", PLACEMENTS, {"norm": Norm.SANDWICH}),
    Mutation("dropout_while_evaluating", test_gpt.test_dropout_acts_in_training_only),
    Mutation(
        "gate_and_value_exchanged",
        test_precision.test_logits_and_every_residual_keep_to_the_tolerance,
        {"variant": {"ffn": "swiglu"}, "dtype": torch.float32},
    ),
    Mutation(
        "norm_folded_into_the_tied_matrix",
        test_pitfalls_weights.test_folding_the_final_norm_leaves_the_tied_matrix_alone,
        {"norm": "pre", "norm_kind": "layernorm"},
    ),
    Mutation("tied_matrix_not_tied", test_weights.test_the_tied_matrix_is_one_matrix),
    Mutation(
        "tied_matrix_not_tied", test_pitfalls_hooks.test_a_tied_model_has_one_matrix_and_counts_it_once, {"tied": True}
    ),
    Mutation(
        "place_fires_twice",
        test_every_hook.test_every_place_fires_once_with_its_documented_shape_and_positions,
        DEFAULT,
    ),
    Mutation(
        "looking_takes_part_in_the_pass",
        test_every_hook.test_reading_changes_no_bit_of_what_the_same_attention_path_gives,
        DEFAULT,
    ),
    Mutation("padded_keys_seen", test_every_hook.test_what_is_put_on_padding_reaches_no_token, DEFAULT),
    Mutation(
        "positions_told_from_zero_under_the_cache",
        test_every_hook.test_an_edit_by_position_is_the_same_with_and_without_the_key_value_cache,
        DEFAULT,
    ),
    Mutation(
        "gradient_halved_where_it_is_read", test_every_hook.test_the_cached_gradient_is_autograds_and_the_slope, DEFAULT
    ),
    Mutation(
        "looking_takes_part_in_the_pass",
        test_every_hook.test_an_edit_that_changes_nothing_leaves_every_bit,
        DEFAULT,
    ),
    Mutation("cache_stores_views", test_pitfalls_hooks.test_what_is_done_to_a_cached_tensor_stays_there),
    Mutation(
        "hooks_edit_the_models_own_tensor",
        test_pitfalls_hooks.test_an_edit_in_place_is_the_edit_that_is_returned,
        {"norm": "pre"},
    ),
    Mutation(
        "gradients_ignored_where_values_stay",
        test_pitfalls_hooks.test_a_vector_of_zeros_and_a_mask_of_ones_can_be_learned,
        {"name": "ln_final.hook_normalized"},
    ),
    Mutation("hooks_shared_by_all_threads", test_hook_scopes.test_many_threads_never_meet_each_others_hooks),
    Mutation("hooks_shared_by_all_threads", test_hook_scopes.test_tasks_never_meet_each_others_hooks),
    Mutation("hooks_inherited_by_tasks", test_hook_scopes.test_a_task_or_thread_made_inside_a_block_is_not_in_it),
    Mutation(
        "hooks_that_outlive_an_exception", test_hook_scopes.test_no_hook_outlives_an_exception, {"where": "the loss"}
    ),
    Mutation("sampling_from_the_global_generator", test_pitfalls_hooks.test_sampling_depends_on_its_seed_alone),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_mistake_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.test()
    getattr(mutants, mutation.mistake)(monkeypatch)
    with pytest.raises(AssertionError):
        mutation.test()


def test_every_mutant_is_tried() -> None:
    made = {name for name, thing in vars(mutants).items() if callable(thing) and _is_mutant(name, thing)}
    assert made == {mutation.mistake for mutation in MUTATIONS}


def _is_mutant(name: str, thing: Any) -> bool:
    own = getattr(thing, "__module__", "") == mutants.__name__
    return own and not name.startswith("_") and name not in ("changed", "both", "Patch")
