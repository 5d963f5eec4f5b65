"""One text looked at: its attention in each unit is what the techniques say of the same tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interp.attention_bases import weighted_attention
from interp.attribution import logit_attribution
from interp.live import Basis, LiveText, attention_in, live_tokens, look
from model.errors import NotAdditiveError
from model.lab import Lab
from tests.conftest import make_gpt_with
from tests.planted_run import planted_lab

D_VOCAB = 20
"""That of the planted run's tokenizer."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", make_gpt_with(d_vocab=D_VOCAB))


def tokens_of(lab: Lab) -> torch.Tensor:
    return live_tokens(lab, LiveText.HELD_OUT, "")[0]


def test_raw_attention_is_the_pattern(lab: Lab) -> None:
    assert torch.equal(attention_in(lab, Basis.RAW, LiveText.HELD_OUT, ""), look(lab, LiveText.HELD_OUT, "").pattern)


def test_value_weighted_attention_is_the_technique_s_in_every_layer(lab: Lab) -> None:
    found = attention_in(lab, Basis.WEIGHTED, LiveText.HELD_OUT, "")
    for layer in range(lab.config.n_layers):
        expected = weighted_attention(lab.gpt, tokens_of(lab)[None], layer).weighted[0]
        torch.testing.assert_close(found[layer], expected)


def test_signed_attention_sums_to_each_head_s_direct_attribution_less_the_mean_over_tokens(lab: Lab) -> None:
    """Of the token that follows; behind the last one, of the model's own first guess."""
    tokens = tokens_of(lab)
    guess = lab.gpt(tokens[None])[0, -1].argmax()
    targets = torch.cat([tokens[1:], guess[None]])[None]
    found = attention_in(lab, Basis.SIGNED, LiveText.HELD_OUT, "")
    told = logit_attribution(lab.gpt, tokens[None], targets)
    every = [logit_attribution(lab.gpt, tokens[None], token) for token in range(D_VOCAB)]
    for name, at in (("L0H0", (0, 0)), ("L1H3", (1, 3))):
        expected = told.of(name)[0] - torch.stack([each.of(name)[0] for each in every]).mean(0)
        torch.testing.assert_close(found[at].sum(-1), expected, atol=1e-5, rtol=1e-4)


def test_signed_attention_is_refused_where_the_stream_is_no_sum(tmp_path: Path) -> None:
    post = planted_lab(tmp_path / "post", make_gpt_with(d_vocab=D_VOCAB, norm="post"))
    assert attention_in(post, Basis.WEIGHTED, LiveText.HELD_OUT, "").isfinite().all()
    with pytest.raises(NotAdditiveError, match="norm=post"):
        attention_in(post, Basis.SIGNED, LiveText.HELD_OUT, "")
