"""Layers taken apart by hand, against a slow loop over prefixes and memories, and where they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ffn_composed import Case, Composed, Counted, joined
from interp.ffn_composition import composed, memory_tokens
from interp.ffn_parts import (
    LayerParts,
    decoder_of,
    largest_coefficients,
    read_parts,
    require_composition,
    top_tokens,
    written_values,
)
from interp.memory_values import value_scores
from interp.null_models import dealt_orders
from model import GPT, GPTConfig
from model.errors import InputError, NotAdditiveError
from tests import planted
from tests.conftest import make_gpt_with

MODELS: dict[str, dict[str, Any]] = {
    "pre": {},
    "layernorm": {"norm_kind": "layernorm", "biases": True, "ffn": "gelu_tanh"},
    "sandwich": {"norm": "sandwich", "norm_kind": "layernorm", "biases": True, "ffn": "swiglu"},
    "reordered": {"norm": "reordered", "ffn": "swiglu"},
    "scaled": {"norm": "scaled", "ffn": "relu", "tie_embeddings": False},
    "none": {"norm": "none", "ffn": "relu", "biases": True},
}
"""Every placement with an additive stream, and every kind of FFN."""


def sample(n: int = 3, pos: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(50, (n, pos), generator=generator)
    return tokens, torch.rand(n, pos, generator=generator) < 0.4


def taken_apart(gpt: GPT, order: Any = None) -> tuple[tuple[LayerParts, ...], Composed]:
    tokens, taken = sample()
    parts, _ = read_parts(gpt, tokens, taken)
    n = int(taken.sum())
    found = composed(
        gpt,
        parts,
        memory_tokens(gpt),
        threshold=0.1 * largest_coefficients(gpt, tokens, taken),
        other=(torch.arange(n) + 3) % n,
        dealt=dealt_orders(gpt, 2) if order is None else order,
    )
    return parts, found


@pytest.fixture(params=MODELS)
def gpt(request: pytest.FixtureRequest) -> GPT:
    return make_gpt_with(d_ff=20, **MODELS[request.param])


def test_parts_are_the_models_own(gpt: GPT) -> None:
    tokens, taken = sample()
    parts, output = read_parts(gpt, tokens, taken)
    _, cache = gpt.run_with_cache(tokens)
    torch.testing.assert_close(output, cache["resid_post", 1][taken])
    for layer, each in enumerate(parts):
        torch.testing.assert_close(each.stream + each.update, cache["resid_post", layer][taken])
        written = each.summed(each.coefficients, written_values(gpt, layer))
        constant = each.update - written
        mlp, norm = gpt.layers[layer].mlp, gpt.layers[layer].ln2_post
        assert mlp is not None
        bias = torch.zeros(32) if mlp.out_proj.bias is None else mlp.out_proj.bias.detach()
        if norm is not None:
            bias = (bias - bias.mean() if norm.centres else bias) * norm.w / each.scale
            bias = bias if norm.b is None else bias + norm.b
        torch.testing.assert_close(constant, bias.expand_as(constant), atol=1e-5, rtol=1e-4)
    final = top_tokens(gpt(tokens)[taken])
    assert torch.equal(taken_apart(gpt)[1].final_token, final)


def test_every_number_is_that_of_a_slow_loop(gpt: GPT) -> None:
    """One prefix at a time, one memory at a time, with the model's own norm and unembedding for streams."""
    parts, found = taken_apart(gpt)
    tokens, taken = sample()
    largest = largest_coefficients(gpt, tokens, taken)
    orders = dealt_orders(gpt, 2)
    n = len(found.final_token)
    unembed = gpt.folded_unembed()
    for layer, each in enumerate(parts):
        scores = value_scores(gpt, layer)
        values, order = written_values(gpt, layer), orders[layer]
        for row in range(n):
            r, y, m = each.stream[row], each.update[row], each.coefficients[row]
            y_other = each.update[(row + 3) % n]
            y_dealt = y + sum(m[i] * (values[order[i]] - values[i]) for i in range(len(m))) / each.scale[row]
            assert found.stream_token[row, layer] == read(gpt, r).argmax()
            assert found.update_token[row, layer] == (y @ unembed).argmax()
            assert found.output_token[row, layer] == read(gpt, r + y).argmax()
            final = int(found.final_token[row])
            assert float(found.stream_probability[row, layer]) == pytest.approx(
                float(read(gpt, r).softmax(-1)[final]), abs=1e-5
            )
            assert float(found.output_probability[row, layer]) == pytest.approx(
                float(read(gpt, r + y).softmax(-1)[final]), abs=1e-5
            )
            for update, cases in ((y, found.case), (y_other, found.case_other), (y_dealt, found.case_dealt)):
                assert cases[row, layer] == slow_case(gpt, r, update, unembed)
            for update, dealt, counts in (
                (y, range(len(m)), found.n_agreeing),
                (y_dealt, order, found.n_agreeing_dealt),
            ):
                expected = slow_counts(m, scores, dealt, int((update @ unembed).argmax()), 0.1 * largest[layer])
                assert counts[:, row, layer].tolist() == [expected[kind] for kind in Counted]
            weights = sorted((float(m[i].abs() * values[i].norm()) for i in range(len(m))), reverse=True)
            held, count = 0.0, 0
            while held < 0.9 * sum(weights):
                held, count = held + weights[count], count + 1
            assert float(found.carrying[row, layer]) == pytest.approx(count / len(m), abs=1.01 / len(m))
            assert float(found.active[row, layer]) == pytest.approx(sum(float(each) > 0 for each in m) / len(m))
            strong = sum(abs(float(m[i])) > 0.1 * float(largest[layer, i]) for i in range(len(m)))
            assert float(found.strong[row, layer]) == pytest.approx(strong / len(m))


def read(gpt: GPT, stream: Tensor) -> Tensor:
    return gpt.unembed_stream(stream).detach()


def slow_case(gpt: GPT, r: Tensor, y: Tensor, unembed: Tensor) -> Case:
    one, two, three = int(read(gpt, r).argmax()), int((y @ unembed).argmax()), int(read(gpt, r + y).argmax())
    if one == two:
        return Case.AGREEMENT if three == one else Case.IMPOSSIBLE
    return Case.RESIDUAL if three == one else Case.FFN if three == two else Case.COMPOSITION


def slow_counts(m: Tensor, scores: Tensor, dealt: Any, asked: int, threshold: Tensor) -> dict[Counted, int]:
    counts = dict.fromkeys(Counted, 0)
    for i, whose in enumerate(dealt):
        up, down = int(scores[whose].argmax()), int(scores[whose].argmin())
        own = up if m[i] > 0 else down
        counts[Counted.ALL] += up == asked
        counts[Counted.ACTIVE] += up == asked and bool(m[i] > 0)
        counts[Counted.SIGNED] += own == asked and bool(m[i] != 0)
        counts[Counted.STRONG] += own == asked and bool(m[i].abs() > threshold[i])
    return counts


# --- by hand ----------------------------------------------------------------------------------------------------------


def plain(values: list[list[float]], **changes: Any) -> GPT:
    """One layer whose stream is its own logits: four tokens, one dimension for each, and these values."""
    config: dict[str, Any] = {"n_layers": 1, "n_heads": 1, "d_model": 4, "n_ctx": 4, "d_vocab": 4, "d_ff": len(values)}
    config |= {"norm": "none", "ffn": "gelu", "tie_embeddings": False} | changes
    gpt = GPT(GPTConfig(**config)).eval()
    with torch.no_grad():
        gpt.unembed.weight.copy_(torch.eye(4))
        gpt.layers[0].mlp.out_proj.weight.copy_(torch.tensor(values).T)  # type: ignore[union-attr]
    return gpt


def by_hand(gpt: GPT, stream: list[list[float]], coefficients: list[list[float]], **options: Any) -> Composed:
    r, m = torch.tensor(stream), torch.tensor(coefficients)
    update = m @ written_values(gpt, 0)
    parts = LayerParts(stream=r, update=update, coefficients=m, scale=torch.ones(len(r), 1))
    n, width = len(r), gpt.config.ffn_width
    return composed(
        gpt,
        [parts],
        memory_tokens(gpt),
        threshold=options.get("threshold", torch.zeros(1, width)),
        other=options.get("other", (torch.arange(n) + 1) % n),
        dealt=options.get("dealt", [torch.arange(width)]),
    )


VALUES = [[4.0, 0.0, 0.0, -1.0], [0.0, 4.0, 3.0, -9.0]]
"""Memory 0 promotes token 0 and suppresses token 3; memory 1 promotes 1, then 2, and suppresses 3 more."""


@pytest.mark.parametrize(
    ("stream", "coefficients", "case"),
    [
        ([3.0, 0.0, 0.0, 0.0], [0.0, 0.5], Case.RESIDUAL),  # 3, 2, 1.5
        ([3.0, 0.0, 0.0, 0.0], [0.0, 1.0], Case.FFN),  # 3, 4, 3
        ([3.0, 0.0, 0.0, 0.0], [0.5, 0.1], Case.AGREEMENT),
        ([3.0, 0.0, 2.0, 0.0], [0.0, 1.0], Case.COMPOSITION),  # 3, 4, 5: token 2 was nobody's first
        ([3.0, 0.0, 2.0, 0.0], [0.0, 0.0], Case.RESIDUAL),  # y says nothing
        ([0.0, 0.0, 0.0, 0.0], [1.0, 0.0], Case.FFN),  # r says nothing
        ([0.0, 0.0, 0.0, 0.0], [0.0, 0.0], Case.AGREEMENT),  # neither does
    ],
)
def test_each_case_made_by_hand(stream: list[float], coefficients: list[float], case: Case) -> None:
    found = by_hand(plain(VALUES), [stream, [1.0, 0, 0, 0]], [coefficients, [0.0, 1.0]])
    assert found.case[0, 0] == case
    assert found.case_dealt[0, 0] == case  # every memory was dealt its own
    alone = by_hand(plain(VALUES), [stream, stream], [[0.0, 1.0], coefficients])
    assert alone.case_other[0, 0] == case  # with the other's update


def test_a_negative_coefficient_promotes_what_the_value_suppresses() -> None:
    found = by_hand(plain(VALUES), [[0.0, 0, 0, 1], [0.0, 0, 0, 1]], [[-0.1, -1.0], [1.0, -0.01]])
    assert found.update_token[:, 0].tolist() == [3, 0]
    assert memory_tokens(plain(VALUES)).bottom.tolist() == [[3, 3]]
    counts = dict(zip(Counted, found.n_agreeing[:, :, 0].tolist(), strict=True))
    assert counts[Counted.ALL] == [0, 1]
    assert counts[Counted.ACTIVE] == [0, 1]
    assert counts[Counted.SIGNED] == [2, 1]
    strong = by_hand(
        plain(VALUES), [[0.0, 0, 0, 1], [0.0, 0, 0, 1]], [[-0.1, -1.0], [1.0, -0.01]], threshold=torch.full((1, 2), 0.5)
    )
    assert strong.n_agreeing[-1, :, 0].tolist() == [1, 1]
    assert strong.strong[:, 0].tolist() == [0.5, 0.5]
    assert strong.active[:, 0].tolist() == [0, 0.5]


def test_a_layer_may_say_what_none_of_its_memories_says() -> None:
    """Two memories with other first tokens share a second one: zero agreement."""
    gpt = plain([[4.0, 0.0, 3.0, 0.0], [0.0, 4.0, 3.0, 0.0]])
    found = by_hand(gpt, [[1.0, 0, 0, 0]] * 2, [[1.0, 1.0], [1.0, 0.0]])
    assert found.update_token[:, 0].tolist() == [2, 0]
    assert (found.n_agreeing[:, 0] == 0).all()
    assert (found.n_agreeing[:, 1] == 1).all()


def test_nothing_is_no_prediction_and_agrees_with_nobody() -> None:
    found = by_hand(plain(VALUES, ffn="relu"), [[1.0, 0, 0, 0]] * 2, [[0.0, 0.0], [1.0, 0.0]])
    assert found.update_token[:, 0].tolist() == [-1, 0]
    assert (found.n_agreeing[:, 0] == 0).all()
    assert found.carrying[:, 0].tolist() == [0.0, 0.5]


def test_dealing_counts_the_dealt_values_and_the_update_made_of_them() -> None:
    found = by_hand(plain(VALUES), [[1.0, 0, 0, 0]] * 2, [[1.0, 0.1], [0.2, 1.0]], dealt=[torch.tensor([1, 0])])
    assert found.update_token[:, 0].tolist() == [0, 1]
    assert (found.n_agreeing_dealt[1] == 1).all()  # y is then of tokens 1 and 0, and so are the strongest memories
    assert found.case.tolist() == [[Case.AGREEMENT], [Case.FFN]]
    assert found.case_dealt.tolist() == [[Case.FFN], [Case.AGREEMENT]]


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("layernorm", "sandwich")])
def test_without_a_final_bias_an_agreed_token_is_never_given_up(name: str) -> None:
    """Rounding included: streams with equal logits, and of very different sizes."""
    gpt = make_gpt_with(**MODELS[name], seed=3)
    generator = torch.Generator().manual_seed(1)
    n, width = 400, gpt.config.ffn_width
    sizes = 10 ** torch.empty(n, 1).uniform_(-4, 4, generator=generator)
    stream = torch.randn(n, 32, generator=generator) * sizes
    alike = torch.rand(n, 1, generator=generator) < 0.5
    update = torch.where(alike, stream * 0.3, torch.randn(n, 32, generator=generator))
    coefficients = torch.rand(n, width, generator=generator)
    parts = LayerParts(stream=stream, update=update, coefficients=coefficients, scale=torch.ones(n, 1))
    found = composed(
        gpt, [parts, parts], memory_tokens(gpt), threshold=torch.zeros(2, width), other=(torch.arange(n) + 1) % n,
        dealt=dealt_orders(gpt, 0),
    )  # fmt: skip
    for cases in (found.case, found.case_other, found.case_dealt):
        assert (cases != Case.IMPOSSIBLE).all()
    assert (found.case == Case.AGREEMENT).float().mean() > 0.3


def test_the_bias_of_a_final_layernorm_can_undo_an_agreed_token() -> None:
    """Token 0 leads in r by more than the bias is worth there; in the larger o the bias, undivided, is worth more."""
    gpt = plain(VALUES, norm="pre", norm_kind="layernorm", biases=True)
    assert gpt.ln_final is not None
    assert gpt.ln_final.b is not None
    gpt.ln_final.b.data[:] = torch.tensor([0.0, 0.5, 0.0, 0.0])
    found = by_hand(gpt, [[1.0, 0.4, -0.7, -0.7], [0.0, 0, 0, 1]], [[0.0, 0.0], [1.0, 0.0]])
    assert found.stream_token[0, 0] == 0
    assert found.case[0, 0] == Case.RESIDUAL
    larger = LayerParts(
        stream=torch.tensor([[1.0, 0.4, -0.7, -0.7]] * 2), update=torch.tensor([[9.05, 9.0, -19.0, 0.95]] * 2),
        coefficients=torch.zeros(2, 2), scale=torch.ones(2, 1),
    )  # fmt: skip
    found = composed(
        gpt, [larger], memory_tokens(gpt), threshold=torch.zeros(1, 2), other=torch.tensor([1, 0]),
        dealt=[torch.arange(2)],
    )  # fmt: skip
    assert (found.stream_token[0, 0], found.update_token[0, 0], found.output_token[0, 0]) == (0, 0, 1)
    assert found.case[0, 0] == Case.IMPOSSIBLE
    gpt.ln_final.b.data[:] = 0.0
    found = composed(
        gpt, [larger], memory_tokens(gpt), threshold=torch.zeros(1, 2), other=torch.tensor([1, 0]),
        dealt=[torch.arange(2)],
    )  # fmt: skip
    assert found.case[0, 0] == Case.AGREEMENT


def test_of_equal_logits_the_streams_token_is_kept() -> None:
    """r and o say token 1 and token 0 equally: the update that only ties does not make a new prediction."""
    found = by_hand(plain([[2.0, 0.0, 0.0, 0.0]]), [[0.0, 2.0, 0, 0]] * 2, [[1.0], [1.0]])
    assert found.output_token[:, 0].tolist() == [1, 1]
    assert found.case[:, 0].tolist() == [Case.RESIDUAL] * 2


def test_the_planted_memory_makes_its_prediction_where_it_fires() -> None:
    gpt = planted.memory_model()
    tokens = torch.tensor([[0, 3, 5, 9, 5]])
    taken = torch.ones_like(tokens, dtype=torch.bool)
    parts, _ = read_parts(gpt, tokens, taken)
    found = composed(
        gpt, parts, memory_tokens(gpt), threshold=torch.zeros(1, 8), other=(torch.arange(5) + 1) % 5,
        dealt=[torch.arange(8)],
    )  # fmt: skip
    assert found.final_token.tolist() == [-1, -1, 7, -1, -1]
    assert found.update_token[:, 0].tolist() == [-1, -1, 7, -1, -1]
    assert found.case[2, 0] == Case.FFN
    assert found.n_agreeing[1, :, 0].tolist() == [0, 0, 1, 0, 0]
    assert found.active[:, 0].tolist() == [0, 0, 1 / 8, 0, 0]


def test_lots_of_prefixes_joined_are_all_of_them(gpt: GPT) -> None:
    _, found = taken_apart(gpt)
    twice = joined([found, found])
    assert twice.case.shape == (2 * len(found.case), 2)
    assert twice.n_agreeing.shape == (4, 2 * len(found.case), 2)
    assert torch.equal(twice.n_agreeing[:, len(found.case) :], found.n_agreeing)


def test_values_dealt_back_change_nothing(gpt: GPT) -> None:
    _, found = taken_apart(gpt, [torch.arange(gpt.config.ffn_width)] * 2)
    assert torch.equal(found.n_agreeing, found.n_agreeing_dealt)
    assert torch.equal(found.case, found.case_dealt)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"norm": "post"}, NotAdditiveError, "apart into stream and FFN update needs a residual stream that is a sum"),
        ({"norm": "deepnorm"}, NotAdditiveError, "with norm=deepnorm it is not"),
        ({"skip_connections": False}, NotAdditiveError, "skip_connections=false"),
        ({"ffn": "none"}, InputError, "attention-only"),
        ({"attention": "bidirectional"}, InputError, "later tokens"),
    ],
)
def test_models_without_such_parts_are_refused(changes: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        require_composition(make_gpt_with(**changes))


def test_dropout_and_a_prefix_beside_itself_are_refused(make_gpt: Callable[..., GPT]) -> None:
    with pytest.raises(InputError, match="dropout"):
        require_composition(make_gpt(dropout=0.1).train())
    with pytest.raises(InputError, match="another prefix than itself"):
        by_hand(plain(VALUES), [[1.0, 0, 0, 0]] * 2, [[1.0, 0.1]] * 2, other=torch.tensor([0, 1]))


def test_the_bias_is_read_with_streams_alone() -> None:
    gpt = make_gpt_with(**MODELS["layernorm"])
    decoder = decoder_of(gpt)
    stream = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(decoder.logits(decoder.linear(stream), stream), gpt.unembed_stream(stream).detach())
    assert decoder.bias is not None
    assert not torch.equal(decoder.linear(stream), decoder.linear(stream) + decoder.bias)
