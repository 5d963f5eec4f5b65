"""A Llama model in a GGUF file (llama.cpp's format) as ours, read through transformers.

Weights stored in few bits are restored to fp32 exactly as the format defines them: those numbers are the model. Rows
of queries and keys lie in the file as llama.cpp pairs them for rotation, 2i with 2i + 1, where ours pairs i with i +
d_head / 2. transformers puts them back, and a test holds every layer against an un-permutation of our own: a model
whose rows are mixed up still runs, and merely speaks worse.

Limits: the architecture llama only, in one file, without rope scaling, experts, or a rotation of a part of each head;
transformers would drop the first two of these without a word, so they are looked for and refused here. The tokenizer is
that of the file, where its way to cut a text is one known here; transformers takes GPT-2's for any that it does not
know, among them SmolLM's, which cuts off every digit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from model.errors import CheckpointError, ConfigError, InputError
from model.imported_tokenizer import ImportedTokenizer
from model.interop import Imported
from model.interop.hf import config_from_hf, gpt_from_hf_state

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

Header = Mapping[str, Any]
"""The file's settings by their names, lists left out; under "tensors" every tensor's name and storage format."""


def from_gguf(path: str | Path) -> Imported:
    """The model and the tokenizer of a .gguf file, in fp32.

    Raises:
        InputError: a package that reading takes is not installed.
        CheckpointError: the file is missing, damaged, or no GGUF file.
        ConfigError: the model is none that ours can be.
    """
    path = Path(path)
    _require_gguf(path)
    require_packages()
    header = _header(path)
    refuse_others(header, path)
    config, weights = _read(path)
    gpt = gpt_from_hf_state(config_from_hf(config), weights)
    tokenizer, said = _tokenizer(path, header, gpt.config.d_vocab)
    return Imported(
        gpt=gpt.eval(),
        tokenizer=tokenizer,
        source=f"the GGUF file {path}" + (f" ({header['general.name']})" if "general.name" in header else ""),
        format="gguf",
        notes=(*_restored(header), *said),
    )


def require_packages() -> None:
    """Refuse, saying what to install, where a package that reading takes is missing."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise InputError(
            f"Reading a GGUF file takes {', '.join(PACKAGES)}, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed; run: pip install {' '.join(missing)}"
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
        single = {name: field for name, field in reader.fields.items() if field.types[0] is not GGUFValueType.ARRAY}
        settings = {name: field.contents() for name, field in single.items()}
    except (ValueError, IndexError, KeyError, TypeError) as fault:  # what its reader happens to raise
        raise CheckpointError(f"{path} is damaged or was cut short ({fault}); copy it again.") from None
    return settings | {"tensors": [(tensor.name, tensor.tensor_type.name) for tensor in reader.tensors]}


def refuse_others(header: Header, path: Path) -> None:
    """Refuse every model that would be read wrongly, before any weight is read."""
    fault = _fault(header)
    if fault:
        raise ConfigError(f"{path} cannot be imported: {fault}. Allowed is a plain Llama model in one file.")


def _fault(header: Header) -> str:
    architecture = header.get("general.architecture")
    if architecture != "llama":
        return f"its architecture is {architecture}"
    if header.get("split.count", 1) > 1:
        return f"it is one of {header['split.count']} parts"
    if header.get("llama.expert_count", 0):
        return f"its FFN is a mixture of {header['llama.expert_count']} experts"
    scaling = header.get("llama.rope.scaling.type", "none")
    if scaling != "none" or any(name.startswith("rope_freqs") for name, _ in header["tensors"]):
        return f"its rotation is scaled ({scaling if scaling != 'none' else 'rope_freqs'})"
    width = header["llama.embedding_length"] // header["llama.attention.head_count"]
    width = header.get("llama.attention.key_length", width)
    turned = header.get("llama.rope.dimension_count", width)
    return "" if turned == width else f"its rotation turns {turned} of the {width} dimensions of a head"


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
    definition = _definition(path)
    if kind == "gpt2" and cut in CUTS:
        definition["pre_tokenizer"] = CUTS[cut]
    bos, said = bos_of(header, kind)
    return ImportedTokenizer(json.dumps(definition), d_vocab=d_vocab, bos=bos), [said]


def _definition(path: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer  # pyright: ignore[reportMissingImports]

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    return json.loads(tokenizer.backend_tokenizer.to_str())


def bos_of(header: Header, kind: str) -> tuple[int | None, str]:
    """The id that stands before every text, as the file wants it; llama.cpp's rule where it does not say."""
    bos = header.get("tokenizer.ggml.bos_token_id")
    if bos is not None and header.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        return int(bos), f"Token {bos} stands before every text, as the file wants it."
    return None, "No BOS stands before a text, as the file wants it."


def _restored(header: Header) -> list[str]:
    """What was done to the weights, as sentences."""
    formats = Counter(form for _, form in header["tensors"] if form != "F32")
    said = ["Rows of W_Q and W_K were put back from interleaved to half-split rotation."]
    if formats:
        listed = ", ".join(f"{count} of {form}" for form, count in formats.most_common())
        said.append(f"Weights stored in other formats were restored to float32: {listed} tensors.")
    return said
