"""What is imported is declared: a wheel in an empty environment has everything that it needs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("model", "interp", "analyses", "apps")


def imported(file: Path) -> set[str]:
    """Top-level names of everything that a file imports, lazily or not."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", each)[0].lower() for each in requirements}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_is_declared(package: str) -> None:
    """What only an extra declares, model/interop alone may import: nobody else may need it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core, extra = names(project["dependencies"]), names(project["optional-dependencies"]["interop"])
    providers = metadata.packages_distributions()
    undeclared = set()
    for file in (ROOT / package).rglob("*.py"):
        declared = core | extra if file.parent == ROOT / "model/interop" else core
        if file == ROOT / "apps/pytest_plugin.py":  # which pytest itself loads, and nobody else
            declared = core | {"pytest"}
        for name in imported(file) - sys.stdlib_module_names - set(PACKAGES):
            by = {provider.lower().replace("_", "-") for provider in providers.get(name, [name])}
            undeclared |= set() if declared & by else {f"{file.relative_to(ROOT)}: {name}"}
    assert undeclared == set()
