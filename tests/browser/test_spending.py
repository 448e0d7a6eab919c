"""The tab with the spending, with a real paid API on loopback: purchases, what is left, unknown outcomes."""

import pytest
from playwright.sync_api import expect

from shared.market import KEYS, PRICED, Fault, PaidApi


@pytest.fixture
def api():
    """Start the sample paid API."""
    with PaidApi() as running:
        yield running


def buy(page):
    """Buy the weather, and return the section of the call."""
    page.get_by_role("tab", name="Tools").click()
    page.get_by_label("city *").fill("Ulm")
    page.get_by_role("button", name="Call").click()
    return page.get_by_role("region", name="Calls").locator("section.tw-call").first


def test_what_was_bought_what_is_left_and_a_lost_answer_that_is_settled(api, start, tmp_path):
    """A paid call is shown; one whose response is lost stays reserved until the user enters how it ended."""
    (tmp_path / "priced.toml").write_text(PRICED)
    env = {
        "AGENT_PAYMENT_API_KEY": KEYS["x-api-key"],
        "AGENT_PAYMENT_BUDGET_KEY": KEYS["x-budget-key"],
        "AGENT_PAYMENT_BASE_URL": api.url,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    page, _ = start("catalog:priced.toml", "--budget", "1", "--ledger", str(tmp_path / "ledger.db"), **env)
    page.get_by_label("Search the tools").fill("weather")
    expect(page.locator(".tw-entry")).to_have_count(1)  # before that, a click chooses the first of all tools
    page.locator(".tw-entry").click()
    made = buy(page)
    expect(made.get_by_text("done in")).to_be_visible()
    cost = api.purchases[0].cost
    page.get_by_role("tab", name="Spending").click()
    expect(page.get_by_text(f"${1 - cost:.4f} of $1.0000 left")).to_be_visible()
    expect(page.get_by_role("row", name="settled")).to_have_count(1)

    api.faults.append(Fault("reset_after_buying"))
    expect(buy(page).get_by_text("failed in")).to_be_visible()
    assert len(api.purchases) == 2
    page.get_by_role("tab", name="Spending").click()
    expect(page.get_by_text("Unknown outcomes")).to_be_visible()
    expect(page.get_by_text(f"${1 - 2 * cost:.4f} of $1.0000 left")).to_be_visible()
    page.get_by_label("Amount in dollars").fill("nonsense")
    page.get_by_role("button", name="It was charged").click()
    expect(page.get_by_text("an amount must be a number of dollars")).to_be_visible()
    page.get_by_label("Amount in dollars").fill(f"{cost}")
    page.get_by_role("button", name="It was charged").click()
    expect(page.get_by_text("Unknown outcomes")).to_have_count(0)
    expect(page.get_by_role("row", name="settled")).to_have_count(2)
    shown = page.content()
    assert not any(key in shown for key in KEYS.values()), "a key is on the page"
