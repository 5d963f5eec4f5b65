"""Values are read as the tokens that were planted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.memory_values import fitting_memories, value_scores
from tests import planted


def test_the_planted_value_promotes_its_token_and_nothing_else() -> None:
    gpt = planted.memory_model(promoted=7, memory=2)
    scores = value_scores(gpt, 0)
    assert scores[2].argmax() == 7
    assert scores[2, 7] == 5
    assert scores.count_nonzero() == 1


@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("norm", ["pre", "scaled", "sandwich", "reordered", "none"])
def test_scores_of_the_last_layers_values_are_their_effect_on_the_logits(
    make_gpt, tokens: Tensor, norm: str, norm_kind: str
) -> None:
    """One more unit of a memory, in a forward pass, moves the logits by its scores over the scales it passes.

    Those scales are held at their values in the intact run: a memory changes them as well, and the scores leave that
    out.
    """
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, ffn="relu").double()
    scales = [name for name in ("blocks.1.ln2_post.hook_scale", "ln_final.hook_scale") if name in gpt.named_sites()]
    clean, cache = gpt.run_with_cache(tokens, [*scales, "hook_logits"])
    held = [(name, lambda _, hook: cache[hook.name]) for name in scales]
    scale = torch.stack([cache[name] for name in scales]).prod(0) if scales else torch.ones(1, dtype=torch.float64)
    scores = value_scores(gpt, 1).double()
    for memory in (0, 31):

        def one_more(coefficients: Tensor, hook, memory: int = memory) -> None:
            coefficients[:, :, memory] += 1.0

        moved = gpt.run_with_hooks(tokens, [("blocks.1.mlp.hook_post", one_more), *held]) - clean
        torch.testing.assert_close(moved * scale, scores[memory].expand_as(moved), rtol=1e-4, atol=1e-5)


def test_memories_in_groups_have_the_scores_of_all_at_once(make_gpt) -> None:
    gpt = make_gpt(norm="sandwich", norm_kind="layernorm")
    whole, unembed = value_scores(gpt, 1), gpt.folded_unembed()
    n_memories, d_vocab = whole.shape
    parts = [value_scores(gpt, 1, slice(start, start + 5), unembed) for start in range(0, n_memories, 5)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)
    assert fitting_memories(n_memories, d_vocab) == [slice(0, n_memories)]
    groups = fitting_memories(1536, 49_152)
    assert [group.start for group in groups[1:]] == [group.stop for group in groups[:-1]]
    assert (groups[0].start, groups[-1].stop) == (0, 1536)
    assert max(group.stop - group.start for group in groups) * 49_152 * 4 <= 2**26  # bytes
    assert len(fitting_memories(3, 2**30)) == 3


@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("norm", ["pre", "post", "deepnorm"])
def test_scores_of_early_values_are_their_direct_effect_through_every_norm_on_the_way(
    make_gpt, tokens: Tensor, norm: str, norm_kind: str
) -> None:
    """What later sublayers write is held, and the scales of the norms passed: left is the value's own way.

    Under deepnorm each sum on the way multiplies the stream by alpha, which the scores leave out.
    """
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, ffn="relu", n_layers=3).double()
    clean, cache = gpt.run_with_cache(tokens)
    on_stream = ["blocks.0.ln2", *(f"blocks.{layer}.{ln}" for layer in (1, 2) for ln in ("ln1", "ln2"))]
    passed = [f"{name}.hook_scale" for name in (["ln_final"] if norm == "pre" else on_stream)]
    later = [f"blocks.{layer}.hook_{out}" for layer in (1, 2) for out in ("attn_out", "mlp_out")]
    held = [(name, lambda _, hook: cache[hook.name]) for name in (*passed, *later)]
    alpha = (2 * 3) ** 0.25 if norm == "deepnorm" else 1.0
    scale = torch.stack([cache[name] for name in passed]).prod(0) / alpha ** (len(passed) - 1)
    scores = value_scores(gpt, 0).double()
    for memory in (0, 31):

        def one_more(coefficients: Tensor, hook, memory: int = memory) -> None:
            coefficients[:, :, memory] += 1.0

        moved = gpt.run_with_hooks(tokens, [("blocks.0.mlp.hook_post", one_more), *held]) - clean
        torch.testing.assert_close(moved * scale, scores[memory].expand_as(moved), rtol=1e-4, atol=1e-5)
