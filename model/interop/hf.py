"""Hugging Face, both ways: a GPT to a folder that transformers opens, and a Llama or GPT-2 as a GPT of ours.

    to_hf(lab.gpt, lab.tokenizer, "exported")        imported = from_hf("exported")

Nothing of transformers is needed: a model there is config.json, safetensors and tokenizer.json. Every hidden state of
the exported model is our residual stream (resid_pre of each layer, then what ln_final makes of the last resid_post).
Limits: the two families whose every field we have (model.interop.hf_config); no pickled, quantised or remote code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from model.config import GPTConfig, NormKind
from model.errors import CheckpointError, InputError
from model.files import atomic_folder, clear_os_errors, write_json
from model.gpt import GPT
from model.interop import Imported, step_said
from model.interop.hf_config import config_from_hf, config_to_hf, fields_alone, read_config
from model.interop.hf_declared import GENERATION, SETTINGS, special_ids
from model.interop.hf_files import (
    CONFIG,
    WEIGHTS,
    fetch_weights,
    found_source,
    read_settings,
    read_shapes,
    read_weights,
)
from model.interop.hf_state import gpt_from_hf_state, has_zero_biases, hf_state, refuse_other_sizes
from model.interop.hf_tokenizer import DEFINITION, tokenizer_from_hf, tokenizer_to_hf
from model.interop.remarks import remarks_on
from model.tokenizer import Tokenizer

__all__ = ["config_from_hf", "config_to_hf", "from_hf", "gpt_from_hf_state", "hf_state", "to_hf"]

TRAINER = "trainer_state.json"


def to_hf(gpt: GPT, tokenizer: Tokenizer | None, folder: str | Path) -> None:
    """Write the files that AutoModelForCausalLM and AutoTokenizer open; nothing is left if that fails.

    Args:
        gpt: the model, of a config that is Llama's or GPT-2's.
        tokenizer: its tokenizer, or None to write the model alone.
        folder: where to; must not exist or be empty.
    """
    folder = Path(folder)
    config = config_to_hf(gpt.config)
    ids, generation = special_ids(tokenizer)  # all are said: what is left out is GPT-2's own ids, or Llama's
    config |= {"dtype": str(gpt.dtype).removeprefix("torch."), **ids}
    files: dict[str, Any] = {CONFIG: config, GENERATION: generation}
    definition = ""
    if tokenizer is not None:
        _check_sizes(tokenizer, gpt)
        definition, files[SETTINGS] = tokenizer_to_hf(tokenizer, gpt.config.n_ctx)
    weights = hf_state(gpt)
    _check_empty(folder)
    with atomic_folder(folder, InputError) as unfinished:
        safetensors.torch.save_file(weights, unfinished / WEIGHTS, metadata={"format": "pt"})
        if definition:
            (unfinished / DEFINITION).write_text(definition, encoding="utf-8")
        for name, content in files.items():
            write_json(unfinished / name, content)
        (unfinished / WEIGHTS).chmod((unfinished / CONFIG).stat().st_mode)  # safetensors lets the owner alone read it


def from_hf(
    where: str | Path, *, dtype: torch.dtype | None = None, with_tokenizer: bool = True, from_hub: bool = False
) -> Imported:
    """The model in a folder, or of a name on the hub, with its tokenizer where it has one.

    Args:
        where: a folder with config.json and safetensors, or a name such as OWNER/MODEL.
        dtype: what to cast the weights to; by default at least fp32, which half precision fits into exactly.
        with_tokenizer: false to leave out a tokenizer that cannot be read, or is not wanted.
        from_hub: true where `where` is a name on the hub even if a folder here is called the same.

    Raises:
        InputError: there is no such folder or model, or its tokenizer cannot be used.
        ConfigError: it is of another family, or a field changes the function in a way that ours has no counterpart for.
        CheckpointError: its files are damaged, incomplete, pickled, or of another model than the config says.
    """
    source = found_source(where, from_hub=from_hub)
    if not (source.folder / CONFIG).is_file():
        raise CheckpointError(f"{source.spoken} holds no {CONFIG}; give the folder of a Hugging Face model.")
    mapping = read_settings(source.folder / CONFIG)
    config, notes = read_config(mapping)
    fetch_weights(source)
    refuse_other_sizes(config, read_shapes(source))
    tokenizer, said = tokenizer_from_hf(source.folder, config.d_vocab) if with_tokenizer else (None, ())
    tensors = read_weights(source)
    config, changed = _with_biases_as_stored(config, mapping, tensors)
    gpt = gpt_from_hf_state(config, tensors, biasless=_biasless(mapping, config))
    stored, wanted = gpt.dtype, dtype or torch.promote_types(gpt.dtype, torch.float32)
    cast = (f"The weights were stored as {_named(stored)} and are {_named(wanted)} here.",) if stored != wanted else ()
    return Imported(
        gpt=gpt.to(wanted),
        tokenizer=tokenizer,
        source=source.spoken,
        format="llama" if config.norm_kind is NormKind.RMSNORM else "gpt2",
        notes=(*notes, *changed, *cast, *said, *remarks_on(gpt, tokenizer)),
        step=_step(source.folder),
    )


def _with_biases_as_stored(
    config: GPTConfig, mapping: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[GPTConfig, tuple[str, ...]]:
    """Our entry may say that a GPT-2 has no biases; where they are not zeros it is no longer so."""
    theirs = fields_alone(mapping)[0]
    if config.biases or not theirs.biases or has_zero_biases(tensors):
        return config, ()
    return config.varied(biases=True), ("The model was exported without biases and has some now; they were kept.",)


def _biasless(mapping: dict[str, Any], config: GPTConfig) -> tuple[str, ...]:
    """The sublayers of a Llama whose biases are zeros because the others have some."""
    if config.norm_kind is not NormKind.RMSNORM:
        return ()
    flags = {"attn": "attention_bias", "mlp": "mlp_bias"}
    return tuple(sublayer for sublayer, flag in flags.items() if not mapping.get(flag))


def _step(folder: Path) -> int | None:
    """Optimizer steps, where transformers' trainer left its record."""
    record = read_settings(folder / TRAINER) if (folder / TRAINER).is_file() else {}
    step = record.get("global_step")
    return step_said(step)


def _check_sizes(tokenizer: Tokenizer, gpt: GPT) -> None:
    if tokenizer.d_vocab != gpt.config.d_vocab:
        raise InputError(
            f"The tokenizer has {tokenizer.d_vocab} tokens and the model {gpt.config.d_vocab}; give the model's own."
        )


def _check_empty(folder: Path) -> None:
    with clear_os_errors("read", folder, InputError):
        if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            raise InputError(f"{folder} is not an empty folder; choose another, so that nothing in it is lost.")


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
