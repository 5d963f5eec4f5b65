"""The file of a nanoGPT checkpoint: a pickle, opened so that it runs nothing, and what is in it, as plain tensors.

A pickle can run any code when it is opened. So it is opened here and nowhere else, only when an import is asked for,
and by torch's unpickler that makes tensors and plain data and refuses everything else (`weights_only=True`; torch
before 2.10 is not trusted with it, CVE-2026-24747).
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.errors import CheckpointError

ZIP = b"PK\x03\x04"
"""How the file begins since torch 1.6."""
OLDEST_TORCH = (2, 10)
"""The first whose unpickler is not known to be open to crafted files."""
WRAPPERS = ("_orig_mod.", "module.")
"""What torch.compile and DistributedDataParallel put before every name."""
FORMATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def opened_file(path: Path) -> dict[str, Any]:
    """The content of the file: tensors and plain data, or an error."""
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}; name a nanoGPT checkpoint, out/ckpt.pt for example.")
    _refuse_old_torch(torch.__version__)
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")  # about pickles that torch.save did not write: they are refused below
            is_zip = file.read(len(ZIP)) == ZIP
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except pickle.UnpicklingError as refusal:
        raise CheckpointError(_refusal(path, str(refusal))) from None
    except Exception:  # torch raises what its reader happens to: RuntimeError, EOFError, KeyError, ...
        raise CheckpointError(f"{path} is no checkpoint of torch, or was cut short; copy it again.") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(key), dict) for key in ("model", "model_args")):
        raise CheckpointError(
            f"{path} is no nanoGPT checkpoint: that holds `model` and `model_args`. Other models are imported from a "
            "Hugging Face directory or a .gguf file."
        )
    return content


def _refuse_old_torch(version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TORCH:
        raise CheckpointError(
            f"torch {version} can be made to run code by a crafted checkpoint (CVE-2026-24747), so no .pt file is "
            "opened with it; update to torch 2.10 or later."
        )


def _refusal(path: Path, said: str) -> str:
    found = re.search(r"GLOBAL ([\w.]+)|module `?(\w+)`?", said)
    name = "" if found is None else f" ({found[1] or found[2]})"
    return (
        f"{path} holds more than tensors and plain data{name}, and making it could run any code; it was not opened. "
        "Save it again with model, model_args and iter_num only, on the machine where it was trained."
    )


def plain_weights(state: Mapping[Any, Any], path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The weights under nanoGPT's own names, without wrappers' prefixes and mask buffers; and what was stripped."""
    weights: dict[str, Tensor] = {}
    found: set[str] = set()
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise CheckpointError(f"{path} is no nanoGPT checkpoint: a weight is called {name!r}, which is no text.")
        while prefix := next((prefix for prefix in WRAPPERS if name.startswith(prefix)), ""):
            name = name.removeprefix(prefix)
            found.add(prefix)
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        if name in weights:
            raise CheckpointError(f"{path} holds {name} twice, under different prefixes; keep one of them.")
        if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided or tensor.dtype not in FORMATS:
            kind = f"{tensor.dtype}, {tensor.layout}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise CheckpointError(
                f"{path} holds {name} as {kind}; a weight is a plain tensor of {', '.join(map(str, FORMATS))}."
            )
        weights[name] = tensor
    notes = [f"{prefix} was stripped from the weights' names." for prefix in WRAPPERS if prefix in found]
    return weights, notes
