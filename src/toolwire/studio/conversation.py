"""A conversation with Claude as the page shows it: texts, tool calls and questions in order, and the cost.

Owns the client and turns its messages into items. The `Peer` passed in decides who answers: the user's own CLI or a
scripted model. Knows nothing about pages: they compare `version`, which grows with every change; texts and calls
have a `version` of their own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from toolwire._conversation.observe import (
    CallInfo,
    Direction,
    RunInfo,
    RunObserver,
    add_observer,
    remove_observer,
)
from toolwire._support.words import count
from toolwire.client.client import ClaudeSDKClient
from toolwire.errors import ClaudeSDKError, result_error_text
from toolwire.messages import (
    ApiRetryMessage,
    AssistantMessage,
    HookEventMessage,
    InitMessage,
    McpLogMessage,
    McpProgressMessage,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from toolwire.options.agent_options import ClaudeAgentOptions
from toolwire.studio.calls import ToolCall, describe, note_failures
from toolwire.studio.questions import Question, Questions
from toolwire.studio.timeline import Timeline

_CONTROL_TIMEOUT: Final = 10.0
_CLOSE_TIMEOUT: Final = 15.0

State: TypeAlias = Literal["new", "starting", "idle", "running", "ended"]

Peer: TypeAlias = Callable[[AsyncExitStack, Mapping[str, Any], bool], Awaitable[dict[str, Any]]]
"""Called with an exit stack, the servers, and True for the user's own Claude. Returns options that set the CLI."""


@dataclass(eq=False)
class Prompted:
    """The user's prompt."""

    text: str


@dataclass(eq=False)
class Said:
    """Text or thinking of the model. Grows while it is streamed."""

    text: str
    thinking: bool = False
    streaming: bool = False
    subagent: bool = False
    version: int = 0


@dataclass(eq=False)
class Called:
    """A tool that the model called."""

    call: ToolCall
    tool_use_id: str
    subagent: bool = False


@dataclass(eq=False)
class Asked:
    """A question for the user that belongs to no call on the page."""

    question: Question


@dataclass(eq=False)
class Noted:
    """A notice: a retry, a hook, a failed server, the exit of the CLI."""

    text: str
    level: Literal["info", "warning", "error"] = "info"
    detail: Any = None


@dataclass(eq=False)
class TurnEnded:
    """The end of a turn."""

    summary: str
    failed: str = ""


Item: TypeAlias = Prompted | Said | Called | Asked | Noted | TurnEnded


@dataclass(eq=False)
class Totals:
    """What the conversation has cost so far, and how full the context is."""

    cost_usd: float | None = None
    turns: int = 0
    output_tokens: int = 0
    context_tokens: int | None = None
    context_limit: int | None = None


class Conversation:
    """One conversation at a time; `restart` begins the next."""

    def __init__(
        self,
        servers: Mapping[str, Any],
        peer: Peer,
        options: Mapping[str, Any] | None = None,
        *,
        live: bool = False,
        hint: str = "",
    ) -> None:
        """`live`: start with the user's own Claude. `options`: further arguments of `ClaudeAgentOptions`.

        `hint` tells the user which prompts the scripted model understands.
        """
        self.servers = dict(servers)
        self.hint = hint
        self.live = live
        self.version = 0
        self._peer = peer
        self._options = dict(options or {})
        self._starting = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._client: ClaudeSDKClient | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._clear()

    def _clear(self) -> None:
        self.state: State = "new"
        self.items: list[Item] = []
        self.totals = Totals()
        self.timeline = Timeline()
        self.questions = Questions(self._questions_changed)
        self._calls: dict[str, Called] = {}
        self._streamed: Said | None = None
        self._shown_questions = 0
        self._began = time.monotonic()

    # --- actions of the user ---

    async def send(self, prompt: str) -> None:
        """Send a prompt. The first prompt starts the CLI; the CLI queues prompts sent during a turn."""
        self._add(Prompted(prompt))
        items = self.items
        try:
            async with self._starting:
                if self.items is items and self.state in {"new", "ended"}:
                    opening = self._opening = asyncio.get_running_loop().create_task(self._start())
                    await asyncio.wait([opening])
                    if not opening.cancelled():  # by `aclose`, which also resets `_opening`
                        opening.result()
            if self.items is not items or self._client is None:
                return  # `restart` or `aclose` was called meanwhile
            self.state = "running"
            self.version += 1
            await self._client.query(prompt)
        except Exception as error:  # noqa: BLE001 - the page shows any error that keeps Claude from starting
            if self.items is items:
                await self._fail(error)

    async def interrupt(self) -> None:
        """Interrupt the turn; running tools are cancelled."""
        if self._client is not None and self.state == "running":
            try:
                await self._client.interrupt()
            except ClaudeSDKError as error:
                self._add(Noted(f"The turn could not be interrupted: {describe(error)}", "warning"))

    async def restart(self, *, live: bool | None = None) -> None:
        """End the conversation and begin an empty one. `live`: use the user's own Claude; None: no change."""
        await self.aclose()
        self.live = self.live if live is None else live
        self._clear()
        self.version += 1

    async def replace_server(self, name: str, server: Any) -> None:
        """Replace a server, also in the running conversation. Prompts wait until it is connected."""
        self.servers[name] = server
        async with self._starting:
            if self._client is None:
                return
            try:
                await self._client.set_mcp_servers(self.servers)
                await self._client.wait_until_ready(_CONTROL_TIMEOUT, [name])
            except (ClaudeSDKError, TimeoutError) as error:
                self._add(Noted(f"The CLI did not accept the changed tools: {describe(error)}", "warning"))

    async def aclose(self) -> None:
        """Stop the CLI if it is running or starting."""
        tasks = [each for each in (self._opening, self._reader) if each is not None]
        self._opening = self._reader = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)
        stack, self._stack, self._client = self._stack, AsyncExitStack(), None
        remove_observer(self._observe)
        await stack.aclose()

    # --- the client ---

    async def _start(self) -> None:
        self.state, self._began = "starting", time.monotonic()
        self.timeline = Timeline()
        self.version += 1
        chosen = await self._peer(self._stack, self.servers, self.live)
        given = {
            "include_partial_messages": True,
            "include_all_messages": True,
            "include_hook_events": True,
            **chosen,
            **self._options,
            "mcp_servers": self.servers,
            "can_use_tool": self._ask_permission,
            "on_elicitation": self._ask_elicitation,
        }
        client = ClaudeSDKClient(ClaudeAgentOptions(**given))
        add_observer(self._observe)
        self._stack.push_async_callback(client.disconnect)
        await client.connect()
        self._client = client
        self._reader = asyncio.get_running_loop().create_task(self._read(client))

    async def _read(self, client: ClaudeSDKClient) -> None:
        try:
            async for message in client.receive_messages():
                self._show(message)
                if isinstance(message, ResultMessage):
                    await self._read_context_usage(client)
        except Exception as error:  # noqa: BLE001 - any error: without a reader, the turn would never end
            await self._fail(error)
        else:
            self._add(Noted("Claude Code has exited. The next prompt starts it again, without this context."))
            await self._end()

    async def _fail(self, error: BaseException) -> None:
        self._add(Noted(describe(error), "error"))
        await self._end()

    async def _end(self) -> None:
        self.state = "ended"
        for called in self._calls.values():
            if called.call.state == "running":
                called.call.state = "cancelled"
                called.call.version += 1
        self.version += 1
        if self._reader is asyncio.current_task():
            self._reader = None  # `aclose` must not cancel the task that calls it
        await self.aclose()

    async def _read_context_usage(self, client: ClaudeSDKClient) -> None:
        """Request how full the context is. If the CLI does not answer, only this figure is missing."""
        with suppress(ClaudeSDKError, TimeoutError):
            async with asyncio.timeout(_CONTROL_TIMEOUT):
                usage = await client.get_context_usage()
            self.totals.context_tokens = usage.get("totalTokens")
            self.totals.context_limit = usage.get("maxTokens")
            self.version += 1

    # --- questions ---

    async def _ask_permission(self, tool: str, given: dict[str, Any], context: Any) -> Any:
        return await self.questions.ask_permission(tool, given, context)

    async def _ask_elicitation(self, request: Any) -> Any:
        return await self.questions.ask_elicitation(request)

    def _questions_changed(self) -> None:
        for question in self.questions.all[self._shown_questions :]:
            self._shown_questions += 1
            called = self._calls.get(question.tool_use_id or "")
            if called is not None:
                called.call.questions.append(question)
                self._touch(called)
            else:
                self._add(Asked(question))
        self.version += 1

    # --- messages ---

    def _show(self, message: object) -> None:
        match message:
            case StreamEvent(parent_tool_use_id=None):
                self._stream(message.event)
            case AssistantMessage():
                self._show_assistant(message)
            case UserMessage(content=list(content)):
                for block in content:
                    if isinstance(block, ToolResultBlock):
                        self._show_result(block)
            case ResultMessage():
                self._show_end(message)
            case McpProgressMessage(tool_use_id=str()) | McpLogMessage(tool_use_id=str()):
                self._show_notification(message)
            case _:
                self._show_notice(message)

    def _show_notification(self, message: McpProgressMessage | McpLogMessage) -> None:
        """Show the progress or log message of a running tool."""
        called = self._call(message.tool_use_id or "")
        if isinstance(message, McpLogMessage):
            called.call.add_log(message.level, message.data)
        else:
            called.call.note_progress(message.progress, message.total, message.message)
        self._touch(called)

    def _show_notice(self, message: object) -> None:
        match message:
            case ApiRetryMessage():
                why = f"{message.error} {message.error_status or ''}".strip()
                following = f"retry {message.attempt} of {message.max_retries} follows"
                self._add(Noted(f"API error ({why}): {following}", "warning"))
            case HookEventMessage(subtype="hook_response"):
                outcome = str(message.data.get("outcome") or "ended")
                level: Literal["info", "warning"] = "info" if outcome == "success" else "warning"
                self._add(Noted(f"Hook {message.hook_event_name}: {outcome}", level, message.data))
            case InitMessage():
                for server in message.mcp_servers:
                    if server.get("status") not in {"connected", "pending"}:
                        self._add(Noted(f"Server {server.get('name')}: {server.get('status')}", "warning"))

    def _stream(self, event: Mapping[str, Any]) -> None:
        delta = event.get("delta") or {}
        if event.get("type") == "content_block_start":
            self._streamed = None
        texts = {"text_delta": "text", "thinking_delta": "thinking"}
        key = texts.get(str(delta.get("type")))
        if key is None:
            return
        if self._streamed is None:
            self._streamed = Said("", thinking=key == "thinking", streaming=True)
            self._add(self._streamed)
        self._streamed.text += str(delta.get(key, ""))
        self._touch(self._streamed)

    def _show_assistant(self, message: AssistantMessage) -> None:
        inner = message.parent_tool_use_id is not None
        for block in message.content:
            match block:
                case TextBlock(text=text) | ThinkingBlock(thinking=text):
                    self._finish_text(text, thinking=isinstance(block, ThinkingBlock), inner=inner)
                case ToolUseBlock():
                    called = self._call(block.id)
                    called.call.tool, called.call.arguments, called.subagent = block.name, block.input, inner
                    called.call.started = time.monotonic()
                    self._add(called)
        written = (message.usage or {}).get("output_tokens")
        self.totals.output_tokens += written if isinstance(written, int) else 0

    def _finish_text(self, text: str, *, thinking: bool, inner: bool) -> None:
        said = self._streamed
        if said is not None and said.streaming and said.thinking == thinking and not inner:
            said.text, said.streaming, self._streamed = text, False, None
            self._touch(said)
        elif text:
            self._add(Said(text, thinking=thinking, subagent=inner))

    def _show_result(self, block: ToolResultBlock) -> None:
        called = self._call(block.tool_use_id)
        call = called.call
        call.content, call.seconds = block.content or "", time.monotonic() - call.started
        call.state = "failed" if block.is_error else "done"
        self._touch(called)

    def _show_end(self, result: ResultMessage) -> None:
        self.state = "idle"
        self.totals.cost_usd = result.total_cost_usd
        self.totals.turns += result.num_turns
        failed = ""
        if result.is_error:
            failed = self.timeline.summary.error or result_error_text(result.raw or {})
        calls = count(result.num_turns, "model call")
        self._add(TurnEnded(f"{calls}, {result.duration_ms / 1000:.1f} s", failed))
        for called in self._calls.values():
            if called.call.state == "running" and not called.subagent:
                called.call.state = "cancelled"
                self._touch(called)

    def _call(self, tool_use_id: str) -> Called:
        """Return the call with this id. Its progress may arrive before the message with its name."""
        if tool_use_id not in self._calls:
            self._calls[tool_use_id] = Called(ToolCall("", {}, time.monotonic()), tool_use_id)
        return self._calls[tool_use_id]

    def _add(self, item: Item) -> None:
        self.items.append(item)
        self.version += 1

    def _touch(self, item: Said | Called) -> None:
        (item.call if isinstance(item, Called) else item).version += 1
        self.version += 1

    # --- frames ---

    def _observe(self, run: RunInfo) -> RunObserver | None:
        """Observe this conversation's run, but not runs that a tool starts."""
        if run.options.can_use_tool != self._ask_permission:
            return None
        return _ConversationObserver(self, self.timeline, self._began)


@dataclass(eq=False)
class _ConversationObserver(RunObserver):
    """Adds every frame to the timeline, and records the tracebacks of failed tools."""

    conversation: Conversation
    timeline: Timeline
    began: float

    def frame(self, direction: Direction, frame: dict[str, Any]) -> None:
        self.timeline.add(time.monotonic() - self.began, direction, frame)
        self.conversation.version += 1

    def call(self, call: CallInfo) -> AbstractContextManager[Any] | None:
        if call.kind != "tool" or call.tool_use_id is None:
            return None
        return note_failures(self.conversation._call(call.tool_use_id).call)  # noqa: SLF001 - of this module
