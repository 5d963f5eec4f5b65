"""transformers' own GPT-2 and Llama, against ours with the same weights, both ways: logits and every residual to 1e-5.

transformers computes with its eager attention in fp32. Its hidden states are our stream: the embedding, what each layer
hands to the next, and last what the final norm makes of the stream. transformers is imported where it is used:
`make test-slow` installs it, and collecting these tests does not need it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT
from model.checkpoint import weights_sha256
from model.interop.hf import from_hf, to_hf
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, load_tokenizer
from tests.conftest import make_gpt_with
from tests.model.interop import forge
from tests.model.interop.variants import EXPORTABLE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the library's own deprecations are not ours to answer for
]

LLAMA: dict[str, Any] = {
    **{"vocab_size": 50, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 24, "initializer_range": 0.2},
}
GPT2: dict[str, Any] = {
    **{"vocab_size": 50, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 24, "initializer_range": 0.2},
}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", LLAMA),
    "llama-tied": ("llama", LLAMA | {"tie_word_embeddings": True}),
    "llama-biases": ("llama", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama-attention-biases": ("llama", LLAMA | {"attention_bias": True}),
    "llama-wide-heads": ("llama", LLAMA | {"head_dim": 12, "num_key_value_heads": 1, "rms_norm_eps": 1e-3}),
    "llama-theta": ("llama", LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "gpt2": ("gpt2", GPT2),
    "gpt2-untied": ("gpt2", GPT2 | {"tie_word_embeddings": False, "n_inner": 48, "layer_norm_epsilon": 1e-3}),
    "gpt2-relu": ("gpt2", GPT2 | {"activation_function": "relu"}),
    "gpt2-erf": ("gpt2", GPT2 | {"activation_function": "gelu"}),
    "gpt2-upcast": ("gpt2", GPT2 | {"reorder_and_upcast_attn": True}),
}
EACH_OF_THEIRS = pytest.mark.parametrize("name", THEIRS)
EACH_OF_OURS = pytest.mark.parametrize("variant", EXPORTABLE.values(), ids=EXPORTABLE.keys())
CHARACTERS = CharTokenizer.train([forge.TEXT, *forge.HOSTILE]).characters
TOKENIZERS: dict[str, Tokenizer] = {
    "bytes": ByteTokenizer(),
    "chars": CharTokenizer(CHARACTERS),
    "chars-without-bos": CharTokenizer(CHARACTERS, has_bos=False),
    "bpe": BPETokenizer.train(forge.TEXT, 280),
}


def theirs_of(name: str):
    """A random model of transformers whose every gain and bias matters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, fields = THEIRS[name]
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **fields)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def opened(folder: Path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def left_padded(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens with 0, 2 and 5 of them padding, and the mask."""
    mask = torch.ones_like(tokens, dtype=torch.bool)
    for row, n_pad in enumerate((0, 2, 5)):
        mask[row, :n_pad] = False
    return tokens * mask, mask


def assert_same_computation(gpt: GPT, theirs: Any, tokens: Tensor, mask: Tensor | None = None) -> None:
    """Logits and every residual agree to 1e-5 at every token."""
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        out = theirs(tokens, attention_mask=real.long(), position_ids=positions, output_hidden_states=True)
        logits, cache = gpt.run_with_cache(tokens, attention_mask=mask)
    layers = range(gpt.config.n_layers)
    ours = [*(cache["resid_pre", layer] for layer in layers), cache["ln_final.hook_out"], logits]
    for mine, other in zip(ours, (*out.hidden_states, out.logits), strict=True):
        torch.testing.assert_close(mine[real], other[real], atol=1e-5, rtol=0)
    # The stream before the final norm, which transformers does not hand out: its own norm makes the last state of it.
    final_norm = theirs.model.norm if hasattr(theirs, "model") else theirs.transformer.ln_f
    again = final_norm(cache["resid_post", gpt.config.n_layers - 1])
    torch.testing.assert_close(again[real], out.hidden_states[-1][real], atol=1e-5, rtol=0)


@EACH_OF_THEIRS
def test_a_model_of_transformers_computes_the_same_here(name: str, tokens: Tensor, tmp_path: Path) -> None:
    theirs = theirs_of(name)
    theirs.save_pretrained(tmp_path)
    gpt = from_hf(tmp_path).gpt
    assert_same_computation(gpt, theirs, tokens)
    assert_same_computation(gpt, theirs, *left_padded(tokens))


def test_a_model_of_transformers_in_shards_computes_the_same_here(tokens: Tensor, tmp_path: Path) -> None:
    theirs = theirs_of("llama")
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_same_computation(from_hf(tmp_path).gpt, theirs, tokens)


@EACH_OF_OURS
def test_ours_computes_the_same_in_transformers(variant: dict[str, Any], tokens: Tensor, tmp_path: Path) -> None:
    gpt = make_gpt_with(**({"embed_std": 0.5} | variant))
    to_hf(gpt, None, tmp_path)
    theirs = opened(tmp_path)
    assert_same_computation(gpt, theirs, tokens)
    assert_same_computation(gpt, theirs, *left_padded(tokens))


@EACH_OF_OURS
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_ours_comes_back_bit_for_bit_even_saved_by_transformers(
    variant: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = TOKENIZERS[kind]
    gpt = make_gpt_with(**(variant | {"d_vocab": tokenizer.d_vocab}))
    to_hf(gpt, tokenizer, tmp_path / "ours")
    opened(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        imported = from_hf(tmp_path / folder)
        assert (imported.gpt.config, imported.notes) == (gpt.config, ())
        assert weights_sha256(imported.gpt) == weights_sha256(gpt)
        assert imported.tokenizer is not None
        assert (imported.tokenizer.kind, imported.tokenizer.bos) == (tokenizer.kind, tokenizer.bos)
        assert imported.tokenizer.state() == tokenizer.state()


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_auto_tokenizer_gives_our_tokens_and_the_text_back(family: str, kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = TOKENIZERS[kind]
    to_hf(make_gpt_with(**EXPORTABLE[family], d_vocab=tokenizer.d_vocab), tokenizer, tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    bos = [] if tokenizer.bos is None else [tokenizer.bos]
    assert theirs.bos_token_id == tokenizer.bos
    for text in forge.HOSTILE:
        ids = theirs(text).input_ids
        assert ids == bos + tokenizer.encode(text)
        assert theirs.decode(ids, skip_special_tokens=True) == text


DEFINITIONS = {
    "gpt2": (forge.gpt2_definition, "<|endoftext|>", None),
    "smollm": (forge.smollm_definition, "<|im_start|>", None),
    "llama3": (forge.llama3_definition, "<|begin_of_text|>", 279),
    "llama2": (forge.llama2_definition, "<s>", 1),
    "llama2-cut": (lambda: forge.llama2_definition(cut=True), "<s>", 1),
}


@pytest.mark.parametrize("says", [{}, {"add_bos_token": True}, {"add_bos_token": False}], ids=str)
@pytest.mark.parametrize(("make", "named", "bos"), DEFINITIONS.values(), ids=DEFINITIONS.keys())
def test_a_tokenizer_of_transformers_gives_its_own_ids_here(
    make: Any, named: str, bos: int | None, says: dict[str, bool], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    to_hf(make_gpt_with(**EXPORTABLE["llama"], d_vocab=290), None, tmp_path)
    (tmp_path / "tokenizer.json").write_text(make())
    settings = says | {"bos_token": named, "tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = AutoTokenizer.from_pretrained(tmp_path, split_special_tokens=True)
    ours = from_hf(tmp_path).tokenizer
    assert ours is not None and ours.bos == bos
    for text in forge.HOSTILE:
        assert theirs(text).input_ids == ([] if bos is None else [bos]) + ours.encode(text)


END = "<|endoftext|>"
SPOKEN = {
    "gpt2": (forge.gpt2_definition, {"bos_token": END, "eos_token": END}, 279),
    "smollm": (forge.smollm_definition, {"bos_token": END, "eos_token": "<|im_end|>", "pad_token": END}, 2),
    "llama3": (forge.llama3_definition, {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, 280),
    "llama2": (forge.llama2_definition, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, 2),
}


@pytest.mark.parametrize("split", [None, False, True])
@pytest.mark.parametrize(("make", "named", "eos"), SPOKEN.values(), ids=SPOKEN.keys())
def test_a_tokenizer_goes_out_as_it_came_in_special_tokens_and_all(
    make: Any, named: dict[str, str], eos: int, split: bool | None, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    theirs, out = tmp_path / "theirs", tmp_path / "out"
    to_hf(make_gpt_with(**EXPORTABLE["llama"], d_vocab=290), None, theirs)
    config = json.loads((theirs / "config.json").read_text()) | {"bos_token_id": 0, "eos_token_id": eos}
    (theirs / "config.json").write_text(json.dumps(config))
    (theirs / "generation_config.json").write_text(json.dumps({"eos_token_id": [eos]}))
    (theirs / "tokenizer.json").write_text(make())
    said = {"tokenizer_class": "PreTrainedTokenizerFast"} | ({} if split is None else {"split_special_tokens": split})
    (theirs / "tokenizer_config.json").write_text(json.dumps(named | said))
    imported = from_hf(theirs)
    assert imported.tokenizer is not None
    imported.tokenizer.save(tmp_path / "run.json")
    to_hf(imported.gpt, load_tokenizer(tmp_path / "run.json"), out)
    before, after = AutoTokenizer.from_pretrained(theirs), AutoTokenizer.from_pretrained(out)
    assert after.special_tokens_map == before.special_tokens_map
    assert (after.eos_token_id, after.padding_side) == (before.eos_token_id, before.padding_side)
    for text in (*forge.HOSTILE, *(f"the cat{token} sat" for token in named.values())):
        assert after(text).input_ids == before(text).input_ids
        if before.backend_tokenizer.decoder is not None:  # where there is none, the export adds one
            assert after.decode(after(text).input_ids) == before.decode(before(text).input_ids)
    model = opened(out)
    assert (model.config.eos_token_id, model.generation_config.eos_token_id) == (eos, [eos])


def test_generation_stops_at_the_declared_end_after_import_and_export(tmp_path: Path) -> None:
    gpt = make_gpt_with(**(EXPORTABLE["llama"] | {"tie_embeddings": False, "n_layers": 3, "d_vocab": 290}))
    to_hf(gpt, None, tmp_path / "theirs")
    prompt = torch.tensor([[5, 6, 7]])
    free = opened(tmp_path / "theirs").generate(prompt, max_new_tokens=12, do_sample=False)[0, 3:].tolist()
    end = free[4]  # what greedy generation comes to, declared as the end
    for name in ("config.json", "generation_config.json"):
        file = tmp_path / "theirs" / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": end}))
    (tmp_path / "theirs/tokenizer.json").write_text(forge.smollm_definition())
    imported = from_hf(tmp_path / "theirs")
    to_hf(imported.gpt, imported.tokenizer, tmp_path / "out")
    stopped = opened(tmp_path / "out").generate(prompt, max_new_tokens=12, do_sample=False)[0, 3:].tolist()
    assert stopped == free[: free.index(end) + 1]


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_texts_of_different_lengths_go_together_with_bos_named_as_padding(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    gpt = make_gpt_with(**(EXPORTABLE["llama"] | {"d_vocab": TOKENIZERS[kind].d_vocab}))
    to_hf(gpt, TOKENIZERS[kind], tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), opened(tmp_path)
    with pytest.raises(ValueError, match="does not have a padding token"):
        tokenizer(["a", "the cat"], padding=True)
    tokenizer.pad_token = tokenizer.bos_token  # the line of docs/interop.md
    batch = tokenizer(["a", "the cat"], padding=True, return_tensors="pt")
    assert batch.attention_mask.sum(dim=1).tolist() == [len(tokenizer(text).input_ids) for text in ("a", "the cat")]
    together = model.generate(**batch, max_new_tokens=8, do_sample=False)
    for row, text in zip(together, ("a", "the cat"), strict=True):
        alone = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=8, do_sample=False)
        assert torch.equal(row[-alone.shape[1] :], alone[0])


@EACH_OF_OURS
def test_greedy_generation_is_the_same(variant: dict[str, Any], tokens: Tensor, tmp_path: Path) -> None:
    gpt = make_gpt_with(
        **(variant | {"tie_embeddings": False, "n_layers": 3})
    )  # a tied one likes to repeat its last token
    to_hf(gpt, None, tmp_path)
    prompt = tokens[:, :6]
    mask = torch.ones_like(prompt)
    theirs = opened(tmp_path).generate(prompt, attention_mask=mask, max_new_tokens=16, do_sample=False)
    assert theirs[:, 6:].unique().numel() > 3  # not one token for ever
    assert torch.equal(gpt.generate(prompt, max_new_tokens=16, temperature=0.0), theirs)
