"""Hooks with the real CLI: the input that each gets, and the effect of its output on what the model gets.

Not provoked: CwdChanged (a `cd` of the shell tool does not raise it), Setup (it is over before an SDK's hooks
are known), TeammateIdle (needs a team of agents). SessionStart and SessionEnd are provoked with /clear and
/compact; they do not come when the CLI itself starts and ends, since an SDK's hooks are not known yet, or its
input has ended.
"""

import json
import logging
import typing
from pathlib import Path

import anyio
import pytest

from shared.waiting import eventually
from toolwire import (
    ClaudeSDKClient,
    ControlRequestError,
    Hooks,
    McpError,
    PermissionResultAllow,
    ResultMessage,
    ToolServer,
    query,
)
from toolwire import (
    hooks as hook_types,
)
from toolwire.hooks import add_context, allow, ask, block, change_input, deny, replace_output, stop
from toolwire.testing import call, expect, fail, say

pytestmark = [pytest.mark.anyio, pytest.mark.real]

LIMIT = 40
UNTYPED = {"mcp_server"}  # the CLI sends it with MCP tools; the official types do not have it


class ReceivedEvents(dict):
    """The inputs that hooks got, by event."""

    def note(self, event):
        self.setdefault(event["hook_event_name"], []).append(event)

    def check(self):
        """Compare each input with its type. Not done in `note`: an exception in a hook fails no test."""
        for name, events in self.items():
            kind = getattr(hook_types, f"{name}HookInput")
            for event in events:
                assert kind.__required_keys__ <= event.keys(), event
                assert event.keys() <= kind.__annotations__.keys() | UNTYPED, event


def watch(hooks, received, **answers):
    """Record every event, and answer those for which an output is given."""
    for name in typing.get_args(hook_types.HookEvent):

        async def hook(event, name=name):
            received.note(event)
            given = answers.get(name)
            return given(event) if callable(given) else given

        hooks.on(name)(hook)


async def one(client, prompt):
    await client.query(prompt)
    return [message async for message in client.receive_response()][-1]


async def until(received, event):
    """Wait for an event that does not come from an answer of the model."""
    await eventually(lambda: event in received)


def got(request):
    """Return all messages that the model got with a request, as text."""
    return json.dumps(request.body["messages"], ensure_ascii=False)


async def test_tools(scripted, tmp_path):
    """Hooks deny, allow, ask, change input and output, and add context; their patterns select the tools."""
    hooks, received, matched, asked = Hooks(), ReceivedEvents(), [], []
    written = tmp_path / "written.txt"

    def decide(event):
        return {
            "denied": deny("not this one"),
            "allowed": allow(updated_input={"file_path": str(written), "content": "by the hook"}),
            "asked": ask("is this fine?"),
            "changed": change_input({"command": "echo changed"}),
        }.get(event["tool_input"].get("description") or event["tool_input"].get("content"))

    def after(event):
        if event["tool_response"].get("stdout") == "replace me":
            return replace_output({**event["tool_response"], "stdout": "replaced"})
        return add_context("seen by PostToolUse") if event["tool_name"] == "Bash" else None

    async def can_use_tool(name, tool_input, context):
        asked.append((name, tool_input["command"], context.decision_reason))
        return PermissionResultAllow()

    watch(
        hooks,
        received,
        PreToolUse=decide,
        PostToolUse=after,
        PostToolUseFailure=add_context("seen by PostToolUseFailure"),
        PostToolBatch=add_context("seen by PostToolBatch"),
    )
    hooks.pre_tool_use()(
        lambda event: allow() if event["tool_input"].get("description") == "denied" else None
    )
    for pattern in ("Bash", "Bas", "Write|Bash", "Wr.*", "^B", "bash", "*"):
        hooks.pre_tool_use(pattern)(
            lambda event, pattern=pattern: matched.append((event["tool_name"], pattern))
        )
    script = [
        call("Bash", command="echo no", description="denied"),
        expect(
            "PreToolUse:Bash hook error: not this one",
            then=call("Write", file_path=str(tmp_path / "x"), content="allowed"),
        ),
        call("Bash", command="echo asked", description="asked"),
        expect("asked", then=call("Bash", command="echo before", description="changed")),
        expect("changed", then=call("Bash", command="echo replace me")),
        expect("replaced", then=call("Bash", command="exit 3")),
        say("done"),
    ]
    more = {
        "can_use_tool": can_use_tool,
        "hooks": hooks,
        "add_dirs": [tmp_path],
        "permission_mode": "default",
    }
    async with scripted(script, **more) as (model, options):
        with anyio.fail_after(LIMIT):
            messages = [message async for message in query(prompt="go", options=options)]
    assert messages[-1].result == "done"
    assert written.read_text() == "by the hook"
    assert not (tmp_path / "x").exists()
    assert asked[0] == ("Bash", "echo asked", "is this fine?")
    assert received["PreToolUse"][0]["tool_input"]["command"] == "echo no"
    assert [event["tool_response"]["stdout"] for event in received["PostToolUse"][1:]] == [
        "asked",
        "changed",
        "replace me",
    ]
    assert "PostToolUse:Bash hook additional context: seen by PostToolUse" in got(model.requests[3])
    [failure] = received["PostToolUseFailure"]
    assert (failure["tool_name"], failure["error"], failure["is_interrupt"]) == ("Bash", "Exit code 3", False)
    assert "seen by PostToolUseFailure" in got(model.requests[6])
    assert "seen by PostToolBatch" in got(model.requests[6])
    assert received["PostToolBatch"][-1]["tool_calls"][0]["tool_response"] == "Exit code 3"
    assert {pattern for name, pattern in matched if name == "Bash"} == {"Bash", "Write|Bash", "^B", "*"}
    assert {pattern for name, pattern in matched if name == "Write"} == {"Write|Bash", "Wr.*", "*"}
    received.check()


async def test_prompts_and_the_session(scripted):
    """Hooks add context, block a prompt, go on after Stop, and see compaction, another model and a new session."""
    hooks, received = Hooks(), ReceivedEvents()

    def prompt(event):
        return block("no secrets") if "secret" in event["prompt"] else add_context("the user is Ada")

    watch(
        hooks,
        received,
        UserPromptSubmit=prompt,
        Stop=lambda event: block("say more") if event["last_assistant_message"] == "one" else None,
        PreCompact=lambda event: None if event["custom_instructions"] else block("not yet"),
        SessionStart=add_context("a fresh start"),
        PreModelSwitch=lambda event: deny("too dear") if "opus" in event["to_model"] else allow(),
        PostModelSwitch=add_context("you are another"),
    )
    cleared = []
    hooks.session_start("clear")(lambda event: cleared.append(event["source"]))
    hooks.session_start("compact")(lambda event: cleared.append(event["source"]))
    hooks.pre_compact("auto")(lambda event: cleared.append("never"))
    # A compaction takes one or two of the last answers.
    script = [say("one"), say("two"), *(say("the summary or more") for _ in range(4))]
    async with scripted(script, hooks=hooks, model="claude-sonnet-4-5", finished=False) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                assert (await one(client, "hello")).result == "two"
                assert "the user is Ada" in got(model.requests[0])
                assert "say more" in got(model.requests[1])
                blocked = await one(client, "my secret")
                assert "no secrets" in blocked.result
                assert len(model.requests) == 2
                assert "blocked" in (await one(client, "/compact")).result
                assert len(model.requests) == 2
                await one(client, "/compact briefly")
                with pytest.raises(ControlRequestError, match="too dear"):
                    await client.set_model("claude-opus-4-1")
                await client.set_model("claude-haiku-4-5")
                await one(client, "after the switch")
                assert "you are another" in got(model.requests[-1])
                await one(client, "/clear")
                await one(client, "again")
                assert "a fresh start" in got(model.requests[-1])
                assert "hello" not in got(model.requests[-1])
    assert [event["prompt"] for event in received["UserPromptSubmit"]][:2] == ["hello", "my secret"]
    first, second = received["Stop"][:2]
    assert (first["stop_hook_active"], first["last_assistant_message"]) == (False, "one")
    assert (second["stop_hook_active"], second["last_assistant_message"]) == (True, "two")
    assert [event["custom_instructions"] for event in received["PreCompact"]] == [None, "briefly"]
    assert {event["trigger"] for event in received["PreCompact"]} == {"manual"}
    assert received["PostCompact"][0]["compact_summary"]
    assert [event["source"] for event in received["SessionStart"]] == ["compact", "clear"]
    assert sorted(cleared) == ["clear", "compact"]
    assert received["SessionEnd"][0]["reason"] == "clear"
    assert [event["requested_model"] for event in received["PreModelSwitch"]] == [
        "claude-opus-4-1",
        "claude-haiku-4-5",
    ]
    assert received["PostModelSwitch"][0]["source"] == "sdk"
    assert [event["delta"] for event in received["MessageDisplay"]][:2] == ["one", "two"]
    received.check()


async def test_subagents_tasks_and_files(scripted):
    """Hooks see a subagent's start and stop, tasks, instructions, worktrees, a changed file and a new folder."""
    hooks, received = Hooks(), ReceivedEvents()
    folder = {}
    watch(
        hooks,
        received,
        SessionStart=lambda _: {"hookSpecificOutput": {"watchPaths": [str(folder["work"] / "watched.txt")]}},
        SubagentStart=add_context("you are a helper"),
        SubagentStop=lambda event: None if event["stop_hook_active"] else block("check it again"),
        TaskCompleted=block("not done yet"),
        WorktreeCreate=lambda _: {"hookSpecificOutput": {"worktreePath": str(folder["tree"])}},
        UserPromptExpansion=add_context("from a command"),
    )
    matched = []
    hooks.subagent_start("general-purpose")(lambda event: matched.append(event["agent_type"]))
    hooks.subagent_start("Explore")(lambda event: matched.append("never"))
    hooks.subagent_stop("Explore")(lambda event: matched.append("never"))
    script = [
        call(
            "Agent", description="x", prompt="work", subagent_type="general-purpose", run_in_background=False
        ),
        say("done"),
        say("checked"),
        call("TaskCreate", subject="a", description="b"),
        call("TaskUpdate", taskId="1", status="completed"),
        call("EnterWorktree", name="tree"),
        call("ExitWorktree", action="remove", discard_changes=True),
        say("end"),
        say("hi"),
        fail(400),
    ]
    allowed = ["Agent", "TaskCreate", "TaskUpdate", "EnterWorktree", "ExitWorktree"]
    async with scripted(script, hooks=hooks, allowed_tools=allowed) as (model, options):
        folder["work"] = work = Path(options.cwd)
        folder["tree"] = tree = work.parent / "tree"
        tree.mkdir()
        (work / "watched.txt").write_text("old")
        (work / "CLAUDE.md").write_text("Be kind.")
        (work / ".claude" / "commands").mkdir(parents=True)
        (work / ".claude" / "commands" / "hi.md").write_text("Greet $ARGUMENTS")
        options.setting_sources = ["project"]
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await one(client, "/clear")
                assert (await one(client, "go")).result == "end"
                assert (await one(client, "/hi Ada")).result == "hi"
                assert (await one(client, "fail")).is_error
                (work / "watched.txt").write_text("new")
                await until(received, "FileChanged")
                (work / "repo").mkdir()
                await client.control_request("register_repo_root", directory=str(work / "repo"))
                await until(received, "DirectoryAdded")
        requests = model.requests
    [start], (first, second) = received["SubagentStart"], received["SubagentStop"][:2]
    assert matched == ["general-purpose"]
    assert start["agent_id"] == first["agent_id"] == second["agent_id"]
    assert (first["stop_hook_active"], first["last_assistant_message"]) == (False, "done")
    assert (second["stop_hook_active"], second["last_assistant_message"]) == (True, "checked")
    assert "you are a helper" in got(requests[1])
    assert "check it again" in got(requests[2])
    assert "not done yet" in got(requests[5])
    assert received["TaskCreated"][0]["task_subject"] == received["TaskCompleted"][0]["task_subject"] == "a"
    assert received["WorktreeCreate"][0]["name"] == "tree"
    assert received["WorktreeRemove"][0]["worktree_path"] == str(tree)
    assert "from a command" in got(requests[8])
    assert received["UserPromptExpansion"][0]["command_args"] == "Ada"
    assert received["InstructionsLoaded"][0]["file_path"] == str(work / "CLAUDE.md")
    assert received["StopFailure"][0]["last_assistant_message"].startswith("API Error: 400")
    assert received["FileChanged"][0]["event"] == "change"
    assert received["DirectoryAdded"][0]["source"] == "register_repo_root"
    received.check()


async def test_permission_requests_and_elicitation(scripted, tmp_path):
    """Hooks decide in place of a person, and see a server's elicitation, its result and the notification."""
    hooks, received = Hooks(), ReceivedEvents()
    written = tmp_path / "written.txt"

    def decide(event):
        if event["tool_name"] == "Bash":
            return deny("nobody may")
        return allow(updated_input={"file_path": str(written), "content": "by the hook"})

    watch(
        hooks,
        received,
        PermissionRequest=decide,
        Elicitation={"hookSpecificOutput": {"hookEventName": "Elicitation", "action": "accept"}},
        ElicitationResult={"hookSpecificOutput": {"hookEventName": "ElicitationResult", "action": "accept"}},
    )
    server = ToolServer("pay")

    @server.tool
    def charge() -> str:
        """Charge."""
        elicitation = {
            "mode": "url",
            "elicitationId": "e1",
            "url": "https://example.com/",
            "message": "please",
        }
        raise McpError(-32042, "open it", {"elicitations": [elicitation]})

    script = [
        call("Write", file_path=str(tmp_path / "x"), content="x"),
        call("Bash", command="touch y"),
        expect("nobody may", then=call("mcp__pay__charge")),
        say("done"),
    ]
    asked = []

    async def on_elicitation(request):
        asked.append(request)
        return {"action": "decline"}

    more = {
        "on_elicitation": on_elicitation,
        "hooks": hooks,
        "mcp_servers": {"pay": server},
        "allowed_tools": ["mcp__pay"],
        "add_dirs": [tmp_path],
    }
    async with scripted(script, **more) as (model, options):
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await one(client, "go")
        assert "was declined by the user" in got(model.requests[3])
    assert written.read_text() == "by the hook"
    assert [event["tool_name"] for event in received["PermissionRequest"]] == ["Write", "Bash"]
    assert received["PermissionRequest"][1]["permission_suggestions"]
    assert len(asked) == 1  # with a URL, this CLI ignores the output of both hooks
    assert received["ElicitationResult"][0]["action"] == "decline"
    assert received["Elicitation"][0]["url"] == "https://example.com/"
    assert received["ElicitationResult"][0]["mcp_server_name"] == "pay"
    assert received["Notification"][0]["notification_type"] == "elicitation_response"
    received.check()


async def test_auto_mode_and_settings(scripted):
    """Hooks see a call that auto mode refuses, and settings that change on disk."""
    hooks, received = Hooks(), ReceivedEvents()
    watch(hooks, received)
    matched = []
    for source in ("project_settings", "user_settings"):
        hooks.config_change(source)(lambda _, source=source: matched.append(source))
    async with scripted([call("Bash", command="python3 -c 0"), say("ok")], hooks=hooks) as (_, options):
        folder = Path(options.cwd) / ".claude"
        folder.mkdir()
        (folder / "settings.json").write_text("{}")
        options.setting_sources, options.permission_mode = ["project"], "auto"
        with anyio.fail_after(LIMIT):
            async with ClaudeSDKClient(options) as client:
                await one(client, "go")
                (folder / "settings.json").write_text('{"env": {"A": "b"}}')
                await until(received, "ConfigChange")
                while not matched:  # the hooks of an event run side by side
                    await anyio.sleep(0.01)
    assert received["PermissionDenied"][0]["tool_name"] == "Bash"
    assert matched == ["project_settings"]
    assert received["ConfigChange"][0]["file_path"] == str(folder / "settings.json")
    received.check()


async def test_hooks_that_go_wrong(scripted, caplog):
    """Hooks that crash or hang, with on_failure unset, "continue" and "block"; odd outputs; the end of a run."""
    caplog.set_level(logging.WARNING, "toolwire.hooks")
    hooks, cut = Hooks(), []

    async def misbehave(event):
        how = event["tool_input"].get("description") or event["tool_input"].get("pattern")
        if how == "crash":
            raise ValueError("boom")
        if how == "hang":
            try:
                await anyio.sleep_forever()
            finally:
                cut.append(event["tool_name"])
        return {"other": {"hookSpecificOutput": {"hookEventName": "PostToolUse"}}, "end": stop("enough")}[how]

    # Our limit is a tenth shorter than the CLI's: on a busy machine a tenth of a second may be too little.
    hooks.pre_tool_use("Bash", timeout=5, on_failure="continue")(misbehave)
    hooks.pre_tool_use("Grep", timeout=5, on_failure="block")(misbehave)
    hooks.pre_tool_use("Glob", timeout=1)(misbehave)
    blocked = (
        'PreToolUse:Grep hook error: [callback]: failed; blocking because onFailure is "block"\n'
        "Hook callback hook_1 failed: the SDK host replied with an error or an invalid answer."
    )
    script = [
        call("Bash", command="echo 1", description="crash"),
        expect("1", then=call("Grep", pattern="crash")),
        expect(blocked, then=call("Bash", command="echo 2", description="hang")),
        expect("2", then=call("Grep", pattern="hang")),
        expect(blocked, then=call("Bash", command="echo 3", description="other")),
        expect("3", then=call("Grep", pattern="other")),
        expect(blocked, then=call("Glob", pattern="crash")),
        expect("No files found", then=call("Glob", pattern="hang")),
        call("Bash", command="echo 4", description="end"),
    ]
    async with scripted(script, hooks=hooks, allowed_tools=["Bash", "Grep", "Glob"]) as (model, options):
        with anyio.fail_after(LIMIT):
            messages = [message async for message in query(prompt="go", options=options)]
        assert "did not respond before its timeout" in got(model.requests[8])
    result = messages[-1]
    assert isinstance(result, ResultMessage)
    assert result.terminal_reason == "hook_stopped"
    assert cut == ["Bash", "Grep", "Glob"]
    lines = [record.getMessage() for record in caplog.records if record.name == "toolwire.hooks"]
    assert all("PreToolUse" in line and "misbehave" in line and "(matcher '" in line for line in lines)
    assert len(lines) == 8
    assert "boom" in caplog.text
    assert "did not return within 5 s" in caplog.text
