"""A run that goes on from the middle ends as a whole run does, and visits the hooks from there on only."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from model.config import FFNKind, Norm
from model.errors import InputError
from model.hooks import Hook
from model.resume import Entry, Part, kept_at, resumed
from model.sites import Tap
from tests.conftest import make_gpt_with

ENTRIES = [Entry(layer=layer, part=part) for layer in range(2) for part in Part]


@pytest.mark.parametrize(
    "changes",
    [*({"norm": norm} for norm in Norm), {"n_kv_heads": 2, "smeared_keys": True}, {"positions": "alibi"}],
    ids=str,
)
def test_every_entry_leads_to_the_end_of_the_whole_run(changes: dict[str, Any], tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=2, **changes)
    final, kept = kept_at(gpt, tokens, ENTRIES)
    torch.testing.assert_close(gpt.unembed_stream(final), gpt(tokens))
    for entry in ENTRIES:
        torch.testing.assert_close(resumed(gpt, kept[entry]), final, atol=1e-6, rtol=1e-5)
        twice = resumed(gpt, kept[entry].repeated(2))
        torch.testing.assert_close(twice, torch.cat([final, final]), atol=1e-5, rtol=1e-5)


def test_an_attention_only_model_goes_on_from_z(tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=2, ffn=FFNKind.NONE)
    final, kept = kept_at(gpt, tokens, [Entry(layer=0, part=Part.Z)])
    torch.testing.assert_close(resumed(gpt, kept[Entry(layer=0, part=Part.Z)]), final)


@pytest.mark.parametrize(("entry", "tap"), [(ENTRIES[0], Tap.Z), (ENTRIES[1], Tap.MLP_POST)])
def test_hooks_from_the_entry_on_act_as_in_a_whole_run(entry: Entry, tap: Tap, tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=2)

    def halved(x: Tensor, hook: Hook) -> Tensor:
        assert hook.positions.tolist() == [list(range(tokens.shape[1]))] * len(tokens)
        return x / 2

    _, kept = kept_at(gpt, tokens, [entry])
    edits = [(tap.at(0), halved), (Tap.ATTN_OUT.at(1), halved), (Tap.RESID_PRE.at(0), _never)]
    with gpt.hooks(fwd_hooks=edits):
        found = resumed(gpt, kept[entry])
    with gpt.hooks(fwd_hooks=edits[:2]):
        torch.testing.assert_close(gpt.unembed_stream(found), gpt(tokens))


def _never(x: Tensor, hook: Hook) -> Tensor:
    raise AssertionError(f"{hook.name} comes before the entry")


def test_a_gradient_flows_back_to_what_was_kept(tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=2)
    _, kept = kept_at(gpt, tokens, ENTRIES)
    for entry in ENTRIES:
        stream = kept[entry].stream.requires_grad_()
        resumed(gpt, kept[entry]).sum().backward()
        assert stream.grad is not None


def test_a_layer_that_is_not_there_is_refused(tokens: Tensor) -> None:
    gpt = make_gpt_with(n_layers=2)
    _, kept = kept_at(gpt, tokens, ENTRIES[-1:])
    with pytest.raises(InputError, match="no layer 1 to go on from; this model has 1"):
        resumed(make_gpt_with(n_layers=1), kept[ENTRIES[-1]])
