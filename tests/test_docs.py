"""The pages agree with the code."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from analyses.study import STUDIES, get_study
from apps.dashboard.frame.menu import SHARED
from docs.make_sites import page

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_list_of_sites_is_the_one_the_code_has() -> None:
    assert (ROOT / "docs/sites.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_study_has_a_page_with_its_question_and_what_it_does_not_show() -> None:
    for study in STUDIES:
        text = (ROOT / f"docs/studies/{study}.md").read_text(encoding="utf-8")
        assert f"*{get_study(study).question}*" in text
        assert "## What it does not show" in text


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(file: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(file: Path) -> None:
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", file.read_text(encoding="utf-8"))
    assert [f"{path}::{name}" for path, name in named if name not in functions_of(ROOT / path)] == []


def test_every_known_pitfall_has_a_guarantee_with_its_test_or_a_reason_why_not() -> None:
    rows = pitfalls()
    assert sorted(rows) == sorted(PITFALLS)
    unproven = [name for name, (section, cells) in rows.items() if section != NOT_HERE and "::test_" not in cells[-1]]
    assert unproven == []


def test_every_mistake_that_is_made_on_purpose_is_on_the_page() -> None:
    tree = ast.parse((ROOT / "tests/model/test_mutations.py").read_text(encoding="utf-8"))
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Mutation"
    ]
    made = {ast.literal_eval(call.args[0]).replace("_", " ") for call in calls}
    page = (ROOT / "docs/known-pitfalls.md").read_text(encoding="utf-8")
    listed = page.partition("## Mistakes made on purpose")[2].partition("\n## ")[0]
    assert made == {
        line.split(" | ")[0].strip("| ") for line in listed.splitlines() if "::test_" in line and line[0] == "|"
    }


def test_the_page_of_the_dashboard_names_every_part_of_its_address_and_every_key() -> None:
    sources = "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "apps/dashboard").rglob("*.py")))
    page = (ROOT / "docs/dashboard.md").read_text(encoding="utf-8")
    parts, keys = (page.partition(title)[2].partition("\n## ")[0] for title in ("## The address", "## Keys"))
    named = set(re.findall(r"`(\w+)[=`]", parts))
    assert {*SHARED, *re.findall(r'(?:Part|Choice)\(\s*name="(\w+)"', sources)} <= named
    bound = set(re.findall(r'keys\.(?:bind|bind_everywhere|browser|focus)\(\s*"(.)"', sources))
    assert len(bound) > 8
    assert {key.upper() for key in bound} <= set(re.findall(r"`(.)`", keys))


def pitfalls() -> dict[str, tuple[str, list[str]]]:
    """Row id -> its section and cells, of the tables in docs/known-pitfalls.md."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for section in (ROOT / "docs/known-pitfalls.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            ids = re.sub(r"\]\([^)]*\)|\[", "", cells[0]).split(", ")
            for name in ids if line.startswith("| ") and re.fullmatch(r"[NT]?\d+", ids[0]) else []:
                assert name not in rows, f"row {name} stands twice"
                rows[name] = (section.splitlines()[0], cells)
    return rows


NOT_HERE = "Rows that do not apply"
NOT_IN_USE = {3, 10, 15, 24, 32, 36, 48, 51, 54, 58, 60, 63, 70, 76}
PITFALLS = [
    *(f"N{row}" for row in range(1, 15)),
    *(str(row) for row in range(1, 79) if row not in NOT_IN_USE),
    *(f"T{row}" for row in (1, 2, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15, 16, 19, 20, 21, 22, 23)),
]
"""What is known to go wrong in tools of this kind, by the ids of the page; T: in training, N: measured by us."""


def functions_of(path: Path) -> set[str]:
    """The functions that a file defines, read without running it."""
    if not path.exists():
        return set()
    return {
        node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    }


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    wanted = {_name(each) for each in (*project["dependencies"], *extras)}
    assert wanted <= pinned()


def test_what_is_pinned_is_needed_by_something() -> None:
    """Followed from the declared dependencies through what is installed here; the interop part is not."""
    core, _, _ = (ROOT / "constraints.txt").read_text(encoding="utf-8").partition("# Only with the extra")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    reached: set[str] = set()
    waiting = [Requirement(each) for each in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    while waiting:
        asked = waiting.pop()
        if _name(asked.name) not in reached or asked.extras:
            reached.add(_name(asked.name))
            waiting += _required_by(asked)
    assert {_name(line) for line in core.splitlines() if "==" in line} <= reached


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {_name(line) for line in lines if "==" in line}


def _required_by(asked: Requirement) -> list[Requirement]:
    try:
        needs = [Requirement(each) for each in metadata.requires(asked.name) or []]
    except metadata.PackageNotFoundError:  # for another system than this one
        return []
    given = [{"extra": extra} for extra in ("", *asked.extras)]
    return [each for each in needs if each.marker is None or any(each.marker.evaluate(extra) for extra in given)]


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None
    return found.group().lower().replace("_", "-")
