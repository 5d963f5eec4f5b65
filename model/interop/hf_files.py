"""The files of a Hugging Face model: from a folder or the hub, weights in safetensors only.

A pickled file may run code that it contains as soon as it is opened, so pytorch_model.bin is refused, and no name in an
index may lead out of the folder. From the hub the settings come first, and the weights when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.errors import CheckpointError, InputError
from model.files import clear_os_errors, read_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.bin.index.json", "*.pth", "*.pt", "*.ckpt")
_SETTINGS, _WEIGHTS = ("*.json", "merges.txt"), ("*.safetensors",)
"""What is fetched from the hub, at first and then: nothing pickled, nothing executable."""
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_Content = TypeVar("_Content")


@dataclass(frozen=True)
class Source:
    """A model's folder, and what to call it."""

    folder: Path
    spoken: str
    hub_name: str | None = None
    """Its name on the hub, where it is fetched from there."""


def is_hub_name(name: str) -> bool:
    """Whether a model on the hub could be called so: NAME or OWNER/NAME, and no way through folders."""
    return _HUB_NAME.fullmatch(name) is not None


def found_source(where: str | Path, *, from_hub: bool = False) -> Source:
    """The folder that `where` is, or into which the model of that name on the hub is fetched, as yet without weights.

    Args:
        where: a folder, or a name such as OWNER/MODEL.
        from_hub: true where it is a name even if a folder is called the same.
    """
    return _on_hub(str(where)) if from_hub else _here_or_on_hub(Path(where), str(where))


def _here_or_on_hub(path: Path, name: str) -> Source:
    with clear_os_errors("read", path, InputError):
        is_folder, is_there = path.is_dir(), path.exists()
    if is_folder:
        return Source(path, f"the folder {path}")
    if is_there:
        raise InputError(f"{path} is a file; give the folder that holds {CONFIG} and the weights.")
    if not is_hub_name(name):
        raise InputError(f"There is no folder {path}; give one, or the name of a model on the hub such as OWNER/MODEL.")
    return _on_hub(name)


def _on_hub(name: str) -> Source:
    if not is_hub_name(name):
        raise InputError(f'"{name}" is no name on the Hugging Face hub; give one such as gpt2 or OWNER/MODEL.')
    folder = _fetched(name, _SETTINGS)
    return Source(folder, f"{name} on the Hugging Face hub (revision {folder.name[:12]})", name)


def fetch_weights(source: Source) -> None:
    """Fetch the weights that belong to the settings; nothing to do for a folder."""
    if source.hub_name is not None:
        _fetched(source.hub_name, _WEIGHTS, revision=source.folder.name)


def read_weights(source: Source) -> dict[str, Tensor]:
    """Every tensor of model.safetensors, or of the shards that its index lists."""
    return _read(source, safetensors.torch.load_file)


def read_shapes(source: Source) -> dict[str, list[int]]:
    """The shape of every tensor that `read_weights` gives, read from the heads of the files alone."""
    return _read(source, _shapes)


def _shapes(path: Path) -> dict[str, list[int]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  (it is no mapping)


def _read(source: Source, reader: Callable[[Path], dict[str, _Content]]) -> dict[str, _Content]:
    """What a reader of one file finds in all of them, by the tensors' names."""
    folder = source.folder
    if (folder / WEIGHTS).is_file():
        return _content(folder / WEIGHTS, reader)
    if not (folder / INDEX).is_file():
        raise CheckpointError(_no_weights(source))
    listed = read_json(folder / INDEX, CheckpointError)
    places = listed.get("weight_map") if isinstance(listed, Mapping) else None
    if not isinstance(places, Mapping) or not all(isinstance(shard, str) for shard in places.values()):
        raise CheckpointError(f"{folder / INDEX} lists no weights; restore it from where the model came from.")
    found: dict[str, _Content] = {}
    for shard in sorted(set(places.values())):
        _check_shard(folder, shard)
        content = _content(folder / shard, reader)
        _check_listed(
            folder, shard, content.keys() ^ {name for name, place in places.items() if place == shard}, places
        )
        found |= content
    return found


def read_settings(path: Path) -> dict[str, Any]:
    """A JSON object; anything else is a `CheckpointError`."""
    settings = read_json(path, CheckpointError)
    if isinstance(settings, dict):
        return settings
    raise CheckpointError(f"{path} holds no settings: it is not a JSON object. Restore it from where it came from.")


def _check_shard(folder: Path, shard: str) -> None:
    if Path(shard).name != shard:
        raise CheckpointError(f"{folder / INDEX} names the file {shard!r}, which is not in the folder itself.")
    if not (folder / shard).is_file():
        raise CheckpointError(f"{folder / INDEX} lists {shard}, and there is no such file; fetch it too.")


def _check_listed(folder: Path, shard: str, differing: set[str], places: Mapping[str, str]) -> None:
    for name in sorted(differing):
        where = "lists" if places.get(name) == shard else "does not list"
        raise CheckpointError(f"{folder / INDEX} {where} {name} in {shard}, which says otherwise.")


def _content(path: Path, reader: Callable[[Path], dict[str, _Content]]) -> dict[str, _Content]:
    try:
        with clear_os_errors("read", path, CheckpointError):
            return reader(path)
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
    converted = sorted(path.name for path in source.folder.glob("*.gguf"))
    if converted:
        named = f"{source.folder / converted[0]}" if source.hub_name is None else converted[0]
        return f"{where} holds its weights as GGUF; give that file itself: {named}."
    if (source.folder / "adapter_config.json").is_file():
        return f"{where} holds an adapter, not a model; merge it into its model and save that."
    return (
        f"{where} holds no weights that can be read: there is neither {WEIGHTS} nor {INDEX}. Pickled ones "
        "(pytorch_model.bin) are refused, as opening a pickle may run code; look for a safetensors version."
    )


def _fetched(name: str, wanted: tuple[str, ...], *, revision: str | None = None) -> Path:
    """The folder of the hub's cache that holds these files of the model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(wanted)))
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
