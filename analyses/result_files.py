"""The two files of a saved result as they lie on disk, read and checked without torch (for `analyses.results`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from model.errors import CheckpointError
from model.files import read_bytes, sha256_of

FORMAT = 1
TENSORS, RECORD = "result.safetensors", "result.json"
REMEDY = "Run the study again, or delete the folder."


def read_record(path: Path) -> dict[str, Any]:
    """result.json of a result folder as plain data; raises `CheckpointError` where it is missing or not one."""
    file = Path(path) / RECORD
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} holds no result ({RECORD} is missing). {REMEDY}") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}. {REMEDY}") from None
    wanted = {"format", "study", "provenance", "tensors_sha256", "result"}
    if not isinstance(record, dict) or not wanted <= set(record) or record["format"] != FORMAT:
        raise CheckpointError(f"{file} is not a result of format {FORMAT}. {REMEDY}")
    return record


def tensor_bytes(path: Path, record: dict[str, Any]) -> bytes:
    """The content of result.safetensors; raises `CheckpointError` where it is not the file that the record means."""
    file = Path(path) / TENSORS
    if not file.is_file():
        raise CheckpointError(f"{path} has lost {TENSORS}. {REMEDY}")
    content = read_bytes(file, CheckpointError)
    if sha256_of(content) != record["tensors_sha256"]:
        raise CheckpointError(f"{file} is not the file that {RECORD} describes (altered or truncated). {REMEDY}")
    return content
