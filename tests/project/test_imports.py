"""`import toolwire` is light, and all modules of public names agree."""

import ast
import pickle
import subprocess
import sys
import typing
from pathlib import Path

import claude_agent_sdk
import claude_agent_sdk.types
import pytest

import toolwire
import toolwire.catalog
import toolwire.hooks
import toolwire.messages
import toolwire.permissions
import toolwire.testing
import toolwire.types

LAZY = [
    toolwire,
    toolwire.types,
    toolwire.hooks,
    toolwire.messages,
    toolwire.permissions,
    toolwire.testing,
    toolwire.catalog,
]

HEAVY = [
    "mcp",
    "pydantic",
    "httpx",
    "httpx2",
    "starlette",
    "typer",
    "rich",
    "trio",
    "claude_agent_sdk",
    "jsonschema",
    "opentelemetry",
    "nicegui",
]


def loaded_after(code):
    """Return the packages that a fresh interpreter has loaded after running `code`."""
    show = "import sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "code",
    [
        "import toolwire",
        "import toolwire; dir(toolwire); toolwire.__all__",
        "from toolwire import ClaudeAgentOptions, ClaudeSDKClient, query, run, startup",
        "import toolwire.types",
        "from toolwire.testing import ScriptedModel",
    ],
)
def test_nothing_heavy_is_loaded(code):
    """No MCP, HTTP, validation or terminal library is loaded before it is used."""
    assert loaded_after(code) & set(HEAVY) == set()


def test_the_bare_import_loads_no_event_loop():
    """`import toolwire` alone does not even load asyncio or dataclasses."""
    assert loaded_after("import toolwire") & {"asyncio", "anyio", "orjson", "dataclasses"} == set()


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name fails as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'qeury'"):
        _ = toolwire.qeury


@pytest.mark.parametrize("module", LAZY, ids=lambda module: module.__name__)
def test_a_type_checker_sees_the_same_names(module):
    """The stub imports each name of a lazy module, and each name can be loaded."""
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    seen = {alias.asname: node.module for node in stub.body for alias in node.names}
    assert seen == {name: f"toolwire.{where}" for name, where in module._WHERE.items()}
    assert all(getattr(module, name) is not None and name in dir(module) for name in module.__all__)


def test_a_lazy_name_is_the_same_object_everywhere():
    """A public name that several packages have is one object, which pickles and has its type hints."""
    for module in LAZY[1:-2]:
        for name in set(module.__all__) & set(toolwire.__all__):
            assert getattr(module, name) is getattr(toolwire, name)
    message = toolwire.TextBlock("hello")
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301 - our own
    assert typing.get_type_hints(toolwire.types.AssistantMessage)["model"] is str
    assert typing.get_type_hints(toolwire.hooks.PreToolUseHookInput)["tool_name"] is str


def test_the_annotations_of_public_classes_can_be_resolved():
    """`typing.get_type_hints` works for every public class, as libraries use it that inspect classes."""
    classes = [each for name in toolwire.__all__ if isinstance(each := getattr(toolwire, name), type)]
    assert len(classes) > 100
    for each in classes:
        typing.get_type_hints(each)


def test_the_annotations_of_query_can_be_resolved_before_messages_are_loaded():
    """The annotations are strings, so that the messages can be loaded while the CLI starts."""
    code = "import typing, toolwire; print(typing.get_type_hints(toolwire.query)['return'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "AsyncIterator" in done.stdout
    assert "ResultMessage" in done.stdout


def test_what_is_generated_is_up_to_date():
    """`make generate` would change nothing."""
    script = Path(__file__).parents[2] / "scripts" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "generated files: up to date\n"), done


def test_every_official_name_is_here():
    """Every public name of the official SDK is ours too, so that only the import must be changed."""
    assert set(claude_agent_sdk.__all__) - set(toolwire.__all__) == set()


def test_every_official_type_is_here():
    """Every public class of `claude_agent_sdk.types` is in `toolwire.types`."""
    official = {
        name
        for name, value in vars(claude_agent_sdk.types).items()
        if name[0].isupper()
        and name != "TYPE_CHECKING"
        and getattr(value, "__module__", "claude_agent_sdk.types").startswith("claude_agent_sdk")
    }
    assert official - set(toolwire.types.__all__) == set()
