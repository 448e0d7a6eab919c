"""Alias mode: programs that import `claude_agent_sdk` get toolwire. Most tests run one in a process."""

from pathlib import Path

import claude_agent_sdk
import claude_agent_sdk._cli_version
import claude_agent_sdk._errors
import pytest

import toolwire
from shared.programs import run_python
from toolwire import official
from toolwire.official import internals

pytestmark = pytest.mark.process

INSTALL = "import toolwire; toolwire.install_as_official()\n"

# `ask(query, *steps)` runs one query with a scripted CLI and returns the names of the messages' classes.
ASK = """
import asyncio
from toolwire.testing import ScriptedCLI, call, say

def options(*steps, **more):
    import claude_agent_sdk
    cli = ScriptedCLI(list(steps))
    return claude_agent_sdk.ClaudeAgentOptions(spawn_claude_code_process=cli, **more)

def ask(query=None, *steps):
    import claude_agent_sdk
    async def main():
        given = options(*(steps or (say("hello"),)))
        return [each async for each in (query or claude_agent_sdk.query)(prompt="hi", options=given)]
    return [type(each).__name__ for each in asyncio.run(main())]
"""


def run(code, *arguments, cwd=None, install=True, path=None):
    """Return the lines that a program prints."""
    program = path or ["-c", (INSTALL if install else "") + code]
    done = run_python("-W", "error", *program, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_the_package_has_the_official_names():
    """All of them at the top level, except those of session history; `import *` takes no others."""
    assert set(official._TOP_LEVEL.split()) == set(claude_agent_sdk.__all__)
    names = run("from claude_agent_sdk import *\nprint(*sorted(globals()), sep='\\n')")
    missing = set(claude_agent_sdk.__all__) - set(names)
    assert missing == set(claude_agent_sdk.__all__) - set(toolwire.__all__)
    assert "ToolServer" not in names


def test_the_versions_are_those_of_the_official_package_that_we_match():
    """The one that is installed for the tests."""
    assert internals.__version__ == claude_agent_sdk.__version__
    assert internals.__cli_version__ == claude_agent_sdk._cli_version.__cli_version__


def test_the_errors_are_the_official_ones():
    """`_errors` has each exception of the official module."""
    theirs = {name for name, each in vars(claude_agent_sdk._errors).items() if isinstance(each, type)} - {
        "Any"
    }
    assert theirs == set(official._ERRORS.split())


def test_both_names_give_the_same_classes():
    """So that `isinstance`, type hints and pickles work across them."""
    assert run("""
import pickle, typing, inspect, toolwire.types
import claude_agent_sdk, claude_agent_sdk.types as t
from claude_agent_sdk.client import ClaudeSDKClient
from claude_agent_sdk._errors import ProcessError, MessageParseError
from claude_agent_sdk._internal.transport import Transport
from claude_agent_sdk._version import __version__
assert claude_agent_sdk.TextBlock is t.TextBlock is toolwire.TextBlock
assert ClaudeSDKClient is toolwire.ClaudeSDKClient and Transport is toolwire.Transport
assert ProcessError is toolwire.ProcessError and __version__ == claude_agent_sdk.__version__
assert pickle.loads(pickle.dumps(t.TextBlock("hello"))) == toolwire.TextBlock("hello")
assert pickle.loads(b"cclaude_agent_sdk.types\\nTextBlock\\n.") is toolwire.TextBlock
assert typing.get_type_hints(t.AssistantMessage)["model"] is str
assert inspect.getmodule(t.TextBlock).__name__ == t.TextBlock.__module__
print("same")
""") == ["same"]


def test_query_is_a_module_and_a_function():
    """This holds however it is imported, and in any order."""
    assert run("""
import importlib, sys
import claude_agent_sdk.query as first
import claude_agent_sdk, claude_agent_sdk.query
module = importlib.import_module("claude_agent_sdk.query")
from claude_agent_sdk.query import query
assert callable(first) and first is claude_agent_sdk.query is module.query is query is toolwire.query
assert sys.modules["claude_agent_sdk.query"] is module
del sys.modules["claude_agent_sdk.query"]
import claude_agent_sdk.query
assert claude_agent_sdk.query is query
print(claude_agent_sdk.types.__name__, claude_agent_sdk.client.__name__)
""") == ["claude_agent_sdk.types claude_agent_sdk.client"]


def test_a_query_runs():
    """`query()` of the unchanged import yields the messages of a conversation."""
    assert run(ASK + "print(ask()[1:])") == ["['AssistantMessage', 'ResultMessage']"]


@pytest.mark.parametrize("given", ["claude_agent_sdk.query", "toolwire.query"])
def test_every_query_goes_through_the_internal_client(given):
    """A library that wraps `InternalClient.process_query` sees each, and none after it unwrapped it."""
    assert run(f"""
import toolwire, claude_agent_sdk
early = {given}
{ASK}
from claude_agent_sdk._internal.client import InternalClient
original = InternalClient.process_query
async def wrapped(self, *args, **kwargs):
    print(sorted(kwargs), kwargs["prompt"], type(kwargs["options"]).__name__)
    async for message in original(self, *args, **kwargs):
        yield message
InternalClient.process_query = wrapped
print(ask(early) == ask({given}))
InternalClient.process_query = original
print(len(ask(early)))
""") == [
        "['options', 'prompt', 'transport'] hi ClaudeAgentOptions",
        "['options', 'prompt', 'transport'] hi ClaudeAgentOptions",
        "True",
        "3",
    ]


def test_what_is_set_on_the_package_is_set_on_toolwire_until_it_is_set_back():
    """This holds for `mock.patch` and plain assignments, of functions and classes."""
    assert run("""
import claude_agent_sdk
from unittest import mock
query, client = claude_agent_sdk.query, toolwire.ClaudeSDKClient
class Traced(client): pass
claude_agent_sdk.ClaudeSDKClient = Traced
assert toolwire.ClaudeSDKClient is claude_agent_sdk.ClaudeSDKClient is Traced
claude_agent_sdk.ClaudeSDKClient = client
assert toolwire.ClaudeSDKClient is claude_agent_sdk.ClaudeSDKClient is client
with mock.patch("claude_agent_sdk.query") as patched, mock.patch("claude_agent_sdk.tool") as tool:
    assert toolwire.query is claude_agent_sdk.query is patched and toolwire.tool is tool
assert toolwire.query is claude_agent_sdk.query is query
assert toolwire.tool is claude_agent_sdk.tool is not tool
claude_agent_sdk.__version__ = "another"
assert toolwire.__version__ != "another"
claude_agent_sdk.client.ClaudeSDKClient.query = "wrapped"
assert toolwire.ClaudeSDKClient.query == "wrapped"
print("set")
""") == ["set"]


def test_modules_can_be_reloaded_and_imported_anew():
    """A reload gives the original names again; a test may remove the modules."""
    assert run("""
import importlib, sys
import claude_agent_sdk
query = claude_agent_sdk.query
claude_agent_sdk.query = None
assert importlib.reload(claude_agent_sdk).query is query is toolwire.query
importlib.reload(claude_agent_sdk.types)
for name in [name for name in sys.modules if name.startswith("claude_agent_sdk")]:
    del sys.modules[name]
import claude_agent_sdk as again
print(again.TextBlock is toolwire.TextBlock)
""") == ["True"]


def test_the_package_is_found_where_the_official_one_is():
    """Programs look for the package, its files and its bundled CLI."""
    folder = str(Path(claude_agent_sdk.__file__).parent)
    assert run("""
import importlib.metadata, importlib.resources, importlib.util, os
from toolwire._transport.find_cli import bundled_cli
before = bundled_cli(), importlib.util.find_spec("claude_agent_sdk").origin
import claude_agent_sdk
assert (bundled_cli(), importlib.util.find_spec("claude_agent_sdk").origin) == before
assert os.path.dirname(bundled_cli()) == os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled")
assert (importlib.resources.files("claude_agent_sdk") / "_bundled" / "claude").is_file()
assert claude_agent_sdk.__path__ == [os.path.dirname(claude_agent_sdk.__file__)]
print(os.path.dirname(before[1]), importlib.metadata.version("claude-agent-sdk"))
""") == [f"{folder} {claude_agent_sdk.__version__}"]


def test_it_works_where_the_official_package_is_not_installed():
    """Without it, its metadata has our API level, so that instrumentation libraries find a supported version."""
    assert run("""
import importlib.metadata as metadata, importlib.util, sys
sys.path[:] = [each for each in sys.path if not each.endswith("site-packages")]
sys.path_importer_cache.clear()
import claude_agent_sdk
from toolwire._transport.find_cli import bundled_cli
assert bundled_cli() is None and claude_agent_sdk.__file__ and claude_agent_sdk.__path__ == []
assert importlib.util.find_spec("claude_agent_sdk") is not None
print(metadata.version("claude-agent-sdk"), metadata.version("Claude_Agent_SDK"))
print(metadata.distribution("claude-agent-sdk").metadata["Name"], metadata.files("claude-agent-sdk"))
print([each.name for each in metadata.distributions() if "claude" in each.name])
""") == [f"{official.API_LEVEL} {official.API_LEVEL}", "claude-agent-sdk None", "['claude-agent-sdk']"]


def test_what_is_missing_says_so():
    """Internals of the official package that no library patches do not exist."""
    lines = run("""
import claude_agent_sdk, claude_agent_sdk.testing
for code in (
    "from claude_agent_sdk import list_sessions",
    "from claude_agent_sdk import qeury",
    "import claude_agent_sdk._internal.sessions",
    "from claude_agent_sdk.testing import run_session_store_conformance",
):
    try:
        exec(code)
    except (ImportError, AttributeError) as error:
        print(f"{type(error).__name__}: {error}")
print(hasattr(claude_agent_sdk, "list_sessions"), getattr(claude_agent_sdk, "other", None))
""")
    never = (
        "toolwire is installed in place of claude_agent_sdk, with its public names and a few of its internals"
    )
    assert [line.partition(" (docs")[0] for line in lines] == [
        f"ModuleNotFoundError: 'claude_agent_sdk' has no 'qeury': {never}",
        f"ModuleNotFoundError: 'claude_agent_sdk._internal' has no 'sessions': {never}",
        "True None",
    ]


def test_it_is_an_error_when_the_official_package_was_imported_before():
    """The error names the importing module. A second call is not an error."""
    lines = run(
        """
import sys, types
early = sys.modules["early"] = types.ModuleType("early")
exec("from claude_agent_sdk import query", vars(early))
import toolwire
try:
    toolwire.install_as_official()
except RuntimeError as error:
    print(error)
""",
        install=False,
    )
    assert [line.partition(". ")[0] for line in lines] == [
        "install_as_official() was called too late: the official claude_agent_sdk is already imported (by early)"
    ]
    assert (
        run("toolwire.install_as_official(); import claude_agent_sdk; toolwire.install_as_official()") == []
    )


def test_import_hooks_of_other_libraries_still_see_the_import():
    """They put a finder in front, which calls those behind it and wraps the loader that it gets."""
    code = """
import importlib.util, sys
class Watching:
    asked = set()
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "claude_agent_sdk" or name in self.asked:
            return None
        self.asked.add(name)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        class Loader:
            create_module = spec.loader.create_module
            def exec_module(self, module):
                execute(module)
                print(module.__name__, hasattr(module, "query"))
        spec.loader = Loader()
        return spec
sys.meta_path.insert(0, Watching())
INSTALL
import claude_agent_sdk.client
print(claude_agent_sdk.query is toolwire.query)
"""
    lines = run(code.replace("INSTALL", INSTALL), install=False)
    assert lines == ["claude_agent_sdk True", "claude_agent_sdk.client False", "True"]


def test_a_pickled_query_runs_in_a_process_without_alias_mode():
    """A child process does not inherit alias mode; objects that it gets by pickle are still toolwire's."""
    code = (
        ASK.replace("claude_agent_sdk", "toolwire")
        + """
import pickle, sys
query = pickle.loads(b"ctoolwire.official.internals\\nquery\\n.")
print(ask(query)[1:], "claude_agent_sdk" in sys.modules)
"""
    )
    assert run(code, install=False) == ["['AssistantMessage', 'ResultMessage'] False"]


def test_a_program_is_run_by_the_command(tmp_path):
    """A file or a module, with its arguments, its folder on the path, and as `__main__`."""
    (tmp_path / "helper.py").write_text("from claude_agent_sdk import query\n")
    (tmp_path / "app.py").write_text(
        "import sys, helper, toolwire\nif __name__ == '__main__':\n"
        "    print(sys.argv[1:], helper.query is toolwire.query)\n"
    )
    command = ["-m", "toolwire.official"]
    assert run("", str(tmp_path / "app.py"), "--flag", "a b", path=command) == ["['--flag', 'a b'] True"]
    assert run("", "-m", "app", "-x", path=command, cwd=tmp_path) == ["['-x'] True"]
    (tmp_path / "alone.py").write_text("import sys, claude_agent_sdk.types\nprint(sys.argv[1:])\n")
    assert run("", str(tmp_path / "alone.py"), path=["-P", *command]) == ["[]"]
    done = run_python(*command, "-c", "pass")
    assert (done.returncode, done.stderr[:6]) == (1, "usage:")
    assert run("", "--help", path=command)[0].startswith("usage: python -m toolwire.official")


def test_nothing_is_loaded_by_import_toolwire():
    """Alias mode costs nothing until it is installed, and its import loads no event loop."""
    assert run("import sys, toolwire; print('toolwire.official' in sys.modules)", install=False) == ["False"]
    loaded = run("import sys, claude_agent_sdk; print(*sys.modules, sep='\\n')")
    assert {"asyncio", "anyio", "mcp", "pydantic", "importlib.metadata"} & set(loaded) == set()
