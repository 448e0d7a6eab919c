"""The first day of a user, on a real terminal: from an empty folder to the configuration of a client."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from shared.terminal import Terminal
from toolwire._transport.find_cli import VARIABLE, bundled_cli

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of POSIX"),
]


@pytest.fixture
def typed(tmp_path):
    """Return a function that types a command on a new terminal; `folder` is the working directory."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
    env = {"PATH": path, "HOME": str(tmp_path), VARIABLE: bundled_cli()}

    def type_in(*words, folder="shop"):
        return Terminal([sys.executable, "-m", "toolwire", *words], tmp_path / folder, env, size=(100, 40))

    return type_in


def shown(terminal, code=0):
    """Return the whole screen after the command has ended with this exit code."""
    assert terminal.wait() == code, terminal.screen()
    return terminal.screen()


def test_from_an_empty_folder_to_a_served_project(typed, tmp_path):
    """The commands new, tools, call, check, run, serve, config and doctor each show what the user needs."""
    with typed("new", "shop", folder=".") as terminal:
        screen = shown(terminal)
    assert "Created shop in" in screen
    assert "toolwire tools shop.py" in screen

    with typed("tools", "shop.py") as terminal:
        screen = shown(terminal)
        assert "\x1b[" in terminal.raw, "a terminal gets colours"
    assert re.search(
        r"find +word: string, limit: integer\? +Find notes that contain a word\. +read-only", screen
    )
    assert "3 tools, 1 template" in screen

    with typed("call", "shop.py", "find", "word=TEA") as terminal:
        assert shown(terminal).strip() == '["tea"]'
    with typed("call", "shop.py", "find", "limit=many") as terminal:
        assert "limit" in (screen := shown(terminal, code=2))
    assert "Traceback" not in screen
    with typed("call", "shop.py", "fnd", "word=tea") as terminal:
        assert "did you mean find?" in shown(terminal, code=2)

    with typed("check", "shop.py") as terminal:
        assert "OK: 3 tools, nothing to fix" in shown(terminal)

    with typed("run", "-t", "shop.py", "--scripted", "find word=tea") as terminal:
        terminal.expect("May it call shop.find?")
        terminal.send("y\n")
        terminal.expect('find returned: ["tea"]')
        assert "2 turns" in shown(terminal)

    with typed("serve", "shop.py", "--http", "--port", "0") as terminal:
        url = terminal.expect(re.compile(r"shop: 3 tools, 1 resource at (http://127\.0\.0\.1:\d+/mcp)"))[1]
        with typed("call", url, "find", "word=rye") as client:
            assert shown(client).strip() == '["bread"]'
        terminal.send("\x03")
        assert "Traceback" not in shown(terminal)

    with typed("config", "shop.py", "--for", "claude-code", "--install") as terminal:
        assert ".mcp.json" in shown(terminal)
    (entry,) = json.loads((tmp_path / "shop" / ".mcp.json").read_text())["mcpServers"].values()
    assert entry["args"][-1] == str(tmp_path / "shop" / "shop.py")

    with typed("doctor") as terminal:
        assert "ok" in shown(terminal)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("def (", "line 1"),
        ("x = 1\n", "no tools"),
        ("from toolwire import ToolServer\na = ToolServer('a')\nb = ToolServer('b')\n", "name one"),
    ],
    ids=["missing", "syntax error", "no tools", "two servers"],
)
def test_a_mistake_is_one_line_on_the_screen(typed, tmp_path, text, said):
    """No traceback for a mistake of the user."""
    (tmp_path / "shop").mkdir()
    if text is not None:
        (tmp_path / "shop" / "app.py").write_text(text)
    with typed("tools", "app.py") as terminal:
        screen = shown(terminal, code=2)
    assert screen.strip().count("\n") == 0
    assert said in screen
