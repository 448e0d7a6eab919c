"""The state of a scripted CLI and its connection to the host: command line, frames, requests, MCP servers.

Owns the progress through the script and the records for assertions (shared by all connections of one
`ScriptedCLI`); the settings of the session; the outgoing frames and the matching of control requests with their
responses; and the client side of the host's in-process MCP servers: handshake, request ids, lists of tools and
prefixed names. Must not know about turns or permissions. Does no I/O, except that it reads the file that
`--mcp-config` may name.
"""

import fnmatch
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from toolwire._support.waiting import Future, Mailbox, WaitGroup
from toolwire._transport.find_cli import TESTED
from toolwire.sessions.paths import project_key_for_directory
from toolwire.testing.script import (
    Answer,
    Fault,
    Request,
    Scene,
    StepError,
    bare_name,
    evaluate,
    fail,
    format_call,
    load_script,
)
from toolwire.tools.names import wire_name

DEFAULT_MODEL: Final = "claude-opus-5-5"
_SWITCHES: Final = frozenset(
    {
        *("--verbose", "--include-partial-messages", "--strict-mcp-config", "--fork-session", "--continue"),
        *("--session-mirror",),
    }
)
_LOST: Final = (
    "The tool call was interrupted before a result was received. It may or may not have completed on the server "
    "— verify before assuming it succeeded, and retry if needed."
)
_PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07")
_INITIALIZE: Final = {
    "protocolVersion": _PROTOCOL_VERSIONS[0],
    "capabilities": {},
    "clientInfo": {"name": "claude-code", "title": "Claude Code", "version": TESTED},
}
_GRACE: Final = (
    10  # iterations of the event loop; a list_changed notification takes about 4 from a tool to here
)
_SHOWN_ANNOTATIONS: Final = {
    "readOnlyHint": "readOnly",
    "destructiveHint": "destructive",
    "openWorldHint": "openWorld",
}


@dataclass(frozen=True)
class ToolCall:
    """One call that the CLI made or denied. `input` was passed to the tool, `result` to the model."""

    name: str
    input: Mapping[str, Any]
    result: str
    is_error: bool
    id: str = field(default="", compare=False)

    @property
    def bare_name(self) -> str:
        """The tool's own name, without `mcp__server__`."""
        return bare_name(self.name)

    def __repr__(self) -> str:
        return f"{format_call(self.name, self.input)} -> {'error ' if self.is_error else ''}{self.result!r}"


class Playback:
    """The script and the records of one scripted CLI."""

    def __init__(
        self, script: Iterable[Scene], *, allow: bool, tools: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.script: deque[Scene] = load_script(script, Answer | Fault)
        self.allow = allow
        self.tools = tools
        self.calls: list[ToolCall] = []
        self.requested: list[tuple[str, dict[str, Any]]] = []
        """All calls that the model requested, whether they were made or not."""
        self.prompts: list[str] = []
        self.unexpected: list[str] = []
        self.failure: BaseException | None = None
        self.pending: dict[str, str] = {}
        """Descriptions of the turns, tool calls and requests to the host that have not ended, by id."""

    def take_next(self, request: Request) -> Answer | Fault:
        """Return the answer of the next entry of the script; an API error if there is none or it fails."""
        if not self.script:
            return self._reject("the script has run out", request)
        try:
            answer: Answer | Fault = evaluate(self.script.popleft(), request, Answer | Fault)
        except StepError as error:
            self.failure = error.__cause__
            return self._reject(str(error), request)
        return answer

    def _reject(self, reason: str, request: Request) -> Answer:
        results = [tuple(result) for result in request.tool_results]
        given = f"tool results {results!r}" if results else f"prompt {request.prompt!r}"
        self.unexpected.append(f"{reason}: {given}")
        return fail(400, message=f"scripted CLI: {reason}: {given}")


# --- the host ---


class RequestError(Exception):
    """The host responded to a request with an error, or can no longer respond."""


class HostChannel:
    """Sends frames and control requests from the scripted CLI to its host."""

    def __init__(self, settings: "Settings", playback: Playback) -> None:
        self.settings = settings
        self.playback = playback
        self.hooks: dict[str, Any] = {}
        """The hook matchers that the host registered, by event."""
        self.frames: Mailbox[Any] = Mailbox()
        """The frames for the host to read."""
        self.silent = False
        self.input_ended = False
        self.tasks: TaskGroup | None = None
        """The background tasks; None while the CLI is not running."""
        self._pending: dict[str, Future[dict[str, Any]]] = {}

    def emit(self, frame: Any) -> None:
        """Send a frame to the host."""
        if not self.silent:
            self.frames.put(frame)

    def start_task(self, work: Callable[..., Any]) -> None:
        """Start a background task. Does nothing while the CLI is not running."""
        if self.tasks is not None:
            self.tasks.start_soon(work)

    def send_request(self, body: dict[str, Any], request_id: str | None = None) -> str:
        """Send a control request without waiting for its response. Returns its id."""
        request_id = request_id or str(uuid4())
        self.emit({"type": "control_request", "request_id": request_id, "request": body})
        return request_id

    async def request(self, body: dict[str, Any], request_id: str | None = None) -> dict[str, Any]:
        """Send a control request and return its response. Raises `RequestError` if the response is an error."""
        if self.input_ended:
            raise RequestError(_LOST)
        request_id = self.send_request(body, request_id)
        pending = self._pending[request_id] = Future()
        self.playback.pending[request_id] = f"the host has not responded to {body['subtype']}"
        try:
            response = await pending.wait()
        finally:
            del self._pending[request_id]
            self.playback.pending.pop(request_id, None)
        if response.get("subtype") == "error":
            raise RequestError(response.get("error") or "Command failed with no output")
        result = response.get("response")
        return result if isinstance(result, dict) else {}

    def receive_response(self, response: dict[str, Any]) -> None:
        """Deliver a response of the host to the pending request."""
        pending = self._pending.get(str(response.get("request_id")))
        if pending is not None:
            pending.set(response)

    def end_input(self) -> None:
        """Fail all pending requests, because no more responses can arrive."""
        self.input_ended = True
        for pending in self._pending.values():
            pending.set({"subtype": "error", "error": _LOST})

    async def call_hooks(self, event: str, tool_name: str | None = None, **fields: Any) -> dict[str, Any]:
        """Call the hooks for an event. Returns their merged outputs; later ones override earlier ones."""
        settings = self.settings
        given: dict[str, Any] = {
            "session_id": settings.session_id,
            "transcript_path": "",
            "cwd": settings.cwd,
            "permission_mode": settings.mode,
            "hook_event_name": event,
            **({} if tool_name is None else {"tool_name": tool_name}),
            **fields,
        }
        merged: dict[str, Any] = {}
        for matcher in self.hooks.get(event) or []:
            pattern = matcher.get("matcher")
            if pattern in (None, "", "*") or tool_name is None or re.fullmatch(pattern, tool_name):
                for callback_id in matcher.get("hookCallbackIds") or []:
                    body = {"subtype": "hook_callback", "callback_id": callback_id, "input": given}
                    try:
                        tool_use_id = fields.get("tool_use_id", str(uuid4()))
                        merged |= await self.request({**body, "tool_use_id": tool_use_id})
                    except RequestError:
                        pass  # a hook that fails blocks nothing
        return merged


@dataclass
class Settings:
    """The settings of a session, read from the command line and changed by control requests."""

    servers: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    disallowed: list[str] = field(default_factory=list)
    mode: str = "default"
    has_permission_callback: bool = False
    """True if the host responds to `can_use_tool`."""
    schema: dict[str, Any] | None = None
    max_turns: int | None = None
    model: str = DEFAULT_MODEL
    partial: bool = False
    session_id: str = field(default_factory=lambda: str(uuid4()))
    cwd: str = ""
    project_folder: Path = field(default_factory=Path)
    """The folder with the transcripts of the working directory."""
    mirrors: bool = False
    """True if the host requested a mirror of the transcript."""
    writes_files: bool = False
    """True if the test requested transcripts on disk."""
    resumed: str | None = None
    """The session to resume: its id, or the path of its transcript."""
    continues: bool = False
    forks: bool = False

    @classmethod
    def parse(
        cls, argv: Sequence[str], cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> "Settings":
        """Parse a command line. Flags that a scripted CLI does not support are ignored."""
        flags = _parse_flags(argv)
        resumed = None if "--fork-session" in flags else flags.get("--resume")
        env = os.environ if env is None else env
        home = env.get("HOME") or Path.home()
        config = Path(cwd or os.curdir, env.get("CLAUDE_CONFIG_DIR") or Path(home, ".claude"))
        schema, max_turns = flags.get("--json-schema"), flags.get("--max-turns")
        bypass = "--dangerously-skip-permissions" in flags
        return cls(
            servers=_parse_servers(flags.get("--mcp-config", "")),
            allowed=_parse_rules(flags.get("--allowedTools", "")),
            disallowed=_parse_rules(flags.get("--disallowedTools", "")),
            mode="bypassPermissions" if bypass else flags.get("--permission-mode") or "default",
            has_permission_callback=(
                flags.get("--permission-prompt-tool") == "stdio"
                and flags.get("--permission-prompts") != "none"
            ),
            schema=json.loads(schema) if schema else None,
            max_turns=int(max_turns) if max_turns else None,
            model=flags.get("--model") or DEFAULT_MODEL,
            partial="--include-partial-messages" in flags,
            session_id=flags.get("--session-id") or Path(resumed or "").stem or str(uuid4()),
            cwd=cwd or "",
            project_folder=config.absolute() / "projects" / project_key_for_directory(cwd),
            mirrors="--session-mirror" in flags,
            resumed=flags.get("--resume"),
            continues="--continue" in flags,
            forks="--fork-session" in flags,
        )

    def allows(self, name: str) -> bool:
        """Return True if a rule or the mode lets a tool run without asking for permission."""
        return self.mode == "bypassPermissions" or _matches(self.allowed, name)

    def hides(self, name: str) -> bool:
        """Return True if a rule removes a tool from the model's list."""
        return _matches(self.disallowed, name)


def _matches(rules: Sequence[str], name: str) -> bool:
    server = "__".join(name.split("__")[:2]) if name.startswith("mcp__") else name
    return any(rule in (name, server) or fnmatch.fnmatchcase(name, rule) for rule in rules)


def _parse_rules(text: str) -> list[str]:
    # A rule with arguments, such as Bash(ls *), does not apply to the whole tool.
    return [rule for rule in text.replace(",", " ").split() if "(" not in rule and ")" not in rule]


def _parse_flags(argv: Sequence[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        if not equals and name not in _SWITCHES and words and not words[0].startswith("--"):
            value = words.pop(0)
        flags[name] = value
    return flags


def _parse_servers(text: str) -> list[str]:
    if not text:
        return []
    config = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    servers = config.get("mcpServers", {})
    return [  # the real CLI skips other entries too
        name
        for name, each in servers.items()
        if isinstance(each, dict) and each.get("type") == "sdk" and each.get("name")
    ]


# --- the MCP servers of the host ---


@dataclass(frozen=True)
class Tool:
    """A tool, with its definition from the server's list."""

    server: "MCPServer"
    definition: dict[str, Any]

    @property
    def read_only(self) -> bool:
        return (self.definition.get("annotations") or {}).get("readOnlyHint") is True

    @property
    def display_name(self) -> str:
        title = (self.definition.get("annotations") or {}).get("title")
        return str(title or to_title(self.definition["name"]))


def to_title(name: str) -> str:
    """Convert a name to a title: `add_two` to `Add Two`."""
    return " ".join(word[:1].upper() + word[1:] for word in re.split(r"[_\s.-]+", name) if word)


class MCPServer:
    """One server of the host."""

    def __init__(self, host: HostChannel, name: str) -> None:
        self.name = name
        self.status = "pending"
        self.info: dict[str, Any] = {}
        self.tools: list[dict[str, Any]] = []
        self.initialized = anyio.Event()
        self.listings = WaitGroup()
        """The running refreshes of the list of tools."""
        self._host = host
        self._next_id = 0

    @property
    def prefix(self) -> str:
        return f"mcp__{wire_name(self.name)}__"

    async def initialize(self) -> None:
        """Initialize the server and list its tools. Sets `initialized` at the end, also after a failure."""
        self._next_id = 0
        try:
            response = await self.request("initialize", dict(_INITIALIZE))
            result = response.get("result")
            if not isinstance(result, dict) or result.get("protocolVersion") not in _PROTOCOL_VERSIONS:
                self.status = "failed"
                return
            self.info = result.get("serverInfo") or {}
            await self._host.request(self._wrap({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            self.status = "connected"
            if "tools" in (result.get("capabilities") or {}):
                await self.list_tools()
        except RequestError:
            self.status = "failed"
        finally:
            self.initialized.set()

    async def list_tools(self) -> None:
        """Refresh the list of tools. If one tool has no object schema, all are dropped, as in the real CLI."""
        tools: dict[str, dict[str, Any]] = {}
        cursor = None
        while True:
            response = await self.request("tools/list", None if cursor is None else {"cursor": cursor})
            result = response.get("result")
            if not isinstance(result, dict):
                break
            for tool in result.get("tools") or []:
                tools.setdefault(tool["name"], tool)
            cursor = result.get("nextCursor")
            if cursor is None:
                break
        valid = all((tool.get("inputSchema") or {}).get("type") == "object" for tool in tools.values())
        self.tools = list(tools.values()) if valid else []

    async def refresh_tools(self) -> None:
        """List the tools again after a notification."""
        try:
            await self.list_tools()
        except RequestError:
            return  # the host has disconnected, or has removed the server
        finally:
            self.listings.done()

    def new_id(self) -> int:
        """Return the id for the next request."""
        self._next_id += 1
        return self._next_id - 1

    async def request(
        self, method: str, params: dict[str, Any] | None = None, request_id: int | None = None
    ) -> dict[str, Any]:
        """Send a JSON-RPC request and return the response."""
        request_id = self.new_id() if request_id is None else request_id
        message: dict[str, Any] = {"method": method, "jsonrpc": "2.0", "id": request_id}
        if params is not None:
            message["params"] = params
        response = (await self._host.request(self._wrap(message))).get("mcp_response")
        return response if isinstance(response, dict) else {}

    def send(self, message: dict[str, Any]) -> None:
        """Send a notification, or a response to a request of the server."""
        self._host.send_request(self._wrap({"jsonrpc": "2.0", **message}))

    def _wrap(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"subtype": "mcp_message", "server_name": self.name, "message": message}

    def describe_status(self) -> dict[str, Any]:
        """Return the server's entry in the response to `mcp_status`."""
        entry = {"name": self.name, "status": self.status, "transport": "sdk", "source": "sdk"}
        if self.status != "connected":
            return {**entry, "scope": "user"}
        tools = []
        for tool in self.tools:
            annotations = tool.get("annotations") or {}
            shown = {ours: True for wire, ours in _SHOWN_ANNOTATIONS.items() if annotations.get(wire) is True}
            tools.append({"name": tool["name"], "annotations": shown})
        return {**entry, "scope": "dynamic", "serverInfo": self.info, "tools": tools}


class MCPServers:
    """All servers of a connection."""

    def __init__(self, host: HostChannel) -> None:
        self._host = host
        self._servers = {name: MCPServer(host, name) for name in host.settings.servers}

    def add(self, names: Iterable[str]) -> None:
        """Add the servers named in the host's `initialize` request. Known servers are not changed."""
        for name in names:
            if name not in self._servers:
                self._servers[name] = MCPServer(self._host, name)
                self._host.start_task(self._servers[name].initialize)

    def replace(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Set the servers. Returns the added and the removed ones.

        If a server was added, all servers are initialized again, as in the real CLI.
        """
        wanted = list(names)
        added = [name for name in wanted if name not in self._servers]
        removed = [name for name in self._servers if name not in wanted]
        self._servers = {name: self._servers.get(name) or MCPServer(self._host, name) for name in wanted}
        if added:
            self.initialize()
        return added, removed

    def initialize(self) -> None:
        """Start the handshake with all servers."""
        for server in self._servers.values():
            server.initialized = anyio.Event()
            self._host.start_task(server.initialize)

    async def wait_initialized(self) -> None:
        """Wait until all handshakes have ended."""
        for server in list(self._servers.values()):
            await server.initialized.wait()

    async def wait_listed(self) -> None:
        """Wait until changed lists of tools have been read, including changes that the host is about to announce.

        With a real model there is time for that between two requests; a script would continue at once.
        """
        for _ in range(_GRACE):
            await checkpoint()
        for server in list(self._servers.values()):
            await server.listings.wait()

    def find(self, name: str) -> Tool | None:
        """Return the tool with this name, as the model knows it; None if there is none."""
        return self.tools().get(name)

    def tools(self) -> dict[str, Tool]:
        """Return all tools, by their names for the model."""
        return {
            server.prefix + wire_name(tool["name"]): Tool(server, tool)
            for server in self._servers.values()
            for tool in server.tools
        }

    def receive(self, name: Any, message: Any) -> None:
        """Handle a message of a server: refresh a changed list, answer pings, reject other requests."""
        server = self._servers.get(name) if isinstance(name, str) else None
        if server is None or not isinstance(message, dict):
            return
        method, request_id = message.get("method"), message.get("id")
        if method == "notifications/tools/list_changed":
            server.listings.add()
            self._host.start_task(server.refresh_tools)
        elif method == "ping":
            server.send({"id": request_id, "result": {}})
        elif method and request_id is not None:
            server.send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})

    def describe(self) -> list[dict[str, Any]]:
        """Return the servers for the `system/init` frame."""
        return [
            {"name": each.name, "status": each.status, "source": "sdk"} for each in self._servers.values()
        ]

    def describe_status(self) -> list[dict[str, Any]]:
        """Return the servers for the response to `mcp_status`."""
        return [server.describe_status() for server in self._servers.values()]
