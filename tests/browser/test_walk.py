"""The steps of docs/studio.md, done by a new user: why did this call fail, and what did the run cost?"""

import os
import shutil
from pathlib import Path

from playwright.sync_api import expect

from shared.programs import run_python
from shared.waiting import wait_until
from toolwire._transport.find_cli import VARIABLE, bundled_cli

ROOT = Path(__file__).parents[2]
BOOK = 'book traveller={"name":"Ann","age":34} stops=[{"city":"Ulm"},{"city":"Lima"}]'


def record(folder):
    """Run the example with the scripted model, in a fresh environment."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    env = {"PATH": os.defpath, "HOME": str(home), VARIABLE: bundled_cli()}
    command = ["-m", "toolwire", "run", "-t", "trips.py", "--scripted", "--yes", "--record", "run.jsonl"]
    done = run_python(*command, BOOK, env=env, cwd=folder)
    assert "book failed: KeyError: 'Lima'" in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_the_reason_and_the_cost_are_found_and_the_tool_is_mended(start, tmp_path):
    """The page's own labels are used, in the document's order; the cost is the one that the terminal showed."""
    for name in ("trips.py", "offline.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    printed = record(tmp_path)
    page, studio = start("trips.py", "run.jsonl")

    page.get_by_role("tab", name="Timeline").click()
    page.get_by_label("Run", exact=True).click()
    page.get_by_role("option", name="Recording run.jsonl").click()
    summary = page.get_by_role("region", name="Summary of the run")
    cost = summary.locator("div", has=page.get_by_text("Cost", exact=True)).locator("dd").first
    expect(cost).to_contain_text("as the CLI computed it")
    assert f"{cost.inner_text().split(',')[0]} as computed by the CLI" in printed
    expect(summary.get_by_text("What went wrong (1)")).to_be_visible()
    expect(summary.get_by_text("trips: book: KeyError: 'Lima'")).to_be_visible()
    summary.get_by_role("button", name="Show trips: book").click()
    detail = page.get_by_label("Details", exact=True)
    expect(detail.get_by_text("Failed: KeyError: 'Lima'")).to_be_visible()
    expect(detail.get_by_text('"city": "Lima"')).to_be_visible()
    expect(page.get_by_role("row", name="book runs in trips")).to_be_visible()

    page.get_by_role("tab", name="Timeline").focus()
    for key in ("ArrowLeft", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("tab", name="Tools")).to_have_attribute("aria-selected", "true")
    page.get_by_role("navigation", name="Tools").get_by_role("button", name="book").click()
    page.get_by_label("name *").fill("Ann")
    page.get_by_label("age *").fill("34")
    page.get_by_role("button", name="Add items: stops *").click()
    page.get_by_role("button", name="Add an item to stops *").click()
    page.get_by_label("city *").fill("Lima")
    page.get_by_role("button", name="Call").click()
    calls = page.get_by_role("region", name="Calls").locator("section.tw-call")
    expect(calls.first.get_by_text("return PRICES[city] * nights")).to_be_visible()

    app = tmp_path / "trips.py"
    app.write_text(app.read_text().replace('"Oslo": 140.0}', '"Oslo": 140.0, "Lima": 90.0}'))
    wait_until(lambda: "reloaded trips.py\n" in studio.lines)
    page.get_by_role("button", name="Call").click()
    expect(calls.first.get_by_text('"price": 90.0')).to_be_visible()
