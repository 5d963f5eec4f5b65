"""Our model opened in TransformerLens 4 is our model: every place, edit, gradient, weight and token of the bridge.

Comparisons are exact, bit for bit: the bridge runs the same module, so there is nothing to round. The library is
imported where it is used; `make test-slow` installs it.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model import GPT, Norm, Tap
from model.errors import InputError
from model.imported_tokenizer import ImportedTokenizer
from model.sites import ON_DEMAND, sites
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer
from tests.conftest import make_gpt_with
from tests.model.interop import forge
from tests.model.variants import ALL, name_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the library's own deprecations are not ours to answer for
]

SOME: list[dict[str, Any]] = [
    *({"norm": norm} for norm in Norm),
    {"n_kv_heads": 2, "biases": True, "ffn": "swiglu"},
    {"positions": "learned", "norm_kind": "layernorm", "biases": True, "tie_embeddings": False},
    {"positions": "sinusoidal"},
    {"positions": "alibi", "qk_norm": True},
    {"ffn": "none"},
]


def bridge_of(gpt: GPT, *, split_inputs: bool = True):
    """The bridge with every place open; TransformerLens opens split inputs and attn_in one at a time."""
    from model.interop.tlens import to_bridge

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that a name leads to no HookPoint
        bridge = to_bridge(gpt)
    bridge.set_use_attn_result(True)
    bridge.set_use_hook_mlp_in(True)
    (bridge.set_use_split_qkv_input if split_inputs else bridge.set_use_attn_in)(True)
    return bridge


def places(gpt: GPT, *, split_inputs: bool = True) -> list[str]:
    closed = {Tap.ATTN_IN} if split_inputs else {Tap.Q_INPUT, Tap.K_INPUT, Tap.V_INPUT}
    return [name for name, site in sites(gpt.config).items() if site.tap not in closed]


def noisy(name: str) -> Callable[..., Tensor]:
    """Noise at three positions: a hook function that both libraries take."""

    def edit(x: Tensor, hook: Any) -> Tensor:
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(len(name)))
        noise[:, :2] = noise[:, 5:] = 0
        return x + noise

    return edit


@pytest.mark.parametrize("split_inputs", [True, False])
@pytest.mark.parametrize("variant", [variant for variant in ALL if "smeared_keys" not in variant], ids=name_of)
def test_every_place_holds_in_the_bridge_what_it_holds_in_the_model(
    variant: dict[str, Any], split_inputs: bool, tokens: Tensor
) -> None:
    gpt = make_gpt_with(**variant)
    names = places(gpt, split_inputs=split_inputs)
    with torch.no_grad():
        logits, ours = gpt.run_with_cache(tokens, names)
        expected, theirs = bridge_of(gpt, split_inputs=split_inputs).run_with_cache(tokens)
    assert torch.equal(logits, expected)
    assert [name for name in names if not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("variant", SOME, ids=name_of)
def test_an_edit_through_the_bridge_is_the_same_edit_of_the_model(variant: dict[str, Any], tokens: Tensor) -> None:
    gpt = make_gpt_with(**variant)
    bridge = bridge_of(gpt)
    with torch.no_grad(), gpt.explicit_attention():
        clean = gpt(tokens)
        for name in (each for each in places(gpt) if "blocks.0" not in each):
            ours = gpt.run_with_hooks(tokens, [(name, noisy(name))])
            theirs = bridge.run_with_hooks(tokens, fwd_hooks=[(name, noisy(name))])
            assert torch.equal(ours, theirs), name
            assert not torch.equal(theirs, clean), f"{name} was edited in vain"


@pytest.mark.parametrize("variant", SOME, ids=name_of)
def test_gradients_through_the_bridge_are_the_models(variant: dict[str, Any], tokens: Tensor) -> None:
    gpt = make_gpt_with(**variant)
    bridge = bridge_of(gpt)
    bridge.set_use_split_qkv_input(False)  # split inputs and their norm are not differentiated in one run
    split = {Tap.ATTN_IN, Tap.Q_INPUT, Tap.K_INPUT, Tap.V_INPUT}
    names = [name for name, site in sites(gpt.config).items() if site.tap not in split]
    loss, ours = gpt.run_with_cache(tokens, names, incl_bwd=True, return_type="loss")
    expected, theirs = bridge.run_with_cache(tokens, incl_bwd=True, return_type="loss")
    torch.testing.assert_close(loss, expected)
    for name in names:
        torch.testing.assert_close(ours[f"{name}_grad"], theirs[f"{name}_grad"], msg=name)
        assert theirs[f"{name}_grad"].abs().max() > 0 or "mlp_in" in name, name


def test_a_backward_hook_of_the_bridge_changes_the_gradients_before_it(tiny: GPT, tokens: Tensor) -> None:
    bridge = bridge_of(tiny)
    where, before = "blocks.1.attn.hook_result", "blocks.0.hook_resid_pre"

    def gradient(hooks: list[Any]) -> Tensor:
        cache, forward, backward = bridge.get_caching_hooks(before, incl_bwd=True)
        with bridge.hooks(fwd_hooks=forward, bwd_hooks=[*backward, *hooks]):
            bridge(tokens, return_type="loss").backward()
        return cache[f"{before}_grad"]

    clean = gradient([])
    assert not torch.equal(gradient([(where, lambda grad, hook: 0 * grad)]), clean)
    torch.testing.assert_close(gradient([(where, lambda grad, hook: None)]), clean)


def test_attention_stays_fused_until_scores_or_pattern_are_hooked(
    tiny: GPT, tokens: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = F.scaled_dot_product_attention
    calls: list[int] = []
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k))
    bridge = bridge_of(tiny)
    for names, expected in ((["blocks.0.attn.hook_z"], 2), (["blocks.0.attn.hook_pattern"], 1), (None, 0)):
        calls.clear()
        bridge.run_with_cache(tokens, names_filter=names)
        assert len(calls) == expected, names


def test_places_behind_a_flag_stay_closed_until_it_is_set(tiny: GPT, tokens: Tensor) -> None:
    from model.interop.tlens import to_bridge

    bridge = to_bridge(tiny)
    closed = {name for name, site in sites(tiny.config).items() if site.tap in ON_DEMAND}
    _, cache = bridge.run_with_cache(tokens)
    assert not closed & set(cache.keys())
    with pytest.raises(ValueError, match="set_use_attn_result"):
        bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_result", noisy("result"))])


def test_the_bridge_owns_no_weights_and_leaves_the_model_as_it_is(tiny: GPT, tokens: Tensor) -> None:
    modules = [(name, id(module)) for name, module in tiny.named_modules()]
    bridge = bridge_of(tiny)
    assert [(name, id(module)) for name, module in tiny.named_modules()] == modules
    assert [id(each) for each in bridge.parameters()] == [id(each) for each in tiny.parameters()]
    with tiny.weights_edited():
        bridge.blocks[0].attn.W_O[1] = 0
        assert (tiny.W_O[0, 1] == 0).all()
        assert torch.equal(bridge(tokens), tiny(tokens))
    assert (bridge.W_O[0, 1] != 0).all()
    bridge.train()
    assert tiny.training
    bridge.to(torch.float64, print_details=False)
    assert tiny.dtype == torch.float64
    assert tiny.unembed.weight is tiny.embed.weight


def test_two_bridges_and_the_model_never_see_each_others_hooks(tiny: GPT, tokens: Tensor) -> None:
    first, second = bridge_of(tiny), bridge_of(tiny)
    clean = tiny(tokens)
    first.add_hook("blocks.0.hook_mlp_out", lambda x, hook: 0 * x)
    assert not torch.equal(first(tokens), clean)
    assert torch.equal(second(tokens), clean)
    assert torch.equal(tiny(tokens), clean)
    first.reset_hooks()
    assert torch.equal(first(tokens), clean)


def test_hooks_of_both_kinds_act_together_and_vanish_when_one_raises(tiny: GPT, tokens: Tensor) -> None:
    bridge = bridge_of(tiny)
    ours, theirs = ("blocks.0.hook_mlp_out", noisy("ours")), ("blocks.1.hook_attn_out", noisy("a longer name"))
    with tiny.hooks([ours]):
        both = bridge.run_with_hooks(tokens, fwd_hooks=[theirs])
    assert torch.equal(both, tiny.run_with_hooks(tokens, [ours, theirs]))

    def fail(x: Tensor, hook: Any) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        bridge.run_with_hooks(tokens, fwd_hooks=[("hook_embed", fail)])
    assert torch.equal(bridge(tokens), tiny(tokens))


def test_a_hook_function_is_told_our_name_whatever_name_it_was_hooked_by(tiny: GPT, tokens: Tensor) -> None:
    bridge = bridge_of(tiny)
    seen: list[str] = []
    asked = ("blocks.1.hook_in", "blocks.1.hook_resid_pre", "embed.hook_out", "hook_unembed", "hook_logits")
    for name in asked:
        bridge.run_with_hooks(tokens, fwd_hooks=[(name, lambda x, hook: seen.append(hook.name))])
    assert seen == [*["blocks.1.hook_resid_pre"] * 2, "hook_embed", *["hook_logits"] * 2]
    others = {*(f"blocks.{i}.hook_{end}" for i in (0, 1) for end in ("in", "out"))}
    others |= {"embed.hook_out", "unembed.hook_out", "hook_unembed"}
    assert set(bridge.hook_dict) == set(tiny.named_sites()) | others  # no HookPoint that never fires
    with pytest.raises(KeyError):
        bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_patern", noisy(""))])


def test_what_the_cache_holds_survives_an_edit_in_place_behind_it(tiny: GPT, tokens: Tensor) -> None:
    def spoil(x: Tensor, hook: Any) -> Tensor:
        return x.add_(1000)

    bridge = bridge_of(tiny)
    _, clean = bridge.run_with_cache(tokens)
    with bridge.hooks(fwd_hooks=[("blocks.1.hook_resid_pre", spoil)]):
        _, cache = bridge.run_with_cache(tokens)
    assert torch.equal(cache["blocks.0.hook_resid_post"], clean["blocks.0.hook_resid_post"])


@pytest.mark.parametrize("variant", SOME, ids=name_of)
def test_weights_have_transformer_lens_names_and_shapes(variant: dict[str, Any]) -> None:
    gpt = make_gpt_with(**variant)
    bridge, config = bridge_of(gpt), gpt.config
    names = ["W_E", "W_U", "W_Q", "W_O", "b_Q", "b_O"]
    names += [] if config.ffn == "none" else ["W_in", "W_out", "b_in", "b_out"]
    names += ["W_gate"] if config.ffn == "swiglu" else []
    names += ["W_pos"] if config.positions == "learned" else []
    for name in names:
        assert torch.equal(getattr(bridge, name), getattr(gpt, name)), name
    for name in ("W_K", "W_V", "b_K", "b_V"):  # grouped heads are expanded here, and not there
        expanded = getattr(bridge, name).repeat_interleave(config.n_heads // config.kv_heads, dim=1)
        assert torch.equal(expanded, getattr(gpt, name)), name
    assert bridge.OV.shape == bridge.QK.shape == (config.n_layers, config.n_heads, config.d_model, config.d_model)
    assert not bridge.b_U.any()
    assert sum(each.numel() for each in bridge.parameters()) == bridge.n_params_total == config.n_params
    state = bridge.state_dict()
    assert not any(bridge.load_state_dict(state))


def test_the_config_says_in_their_words_what_the_model_is() -> None:
    gpt = make_gpt_with(n_kv_heads=2, ffn="swiglu", qk_norm=True, rope_base=12345.5)
    cfg = bridge_of(gpt).cfg
    assert (cfg.n_layers, cfg.n_heads, cfg.n_key_value_heads, cfg.d_model, cfg.d_head) == (2, 4, 2, 32, 8)
    assert (cfg.d_mlp, cfg.n_ctx, cfg.d_vocab, cfg.d_vocab_out) == (128, 24, 50, 50)
    assert (cfg.normalization_type, cfg.final_rms, cfg.eps) == ("RMS", True, 1e-5)
    assert (cfg.positional_embedding_type, cfg.rotary_base, cfg.rotary_dim) == ("rotary", 12345.5, 8)
    assert (cfg.act_fn, cfg.gated_mlp, cfg.attn_only, cfg.use_qk_norm) == ("silu", True, False, True)
    assert (cfg.tie_word_embeddings, cfg.n_params, cfg.dtype) == (True, gpt.config.n_params, torch.float32)
    cfg = bridge_of(make_gpt_with(norm_kind="layernorm", positions="learned", ffn="none", norm="sandwich")).cfg
    assert (cfg.normalization_type, cfg.positional_embedding_type, cfg.attn_only) == ("LN", "standard", True)
    assert cfg.use_normalization_before_and_after
    assert bridge_of(make_gpt_with(norm="none")).cfg.normalization_type is None


def test_runs_start_and_stop_at_a_layer(tiny: GPT, tokens: Tensor) -> None:
    bridge = bridge_of(tiny)
    resid, cache = bridge.run_with_cache(tokens, stop_at_layer=1)
    ours, _ = tiny.run_with_cache(tokens, lambda name: True, stop_at_layer=1)
    assert torch.equal(resid, ours)
    assert not any("blocks.1" in name or "ln_final" in name for name in cache.keys())  # noqa: SIM118
    assert torch.equal(bridge(tokens, stop_at_layer=-1), tiny.run_with_hooks(tokens, stop_at_layer=1))
    assert torch.equal(bridge(resid, start_at_layer=1), tiny.run_with_hooks(resid, start_at_layer=1))
    with pytest.raises(InputError, match="say start_at_layer"):
        bridge(resid)


def test_padding_is_masked_as_in_the_model(tiny: GPT, tokens: Tensor) -> None:
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    bridge = bridge_of(tiny)
    assert torch.equal(bridge(tokens, attention_mask=mask), tiny(tokens, mask))
    loss = bridge(tokens, attention_mask=mask, return_type="loss")
    torch.testing.assert_close(loss, tiny.loss(tokens, mask))


@pytest.mark.parametrize("use_kv_cache", [True, False])
def test_generation_gives_our_tokens_with_and_without_the_key_value_cache(
    tiny: GPT, tokens: Tensor, use_kv_cache: bool
) -> None:
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    bridge, lengths = bridge_of(tiny), []
    ours = tiny.generate(tokens, max_new_tokens=8, temperature=0.0, attention_mask=mask.bool())
    with tiny.hooks([("hook_embed", lambda x, hook: lengths.append(x.shape[1]))]):
        theirs = bridge.generate(
            tokens,
            max_new_tokens=8,
            do_sample=False,
            stop_at_eos=False,
            verbose=False,
            attention_mask=mask,
            use_past_kv_cache=use_kv_cache,
        )
    assert torch.equal(ours, theirs)
    assert lengths == [12, *([1] * 7 if use_kv_cache else range(13, 20))]


TEXT = "def walk(tree):\n    for leaf in tree:\n        yield leaf\n" * 9
TOKENIZERS = (ByteTokenizer(), CharTokenizer.train(TEXT), BPETokenizer.train(TEXT, 280))


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda each: each.kind)
def test_texts_become_our_tokens_behind_bos(tokenizer: Any) -> None:
    from model.interop.tlens import to_bridge

    gpt = make_gpt_with(d_vocab=tokenizer.d_vocab, n_ctx=64)
    bridge = to_bridge(gpt, tokenizer)
    text = "for leaf in tree:\n"
    ids = tokenizer.encode(text)
    assert bridge.to_tokens(text).tolist() == [[tokenizer.bos, *ids]]
    assert bridge.to_tokens(text, prepend_bos=False).tolist() == [ids]
    assert bridge.to_string(bridge.to_tokens(text)[0]) == f"<bos>{text}"
    assert "".join(bridge.to_str_tokens(text)) == f"<bos>{text}"
    assert bridge.to_single_token("\n") == tokenizer.encode("\n")[0]
    assert torch.equal(bridge(text), gpt(torch.tensor([[tokenizer.bos, *ids]])))


def test_texts_of_different_lengths_continue_as_each_does_alone() -> None:
    from model.interop.tlens import to_bridge

    gpt = make_gpt_with(d_vocab=257, n_ctx=64)
    bridge = to_bridge(gpt, ByteTokenizer())
    greedy: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "stop_at_eos": False, "verbose": False}
    texts = ["def f(x):", "for", "return x"]
    together = bridge.generate(texts, **greedy, return_type="tokens")
    alone = [bridge.generate(text, **greedy, return_type="tokens")[0] for text in texts]
    assert [row[-6:].tolist() for row in together] == [row[-6:].tolist() for row in alone]


def test_an_imported_model_without_bos_generates_up_to_its_declared_end_or_is_told_not_to_stop() -> None:
    from model.interop.tlens import to_bridge

    gpt = make_gpt_with(d_vocab=290, n_ctx=64)
    text, greedy = "the cat", {"max_new_tokens": 6, "do_sample": False, "verbose": False, "return_type": "tokens"}
    silent = ImportedTokenizer(forge.smollm_definition(), d_vocab=290, bos=None)
    prompt = silent.encode(text)
    ours = gpt.generate(torch.tensor([prompt]), max_new_tokens=6, temperature=0.0)
    with pytest.raises(AssertionError, match="eos_token_id"):
        to_bridge(gpt, silent).generate(text, **greedy)
    assert torch.equal(to_bridge(gpt, silent).generate(text, **greedy, stop_at_eos=False), ours)
    declared = {"settings": {"eos_token": "<|endoftext|>"}}
    spoken = to_bridge(gpt, ImportedTokenizer(forge.smollm_definition(), d_vocab=290, bos=None, declared=declared))
    assert torch.equal(spoken.generate(text, **greedy)[0, : len(prompt) + 1], ours[0, : len(prompt) + 1])


def test_the_weights_are_never_folded_but_legacy_names_may_be_switched_on(tiny: GPT, tokens: Tensor) -> None:
    bridge = bridge_of(tiny)
    before = {name: each.clone() for name, each in tiny.state_dict().items()}
    with pytest.raises(InputError, match=r"folded or centred.*no_processing=True"):
        bridge.enable_compatibility_mode()
    assert all(torch.equal(each, before[name]) for name, each in tiny.state_dict().items())
    bridge.enable_compatibility_mode(no_processing=True)
    calls: list[str] = []
    bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_resid_pre", lambda x, hook: calls.append(hook.name))])
    assert calls == ["blocks.0.hook_resid_pre"]
    _, ours = tiny.run_with_cache(tokens, places(tiny))
    _, theirs = bridge.run_with_cache(tokens)
    assert [name for name in places(tiny) if not torch.equal(ours[name], theirs[name])] == []


def test_their_decompositions_add_up_where_the_stream_is_a_sum(tokens: Tensor) -> None:
    gpt = make_gpt_with(norm_kind="layernorm", biases=True)
    bridge = bridge_of(gpt)
    with torch.no_grad():
        logits, cache = bridge.run_with_cache(tokens)
        parts = cache.get_full_resid_decomposition(expand_neurons=False)
        torch.testing.assert_close(parts.sum(0), cache["resid_post", -1], atol=1e-5, rtol=1e-5)
        last = cache.accumulated_resid(layer=None, apply_ln=True)[-1]
    torch.testing.assert_close(last @ bridge.W_U, logits, atol=1e-5, rtol=1e-5)


def test_their_final_norm_fails_loudly_where_there_is_none(tokens: Tensor) -> None:
    """They know of no placements: a post-norm stream is no sum of parts, and dividing by a final norm is refused."""
    bridge = bridge_of(make_gpt_with(norm="post"))
    _, cache = bridge.run_with_cache(tokens)
    parts = cache.decompose_resid()
    assert (parts.sum(0) - cache["resid_post", -1]).abs().max() > 1  # no error there; ours refuses
    with pytest.raises(LookupError):
        cache.decompose_resid(apply_ln=True)


def test_transformer_lens_finds_our_architecture_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """From what pyproject.toml declares: what happens to be installed here may be older."""
    from transformer_lens.factories import architecture_adapter_factory as theirs

    from model.interop.tlens import ARCHITECTURE, bridge_config
    from model.interop.tlens_adapter import CutawayAdapter

    group = "transformer_lens.architectures"
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [EntryPoint(name, value, group) for name, value in project["entry-points"][group].items()]
    factory = theirs.ArchitectureAdapterFactory
    monkeypatch.setattr(theirs, "entry_points", lambda group: declared if group == declared[0].group else [])
    monkeypatch.setattr(factory, "_entry_points_discovered", False)
    monkeypatch.setattr(factory, "_adapters", dict(theirs.SUPPORTED_ARCHITECTURES))
    cfg = bridge_config(make_gpt_with().config)
    assert cfg.architecture == ARCHITECTURE
    assert isinstance(factory.select_architecture_adapter(cfg), CutawayAdapter)


def test_the_adapter_takes_no_other_module(tiny: GPT) -> None:
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    from model.interop.tlens import bridge_config, register

    register()
    with pytest.raises(InputError, match=r"takes a BridgedGPT, not a GPT.*to_bridge"):
        build_bridge_from_module(tiny, "CutawayGPT", tl_config=bridge_config(tiny.config))
