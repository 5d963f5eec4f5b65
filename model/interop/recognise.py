"""What a user wants to import, told by its content: names lie, first bytes rarely do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from model.errors import InputError, UnknownNameError
from model.files import clear_os_errors
from model.interop.hf_files import is_hub_name


class Kind(Enum):
    """Whose format it is; the value is its name in a sentence."""

    HUGGING_FACE = "a Hugging Face directory"
    HUB = "a model on the Hugging Face hub"
    GGUF = "a GGUF file"
    NANOGPT = "a nanoGPT checkpoint"


@dataclass(frozen=True)
class Recognised:
    """What was meant, and where it lies."""

    kind: Kind
    where: str
    """A path, or a name on the hub."""


HUB_PREFIX = "hf:"
ALLOWED = "a Hugging Face directory, a name on its hub (hf:NAME), a .gguf file, or a nanoGPT ckpt.pt"
_FILE_ENDINGS = (".pt", ".pth", ".bin", ".ckpt", ".gguf", ".safetensors", ".json")


def recognised(where: str | Path) -> Recognised:
    """Which of the formats `where` is; nothing of it is loaded.

    Raises:
        UnknownNameError: there is nothing there.
        InputError: it is none of the formats, or could be several.
    """
    text, path = str(where), Path(where)
    if text.startswith(HUB_PREFIX):
        return Recognised(Kind.HUB, _hub_name(text.removeprefix(HUB_PREFIX)))
    with clear_os_errors("read", path, InputError):
        if path.is_dir():
            return _directory(path)
        if path.is_file():
            return _file(path)
    if is_hub_name(text) and not text.endswith(_FILE_ENDINGS):
        return Recognised(Kind.HUB, text)
    raise UnknownNameError(f"There is nothing at {text}; give {ALLOWED}.")


def _hub_name(name: str) -> str:
    if not is_hub_name(name):
        raise UnknownNameError(f'"{name}" is no name on the Hugging Face hub; write hf:gpt2 or hf:OWNER/NAME.')
    return name


def _directory(path: Path) -> Recognised:
    if (path / "run.json").is_file():
        raise InputError(f"{path} is a run of Cutaway already; use it as it is, for example: cutaway generate {path}")
    if (path / "manifest.json").is_file() and path.parent.name == "checkpoints":
        raise InputError(
            f"{path} is a checkpoint of the run {path.parent.parent} of Cutaway; use that as it is, for example: "
            f"cutaway generate {path.parent.parent}@{path.name.removeprefix('step-').lstrip('0') or 0}"
        )
    if (path / "config.json").is_file():
        return Recognised(Kind.HUGGING_FACE, str(path))
    inside = [file for file in sorted(path.iterdir()) if file.is_file() and _kind_of(file) is not None]
    if len(inside) == 1:
        return _file(inside[0])
    if inside:
        raise InputError(f"{path} holds {len(inside)} models ({', '.join(file.name for file in inside)}); name one.")
    raise InputError(f"{path} holds no model: no config.json, no .gguf and no ckpt.pt. Give {ALLOWED}.")


def _file(path: Path) -> Recognised:
    kind = _kind_of(path)
    if kind is not None:
        return Recognised(kind, str(path))
    if (path.parent / "config.json").is_file() and path.suffix in (".json", ".safetensors"):
        return _directory(path.parent)
    raise InputError(f"{path} is no model that can be imported; give {ALLOWED}.")


def _kind_of(file: Path) -> Kind | None:
    """The kind of model that a single file can be, by how it begins."""
    with file.open("rb") as opened:
        start = opened.read(256)
    if start.startswith(b"GGUF"):
        return Kind.GGUF
    is_archive = start.startswith(b"PK\x03\x04") and b"/data.pkl" in start
    return Kind.NANOGPT if is_archive or start.startswith(_OLDER_TORCH) else None


_OLDER_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""A pickled number: what torch.save wrote first before it wrote zip archives."""
