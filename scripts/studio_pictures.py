"""Makes the pictures of the studio in docs/images: `make pictures`. Needs Chromium; nothing leaves the machine.

They differ from machine to machine (fonts, times), so no check compares them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE: Any = {"width": 1200, "height": 750}
WAIT = 30_000  # milliseconds to wait for anything on the page
LONGEST = 300  # seconds after which the studio is killed
LARGEST = 150_000  # bytes of a picture
SCRIPT = "from trips import SCRIPT\n\nscript = SCRIPT\n"
REPLACE = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""
PROMPT = "Book Ann, 34, two nights in Ulm and one in Lima."


def main() -> None:
    """Run a studio of examples/trips.py and take one picture of each tab."""
    browser_path = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if browser_path is None:
        raise SystemExit("There is no Chromium: scripts/install_chromium.sh installs it.")
    with (
        tempfile.TemporaryDirectory() as made,
        start_studio(Path(made)) as link,
        sync_playwright() as driver,
        driver.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        ) as browser,
    ):
        page = browser.new_page(viewport=SIZE, device_scale_factor=1, reduced_motion="reduce")
        page.set_default_timeout(WAIT)
        expect.set_options(timeout=WAIT)
        page.goto(link)
        page.get_by_role("tab", name="Tools").wait_for()
        show_tools(page)
        take(page, made, "studio-tools", zoom=0.75)
        show_conversation(page)
        take(page, made, "studio-conversation", zoom=0.9)
        finish_conversation(page)
        show_timeline(page)
        take(page, made, "studio-timeline", zoom=0.9)


@contextmanager
def start_studio(folder: Path) -> Iterator[str]:
    """Start a studio in an environment made from scratch. Yields its link."""
    for name in ("trips.py", "offline.py"):
        shutil.copy(ROOT / "examples" / name, folder)
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(folder),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "toolwire", "studio", "trips.py", "--script", "script.py", "--no-open"]
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        limit = threading.Timer(LONGEST, process.kill)
        limit.start()
        try:
            shown = ""
            while (link := re.search(r"http://\S+", shown)) is None:
                line = process.stderr.readline() if process.stderr else ""
                if not line:
                    raise SystemExit(f"The studio did not start:\n{shown}")
                shown += line
            yield link[0]
        finally:
            process.terminate()
            process.wait(20)
            limit.cancel()


def show_tools(page: Page) -> None:
    """Fill in the nested form, and make a call that fails."""
    page.get_by_role("navigation", name="Tools").get_by_role("button", name="book").click()
    page.get_by_label("name *").fill("Ann")
    page.get_by_label("age *").fill("34")
    page.get_by_role("button", name="Add items: stops *").click()
    page.get_by_role("button", name="Add an item to stops *").click()
    page.get_by_label("city *").fill("Lima")
    page.get_by_label("nights").fill("2")
    page.get_by_role("button", name="Call").click()
    page.get_by_text("KeyError: 'Lima'").first.wait_for()
    page.evaluate("window.scrollTo(0, 0)")


def show_conversation(page: Page) -> None:
    """Have the scripted model book. Allow the first call, which fails, and wait for the request of the second."""
    page.get_by_role("tab", name="Conversation").click()
    page.get_by_label("Prompt").fill(PROMPT)
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Allow", exact=True).click()
    page.get_by_text("Answered: allowed").wait_for()
    page.get_by_role("button", name="Deny").wait_for()
    page.get_by_text("Arguments", exact=True).last.click()  # fold it, so that the failure above it is visible
    expect(page.locator(".tw-call").last.get_by_text("Ulm")).to_be_hidden()


def finish_conversation(page: Page) -> None:
    """Allow the second call too, and wait for the end."""
    page.get_by_role("button", name="Allow", exact=True).click()
    page.get_by_text("Turn ended").wait_for()


def show_timeline(page: Page) -> None:
    """Open the timeline entry of the call that failed."""
    page.get_by_role("tab", name="Timeline").click()
    page.get_by_role("button", name=re.compile("^Show ")).first.click()
    page.get_by_text("Output", exact=True).wait_for()


def take(page: Page, folder: str, name: str, zoom: float) -> None:
    """Save a picture of the window, in which the temporary folder is shown as one of a user."""
    path = IMAGES / f"{name}.png"
    page.mouse.move(0, 0)
    page.evaluate("zoom => { document.activeElement.blur(); document.body.style.zoom = zoom }", zoom)
    page.evaluate(REPLACE, [folder, "/home/ann/trips"])
    log = page.get_by_role("log", name="Conversation")
    if log.is_visible():
        log.evaluate("each => each.scrollTo(0, each.scrollHeight)")
    page.screenshot(path=path, animations="disabled", caret="hide")
    size = path.stat().st_size
    print(f"wrote {path.relative_to(ROOT)} ({size / 1000:.0f} KB)")
    if size > LARGEST:
        raise SystemExit(f"{path.name} is larger than {LARGEST // 1000} KB")


if __name__ == "__main__":
    main()
