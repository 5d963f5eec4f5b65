"""The pages agree with the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

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
    wanted = {_name(each) for each in (*project["dependencies"], *project["optional-dependencies"]["dev"])}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert wanted <= {_name(line) for line in pins if "==" in line}


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None
    return found.group().lower().replace("_", "-")
