"""The pages agree with the code."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from analyses.study import STUDIES, get_study
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
