"""Singular directions as tokens: a planted map from token to token is read off, in a stated sign."""

from __future__ import annotations

import pytest
import torch

from interp.circuits import token_ov
from interp.qk_offsets import qk_circuits
from interp.vocabulary_reading import ov_vocabulary, qk_vocabulary
from model import GPT, GPTConfig
from model.errors import InputError, NotAdditiveError
from tests.conftest import make_gpt_with


def mapping() -> GPT:
    """L0H1 writes token 7 where it attends to token 3 (gain 5), and takes token 2 away where it attends to 4 (gain 3).

    Its query on token 8 scores a key of token 9 highly. One dimension per token, no norm.
    """
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 12, "d_head": 4, "n_ctx": 8, "d_vocab": 12}
    gpt = GPT(GPTConfig(**sizes, norm="none", ffn="none", positions="none")).eval()
    attention = gpt.layers[0].attn
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.zero_()
        gpt.embed.weight.copy_(torch.eye(12))
        attention.W_V[1][3, 0] = attention.W_V[1][4, 1] = 1.0
        attention.W_O[1][0, 7], attention.W_O[1][1, 2] = 5.0, -3.0
        attention.W_Q[1][8, 0], attention.W_K[1][9, 0] = 1.0, 2.0
    return gpt


def test_a_planted_map_is_read_off() -> None:
    found = ov_vocabulary(mapping(), "L0H1", n_directions=2, n_tokens=1)
    assert found.singular_values.tolist() == pytest.approx([5, 3])
    assert found.share.tolist() == pytest.approx([25 / 34, 9 / 34])
    assert found.left.top[0, 0] == 3
    assert found.right.top[0, 0] == 7
    assert found.right.top_values[0, 0] == pytest.approx(11 / 12)  # the mean over the vocabulary is taken off
    # The sign makes the larger end of what is written positive: where 4 is *not* attended to, 2 is raised.
    assert found.right.top[1, 0] == 2
    assert found.left.bottom[1, 0] == 4
    assert found.left.bottom_values[1, 0] == pytest.approx(-1)
    assert repr(found) == "SingularReading(L0H1 OV: 2 directions, 100% of the norm)"


def test_a_silent_head_reads_and_writes_nothing() -> None:
    found = ov_vocabulary(mapping(), "L0H0", n_directions=2)
    assert found.share.tolist() == found.singular_values.tolist() == [0, 0]
    assert repr(found) == "SingularReading(L0H0 OV: 2 directions, 0% of the norm)"
    assert found.left.top_values.isfinite().all()


def test_a_planted_match_is_read_off() -> None:
    found = qk_vocabulary(mapping(), "L0H1", n_directions=1, n_tokens=1)
    assert (found.left.top.tolist(), found.right.top.tolist()) == ([[8]], [[9]])
    assert found.right.top_values[0, 0] == pytest.approx(1)
    assert (found.circuit, found.offset) == ("QK", 0)


def test_directions_rebuild_the_circuit_between_tokens() -> None:
    """All of them, with all tokens: values and singular values make the product over the vocabulary."""
    gpt = make_gpt_with(tie_embeddings=False, norm_kind="layernorm").double()
    found = ov_vocabulary(gpt, "L1H3", n_directions=8, n_tokens=50)
    read = torch.zeros(8, 50, dtype=torch.float64).scatter(1, found.left.top, found.left.top_values)
    written = torch.zeros(8, 50, dtype=torch.float64).scatter(1, found.right.top, found.right.top_values)
    logits = token_ov(gpt, 1, 3).AB
    rebuilt = (read.T * found.singular_values) @ written
    torch.testing.assert_close(rebuilt, logits - logits.mean(1, keepdim=True), rtol=1e-9, atol=1e-9)
    assert found.share.sum() == pytest.approx(1)
    assert (written.abs().argmax(1) == written.argmax(1)).all()  # the sign that was promised
    torch.testing.assert_close(found.left.top.flip(1), found.left.bottom)


def test_qk_directions_are_those_of_their_offset() -> None:
    gpt = make_gpt_with().double()
    for offset in (0, 5):
        found = qk_vocabulary(gpt, "L1H3", offset=offset, n_directions=8, n_tokens=50)
        query = torch.zeros(8, 50, dtype=torch.float64).scatter(1, found.left.top, found.left.top_values)
        key = torch.zeros(8, 50, dtype=torch.float64).scatter(1, found.right.top, found.right.top_values)
        expected = (gpt.W_E @ qk_circuits(gpt, offset)[1, 3] @ gpt.W_E.T).AB
        torch.testing.assert_close((query.T * found.singular_values) @ key, expected, rtol=1e-9, atol=1e-9)


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(NotAdditiveError, match="Reading OV in the vocabulary"):
        ov_vocabulary(make_gpt_with(norm="post"), "L0H0")
    with pytest.raises(InputError, match="qk_norm=true"):
        qk_vocabulary(make_gpt_with(qk_norm=True), "L0H0")
    with pytest.raises(InputError, match="give 1 to 8 directions and 1 to 50 tokens"):
        ov_vocabulary(make_gpt_with(), "L0H0", n_directions=9)
    with pytest.raises(InputError, match="from 0 to 23"):
        qk_vocabulary(make_gpt_with(), "L0H0", offset=24)
