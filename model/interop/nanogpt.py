"""A nanoGPT checkpoint (`ckpt.pt`) as our model: pre-norm, learned positions, GELU, tied embeddings (Karpathy 2022).

nanoGPT's matrices are `nn.Linear`'s, so that they are taken as they lie, where GPT-2's in Hugging Face's layout are
transposed. How the file itself is opened, which is a pickle, is said in `model.interop.nanogpt_file`.

Limits: nanoGPT's own architecture only; a fork that computes something else is refused by the settings or the weights
that it adds. The file does not say which GELU the code had: the exact one, as in nanoGPT since June 2023, is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.checkpoint import stored_weights
from model.config import FFNKind, GPTConfig, NormKind, Positions
from model.errors import ConfigError
from model.gpt import GPT
from model.interop import Imported, step_said
from model.interop.given_tokenizer import given_tokenizer
from model.interop.nanogpt_file import opened_file, plain_weights
from model.interop.remarks import remarks_on
from model.settings import as_enum

SIZES = {
    "n_layer": "n_layers",
    "n_head": "n_heads",
    "n_embd": "d_model",
    "block_size": "n_ctx",
    "vocab_size": "d_vocab",
}
KNOWN = frozenset({*SIZES, "bias", "dropout"})
"""Everything that nanoGPT's model_args may hold."""
GPT2_VOCABULARY, GPT2_PADDED = 50_257, 50_304
GELU_NOTES = {
    FFNKind.GELU: (
        "The file does not name its GELU: the exact one was taken, as in nanoGPT's code since June 2023; for a model "
        "of older code give --ffn gelu_tanh."
    ),
    FFNKind.GELU_TANH: "GELU is the tanh approximation, as asked for: nanoGPT's code had it until June 2023.",
}


def from_nanogpt(path: str | Path, tokenizer: str | None = None, *, ffn: FFNKind | str = FFNKind.GELU) -> Imported:
    """The model of a `ckpt.pt`, in fp32.

    Args:
        path: the file.
        tokenizer: what its text was cut with, which the file does not hold: `bytes`, `chars:FILE` (nanoGPT's rule on
            the text it was trained on), or a folder or file of a `tokenizer.json`.
        ffn: `gelu`; `gelu_tanh` for a model trained with nanoGPT's code from before June 2023.

    Raises:
        CheckpointError: the file is not nanoGPT's, is damaged, or would run code.
        ConfigError: the model is of another architecture.
    """
    path = Path(path)
    content = opened_file(path)
    weights, notes = plain_weights(content["model"], path)
    config = _config(content["model_args"], weights, path, ffn)
    _check_sizes(config, weights, path)
    gpt = _filled(config, _ours(weights, config), path)
    cut_by = None if tokenizer is None else given_tokenizer(tokenizer, config.d_vocab)
    said = _lacking(config) if cut_by is None else ()
    return Imported(
        gpt=gpt,
        tokenizer=cut_by,
        source=f"the nanoGPT checkpoint {path}",
        format="nanogpt",
        notes=(*notes, *_said(weights, config), *said, *remarks_on(gpt, cut_by)),
        step=step_said(content.get("iter_num")),
    )


def _config(given: Mapping[str, Any], weights: Mapping[str, Tensor], path: Path, ffn: FFNKind | str) -> GPTConfig:
    unknown = sorted(given.keys() - KNOWN, key=str)
    if unknown:
        raise ConfigError(
            f"{path} has model_args.{unknown[0]}={given[unknown[0]]!r}, which nanoGPT's own model does not know: it is "
            f"of a fork that may compute something else. Known are {', '.join(sorted(KNOWN))}."
        )
    missing = [name for name in SIZES if name not in given]
    if missing:
        raise ConfigError(f"{path} does not say how large its model is: model_args lacks {', '.join(missing)}.")
    dropout = given.get("dropout", 0.0)
    if isinstance(dropout, bool) or not isinstance(dropout, int | float):
        raise ConfigError(f"{path} says model_args.dropout={dropout!r}; a number belongs there.")
    kind = as_enum(FFNKind, ffn, "ffn")
    if kind not in GELU_NOTES:
        raise ConfigError(f'ffn="{ffn}" is not what nanoGPT has; take gelu, or gelu_tanh for code before June 2023.')
    return GPTConfig(
        **{ours: given[theirs] for theirs, ours in SIZES.items()},
        norm_kind=NormKind.LAYERNORM,
        positions=Positions.LEARNED,
        ffn=kind,
        biases=given.get("bias", "transformer.ln_f.bias" in weights),
        dropout=float(dropout),
        tie_embeddings=_is_tied(weights),
    )


def _is_tied(weights: Mapping[str, Tensor]) -> bool:
    embed, unembed = weights.get("transformer.wte.weight"), weights.get("lm_head.weight")
    if embed is None or unembed is None:
        return True
    return embed.dtype == unembed.dtype and torch.equal(embed, unembed)


def _check_sizes(config: GPTConfig, weights: Mapping[str, Tensor], path: Path) -> None:
    """Refuse model_args of another size than the weights, before anything of that size is made."""
    width = config.d_model
    wanted = {"transformer.wte.weight": [config.d_vocab, width], "transformer.wpe.weight": [config.n_ctx, width]}
    thirds = [name for name in weights if name.endswith(".attn.c_attn.weight")]
    wanted |= {name: [3 * width, width] for name in thirds}
    wanted |= {name.replace(".weight", ".bias"): [3 * width] for name in thirds}
    for name, shape in wanted.items():
        if name in weights and list(weights[name].shape) != shape:
            raise ConfigError(_other_shape(path, name, list(weights[name].shape), shape))
    if config.n_layers > len(weights):
        raise ConfigError(
            f"{path} holds another model than its model_args say: {len(weights)} weights are too few for n_layer="
            f"{config.n_layers}."
        )


def _other_shape(path: Path, name: str, shape: list[int], wanted: list[int]) -> str:
    return f"{path} holds another model than its model_args say: {name} is {shape}, not {wanted}."


def _ours(weights: Mapping[str, Tensor], config: GPTConfig) -> dict[str, Tensor]:
    """The weights under our names; what nanoGPT has no name for keeps its own, to be refused."""
    ours: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if config.tie_embeddings and name == "lm_head.weight":
            name = "transformer.wte.weight"  # the same matrix
        match = _IN_BLOCK.fullmatch(name)
        if match is None or match["part"] not in (*_INSIDE, "attn.c_attn"):
            ours[_OUTSIDE.get(name, name)] = tensor
        elif match["part"] == "attn.c_attn":  # queries, keys and values, one below the other
            block, kind = match["block"], match["kind"]
            ours |= {f"{block}.attn.{x}_proj.{kind}": rows for x, rows in zip("qkv", tensor.chunk(3), strict=True)}
        else:
            part, kind = _INSIDE[match["part"]], match["kind"]
            ours[f"{match['block']}.{part}.{kind[0] if part.startswith('ln') else kind}"] = tensor
    return {name.replace("transformer.h.", "blocks."): tensor for name, tensor in ours.items()}


_IN_BLOCK = re.compile(r"(?P<block>transformer\.h\.\d+)\.(?P<part>\w+(\.\w+)?)\.(?P<kind>weight|bias)")
_INSIDE = {
    "ln_1": "ln1",
    "ln_2": "ln2",
    "attn.c_proj": "attn.o_proj",
    "mlp.c_fc": "mlp.in_proj",
    "mlp.c_proj": "mlp.out_proj",
}
_KINDS = {"w": "weight", "b": "bias"}
"""nanoGPT's words for a norm's gain and bias."""
_OUTSIDE = {
    "transformer.wte.weight": "embed.weight",
    "transformer.wpe.weight": "pos_embed.weight",
    "transformer.ln_f.weight": "ln_final.w",
    "transformer.ln_f.bias": "ln_final.b",
    "lm_head.weight": "unembed.weight",
}


def _theirs(ours: str) -> str:
    """The name in nanoGPT of the tensor that ours is, or is a part of."""
    if not ours.startswith("blocks."):
        return next((theirs for theirs, name in _OUTSIDE.items() if name == ours), ours)
    layer, _, rest = ours.removeprefix("blocks.").partition(".")
    part, _, kind = rest.rpartition(".")
    inside = {name: theirs for theirs, name in _INSIDE.items()} | {f"attn.{x}_proj": "attn.c_attn" for x in "qkv"}
    return f"transformer.h.{layer}.{inside.get(part, part)}.{_KINDS.get(kind, kind)}"


@torch.no_grad()
def _filled(config: GPTConfig, tensors: Mapping[str, Tensor], path: Path) -> GPT:
    """A model with these weights, every one of which must be there and have its place."""
    gpt = GPT(config)
    places = stored_weights(gpt)
    for name in sorted(places.keys() | tensors.keys()):
        if name not in tensors or name not in places:
            is_known, theirs = name in places, _theirs(name)
            fault = f"lacks {theirs}" if is_known else f"has {theirs}, for which nanoGPT's model has no place"
            raise ConfigError(f"{path} holds another model than its model_args say: it {fault}.")
        if tensors[name].shape != places[name].shape:
            raise ConfigError(_other_shape(path, _theirs(name), list(tensors[name].shape), list(places[name].shape)))
        places[name].copy_(tensors[name])
    return gpt.eval()


def _said(weights: Mapping[str, Tensor], config: GPTConfig) -> list[str]:
    """What was assumed or changed."""
    notes = [GELU_NOTES[config.ffn]]
    formats = {tensor.dtype for tensor in weights.values()} - {torch.float32}
    if formats:
        notes.append(f"Weights stored as {', '.join(sorted(map(str, formats)))} were converted to float32.")
    if not config.tie_embeddings:
        notes.append("Embedding and unembedding differ in the file, so they are not tied.")
    return notes


def _lacking(config: GPTConfig) -> list[str]:
    return [f"The file holds no tokenizer. {needed_tokenizer(config)}"]


def needed_tokenizer(config: GPTConfig) -> str:
    """What to give as the tokenizer of a nanoGPT model with this vocabulary, as a sentence."""
    size = config.d_vocab
    if size in (GPT2_VOCABULARY, GPT2_PADDED):
        padded = f", padded from {GPT2_VOCABULARY}" if size == GPT2_PADDED else ""
        return (
            f"A vocabulary of {size} is GPT-2's{padded}: give the folder that holds GPT-2's tokenizer.json (part of "
            "the model gpt2 on the Hugging Face hub) as the tokenizer."
        )
    return (
        f"A vocabulary of {size} is most likely that of a character model: give the text it was trained on, as "
        "chars:input.txt (the meta.pkl beside it is a pickle, and is not opened)."
    )
