"""Checkpoints: a folder per step, written whole or not at all, and verified before it is believed.

    RUN/checkpoints/step-00000512/  model.safetensors  config.json  [train_state.safetensors  train_state.json]
                                    manifest.json      step, tokens seen, and the SHA-256 of every other file

The folder is filled under a temporary name, flushed, and renamed, the manifest being its last file; so a kill at any
moment leaves a finished checkpoint or none. Each storage is written once: a tied matrix has one entry, and is tied
again after loading. Nothing is pickled, in or out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from model.config import GPTConfig
from model.errors import CheckpointError, ConfigError
from model.files import atomic_folder, clean_leftovers, clear_os_errors, sha256_of, write_json
from model.gpt import GPT
from model.manifest import ADVICE, MANIFEST, Manifest, read_manifest, sealed, verified_content
from model.run_folders import checkpoint_path, checkpoint_steps, step_of
from model.settings import from_plain, to_plain
from model.tying import unwrapped

__all__ = [
    "CONFIG", "MANIFEST", "STATE_RECORD", "STATE_TENSORS", "WEIGHTS", "Manifest", "TrainState", "checkpoint_path",
    "checkpoint_steps", "drop_train_state", "load_checkpoint", "load_train_state", "read_manifest", "save_checkpoint",
    "step_of", "stored_weights", "verify_checkpoint", "weights_sha256",
]  # fmt: skip

WEIGHTS, CONFIG = "model.safetensors", "config.json"
STATE_TENSORS, STATE_RECORD = "train_state.safetensors", "train_state.json"

TrainState = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""What training needs besides the weights to go on: tensors, and plain data."""


def save_checkpoint(
    run_dir: Path,
    gpt: nn.Module,
    *,
    step: int,
    tokens_seen: int,
    extra_json: Mapping[str, Any] | None = None,
    train_state: TrainState | None = None,
) -> Path:
    """Write the checkpoint of `step` and return its folder; one that stands there is replaced.

    A compiled or wrapped GPT is saved as the GPT inside.

    Raises:
        CheckpointError: the disk is full, the folder may not be written, and the like; earlier checkpoints stay whole.
    """
    path, gpt = checkpoint_path(run_dir, step), unwrapped(gpt)
    if path.parent.is_dir():
        clean_leftovers(path.parent, CheckpointError)
    tensors = stored_weights(gpt)
    files = {WEIGHTS: _tensor_bytes(tensors), CONFIG: _json_bytes(to_plain(gpt.config))}
    if train_state is not None:
        files |= {STATE_TENSORS: _tensor_bytes(train_state[0]), STATE_RECORD: _json_bytes(dict(train_state[1]))}
    manifest = Manifest(
        step=step,
        tokens_seen=tokens_seen,
        weights_sha256=_hash_of(tensors),
        files={name: sha256_of(content) for name, content in files.items()},
        extra=dict(extra_json or {}),
    )
    with atomic_folder(path, CheckpointError) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / MANIFEST).write_bytes(_json_bytes(sealed(manifest)))
    return path


def load_checkpoint(path: Path, device: str | torch.device = "cpu") -> GPT:
    """The model of a checkpoint, in evaluation mode, its weights bit for bit those that were saved.

    Raises:
        CheckpointError: a file is missing, cut short or altered, or holds another model than its config says.
    """
    manifest = read_manifest(path)
    try:
        config = from_plain(GPTConfig, json.loads(verified_content(path, CONFIG, manifest)))
    except (ConfigError, ValueError) as fault:
        raise CheckpointError(f"The model of {path} cannot be built by this version. {fault}") from None
    tensors = _tensors(path, WEIGHTS, manifest)
    gpt = GPT(config)
    _check_fit(stored_weights(gpt), tensors, path)
    gpt.to(tensors["embed.weight"].dtype)
    for name, weights in stored_weights(gpt).items():
        weights.copy_(tensors[name])
    return gpt.to(device).eval()


def load_train_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The training state saved with a checkpoint; None where none was."""
    manifest = read_manifest(path)
    if STATE_RECORD not in manifest.files:
        return None
    return _tensors(path, STATE_TENSORS, manifest), json.loads(verified_content(path, STATE_RECORD, manifest))


def drop_train_state(path: Path) -> None:
    """Take the training state out of a checkpoint, keeping what a study needs.

    The manifest forgets it first, so that a kill in between leaves a whole checkpoint and two files that nobody reads.
    """
    manifest = read_manifest(path)
    kept = {name: digest for name, digest in manifest.files.items() if name not in (STATE_TENSORS, STATE_RECORD)}
    if kept != manifest.files:
        write_json(path / MANIFEST, sealed(replace(manifest, files=kept)))
    with clear_os_errors("removed", path, CheckpointError):
        for name in (STATE_TENSORS, STATE_RECORD):
            (path / name).unlink(missing_ok=True)


def verify_checkpoint(path: Path) -> Manifest:
    """Check every file of a checkpoint against its manifest, and return that; a fault is a `CheckpointError`."""
    manifest = read_manifest(path)
    for name in manifest.files:
        verified_content(path, name, manifest)
    return manifest


def stored_weights(gpt: nn.Module) -> dict[str, Tensor]:
    """Every weight once, by name: of those that share memory, the first. The tensors are the model's own."""
    gpt = unwrapped(gpt)
    seen: set[tuple[int, torch.Size]] = set()
    weights: dict[str, Tensor] = {}
    for name, tensor in gpt.state_dict().items():
        place = (tensor.data_ptr(), tensor.shape)
        if place not in seen:
            seen.add(place)
            weights[name] = tensor
    if ("unembed.weight" in weights) == gpt.config.tie_embeddings:
        word = "share" if gpt.config.tie_embeddings else "do not share"
        raise CheckpointError(
            f"The config says that embedding and unembedding {word} one matrix (tie_embeddings), and the model says "
            "otherwise; call gpt.tie_weights(), or change the config."
        )
    return weights


def weights_sha256(gpt: nn.Module) -> str:
    """A hash that names the weights: equal exactly where names, shapes, number formats and bits are."""
    return _hash_of(stored_weights(gpt))


def _hash_of(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def _tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    # Copies, so that views of one memory are saved as what each of them shows.
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    return safetensors.torch.save(copies)


def _tensors(path: Path, name: str, manifest: Manifest) -> dict[str, Tensor]:
    # Parsed from the very bytes that were hashed, so that nothing can change in between.
    try:
        return safetensors.torch.load(verified_content(path, name, manifest))
    except SafetensorError:
        raise CheckpointError(f"The checkpoint {path} holds no tensors in {name}. {ADVICE}") from None


def _check_fit(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights that are not exactly those of the model that the config describes."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found or name not in expected:
            where = "lacks" if name in expected else "has an unknown weight,"
            raise CheckpointError(f"The checkpoint {path} holds another model than its config says: it {where} {name}.")
        if found[name].shape != expected[name].shape:
            raise CheckpointError(
                f"The checkpoint {path} holds another model than its config says: {name} is {list(found[name].shape)}, "
                f"not {list(expected[name].shape)}."
            )
