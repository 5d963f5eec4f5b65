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


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_is_declared(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[^\w.-]", each)[0].lower() for each in project["dependencies"]}
    providers = metadata.packages_distributions()
    used = {name: file for file in (ROOT / package).rglob("*.py") for name in imported(file)}
    foreign = used.keys() - sys.stdlib_module_names - set(PACKAGES)
    undeclared = {
        name: str(used[name].relative_to(ROOT))
        for name in foreign
        if not declared & {provider.lower() for provider in providers.get(name, [])}
    }
    assert undeclared == {}
