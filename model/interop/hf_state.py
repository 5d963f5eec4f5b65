"""Our weights under transformers' names, both ways, for the Llama and GPT-2 families.

Llama's matrices lie as ours do, and both rotate the two halves of a head. GPT-2's are stored transposed (its Conv1D
computes x W), with queries, keys and values side by side in one c_attn. A GPT-2 always has biases: where ours has none,
zeros stand there, which is the same function.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from model.checkpoint import stored_weights
from model.config import GPTConfig, NormKind, Positions
from model.errors import CheckpointError
from model.gpt import GPT
from model.interop.hf_config import family_of

HEAD, EMBEDDINGS = "lm_head.weight", ("wte.weight", "wpe.weight")
_BUFFER = re.compile(r"\.attn\.(bias|masked_bias)$|rotary_emb\.(original_)?inv_freq$")
"""Masks and rotation tables, which older versions stored among the weights."""
_LAYER = re.compile(r"blocks\.(\d+)\.(.+)")
_LLAMA = {
    **{"embed": "embed_tokens", "ln_final.w": "norm.weight", "unembed": "lm_head"},
    **{"ln1.w": "input_layernorm.weight", "ln2.w": "post_attention_layernorm.weight"},
    **{f"attn.{one}_proj": f"self_attn.{one}_proj" for one in "qkvo"},
    **{"mlp.gate_proj": "mlp.gate_proj", "mlp.in_proj": "mlp.up_proj", "mlp.out_proj": "mlp.down_proj"},
}
_GPT2 = {
    **{"embed": "wte", "pos_embed": "wpe", "unembed": "lm_head"},
    **{"ln_final.w": "ln_f.weight", "ln_final.b": "ln_f.bias"},
    **{"ln1.w": "ln_1.weight", "ln1.b": "ln_1.bias", "ln2.w": "ln_2.weight", "ln2.b": "ln_2.bias"},
    **{f"attn.{one}_proj": "attn.c_attn" for one in "qkv"},
    **{"attn.o_proj": "attn.c_proj", "mlp.in_proj": "mlp.c_fc", "mlp.out_proj": "mlp.c_proj"},
}
_THIRDS = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class Place:
    """Where one of our tensors stands in transformers' file."""

    name: str
    """The name there, without the prefix of the whole model."""
    is_transposed: bool = False
    third: int | None = None
    """Which part of c_attn it is."""

    def read(self, theirs: Tensor) -> Tensor:
        """Our tensor out of theirs."""
        part = theirs if self.third is None else theirs.chunk(3, dim=-1)[self.third]
        return part.T if self.is_transposed else part

    def shape(self, ours: Sequence[int]) -> list[int]:
        """The shape of theirs, for the shape of ours."""
        *rest, last = reversed(ours) if self.is_transposed else ours
        return [*rest, last * (1 if self.third is None else 3)]


def hf_state(gpt: GPT) -> dict[str, Tensor]:
    """The weights by transformers' names, as copies; a tied head is left out, as transformers leaves it out."""
    family_of(gpt.config)
    parts: dict[str, dict[int, Tensor]] = {}
    for ours, weights in stored_weights(gpt).items():
        place = place_of(ours, gpt.config)
        parts.setdefault(place.name, {})[place.third or 0] = weights.T if place.is_transposed else weights
    state = {name: torch.cat([thirds[n] for n in sorted(thirds)], dim=-1) for name, thirds in parts.items()}
    state |= {bias: gpt.embed.weight.new_zeros(shape) for bias, shape in _blank_biases(gpt).items()}
    prefix = _prefix(gpt.config)
    return {
        name if name == HEAD else prefix + name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }


def gpt_from_hf_state(config: GPTConfig, tensors: Mapping[str, Tensor], *, biasless: Collection[str] = ()) -> GPT:
    """A GPT with these weights, in evaluation mode, in the widest of their number formats.

    Args:
        config: the architecture.
        tensors: by transformers' names, with the prefix of its whole model or without.
        biasless: of "attn" and "mlp", the sublayers whose biases the file has not; they are zeros.

    Raises:
        CheckpointError: a tensor is missing, unknown or misshapen, a tied head is not the embedding, or a bias is not
            zero where `config` has none; the sentence names it.
    """
    refuse_other_sizes(config, {name: list(tensor.shape) for name, tensor in tensors.items()})
    gpt = GPT(config)
    found = _by_plain_name(tensors, config)
    wanted = {ours: place_of(ours, config) for ours in stored_weights(gpt) if not _is_absent(ours, biasless)}
    shapes = {place.name: place.shape(gpt.get_parameter(ours).shape) for ours, place in wanted.items()}
    _check_head(found, config)
    _check_blanks(found, _blank_biases(gpt))
    _check_names(found, shapes, config)
    gpt.to(reduce(torch.promote_types, [found[name][1].dtype for name in shapes]))
    for ours, weights in stored_weights(gpt).items():
        if ours in wanted:
            weights.copy_(wanted[ours].read(found[wanted[ours].name][1]))
    return gpt.eval()


def refuse_other_sizes(config: GPTConfig, shapes: Mapping[str, list[int]]) -> None:
    """Refuse a config of another size than its weights, before anything of that size is made.

    A config.json may ask for more than there is memory for; its weights cannot, as they are there. Looked at is what
    decides on the size of the whole: one matrix of each kind, and the number of layers roughly.

    Raises:
        CheckpointError: the config asks for another shape; the sentence names the weight.
    """
    if config.n_layers > len(shapes):
        raise CheckpointError(f"The config asks for {config.n_layers} layers, and there are {len(shapes)} weights.")
    there = {name.removeprefix(_prefix(config)): (name, shape) for name, shape in shapes.items()}
    for ours, size in _decisive(config).items():
        place = place_of(ours, config)
        name, shape = there.get(place.name, ("", place.shape(size)))
        if shape != place.shape(size):
            raise CheckpointError(_misshapen(name, shape, place.shape(size)))


def _decisive(config: GPTConfig) -> dict[str, tuple[int, int]]:
    """The shapes from which every other follows."""
    width, first = config.d_model, "blocks.0"
    positions = {"pos_embed.weight": (config.n_ctx, width)} if config.positions is Positions.LEARNED else {}
    return {
        "embed.weight": (config.d_vocab, width),
        **positions,
        f"{first}.attn.q_proj.weight": (config.n_heads * config.head_width, width),
        f"{first}.attn.k_proj.weight": (config.kv_heads * config.head_width, width),
        f"{first}.mlp.in_proj.weight": (config.ffn_width, width),
    }


def _misshapen(name: str, shape: list[int], wanted: list[int]) -> str:
    return f"The weight {name} is {shape}; the config asks for {wanted}."


def place_of(ours: str, config: GPTConfig) -> Place:
    """Where our tensor of this name stands."""
    is_llama = config.norm_kind is NormKind.RMSNORM
    names, layers = (_LLAMA, "layers") if is_llama else (_GPT2, "h")
    inside = _LAYER.fullmatch(ours)
    rest = inside[2] if inside else ours
    stem, _, leaf = rest.rpartition(".")
    name = names[rest] if rest in names else f"{names[stem]}.{leaf}"
    name = f"{layers}.{inside[1]}.{name}" if inside else name
    if is_llama or inside is None or stem not in names:
        return Place(name)
    third = stem.removeprefix("attn.")
    return Place(name, leaf == "weight", _THIRDS.index(third) if third in _THIRDS else None)


def has_zero_biases(tensors: Mapping[str, Tensor]) -> bool:
    """Whether every bias is zero, as in a GPT-2 that was made from a model without them."""
    return not any(
        bool(tensor.any()) for name, tensor in tensors.items() if name.endswith(".bias") and not _BUFFER.search(name)
    )


def _prefix(config: GPTConfig) -> str:
    return "model." if config.norm_kind is NormKind.RMSNORM else "transformer."


def _is_absent(ours: str, biasless: Collection[str]) -> bool:
    return ours.endswith(".bias") and any(f".{sublayer}." in ours for sublayer in biasless)


def _blank_biases(gpt: GPT) -> dict[str, list[int]]:
    """The biases that a GPT-2 has and ours has not, with their shapes."""
    if gpt.config.norm_kind is NormKind.RMSNORM or gpt.config.biases:
        return {}
    places = {name: place_of(name, gpt.config).shape(tensor.shape) for name, tensor in stored_weights(gpt).items()}
    names = {place_of(name, gpt.config).name: shape for name, shape in places.items()}
    plain = {name: shape for name, shape in names.items() if name not in (HEAD, *EMBEDDINGS)}
    return {name.removesuffix("weight") + "bias": shape[-1:] for name, shape in plain.items()}


def _by_plain_name(tensors: Mapping[str, Tensor], config: GPTConfig) -> dict[str, tuple[str, Tensor]]:
    """Every weight with the name that the file gives it, by the name without prefix."""
    found: dict[str, tuple[str, Tensor]] = {}
    for name, tensor in tensors.items():
        plain = name.removeprefix(_prefix(config))
        if _BUFFER.search(name):
            continue
        if plain in found:
            raise CheckpointError(f"The weights hold {found[plain][0]} twice, as {name} too; keep one of them.")
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise CheckpointError(
                f"The weight {name} is stored as {tensor.dtype}: quantised weights are not read. Save the model in "
                "float16, bfloat16 or float32."
            )
        found[plain] = (name, tensor)
    return found


def _check_head(found: dict[str, tuple[str, Tensor]], config: GPTConfig) -> None:
    """A head beside a tied embedding may only repeat it; it is then taken out."""
    embedding = found.get(place_of("embed.weight", config).name)
    if not config.tie_embeddings or HEAD not in found or embedding is None:
        return
    _, head = found.pop(HEAD)
    if not torch.equal(head, embedding[1]):
        raise CheckpointError(
            f"The config ties the head to the embedding (tie_word_embeddings), and {HEAD} differs from {embedding[0]}; "
            "set tie_word_embeddings to false if the head is meant to be its own."
        )


def _check_blanks(found: dict[str, tuple[str, Tensor]], blanks: Mapping[str, list[int]]) -> None:
    """Biases of a model without them must be zero; they are then taken out."""
    for plain, shape in blanks.items():
        name, bias = found.pop(plain, (plain, torch.zeros(shape)))
        if bool(bias.any()) or list(bias.shape) != shape:
            raise CheckpointError(f"The config has no biases, and {name} is not {shape} zeros; take biases=true.")


def _check_names(found: Mapping[str, tuple[str, Tensor]], shapes: Mapping[str, list[int]], config: GPTConfig) -> None:
    """Refuse weights that are not exactly those of the model that the config describes."""
    missing = sorted(shapes.keys() - found.keys())
    if missing:
        name = missing[0] if missing[0] == HEAD else _prefix(config) + missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        tied = "; if head and embedding are one matrix, tie_word_embeddings must be true" if name == HEAD else ""
        raise CheckpointError(f"The weights lack {name}{more}, which the config asks for{tied}.")
    unknown = sorted(found.keys() - shapes.keys())
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise CheckpointError(f"The weights hold {found[unknown[0]][0]}{more}, which the config does not describe.")
    for plain, shape in shapes.items():
        name, tensor = found[plain]
        if list(tensor.shape) != shape:
            raise CheckpointError(_misshapen(name, list(tensor.shape), shape))
