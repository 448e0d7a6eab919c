"""What a browser shows at the address of `toolwire serve --http`: a notice without any controls."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect


@pytest.fixture
def address(tmp_path):
    """Serve the shop with a token, and yield the address."""
    shutil.copy(Path(__file__).parent / "shop_app.py", tmp_path / "app.py")
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env |= {"HOME": str(tmp_path), "TOOLWIRE_TOKEN": "a-long-token-of-a-test"}
    command = [sys.executable, "-m", "toolwire", "serve", "app.py", "--http", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        try:
            found = None
            while found is None and (line := process.stderr.readline()):
                found = re.search(r"http://\S+", line)
            assert found
            yield found[0]
        finally:
            process.terminate()
            process.stderr.read()
            assert process.wait(30) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_address_in_a_browser_says_what_it_is(chromium, address, scheme):
    """It shows the name and how to connect with a token, but no token, form or tool; axe finds nothing serious."""
    with chromium.new_context(color_scheme=scheme, viewport={"width": 390, "height": 700}) as window:
        page = window.new_page()
        wrong = []
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        assert page.goto(address).status == 200
        expect(page.get_by_role("heading", name="shop")).to_be_visible()
        expect(page.get_by_text(address).first).to_be_visible()
        text = page.locator("body").inner_text()
        assert "token" in text.lower()
        assert "a-long-token-of-a-test" not in page.content()
        assert "hostile" not in text
        assert page.locator("form, input, button, script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        found = Axe().run(page).response["violations"]
        assert [each["id"] for each in found if each["impact"] in {"serious", "critical"}] == []
        assert [each for each in wrong if "favicon" not in each] == []
