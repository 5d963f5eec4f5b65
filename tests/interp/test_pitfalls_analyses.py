"""What goes wrong in analyses elsewhere, and what holds here (docs/known-pitfalls.md)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ablation import ablated, mean_activations
from interp.gradients import gradient_norms
from interp.harm import measure_harms
from interp.head_roles import RoleRule, find_head_roles
from interp.memory_values import value_scores
from interp.outcomes import TEXT
from interp.patterns import pattern_of, pattern_scores
from interp.places import parse_places
from interp.scores import chance, first_position, induction_stripe, previous_token
from interp.stimuli import reordered, repeated_tokens
from interp.trials import CopyTask
from model import GPT
from model.errors import InputError
from model.hooks import Hook

MakeGPT = Callable[..., GPT]
KV_NAMES = ("k_proj", "v_proj")


@pytest.fixture
def others() -> Tensor:
    return torch.randint(50, (5, 12), generator=torch.Generator().manual_seed(9))


# --- one run never changes another ------------------------------------------------------------------------------------


def test_a_patch_on_one_row_of_a_batch_reaches_that_row_alone(tiny: GPT, tokens: Tensor, others: Tensor) -> None:
    _, donor = tiny.run_with_cache(others[:1])

    def patch(x: Tensor, hook: Hook) -> Tensor:
        x[1] = donor[hook.name][0]
        return x

    clean = tiny(tokens)
    for name in ("blocks.0.hook_resid_pre", "blocks.0.attn.hook_z", "blocks.1.mlp.hook_post"):
        patched = tiny.run_with_hooks(tokens, [(name, patch)])
        assert torch.equal(patched[[0, 2]], clean[[0, 2]])
        assert (patched[1] - clean[1]).abs().max() > 1e-2


def test_what_ran_before_and_what_runs_beside_it_change_no_number(tiny: GPT, tokens: Tensor, others: Tensor) -> None:
    means = mean_activations(tiny, others, source="other tokens")
    cases = [
        lambda: tiny(tokens),
        lambda: ablated_logits(tiny, "L0H1:zero", tokens),
        lambda: ablated_logits(tiny, "L1H2,L0.ffn:mean", tokens, means),
        lambda: tiny.run_with_cache(tokens, incl_bwd=True, return_type="loss")[1]["resid_post", 0, "grad"],
        lambda: pattern_scores(tiny, tokens, {"previous": lambda a, _: previous_token(a)})["previous"],
        lambda: tiny.generate(tokens, max_new_tokens=3, seed=4),
    ]
    alone = [case() for case in cases]
    for order in ([5, 3, 1, 0, 2, 4], [2, 2, 4, 0, 5, 1, 3]):
        for which in order:
            assert torch.equal(cases[which](), alone[which]), which


def ablated_logits(gpt: GPT, places: str, tokens: Tensor, means: Any = None) -> Tensor:
    with torch.no_grad(), ablated(gpt, parse_places(places), means):
        return gpt(tokens)


# --- grouped heads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_every_technique_reads_grouped_heads_as_the_same_model_with_its_keys_and_values_repeated(
    make_gpt: MakeGPT, tokens: Tensor, others: Tensor, n_kv_heads: int
) -> None:
    grouped = make_gpt(n_kv_heads=n_kv_heads, biases=True)
    repeated = with_repeated_heads(grouped)
    for measure in (weights, patterns, one_pattern, head_harms, mean_harms, values, cached_z):
        found, expected = (measure(gpt, tokens, others) for gpt in (grouped, repeated))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, msg=measure.__name__)
    ours, theirs = (gradient_norms(gpt, tokens) for gpt in (grouped, repeated))
    assert ours.loss == pytest.approx(theirs.loss)
    assert ours.stream == pytest.approx(theirs.stream, rel=1e-4)


def with_repeated_heads(grouped: GPT) -> GPT:
    config = grouped.config.varied(n_kv_heads=grouped.config.n_heads)
    repeated, shared = GPT(config).eval(), grouped.config.n_heads // grouped.config.kv_heads
    for name, tensor in grouped.state_dict().items():
        own = repeated.state_dict()[name]
        if any(part in name for part in KV_NAMES):
            by_head = tensor.unflatten(0, (grouped.config.kv_heads, -1))
            tensor = by_head.repeat_interleave(shared, dim=0).flatten(0, 1)
        own.copy_(tensor)
    return repeated


def weights(gpt: GPT, _tokens: Tensor, _others: Tensor) -> tuple[Tensor, ...]:
    return gpt.W_Q @ gpt.W_K.mT, gpt.W_V @ gpt.W_O, gpt.b_K, gpt.b_V


def patterns(gpt: GPT, tokens: Tensor, _others: Tensor) -> dict[str, Tensor]:
    wanted = {"previous": previous_token, "first": first_position}
    return pattern_scores(gpt, tokens, {name: lambda a, _, f=f: f(a) for name, f in wanted.items()})


def one_pattern(gpt: GPT, tokens: Tensor, _others: Tensor) -> Tensor:
    return pattern_of(gpt, tokens[0], layer=1, head=3)


def all_heads(gpt: GPT) -> list[Sequence[Any]]:
    return [parse_places(f"L{layer}H{head}") for layer in range(2) for head in range(gpt.config.n_heads)]


def head_harms(gpt: GPT, tokens: Tensor, _others: Tensor) -> Tensor:
    zeroed = [parse_places(f"L{layer}H{head}:zero") for layer in range(2) for head in range(gpt.config.n_heads)]
    return measure_harms(gpt, tokens, zeroed, [TEXT]).harm


def mean_harms(gpt: GPT, tokens: Tensor, others: Tensor) -> Tensor:
    means = mean_activations(gpt, others, source="other tokens")
    return measure_harms(gpt, tokens, all_heads(gpt), [TEXT], means=means).harm


def values(gpt: GPT, _tokens: Tensor, _others: Tensor) -> Tensor:
    return value_scores(gpt, 1)


def cached_z(gpt: GPT, tokens: Tensor, _others: Tensor) -> tuple[Tensor, ...]:
    _, cache = gpt.run_with_cache(tokens, ["blocks.1.attn.hook_z", "blocks.1.attn.hook_result"])
    return cache["z", 1], cache["result", 1]


# --- scores beside their chance ---------------------------------------------------------------------------------------


def test_heads_that_spread_their_attention_evenly_score_chance_and_have_no_role(make_gpt: MakeGPT) -> None:
    """Also where the score is largest by construction elsewhere: a mask of ones, or a single short sequence."""
    gpt, period = make_gpt(n_ctx=41, positions="learned"), 20
    with torch.no_grad():
        for block in gpt.layers:
            block.attn.q_proj.weight.zero_()
    sequences = repeated_tokens(6, period, 50, bos=49)
    found = pattern_scores(
        gpt,
        sequences,
        {
            "previous": lambda a, _: previous_token(a),
            "first": lambda a, _: first_position(a),
            "induction": lambda a, _: induction_stripe(a, period, start=21),
        },
    )
    expected = {"previous": chance(2, 41), "first": chance(1, 41), "induction": chance(21, 41)}
    for name, level in expected.items():
        assert found[name] == pytest.approx(level, rel=1e-5), name
    roles = find_head_roles(gpt, sequences, period=period, rule=RoleRule())
    assert roles.induction_heads == ()
    assert roles.previous_head is None


# --- half precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_technique_works_in_half_precision_to_its_rounding(
    make_gpt: MakeGPT, tokens: Tensor, others: Tensor, dtype: torch.dtype
) -> None:
    """What needs more digits than the weights have (sums, inverses, statistics) is computed in more."""
    gpt = make_gpt().to(dtype)
    exact = copy.deepcopy(gpt).double()
    for measure in (patterns, one_pattern, head_harms, mean_harms, values):
        found, expected = (measure(each, tokens, others) for each in (gpt, exact))
        parts = zip(found.values(), expected.values(), strict=True) if isinstance(found, dict) else [(found, expected)]
        for one, other in parts:
            assert one.dtype in (torch.float32, torch.float64), measure.__name__
            assert (one - other).abs().max() <= 0.1 * other.abs().max(), measure.__name__
    ours, theirs = (gradient_norms(each, tokens) for each in (gpt, exact))
    assert ours.stream == pytest.approx(theirs.stream, rel=0.05)
    assert ours.last_w_out_per_token == pytest.approx(theirs.last_w_out_per_token, rel=0.05)


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_no_two_draws_of_one_seed_are_the_same_draw() -> None:
    """Sequences to find heads on, to ablate on and to take means from differ, for neighbouring seeds too."""
    tasks = [CopyTask(period=8, ids=torch.arange(29), bos=29, n_sequences=4, seed=seed) for seed in range(3)]
    draws = [draw for task in tasks for draw in (task.discovery, task.trial.measured, task.trial.reference)]
    assert len({tuple(draw.flatten().tolist()) for draw in draws}) == len(draws)
    again = CopyTask(period=8, ids=torch.arange(29), bos=29, n_sequences=4, seed=1)
    assert torch.equal(again.discovery, tasks[1].discovery)


def test_the_control_is_not_ordered_by_the_numbers_that_drew_the_sequence() -> None:
    """With one seed for both, a segment that uses the whole vocabulary would be re-ordered by its own order."""
    n_equal = 0
    for seed in range(40):
        tokens = repeated_tokens(1, 5, 5, seed=seed)
        second = reordered(tokens, 5, seed=seed)[0, 5:]
        n_equal += int(torch.equal(second, tokens[0, :5][tokens[0, :5]]))
    assert n_equal <= 4, "one in 120 by chance"


def test_every_matrix_of_a_model_is_drawn_from_a_stream_of_its_own(make_gpt: MakeGPT) -> None:
    gpt = make_gpt(init="gpt2")
    matrices = [parameter.flatten()[:64] for parameter in gpt.parameters() if parameter.ndim == 2]
    for index, one in enumerate(matrices):
        for other in matrices[index + 1 :]:
            assert torch.corrcoef(torch.stack([one, other])).abs()[0, 1] < 0.5


# --- dropout ----------------------------------------------------------------------------------------------------------


def test_a_model_in_training_mode_is_refused_by_every_technique(
    make_gpt: MakeGPT, tokens: Tensor, others: Tensor
) -> None:
    """Two runs of it differ by chance, so clean minus clean would not be 0."""
    gpt = make_gpt(dropout=0.5).train()
    assert not torch.equal(gpt(tokens), gpt(tokens))
    for measure in (patterns, one_pattern, head_harms, mean_harms):
        with pytest.raises(InputError, match="dropout"):
            measure(gpt, tokens, others)
    with pytest.raises(InputError, match="dropout"):
        gradient_norms(gpt, tokens)
    gpt.eval()
    assert torch.equal(head_harms(gpt, tokens, others), head_harms(gpt, tokens, others))
