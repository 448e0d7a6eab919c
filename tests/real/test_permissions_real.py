"""Permissions with the real CLI, each checked by what the model receives next."""

import json
import stat

import anyio
import pytest

from toolwire import (
    ClaudeSDKClient,
    HookMatcher,
    McpError,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionRuleValue,
    PermissionUpdate,
    ToolServer,
    run,
)
from toolwire.permissions import policies as p
from toolwire.testing import call, say, turn

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 60


@pytest.fixture
def calc():
    server = ToolServer("calc")

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    return server


async def nobody(prompt):
    """Give no answer, as a terminal whose user has left."""


async def asked_by_cli(scripted, calc, decide, script=None):
    """Run a script in which the model adds; return the tool results that it received."""
    script = script or [call("mcp__calc__add", a=1, b=2), say("done")]
    async with scripted(script, mcp_servers={"calc": calc}, can_use_tool=decide) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("add", options=options)
        return [result for request in model.requests[1:] for result in request.tool_results]


async def test_allow_with_the_whole_context(scripted, calc):
    """The callback gets everything that the CLI sent, and allowing runs the tool with its original input."""
    seen = []

    async def decide(name, given, context):
        seen.append((name, given, context))
        return PermissionResultAllow()

    (result,) = await asked_by_cli(scripted, calc, decide)
    assert (result.text, bool(result.is_error)) == ("3", False)
    ((name, given, context),) = seen
    assert (name, given) == ("mcp__calc__add", {"a": 1, "b": 2})
    assert context.mcp_server == {"name": "calc", "source": "sdk"}
    assert context.server_policy_ask_only is True
    assert context.display_name == "Add"
    assert context.suggestions == [
        PermissionUpdate(
            "addRules", [PermissionRuleValue("mcp__calc__add")], "allow", destination="localSettings"
        )
    ]
    sent = {"subtype", "tool_name", "input", "permission_suggestions"}
    typed = {key for key in context.raw if key not in sent}
    assert {key: context.raw[key] for key in typed} == {key: getattr(context, key) for key in typed}


async def test_deny_tells_the_model_why(scripted, calc):
    """The model gets the message of the denial."""

    async def decide(*_):
        return PermissionResultDeny(message="not on Sundays")

    (result,) = await asked_by_cli(scripted, calc, decide)
    assert (result.text, result.is_error) == ("not on Sundays", True)


async def test_changed_input(scripted, calc):
    """The tool runs with the input that the callback returned."""

    async def decide(name, given, context):
        return PermissionResultAllow(updated_input={**given, "b": 40})

    (result,) = await asked_by_cli(scripted, calc, decide)
    assert result.text == "41"


async def test_a_rule_for_the_session_is_asked_once(scripted, calc):
    """After the answer "always", the second call runs without asking."""
    asked = []

    def asker(name, given, context):
        asked.append(given)
        return "always"

    script = [call("mcp__calc__add", a=1, b=2), call("mcp__calc__add", a=3, b=4), say("done")]
    first, second = await asked_by_cli(scripted, calc, p.ask(asker), script)
    assert (first.text, second.text) == ("3", "7")
    assert asked == [{"a": 1, "b": 2}]


async def test_remember_keeps_the_guards_in_front(scripted, calc):
    """An "always" that stays in the program is not asked again, but the policy before it still decides first."""
    asked = []

    def asker(name, given, context):
        asked.append(given)
        return "always"

    policy = p.deny("mcp__calc", where={"a": "^13$"}, reason="no thirteens") | p.remember(p.ask(asker))
    script = [*(call("mcp__calc__add", a=a, b=1) for a in (1, 2, 13)), say("done")]
    given = await asked_by_cli(scripted, calc, policy, script)
    assert [each.text for each in given] == ["2", "3", "no thirteens"]
    assert asked == [{"a": 1, "b": 1}]


async def test_a_page_to_open_is_declined_where_nobody_can(scripted):
    """Without a terminal, an elicitation with a URL is declined, and the model can read that."""
    server = ToolServer("s")

    @server.tool
    async def sign_in() -> str:
        page = {"mode": "url", "elicitationId": "e1", "url": "https://example.com/x", "message": "open"}
        raise McpError(-32042, "URL elicitation", {"elicitations": [page]})

    for answer in (None, p.terminal_elicitation(nobody)):
        script = [call("mcp__s__sign_in"), say("done")]
        more = {"mcp_servers": {"s": server}, "allowed_tools": ["mcp__s"], "on_elicitation": answer}
        async with scripted(script, **more) as (model, options):
            with anyio.fail_after(LIMIT):
                await run("go", options=options)
            assert "declined by the user" in model.requests[1].tool_results[0].text


async def test_deny_with_interrupt_ends_the_turn(scripted, calc):
    """The model is not called again in this turn, and learns of the interrupt in the next."""

    async def decide(*_):
        return PermissionResultDeny(message="stop it all", interrupt=True)

    script = [call("mcp__calc__add", a=1, b=2), say("next")]
    async with scripted(script, mcp_servers={"calc": calc}, can_use_tool=decide) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("add")
                ended = [message async for message in client.receive_response()][-1]
                assert len(model.requests) == 1
                assert ended.is_error
                await client.query("and now?")
                assert [message async for message in client.receive_response()][-1].result == "next"
        heard = str(model.requests[1].body["messages"])
        assert "[Request interrupted by user for tool use]" in heard
        assert "stop it all" not in heard  # the CLI replaces the message by words of its own


async def test_a_withdrawn_question_cancels_the_callback(scripted, calc):
    """An interrupt during a permission request cancels the callback; the session goes on."""
    started, cancelled = anyio.Event(), anyio.Event()

    async def decide(*_):
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    written = []
    script = [call("mcp__calc__add", a=1, b=2), say("still here")]
    policy = p.audit(p.Policy(decide), written.append)
    async with scripted(script, mcp_servers={"calc": calc}, can_use_tool=policy) as (_, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await client.query("add")
                await started.wait()
                await client.interrupt()
                await cancelled.wait()
                assert [message async for message in client.receive_response()][-1].is_error
                await client.query("hello?")
                assert [message async for message in client.receive_response()][-1].result == "still here"
    assert [json.loads(line)["decision"] for line in written] == ["cancelled"]


async def test_a_stack_of_policies(scripted, tmp_path):
    """`rm -rf` and a file outside are refused with the reason; harmless calls pass; the audit log has all of it."""
    folder, secret, record = tmp_path / "project", tmp_path / "secret.txt", tmp_path / "audit.jsonl"
    folder.mkdir()
    secret.write_text("hidden")
    (folder / "a.txt").write_text("open")
    policy = p.audit(
        p.inside(folder, allow=True)
        | p.commands(allow=["echo", "touch"], deny=["rm -rf"])
        | p.ask(lambda *_: True),
        record,
    )
    script = [
        call("Bash", command=f"cd {folder} && 'r'm -r -f *", description="clean"),
        call("Write", file_path=f"{folder}/../planted.txt", content="gone"),
        call("Read", file_path=str(secret)),
        call("Write", file_path=f"{folder}/new.txt", content="fresh"),
        call("Bash", command=f"touch {folder}/touched && echo fine", description="harmless"),
        say("done"),
    ]
    more = {"can_use_tool": policy, "permission_mode": "default", "cwd": folder}
    async with scripted(script) as (model, options):
        for name, value in more.items():
            setattr(options, name, value)
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        given = [result for request in model.requests[1:] for result in request.tool_results]
    assert given[0].is_error
    assert given[0].text == "Commands like 'rm -rf' are not allowed here."
    assert given[1].is_error
    assert f"Write may only use files inside {folder}" in given[1].text
    assert given[2].text == f"Read may only use files inside {folder}: '{secret}' is outside."
    assert [bool(each.is_error) for each in given[3:]] == [False, False]
    assert "fine" in given[4].text
    assert not (tmp_path / "planted.txt").exists()
    assert {path.name for path in folder.iterdir()} >= {"a.txt", "new.txt", "touched"}
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(line["tool"], line["decision"]) for line in lines] == [
        ("Bash", "deny"),
        ("Write", "deny"),
        ("Read", "deny"),
        ("Write", "allow"),
        ("Bash", "allow"),
    ]
    assert lines[0]["reason"] == given[0].text
    assert lines[3]["policy"].startswith("inside(")
    assert lines[3]["keys"] == ["content", "file_path"]
    assert "fresh" not in record.read_text()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


async def test_a_policy_as_a_hook_sees_what_a_rule_allows(scripted, calc):
    """An allow rule hides the call from `can_use_tool`, not from the hook; no opinion leaves it to the rule."""
    policy = p.deny("mcp__calc", where={"a": "^13$"}, reason="no thirteens")
    script = [call("mcp__calc__add", a=13, b=1), call("mcp__calc__add", a=12, b=1), say("done")]
    more = {"allowed_tools": ["mcp__calc"], "mcp_servers": {"calc": calc}}
    hooks = {"PreToolUse": [HookMatcher(hooks=[p.as_hook(policy)])]}
    async with scripted(script, hooks=hooks, **more) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("add", options=options)
        first, second = [result for request in model.requests[1:] for result in request.tool_results]
    assert first.is_error
    assert "no thirteens" in first.text
    assert second.text == "13"


async def test_an_allow_list_as_a_hook_decides_on_every_line(scripted):
    """The CLI does not ask `can_use_tool` about `git status` or `echo`; the hook sees them all."""
    policy = p.commands(allow=["echo"]).otherwise("deny", "only echo")
    lines = ["echo hi", "git status", "echo $(echo hi)", "echo hi | wc -c"]
    script = [*(call("Bash", command=line, description="x") for line in lines), say("done")]
    hooks = {"PreToolUse": [HookMatcher(matcher="Bash", hooks=[p.as_hook(policy)], on_failure="block")]}
    async with scripted(script, hooks=hooks) as (model, options):
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        given = [result for request in model.requests[1:] for result in request.tool_results]
    assert [bool(each.is_error) for each in given] == [False, True, True, True]
    assert all("only echo" in each.text for each in given[1:])


async def test_a_policy_that_fails_denies(scripted, calc, caplog):
    """A policy that raises denies the call with a text that the model can read, and the log names the policy."""

    def broken(*_):
        raise RuntimeError("bug")

    (result,) = await asked_by_cli(scripted, calc, p.first_of(broken))
    assert (result.is_error, "permission check failed" in result.text) == (True, True)
    assert "broken" in caplog.text


async def test_relative_paths_as_the_cli_shows_them(scripted, tmp_path):
    """A path that climbs out of the working directory is refused, however it reaches the policy."""
    folder = tmp_path / "project"
    folder.mkdir()
    seen = []

    def look(name, given, context):
        seen.append(given["file_path"])

    policy = p.first_of(look, p.inside(folder, cwd=folder, allow=True))
    script = [turn(call("Write", file_path="../out.txt", content="x")), say("done")]
    async with scripted(script) as (model, options):
        options.cwd, options.can_use_tool, options.permission_mode = folder, policy, "default"
        with anyio.fail_after(LIMIT):
            await run("go", options=options)
        (result,) = model.requests[1].tool_results
    assert seen
    assert result.is_error
    assert not (tmp_path / "out.txt").exists()
