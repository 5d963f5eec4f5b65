"""The modules of analyses import one another in one direction, also where an import is local or for types only."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import analyses

FOLDER = Path(analyses.__file__).parent
FILES = {".".join(path.relative_to(FOLDER).with_suffix("").parts): path for path in FOLDER.rglob("*.py")}
PARTS = {path.parent.name for path in FOLDER.glob("*/__init__.py")} - {"views"}


def imported(path: Path) -> set[str]:
    """The modules of this folder that a file imports anywhere, but for what it does when it is run as a script."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if "__name__" not in ast.unparse(node)]
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    paths = {f"{node.module}.{alias.name}" for node in froms for alias in node.names} | {str(n.module) for n in froms}
    return {name.removeprefix("analyses.") for name in paths if name.startswith("analyses.")} & FILES.keys()


GRAPH = {name: imported(path) for name, path in FILES.items()}


def test_modules_import_one_another_in_one_direction() -> None:
    order = list(TopologicalSorter(GRAPH).static_order())
    assert set(order) == set(FILES)
    assert order.index("ffn.result") < order.index("ffn_memories")


@pytest.mark.parametrize("package", sorted(PARTS))
def test_a_package_of_parts_says_what_it_is_and_imports_nothing_by_itself(package: str) -> None:
    """Whoever reads one module of it pays for no other: the search of memories needs no torch."""
    tree = ast.parse((FOLDER / package / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert GRAPH[f"{package}.__init__"] == set()
