"""What goes wrong with weights elsewhere, and what holds here (docs/known-pitfalls.md)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model import GPT, GPTConfig, Norm
from model.checkpoint import load_checkpoint, save_checkpoint, weights_sha256
from model.errors import CheckpointError
from tests.model.longdouble import Reference, error_of

MakeGPT = Callable[..., GPT]


def is_tied(gpt: GPT) -> bool:
    return gpt.embed.weight is gpt.unembed.weight and torch.equal(gpt.W_U, gpt.W_E.T)


def learns_as_one(gpt: GPT, tokens: Tensor) -> bool:
    """Whether a step of AdamW on `parameters()` moves both ends of a tied model alike."""
    before, optimizer = gpt.W_E, torch.optim.AdamW(gpt.parameters(), lr=0.01)
    gpt.loss(tokens).backward()
    optimizer.step()
    return is_tied(gpt) and not torch.equal(gpt.W_E, before)


# --- one matrix, whatever is done to the module -----------------------------------------------------------------------


def assigned(gpt: GPT) -> GPT:
    other = GPT(gpt.config, seed=5)
    other.load_state_dict({name: tensor.clone() for name, tensor in gpt.state_dict().items()}, assign=True)
    return other


def emptied(gpt: GPT) -> GPT:
    with torch.device("meta"):
        other = GPT(gpt.config)
    other = other.to_empty(device="cpu")
    assert other.embed.weight is other.unembed.weight, "before anything is loaded, too"
    other.load_state_dict(gpt.state_dict())
    return other


def converted(gpt: GPT) -> GPT:
    """As torch will do by default one day: a cast puts new parameters in place of the old."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        return copy.deepcopy(gpt).double().float()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


WAYS = [assigned, emptied, converted, copy.deepcopy, lambda gpt: copy.deepcopy(gpt).double().float()]


@pytest.mark.parametrize("way", WAYS, ids=["assign", "meta device", "overwriting cast", "deepcopy", "cast"])
def test_a_tied_model_is_tied_after_every_way_of_loading_moving_and_copying(
    make_gpt: MakeGPT, tokens: Tensor, way: Callable[[GPT], GPT]
) -> None:
    gpt = make_gpt()
    other = way(gpt).eval()
    assert is_tied(other)
    assert torch.equal(other(tokens), gpt(tokens))
    assert learns_as_one(other, tokens)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("left_out", ["embed.weight", "unembed.weight"])
def test_a_tied_matrix_loads_under_either_of_its_names(
    make_gpt: MakeGPT, tokens: Tensor, left_out: str, assign: bool
) -> None:
    gpt, other = make_gpt(), make_gpt(seed=5)
    half = {name: tensor.clone() for name, tensor in gpt.state_dict().items() if name != left_out}
    other.load_state_dict(half, assign=assign)
    assert is_tied(other)
    assert torch.equal(other(tokens), gpt(tokens))
    other.load_state_dict({"embed.weight": gpt.embed.weight + 1}, strict=False, assign=assign)
    assert is_tied(other)


def test_two_matrices_are_not_loaded_into_a_model_that_has_one(make_gpt: MakeGPT, tokens: Tensor) -> None:
    tied, untied = make_gpt(), make_gpt(tie_embeddings=False, seed=5)
    before = weights_sha256(tied)
    with pytest.raises(CheckpointError, match=r"are two different matrices .* build the GPT with tie_embeddings=False"):
        tied.load_state_dict(untied.state_dict())
    assert weights_sha256(tied) == before
    untied.load_state_dict(tied.state_dict())
    assert torch.equal(untied(tokens), tied(tokens))


def test_a_tied_matrix_costs_its_memory_once(make_gpt: MakeGPT) -> None:
    tied, untied = make_gpt(), make_gpt(tie_embeddings=False)
    counts = [len({p.data_ptr(): p.numel() for p in gpt.parameters()}) for gpt in (tied, untied)]
    assert counts[1] == counts[0] + 1
    for gpt in (tied, untied):
        assert sum(parameter.numel() for parameter in gpt.parameters()) == gpt.config.n_params
    assert untied.config.n_params - tied.config.n_params == tied.config.d_vocab * tied.config.d_model


# --- parameters are what an optimizer can move ------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("reread", [True, False])
def test_a_step_on_parameters_moves_every_weight_the_model_computes_with(
    make_gpt: MakeGPT, tokens: Tensor, tmp_path: Path, tied: bool, reread: bool
) -> None:
    gpt = make_gpt(tie_embeddings=tied, biases=True, qk_norm=True, norm_kind="layernorm", positions="learned")
    if reread:
        gpt = load_checkpoint(save_checkpoint(tmp_path, gpt, step=0, tokens_seen=0))
    before = {name: tensor.clone() for name, tensor in gpt.state_dict().items()}
    logits = gpt(tokens).detach()
    assert all(parameter.is_leaf and parameter.requires_grad for parameter in gpt.parameters())
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=0.01)
    gpt.loss(tokens).backward()
    optimizer.step()
    assert not [name for name, tensor in gpt.state_dict().items() if torch.equal(tensor, before[name])]
    assert not torch.equal(gpt(tokens), logits)


# --- wrappers leave no trace in a file --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, on importing its compiler
@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda gpt: nn.DataParallel(torch.compile(gpt))])
def test_a_compiled_or_wrapped_model_is_saved_as_the_plain_one(
    make_gpt: MakeGPT, tokens: Tensor, tmp_path: Path, wrap: Callable[[GPT], nn.Module]
) -> None:
    """`_orig_mod.` and `module.` are prefixes of the wrapper's, not names of weights (nanoGPT#325)."""
    gpt = make_gpt()
    wrapped = wrap(gpt)
    assert weights_sha256(wrapped) == weights_sha256(gpt)
    loaded = load_checkpoint(save_checkpoint(tmp_path, wrapped, step=0, tokens_seen=0))
    assert torch.equal(loaded(tokens), gpt(tokens))


def test_what_is_no_gpt_is_not_saved_as_one(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"A Linear is no GPT and has no checkpoint; give a model\.GPT"):
        save_checkpoint(tmp_path, nn.Linear(2, 2), step=0, tokens_seen=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_weights_under_foreign_names_are_refused_not_skipped(make_gpt: MakeGPT, prefix: str) -> None:
    gpt, other = make_gpt(), make_gpt(seed=5)
    before = weights_sha256(other)
    with pytest.raises(RuntimeError, match=rf"Unexpected key\(s\) in state_dict: \"{prefix}"):
        other.load_state_dict({prefix + name: tensor for name, tensor in gpt.state_dict().items()})
    assert weights_sha256(other) == before


# --- folding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("norm_kind", ["layernorm", "rmsnorm"])
def test_folding_the_final_norm_leaves_the_tied_matrix_alone(
    make_gpt: MakeGPT, tokens: Tensor, norm: str, norm_kind: str
) -> None:
    """The folded W_U is a new matrix. Gains lie away from 1 here, so a fold written into W_E would show."""
    gpt = make_gpt(norm=norm, norm_kind=norm_kind, biases=True)
    before, logits = weights_sha256(gpt), gpt(tokens)
    gpt.folded_unembed().mul_(3)
    assert weights_sha256(gpt) == before
    assert is_tied(gpt)
    assert torch.equal(gpt(tokens), logits)


@pytest.mark.parametrize("norm", Norm)
def test_there_is_no_switch_that_folds_a_norm_into_the_weights_of_any_placement(norm: Norm) -> None:
    """Folding ln1 into W_Q is right in pre-norm only. Nothing here does it in place, so no model can be misfolded."""
    gpt = GPT(GPTConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=4, d_vocab=9, norm=norm))
    assert [name for name in dir(gpt) if "fold" in name or "center" in name or "process" in name] == ["folded_unembed"]


def test_weights_of_a_model_with_another_norm_are_refused(make_gpt: MakeGPT, tmp_path: Path) -> None:
    """A checkpoint whose norms were folded away, or that has one too many, is not this model."""
    kept: dict[str, Any] = {name: t for name, t in make_gpt().state_dict().items() if not name.startswith("ln_final")}
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"ln_final\.w\""):
        make_gpt().load_state_dict(kept)


# --- the config is what is computed -----------------------------------------------------------------------------------

TURNED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"rope_base": 500.0}, {"rope_base": 10_000.0}),
    ({"norm_eps": 0.3}, {"norm_eps": 1e-5}),
    ({"norm": "scaled"}, {"norm": "pre"}),
    ({"norm": "deepnorm"}, {"norm": "post"}),
    ({"norm_kind": "layernorm"}, {"norm_kind": "rmsnorm"}),
    ({"ffn": "gelu_tanh"}, {"ffn": "gelu"}),
    ({"positions": "alibi"}, {"positions": "none"}),
    ({"positions": "sinusoidal"}, {"positions": "rope"}),
    ({"skip_connections": False}, {"skip_connections": True}),
    ({"smeared_keys": True}, {"smeared_keys": False}),
]
"""A choice, and another that the same weights fit: only the config tells them apart."""


@pytest.mark.parametrize(("choice", "other"), TURNED, ids=lambda variant: str(variant))
def test_the_function_is_the_one_that_the_config_describes(
    make_gpt: MakeGPT, tokens: Tensor, tmp_path: Path, choice: dict[str, Any], other: dict[str, Any]
) -> None:
    """Against a second implementation that reads the config alone; also after a checkpoint."""
    gpt = make_gpt(**choice).double()
    loaded = load_checkpoint(save_checkpoint(tmp_path, gpt, step=0, tokens_seen=0))
    exact = Reference(loaded, tokens).found["hook_logits"]
    assert error_of(gpt(tokens), exact) < 1e-13
    loaded.config = loaded.config.varied(**other)
    assert error_of(gpt(tokens), Reference(loaded, tokens).found["hook_logits"]) > 1e-5


def test_a_model_can_be_sent_to_another_process(tiny: GPT) -> None:
    again = pickle.loads(pickle.dumps(tiny))
    assert weights_sha256(again) == weights_sha256(tiny)
    assert again.unembed.weight is again.embed.weight


def test_a_broken_matrix_is_still_one_matrix(tiny: GPT) -> None:
    state = {name: tensor.clone() for name, tensor in tiny.state_dict().items()}
    state["embed.weight"][0, 0] = state["unembed.weight"][0, 0] = torch.nan
    tiny.load_state_dict(state)
    assert tiny.unembed.weight is tiny.embed.weight
