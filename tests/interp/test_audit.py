"""The audit: sound models pass with room to spare, each planted fault fails the checks that it should and no others."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import interp.attribution
import model.attention
import model.ffn
import model.gpt
from interp.audit import Check, audit
from interp.audit.quantity import Quantity, rounding
from interp.audit.record import CLAIMS, Ledger
from model import GPT, KeyValueCache
from model.attention import Attention, Pass
from model.block import Block
from model.config import FFNKind, Norm
from model.errors import InputError, UnknownNameError
from model.ffn import FFN
from model.hooks import Call, HookPoint
from model.norms import NormLayer
from model.positions import Rotation
from tests import planted
from tests.conftest import make_gpt_with
from tests.model.variants import ALL, EXTRAS, FFNS, PLACEMENTS, POSITIONS, name_of

FILES = {"checkpoint files", "weights", "run config", "tokenizer"}

SOUND: list[dict[str, Any]] = [
    placement | POSITIONS[i % len(POSITIONS)] | FFNS[i % len(FFNS)] | {"biases": i % 3 == 0, "n_kv_heads": 4 >> i % 2}
    for i, placement in enumerate(PLACEMENTS)
]
"""Every placement and norm kind, with every kind of position and FFN in turn."""

SPECIAL: list[dict[str, Any]] = [
    *EXTRAS,
    {"attention": "bidirectional", "biases": True},
    {"attention": "bidirectional", "positions": "alibi", "norm": "post"},
    {"n_ctx": 1},
    {"n_ctx": 2},
    {"n_heads": 6, "d_model": 36, "positions": "alibi", "norm": "sandwich", "norm_kind": "layernorm", "biases": True},
    {"n_layers": 5, "n_kv_heads": 1, "norm": "scaled", "ffn": "swiglu"},
    {"init": "gpt2", "embed_std": 0.02},
    {"skip_connections": False, "norm": "post"},
]


def small(**changes: Any) -> GPT:
    """A model of one layer, in which something is then broken."""
    return make_gpt_with(**({"n_layers": 1} | changes))


def failed(gpt: GPT) -> set[str]:
    return {check.name for check in audit(gpt).failed}


def share_of_tolerance(check: Check) -> float:
    assert check.error is not None and check.tolerance is not None
    return check.error / check.tolerance if check.tolerance else math.inf * check.error if check.error else 0.0


# --- sound models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [*SOUND, *SPECIAL], ids=name_of)
def test_every_kind_of_model_passes_with_room_to_spare(variant: dict[str, Any]) -> None:
    report = audit(make_gpt_with(**variant))
    assert report.passed, report.summary
    measured = [check for check in report.checks if check.error is not None]
    worst = max(measured, key=share_of_tolerance)
    assert share_of_tolerance(worst) < 0.6, worst
    assert {check.name for check in report.checks} == CLAIMS.keys() - FILES, "every check is answered for"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "variant",
    [
        {"biases": True, "norm_kind": "layernorm", "n_kv_heads": 2, "norm": "sandwich"},
        {"norm": "deepnorm", "ffn": "swiglu", "qk_norm": True},
        {"norm": "none", "positions": "alibi"},
        {"n_layers": 5, "n_kv_heads": 1, "norm": "scaled", "ffn": "swiglu"},  # its coefficients underflow in fp16
    ],
    ids=name_of,
)
def test_tolerances_follow_the_number_format(variant: dict[str, Any], dtype: torch.dtype) -> None:
    report = audit(make_gpt_with(**variant).to(dtype))
    assert report.passed, report.summary
    assert max(share_of_tolerance(check) for check in report.checks if check.error is not None) < 0.6
    tolerance = report["FFN input"].tolerance
    assert tolerance is not None
    assert tolerance < (1e-13 if dtype is torch.float64 else 0.05)


@pytest.mark.parametrize("gpt", [planted.induction_model(), planted.memory_model()], ids=["induction", "memory"])
def test_planted_circuits_with_extreme_scores_pass(gpt: GPT) -> None:
    assert audit(gpt).passed


@pytest.mark.parametrize(("norm", "words"), [("post", "post-norm"), ("deepnorm", "DeepNorm")])
def test_where_the_stream_is_no_sum_it_says_so_and_checks_the_sum_through_the_norm(norm: str, words: str) -> None:
    report = audit(make_gpt_with(norm=norm))
    for name in ("additive stream", "additive heads", "attribution"):
        assert report[name].passed is None
        assert report[name].reason.startswith(f"{words}: not additive")
    assert report["stream"].passed is True


@pytest.mark.parametrize(
    ("variant", "names", "reason"),
    [
        ({"norm": "sandwich"}, ["additive heads"], "an output norm stands between the heads and the stream"),
        ({"norm": "none"}, ["norms"], "there is no norm"),
        ({"positions": "alibi"}, ["rotation"], "nothing is rotated"),
        ({"ffn": "none"}, ["FFN input", "coefficients", "FFN output"], "there is no FFN"),
        ({"attention": "bidirectional"}, ["causality"], "every position sees the later ones"),
        ({"attention": "bidirectional"}, ["cached decode"], "it does not generate"),
        ({"n_ctx": 1}, ["padding", "causality", "cached decode"], "one position only"),
        ({"skip_connections": False}, ["additive stream"], "without skip connections: not additive"),
    ],
    ids=str,
)
def test_what_does_not_apply_is_listed_with_its_reason(variant: dict[str, Any], names: list[str], reason: str) -> None:
    report = audit(make_gpt_with(**variant))
    assert all(report[name].passed is None and reason in report[name].reason for name in names)
    assert "do not apply" in report.summary or "does not apply" in report.summary


def test_an_audit_changes_nothing_and_repeats_itself() -> None:
    gpt = make_gpt_with(dropout=0.1, n_layers=1)
    gpt.layers[0].mlp.train()
    before = {name: weights.clone() for name, weights in gpt.state_dict().items()}
    modes, state = [module.training for module in gpt.modules()], torch.random.get_rng_state()
    one, two = audit(gpt, seed=3), audit(gpt, seed=3)
    assert replace(one, seconds=0.0) == replace(two, seconds=0.0)
    assert [module.training for module in gpt.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[name], weights) for name, weights in gpt.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in gpt.parameters())


def test_the_tokens_may_be_given(tokens: Tensor) -> None:
    report = audit(make_gpt_with(), tokens.repeat(20, 1))
    assert report.passed
    assert report.tokens == "60 sequences of 12 given tokens"
    with pytest.raises(InputError, match="outside this model's vocabulary"):
        audit(make_gpt_with(), tokens + 50)


def test_the_summary_counts() -> None:
    report = audit(make_gpt_with(norm="post"))
    assert report.summary == "All 27 checks that apply passed (3 do not apply)."
    gpt = make_gpt_with()
    gpt.unembed.weight = nn.Parameter(gpt.unembed.weight.detach().clone())
    assert audit(gpt).summary == "2 of 30 checks failed: parameters, tied matrix."
    report = audit(make_gpt_with(norm="sandwich", n_layers=1, n_heads=1))
    assert report.summary == "All 29 checks that apply passed (1 does not apply)."
    assert repr(report) == f"<Audit: {report.summary}>"
    assert str(report) == f"{report.subject}: {report.summary}"
    assert report.subject.startswith("1 layer x 1 head, sandwich-norm (rmsnorm), rope positions")


@pytest.mark.parametrize(
    ("variant", "words"), [({"norm": "none"}, "no norm, "), ({"norm": "deepnorm"}, "DeepNorm (rmsnorm), ")], ids=str
)
def test_the_subject_says_in_words_where_the_norms_stand(variant: dict[str, Any], words: str) -> None:
    assert words in audit(make_gpt_with(**variant)).subject


def test_a_check_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    report = audit(small())
    with pytest.raises(UnknownNameError, match='no check "score". Did you mean "scores"'):
        report["score"]
    with pytest.raises(UnknownNameError, match="They are: finite weights; parameters;"):
        report["zebra"]


@pytest.mark.parametrize(
    ("thing", "advice"), [(SimpleNamespace(gpt=None), "give its model: .gpt"), ("demo", "give a GPT, or open")]
)
def test_what_is_no_model_is_refused_in_a_sentence(thing: Any, advice: str) -> None:
    with pytest.raises(InputError, match=f"audit measures a model, and this is a .*; {advice}"):
        inspect.unwrap(audit)(thing)


WITH_EVERYTHING: dict[str, Any] = {"norm": "sandwich", "norm_kind": "layernorm", "biases": True, "positions": "learned"}


@pytest.mark.parametrize(
    "name",
    ["embed.weight", "pos_embed.weight", "attn.q_proj.weight", "attn.o_proj.bias", "mlp.in_proj.weight", "ln1_post.w"],
)
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_an_audit_of_weights_that_are_no_numbers_says_so_and_ends(name: str, broken: float, tokens: Tensor) -> None:
    gpt = make_gpt_with(**WITH_EVERYTHING)
    where, weights = next(pair for pair in gpt.named_parameters() if pair[0].endswith(name))
    with torch.no_grad():
        weights.view(-1)[0] = broken
    report = audit(gpt, tokens)
    check = report["finite weights"]
    assert (check.passed, check.error, check.where) == (False, 1, where)
    assert report["idle edit"].passed is True


def test_a_check_that_passed_says_nothing_of_failure() -> None:
    report = audit(small(dropout=0.1))
    assert report.passed
    assert {check.reason for check in report.checks if "tensors" not in check.reason} == {
        "",
        "The config says tied; W_E and W_U have one storage",
    }


def test_a_failure_is_told_in_sentences_that_end_once() -> None:
    ledger = Ledger()
    ledger.failed("weights", "They are gone.")
    ledger.measured("scores", 0.5, 1e-6, where="L1", unit="relative to what is added")
    weights, scores = ledger.checks()
    assert weights.sentence == f"weights: {CLAIMS['weights']}: this does not hold. They are gone."
    assert scores.sentence.endswith("The error is 0.5 (at L1), and 1e-06 is allowed: relative to what is added.")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_no_error_comes_near_its_tolerance_in_any_kind_of_model(dtype: torch.dtype) -> None:
    worst: dict[str, float] = {}
    for variant in [*ALL, *SOUND, *SPECIAL]:
        for seed in range(3):
            report = audit(make_gpt_with(seed, **variant).to(dtype), seed=seed)
            for check in report.checks:
                if check.error is not None:
                    worst[check.name] = max(worst.get(check.name, 0.0), share_of_tolerance(check))
    assert max(worst.values()) < 0.6, worst


@pytest.mark.parametrize(
    "variant", [{"norm": "sandwich", "biases": True}, {"n_kv_heads": 2}, {"norm": "post"}], ids=str
)
def test_a_head_ablated_at_z_is_its_result_left_out_of_the_sum(variant: dict[str, Any]) -> None:
    report = audit(make_gpt_with(**variant))
    assert report["head ablation"].passed is True
    assert report["ablation"].passed is True


def test_the_rotation_is_recomputed_from_the_configs_rope_base(monkeypatch: pytest.MonkeyPatch) -> None:
    gpt = make_gpt_with(rope_base=500.0, n_kv_heads=2)
    sound = audit(gpt)
    assert sound["rotation"].passed is True
    assert sound["scores"].passed is True
    a_rope_base_that_is_not_the_configs(monkeypatch)
    assert audit(gpt)["rotation"].passed is False


# --- the yardstick --------------------------------------------------------------------------------------------------


def test_an_error_is_measured_against_the_terms_not_against_what_is_left_of_them() -> None:
    terms = torch.tensor([[1e8, 1.0, -1e8]])
    total = Quantity.of(terms).through(torch.ones(1, 3), None)
    assert total.value.item() == 1.0
    assert total.size.item() == 2e8 + 1
    assert total.error(torch.tensor([[0.0]])) < 1e-8, "fp32 cannot know better"
    assert Quantity.of(torch.zeros(1)).error(torch.zeros(1)) == 0
    assert Quantity.of(torch.zeros(1)).error(torch.tensor([1e-30])) > 1e7
    assert math.isnan(Quantity.of(torch.ones(1)).error(torch.tensor([math.nan])))


def test_what_underflows_in_half_precision_is_off_by_no_more_than_at_its_smallest_normal_number() -> None:
    exactly = torch.logspace(-12, -1, 500, dtype=torch.float64)
    error = Quantity(exactly, exactly.abs()).error(exactly.half())
    assert rounding(torch.float16, 1) / 8 < error < rounding(torch.float16, 1) / 3
    assert Quantity(exactly, exactly.abs()).error(exactly.half() * 1.01) > rounding(torch.float16, 1)


def test_an_error_that_is_not_a_number_fails_and_stays() -> None:
    ledger = Ledger()
    for error in (0.0, math.nan, 1e-9):
        ledger.measured("norms", error, 1e-6)
    (check,) = ledger.checks()
    assert check.passed is False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_sums_stay_well_inside_what_rounding_is_allowed(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(64, 4096, generator=generator, dtype=dtype) for _ in range(2))
    assert Quantity.of(x).through(w, None).error(x @ w.T) < rounding(dtype, 4096) / 4


# --- planted faults ---------------------------------------------------------------------------------------------------

Fault = Callable[[pytest.MonkeyPatch], GPT]


def no_square_root_of_d(patch: pytest.MonkeyPatch) -> GPT:
    original = Attention._attend_explicitly
    patch.setattr(Attention, "_attend_explicitly", lambda self, q, k, v, run: original(self, q * 8**0.5, k, v, run))
    return small()


def scores_that_are_the_pattern(patch: pytest.MonkeyPatch) -> GPT:
    original = HookPoint.__call__

    def call(self: HookPoint, x: Tensor, call: Call | None) -> Tensor:
        if self.name.endswith("hook_attn_scores"):
            original(self, x.softmax(-1), call)
            return x
        return original(self, x, call)

    patch.setattr(HookPoint, "__call__", call)
    return small()


def transposed_head_layout(patch: pytest.MonkeyPatch) -> GPT:
    patch.setattr(
        Attention,
        "_output_by_head",
        lambda self: self.o_proj.weight.unflatten(1, (self.d_head, self.n_heads)).permute(2, 1, 0),
    )
    return small()


def a_rope_base_that_is_not_the_configs(patch: pytest.MonkeyPatch) -> GPT:
    original = Rotation.of
    patch.setattr(Rotation, "of", lambda positions, d, base, dtype: original(positions, d, base * 500, dtype))
    return small()


def half_precision_rotary_tables(patch: pytest.MonkeyPatch) -> GPT:
    original = Rotation.of

    def of(*args: Any) -> Rotation:
        tables = original(*args)
        return Rotation(tables.cos.bfloat16().float(), tables.sin.bfloat16().float())

    patch.setattr(Rotation, "of", of)
    return small()


def the_wrong_pairs_rotated(patch: pytest.MonkeyPatch) -> GPT:
    original = Rotation.__call__

    def interleaved(self: Rotation, x: Tensor) -> Tensor:
        apart = torch.cat((x[..., ::2], x[..., 1::2]), -1)
        return original(self, apart).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)

    patch.setattr(Rotation, "__call__", interleaved)
    return small()


def a_mask_that_is_a_large_number(patch: pytest.MonkeyPatch) -> GPT:
    original = model.attention._masked
    patch.setattr(model.attention, "_masked", lambda s, visible, value: original(s, visible, torch.finfo(s.dtype).min))
    return small()


def a_mask_of_the_wrong_sign(patch: pytest.MonkeyPatch) -> GPT:
    original = model.attention._masked

    def masked(scores: Tensor, visible: Tensor | None, value: float) -> Tensor:
        return original(scores, None if visible is None else visible.transpose(-1, -2), value)

    patch.setattr(model.attention, "_masked", masked)
    return small()


def a_softmax_that_is_too_warm(patch: pytest.MonkeyPatch) -> GPT:
    patch.setattr(Attention, "_softmax", lambda self, scores, run: (scores * 0.99).softmax(-1))
    return small()


def key_value_heads_shared_by_the_wrong_heads(patch: pytest.MonkeyPatch) -> GPT:
    patch.setattr(Attention, "_grouped", lambda self, heads: heads.repeat(1, 1, self.n_heads // self.n_kv_heads, 1))
    return small(n_kv_heads=2)


def wrong_slopes(patch: pytest.MonkeyPatch) -> GPT:
    original = model.gpt.alibi_bias
    patch.setattr(model.gpt, "alibi_bias", lambda *args: original(*args) * 0.5)
    return small(positions="alibi")


def a_cache_that_writes_one_position_late(patch: pytest.MonkeyPatch) -> GPT:
    original = KeyValueCache.extend

    def extend(self: KeyValueCache, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.length += 1
        keys, values = original(self, layer, keys, values)
        self.length -= 1
        return keys[:, :-1], values[:, :-1]

    patch.setattr(KeyValueCache, "extend", extend)
    return small(n_ctx=64)


def a_cache_that_interventions_do_not_reach(patch: pytest.MonkeyPatch) -> GPT:
    original = Attention.forward

    def forward(self: Attention, x: Tensor, norm: Any, run: Pass) -> Tensor:
        is_step = run.kv_cache is not None and run.kv_cache.length > 0
        return original(self, x, norm, replace(run, call=None) if is_step else run)

    patch.setattr(Attention, "forward", forward)
    return small()


def positions_that_count_padding(patch: pytest.MonkeyPatch) -> GPT:
    patch.setattr(model.gpt, "positions_of", lambda mask: torch.arange(mask.shape[1]).expand(mask.shape))
    return small(positions="learned")


def a_matrix_that_lost_its_tie(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small()
    gpt.unembed.weight = nn.Parameter(gpt.unembed.weight.detach().clone())
    return gpt


def a_matrix_that_is_tied_against_the_config(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small(tie_embeddings=False)
    gpt.unembed.weight = gpt.embed.weight
    return gpt


def a_weight_that_is_not_a_number(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small(positions="learned", n_ctx=64)
    with torch.no_grad():
        gpt.pos_embed.weight[60] = math.nan  # a position that no token of the audit has
    return gpt


def a_gain_that_was_folded_away(patch: pytest.MonkeyPatch) -> GPT:
    patch.setattr(NormLayer, "_fused", lambda self, x: F.rms_norm(x, self.w.shape, None, self.eps))
    return small()


def another_epsilon(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small()
    for module in gpt.modules():
        if isinstance(module, NormLayer):
            module.eps = 1e-3
    return gpt


def a_final_gain_that_is_applied_twice(patch: pytest.MonkeyPatch) -> GPT:
    """What folding it into the unembedding does when the norm keeps it, as with a tied matrix."""
    gpt = small()
    folded = gpt.unembed.weight.detach() * gpt.ln_final.w.detach()
    patch.setattr(gpt.unembed, "forward", lambda x: F.linear(x, folded))
    return gpt


def a_lens_without_the_final_norm(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small()
    patch.setattr(gpt, "unembed_stream", lambda x: gpt.unembed(x))
    return gpt


def a_placement_that_is_ignored(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small(norm="post")
    for block in gpt.layers:
        block.norm = Norm.PRE
    return gpt


def a_sum_without_alpha(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small(norm="deepnorm")
    for block in gpt.layers:
        block.carry = 1.0
    return gpt


def a_placement_that_forgets_to_shrink(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small(norm="scaled", n_layers=2)
    gpt.layers[1].ln2.shrink = 1.0
    return gpt


def an_output_norm_that_is_never_applied(patch: pytest.MonkeyPatch) -> GPT:
    original = Block._written

    def written(self: Block, out: Tensor, norm: Any, call: Call | None) -> Tensor:
        return out if norm is self.ln1_post else original(self, out, norm, call)

    patch.setattr(Block, "_written", written)
    return small(norm="sandwich")


def another_activation_function(patch: pytest.MonkeyPatch) -> GPT:
    patch.setattr(model.ffn, "activation", lambda kind, x: F.gelu(x, approximate="tanh"))
    return small(ffn=FFNKind.GELU)


def an_ffn_that_sees_the_next_token(patch: pytest.MonkeyPatch) -> GPT:
    original = FFN.forward
    patch.setattr(FFN, "forward", lambda self, x, call: original(self, x + 0.01 * x.roll(-1, 1), call))
    return small()


def reading_that_takes_another_path(patch: pytest.MonkeyPatch) -> GPT:
    original = NormLayer.forward

    def forward(self: NormLayer, x: Tensor, call: Call | None = None) -> Tensor:
        return original(self, x * (1 + 2e-7) if call is not None and call.reads else x, call)

    patch.setattr(NormLayer, "forward", forward)
    return small()


def edits_that_take_part_unchanged(patch: pytest.MonkeyPatch) -> GPT:
    original = HookPoint.beside

    def beside(self: HookPoint, x: Tensor, call: Call | None) -> Tensor | None:
        visited = original(self, x, call)
        is_edited = call is not None and self.name in call.edits and self.name.endswith("hook_result")
        return x if visited is None and is_edited else visited

    patch.setattr(HookPoint, "beside", beside)
    return small()


def dropout_that_is_on(patch: pytest.MonkeyPatch) -> GPT:
    return small(dropout=0.3).train()


def an_ablation_that_takes_the_bias_too(patch: pytest.MonkeyPatch) -> GPT:
    @contextmanager
    def ablated(gpt: GPT, places: str) -> Iterator[GPT]:
        with gpt.hooks([(lambda name: name.endswith(("attn_out", "mlp_out")), lambda x, hook: x * 0)]):
            yield gpt

    patch.setattr("interp.audit.runs.ablated", ablated)
    return small(biases=True)


def heads_that_are_slices_of_what_attention_wrote(patch: pytest.MonkeyPatch) -> GPT:
    def hooks_for(gpt: GPT, places: str) -> list[Any]:
        def cut(written: Tensor, hook: Any) -> None:
            written[..., hook.layer * gpt.config.head_width : (hook.layer + 1) * gpt.config.head_width] = 0

        return [(f"blocks.{layer}.hook_attn_out", cut) for layer in range(gpt.config.n_layers)]

    patch.setattr("interp.audit.runs.hooks_for", hooks_for)
    return small()


def attribution_that_does_not_centre(patch: pytest.MonkeyPatch) -> GPT:
    patch.setattr(interp.attribution, "before_norm", lambda norm, scale, direction: direction * norm.w / scale)
    return small(norm_kind="layernorm")


def positions_that_are_added_twice(patch: pytest.MonkeyPatch) -> GPT:
    original = GPT._embedded
    patch.setattr(
        GPT,
        "_embedded",
        lambda self, tokens, run: original(self, tokens, run) + self.pos_embed(run.positions.clamp(min=0)),
    )
    return small(positions="learned")


def a_parameter_that_the_config_does_not_know(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small()
    gpt.register_parameter("extra", nn.Parameter(torch.zeros(3)))
    return gpt


def a_query_bias_that_is_forgotten(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small(biases=True)
    linear = gpt.layers[0].attn.q_proj
    patch.setattr(linear, "forward", lambda x: F.linear(x, linear.weight))
    return gpt


def an_ffn_bias_that_is_forgotten(patch: pytest.MonkeyPatch) -> GPT:
    gpt = small(biases=True)
    linear = gpt.layers[0].mlp.out_proj
    patch.setattr(linear, "forward", lambda x: F.linear(x, linear.weight))
    return gpt


def a_pattern_with_queries_and_keys_exchanged(patch: pytest.MonkeyPatch) -> GPT:
    original = HookPoint.__call__

    def call(self: HookPoint, x: Tensor, call: Call | None) -> Tensor:
        if self.name.endswith("hook_pattern"):
            return original(self, x.transpose(-1, -2), call).transpose(-1, -2)
        return original(self, x, call)

    patch.setattr(HookPoint, "__call__", call)
    return small()


FAULTS: dict[Fault, set[str]] = {
    no_square_root_of_d: {"scores", "fused attention"},
    scores_that_are_the_pattern: {"scores", "mask", "pattern"},
    a_pattern_with_queries_and_keys_exchanged: {"mask", "pattern", "values mixed"},
    transposed_head_layout: {"head results", "attention output", "additive heads", "attribution", "head ablation"},
    a_rope_base_that_is_not_the_configs: {"rotation"},
    half_precision_rotary_tables: {"rotation"},
    the_wrong_pairs_rotated: {"rotation"},
    a_mask_that_is_a_large_number: {"mask"},
    a_mask_of_the_wrong_sign: {"mask", "scores", "fused attention"},
    a_softmax_that_is_too_warm: {"pattern", "fused attention"},
    key_value_heads_shared_by_the_wrong_heads: {"scores", "values mixed"},
    wrong_slopes: {"scores"},
    a_query_bias_that_is_forgotten: {"queries, keys, values"},
    a_cache_that_writes_one_position_late: {"cached decode"},
    a_cache_that_interventions_do_not_reach: {"cached decode"},
    positions_that_count_padding: {"padding"},
    positions_that_are_added_twice: {"additive stream", "additive heads", "attribution"},
    a_matrix_that_lost_its_tie: {"tied matrix", "parameters"},
    a_matrix_that_is_tied_against_the_config: {"tied matrix", "parameters"},
    a_parameter_that_the_config_does_not_know: {"parameters"},
    a_weight_that_is_not_a_number: {"finite weights"},
    a_gain_that_was_folded_away: {"norms", "last lens", "attribution"},
    a_final_gain_that_is_applied_twice: {"last lens", "attribution"},
    a_lens_without_the_final_norm: {"last lens"},
    another_epsilon: {"norms", "last lens"},
    a_placement_that_is_ignored: {"queries, keys, values", "FFN input", "norms", "stream"},
    a_sum_without_alpha: {"norms", "stream"},
    a_placement_that_forgets_to_shrink: {"norms"},
    an_output_norm_that_is_never_applied: {"places"},
    another_activation_function: {"coefficients"},
    an_ffn_bias_that_is_forgotten: {"FFN output", "ablation"},
    an_ffn_that_sees_the_next_token: {"FFN input", "cached decode", "padding", "causality"},
    reading_that_takes_another_path: {"reading"},
    edits_that_take_part_unchanged: {"idle edit"},
    dropout_that_is_on: {"dropout"},
    an_ablation_that_takes_the_bias_too: {"ablation"},
    heads_that_are_slices_of_what_attention_wrote: {"head ablation"},
    attribution_that_does_not_centre: {"attribution"},
}
"""What goes wrong, and exactly the checks that must fail."""


@pytest.mark.parametrize(("fault", "expected"), FAULTS.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_fault_fails_the_checks_that_it_should_and_no_others(
    fault: Fault, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failed(fault(monkeypatch)) == expected


def test_every_check_is_failed_by_some_fault() -> None:
    assert set().union(*FAULTS.values()) == CLAIMS.keys() - FILES
