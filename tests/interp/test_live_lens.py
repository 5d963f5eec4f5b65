"""One text through the lens: what the techniques say of the same tokens, and sums that come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from interp import live_lens
from interp.attention_bases import Against
from interp.lens import logit_lens
from interp.live import live_tokens
from interp.live_lens import attribution_on, lens_on
from interp.live_targets import Target, one_token
from model.errors import InputError, NotAdditiveError
from model.lab import Lab
from tests import planted
from tests.conftest import make_gpt_with
from tests.planted_run import LETTERS, planted_lab

PROMPT = "abcdefgabcd"


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Lab]:
    """The planted circuit, and a model of random weights with norms, FFNs and tied embeddings."""
    root = tmp_path_factory.mktemp("runs")
    small = make_gpt_with(d_vocab=planted.D_VOCAB, norm_kind="layernorm", biases=True)
    return planted_lab(root / "planted"), planted_lab(root / "small", small)


def test_targets_are_what_follows_the_models_own_or_a_named_token(labs: tuple[Lab, Lab]) -> None:
    _, lab = labs
    tokens = live_tokens(lab, "prompt", PROMPT)[0]
    own = lab.gpt(tokens[None])[0].argmax(-1)
    follows = torch.cat([tokens[1:], own[-1:]])
    for target, word, expected in (("next", "", follows), (Target.OWN, "", own), ("token", "c", follows * 0 + 2)):
        seen = lens_on(lab, "prompt", PROMPT, target=target, word=word)
        assert torch.equal(seen.targets, expected)
        assert [seen.spelled[int(each)] for each in seen.targets] == lab.str_tokens(expected)
        reading = logit_lens(lab.gpt, tokens[None], expected[None], detail="sublayers", n_top=5)
        torch.testing.assert_close(seen.reading.log_probability, reading.log_probability)
        assert torch.equal(seen.reading.top, reading.top)
        taken = attribution_on(lab, "prompt", PROMPT, target=target, word=word)
        assert torch.equal(taken.targets, expected)
    assert seen.tokens == tuple(lab.str_tokens(tokens))
    assert seen.ends
    assert "n = 1: your prompt" in seen.source


def test_the_planted_copy_is_seen_to_appear_and_to_come_from_its_head(labs: tuple[Lab, Lab]) -> None:
    lab, _ = labs
    repeats = torch.arange(8, len(PROMPT))  # tokens seen before; behind BOS the second a stands at 8
    seen = lens_on(lab, "prompt", PROMPT)
    assert seen.reading.labels == ("embed", "L0", "L1")
    assert bool((seen.reading.rank[-1, 0, repeats] == 1).all())
    assert seen.reading.log_probability[0, 0, repeats].exp().max() < 0.1
    taken = attribution_on(lab, "prompt", PROMPT)
    layer, index = planted.INDUCTION_HEAD
    assert torch.equal(taken.found.of(f"L{layer}H{index}")[0, repeats], torch.full((3,), 19.0))  # 20, less the mean 1
    assert taken.residual.abs().max() < 1e-6


@pytest.mark.parametrize("detail", ["heads", "sublayers"])
@pytest.mark.parametrize(
    "choices",
    [{"against": "nothing"}, {"against": Against.MEAN}, {"against_word": "e"}],
    ids=["logit", "mean", "other"],
)
def test_parts_sum_to_the_models_own_number_and_the_rest_is_rounding(
    labs: tuple[Lab, Lab], choices: dict[str, Any], detail: str
) -> None:
    _, lab = labs
    taken = attribution_on(lab, "prompt", PROMPT, detail=detail, **choices)
    tokens = live_tokens(lab, "prompt", PROMPT)[0]
    logits = lab.gpt(tokens[None])[0].double()
    own = logits.gather(-1, taken.targets[:, None])[:, 0]
    compared = {"against": logits.mean(-1), "against_word": logits[:, 4]}.get(*choices) if choices else None
    expected = own if choices.get("against") == "nothing" else own - compared
    torch.testing.assert_close(taken.logit.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(taken.found.total[0].double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(taken.residual, taken.found.total[0] - taken.logit)
    assert 0 < taken.residual.abs().max() < 1e-5 * logits.abs().max()


def test_long_texts_are_read_in_stretches(labs: tuple[Lab, Lab], monkeypatch: pytest.MonkeyPatch) -> None:
    _, lab = labs
    whole = lens_on(lab, "prompt", PROMPT, target="own")
    monkeypatch.setattr(live_lens, "LONGEST", 5)
    part = lens_on(lab, "prompt", PROMPT, target="own", start=5)
    assert part.tokens == whole.tokens[5:10]
    assert (part.start, part.n_text, part.ends) == (5, 12, False)
    assert torch.equal(part.targets, whole.targets[5:10])
    torch.testing.assert_close(part.reading.divergence, whole.reading.divergence[:, :, 5:10], atol=1e-6, rtol=1e-5)
    assert lens_on(lab, "prompt", PROMPT, start=10).ends
    taken = attribution_on(lab, "prompt", PROMPT, target="own")
    assert torch.equal(taken.targets, whole.targets)
    with pytest.raises(InputError, match=r"no position 12 in this text; it has 0\.\.11"):
        lens_on(lab, "prompt", PROMPT, start=12)


def test_more_tokens_than_there_are_cannot_be_kept(labs: tuple[Lab, Lab]) -> None:
    seen = lens_on(labs[1], "prompt", PROMPT, n_top=500)
    assert seen.reading.top.shape[-1] == planted.D_VOCAB
    torch.testing.assert_close(seen.reading.top_probability.sum(-1), torch.ones(seen.reading.top.shape[:-1]))


def test_a_word_that_is_not_one_token_is_told_so(labs: tuple[Lab, Lab]) -> None:
    assert one_token(labs[0], "c") == LETTERS.index("c")
    assert one_token(labs[0], "<bos>") == labs[0].tokenizer.bos, "as it is printed"
    with pytest.raises(InputError, match=r"'ab' is 2 tokens of this model \('a', 'b'\), not one; type one of them"):
        lens_on(labs[0], "prompt", PROMPT, target="token", word="ab")
    with pytest.raises(InputError, match="no token is named"):
        lens_on(labs[0], "prompt", PROMPT, target="token")
    with pytest.raises(InputError, match=r"'abcde' is 5 tokens .*\.\.\."):
        attribution_on(labs[0], "prompt", PROMPT, against_word="abcde")


def test_where_the_stream_is_no_sum_the_lens_reads_and_attribution_is_refused(tmp_path: Path) -> None:
    post = planted_lab(tmp_path / "post", make_gpt_with(d_vocab=planted.D_VOCAB, norm="post"))
    assert lens_on(post, "repeats", "").reading.log_probability.isfinite().all()
    with pytest.raises(NotAdditiveError, match="direct logit attribution needs a residual stream .* norm=post"):
        attribution_on(post, "prompt", PROMPT)
