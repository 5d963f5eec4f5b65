"""The modules of a study import one another in one direction, also where an import is local or for types only."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import analyses

FOLDER = Path(analyses.__file__).parent


def imported(path: Path) -> set[str]:
    """The modules of this folder that a file imports anywhere, but for what it does when it is run as a script."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if "__name__" not in ast.unparse(node)]
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {str(node.module).removeprefix("analyses.") for node in nodes if str(node.module).startswith("analyses.")}


@pytest.mark.parametrize("study", ["attention", "head_ablation", "head_circuits", "probes"])
def test_the_modules_of_a_study_import_one_another_in_one_direction(study: str) -> None:
    files = {path.stem: path for path in FOLDER.glob(f"{study}*.py")}
    assert f"{study}_result" in files
    graph = {name: imported(path) & files.keys() for name, path in files.items()}
    order = list(TopologicalSorter(graph).static_order())
    assert set(order) == set(files)
