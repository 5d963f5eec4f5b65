"""The files of a Hugging Face model: from a folder or the hub, weights in safetensors only.

A pickled file may run code that it contains as soon as it is opened, so pytorch_model.bin is refused, and no name in an
index may lead out of the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from model.errors import CheckpointError, InputError
from model.files import clear_os_errors, read_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.bin.index.json", "*.pth", "*.pt", "*.ckpt")
_WANTED = ("*.json", "*.safetensors", "merges.txt")
"""What is fetched from the hub: nothing pickled, nothing executable."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Source:
    """A model's folder, and what to call it."""

    folder: Path
    spoken: str


def found_source(where: str | Path) -> Source:
    """The folder that `where` is, or into which the model of that name on the hub is fetched."""
    path = Path(where)
    with clear_os_errors("read", path, InputError):
        is_folder, is_there = path.is_dir(), path.exists()
    if is_folder:
        return Source(path, f"the folder {path}")
    if is_there:
        raise InputError(f"{path} is a file; give the folder that holds {CONFIG} and the weights.")
    name = str(where)
    if path.is_absolute() or not _HUB_NAME.fullmatch(name) or name.startswith("."):
        raise InputError(f"There is no folder {path}; give one, or the name of a model on the hub such as OWNER/MODEL.")
    folder = _fetched(name)
    return Source(folder, f"{name} on the Hugging Face hub (revision {folder.name[:12]})")


def read_weights(source: Source) -> dict[str, Tensor]:
    """Every tensor of model.safetensors, or of the shards that its index lists."""
    folder = source.folder
    if (folder / WEIGHTS).is_file():
        return _tensors(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        raise CheckpointError(_no_weights(source))
    listed = read_json(folder / INDEX, CheckpointError)
    places = listed.get("weight_map") if isinstance(listed, Mapping) else None
    if not isinstance(places, Mapping) or not all(isinstance(shard, str) for shard in places.values()):
        raise CheckpointError(f"{folder / INDEX} lists no weights; restore it from where the model came from.")
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(places.values())):
        tensors |= _shard(folder, shard, {name for name, place in places.items() if place == shard})
    return tensors


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object; anything else is a `CheckpointError`."""
    settings = read_json(path, CheckpointError)
    if isinstance(settings, dict):
        return settings
    raise CheckpointError(f"{path} holds no settings: it is not a JSON object. Restore it from where it came from.")


def _shard(folder: Path, shard: str, names: set[str]) -> dict[str, Tensor]:
    if Path(shard).name != shard:
        raise CheckpointError(f"{folder / INDEX} names the file {shard!r}, which is not in the folder itself.")
    if not (folder / shard).is_file():
        raise CheckpointError(f"{folder / INDEX} lists {shard}, and there is no such file; fetch it too.")
    tensors = _tensors(folder / shard)
    differing = sorted(names ^ tensors.keys())
    if differing:
        where = "lists" if differing[0] in names else "does not list"
        raise CheckpointError(f"{folder / INDEX} {where} {differing[0]} in {shard}, which says otherwise.")
    return tensors


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        with clear_os_errors("read", path, CheckpointError):
            return safetensors.torch.load_file(path)
    except SafetensorError:
        raise CheckpointError(f"{path} holds no tensors: it is damaged or was cut short. Fetch it again.") from None


def _no_weights(source: Source) -> str:
    pickled = sorted(path.name for pattern in PICKLES for path in source.folder.glob(pattern))
    where = f"{source.spoken[0].upper()}{source.spoken[1:]}"
    if pickled:
        return (
            f"{where} holds its weights as a pickle ({pickled[0]}), and opening one may run code that it contains, so "
            "it is refused. Convert it where you trust it: load it with transformers, then save_pretrained(FOLDER), "
            "which writes safetensors."
        )
    if (source.folder / "adapter_config.json").is_file():
        return f"{where} holds an adapter, not a model; merge it into its model and save that."
    return (
        f"{where} holds no weights that can be read: there is neither {WEIGHTS} nor {INDEX}. Pickled ones "
        "(pytorch_model.bin) are refused, as opening a pickle may run code; look for a safetensors version."
    )


def _fetched(name: str) -> Path:
    """The folder of the hub's cache that holds the model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(_WANTED)))
    except LocalEntryNotFoundError:
        reason = "it is not in the local cache, and the hub cannot be reached"
    except HFValidationError:
        reason = "the hub has no such names"
    except HfHubHTTPError as fault:
        status = getattr(fault.response, "status_code", None)
        reason = "the hub has no such model, or it needs a token" if status in (401, 403, 404) else "the hub failed"
    except OSError as fault:
        reason = f"it could not be fetched ({fault})"
    raise InputError(
        f'"{name}" is no folder here, and as a model on the hub {reason}. Check the name, or give a folder.'
    )
