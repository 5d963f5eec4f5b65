"""Smeared keys: the equation, its edges, and what it lets a single layer do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model import GPT, GPTConfig
from model.checkpoint import load_checkpoint, save_checkpoint
from model.errors import ConfigError
from model.files import sha256_of, write_json
from model.manifest import read_manifest, sealed
from model.settings import to_plain

MakeGPT = Callable[..., GPT]


def own_keys(gpt: GPT, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """The keys of layer 0 without smearing, from what it reads: [batch, pos, kv_head, d_head]."""
    _, cache = gpt.run_with_cache(tokens, "blocks.0.ln1.hook_out", attention_mask=mask)
    return torch.einsum("bpd,hde->bphe", cache["out", 0, "ln1"], gpt.layers[0].attn.W_K)


@pytest.mark.parametrize("n_kv_heads", [4, 2])
@torch.no_grad()
def test_a_key_is_its_share_of_the_own_key_and_the_rest_of_the_one_before(
    make_gpt: MakeGPT, tokens: Tensor, n_kv_heads: int
) -> None:
    gpt = make_gpt(smeared_keys=True, n_kv_heads=n_kv_heads).double()
    own, alpha = own_keys(gpt, tokens), gpt.layers[0].attn.k_smear
    _, cache = gpt.run_with_cache(tokens, ["blocks.0.attn.hook_k", "blocks.0.attn.hook_rot_k"])
    assert alpha is not None
    for head in range(n_kv_heads):
        share = 1 / (1 + math.exp(-alpha[head].item()))
        assert 0.3 < share < 0.7
        for pos in range(tokens.shape[1]):
            expected = share * own[:, pos, head] + (1 - share) * own[:, max(pos - 1, 0), head]
            torch.testing.assert_close(cache["k", 0][:, pos, head], expected, rtol=1e-12, atol=1e-12)
    # Turned at its own position j and not at j - 1: the first pair by j radians.
    own_pair, turned_pair = (torch.complex(*each.chunk(2, -1))[..., 0] for each in (cache["k", 0], cache["rot_k", 0]))
    radians = torch.arange(tokens.shape[1]).double()[:, None]
    by_position = torch.polar(torch.ones_like(radians), radians).expand_as(own_pair)
    torch.testing.assert_close(turned_pair / own_pair, by_position, rtol=1e-9, atol=1e-9)


def test_the_first_token_keeps_its_own_key_to_the_bit_behind_padding_too(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(smeared_keys=True, norm="none", positions="none")
    plain = make_gpt(norm="none", positions="none")
    mask = torch.tensor([0, 3, 11])[:, None] <= torch.arange(12)
    first = [0, 3, 11]
    for given in (None, mask):
        keys, own = (
            each.run_with_cache(tokens, "blocks.0.attn.hook_k", attention_mask=given)[1]["k", 0]
            for each in (gpt, plain)
        )
        where = [0, 0, 0] if given is None else first
        assert torch.equal(keys[range(3), where], own[range(3), where])
        assert not torch.equal(keys[0, 1], own[0, 1])


@torch.no_grad()
def test_with_all_of_its_own_key_it_is_the_model_without(make_gpt: MakeGPT, tokens: Tensor) -> None:
    smeared, plain = make_gpt(smeared_keys=True), make_gpt()
    smeared.load_state_dict(plain.state_dict(), strict=False)
    for block in smeared.layers:
        assert block.attn.k_smear is not None
        block.attn.k_smear.fill_(60.0)
    assert torch.equal(smeared(tokens), plain(tokens))
    assert torch.equal(smeared.own_key_share, torch.ones(2, 4))


def test_it_begins_with_an_even_mixture_and_learns_each_heads_share(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = GPT(make_gpt(smeared_keys=True, n_kv_heads=2).config)
    assert torch.equal(gpt.own_key_share, torch.full((2, 4), 0.5))
    gpt.loss(tokens).backward()
    gradients = torch.stack([block.attn.k_smear.grad for block in gpt.layers])  # type: ignore[misc]
    assert gradients.shape == (2, 2)
    assert (gradients != 0).all()


def test_an_edit_of_what_a_key_reads_reaches_its_own_key_and_the_next(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(smeared_keys=True)

    def silence_four(x: Tensor, hook: object) -> Tensor:
        x[:, 4, 1] = 0
        return x

    _, clean = gpt.run_with_cache(tokens, "blocks.0.attn.hook_k")
    with gpt.hooks([("blocks.0.hook_k_input", silence_four)]):
        _, edited = gpt.run_with_cache(tokens, "blocks.0.attn.hook_k")
    moved = (edited["k", 0] - clean["k", 0]).abs().amax(-1) > 1e-4
    assert moved.nonzero()[:, 1:].unique(dim=0).tolist() == [[4, 1], [5, 1]]


@torch.no_grad()
def test_one_layer_is_enough_to_find_what_followed_an_earlier_copy(make_gpt: MakeGPT) -> None:
    """Planted: a query and a key are the token itself, so that a head finds copies; or, smeared, what followed them."""
    n_tokens, period = 20, 7
    segment = 1 + torch.randperm(n_tokens - 1, generator=torch.Generator().manual_seed(0))[:period]
    tokens, rows = torch.cat((torch.zeros(1).long(), segment, segment))[None], range(1 + period, 1 + 2 * period)
    found = {}
    for smeared in (False, True):
        config = GPTConfig(
            **{"n_layers": 1, "n_heads": 1, "d_model": n_tokens, "n_ctx": 16, "d_vocab": n_tokens},
            **{"norm": "none", "positions": "none", "ffn": "none", "smeared_keys": smeared},
        )
        gpt = GPT(config)
        gpt.embed.weight.copy_(torch.eye(n_tokens))
        gpt.layers[0].attn.W_Q[0], gpt.layers[0].attn.W_K[0] = 400 * torch.eye(n_tokens), torch.eye(n_tokens)
        if smeared:
            gpt.layers[0].attn.k_smear.fill_(-60.0)  # type: ignore[union-attr]
        found[smeared] = gpt.run_with_cache(tokens, "blocks.0.attn.hook_pattern")[1]["pattern", 0][0, 0]
    assert all(found[True][row, row - period + 1] > 0.999 for row in rows)
    assert all(found[False][row, row - period + 1] < 0.001 for row in rows)


def test_a_checkpoint_written_before_there_were_smeared_keys_opens(tmp_path: Path, tiny: GPT, tokens: Tensor) -> None:
    path = save_checkpoint(tmp_path, tiny, step=3, tokens_seen=0)
    older = to_plain(tiny.config)
    assert older.pop("smeared_keys") is False
    write_json(path / "config.json", older)
    manifest = read_manifest(path)
    files = manifest.files | {"config.json": sha256_of((path / "config.json").read_bytes())}
    write_json(path / "manifest.json", sealed(replace(manifest, files=files)))
    loaded = load_checkpoint(path)
    assert loaded.config == tiny.config
    assert torch.equal(loaded(tokens), tiny(tokens))


def test_a_switch_that_is_neither_is_refused(tiny: GPT) -> None:
    with pytest.raises(ConfigError, match="smeared_keys='on' is neither true nor false"):
        tiny.config.varied(smeared_keys="on")
