"""The frame in a real browser: addresses that restore, a menu that loses nothing, keys that disturb nobody."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from apps.dashboard.frame.menu import SHARED
from tests.browser.browsing import IDLE, PATIENCE, SCREENSHOTS, Server, address, edit, go, menu, unexpected

pytestmark = pytest.mark.browser

PAGES = {
    "Overview": "", "Heads": "heads", "FFN memories": "memories", "Lens": "lens", "Ablate": "ablate",
    "Findings": "findings", "Training dynamics": "training", "Norms & gradients": "gradients",
}  # fmt: skip
FULL = {
    "run": "whole", "step": "0", "b": "whole@24", "head": "L1H2", "memory": "L0M3", "cell": "9.4", "token": "7",
    "ablate": "L0H1,L1H3:mean", "text": "repeats", "prompt": "a <b> & c",
}  # fmt: skip
SLOWER = 5
"""How many times slower than this machine the browser is made, to see what happens before a page is there."""


def spelled(parts: dict[str, str]) -> str:
    from urllib.parse import urlencode

    return urlencode(parts)


def selected(made) -> dict[str, str]:
    """What the address says of what all pages share."""
    return {name: value for name, value in address(made).items() if name in SHARED}


def chips(made) -> list[str]:
    return made.locator(".st-key-bar .chips .name").all_inner_texts()


def slowed(made) -> None:
    made.context.new_cdp_session(made).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})


def test_an_address_restores_every_part_in_a_fresh_profile(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, f"gradients?{spelled(FULL)}")
    expect(made.locator(".st-key-bar .chips .name")).to_have_count(6)
    assert selected(made) == FULL
    edit(made)
    made.locator(".st-key-token input").fill("5")
    made.locator(".st-key-token input").press("Enter")
    expect(made.locator(".st-key-bar .chips")).to_contain_text("token5")
    assert selected(made) == FULL | {"token": "5"}

    other, others = tab()
    other.goto(made.url)
    other.wait_for_selector(IDLE)
    expect(other.locator(".st-key-bar .chips .name")).to_have_count(6, timeout=PATIENCE)
    assert chips(other) == chips(made)
    for name in ("head", "memory", "cell", "token", "ablate"):
        expect(other.locator(f".st-key-{name} input")).to_have_value((FULL | {"token": "5"})[name])
    expect(other.locator(".st-key-prompt textarea")).to_have_value("a <b> & c")
    expect(other.locator(".st-key-step input")).to_have_value("0")
    assert address(other) == address(made)
    assert unexpected(watch) == unexpected(others) == []


def test_no_frame_stands_round_the_page_after_a_click_on_it_and_a_key(tab, server: Server) -> None:
    made, _ = tab()
    go(made, server, "findings?run=whole&step=24")
    made.mouse.click(1420, 600)
    made.keyboard.press("v")
    assert made.evaluate("document.activeElement.dataset.testid") == "stMain"
    ring = "(kind) => getComputedStyle(document.activeElement, kind)"
    assert made.evaluate(f"({ring})('::before').content") == "none"
    assert made.evaluate(f"({ring})(null).outlineStyle") == "none"


@pytest.mark.parametrize("query", ["?run=whole&step=24", ""])
def test_opening_a_page_is_one_entry_of_the_history(tab, server: Server, query: str) -> None:
    made, watch = tab()
    made.goto("about:blank")
    for title, path in list(PAGES.items())[: None if query else 2]:
        before = made.evaluate("history.length")
        go(made, server, f"{path}{query}")
        expect(made.get_by_role("heading", name=title, exact=True).first).to_be_visible()
        made.wait_for_timeout(500)
        assert made.evaluate("history.length") == before + 1, made.url
        assert address(made) == {"run": "whole" if query else "bare", "step": "24"}
    made.go_back()  # it does not lead to an address that would be completed again
    last = "Training dynamics" if query else "Overview"
    expect(made.get_by_role("heading", name=last, exact=True).first).to_be_visible()
    before = made.evaluate("history.length")
    visited = [title for title in PAGES if title != last] if query else []
    for title in visited:
        menu(made, title)
        expect(made.get_by_role("heading", name=title, exact=True).first).to_be_visible()
        made.wait_for_selector(IDLE)
        made.wait_for_timeout(500)
    assert made.evaluate("history.length") == before - 1 + max(1, len(visited))  # back was from the last entry
    assert unexpected(watch) == []


def test_a_link_of_a_page_says_more_than_what_was_selected(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "?run=whole&step=24&memory=L0M3&head=L1H2&b=whole@0&notes=none")
    link = made.locator("[data-testid='stMain'] [data-testid='stPageLink'] a[href*='memory=']").first
    wanted = re.search(r"memory=(L\d+M\d+)", str(link.get_attribute("href")))
    assert wanted is not None and wanted[1] != "L0M3"
    before = made.evaluate("history.length")
    link.click()
    expect(made.locator(".st-key-bar .chips")).to_contain_text(wanted[1], timeout=PATIENCE)
    expect(made.get_by_role("heading", name="FFN memories", exact=True).first).to_be_visible()
    expect(made.locator(".st-key-memory input")).to_have_value(wanted[1])
    kept = {"run": "whole", "step": "24", "head": "L1H2", "b": "whole@0", "notes": "none"}
    assert address(made) == kept | {"memory": wanted[1]}
    assert made.url.count("run=") == made.url.count("step=") == made.url.count("memory=") == 1
    assert made.evaluate("history.length") == before + 1
    made.go_back()
    expect(made.locator(".st-key-memory input")).to_have_value("L0M3", timeout=PATIENCE)
    expect(made.get_by_role("heading", name="Overview", exact=True).first).to_be_visible()
    assert unexpected(watch) == []


def test_back_and_forward_go_through_what_was_selected(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "gradients?run=whole&step=24&head=L1H2&ablate=L0H1")
    names = made.locator(".st-key-bar .chips .name")
    expect(names).to_have_count(2)
    made.get_by_role("button", name="remove head L1H2").click()
    expect(made.locator(".st-key-head input")).to_have_value("")
    made.keyboard.press("[")
    expect(made.locator(".st-key-step input")).to_have_value("16")
    assert selected(made) == {"run": "whole", "step": "16", "ablate": "L0H1"}
    made.go_back()
    expect(made.locator(".st-key-step input")).to_have_value("24")
    made.go_back()
    expect(names).to_have_text(["headL1H2", "ablateL0H1"])
    expect(made.locator(".st-key-head input")).to_have_value("L1H2")
    made.go_forward()
    expect(names).to_have_text(["ablateL0H1"])
    assert unexpected(watch) == []


def test_the_menu_keeps_the_selection_and_brings_a_search_back(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "memories?run=whole&step=24&find=L1M7&head=L1H2")
    expect(made.locator(".st-key-wanted input")).to_have_value("L1M7")
    menu(made, "Norms & gradients")
    expect(made.get_by_role("heading", name="Norms & gradients", exact=True)).to_be_visible()
    assert address(made)["head"] == "L1H2"
    assert "find" not in address(made)
    menu(made, "FFN memories")
    expect(made.locator(".st-key-wanted input")).to_have_value("L1M7", timeout=PATIENCE)
    expect(made.get_by_text("1 found, of 256 memories")).to_be_visible(timeout=PATIENCE)
    assert address(made)["find"] == "L1M7"
    assert address(made)["head"] == "L1H2"
    menu(made, "Overview")
    expect(made.get_by_role("heading", name="Overview", exact=True)).to_be_visible(timeout=PATIENCE)
    made.go_back()
    made.go_back()
    expect(made.get_by_role("heading", name="Norms & gradients", exact=True)).to_be_visible(timeout=PATIENCE)
    assert "find" not in address(made)
    current = made.locator(".st-key-menu a[aria-current=page]:visible")
    expect(current).to_have_text(re.compile("Norms & gradients"))
    assert unexpected(watch) == []


def test_a_page_clicked_before_the_inputs_are_there_loses_nothing(tab, server: Server) -> None:
    made, watch = tab()
    slowed(made)
    made.goto(f"{server.address}/findings?{spelled(FULL)}")
    menu(made, "Norms & gradients")
    expect(made.get_by_role("heading", name="Norms & gradients", exact=True)).to_be_visible(timeout=PATIENCE)
    made.wait_for_selector(IDLE)
    expect(made.locator(".st-key-bar .chips .name")).to_have_count(6, timeout=PATIENCE)
    assert selected(made) == FULL
    assert unexpected(watch) == []


def test_a_menu_entry_opened_in_a_new_tab_shows_the_same_selection(tab, server: Server) -> None:
    made, _ = tab()
    go(made, server, "gradients?run=whole&step=0&head=L1H2")
    with made.context.expect_page() as opened:
        made.locator(".st-key-menu a:visible").filter(has_text="Findings").click(modifiers=["Control"])
    other = opened.value
    expect(other.get_by_role("heading", name="Findings", exact=True)).to_be_visible(timeout=PATIENCE)
    assert selected(other) == {"run": "whole", "step": "0", "head": "L1H2"}
    assert "/gradients" in made.url


def test_l_copies_the_link_and_says_so(tab, server: Server) -> None:
    made, watch = tab()
    made.context.grant_permissions(["clipboard-read", "clipboard-write"])
    go(made, server, "gradients?run=whole&step=0&head=L1H2&notes=mine")
    made.keyboard.press("l")
    expect(made.locator(".st-key-bar [role=status]")).to_have_text(
        "Link copied, without your notebook: who has its name can change the pins"
    )
    copied = made.evaluate("navigator.clipboard.readText()")
    assert copied == made.url.replace("&notes=mine", "")
    assert "head=L1H2" in copied
    expect(made.locator(".st-key-bar [role=status]")).to_have_text("", timeout=PATIENCE)
    made.evaluate("void (navigator.clipboard.writeText = () => Promise.reject(new Error('refused')))")
    made.get_by_role("button", name="Copy link").click()
    field = made.get_by_label("The link, to be copied by hand")
    expect(field).to_have_value(copied)
    expect(field).to_be_focused()
    assert unexpected(watch) == []


def test_the_help_lists_the_keys_of_the_page_and_closes(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "heads?run=whole")
    made.wait_for_timeout(1500)  # the page's own tables and views have said what they say when they are drawn
    sent = len(watch.frames)
    made.keyboard.press("?")
    dialog = made.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("next head")
    expect(dialog).to_contain_text("copy the link")
    made.keyboard.press("j")
    made.keyboard.press("?")
    expect(dialog).to_be_hidden()
    made.locator(".st-key-bar .help").click()
    expect(dialog).to_be_visible()
    made.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    made.wait_for_timeout(500)
    assert len(watch.frames) == sent
    assert unexpected(watch) == []


def test_keys_do_nothing_while_one_types(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "heads?run=whole&step=24&head=L1H2")
    prompt = made.locator(".st-key-prompt textarea")
    prompt.fill("")
    made.wait_for_timeout(1500)
    sent = len(watch.frames)
    prompt.press_sequentially("lpe?[]jkxvs")
    expect(prompt).to_have_value("lpe?[]jkxvs")
    expect(made.get_by_role("dialog", name="Keys")).to_be_hidden()
    expect(made.locator(".st-key-bar [role=status]")).to_have_text("")
    expect(made.locator(".st-key-bar .edit")).to_have_attribute("aria-expanded", "false")
    assert len(watch.frames) == sent
    assert address(made)["head"] == "L1H2"
    assert address(made)["step"] == "24"


def test_presses_in_quick_succession_all_arrive(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "gradients?run=whole&step=24")
    for _ in range(4):
        made.keyboard.press("[")
    expect(made.locator(".st-key-step input")).to_have_value("2", timeout=PATIENCE)
    for _ in range(3):
        made.keyboard.press("]")
    expect(made.locator(".st-key-step input")).to_have_value("16", timeout=PATIENCE)
    assert address(made)["step"] == "16"
    assert unexpected(watch) == []


def test_j_goes_to_the_next_head(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "heads?run=whole&step=24&head=L1H2")
    made.keyboard.press("j")
    expect(made.locator(".st-key-head input")).not_to_have_value("L1H2", timeout=PATIENCE)
    made.keyboard.press("k")
    expect(made.locator(".st-key-head input")).to_have_value("L1H2", timeout=PATIENCE)
    assert unexpected(watch) == []


def test_the_selection_is_edited_without_a_pointer_and_the_focus_is_seen(tab, server: Server) -> None:
    made, _ = tab()
    go(made, server, "gradients?run=whole&head=L1H2")
    expect(made.locator(".st-key-places")).to_be_hidden()
    made.keyboard.press("e")
    head = made.locator(".st-key-head input")
    expect(head).to_be_focused()
    head.fill("L0H1")
    head.press("Enter")
    expect(made.get_by_role("button", name="remove head L0H1")).to_be_visible()
    made.get_by_role("button", name="remove head L0H1").focus()
    made.keyboard.press("Shift+Tab")
    made.keyboard.press("Tab")
    styles = made.get_by_role("button", name="remove head L0H1").evaluate(
        "button => [getComputedStyle(button).outlineStyle, getComputedStyle(button).outlineWidth]"
    )
    assert styles == ["solid", "2px"]
    made.keyboard.press("Delete")
    expect(head).to_have_value("")
    link = made.locator(".st-key-menu a:visible").first
    link.focus()
    made.keyboard.press("Tab")
    assert (
        made.locator(".st-key-menu a:focus-visible").evaluate("link => getComputedStyle(link).outlineStyle") == "solid"
    )


P_AS_SOON_AS_ANYTHING_LISTENS = """
let listens = false
Object.defineProperty(document, "cutawayEarly", {
  get: () => listens,
  set: (value) => {
    listens = value
    setTimeout(() => document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "p", bubbles: true })))
  },
})
"""


def test_p_before_a_first_page_is_there_pins_what_it_offers_then(tab, server: Server) -> None:
    made, watch = tab()
    made.add_init_script(P_AS_SOON_AS_ANYTHING_LISTENS)
    made.goto(f"{server.address}/gradients?run=whole&step=24", wait_until="commit")
    expect(made.get_by_test_id("stToast")).to_contain_text("Pinned to Findings: Gradient", timeout=PATIENCE)
    made.wait_for_url("**notes=*")
    assert unexpected(watch) == []


def test_p_on_the_way_to_a_page_pins_what_it_offers_then(tab, server: Server) -> None:
    made, watch = tab()
    go(made, server, "?run=whole&step=24")
    slowed(made)
    menu(made, "Norms & gradients")
    made.wait_for_url("**/gradients?*")
    made.keyboard.press("p")
    expect(made.get_by_test_id("stToast")).to_contain_text("Pinned to Findings: Gradient", timeout=PATIENCE)
    made.wait_for_url("**notes=*")
    assert unexpected(watch) == []


def test_two_users_share_nothing(tab, server: Server) -> None:
    mine, _ = tab()
    theirs, _ = tab()
    go(mine, server, "gradients?run=whole&head=L1H2&ablate=L0H1:zero")
    go(theirs, server, "gradients?run=whole")
    mine.keyboard.press("[")
    expect(mine.locator(".st-key-step input")).to_have_value("16", timeout=PATIENCE)
    theirs.reload()
    theirs.wait_for_selector(IDLE)
    expect(theirs.locator(".st-key-step input")).to_have_value("24")
    expect(theirs.locator(".st-key-bar .chips")).to_contain_text("Nothing chosen yet")
    assert selected(theirs) == {"run": "whole", "step": "24"}


def test_a_hostile_address_is_told_and_inert(tab, server: Server) -> None:
    made, watch = tab()
    made.on("dialog", lambda dialog: watch.errors.append("a dialog opened"))
    bad = "<img src=x onerror=alert(1)>"
    names = ("run", "step", "b", "head", "memory", "cell", "token", "ablate", "text", "find", "notes", "other")
    go(made, server, f"gradients?{spelled(dict.fromkeys(names, bad))}")
    expect(made.get_by_text('there is no run "<img src=x onerror=alert(1)>" here')).to_be_visible()
    assert made.locator("img[src=x]").count() == 0
    assert made.locator(".st-key-bar img").count() == 0
    expect(made.locator(".st-key-bar .dropped")).to_have_count(6)
    assert made.locator(".stException").count() == 0
    assert unexpected(watch) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_narrow_window_and_the_bar_stays_where_it_is(tab, server: Server, scheme: str) -> None:
    made, watch = tab(scheme)
    made.set_viewport_size({"width": 1024, "height": 800})
    go(made, server, f"gradients?{spelled(FULL)}")
    where = made.locator(".st-key-bar").bounding_box()
    SCREENSHOTS.mkdir(exist_ok=True)
    for title, path in PAGES.items():
        menu(made, title)
        expect(made.get_by_role("heading", name=title, exact=True).first).to_be_visible(timeout=PATIENCE)
        made.wait_for_selector(IDLE, timeout=PATIENCE)
        made.wait_for_timeout(500)
        made.screenshot(path=SCREENSHOTS / f"frame-{path or 'overview'}-{scheme}.png")
        assert made.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), title
        assert made.locator(".st-key-bar").bounding_box() == where, title
        assert made.locator(".stException").count() == 0, title
        assert made.get_by_text("BidiComponent Error").count() == 0, title
        assert address(made)["head"] == "L1H2"
    assert unexpected(watch) == []
