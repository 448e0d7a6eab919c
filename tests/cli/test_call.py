"""`toolwire call`: calling one tool from the command line."""

import json
import re
import sys

import pytest
from typer.testing import CliRunner

from shared.programs import run_python
from shared.terminal import Terminal
from toolwire.cli.main import app
from toolwire.cli.shared.arguments import parse_arguments
from toolwire.errors import UsageError

SOURCE = '''
import json

import anyio

from toolwire import Context, ToolError
from toolwire.tools.results.content import Audio, Image

def add(a: float, b: float) -> float:
    """Add two numbers."""
    print("adding")
    return a + b

def echo(text: str, count: int = 1, tags: list[str] | None = None, on: bool = False) -> dict:
    """Give back what came."""
    return {"text": text, "count": count, "tags": tags, "on": on}

def fail(why: str) -> str:
    """Fail."""
    raise ToolError(f"no: {why}")

def strict(a: int) -> str:
    """Leave a trace."""
    open("called", "w").close()
    return "called"

def broken(x: list) -> str:
    """Fail by mistake."""
    return json.loads(x)

def odd() -> str:
    """Give back what would act on a terminal."""
    return "a\\x1b[2Jb\\tc"

def media() -> list:
    """Give back more than text."""
    picture = Image(data=b"\\x89PNG" + bytes(12_000), mime_type="image/png")
    return [picture, Audio(data=b"RIFF", mime_type="audio/wav"), "and text"]

async def notify(context: Context) -> str:
    """Send progress and a log message."""
    await context.progress(1, 2, "half")
    await context.log("look \\x1b[2J out", "warning")
    return "done"

async def slow() -> str:
    """Take forever."""
    await anyio.sleep_forever()

async def ask(context: Context) -> str:
    """Ask the user."""
    fields = {"name": {"type": "string"}, "age": {"type": "integer", "description": "in years"}}
    schema = {"type": "object", "properties": fields, "required": ["name", "age"]}
    answer = await context.elicit("Who are you?", schema)
    return f"{answer.action} {answer.content}"
'''


def line_of(code):
    return 1 + [line.strip() for line in SOURCE.splitlines()].index(code)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a file of tools."""
    (tmp_path / "hand.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(folder):
    """Return a function that runs `toolwire call` on that file."""
    return lambda *words, **more: CliRunner().invoke(app, ["call", "hand.py", *words], **more)


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "on": {"type": "boolean"},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "sizes": {"type": "array", "items": {"$ref": "#/$defs/size"}},
        "where": {"type": "object"},
        "either": {"type": ["string", "integer"]},
        "choice": {"enum": ["1", "2"]},
        "any": {},
    },
    "$defs": {"size": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["text=27"], {"text": "27"}),
        (["text="], {"text": ""}),
        (["text=a=b"], {"text": "a=b"}),
        (["text=null"], {"text": "null"}),
        (["count=27", "share=-1.5e3"], {"count": 27, "share": -1500.0}),
        (["share=3"], {"share": 3}),
        (["on=true"], {"on": True}),
        (["on=False"], {"on": False}),
        (["count=x"], {"count": "x"}),
        (["count=NaN"], {"count": "NaN"}),
        (["count=12345678901234567890123"], {"count": 12345678901234567890123}),
        (["tags=a", "tags=7"], {"tags": ["a", "7"]}),
        (["tags=a"], {"tags": ["a"]}),
        (["tags=7"], {"tags": ["7"]}),
        (["tags=null"], {"tags": None}),
        (['tags=["a","b"]'], {"tags": ["a", "b"]}),
        (["sizes=1", "sizes=2"], {"sizes": [1, 2]}),
        (['where={"a": 1}'], {"where": {"a": 1}}),
        (["either=3"], {"either": 3}),
        (["either=x"], {"either": "x"}),
        (["choice=1"], {"choice": "1"}),
        (["any=3", "other=x", "third=[1]"], {"any": 3, "other": "x", "third": [1]}),
        (['text:="27"', "any:=null"], {"text": "27", "any": None}),
        (["text:=27"], {"text": 27}),
        (["text=@@x"], {"text": "@x"}),
        (['{"text": "x", "n": 1}'], {"text": "x", "n": 1}),
        ([], {}),
    ],
)
def test_values_are_converted_to_the_types_of_the_schema(words, expected):
    """Values become numbers, booleans or lists where the schema says so, and stay text otherwise."""
    read = parse_arguments(words, SCHEMA)
    assert read == expected
    assert [type(value) for value in read.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["15"], "'15' is not an argument: write name=value"),
        (["=15"], "'=15' is not an argument"),
        (["text=a", "text=b"], "text is given 2 times, but the tool takes one value"),
        (["any:=x"], "any:= takes JSON, and the value is not JSON"),
        (["{x"], "the arguments are not JSON"),
        (["text=@gone.txt"], "text=@gone.txt: cannot read the file .No such file"),
        (["text=@raw.bin"], "text=@raw.bin: cannot read the file .it is not UTF-8 text"),
    ],
)
def test_an_argument_that_cannot_be_parsed_is_an_error(folder, words, said):
    """The error quotes the argument and says how to write it."""
    (folder / "raw.bin").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=said):
        parse_arguments(words, SCHEMA)


def test_values_come_from_files_and_stdin(call, folder):
    """`@file` and `@-` (stdin) give one value; `-` reads all arguments from stdin as a JSON object."""
    (folder / "note.txt").write_text("from a file")
    assert '"text":"from a file"' in call("echo", "text=@note.txt").stdout
    assert '"text":"from stdin"' in call("echo", "text=@-", input="from stdin").stdout
    assert '"count":3' in call("echo", "-", input='{"text": "x", "count": 3}').stdout
    assert call("echo", "-", input="[]").exit_code == 2


def test_a_result_is_printed(call):
    """Text on stdout, prints of the tool on stderr."""
    done = call("add", "a=15", "b=27")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "42.0\n", "adding\n")


def test_json_prints_the_raw_result(call):
    """Stdout has the `CallToolResult` and nothing else."""
    done = call("add", "a=15", "b=27", "--json")
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": "42.0"}]
    failed = call("fail", "why=x", "--json")
    assert (failed.exit_code, json.loads(failed.stdout)["isError"]) == (1, True)


def test_a_tool_that_fails_is_exit_code_1(call):
    """The text of its error is printed on stderr."""
    done = call("fail", "why=because")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "no: because\n")


def test_where_a_tool_failed_is_shown(call):
    """The file and line in the user's own code are shown; with --debug, the traceback from that line on."""
    done = call("broken", "x=[]")
    assert done.exit_code == 1
    first, place = done.stderr.splitlines()
    assert first.startswith("TypeError: ")
    assert place == f"  at hand.py:{line_of('return json.loads(x)')} in broken; --debug shows the traceback"
    trace = call("broken", "x=[]", "--debug").stderr
    assert "Traceback (most recent call last)" in trace
    assert "return json.loads(x)" in trace
    assert "toolwire" not in trace


def test_an_error_is_json_too(call):
    """With --json, an error is JSON on stdout too, so that scripts can always parse stdout."""
    done = call("nope", "--json")
    assert (done.exit_code, done.stderr) == (2, "")
    assert "has no tool 'nope'" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize("name", ["mcp__hand__add", "mcp__other__add"])
def test_the_name_that_claude_uses_is_understood(call, name):
    """A name of the form `mcp__SERVER__TOOL` is accepted, whatever its server is."""
    assert call(name, "a=1", "b=2").stdout == "3.0\n"


def test_wrong_arguments_do_not_reach_the_tool(call, folder):
    """Every violation of the schema is reported, with exit code 2."""
    done = call("strict", "a=x", "b=1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "Error: the arguments of strict do not fit",
        "  wrong: a: Input should be of type integer, got 'x'",
        "  wrong: b: Unknown argument (known: a)",
        "It takes: a: integer",
    ]
    one = call("strict")
    assert one.stderr == "Error: the arguments of strict do not fit: missing: a\nIt takes: a: integer\n"
    assert not (folder / "called").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ad", "hand.py has no tool 'ad'; did you mean add?"),
        ("zz", "hand.py has no tool 'zz'; its tools are add, "),
    ],
)
def test_an_unknown_tool_is_an_error_with_the_closest_name(call, name, said):
    """If no name is close, the tools are listed."""
    done = call(name)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {said}")
    assert done.stderr.count("\n") == 1


def test_control_characters_are_removed(call):
    """This holds for results and for log messages."""
    assert call("odd").stdout == "ab\tc\n"
    done = call("notify")
    assert (done.stdout, done.stderr) == ("done\n", "warning hand: look  out\n")


def test_media_are_named_or_saved(call, folder):
    """Each is shown as its media type and size; --save writes them to files."""
    assert call("media").stdout == "<image/png, 12 KB>\n<audio/wav, 4 bytes>\nand text\n"
    saved = call("media", "--save", "out")
    assert "saved to out/image-1.png" in saved.stdout
    assert (folder / "out" / "image-1.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((folder / "out").iterdir())) == 2


def test_structured_content_without_text_is_shown(folder):
    """It is printed as indented JSON."""
    (folder / "shaped.py").write_text(
        "from mcp.server import Server\nimport mcp_types as t\n"
        "x = t.Tool(name='x', input_schema={'type': 'object'})\n"
        "async def tools(c, p): return t.ListToolsResult(tools=[x])\n"
        "async def call(c, p): return t.CallToolResult(content=[], structured_content={'a': 1})\n"
        "s = Server('s', on_list_tools=tools, on_call_tool=call)\n"
    )
    assert CliRunner().invoke(app, ["call", "shaped.py", "x"]).stdout == '{\n  "a": 1\n}\n'


def test_a_call_times_out(call):
    """The limit is given by --timeout, and the exit code is 1."""
    done = call("slow", "--timeout", "0.05")
    assert (done.exit_code, done.stderr) == (1, "Error: slow returned no result within 0.05 seconds\n")


def test_an_elicitation_without_a_terminal_is_declined(call):
    """A line on stderr says so."""
    done = call("ask")
    assert done.stdout == "decline None\n"
    assert done.stderr == "hand requested input from the user: declined, there is no terminal.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of POSIX")
def test_an_elicitation_is_shown_on_a_terminal(folder):
    """One prompt for each property, repeated until the value is valid."""
    command = [sys.executable, "-m", "toolwire", "call", "hand.py", "ask"]
    with Terminal(command, cwd=folder, env={"PATH": "", "NO_COLOR": "1"}) as terminal:
        for question, answer in (
            ("Who are you?", None),
            ("name", "Al"),
            ("in years", None),
            ("age", "x"),
            ("integer", None),
            ("age", "33"),
        ):
            terminal.expect(question)
            if answer is not None:
                terminal.send(f"{answer}\n")
        terminal.expect("accept {'name': 'Al', 'age': 33}")
        assert terminal.wait() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of POSIX")
def test_progress_is_a_bar_on_a_terminal(folder):
    """The bar is removed at the end; log messages and the result stay on the screen."""
    command = [sys.executable, "-m", "toolwire", "call", "hand.py", "notify"]
    with Terminal(command, cwd=folder, env={"PATH": ""}) as terminal:
        terminal.expect("look")
        terminal.expect("done")
        assert terminal.wait() == 0
        assert re.search("half .* 1/2", terminal.screen())


def test_as_a_user_runs_it(folder):
    """The command runs in its own process, with stdout as a pipe."""
    done = run_python("-m", "toolwire", "call", "hand.py", "add", "a=15", "b=27", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42.0\n", "adding\n")
