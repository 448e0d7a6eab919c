"""`toolwire tools`: the tools, resources and prompts of a server."""

import json

import pytest
from typer.testing import CliRunner

from shared.programs import run_python
from toolwire.cli.main import app

SOURCE = '''
from toolwire import ToolServer
print("noise")
calc = ToolServer("calc")

@calc.tool(read_only=True)
def add(a: float, b: float = 1, tags: list[str] | None = None) -> float:
    """Add two [bold]numbers[/].

    More of it.
    """

@calc.tool(destructive=True)
def wipe(where: dict[str, int]) -> str:
    """Wipe \\x1b[2J it."""
'''
MANY = """
from mcp.server import Server
import mcp_types as types

async def list_tools(ctx, params):
    start = int(params.cursor or 0) if params else 0
    names = [f"tool_{number}" for number in range(start, min(start + 100, 298))]
    following = str(start + 100) if start + 100 < 298 else None
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
    return types.ListToolsResult(tools=tools, next_cursor=following)

async def list_resources(ctx, params):
    return types.ListResourcesResult(resources=[types.Resource(uri="res://one", name="one")])

async def list_templates(ctx, params):
    template = types.ResourceTemplate(uri_template="res://{name}", name="named", description="By name")
    return types.ListResourceTemplatesResult(resource_templates=[template])

async def list_prompts(ctx, params):
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet", description="Greets")])

many = Server(
    "many",
    on_list_tools=list_tools,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_list_prompts=list_prompts,
)
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Return a function that runs `toolwire tools` in a folder with two files."""
    (tmp_path / "tools_calc.py").write_text(SOURCE)
    (tmp_path / "tools_many.py").write_text(MANY)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["tools", *words])


def test_the_tools_are_shown_in_a_table(tools):
    """It has name, parameters, the first line of the description, and hints; in a pipe each tool is one line."""
    lines = tools("tools_calc.py").stdout.splitlines()
    assert lines[0].split() == ["Tool", "Parameters", "Description"]
    assert lines[1].startswith("add   a: number, b: number?, tags: array | null?  Add two [bold]numbers[/].")
    assert lines[1].endswith("read-only")
    assert lines[2].split()[:3] == ["wipe", "where:", "object"]
    assert lines[2].split()[3:] == ["Wipe", "it.", "destructive"]
    assert lines[-1] == "2 tools"


def test_schemas_option_shows_the_schemas(tools):
    """Schemas are indented, and descriptions are complete."""
    shown = tools("tools_calc.py", "--schemas").stdout
    assert "More of it." in shown
    assert '    "a": {\n      "type": "number"\n    }' in shown
    assert shown == tools("tools_calc.py", "-s").stdout


def test_json_is_the_only_output_on_stdout(tools):
    """It has neither prints of the file nor empty lists."""
    listed = json.loads(tools("tools_calc.py", "--json").stdout)
    assert list(listed) == ["tools"]
    assert [tool["name"] for tool in listed["tools"]] == ["add", "wipe"]
    assert listed["tools"][1]["description"] == "Wipe \x1b[2J it."


def test_all_pages_and_kinds_are_shown(tools):
    """298 tools over three pages, resources, templates and prompts."""
    shown = tools("tools_many.py").stdout
    assert sum(line.startswith("tool_") for line in shown.splitlines()) == 298
    assert "Resources:\n  res://one\n" in shown
    assert "Resource templates:\n  res://{name}  By name\n" in shown
    assert "Prompts:\n  greet  Greets\n" in shown
    assert shown.endswith("298 tools, 1 resource, 1 template, 1 prompt\n")
    listed = json.loads(tools("tools_many.py", "--json").stdout)
    assert (len(listed["tools"]), listed["prompts"][0]["name"]) == (298, "greet")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["gone.py"], 2, "Error: gone.py does not exist"),
        (["tools_calc.py", "--header", "a: b"], 2, "Error: --header only applies to URLs"),
        (["http://127.0.0.1:9/mcp", "--header", "sesame"], 2, 'Error: --header takes "Name: value"'),
        (["http://127.0.0.1:9/mcp"], 1, "Error: http://127.0.0.1:9/mcp: cannot connect"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(tools, words, code, said):
    """2 for wrong use, 1 for a target that cannot be reached; the value of a header is never shown."""
    done = tools(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert "sesame" not in done.stderr


def test_as_a_user_runs_it(tmp_path):
    """In a process of its own: prints of the file are on stderr."""
    (tmp_path / "app.py").write_text(SOURCE)
    done = run_python("-m", "toolwire", "tools", "app.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "noise\n")
    assert done.stdout.endswith("2 tools\n")
    bad = run_python("-m", "toolwire", "tools", "ap.py", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "Error: ap.py does not exist; did you mean app.py?\n"


def test_files_are_completed(tmp_path, monkeypatch):
    """Completion offers Python files and folders that are not hidden."""
    from toolwire.cli.shared.target_options import complete_target  # noqa: PLC0415 - beside its only use

    monkeypatch.chdir(tmp_path)
    for name in ("app.py", "apples/x.py", "notes.txt", ".hidden.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert complete_target("") == ["app.py", "apples/"]
    assert complete_target("apples/") == ["apples/x.py"]
    assert complete_target("gone/") == []
