"""A Llama model in a GGUF file (llama.cpp's format) as ours, read through transformers.

Weights stored in few bits are restored to fp32 exactly as the format defines them: those numbers are the model. Rows
of queries and keys lie in the file as llama.cpp pairs them for rotation, 2i with 2i + 1, where ours pairs i with i +
d_head / 2. transformers puts them back, and a test holds every layer against an un-permutation of our own: a model
whose rows are mixed up still runs, and merely speaks worse.

transformers drops what it does not know, and makes up what is missing: scaling, experts and biases vanish, an absent
weight is drawn at random, an absent setting is its own default. So the settings must be there, and the tensors must be
exactly those of the Llama that they describe, before anything is read. The tokenizer is that of the file, where its way
to cut a text is one known here; transformers takes GPT-2's for any that it does not know, among them SmolLM's, which
cuts off every digit.

Limits: the architecture llama only, in one file, without rope scaling, experts, or a rotation of a part of each head.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from model.errors import CheckpointError, ConfigError, InputError
from model.imported_tokenizer import ImportedTokenizer
from model.interop import Imported
from model.interop.hf import config_from_hf, gpt_from_hf_state
from model.interop.hf_declared import ids_of
from model.interop.remarks import remarks_on

MAGIC = b"GGUF"
PACKAGES = ("transformers", "gguf", "accelerate")
"""What reading takes; transformers' reader uses the other two."""
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
CUTS: dict[str, Any] = {
    "gpt-2": BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
}
"""How texts are cut before merging, by the file's name for it, where transformers does not know or say."""
KNOWN_TO_TRANSFORMERS = frozenset({"llama-bpe", "llama3", "llama-v3"})
ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""The file's words for special tokens, by transformers'."""

Header = Mapping[str, Any]
"""The file's settings by their names, of lists the length only; under "tensors" every `Stored`, under "lists" the names
of settings that are lists."""
SIZES = ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count")
OPTIONAL_SIZES = ("attention.head_count_kv", "attention.key_length", "rope.dimension_count", "vocab_size")
NUMBERS = ("attention.layer_norm_rms_epsilon", "rope.freq_base")
"""What must be in the file beside the sizes: it changes what the model computes, and no default is sure to be right."""


class Stored(NamedTuple):
    """One tensor as the file lists it."""

    name: str
    form: str
    """How its numbers are stored."""
    shape: tuple[int, ...]
    """In torch's order."""


def from_gguf(path: str | Path, *, with_tokenizer: bool = True) -> Imported:
    """The model and the tokenizer of a .gguf file, in fp32.

    Args:
        path: the file.
        with_tokenizer: false to leave out a tokenizer that cannot be read, or is not wanted.

    Raises:
        InputError: a package that reading takes is not installed.
        CheckpointError: the file is missing, damaged, incomplete, or no GGUF file.
        ConfigError: the model is none that ours can be.
    """
    path = Path(path)
    _require_gguf(path)
    require_packages()
    header = _header(path)
    refuse_others(header, path)
    with _alone(path) as file:
        config, weights = _read(file)
        gpt = gpt_from_hf_state(config_from_hf(config), weights)
        tokenizer, said = _tokenizer(file, header, gpt.config.d_vocab) if with_tokenizer else (None, ())
    return Imported(
        gpt=gpt.eval(),
        tokenizer=tokenizer,
        source=f"the GGUF file {path}" + (f" ({header['general.name']})" if "general.name" in header else ""),
        format="gguf",
        notes=(*_restored(header), *said, *remarks_on(gpt, tokenizer)),
    )


def require_packages() -> None:
    """Refuse, saying what to install, where a package that reading takes is missing."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise InputError(
            f"Reading a GGUF file takes packages that are not installed ({', '.join(missing)}); "
            "run, in the folder of Cutaway: pip install -e '.[interop]'"
        )


def _require_gguf(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}; name a .gguf file.")
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise CheckpointError(f"{path} is no GGUF file: it does not begin with {MAGIC.decode()}.")


def _header(path: Path) -> Header:
    from gguf import GGUFReader, GGUFValueType  # pyright: ignore[reportAttributeAccessIssue]  (not this file)

    try:
        reader = GGUFReader(path)
        lists = {name for name, field in reader.fields.items() if field.types[:1] == [GGUFValueType.ARRAY]}
        settings = {
            name: len(field.data) if name in lists else field.contents() for name, field in reader.fields.items()
        }
        tensors = [
            Stored(tensor.name, tensor.tensor_type.name, tuple(int(size) for size in reversed(tensor.shape)))
            for tensor in reader.tensors
        ]
    except (ValueError, IndexError, KeyError, TypeError) as fault:  # what its reader happens to raise
        raise CheckpointError(f"{path} is damaged or was cut short ({fault}); copy it again.") from None
    return settings | {"tensors": tensors, "lists": lists}


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """The file in a folder of its own: transformers prefers a tokenizer.json that lies beside it."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "model.gguf"
        link.symlink_to(path.resolve())
        yield link


def refuse_others(header: Header, path: Path) -> None:
    """Refuse every model that would be read wrongly, before any weight is read."""
    fault = _fault(header)
    if fault:
        raise ConfigError(f"{path} cannot be imported: {fault}. Allowed is a plain Llama model in one file.")


def _fault(header: Header) -> str:
    architecture = header.get("general.architecture")
    if architecture != "llama":
        return f"its architecture is {architecture}"
    if header.get("split.count", 1) not in (0, 1):
        return f"it is one of {header['split.count']} parts"
    if header.get("llama.expert_count", 0):
        return f"its FFN is a mixture of {header['llama.expert_count']} experts"
    scaling = header.get("llama.rope.scaling.type", "none")
    if scaling != "none" or any(tensor.name.startswith("rope_freqs") for tensor in header["tensors"]):
        return f"its rotation is scaled ({scaling if scaling != 'none' else 'rope_freqs'})"
    return _fault_in_settings(header) or _fault_in_rotation(header) or _fault_in_tensors(header)


def _fault_in_settings(header: Header) -> str:
    """What is said wrongly or not at all, and would be taken from transformers' defaults."""
    for key in (*SIZES, *OPTIONAL_SIZES, *NUMBERS):
        name = f"llama.{key}"
        if name in header["lists"]:
            return f"it gives {name} layer by layer"
        if name not in header and key not in OPTIONAL_SIZES:
            return f"it lacks {name}, without which what it computes is not known"
        value, allowed = header.get(name, 1), int | float if key in NUMBERS else int
        if isinstance(value, bool) or not isinstance(value, allowed) or not 0 < value < math.inf:
            return f"it says {name}={value!r}"
    width, n_heads = header["llama.embedding_length"], header["llama.attention.head_count"]
    if width % n_heads:
        return f"its width of {width} does not divide into {n_heads} heads"
    return ""


def _head_width(header: Header) -> int:
    return header["llama.embedding_length"] // header["llama.attention.head_count"]


def _fault_in_rotation(header: Header) -> str:
    width = header.get("llama.attention.key_length", _head_width(header))
    turned = header.get("llama.rope.dimension_count", _head_width(header))
    return "" if turned == width else f"its rotation turns {turned} of the {width} dimensions of a head"


def _fault_in_tensors(header: Header) -> str:
    """The first tensor by which the file is not the Llama that its settings describe."""
    there = {tensor.name: tensor.shape for tensor in header["tensors"]}
    wanted = _shapes(header, at_most=len(there))
    missing = sorted(wanted.keys() - there.keys() - {"output.weight"})  # left out where it is the embedding
    if missing:
        return f"it lacks the tensor {missing[0]}"
    for name, shape in there.items():
        if name not in wanted:
            return f"it holds {name}, which the Llama that it describes has not"
        if shape != wanted[name]:
            return f"its {name} is {list(shape)}, not {list(wanted[name])}"
    return ""


def _shapes(header: Header, *, at_most: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the Llama that the settings describe, of `at_most` blocks and one."""
    d_model, d_ff, n_heads = (header[f"llama.{key}"] for key in ("embedding_length", *SIZES[3:]))
    width = header.get("llama.rope.dimension_count", _head_width(header))
    kv_width = width * header.get("llama.attention.head_count_kv", n_heads)
    d_vocab = header.get("llama.vocab_size", header.get("tokenizer.ggml.tokens", 0))
    block = {
        **{"attn_norm": (d_model,), "attn_q": (n_heads * width, d_model), "attn_k": (kv_width, d_model)},
        **{"attn_v": (kv_width, d_model), "attn_output": (d_model, n_heads * width)},
        **{"ffn_norm": (d_model,), "ffn_gate": (d_ff, d_model), "ffn_up": (d_ff, d_model), "ffn_down": (d_model, d_ff)},
    }
    n_blocks = min(header["llama.block_count"], at_most + 1)
    return {
        **{"token_embd.weight": (d_vocab, d_model), "output.weight": (d_vocab, d_model)},
        "output_norm.weight": (d_model,),
        **{f"blk.{layer}.{part}.weight": shape for layer in range(n_blocks) for part, shape in block.items()},
    }


def _read(path: Path) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """The config and the weights as transformers has them."""
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]

    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype="float32")
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    return config, model.state_dict()


def _tokenizer(path: Path, header: Header, d_vocab: int) -> tuple[ImportedTokenizer | None, Sequence[str]]:
    """The file's tokenizer, and what there is to say about it; None where its way to cut a text is not known."""
    kind, cut = header.get("tokenizer.ggml.model"), header.get("tokenizer.ggml.pre", "")
    if kind not in ("gpt2", "llama") or (kind == "gpt2" and cut not in KNOWN_TO_TRANSFORMERS | CUTS.keys()):
        return None, [f'The file\'s tokenizer ("{kind}", which cuts texts as "{cut}") is not known here; name another.']
    try:
        definition = _definition(path)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as fault:  # what transformers happens to raise
        return None, [f"The file's tokenizer could not be read ({type(fault).__name__}: {fault}); name another."]
    if kind == "gpt2" and cut in CUTS:
        definition["pre_tokenizer"] = CUTS[cut]
    bos, said = bos_of(header, kind)
    declared = declared_by(header, definition)
    return ImportedTokenizer(json.dumps(definition), d_vocab=d_vocab, bos=bos, declared=declared), [said]


def _definition(path: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer  # pyright: ignore[reportMissingImports]

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return json.loads(tokenizer.backend_tokenizer.to_str())


def bos_of(header: Header, kind: str) -> tuple[int | None, str]:
    """The id that stands before every text, as the file wants it; llama.cpp's rule where it does not say."""
    bos = header.get("tokenizer.ggml.bos_token_id")
    if isinstance(bos, int) and header.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        return bos, f"Token {bos} stands before every text, as the file wants it."
    return None, "No BOS stands before a text, as the file wants it."


def declared_by(header: Header, definition: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens that the file names, for an export to name again."""
    token_of = {index: token for token, index in ids_of(definition).items()}
    ids = {role: header.get(f"tokenizer.ggml.{name}_token_id") for role, name in ROLES.items()}
    return {"settings": {f"{role}_token": token_of[index] for role, index in ids.items() if index in token_of}}


def _restored(header: Header) -> list[str]:
    """What was done to the weights, as sentences."""
    formats = Counter(tensor.form for tensor in header["tensors"] if tensor.form != "F32")
    said = ["Rows of W_Q and W_K were put back from interleaved to half-split rotation."]
    if formats:
        listed = ", ".join(f"{count} of {form}" for form, count in formats.most_common())
        said.append(f"Weights stored in other formats were restored to float32: {listed} tensors.")
    return said
