"""Who may import whom: read from the source, so that nobody has to remember it."""

import ast
from pathlib import Path

import pytest

import toolwire

ROOT = Path(toolwire.__file__).parent

# A module may import modules of its own row and of the rows below it, never of a row above.
ROWS = [
    "cli __main__",
    "testing",
    "_target _modules",
    "client reply warm _query _controls _mcp_controls _file_controls _session_controls _requests",
    "_connect",
    "_handlers _servers",
    "wrap",
    "_argv _flags",
    "types _control_types",
    "_answers _listings",
    "options _option_checks _option_kinds _option_shapes _option_types _mcp_servers _skill_names _status _output",
    "_tracing",
    "_session _stderr _process _transport _lifeline _pipe _find _private_files _live_guard",
    "catalog",
    "mcp",
    "tools",
    "elicitation",
    "hooks permissions",
    "_wire",
    "messages _system _notices _extras",
    "blocks _record",
    "_jsonrpc _threads _tasks _taps _forks",
    "errors _version _cli_versions _log _secrets",
]
RANK = {name: rank for rank, row in enumerate(reversed(ROWS)) for name in row.split()}
NO_IO = {"asyncio", "anyio", "trio", "subprocess", "socket", "os", "threading", "time"}
MODULES = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def room(path):
    """The name of the row entry that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "toolwire")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_from_above(path):
    """Each import goes down or stays in its row."""
    own = RANK[room(path)]
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "toolwire" and rest:
            part = rest.split(".")[0]
            where = part if part in RANK else toolwire._WHERE[part].split(".")[0]  # a public name
            assert RANK[where] <= own, f"{path.name} imports {name} from a row above"


@pytest.mark.parametrize(
    "path", [*ROOT.glob("_wire/*.py"), ROOT / "blocks.py", ROOT / "messages.py"], ids=lambda p: p.name
)
def test_the_protocol_does_no_io(path):
    """The protocol core imports nothing that could do I/O or tell the time."""
    allowed = {"os"} if path.name == "control.py" else set()  # a few random bytes for ids
    assert {name.partition(".")[0] for name in imports(path)} & NO_IO <= allowed


def test_every_module_has_a_docstring():
    """A module says what it owns."""
    assert [path.name for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []
