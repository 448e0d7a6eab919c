"""A run turned into a pytest file: it passes unchanged, is formatted, and no text of the run becomes code."""

import ast
import random
import sys
import types

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.frames import FRAMES, TYPED
from shared.programs import run_python
from toolwire import ToolServer
from toolwire.studio.test_writer import write_test
from toolwire.studio.timeline import Timeline
from toolwire.testing.plugin import CLIPeer

HOSTILE = [
    "",
    "plain",
    "it's",
    'say "hi"',
    "both ' and \"",
    '"""',
    "'''; import os; os.abort()",
    "line\nbreak\r\n\ttab",
    "back\\slash \\n",
    "nul \0 bell \a escape \x1b[31m",
    "\u202e bidi \u2028 separator \u0085",
    "\ud800 half a pair",
    "é ü 漢字 😀",
    "{braces} %s $(x) `y`",
    "x" * 200,
    "# comment",
]


class Recorded:
    """A run made of frames, in which each call of a tool is allowed and returns a given result."""

    def __init__(self):
        self.timeline = Timeline()
        self.number = 0

    def add(self, direction, **frame):
        """Add a frame."""
        self.number += 1
        self.timeline.add(float(self.number), direction, frame)

    def prompt(self, content):
        """Add a prompt."""
        self.add("out", type="user", message={"content": content})

    def say(self, *blocks):
        """Add a response of the model."""
        self.add("in", type="assistant", message={"id": f"m{self.number}", "content": list(blocks)})

    def call(self, name, arguments, result, *, said=None, is_error=False, runs=True, given=None):
        """Add a call with its result; `runs`: a function here is called, with the arguments `given` if they were
        changed."""
        call = f"toolu_{self.number}"
        text = [{"type": "text", "text": said}] if said is not None else []
        self.say(*text, {"type": "tool_use", "id": call, "name": name, "input": arguments})
        if runs:
            _, server, tool = name.split("__", 2)
            params = {"name": tool, "arguments": given or arguments, "_meta": {"claudecode/toolUseId": call}}
            message = {"method": "tools/call", "params": params, "id": self.number}
            self.request("mcp_message", {"mcp_response": {}}, server_name=server, message=message)
        block = {"type": "tool_result", "tool_use_id": call, "content": result, "is_error": is_error}
        self.add("in", type="user", message={"content": [block]})

    def ask(self, name, arguments, answer):
        """Add a permission request for the next call, and its response."""
        call = f"toolu_{self.number + 2}"
        self.request("can_use_tool", answer, tool_name=name, tool_use_id=call, input=arguments)

    def request(self, subtype, answer, **more):
        """Add a control request and its response."""
        key = f"r{self.number}"
        self.add("in", type="control_request", request_id=key, request={"subtype": subtype, **more})
        self.add("out", type="control_response", response={"request_id": key, "response": answer})

    def end(self, text="done", **more):
        """Add the last response of a turn, and its result."""
        self.say({"type": "text", "text": text})
        self.add("in", type="result", subtype="success", result=text, **more)

    def write(self, target="written_target:server", **more):
        """Return the source of the test."""
        return write_test(self.timeline, target, **more)


def make_server():
    """Return a server with a tool that returns its argument and one that fails with it."""
    server = ToolServer("s")

    @server.tool
    def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    def fails(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    return server


def play(source):
    """Run the test in a source text, in this process."""
    ast.parse(source)
    target = types.ModuleType("written_target")
    target.server = make_server()
    sys.modules["written_target"] = target
    names = {"__name__": "written_test"}
    peer = CLIPeer()

    async def run_it():
        with anyio.fail_after(30):
            await names["test_run"](peer)

    try:
        exec(compile(source, "written_test.py", "exec"), names)  # noqa: S102 - it is what the test is about
        anyio.run(run_it)
        peer.assert_no_pending()
    finally:
        del sys.modules["written_target"]


def test_a_run_with_everything_passes_as_written():
    """The run has text beside calls, a failure, allowed and denied calls, changed arguments, and two prompts."""
    run = Recorded()
    run.prompt("one")
    run.call("mcp__s__echo", {"text": "a"}, [{"type": "text", "text": "a"}], said="I call.")
    run.call("mcp__s__fails", {"why": "no"}, "ValueError: no", is_error=True)
    run.ask("mcp__s__echo", {"text": "b"}, {"behavior": "deny", "message": "never"})
    run.call("mcp__s__echo", {"text": "b"}, "never", is_error=True, runs=False)
    run.ask("mcp__s__echo", {"text": "b"}, {"behavior": "allow"})
    run.call("mcp__s__echo", {"text": "b"}, "b")
    run.call("mcp__s__echo", {"text": "c"}, "changed", given={"text": "changed"})
    run.end()
    run.prompt([{"type": "text", "text": "two"}])
    run.end()
    source = run.write()
    play(source)
    for line in ('for prompt in ["one", "two"]:', 'turn(say("I call."), call("mcp__s__echo", text="a")),'):
        assert f"{line}\n" in source
    for changed in ('"ValueError: no",', '"changed", False', '"a", False'):
        assert source.count(changed) == 1
        with pytest.raises(AssertionError):
            play(source.replace(changed, changed.replace('"', '"other ', 1)))


def test_a_refused_call_stays_refused():
    """If the test allows the call instead, it fails."""
    run = Recorded()
    run.prompt("go")
    run.ask("mcp__s__echo", {"text": "b"}, {"behavior": "deny", "message": "never"})
    run.call("mcp__s__echo", {"text": "b"}, "never", is_error=True, runs=False)
    run.end()
    source = run.write()
    play(source)
    with pytest.raises(AssertionError):
        play(source.replace('PermissionResultDeny(message="never")', "PermissionResultAllow()"))


def test_what_cannot_be_played_is_left_out_with_a_comment():
    """This includes built-in tools, other servers, subagents, interrupted calls and turns without a prompt."""
    run = Recorded()
    run.prompt("go")
    run.call("Bash", {"command": "ls\n"}, "files", said="I look.", runs=False)
    run.call("mcp__other__x", {}, "x", runs=False)
    run.say({"type": "tool_use", "id": "t1", "name": "Agent", "input": {}})
    run.add("in", type="assistant", message={"content": []}, parent_tool_use_id="t1")
    run.add(
        "in", type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "k"}]}
    )
    run.call("mcp__s__echo", {"text": "a"}, "a")
    run.say({"type": "tool_use", "id": "t2", "name": "mcp__s__echo", "input": {"text": "z"}})
    run.add(
        "in", type="result", subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools"
    )
    run.add("in", type="system", subtype="init")
    run.end("woken", origin={"kind": "task-notification"})
    source = run.write(server="s")
    play(source)
    comments = [line.strip() for line in source.splitlines() if line.strip().startswith("# ")]
    assert comments[:-1] == [
        '# Left out: a call of "Bash", a built-in tool of Claude Code.',
        '# Left out: a call of "mcp__other__x", a tool of another server.',
        '# Left out: a call of "Agent", which started a subagent.',
        '# Left out: a call of "mcp__s__echo", which was interrupted.',
        "# In the run, the turn ended here without a response.",
        '# Left out: a turn without a prompt ("Background task finished").',
    ]
    assert "I look." not in source, "it would end the turn"


def test_results_that_cannot_be_compared():
    """Pictures, and results that the CLI or the recorder has replaced, are compared with ANY."""
    run = Recorded()
    run.prompt("go")
    for result in ([{"type": "image"}], "<persisted-output>\nOutput too large", "key <scrubbed>"):
        run.call("mcp__s__echo", {"text": "a"}, result)
    run.end()
    source = run.write()
    assert source.count("ANY, False") == 3
    play(source)


@pytest.mark.parametrize(
    ("make", "target", "why"),
    [
        (lambda run: None, "app.py:calc", "the run used no in-process server"),
        (
            lambda run: run.call("Bash", {}, "", runs=False),
            "app.py:calc",
            "the run used no in-process server",
        ),
        (lambda run: run.call("mcp__s__echo", {}, "x"), "https://example.com/mcp", "is not one"),
        (lambda run: run.call("mcp__s__echo", {}, "x"), "catalog:shop", "is not one"),
        (lambda run: run.call("mcp__s__echo", {}, "x"), "app.py:a b", "not a valid name of a server"),
        (lambda run: run.call("mcp__s__echo", {}, "x"), "app.py:x;import os", "not a valid name of a server"),
        (
            lambda run: (run.call("mcp__s__a", {}, ""), run.call("mcp__b__a", {}, "")),
            "a.py",
            "the servers s, b",
        ),
    ],
)
def test_no_test_can_be_written(make, target, why):
    """The error gives the reason."""
    run = Recorded()
    run.prompt("go")
    make(run)
    run.end()
    with pytest.raises(ValueError, match=why):
        run.write(target)


def test_nothing_to_test():
    """A run that called no tool of the server is an error, and so is an invalid name for the test."""
    run = Recorded()
    run.prompt("go")
    run.call("Bash", {}, "", runs=False)
    run.end()
    with pytest.raises(ValueError, match="no tool of s was called .* cannot replay built-in tools"):
        run.write(server="s")
    with pytest.raises(ValueError, match="not a valid name for a test"):
        run.write(name="not a name")


def make_run(seed):
    """Return a run with hostile texts in every place from which a text gets into the file."""
    rng = random.Random(seed)  # noqa: S311 - no secret

    def value(depth=0):
        kind = rng.randrange(7 if depth < 3 else 5)
        leaves = [
            rng.choice(HOSTILE),
            rng.randrange(-9, 10**20),
            rng.random() * 1e9,
            None,
            rng.random() < 0.5,
        ]
        if kind == 5:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        if kind == 6:
            return {rng.choice(HOSTILE): value(depth + 1) for _ in range(rng.randrange(4))}
        return leaves[kind]

    run = Recorded()
    for _ in range(rng.randrange(1, 4)):
        run.prompt(rng.choice(HOSTILE) + "?")
        for _ in range(rng.randrange(1, 4)):
            given = {
                rng.choice([*HOSTILE, "a", "id", "class", "ﬁ"]): value() for _ in range(rng.randrange(4))
            }
            said = rng.choice([*HOSTILE, None])
            if rng.random() < 0.2:
                run.ask("mcp__s__odd", given, {"behavior": "deny", "message": rng.choice(HOSTILE)})
                run.call("mcp__s__odd", given, rng.choice(HOSTILE), said=said, is_error=True, runs=False)
            elif rng.random() < 0.2:
                run.call(rng.choice(HOSTILE), given, "x", said=said, runs=False)
            else:
                run.call("mcp__s__odd", given, str(len(given)), said=said)
        run.call("mcp__s__odd", {}, "0")
        run.end(rng.choice(HOSTILE) or "done")
    return run


@pytest.mark.process
def test_files_are_formatted_and_clean(tmp_path):
    """`ruff format` changes nothing, and `ruff check` finds nothing."""
    for seed in range(60):
        run = make_run(seed)
        target = ["app.py:calc", "app.py", "package.module:make_calc", "some/very/long/path/" * 6 + "app.py"][
            seed % 4
        ]
        source = run.write(target, server="s", folder=".")
        (tmp_path / f"test_{seed}.py").write_bytes(source.encode())
    for command in (["format", "--diff"], ["check"]):
        done = run_python("-m", "ruff", *command, "--isolated", "--no-cache", ".", cwd=tmp_path)
        assert done.returncode == 0, done.stdout[:3000] + done.stderr[:1000]


@pytest.mark.parametrize("seed", range(20))
def test_hostile_texts_are_only_texts(seed):
    """The file has the prompts of the run as literals, and uses only the names that a written test needs."""
    run = make_run(seed)
    source = run.write(server="s")
    tree = ast.parse(source)
    found = {
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    prompts = set(run.timeline.summary.prompts)
    assert prompts <= found
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    allowed = {
        *("ClaudeAgentOptions", "ClaudeSDKClient", "Reply", "PermissionResultAllow", "PermissionResultDeny"),
        *(
            "run",
            "server",
            "pytest",
            "scripted_cli",
            "say",
            "call",
            "turn",
            "decisions",
            "decide",
            "each",
            "ANY",
        ),
        *("tool", "arguments", "options", "reply", "client", "prompt", "message", "calls", "bool"),
    }
    assert used <= allowed
    assert len(source.splitlines()) == source.count("\n"), "no other kind of line break gets in"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: text.strip())


@settings(max_examples=25)
@given(TEXTS, TEXTS, TEXTS)
def test_any_text_passes_as_written(prompt, text, said):
    """The text is used as a prompt, as an argument, as a result, and as a response of the model."""
    run = Recorded()
    run.prompt(prompt)
    run.call("mcp__s__echo", {"text": text}, text, said=said)
    run.end(said)
    play(run.write())


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["in", "out"]), FRAMES | TYPED), max_size=20))
def test_whatever_follows_a_call_the_file_can_be_parsed(frames):
    """The frames are of any kind, with wrong types in any place."""
    run = Recorded()
    run.prompt("go")
    run.call("mcp__s__echo", {"text": "a"}, "a")
    for direction, frame in frames:
        run.timeline.add(1.0, direction, frame)
    ast.parse(run.write(server="s"))
