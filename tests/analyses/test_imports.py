"""The modules of analyses import one another in one direction, also where an import is local or for types only."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import analyses
from analyses.registry import STUDIES

FOLDER = Path(analyses.__file__).parent
FILES = {".".join(path.relative_to(FOLDER).with_suffix("").parts): path for path in FOLDER.rglob("*.py")}
PARTS = {path.parent.name for path in FOLDER.glob("*/__init__.py")} - {"views"}
STUDY_MODULES = {module.removeprefix("analyses.") for module in STUDIES.values()}

SHARED = {
    "composition": {"ffn"},  # the names of the splits that are read
    "dynamics": {"attention"},  # the scores of heads, over steps
    "heads": {"ablation", "attention", "circuits", "claims", "importance", "probing"},  # what all say of a head
    "memories": {"ffn"},  # single memories out of its result
    "views": {"ablation"},  # a figure of its controls
}
"""Whose parts the modules of a package import; `views` beside them, which any may draw with."""


def imported(path: Path) -> set[str]:
    """The modules of this folder that a file imports anywhere, but for what it does when it is run as a script."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if "__name__" not in ast.unparse(node)]
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    paths = {f"{node.module}.{alias.name}" for node in froms for alias in node.names} | {str(n.module) for n in froms}
    paths |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
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


def test_no_part_imports_a_study() -> None:
    """A study stands above the parts, its own and those of others; they need `Config` and `Result`, of its `result`."""
    assert GRAPH.keys() >= STUDY_MODULES
    above = {name: imports & STUDY_MODULES for name, imports in GRAPH.items() if "." in name}
    assert {name: studies for name, studies in above.items() if studies} == {}


def test_packages_use_parts_of_one_another_only_where_that_was_decided() -> None:
    """A new edge goes into SHARED with its reason, and one that is no longer there goes out."""
    edges = [(name.split(".")[0], other.split(".")[0]) for name in GRAPH for other in GRAPH[name]
             if "." in name and "." in other]  # fmt: skip
    found: dict[str, set[str]] = {}
    for package, other in edges:
        if other not in {package, "views"}:
            found.setdefault(package, set()).add(other)
    assert found == SHARED


def test_a_study_uses_the_parts_of_one_package() -> None:
    packages = {name: {other.split(".")[0] for other in GRAPH[name] if "." in other} for name in STUDY_MODULES}
    assert max(len(parts - {"views"}) for parts in packages.values()) == 1, packages
