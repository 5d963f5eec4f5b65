"""The logit lens: every reading through its own scale, and the last one the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp import lens
from interp.lens import LensDetail, LensReading, lens_places, logit_lens
from model import GPT, Norm, NormKind
from model.errors import InputError
from tests import planted
from tests.conftest import make_gpt_with


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


SUBLAYERS = ("embed", "L0.mid", "L0", "L1.mid", "L1")
NUMBERS = ("log_probability", "rank", "divergence", "entropy", "top", "top_probability", "agrees")


@pytest.mark.parametrize("norm", list(Norm))
def test_the_stream_between_attention_and_ffn_is_read_as_the_next_reader_gets_it(
    make_gpt: Callable[..., GPT], tokens: Tensor, norm: Norm
) -> None:
    """Under post and deepnorm that is behind a norm already; elsewhere the final norm is taken on it."""
    gpt = make_gpt(norm=norm, norm_kind="layernorm", biases=True).double()
    reading = logit_lens(gpt, tokens, tokens, detail="sublayers")
    assert reading.labels == SUBLAYERS
    _, cache = gpt.run_with_cache(tokens)
    mid = cache["resid_mid", 0]
    normed = mid if gpt.ln_final is None else gpt.ln_final(mid)
    expected = (normed @ gpt.W_U).log_softmax(-1)
    torch.testing.assert_close(reading.log_probability[1], expected.gather(-1, tokens[..., None])[..., 0])
    sum_of_both = cache["resid_pre", 0] + cache["attn_out", 0]
    assert torch.allclose(mid, sum_of_both) is (norm not in (Norm.POST, Norm.DEEPNORM))
    coarse = logit_lens(gpt, tokens, tokens)
    for name in NUMBERS:
        assert torch.equal(getattr(coarse, name), getattr(reading, name)[[0, 2, 4]]), name


def test_where_there_is_no_ffn_nothing_stands_between(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    assert logit_lens(make_gpt(ffn="none"), tokens, 1, detail=LensDetail.SUBLAYERS).labels == ("embed", "L0", "L1")


@pytest.mark.parametrize("norm", [Norm.PRE, Norm.POST])
def test_the_last_place_is_the_models_output_bit_for_bit(
    make_gpt: Callable[..., GPT], tokens: Tensor, norm: Norm
) -> None:
    gpt = make_gpt(norm=norm)
    reading = logit_lens(gpt, tokens, tokens, detail="sublayers", n_top=50)
    own = gpt(tokens).log_softmax(-1)
    assert torch.equal(reading.log_probability[-1], own.gather(-1, tokens[..., None])[..., 0])
    assert torch.equal(reading.top_probability[-1], own.gather(-1, reading.top[-1]).exp())
    assert int(reading.divergence[-1].count_nonzero()) == 0


def test_rank_entropy_and_the_top_are_those_of_the_distribution(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    gpt = make_gpt(norm_kind="layernorm", biases=True, tie_embeddings=False).double()
    reading = logit_lens(gpt, tokens, tokens.flip(0), detail="sublayers", n_top=4)
    _, cache = gpt.run_with_cache(tokens)
    own = gpt(tokens).softmax(-1)
    for index, place in enumerate(lens_places(gpt.config, "sublayers").values()):
        probability = gpt.unembed_stream(cache[place]).softmax(-1)
        order = probability.argsort(-1, descending=True)
        assert torch.equal(reading.top[index], order[..., :4])
        torch.testing.assert_close(reading.top_probability[index], probability.gather(-1, order[..., :4]))
        ranks = (order == tokens.flip(0)[..., None]).nonzero()[:, -1].view(3, 12) + 1
        assert torch.equal(reading.rank[index], ranks)
        torch.testing.assert_close(reading.entropy[index], torch.special.entr(probability).sum(-1))
        kl = torch.nn.functional.kl_div(probability.log(), own, reduction="none").sum(-1)
        torch.testing.assert_close(reading.divergence[index], kl, atol=1e-9, rtol=1e-6)


def test_of_equal_logits_the_lower_id_comes_first_and_they_have_the_entropy_of_no_preference() -> None:
    gpt = planted.induction_model()
    tokens = torch.arange(10)[None]
    reading = logit_lens(gpt, tokens, 7, n_top=planted.D_VOCAB)
    assert bool((reading.rank[0] == 8).all())
    torch.testing.assert_close(reading.entropy[0], torch.full((1, 10), float(planted.D_VOCAB)).log())
    assert torch.equal(reading.top[0, 0], torch.arange(planted.D_VOCAB).expand(10, -1)), "the lower id comes first"
    for n_top in (1, 5):
        few = logit_lens(gpt, tokens, 0, n_top=n_top)
        assert few.top[0, 0].tolist() == [list(range(n_top))] * 10, "at the cut too"
        assert bool((few.rank[0] == 1).all()), "the rank is that in the order of the likeliest"


def test_a_tie_at_the_cut_is_broken_by_id_whatever_lies_above_it() -> None:
    read = torch.full((2, 1000), -5.0)
    read[0, [3, 7, 400, 999]] = 1.0
    read[1, [900, 950]] = torch.tensor([2.0, 3.0])
    ids, values = lens._top(read, 3)
    assert ids.tolist() == [[3, 7, 400], [950, 900, 0]]
    assert values.tolist() == [[1.0, 1.0, 1.0], [3.0, 2.0, -5.0]]
    assert lens._rank(read, read[:, [7]], torch.tensor([7, 7])).tolist() == [2, 2 + 8], "7 equals come before it"


def test_tied_embeddings_make_the_embedding_say_the_token_that_stands_there() -> None:
    """A matrix whose rows are of one length: nothing is nearer to a row than the row itself."""
    gpt = make_gpt_with(d_vocab=20, d_model=32, norm="none")
    with torch.no_grad():
        gpt.embed.weight.copy_(torch.nn.functional.normalize(gpt.embed.weight, dim=-1) * 9)
    tokens = torch.arange(20)[None]
    reading = logit_lens(gpt, tokens, tokens)
    assert torch.equal(reading.likeliest[0], tokens)
    assert "The embeddings are tied" in reading.note
    untied = logit_lens(make_gpt_with(tie_embeddings=False), tokens, tokens)
    assert "tied" not in untied.note
    assert float((untied.likeliest[0] == tokens).float().mean()) < 0.5, "which a matrix of its own need not"


@pytest.mark.parametrize(
    ("norm", "said"),
    [(Norm.PRE, "through the final norm"), (Norm.DEEPNORM, "norm=deepnorm a stream stands behind its own norm"),
     (Norm.SANDWICH, "through the final norm"), (Norm.NONE, "There is no norm")],
)  # fmt: skip
def test_what_reading_a_stream_means_is_said_of_each_placement(tokens: Tensor, norm: Norm, said: str) -> None:
    assert said in logit_lens(make_gpt_with(norm=norm), tokens, 0).note


def test_a_stretch_is_read_as_the_whole_is(make_gpt: Callable[..., GPT], tokens: Tensor) -> None:
    gpt = make_gpt().double()
    whole = logit_lens(gpt, tokens, tokens, n_top=3)
    part = logit_lens(gpt, tokens, tokens, n_top=3, positions=slice(4, 9))
    for name in NUMBERS:
        torch.testing.assert_close(getattr(part, name), getattr(whole, name)[:, :, 4:9])
    with pytest.raises(InputError, match="none of the 12 positions"):
        logit_lens(gpt, tokens, tokens, positions=slice(12, 20))
    with pytest.raises(InputError, match="n_top=51 tokens cannot be kept; give 1 to 50"):
        logit_lens(gpt, tokens, tokens, n_top=51)


def test_logits_of_one_place_and_few_positions_exist_at_a_time(
    make_gpt: Callable[..., GPT], tokens: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpt = make_gpt().double()
    whole = logit_lens(gpt, tokens, tokens, detail="sublayers", n_top=3)
    seen: list[int] = []
    read = gpt.unembed.forward
    monkeypatch.setattr(gpt.unembed, "forward", lambda x: seen.append(x[..., 0].numel()) or read(x))
    monkeypatch.setattr(lens, "PIECE", 5 * gpt.config.d_vocab)
    pieces: LensReading = logit_lens(gpt, tokens, tokens, detail="sublayers", n_top=3)
    assert max(seen) == 5
    assert sum(seen) == 36 * (len(SUBLAYERS) + 1)
    for name in NUMBERS:
        torch.testing.assert_close(getattr(pieces, name), getattr(whole, name))
