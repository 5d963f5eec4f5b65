"""A small Llama of transformers' own making, written as a GGUF file here, comes back as the model that it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from model.errors import CheckpointError, ConfigError
from model.interop.gguf import CUTS, from_gguf
from model.token_bytes import byte_letters
from tests.real import oracle

pytestmark = [pytest.mark.real, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

D_MODEL, N_HEADS, N_KV_HEADS = 32, 4, 2
SPECIAL = ["<|end|>", "<|start|>"]
TOKENS = [*SPECIAL, *byte_letters(), "th", "the"]
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=D_MODEL, intermediate_size=48, num_hidden_layers=2, initializer_range=0.2,
        num_attention_heads=N_HEADS, num_key_value_heads=N_KV_HEADS, max_position_embeddings=64, rope_theta=5000.0,
        tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def written(
    path: Path,
    model: Any,
    *,
    architecture: str = "llama",
    add_bos: bool = True,
    merges: tuple[str, ...] = ("t h", "th e"),
    without: str = "",
    n_heads: Any = N_HEADS,
) -> Path:
    """The model as llama.cpp would write it: rows of queries and keys interleaved."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(D_MODEL)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(N_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(5000.0)
    writer.add_rope_dimension_count(D_MODEL // N_HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3] + [1] * (len(TOKENS) - 2))
    writer.add_token_merges(list(merges))
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(add_bos)
    for name, tensor in model.state_dict().items():
        stored, numbers = as_stored(name, tensor)
        if stored != without:
            writer.add_tensor(stored, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def as_stored(name: str, tensor: torch.Tensor) -> tuple[str, Any]:
    outside = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem = name.removesuffix(".weight")
    if stem in outside:
        return f"{outside[stem]}.weight", tensor.numpy()
    _, _, layer, part = stem.split(".", 3)
    heads = {"self_attn.q_proj": N_HEADS, "self_attn.k_proj": N_KV_HEADS}.get(part)
    return f"blk.{layer}.{NAMES[part]}.weight", (oracle.mixed_up(tensor, heads) if heads else tensor).numpy()


def test_mixing_up_and_putting_back_are_inverse() -> None:
    rows = torch.randn(24, 5)
    assert torch.equal(oracle.put_back(oracle.mixed_up(rows, 3), 3), rows)
    assert not torch.equal(oracle.mixed_up(rows, 3), rows)


def test_an_untied_llama_with_grouped_heads_comes_back_whole(tmp_path: Path) -> None:
    model = llama()
    imported = from_gguf(written(tmp_path / "small.gguf", model))
    tokens = torch.randint(2, len(TOKENS), (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(imported.gpt(tokens), model(tokens).logits, rtol=0, atol=1e-5)
    assert not imported.gpt.config.tie_embeddings
    assert imported.gpt.config.rope_base == 5000.0
    assert imported.tokenizer is not None
    assert imported.tokenizer.bos == 1
    assert imported.tokenizer.str_tokens(imported.tokenizer.encode("the  12")) == ["the", " ", " ", "1", "2"]


def test_a_file_that_wants_no_bos_gets_none(tmp_path: Path) -> None:
    imported = from_gguf(written(tmp_path / "small.gguf", llama(), add_bos=False))
    assert imported.tokenizer is not None
    assert imported.tokenizer.bos is None
    assert "No BOS stands before a text, as the file wants it." in imported.notes


def test_other_architectures_and_cut_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "small.gguf", llama(), architecture="gemma2")
    with pytest.raises(ConfigError, match="its architecture is gemma2"):
        from_gguf(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(CheckpointError, match=r"small\.gguf is damaged or was cut short"):
        from_gguf(path)


def test_a_weight_that_is_missing_is_not_drawn_at_random(tmp_path: Path) -> None:
    path = written(tmp_path / "small.gguf", llama(), without="blk.0.attn_q.weight")
    with pytest.raises(ConfigError, match=r"it lacks the tensor blk\.0\.attn_q\.weight"):
        from_gguf(path)


def test_heads_that_differ_from_layer_to_layer_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "small.gguf", llama(), n_heads=[N_HEADS, N_HEADS])
    with pytest.raises(ConfigError, match=r"it gives llama\.attention\.head_count layer by layer"):
        from_gguf(path)


def test_files_beside_it_do_not_replace_its_tokenizer(tmp_path: Path) -> None:
    """transformers prefers a tokenizer.json in the folder to the one in the file."""
    path = written(tmp_path / "small.gguf", llama())
    expected = from_gguf(path).tokenizer
    vocab = {token: len(TOKENS) - 1 - index for index, token in enumerate(TOKENS)}
    stray = {"model": {"type": "BPE", "vocab": vocab, "merges": []}, "pre_tokenizer": CUTS["gpt-2"]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(stray))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    found = from_gguf(path).tokenizer
    assert found is not None
    assert expected is not None
    assert found.encode("the 12") == expected.encode("the 12")


def test_a_tokenizer_that_cannot_be_read_is_said_and_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "small.gguf", llama(), merges=())
    imported = from_gguf(path)
    assert imported.tokenizer is None
    assert any("The file's tokenizer could not be read" in note for note in imported.notes)
    assert not any("tokenizer" in note for note in from_gguf(path, with_tokenizer=False).notes)
