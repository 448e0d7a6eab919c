"""Targets on the command line: which server they name, and the errors if there is none."""

import inspect
import json
import os
import pickle
import py_compile
import sys
import textwrap
from pathlib import Path

import pytest
from fastmcp import FastMCP
from mcp.server import MCPServer, Server

from shared.programs import run_python
from toolwire import ToolServer
from toolwire.cli.shared.target import Choice, Target, list_files, reload, resolve
from toolwire.cli.shared.user_module import neighbours
from toolwire.errors import UsageError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, name, text):
    """Write a file with this text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def refusal(text):
    """Return the error for a bad target, which must be one line."""
    with pytest.raises(UsageError) as refused:
        resolve(text)
    assert "\n" not in str(refused.value)
    return str(refused.value)


SERVER = """
    from toolwire import ToolServer
    calc = ToolServer("adder")
    again = calc
    @calc.tool
    def add(a: int, b: int) -> int:
        return a + b
"""


def test_the_only_server_of_a_file_is_used(folder):
    """Even if the file has several names for it."""
    write(folder, "app.py", SERVER)
    target = resolve("app.py")
    assert (target.name, list(target.server.tools), target.text) == ("adder", ["add"], "app.py")
    assert target.path == folder / "app.py"
    assert resolve("app.py:calc").server is target.server
    assert resolve("app:calc").server is target.server
    assert resolve(str(folder / "app.py")).server is target.server


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("from mcp.server import MCPServer; it = MCPServer('x', log_level='CRITICAL')", MCPServer),
        ("from mcp.server import Server; it = Server('x')", Server),
        ("from fastmcp import FastMCP; it = FastMCP('x')", FastMCP),
        ("from toolwire import create_sdk_mcp_server; it = create_sdk_mcp_server('x')", ToolServer),
    ],
)
def test_servers_of_other_libraries_are_found(folder, line, kind):
    """So is the dict that `create_sdk_mcp_server` returns."""
    write(folder, "app.py", line)
    for text in ("app.py", "app.py:it"):
        assert isinstance(resolve(text).server, kind)
        assert resolve(text).name == "x"


def test_a_wrapped_server_is_found_under_its_variable(folder):
    """A wrapped server has no name of its own, so the variable's is used."""
    write(
        folder,
        "app.py",
        "import toolwire\nfrom toolwire.wrap import prefix\nmine = prefix(toolwire.ToolServer('x'), 'a_')\n",
    )
    assert resolve("app.py").name == "mine"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a", "b"], "app.py has two servers, a and b: name one, as in app.py:a"),
        (["a", "b", "c"], "app.py has 3 servers, a, b and c: name one, as in app.py:a"),
    ],
)
def test_of_several_servers_one_must_be_named(folder, names, words):
    """The message lists them."""
    lines = [f"{name} = ToolServer('{name}')" for name in names]
    write(folder, "app.py", "\n".join(["from toolwire import ToolServer", *lines]))
    assert refusal("app.py") == words


def test_the_functions_of_a_file_are_tools(folder):
    """These are the public functions that are defined in the file, and objects made by `@tool`; nothing else."""
    write(
        folder,
        "my calc.py",
        '''
        import sqlite3
        from contextlib import contextmanager
        from json import dumps
        from os import getcwd
        from toolwire import tool

        class Thing:
            def connect(self): ...

        thing = Thing()

        def add(a: int, b: int = 2) -> int:
            """Add two numbers."""
            return a + b

        @tool
        async def late(x: str) -> str:
            return x

        def _hidden(): ...
        async def stream():
            yield 1
        @contextmanager
        def opened():
            yield 1
        def main(): ...

        if __name__ == "__main__":
            raise SystemExit(9)
        ''',
    )
    target = resolve("my calc.py")
    assert target.name == "my_calc"
    assert sorted(target.server.tools) == ["add", "late"]
    assert target.server.tools["add"].description == "Add two numbers."


def test_a_function_that_cannot_be_a_tool_is_named(folder):
    """The error gives the reason, and how to leave the function out."""
    write(folder, "app.py", "def bad(*args): ...\n")
    words = refusal("app.py")
    assert words.startswith("app.py: bad cannot become a tool: parameter '*args': use one parameter")
    assert "underscore" in words


def test_a_function_that_cannot_be_a_tool_does_not_block_its_neighbours(folder, capsys):
    """The function is left out, with a line on stderr."""
    write(folder, "app.py", "def good(a: int): ...\ndef bad(*args): ...\n")
    assert list(resolve("app.py").server.tools) == ["good"]
    assert capsys.readouterr().err.startswith("app.py: bad cannot become a tool: parameter '*args'")


def test_a_filter_that_matches_nothing_is_an_error(folder):
    """The server would be empty without any explanation."""
    write(folder, "app.py", "def good(a: int): ...\n")
    with pytest.raises(UsageError, match="--include x matches none of the tools of app.py: good"):
        resolve("app.py", choice=Choice(include=("x",)))


def test_a_file_without_tools_is_an_error(folder):
    """The error says what to write."""
    write(folder, "app.py", "x = 1\nimport json\n")
    assert refusal("app.py").startswith("app.py has no tools: define a function")


@pytest.mark.parametrize(
    ("name", "server", "tools"),
    [
        ("one", "app", ["one"]),
        ("made", "app", ["made"]),
        ("many", "app", ["one", "made"]),
        ("holder.inner", "inner", []),
        ("make_server", "built", []),
        ("build", "built", []),
        ("create_report", "app", ["create_report"]),
        ("make_list", "app", ["one"]),
    ],
)
def test_objects_that_a_name_may_refer_to(folder, name, server, tools):
    """A name may be a function, a tool, a list of them, an attribute, or a function that returns a server."""
    write(
        folder,
        "app.py",
        """
        from toolwire import ToolServer, tool
        def one(a: int) -> int: ...
        @tool
        def made(a: int) -> int: ...
        many = [one, made]
        class holder:
            inner = ToolServer("inner")
        def make_server():
            return ToolServer("built")
        def build() -> ToolServer:
            return ToolServer("built")
        def create_report() -> str:
            return ""
        def make_list():
            return [one]
        """,
    )
    target = resolve(f"app.py:{name}")
    assert (target.name, list(target.server.tools)) == (server, tools)


def test_a_file_with_only_a_factory_gives_the_server_it_returns(folder):
    """The function is recognised by its return annotation."""
    write(
        folder,
        "app.py",
        "from toolwire import ToolServer\ndef build() -> ToolServer: return ToolServer('b')\n",
    )
    assert resolve("app.py").name == "b"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("calk", "app.py has no 'calk': did you mean calc? it defines calc"),
        ("zzz", "app.py has no 'zzz': it defines calc"),
        ("calc.nope", "app.py has no 'calc.nope': "),
        ("", "app.py: name something after the colon"),
        (
            "number",
            "app.py:number is of type int; a target is a server, a tool, a function, or a list of tools",
        ),
        ("Kind", "app.py:Kind is the class Kind; a target is"),
        ("make_wrong", "app.py:make_wrong was called to make a server and returned int"),
        ("make_late", "app.py:make_late is async"),
        ("make_boom", "app.py:make_boom could not be imported: ValueError: no (app.py:9)"),
    ],
)
def test_a_name_that_does_not_exist_or_is_not_a_server(folder, name, words):
    """The error has the closest name, the names that exist, and what a target may be."""
    write(
        folder,
        "app.py",
        """
        from toolwire import ToolServer
        calc = ToolServer("calc")
        number = 1
        class Kind: ...
        def make_wrong(): return 1
        async def make_late(): return calc
        def make_boom():
            raise ValueError("no")
        """,
    )
    assert refusal(f"app.py:{name}").startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apps.py", "apps.py does not exist; did you mean app.py?"),
        ("zzzzzz.py", "zzzzzz.py does not exist"),
        ("sub", "sub is a folder: name a file in it, as in sub/inner.py"),
        ("notes.txt", "notes.txt is not a Python file; a target is app.py"),
        ("no/such", "no/such does not exist; a target is"),
        ("appp", "there is no module appp in this Python or in this folder; did you mean app.py?"),
        (
            "zzzzzz",
            "there is no module zzzzzz in this Python or in this folder; write a file with its .py",
        ),
        ("a b", "'a b' is not a target; a target is"),
        ("", "no target given; a target is"),
        ("catalog:github", "there is no profile 'github': the built-in ones are agentpmt"),
        ("openapi:x.json", "x.json does not exist: pass the path or the URL of an OpenAPI document"),
        ("http://", "http:// is not a valid URL; write one like https://example.com/mcp"),
        ("http://[::1/", "http://[::1/ is not a valid URL"),
        ("http://a:99999/mcp", "http://a:99999/mcp is not a valid URL"),
        ("https://exa mple.com/", "https://exa mple.com/ is not a valid URL"),
    ],
)
def test_an_invalid_target_is_a_one_line_error(folder, text, words):
    """The error says what is wrong, with which target, and what to do."""
    write(folder, "app.py", SERVER)
    write(folder, "sub/inner.py", "")
    write(folder, "notes.txt", "")
    assert refusal(text).startswith(words)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(:\n", "app.py, line 1: invalid syntax: def f(:"),
        ("\n1 / 0\n", "app.py could not be imported: ZeroDivisionError: division by zero (app.py:2)"),
        ("import helper\n", "app.py could not be imported: KeyError: 'x' (helper.py:1)"),
        (
            "import sys\nsys.exit(3)\n",
            "app.py exited while it was imported (exit code 3, app.py:2)",
        ),
        ("raise ValueError('a\\nb')\n", "app.py could not be imported: ValueError: a b (app.py:1)"),
        ("import no_such_thing\n", "app.py could not be imported: ModuleNotFoundError: No module named"),
        ("x = '\x00'\n", "app.py"),
    ],
)
def test_a_file_that_fails_is_a_one_line_error(folder, source, words):
    """The error names the line of the user's own code, and no half-imported module is left in `sys.modules`."""
    write(folder, "helper.py", "{}['x']\n")
    (folder / "app.py").write_text(source)
    assert refusal("app.py").startswith(words)
    assert "app" not in sys.modules


def test_a_file_of_a_package_can_import_its_neighbours(folder):
    """Relative imports work for a path and for a module name, and both load the same module."""
    write(folder, "shop/__init__.py", "")
    write(folder, "shop/tools/__init__.py", "")
    write(folder, "shop/prices.py", "price = 3")
    write(
        folder,
        "shop/tools/app.py",
        "from ..prices import price\ndef cost(n: int) -> int:\n    return n * price\n",
    )
    target = resolve("shop/tools/app.py")
    assert target.server.tools["cost"](2) == 6
    assert sys.modules["shop.tools.app"].__name__ == "shop.tools.app"
    assert list(resolve("shop.tools.app").server.tools) == ["cost"]
    assert [path.relative_to(folder).as_posix() for path in list_files(target)] == [
        "shop/__init__.py",
        "shop/prices.py",
        "shop/tools/__init__.py",
        "shop/tools/app.py",
    ]


def test_types_of_a_file_can_be_found_again(folder):
    """Annotations resolve and objects can be pickled, since the module is in `sys.modules` under its name."""
    write(
        folder,
        "types.py",
        """
        from __future__ import annotations
        from dataclasses import dataclass
        @dataclass
        class Point:
            x: int
        def move(point: Point) -> int:
            return point.x
        """,
    )
    server = resolve("types.py").server
    kind = inspect.getmodule(server.tools["move"].handler).Point
    assert pickle.loads(pickle.dumps(kind(3))) == kind(3)  # noqa: S301 - our own


def test_a_file_called_like_a_module_of_python_shadows_nothing(folder):
    """Checked in a new process, where nothing else has loaded the real modules."""
    for name in ("email", "types", "mcp", "rich", "calc"):
        write(folder, f"{name}.py", "import calc\ndef f(a: int) -> int:\n    return a\n")
    script = """
        import json
        from toolwire.cli.shared.target import resolve
        names = [resolve(name + ".py").name for name in ("email", "types", "mcp", "rich", "calc")]
        import email.message, mcp.server, rich.table, calc
        print(json.dumps([names, email.message.__name__, mcp.server.Server.__name__, calc.__file__]))
    """
    done = run_python("-c", f"import sys; sys.path.pop(0)\n{textwrap.dedent(script)}", cwd=folder)
    assert done.returncode == 0, done.stderr
    names, *others = json.loads(done.stdout)
    assert names == ["email", "types", "mcp", "rich", "calc"]
    assert others == ["email.message", "Server", str(folder / "calc.py")]


def test_two_files_of_one_name_are_two_modules(folder):
    """Neither replaces the other in `sys.modules`."""
    write(folder, "a/app.py", "def one(): ...")
    write(folder, "b/app.py", "def two(): ...")
    assert list(resolve("a/app.py").server.tools) == ["one"]
    assert list(resolve("b/app.py").server.tools) == ["two"]
    assert list(resolve("a/app.py").server.tools) == ["one"]


def test_what_a_file_prints_goes_to_stderr(folder, capsys):
    """Stdout is for the command's own output."""
    write(folder, "app.py", "print('hello')\ndef f(): ...\n")
    resolve("app.py")
    assert capsys.readouterr() == ("", "hello\n")


def test_a_reload_sees_what_has_changed(folder):
    """In the file and in modules beside it, even if the file keeps its size and modification time."""
    write(folder, "helper.py", "VALUE = 1\n")
    write(folder, "app.py", "from helper import VALUE\ndef f() -> int:\n    return VALUE\n")
    target = resolve("app.py")
    assert list_files(target) == [folder / "app.py", folder / "helper.py"]
    for value in (2, 3):
        write(folder, "helper.py", f"VALUE = {value}\n")
        renewed = reload(target)
        assert renewed.server.tools["f"]() == value
    assert target.server.tools["f"]() == 1
    assert (renewed.name, renewed.text, renewed.path) == (target.name, target.text, target.path)


def test_a_reload_that_fails_leaves_the_old_one_working(folder):
    """The old modules are restored, and the next reload can succeed."""
    write(folder, "helper.py", "VALUE = 1\n")
    write(folder, "app.py", "from helper import VALUE\ndef f() -> int:\n    return VALUE\n")
    target = resolve("app.py")
    old = sys.modules["helper"]
    write(folder, "helper.py", "VALUE = (\n")
    with pytest.raises(UsageError, match=r"helper.py, line 1: '\(' was never closed"):
        reload(target)
    assert sys.modules["helper"] is old
    assert resolve("app.py").server.tools["f"]() == 1
    write(folder, "helper.py", "VALUE = 5\n")
    assert reload(target).server.tools["f"]() == 5


def test_a_target_in_a_folder_above_python_does_not_reload_its_modules():
    """Nor are installed packages reloaded, although all may be below the folder of a file in the home folder."""
    beside = neighbours(Path(sys.base_prefix) / "app.py") + neighbours(Path(sys.prefix) / "app.py")
    assert not {"json", "os", "pytest", "anyio", "toolwire"} & set(beside)


def test_a_url_is_a_server_that_is_not_connected_yet():
    """The server's name comes from the host; the headers are kept, but not shown by `repr`."""
    target = resolve("https://mcp.example.com/mcp", {"Authorization": "Bearer sesame"})
    assert (target.name, target.path, list_files(target)) == ("example", None, [])
    assert isinstance(target.server, Server)
    assert "sesame" not in repr(target)
    assert reload(target) is target


def test_headers_are_for_urls(folder):
    """For a file, headers are an error."""
    write(folder, "app.py", SERVER)
    with pytest.raises(UsageError, match="--header only applies to URLs, and app.py is not one"):
        resolve("app.py", {"a": "b"})


def test_a_target_can_be_made_by_hand():
    """`Target` can be created directly, for commands that have servers of their own."""
    assert Target("x", "x", ToolServer("x")).modules == ()


def test_loading_and_reloading_change_no_files_of_the_user(folder):
    """No `.pyc` file is written, removed or trusted, and no import hook is installed."""
    (folder / "app.py").write_text("import helper, pack.part\ndef one(): return helper.N + pack.part.N\n")
    (folder / "pack").mkdir()
    for name in ("helper.py", "pack/part.py"):
        (folder / name).write_text("N = 1\n")
    (folder / "pack" / "__init__.py").write_text("")
    stale = [Path(py_compile.compile(str(folder / name))) for name in ("helper.py", "pack/part.py")]
    before = {path: path.read_bytes() for path in stale}
    hooks = list(sys.meta_path)
    target = resolve("app.py")
    assert sys.modules["app"].one() == 2
    for name in ("helper.py", "pack/part.py"):
        stamp = (folder / name).stat()
        (folder / name).write_text("N = 2\n")
        os.utime(folder / name, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # Python sees no change
    reload(target)
    assert sys.modules["app"].one() == 4
    assert {path: path.read_bytes() for path in folder.rglob("*.pyc")} == before
    assert sys.meta_path == hooks
