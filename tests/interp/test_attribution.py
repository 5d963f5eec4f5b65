"""Direct logit attribution: parts that sum to the logits, planted truth, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp.attention_bases import Against
from interp.attribution import FINAL_BIAS, Attribution, Detail, logit_attribution
from model import GPT, Norm, NormKind
from model.errors import InputError, NotAdditiveError, UnknownNameError
from tests import planted

ADDITIVE = [norm for norm in Norm if norm not in (Norm.POST, Norm.DEEPNORM)]
EXTRAS: list[dict[str, Any]] = [
    {"biases": True, "positions": "learned"},
    {"positions": "sinusoidal", "ffn": "swiglu", "n_kv_heads": 2},
    {"ffn": "none", "d_head": 6, "tie_embeddings": False},
    {"attention": "bidirectional", "biases": True},
]


def at_targets(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.gather(-1, targets[..., None])[..., 0]


@pytest.fixture
def bare() -> Iterator[None]:
    """As users run it, without checking types at the door."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def targets() -> Tensor:
    return torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(11))


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("norm_kind", list(NormKind))
@pytest.mark.parametrize("norm", ADDITIVE)
def test_the_parts_of_a_logit_sum_to_it(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor, norm: Norm, norm_kind: NormKind, detail: Detail
) -> None:
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, biases=True)
    expected = at_targets(gpt(tokens), targets)
    total = logit_attribution(gpt, tokens, targets, detail=detail).total
    assert (total - expected).abs().max() / expected.abs().max() < 1e-5
    gpt.double()
    exact = logit_attribution(gpt, tokens, targets, detail=detail).total
    torch.testing.assert_close(exact, at_targets(gpt(tokens), targets), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
def test_they_sum_to_it_in_every_kind_of_model(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor, extra: dict[str, Any]
) -> None:
    gpt = make_gpt(norm_kind="layernorm", **extra).double()
    total = logit_attribution(gpt, tokens, targets).total
    torch.testing.assert_close(total, at_targets(gpt(tokens), targets), rtol=1e-10, atol=1e-10)


def test_a_difference_of_logits_is_the_difference_of_their_parts(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor
) -> None:
    gpt = make_gpt(norm_kind="layernorm", biases=True).double()
    one, other = logit_attribution(gpt, tokens, targets), logit_attribution(gpt, tokens, targets.flip(0))
    both = logit_attribution(gpt, tokens, targets, targets.flip(0))
    torch.testing.assert_close(both.values, one.values - other.values)
    assert both.labels == one.labels


@pytest.mark.parametrize("norm", [Norm.PRE, Norm.SANDWICH, Norm.NONE])
def test_less_the_mean_logit_is_the_mean_over_all_others(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor, norm: Norm
) -> None:
    gpt = make_gpt(norm=norm, norm_kind="layernorm", biases=True).double()
    found = logit_attribution(gpt, tokens, targets, Against.MEAN)
    logits = gpt(tokens)
    torch.testing.assert_close(found.total, at_targets(logits, targets) - logits.mean(-1))
    one_by_one = torch.stack([logit_attribution(gpt, tokens, targets, token).values for token in range(50)])
    torch.testing.assert_close(found.values, one_by_one.mean(0))
    assert torch.equal(
        logit_attribution(gpt, tokens, targets, "nothing").values, logit_attribution(gpt, tokens, targets).values
    )


def test_the_sublayers_are_the_sums_of_their_heads_and_bias(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor
) -> None:
    gpt = make_gpt(norm="sandwich", norm_kind="layernorm", biases=True).double()
    fine = logit_attribution(gpt, tokens, targets)
    whole = logit_attribution(gpt, tokens, targets, detail=Detail.SUBLAYERS)
    of_layer = [index for index, label in enumerate(fine.labels) if label.startswith("L1") and label != "L1.ffn"]
    torch.testing.assert_close(fine.values[of_layer].sum(0), whole.of("L1.attn"))
    torch.testing.assert_close(fine.of("L1.ffn"), whole.of("L1.ffn"))


def test_every_component_has_its_name(make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor) -> None:
    gpt = make_gpt(n_heads=2, positions="learned", biases=True, norm_kind="layernorm", norm="sandwich")
    found = logit_attribution(gpt, tokens, targets)
    layers = [
        label
        for layer in (0, 1)
        for label in (f"L{layer}H0", f"L{layer}H1", f"L{layer}.b_O", f"L{layer}.ln1_post bias", f"L{layer}.ffn")
    ]
    assert list(found.labels) == ["embed", "pos_embed", *layers, FINAL_BIAS]
    assert found.note == ("The scale of blocks.0.ln1_post, blocks.1.ln1_post, ln_final is held at the run's own value.")
    with pytest.raises(UnknownNameError, match='no component "L0H7" was attributed. Did you mean "L0H'):
        found.of("L0H7")


def test_what_was_held_fixed_is_said(make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor) -> None:
    assert logit_attribution(make_gpt(), tokens, targets).frozen == ("ln_final",)
    assert logit_attribution(make_gpt(norm="none"), tokens, targets).note.startswith("No norm stands on the way")
    whole = logit_attribution(make_gpt(norm="reordered"), tokens, targets, detail=Detail.SUBLAYERS)
    assert whole.frozen == ("ln_final",), "whole sublayers need no output norm held"


def test_the_planted_induction_head_alone_adds_to_the_logit_of_what_followed() -> None:
    gpt = planted.induction_model()
    half = torch.arange(10)
    tokens = torch.cat((half, half))[None]
    found = logit_attribution(gpt, tokens, torch.roll(tokens, -1, 1))
    copying = found.values[:, 0, 11:19]
    layer, index = planted.INDUCTION_HEAD
    assert torch.equal(found.of(f"L{layer}H{index}")[0, 11:19], torch.full((8,), 20.0))
    others = [place for place, label in enumerate(found.labels) if label != f"L{layer}H{index}"]
    assert copying[others].count_nonzero() == 0


@pytest.mark.parametrize("norm", ["none", "pre", "sandwich"])
def test_removing_a_last_layer_head_at_fixed_scales_takes_away_what_it_adds(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor, norm: str
) -> None:
    """The number is an effect: measured in a forward pass whose scales are held, in a model where nothing reads on."""
    gpt = make_gpt(norm=norm, norm_kind="layernorm", ffn="none", biases=True).double()
    clean, cache = gpt.run_with_cache(tokens)
    scales = [name for name in cache if name in ("ln_final.hook_scale", "blocks.1.ln1_post.hook_scale")]
    held = [(name, lambda _, hook: cache[hook.name]) for name in scales]

    def silent(z: Tensor, hook: object) -> None:
        z[:, :, 2] = 0

    without = gpt.run_with_hooks(tokens, [("blocks.1.attn.hook_z", silent), *held])
    removed = at_targets(clean - without, targets)
    torch.testing.assert_close(logit_attribution(gpt, tokens, targets).of("L1H2"), removed)


def test_the_sum_holds_for_a_normed_model_whose_gains_and_biases_are_large(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor
) -> None:
    """Leaving out the final norm's gain, bias or centring is the usual mistake: each changes the sum grossly."""
    gpt = make_gpt(norm_kind="layernorm", biases=True).double()
    with torch.no_grad():
        gpt.ln_final.w.mul_(3)
        gpt.ln_final.b.add_(2)
        gpt.embed.weight.add_(1)  # a mean that centring has to take away
    expected = at_targets(gpt(tokens), targets)
    found = logit_attribution(gpt, tokens, targets)
    torch.testing.assert_close(found.total, expected)
    stream = gpt.run_with_cache(tokens, "blocks.1.hook_resid_post")[1]["resid_post", 1]
    unfolded = at_targets(stream @ gpt.W_U, targets)
    assert (unfolded - expected).abs().mean() > 1


def test_padding_changes_nothing_at_the_tokens(make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor) -> None:
    gpt = make_gpt().double()
    padded = torch.cat((torch.zeros(3, 4, dtype=torch.long), tokens), 1)
    mask = torch.arange(16).expand(3, -1) >= 4
    beside = logit_attribution(gpt, padded, torch.cat((padded[:, :4], targets), 1), attention_mask=mask)
    torch.testing.assert_close(beside.values[..., 4:], logit_attribution(gpt, tokens, targets).values)


def test_logits_over_the_vocabulary_are_not_formed_per_component(make_gpt: Callable[..., GPT]) -> None:
    """A large vocabulary costs what one unembedding costs, not one per component."""
    gpt = make_gpt(d_vocab=20_000, tie_embeddings=False)
    tokens = torch.zeros(2, 24, dtype=torch.long)
    made: list[int] = []

    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answer = function(*args, **(kwargs or {}))
            if isinstance(answer, Tensor):
                made.append(answer.numel())
            return answer

    with Counting():
        found = logit_attribution(gpt, tokens, tokens)
    assert isinstance(found, Attribution)
    assert max(made) <= 2 * 24 * 20_000


@pytest.mark.parametrize("changes", [{"norm": "post"}, {"norm": "deepnorm"}, {"skip_connections": False}], ids=str)
@pytest.mark.parametrize("detail", list(Detail))
def test_a_stream_that_is_no_sum_is_refused(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor, changes: dict[str, Any], detail: Detail
) -> None:
    with pytest.raises(NotAdditiveError, match="direct logit attribution needs a residual stream that is a sum"):
        logit_attribution(make_gpt(**changes), tokens, targets, detail=detail)


def test_a_model_whose_dropout_is_on_is_refused(make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor) -> None:
    gpt = make_gpt(dropout=0.5)
    identical = logit_attribution(gpt, tokens, targets).values - logit_attribution(gpt, tokens, targets).values
    assert identical.count_nonzero() == 0
    with pytest.raises(InputError, match="runs differ by chance; call gpt.eval"):
        logit_attribution(gpt.train(), tokens, targets)


def test_targets_must_be_tokens_for_each_position(
    make_gpt: Callable[..., GPT], tokens: Tensor, targets: Tensor
) -> None:
    with pytest.raises(InputError, match="give one token for each of the positions"):
        logit_attribution(make_gpt(), tokens, targets[:, :4])
    with pytest.raises(InputError, match="token id 50 is outside"):
        logit_attribution(make_gpt(), tokens, targets + 1)


@pytest.mark.usefixtures("bare")
def test_one_target_stands_for_all_positions(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    gpt = make_gpt()
    one = logit_attribution(gpt, tokens, 5, 7)
    each = logit_attribution(gpt, tokens, torch.full_like(tokens, 5), torch.full_like(tokens, 7))
    assert torch.equal(one.values, each.values)
    assert repr(one) == "Attribution(11 components, embed to L1.ffn; [3, 12] positions)"
    for wrong in ("pass", True):
        with pytest.raises(InputError, match=r"is not a token id; .*lab\.tokenizer\.encode"):
            logit_attribution(gpt, tokens, wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"is not a token id; .*lab\.tokenizer\.encode"):
            logit_attribution(gpt, tokens, 5, wrong)  # type: ignore[arg-type]
