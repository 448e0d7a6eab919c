"""Accessibility: axe finds nothing serious, in light and dark, and the page can be used by keyboard alone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

SERIOUS = {"serious", "critical"}


def check(page):
    """Run axe on what is shown, and check that it finds nothing serious."""
    found = [each for each in Axe().run(page).response["violations"] if each["impact"] in SERIOUS]
    shown = [
        (
            each["id"],
            each["help"],
            [(node["html"][:300], node["failureSummary"][:300]) for node in each["nodes"][:3]],
        )
        for each in found
    ]
    assert shown == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_window, scheme):
    """Each tab is checked, with forms, errors, results, permission requests and details open."""
    with open_window(color_scheme=scheme, reduced_motion="reduce") as page:
        assert page.evaluate("document.body.classList.contains('body--dark')") == (scheme == "dark")
        page.get_by_role("button", name="order").click()
        expect(page.get_by_label("customer *")).to_be_visible()
        page.get_by_role("button", name="Call").click()
        expect(page.get_by_text("Field required").first).to_be_visible()
        check(page)
        page.get_by_role("button", name="fail", exact=False).first.click()
        page.get_by_label("word *").fill("tea")
        page.get_by_role("button", name="Call").click()
        expect(page.get_by_text("Where your code failed")).to_be_visible()
        check(page)
        page.get_by_role("tab", name="Conversation").click()
        check(page)
        page.get_by_label("Prompt").fill("fail word=tea")
        page.get_by_label("Prompt").press("Enter")
        page.get_by_role("button", name="Allow", exact=True).wait_for()
        check(page)
        page.get_by_role("button", name="Allow", exact=True).click()
        expect(page.get_by_text("waiting for a prompt")).to_be_visible()
        check(page)
        page.get_by_role("tab", name="Timeline").click()
        page.locator("tr.tw-row").nth(3).click()
        expect(page.get_by_text("Frames (").first).to_be_visible()
        check(page)
        page.get_by_role("tab", name="Conversation").click()
        page.get_by_role("button", name="New conversation").click()
        expect(page.get_by_text("not started")).to_be_visible()


def test_a_tool_is_called_by_keyboard_alone(page):
    """Tab and Enter reach the list, the form and the button, and the focus can be seen."""
    page.get_by_label("Search the tools").focus()
    page.keyboard.type("Add two")
    expect(page.locator(".tw-entry")).to_have_count(1)
    for _ in range(5):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('tw-entry')"):
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_text("mcp__shop__add", exact=True)).to_be_visible()
    page.get_by_label("a *").focus()
    page.keyboard.type("1")
    page.keyboard.press("Tab")
    page.keyboard.type("2")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("3.0", exact=True)).to_be_visible()


def test_the_tabs_are_reached_by_arrow_keys(page):
    """Arrow keys move between tabs, as their ARIA roles promise."""
    page.get_by_role("tab", name="Tools").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Conversation")).to_have_attribute("aria-selected", "true")


def test_light_and_dark_can_be_switched(page):
    """The button switches the page to dark, whatever the system prefers."""
    assert not page.evaluate("document.body.classList.contains('body--dark')")
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("body.body--dark")).to_have_count(1)


def test_a_small_screen_shows_everything(open_window):
    """Columns are shown below each other, and nothing is wider than the screen."""
    with open_window() as page:
        page.set_viewport_size({"width": 390, "height": 800})
        page.get_by_role("button", name="order").click()
        expect(page.get_by_label("customer *")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
