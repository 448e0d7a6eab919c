"""The state of a scripted CLI: its script and records, and the host as it sees it: command line, frames, requests.

Owns the progress through the script and the records that assertions read (shared by all connections of one
`ScriptedCLI`), the settings of the session, the outgoing frames and the correlation of control requests with their
responses. Must not know what is sent, or when. Pure but for one thing: `--mcp-config` may name a file,
which is read.
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

from anyio.abc import TaskGroup

from toolwire._support.waiting import Future, Mailbox
from toolwire.sessions.paths import project_key_for_directory
from toolwire.testing.request import Request, bare_name
from toolwire.testing.script import Answer, Fault, Scene, StepError, evaluate, fail, load_script


@dataclass(frozen=True)
class ToolCall:
    """One call that the CLI made or denied: `input` is what the tool got, `result` what the model read."""

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
        given = ", ".join(f"{name}={value!r}" for name, value in self.input.items())
        return f"{self.name}({given}) -> {'error ' if self.is_error else ''}{self.result!r}"


class Playback:
    """The script and the records of one scripted CLI."""

    def __init__(
        self, script: Iterable[Scene], *, allow: bool, tools: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.script: deque[Scene] = load_script(script, Answer | Fault)
        self.allow = allow
        self.tools = tools
        self.calls: list[ToolCall] = []
        self.prompts: list[str] = []
        self.unexpected: list[str] = []
        self.failure: BaseException | None = None
        self.pending: dict[str, str] = {}
        """Descriptions of the turns, tool calls and requests to the host that have no end yet, by id."""

    def take_next(self, request: Request) -> Answer | Fault:
        """Take and evaluate the next entry of the script; an API error if there is none or it fails."""
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


class RequestError(Exception):
    """The host responded to a request with an error, or can no longer respond."""


class HostChannel:
    """The way from the scripted CLI to its host."""

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
        """The tasks beside the conversation, while the CLI runs."""
        self._pending: dict[str, Future[dict[str, Any]]] = {}

    def emit(self, frame: Any) -> None:
        """Send a frame to the host."""
        if not self.silent:
            self.frames.put(frame)

    def start_task(self, work: Callable[..., Any]) -> None:
        """Start a task beside the conversation. Ignored while the CLI does not run."""
        if self.tasks is not None:
            self.tasks.start_soon(work)

    def send_request(self, body: dict[str, Any], request_id: str | None = None) -> str:
        """Send a control request without waiting for its response; returns its id."""
        request_id = request_id or str(uuid4())
        self.emit({"type": "control_request", "request_id": request_id, "request": body})
        return request_id

    async def request(self, body: dict[str, Any], request_id: str | None = None) -> dict[str, Any]:
        """Send a control request and wait for its response; `RequestError` if that is an error."""
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
        """Pass a response of the host to the request that waits for it."""
        pending = self._pending.get(str(response.get("request_id")))
        if pending is not None:
            pending.set(response)

    def end_input(self) -> None:
        """Fail all pending requests: no response will come any more."""
        self.input_ended = True
        for pending in self._pending.values():
            pending.set({"subtype": "error", "error": _LOST})

    async def call_hooks(self, event: str, tool_name: str | None = None, **fields: Any) -> dict[str, Any]:
        """Call the hooks for an event; returns their outputs merged, later ones over earlier ones."""
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
    """The settings of a session: from the command line at first, changed by control requests."""

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
    """Where transcripts of the working directory are."""
    mirrors: bool = False
    """True if the host wants reports of the transcript."""
    writes_files: bool = False
    """True if the test wants transcripts on disk."""
    resumed: str | None = None
    """The session to resume: its id, or the path of its transcript."""
    continues: bool = False
    forks: bool = False

    @property
    def wants_resume(self) -> bool:
        """True if a certain conversation is to go on."""
        return self.resumed is not None

    @classmethod
    def parse(
        cls, argv: Sequence[str], cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> "Settings":
        """Read a command line. Flags that a scripted CLI does not follow are ignored."""
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
    found = {
        name: each for name, each in servers.items() if isinstance(each, dict)
    }  # as the CLI skips others
    return [name for name, each in found.items() if each.get("type") == "sdk" and each.get("name")]
