"""What software a result was computed with."""

from __future__ import annotations

import platform
from importlib import metadata


def versions() -> dict[str, str]:
    """Versions of python, torch, numpy and cutaway."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy", "cutaway"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
