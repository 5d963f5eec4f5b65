"""What a checkpoint says about itself, and whether its files are still the ones that were written.

The manifest holds the SHA-256 of every other file and, as its seal, of its own content, so that no changed bit goes
unnoticed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.files import read_bytes, read_json, sha256_of

FORMAT = 1
MANIFEST = "manifest.json"
ADVICE = "Use another checkpoint of the run, or restore this one from a copy."
"""What to do about a damaged checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint says about itself."""

    step: int
    """Optimizer steps taken; 0 is the initialisation."""
    tokens_seen: int
    """Tokens trained on up to here."""
    weights_sha256: str
    """Hash of the weights, as `weights_sha256` computes it."""
    files: dict[str, str]
    """SHA-256 of every file, by name."""
    extra: dict[str, Any]
    """Whatever else the writer wanted to keep."""


def read_manifest(path: Path) -> Manifest:
    """What the checkpoint says about itself, after checking that the manifest is the one that was written."""
    if not path.is_dir():
        raise CheckpointError(f"There is no checkpoint at {path}.")
    if not (path / MANIFEST).is_file():
        raise CheckpointError(f"The checkpoint {path} is incomplete: {MANIFEST} is missing. {ADVICE}")
    found = read_json(path / MANIFEST, CheckpointError)
    try:
        manifest = Manifest(**{key: value for key, value in found.items() if key not in ("format", "seal")})
        if found["seal"] == sealed(manifest)["seal"]:
            return manifest
    except (AttributeError, KeyError, TypeError):
        pass  # not the content of a manifest: said below
    raise CheckpointError(f"The checkpoint {path} is damaged: {MANIFEST} is not as it was written. {ADVICE}")


def verified_content(path: Path, name: str, manifest: Manifest) -> bytes:
    """The content of a file, which is what the manifest says it is."""
    if not (path / name).is_file():
        raise CheckpointError(f"The checkpoint {path} is incomplete: {name} is missing. {ADVICE}")
    content = read_bytes(path / name, CheckpointError)
    if sha256_of(content) != manifest.files.get(name):
        raise CheckpointError(f"The checkpoint {path} is damaged: {name} was altered or cut short. {ADVICE}")
    return content


def sealed(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain data, with a hash of itself."""
    content = {"format": FORMAT, **vars(manifest)}
    return {**content, "seal": sha256_of(json.dumps(content, sort_keys=True).encode())}
