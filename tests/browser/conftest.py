"""Starts a studio for each file, and a real Chromium whose pages must raise no error and reach nothing outside."""

import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).parent
WAIT = int(os.environ.get("BROWSER_WAIT", "30000"))  # milliseconds: enough for a busy machine
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
expect.set_options(timeout=WAIT)


def pytest_collection_modifyitems(items):
    """Mark all tests of this folder: they start processes and are slow."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.process)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def chromium():
    """Start a browser without a window."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "there is no Chromium: scripts/install_chromium.sh installs it"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


class Running:
    """A running studio."""

    def __init__(self, process, link, folder, lines):
        self.process = process
        self.link = link
        self.folder = folder
        self.lines = lines
        self.address = link.partition("?")[0]


@contextmanager
def run_studio(folder, *arguments, **env):
    """Start `toolwire studio` in a fresh environment, and stop it at the end."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    clean = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    clean |= {
        "HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        **env,
    }
    command = [sys.executable, "-m", "toolwire", "studio", *map(str, arguments), "--no-open"]
    process = subprocess.Popen(
        command, cwd=folder, env=clean, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    lines = []
    try:
        link = None
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://\S+", line):
                link = found[0]
                break
        assert link, "".join(lines)
        rest = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        rest.start()
        yield Running(process, link, folder, lines)
    finally:
        process.terminate()
        try:
            code = process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        process.stderr.close()
        shown = "".join(lines)
        assert code == 0, shown
        assert "Traceback" not in shown, shown


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """Start a studio of the shop, for all tests of a file."""
    folder = tmp_path_factory.mktemp("studio")
    shutil.copy(HERE / "shop_app.py", folder / "app.py")
    with run_studio(folder, "app.py") as running:
        running.storage = None
        yield running


@contextmanager
def open_page(chromium, running, link=None, **context):
    """Open the studio in a window; at the end, check that it raised no error and reached nothing outside."""
    storage = getattr(running, "storage", None)
    with chromium.new_context(
        viewport={"width": 1300, "height": 900}, storage_state=storage, **context
    ) as window:
        page = window.new_page()
        page.set_default_timeout(WAIT)
        wrong = []
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: _is_outside(request.url) and wrong.append(request.url))
        page.goto(link or (running.address if storage else running.link))
        page.get_by_role("tab").first.wait_for()
        running.storage = window.storage_state()
        yield page
        assert page.evaluate("window.pwned") is None
        assert wrong == []


def _is_outside(url):
    parts = urlsplit(url)
    return parts.scheme not in {"data", "blob", "file"} and parts.hostname != "127.0.0.1"


@pytest.fixture
def open_window(chromium, studio):
    """Return a function that opens a window with the shop's studio: `open_window(color_scheme="dark")`."""
    return partial(open_page, chromium, studio)


@pytest.fixture
def page(open_window):
    """Open a page of the shop's studio."""
    with open_window() as opened:
        yield opened


@pytest.fixture
def start(tmp_path, chromium):
    """Return a function that starts a studio for one test: `start("run.jsonl")` returns the page and the studio."""
    with ExitStack() as stack:

        def begin(*arguments, find_link=lambda running: running.link, **env):
            running = stack.enter_context(run_studio(tmp_path, *arguments, **env))
            return stack.enter_context(open_page(chromium, running, find_link(running))), running

        yield begin
