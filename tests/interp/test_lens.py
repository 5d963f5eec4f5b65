"""The logit lens: every reading through its own scale, and the last one the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp.lens import logit_lens
from model import GPT, Norm, NormKind
from model.errors import InputError
from tests import planted


@pytest.fixture
def bare() -> Iterator[None]:
    """As users run it, without checking types at the door."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("norm_kind", list(NormKind))
@pytest.mark.parametrize("norm", list(Norm))
def test_the_last_reading_is_the_models_own(
    make_gpt: Callable[..., GPT], tokens: Tensor, norm: Norm, norm_kind: NormKind
) -> None:
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, biases=True)
    reading = logit_lens(gpt, tokens, tokens)
    own = gpt(tokens).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    torch.testing.assert_close(reading.log_probability[-1], own)
    assert reading.divergence[-1].abs().max() < 1e-6
    assert bool(reading.agrees[-1].all())
    assert reading.labels == ("embed", "L0", "L1")


@pytest.mark.parametrize("norm_kind", list(NormKind))
def test_each_layer_is_read_through_the_norm_of_its_own_stream(
    make_gpt: Callable[..., GPT], tokens: Tensor, norm_kind: NormKind
) -> None:
    """A last layer that writes a lot makes the last scale wrong for the layers below: they keep their prediction."""
    gpt = make_gpt(norm_kind=norm_kind, biases=True).double()
    with torch.no_grad():
        gpt.layers[1].mlp.out_proj.weight.mul_(300)
    reading = logit_lens(gpt, tokens, tokens)
    _, cache = gpt.run_with_cache(tokens)
    stream, norm = cache["resid_post", 0], gpt.ln_final
    centred = stream - stream.mean(-1, keepdim=True) if norm_kind is NormKind.LAYERNORM else stream
    scale = (centred.square().mean(-1, keepdim=True) + gpt.config.norm_eps).sqrt()

    def read_with(scale: Tensor) -> Tensor:
        normed = centred / scale * norm.w + (0 if norm.b is None else norm.b)
        return (normed @ gpt.W_U).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]

    torch.testing.assert_close(reading.log_probability[1], read_with(scale))
    with_last_scale = read_with(cache["ln_final.hook_scale"])
    assert (with_last_scale - read_with(scale)).abs().max() > 1, "the usual mistake would show"


def test_the_planted_answer_appears_where_it_is_written() -> None:
    gpt = planted.induction_model()
    half = torch.arange(10)
    tokens = torch.cat((half, half))[None]
    reading = logit_lens(gpt, tokens, torch.roll(tokens, -1, 1))
    probability = reading.log_probability[:, 0, 11:19].exp()
    torch.testing.assert_close(probability[:2], torch.full((2, 8), 1 / planted.D_VOCAB))
    assert probability[2].min() > 0.99


def test_dropout_and_foreign_targets_are_refused(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    with pytest.raises(InputError, match="call gpt.eval"):
        logit_lens(make_gpt(dropout=0.1).train(), tokens, tokens)
    with pytest.raises(InputError, match="one token for each of the positions"):
        logit_lens(make_gpt(), tokens, tokens[:, :3])


def test_the_likeliest_token_of_each_reading_is_told(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    gpt = make_gpt(biases=True)
    reading = logit_lens(gpt, tokens, tokens)
    _, cache = gpt.run_with_cache(tokens)
    for place, stream in enumerate([cache["resid_pre", 0], cache["resid_post", 0], cache["resid_post", 1]]):
        assert torch.equal(reading.likeliest[place], gpt.unembed_stream(stream).argmax(-1))
    assert torch.equal(reading.agrees, reading.likeliest == gpt(tokens).argmax(-1))
    assert repr(reading) == "LensReading(embed, L0, L1; [3, 12] positions)"


@pytest.mark.usefixtures("bare")
def test_one_target_stands_for_all_positions(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    gpt = make_gpt()
    one, each = logit_lens(gpt, tokens, 5), logit_lens(gpt, tokens, torch.full_like(tokens, 5))
    assert torch.equal(one.log_probability, each.log_probability)
    with pytest.raises(InputError, match="token id 50 is outside"):
        logit_lens(gpt, tokens, 50)
    for wrong in ("pass", True, 5.0, [5]):
        with pytest.raises(InputError, match=r"is not a token id; .*lab\.tokenizer\.encode"):
            logit_lens(gpt, tokens, wrong)  # type: ignore[arg-type]
