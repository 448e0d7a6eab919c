"""Which module may import which: checked in the source, so that nobody has to remember it."""

import ast
from pathlib import Path

import pytest

import toolwire

ROOT = Path(toolwire.__file__).parent

# A module may import modules of its own row and of the rows below it, never of a row above. A row names folders, or
# parts of one where the folder has an order inside. The longest name that fits counts.
ROWS = [
    "__main__",
    "cli.main",
    "cli",
    "cli.shared",
    "studio.app studio.pages",
    "studio",
    "studio.shapes",
    "testing",
    "testing.environment testing.recording testing.scripted_cli",
    "testing.scripted_cli.agent",
    "testing.scripted_cli.frames testing.scripted_cli.transcript",
    "testing.scripted_cli.host",
    "testing.scripted_model",
    "testing.script",
    "official",
    "types",
    "batch",
    "batch.booking batch.dbos_queue batch.lease",
    "batch.records batch.outbox batch.place batch.queue batch.observe",
    "batch.states",
    "client",
    "client.controls",
    "client.responses",
    "_conversation.wiring",
    "sessions",
    "sessions.aio sessions.stores",
    "sessions.check sessions.prune",
    "sessions.disk",
    "sessions.index",
    "sessions.transcript",
    "sessions.tree sessions.paths sessions.search",
    "sessions.entries",
    "_conversation",
    "_conversation.observe",
    "options",
    "options.repairs",
    "options.mcp_servers",
    "options.checks",
    "options.types",
    "sessions.types",
    "wrap",
    "openapi",
    "catalog",
    "mcp",
    "mcp.serve.start",
    "mcp.serve.http mcp.serve.stdio",
    "mcp.serve.fast_path mcp.serve.metrics",
    "mcp.serve.host",
    "mcp.serve.channel",
    "mcp.serve.page",
    "mcp.serve.access mcp.serve.connections mcp.serve.http_sessions",
    "mcp.serve.limits",
    "mcp.foreign mcp.remote",
    "mcp.foreign.connection",
    "mcp.foreign.session",
    "mcp.foreign.direct",
    "mcp.foreign.detect",
    "mcp.streams",
    "mcp.compat",
    "mcp.versions",
    "tools",
    "tools.exposed_function",
    "tools.context tools.elicitation",
    "tools.paging tools.names tools.search",
    "tools.schema.signature tools.schema.json_schema",
    "tools.schema.pydantic_types",
    "tools.results tools.schema",
    "permissions",
    "permissions.folders permissions.terminal",
    "permissions.policy",
    "permissions.types permissions.shell",
    "hooks",
    "hooks.calling",
    "hooks.outcomes hooks.registry",
    "hooks.events",
    "_conversation.session",
    "_protocol.parse _protocol.run",
    "messages",
    "messages.blocks messages.system",
    "_protocol",
    "_transport",
    "_transport.base _transport.lifeline",
    "_support.threads _support.waiting",
    "_support.tasks",
    "_support.log",
    "_support _version",
    "errors",
]
RANK = {name: rank for rank, row in enumerate(reversed(ROWS)) for name in row.split()}
LAZY_LOADING = {"_NAMES", "_find_names", "_load_lazily"}  # in the package itself, below all rows
NO_IO = {"asyncio", "anyio", "trio", "subprocess", "socket", "os", "threading", "time"}
MODULES = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def name_of(path):
    """Return the name of a file's module, without `toolwire.` in front."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def rank(module):
    """Return the number of the row that a module belongs to, counted from below."""
    while module not in RANK:
        module = module.rpartition(".")[0]
    return RANK[module]


def imports(path):
    """Yield every module that a file imports, anywhere in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if not (ROOT.parent / whole.replace(".", "/")).with_suffix(".py").exists():
                    yield node.module  # a name in it; otherwise only a module of that package
                yield whole


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_from_above(path):
    """Each import is of a module in the same row or below."""
    own = rank(name_of(path))
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "toolwire" and rest and rest not in LAZY_LOADING:
            where = toolwire._WHERE.get(rest, rest)  # a public name
            assert rank(where) <= own, f"{name_of(path)} imports {name} from a row above"


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("_protocol/*.py"), *ROOT.glob("messages/*.py")],
    ids=lambda p: f"{p.parent.name}.{p.stem}",
)
def test_the_protocol_does_no_io(path):
    """The protocol core imports nothing that could do I/O or read the clock."""
    allowed = {"os"} if path.name == "control.py" else set()  # os, for random bytes in ids
    assert {name.partition(".")[0] for name in imports(path)} & NO_IO <= allowed


def test_only_the_page_of_the_studio_needs_its_extra():
    """Only the studio's app and pages import NiceGUI; everything that they show is kept by other modules."""
    users = [path for path in MODULES if any(each.partition(".")[0] == "nicegui" for each in imports(path))]
    assert users
    assert {"app.py", "pages"} >= {path.relative_to(ROOT / "studio").parts[0] for path in users}


def test_every_module_has_a_docstring():
    """Every module has a docstring, which should say what it owns."""
    assert [path.name for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []
