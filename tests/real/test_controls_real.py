"""Every control request sent to the real CLI; the table in docs/control.md says what became of each.

`TOOLWIRE_UPDATE_DOCS=1` writes that table anew.
"""

import inspect
import os
import subprocess
import sys
import types
import typing
import uuid
from pathlib import Path

import anyio
import pytest

import toolwire
from toolwire import (
    ClaudeSDKClient,
    ControlRequestError,
    TaskStartedMessage,
    ToolServer,
    UnsupportedRequestError,
)
from toolwire.testing import call, say, turn

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.asyncio_only]  # each test starts a CLI

LIMIT = 90
PAGE = Path(__file__).parent.parent.parent / "docs" / "control.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
PROMPT, UNKNOWN = str(uuid.uuid4()), str(uuid.uuid4())
NOT_ONE_REQUEST = {
    "wait_until_ready",
    "add_mcp_server",
    "remove_mcp_server",
    "get_server_info",
    "get_session",
}
TALK = {"connect", "disconnect", "query", "receive_messages", "receive_response"}
ECHO = {"command": sys.executable, "args": [str(Path(__file__).with_name("small_server.py"))]}
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

# Request, method, arguments. A path that begins with ./ is in the working directory; TASK is a background command.
TRIES = [
    ("initialize", "initialization_result"),
    ("initialize", "supported_commands"),
    ("initialize", "supported_models"),
    ("initialize", "supported_agents"),
    ("initialize", "account_info"),
    ("list_models", "list_models"),
    ("get_binary_version", "get_binary_version"),
    ("get_status", "get_status"),
    ("get_context_usage", "get_context_usage", "summary"),
    ("get_context_usage", "get_context_usage"),
    ("get_usage", "get_usage"),
    ("get_session_cost", "get_session_cost"),
    ("get_settings", "get_settings"),
    ("apply_flag_settings", "apply_flag_settings", {"effortLevel": "low"}),
    ("apply_flag_settings", "apply_flag_settings", {"permissions": "x"}),
    ("update_settings", "update_settings", "localSettings", {"outputStyle": "Concise"}),
    ("update_settings", "update_settings", "userSettings", {"model": "x"}),
    ("list_permission_rules", "list_permission_rules"),
    ("get_hooks_listing", "get_hooks_listing"),
    ("get_task_output", "get_task_output", "TASK"),
    ("get_task_output", "get_task_output", "nobody"),
    ("stop_task", "stop_task", "TASK"),
    ("background_tasks", "background_tasks"),
    ("background_tasks", "background_tasks", "toolu_nobody"),
    ("interrupt", "interrupt"),
    ("interrupt", "interrupt", True),
    ("cancel_async_message", "cancel_async_message", UNKNOWN),
    ("mcp_status", "get_mcp_status"),
    ("mcp_call", "mcp_call", "mcp__echo__say", {"text": "hi"}),
    ("mcp_call", "mcp_call", "mcp__calc__add", {"a": 1, "b": 2}),
    ("mcp_read_resource", "read_mcp_resource", "echo", "ui://page"),
    ("mcp_read_resource", "read_mcp_resource", "calc", "ui://page"),
    ("mcp_message", "send_mcp_message", "calc", LIST_CHANGED),
    ("mcp_reconnect", "reconnect_mcp_server", "echo"),
    ("mcp_reconnect", "reconnect_mcp_server", "calc"),
    ("mcp_toggle", "toggle_mcp_server", "echo", False),
    ("mcp_toggle", "toggle_mcp_server", "nobody", True),
    ("set_mcp_permission_mode_override", "set_mcp_permission_mode_override", "echo", "default"),
    ("set_mcp_permission_mode_override", "set_mcp_permission_mode_override", "nobody", None),
    ("mcp_set_servers", "set_mcp_servers", {}),
    ("read_file", "read_file", "./a.txt"),
    ("read_file", "read_file", "./nothing.txt"),
    ("seed_read_state", "seed_read_state", "./a.txt", 1),
    ("file_suggestions", "file_suggestions", "a"),
    ("get_workspace_diff", "get_workspace_diff"),
    ("rewind_files", "rewind_files", PROMPT, True),
    ("rewind_files", "rewind_files", PROMPT),
    ("rewind_files", "rewind_files", UNKNOWN),
    ("register_repo_root", "register_repo_root", "./sub"),
    ("add_directory", "add_directory", "./sub"),
    ("reload_plugins", "reload_plugins"),
    ("reload_skills", "reload_skills"),
    ("reload_output_styles", "reload_output_styles"),
    ("get_plan", "get_plan"),
    ("export_conversation", "export_conversation"),
    ("side_question", "side_question", "Are you well?"),
    ("rename_session", "rename_session", "Tea"),
    ("generate_session_title", "generate_session_title", "Fix the kettle"),
    ("get_memory_dialog", "get_memory_dialog"),
    ("get_skills_dialog", "get_skills_dialog"),
    ("get_sandbox_dialog", "get_sandbox_dialog"),
    ("set_has_subscribers", "set_has_subscribers", True),
    ("set_prompt_suggestions_paused", "set_prompt_suggestions_paused", True),
    ("message_rated", "message_rated", PROMPT, "positive"),
    ("set_model", "set_model", "claude-haiku-4-5"),
    ("set_model", "set_model"),
    ("set_max_thinking_tokens", "set_max_thinking_tokens", 2000),
    ("set_permission_mode", "set_permission_mode", "acceptEdits"),
    ("set_permission_mode", "set_permission_mode", "bypassPermissions"),
    ("set_permission_mode", "set_permission_mode", "no such mode"),
    ("set_proactivity_level", "set_proactivity_level", "proactive"),
    ("initialize", "reinitialize"),
    ("set_cwd", "set_cwd", "./sub"),
    ("fork_conversation", "fork_conversation"),
    ("rewind_conversation", "rewind_conversation", PROMPT),
    ("rewind_conversation", "rewind_conversation", UNKNOWN),
    ("mcp_tasks_changed", "control_request", "mcp_tasks_changed"),
    ("poll_event", "control_request", "poll_event"),
    ("claim_session", "control_request", "claim_session"),
    ("set_color", "control_request", "set_color"),
    ("list_directory", "control_request", "list_directory"),
    ("end_session", "end_session"),
]
FROM_THE_START = {each[1] for each in TRIES if each[0] == "initialize"} - {"reinitialize"}


def calc():
    server = ToolServer("calc")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


def prepare(folder):
    """Create a Git repository with a change in it, and a folder."""
    (folder / "sub").mkdir()
    (folder / "a.txt").write_text("tea\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "empty"], ["add", "a.txt"]):
        subprocess.run([*git, *command], cwd=folder, check=True)


async def prompts():
    yield {"type": "user", "message": {"role": "user", "content": "hello"}, "uuid": PROMPT}


def placed(argument, folder, task):
    if argument == "TASK":
        return task
    return folder / argument[2:] if isinstance(argument, str) and argument.startswith("./") else argument


async def try_all(client, folder, sent):
    """Send each request; yield it with its method and the response or the error."""
    await client.query(prompts())
    (task,) = [
        message.task_id
        async for message in client.receive_response()
        if isinstance(message, TaskStartedMessage)
    ]
    for request, name, *arguments in TRIES:
        given = [placed(each, folder, task) for each in arguments]
        sent.clear()
        try:
            answer = await getattr(client, name)(*given)
        except ControlRequestError as error:
            answer = error
        assert sent == ([] if name in FROM_THE_START else [request])
        yield request, name, answer


def misfits(value, kind, where):
    """Return where a response does not match its type: a field too many, one too few, a value of another kind."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return min((misfits(value, each, where) for each in inner), key=len)
    if not is_a(value, kind):
        return [where]
    parts = []
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        odd = (value.keys() - hints.keys()) | (kind.__required_keys__ - value.keys())
        parts = [(value[key], hints[key], f"{where}.{key}") for key in value.keys() & hints.keys()]
        return [f"{where}.{key}" for key in odd] + [bad for part in parts for bad in misfits(*part)]
    if origin in (list, dict):
        values = value if origin is list else value.values()
        parts = [(each, inner[-1], where) for each in values]
    return [bad for part in parts for bad in misfits(*part)]


def is_a(value, kind):
    """Return whether a value is of a kind, no matter what is inside it."""
    if kind is typing.Any or typing.get_origin(kind) is typing.Literal:
        return kind is typing.Any or value in typing.get_args(kind)
    plain_kind = dict if typing.is_typeddict(kind) else typing.get_origin(kind) or kind
    return isinstance(value, (int, float) if plain_kind is float else plain_kind)


def shown(kind):
    """Return a return type as text, as a reader would write it."""
    if kind is toolwire.PermissionMode:
        return "PermissionMode"
    return (
        str(kind).replace("typing.", "")
        if typing.get_args(kind) and typing.get_origin(kind) is not list
        else plain(kind)
    )


def plain(kind):
    inner = typing.get_args(kind)
    return f"list[{plain(inner[0])}]" if inner else "None" if kind in (None, type(None)) else kind.__name__


def outcome(answer, folder):
    if not isinstance(answer, ControlRequestError):
        return "success"
    code = f" ({answer.error_code})" if answer.error_code else ""
    said = (
        str(answer).partition(". Claude Code")[0]
        if isinstance(answer, UnsupportedRequestError)
        else str(answer)
    )
    return f"`{type(answer).__name__}`{code}: {said.replace(str(folder), '.')}"


def table(version, seen, folder):
    """Return the table, with one row for each request and method."""
    rows = {}
    for request, name, answer in seen:
        kind = inspect.signature(getattr(ClaudeSDKClient, name)).return_annotation
        key = f"| `{request}` | `{name}()` | `{shown(kind).replace('|', chr(92) + '|')}` |"
        rows.setdefault(key, []).append(outcome(answer, folder).replace("|", "\\|"))
    lines = [f"{key} {'; '.join(dict.fromkeys(outcomes))} |" for key, outcomes in rows.items()]
    head = [f"| Request | Method | Gives | Tried with {version} |", "|---|---|---|---|"]
    return "\n".join([*head, *lines]) + "\n"


async def test_each_control_request_is_answered_and_the_page_says_how(scripted):
    """Each method sends its request and returns what its type says, or raises its typed error; the page agrees."""
    sent = []

    def note(direction, frame):
        if direction == "out" and frame["type"] == "control_request":
            sent.append(frame["request"]["subtype"])

    script = [turn(call("Bash", command="echo hi; sleep 60", run_in_background=True)), *[say("Well.")] * 4]
    given = {
        "mcp_servers": {"calc": calc(), "echo": ECHO},
        "allowed_tools": ["mcp__calc", "Bash"],
        "setting_sources": ["user", "local"],
        "enable_file_checkpointing": True,
        "on_frame": note,
    }
    with anyio.fail_after(LIMIT):
        async with scripted(script, finished=False, **given) as (_, options):
            folder = Path(options.cwd)
            prepare(folder)
            async with ClaudeSDKClient(options) as client:
                version = (await client.get_binary_version())["version"]
                seen = [each async for each in try_all(client, folder, sent)]
                assert [message async for message in client.receive_messages()]  # these end with end_session
                assert not client.connected
    wrong = {
        name: bad
        for _, name, answer in seen
        if not isinstance(answer, ControlRequestError)
        and (bad := misfits(answer, typing.get_type_hints(getattr(ClaudeSDKClient, name))["return"], name))
    }
    assert wrong == {}
    text = PAGE.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    now = f"{before}{BEGIN}{table(version, seen, folder)}{END}{after}"
    if os.environ.get("TOOLWIRE_UPDATE_DOCS"):
        PAGE.write_text(now)
    assert PAGE.read_text() == now, "run this test with TOOLWIRE_UPDATE_DOCS=1 to write the table anew"


def test_each_method_is_tried():
    """Every method of the client that sends a control request is tried."""
    methods = {
        name
        for name, member in inspect.getmembers(ClaudeSDKClient, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods - {each[1] for each in TRIES} == NOT_ONE_REQUEST | TALK
