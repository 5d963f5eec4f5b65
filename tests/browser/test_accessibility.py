"""What axe-core finds on every page: names, roles, contrast, headings, in light and dark."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.browsing import IDLE, PATIENCE, Server, go
from tests.browser.test_frame import PAGES, spelled

pytestmark = pytest.mark.browser

SELECTED = {
    "run": "whole", "step": "24", "b": "whole@0", "head": "L1H2", "memory": "L0M3", "cell": "9.4", "token": "7",
    "ablate": "L0H1,L1H3:mean",
}  # fmt: skip

STREAMLITS = {
    ".stCode .token": "colours of code that Streamlit lets nobody choose, too pale on its ground",
}
"""What is drawn by Streamlit and cannot be mended here, by selector, with what is wrong with it."""


def violations(made) -> list[str]:
    """What axe-core finds, a line for each element, without what is Streamlit's own."""
    found: dict[str, Any] = Axe().run(made, context={"exclude": [[each] for each in STREAMLITS]}).response
    return [
        f"{rule['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("title", PAGES)
def test_a_page_breaks_no_rule_of_accessibility(tab, server: Server, title: str, scheme: str) -> None:
    made, _ = tab(scheme)
    go(made, server, f"{PAGES[title]}?{spelled(SELECTED)}")
    expect(made.get_by_role("heading", name=title, exact=True).first).to_be_visible(timeout=PATIENCE)
    made.wait_for_timeout(1000)  # the page's own views have drawn
    made.wait_for_selector(IDLE)
    assert violations(made) == []
