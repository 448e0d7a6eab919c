"""The agent loop of a scripted CLI: plays a turn from the prompt to the result, including tool calls.

Owns the order of events in a turn (hooks, responses of the model, tool calls with hooks and permission, the result)
and its interruption. `frames` defines the shapes of frames, `host` the communication with MCP servers.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from uuid import uuid4

import anyio
from anyio.lowlevel import checkpoint

from toolwire.testing.script import (
    STRUCTURED_OUTPUT,
    Call,
    Drop,
    ExitEarly,
    Failure,
    Fault,
    Garbage,
    Hang,
    Request,
    Silence,
    Turn,
    bare_name,
    build_events,
    build_message,
)
from toolwire.testing.scripted_cli.frames import (
    REJECTED,
    STOPPED,
    Frames,
    ToolOutcome,
    TurnTotals,
    api_error_text,
    convert_response,
    error_kind,
    tool_use_meta,
)
from toolwire.testing.scripted_cli.host import (
    HostChannel,
    MCPServer,
    MCPServers,
    RequestError,
    Tool,
    ToolCall,
    to_title,
)
from toolwire.testing.scripted_cli.transcript import Transcript
from toolwire.tools.schema.arguments import InvalidArguments

_URL_ELICITATION_REQUIRED: Final = -32042  # an error code of MCP
_ELICITATIONS: Final = 3  # the most for one call
_ENFORCE: Final = (
    "[structured-output-enforce] You MUST call the StructuredOutput tool to complete this request. "
    "Call this tool now."
)


class EarlyExit(Exception):  # noqa: N818 - requested by the script, not an error
    """The script makes the CLI exit early."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"exit code {code}")


class Denied(Exception):  # noqa: N818 - an outcome, not an error
    """A tool call was not permitted."""

    def __init__(self, text: str, kind: str, decision: dict[str, Any]) -> None:
        meta = {"non_execution_kind": kind, "permission_decision": decision}
        self.outcome = ToolOutcome.failed(text, meta)
        super().__init__(text)


@dataclass
class PendingCall:
    """A tool call without a result yet."""

    name: str
    id: str
    input: Mapping[str, Any]
    tool: Tool | None
    """None if the tool does not belong to an MCP server."""
    running: bool = False
    """True once the tool was called."""
    permission_request: str | None = None
    mcp_request: tuple[MCPServer, int] | None = None

    @property
    def server_fields(self) -> dict[str, Any]:
        """The field that names the tool's server in requests to the host."""
        return {} if self.tool is None else {"mcp_server": {"name": self.tool.server.name, "source": "sdk"}}


class Agent:
    """Plays the script to one host."""

    def __init__(self, host: HostChannel, servers: MCPServers) -> None:
        self.failed = False
        """True if the last result was an error."""
        self._host = host
        self._settings = host.settings
        self._playback = host.playback
        self._servers = servers
        self._frames = Frames(host.settings)
        self._transcript = Transcript(host.settings, host.emit)
        self._messages: list[dict[str, Any]] = []
        self._scope: anyio.CancelScope | None = None
        self._totals = TurnTotals()
        self._pending: dict[str, PendingCall] = {}
        self._message_count = 0
        self._call_count = 0
        self._was_reminded = False
        self._stop_hook_active = False

    def resume(self) -> bool:
        """Load the conversation to resume, if any. Returns False if it does not exist."""
        found = self._transcript.resume()
        if found is None:
            return False
        self._messages, cost = found
        self._frames.add_usage(cost.get("modelUsage") or {})
        return True

    def refuse_resume(self) -> None:
        """Emit the real CLI's error for a conversation that does not exist."""
        errors = [f"No conversation found with session ID: {self._settings.resumed}"]
        self._host.emit(
            self._frames.result(self._totals, "error_during_execution", "completed", True, errors=errors)
        )

    def end(self) -> None:
        """Write the last lines of the transcript."""
        self._transcript.end()

    async def run_turn(self, frame: dict[str, Any]) -> None:
        """Process one prompt, up to its result."""
        content = (frame.get("message") or {}).get("content", "")
        self._messages.append({"role": "user", "content": content})
        self._transcript.add_prompt(content)
        prompt = self._make_request().prompt
        self._playback.prompts.append(prompt)
        self._totals = TurnTotals()
        self._was_reminded = self._stop_hook_active = False
        key = f"turn {id(self)}"
        self._playback.pending[key] = f"the turn for {prompt!r} has no result"
        self._host.emit(self._frames.state("running"))
        with anyio.CancelScope() as self._scope:
            await self._servers.wait_initialized()
            await self._converse(prompt)
        if self._scope.cancelled_caught:
            self._end_interrupted()
        self._scope = None
        self._host.emit(self._frames.state("idle"))
        del self._playback.pending[key]

    def interrupt(self) -> None:
        """Stop the running turn, if any: cancel its tool calls and permission requests."""
        if self._scope is None:
            return
        for call in self._pending.values():
            if call.mcp_request is not None:
                server, request_id = call.mcp_request
                params = {"requestId": request_id, "reason": "AbortError: remote-cancel"}
                server.send({"method": "notifications/cancelled", "params": params})
            if call.permission_request is not None:
                self._note_denial(call)
                self._host.emit({"type": "control_cancel_request", "request_id": call.permission_request})
        self._scope.cancel()

    def report_mode(self) -> None:
        """Report the permission mode to the host."""
        self._host.emit(self._frames.system("status", status=None, permissionMode=self._settings.mode))

    # --- the conversation ---------------------------------------------------------------------------------

    async def _converse(self, prompt: str) -> None:
        output = await self._host.call_hooks("UserPromptSubmit", prompt=prompt)
        if output.get("decision") == "block":
            self._end_blocked(prompt, str(output.get("reason", "")))
            return
        self._host.emit(self._frames.init(self._list_tools(), self._servers.describe()))
        retries = 0
        while True:
            step = self._playback.take_next(self._make_request())
            match step:
                case Failure(retry=True):
                    retries += 1
                    self._report_retry(step, retries)
                case Failure():
                    self._end_with_api_error(step)
                    return
                case Drop() | Hang() | Garbage() | ExitEarly() | Silence():
                    await self._play_fault(step)
                case _:
                    if await self._respond(step if isinstance(step, Turn) else Turn((step,))):
                        return

    async def _play_fault(self, step: Drop | Hang | Fault) -> None:
        match step:
            case Drop():
                pass  # the real CLI sends the request again, which takes the next entry
            case Hang():
                await anyio.sleep_forever()
            case Silence():
                self._host.silent = True
                await anyio.sleep_forever()
            case Garbage(value):
                self._host.emit(value)
            case ExitEarly(code):
                raise EarlyExit(code)

    async def _respond(self, turn: Turn) -> bool:
        """Play one response of the model with its tool calls. Returns True if the turn has ended."""
        if turn.delay:
            await anyio.sleep(turn.delay)
        self._totals.add(turn)
        message, calls = await self._emit_response(turn)
        self._totals.stop_reason = message["stop_reason"]
        self._messages.append({"role": "assistant", "content": message["content"]})
        if not calls:
            return await self._try_to_stop(message)
        self._transcript.send()
        results = await self._run_calls(calls)
        await self._servers.wait_listed()
        self._messages.append({"role": "user", "content": results})
        if self._totals.structured is not None:
            text = json.dumps(self._totals.structured, separators=(",", ":"), ensure_ascii=False)
            self._emit_result(result=text, structured_output=self._totals.structured)
            return True
        limit = self._settings.max_turns
        if limit is not None and self._totals.requests >= limit:
            errors = [f"Reached maximum number of turns ({limit})"]
            self._emit_result("error_max_turns", "max_turns", is_error=True, errors=errors)
            return True
        return False

    async def _emit_response(self, turn: Turn) -> tuple[dict[str, Any], list[PendingCall]]:
        """Emit one frame for each block, among its stream events if the host requested partial messages."""
        self._message_count += 1
        calls = list(self._make_calls(turn))
        ids: dict[str, Any] = {
            "id": f"msg_{self._message_count:04d}",
            "model": self._settings.model,
            "call_ids": [call.id for call in calls],
        }
        message = build_message(turn, **ids)
        envelope = {**message, "stop_reason": None}
        remaining = iter(calls)
        for event in build_events(turn, **ids):
            if event["type"] == "content_block_delta" and turn.chunk_delay:
                await anyio.sleep(turn.chunk_delay)
            if event["type"] == "content_block_stop":
                block = message["content"][event["index"]]
                extra = {}
                if block["type"] == "tool_use":
                    call = next(remaining)
                    extra = tool_use_meta(call.name, call.id, call.tool)
                self._emit_message(self._frames.assistant(envelope, block, **extra))
            if self._settings.partial:
                self._host.emit(self._frames.event(event, ids["id"]))
        return message, calls

    def _make_calls(self, turn: Turn) -> Iterator[PendingCall]:
        for block in turn.blocks:
            if isinstance(block, Call):
                self._call_count += 1
                call_id = block.id or f"toolu_{self._call_count:04d}"
                self._playback.requested.append((block.name, dict(block.input)))
                yield PendingCall(block.name, call_id, dict(block.input), self._servers.find(block.name))

    async def _try_to_stop(self, message: dict[str, Any]) -> bool:
        """End the turn and return True, unless structured output is missing or a Stop hook blocks it."""
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        text = texts[-1] if texts else ""
        if self._settings.schema is not None and not self._was_reminded:
            self._was_reminded = True
            self._remind(_ENFORCE)
            return False
        output = await self._host.call_hooks(
            "Stop", stop_hook_active=self._stop_hook_active, last_assistant_message=text
        )
        self._stop_hook_active = output.get("decision") == "block"
        if self._stop_hook_active:
            self._remind(f"Stop hook feedback:\n{output.get('reason', '')}")
            return False
        self._emit_result(result=text)
        return True

    def _remind(self, text: str) -> None:
        block = {"type": "text", "text": text}
        self._messages.append({"role": "user", "content": [block]})
        self._emit_user([block], isSynthetic=True)

    def _list_tools(self) -> list[str]:
        own = [*self._playback.tools, *([STRUCTURED_OUTPUT] if self._settings.schema else [])]
        return [name for name in [*own, *self._servers.tools()] if not self._settings.hides(name)]

    def _make_request(self) -> Request:
        """Return the request that the real CLI would send to the model, for functions in the script."""
        tools = [{"name": name} for name in self._list_tools()]
        body = {"model": self._settings.model, "messages": list(self._messages), "tools": tools}
        return Request("POST", "/v1/messages", {}, body)

    def _emit_user(self, content: list[dict[str, Any]], **extra: Any) -> None:
        self._totals.user_frames += 1
        self._emit_message(self._frames.user(content, **extra))

    def _emit_message(self, frame: dict[str, Any]) -> None:
        self._transcript.add(frame)
        self._host.emit(frame)

    # --- ends of a turn -----------------------------------------------------------------------------------

    def _emit_result(
        self, subtype: str = "success", reason: str = "completed", is_error: bool = False, **fields: Any
    ) -> None:
        self.failed = is_error
        if subtype == "success":
            fields = {"api_error_status": None, **fields}
        frame = self._frames.result(self._totals, subtype, reason, is_error, **fields)
        self._transcript.end_turn(frame)
        self._host.emit(frame)
        self._transcript.note_prompt()

    def _end_with_api_error(self, failure: Failure) -> None:
        self._totals.stop_reason = "stop_sequence"
        self._emit_message(self._frames.api_error(failure))
        fields = {"api_error_status": failure.status, "api_error_type": failure.type}
        self._emit_result("success", "api_error", is_error=True, result=api_error_text(failure), **fields)

    def _report_retry(self, failure: Failure, attempt: int) -> None:
        fields = {"error_status": failure.status, "error": error_kind(failure)}
        self._host.emit(
            self._frames.system("api_retry", attempt=attempt, max_retries=10, retry_delay_ms=0, **fields)
        )

    def _end_blocked(self, prompt: str, reason: str) -> None:
        """End a turn whose prompt a hook has blocked."""
        text = f"UserPromptSubmit operation blocked by hook:\n{reason}\n\nOriginal prompt: {prompt}"
        outcome = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": reason}
        self._messages.pop()
        self._host.emit(
            self._frames.system(
                "informational",
                content=text,
                level="warning",
                prevent_continuation=True,
                prompt_submit_outcome=outcome,
            )
        )
        self._totals.user_frames = -1  # the real CLI reports 0 turns here, and no terminal reason
        self.failed = False
        frame = self._frames.result(self._totals, "success", "completed", False, result=text)
        del frame["terminal_reason"]
        self._host.emit(frame)

    def _end_interrupted(self) -> None:
        calls = list(self._pending.values())
        results = []
        for call in calls:
            text = STOPPED if call.running else REJECTED
            meta = {"non_execution_kind": "user-rejected"}
            rejected = ToolOutcome(text, "User rejected tool use", is_error=True, meta=meta)
            results.append(self._end_call(call, rejected))
        text = "[Request interrupted by user for tool use]" if calls else "[Request interrupted by user]"
        notice = {"type": "text", "text": text}
        self._messages.append({"role": "user", "content": [*results, notice]})
        self._emit_user([notice])
        stop = self._totals.stop_reason or "null"
        errors = [f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop}"]
        reason = "aborted_tools" if calls else "aborted_streaming"
        self._emit_result("error_during_execution", reason, is_error=True, errors=errors)

    # --- tool calls ---------------------------------------------------------------------------------------

    async def _run_calls(self, calls: list[PendingCall]) -> list[dict[str, Any]]:
        """Run read-only calls concurrently and others one by one. Returns the results in order of completion."""
        for call in calls:
            self._pending[call.id] = call
            self._playback.pending[call.id] = f"the call of {call.name} has no result"
        results: list[dict[str, Any]] = []

        async def run(call: PendingCall) -> None:
            results.append(self._end_call(call, await self._run_call(call)))

        for read_only, batch in groupby(calls, lambda call: call.tool is not None and call.tool.read_only):
            if read_only:
                async with anyio.create_task_group() as group:
                    for call in batch:
                        group.start_soon(run, call)
            else:
                for call in batch:
                    await run(call)
        return results

    def _end_call(self, call: PendingCall, outcome: ToolOutcome) -> dict[str, Any]:
        """Record and report the outcome of a call. Returns the result block for the model."""
        del self._pending[call.id]
        self._playback.pending.pop(call.id, None)
        self._playback.calls.append(
            ToolCall(call.name, dict(call.input), outcome.text, outcome.is_error, call.id)
        )
        block = outcome.to_block(call.id)
        extra: dict[str, Any] = {"tool_use_result": outcome.kept}
        if outcome.meta is not None:
            extra["tool_result_meta"] = [{"id": call.id, **outcome.meta}]
        self._emit_user([block], **extra)
        return block

    async def _run_call(self, call: PendingCall) -> ToolOutcome:
        """Run one call, with its hooks and permission check."""
        call.tool = self._servers.find(call.name)
        structured = call.name == STRUCTURED_OUTPUT and self._settings.schema is not None
        exists = call.tool is not None or call.name in self._playback.tools or structured
        if self._settings.hides(call.name) or not exists:
            text = f"Error: No such tool available: {call.name}"
            return ToolOutcome(f"<tool_use_error>{text}</tool_use_error>", text, is_error=True)
        if structured:
            return self._take_structured_output(dict(call.input))
        try:
            call.input, decision = await self._get_permission(call)
        except Denied as denied:
            return denied.outcome
        call.running = True
        outcome = await (
            self._call_substitute(call) if call.tool is None else self._call_mcp(call, call.tool)
        )
        outcome.meta = {"permission_decision": decision}
        fields: dict[str, Any] = {
            "tool_input": dict(call.input),
            "tool_use_id": call.id,
            **call.server_fields,
        }
        if outcome.is_error:
            fields |= {"error": outcome.text, "is_interrupt": False}
            await self._host.call_hooks("PostToolUseFailure", call.name, **fields)
        else:
            await self._host.call_hooks("PostToolUse", call.name, **fields, tool_response=outcome.kept)
        return outcome

    async def _get_permission(self, call: PendingCall) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the input to use and the decision to report. Raises `Denied` if the call is not permitted."""
        given = dict(call.input)
        fields = {"tool_input": given, "tool_use_id": call.id, **call.server_fields}
        output = await self._host.call_hooks("PreToolUse", call.name, **fields)
        specific = output.get("hookSpecificOutput") or {}
        decision = specific.get("permissionDecision") or (
            "deny" if output.get("decision") == "block" else None
        )
        given = specific.get("updatedInput") or given
        if decision == "deny":
            reason = specific.get("permissionDecisionReason") or output.get("reason") or "Blocked by hook"
            self._note_denial(call, given)
            raise Denied(
                f"PreToolUse:{call.name} hook error: {reason}",
                "permission-rule",
                {"decision": "reject", "source": "hook", "reason_type": "hook"},
            )
        if decision == "allow":
            return given, {"decision": "accept", "source": "hook", "reason_type": "hook"}
        if decision != "ask" and (self._playback.allow or self._settings.allows(call.name)):
            return given, {"decision": "accept", "source": "config", "reason_type": "rule"}
        if self._settings.has_permission_callback and self._settings.mode != "dontAsk":
            return await self._ask_permission(call, given)
        text = f"Claude requested permissions to use {call.name}, but you haven't granted it yet."
        self._note_denial(call, given)
        self._host.emit(
            self._frames.system("permission_denied", tool_name=call.name, tool_use_id=call.id, message=text)
        )
        raise Denied(text, "user-rejected", {"decision": "reject", "source": "config"})

    async def _ask_permission(
        self, call: PendingCall, given: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        suggestion = {
            "type": "addRules",
            "rules": [{"toolName": call.name}],
            "behavior": "allow",
            "destination": "localSettings",
        }
        body = {
            "subtype": "can_use_tool",
            "tool_name": call.name,
            **call.server_fields,
            "display_name": to_title(bare_name(call.name)),
            "input": given,
            "permission_suggestions": [suggestion],
            "tool_use_id": call.id,
        }
        self._host.emit(self._frames.state("requires_action"))
        call.permission_request = str(uuid4())
        try:
            response = await self._host.request(body, call.permission_request)
        except RequestError as error:
            response = {"behavior": "deny", "message": f"Tool permission request failed: {error}"}
        finally:
            call.permission_request = None
        self._host.emit(self._frames.state("running"))
        if response.get("behavior") == "allow":
            self._update_permissions(response.get("updatedPermissions") or [])
            return response.get("updatedInput") or given, {"decision": "accept", "source": "user_temporary"}
        self._note_denial(call, given)
        if response.get("interrupt"):
            self.interrupt()
            await checkpoint()
        raise Denied(
            str(response.get("message", "")),
            "permission-rule",
            {"decision": "reject", "source": "user_reject"},
        )

    def _update_permissions(self, updates: list[dict[str, Any]]) -> None:
        for update in updates:
            if update.get("type") == "addRules" and update.get("behavior") == "allow":
                rules = [rule["toolName"] for rule in update.get("rules", []) if not rule.get("ruleContent")]
                self._settings.allowed.extend(rules)
            elif update.get("type") == "setMode":
                self._settings.mode = update.get("mode", self._settings.mode)

    def _note_denial(self, call: PendingCall, given: Mapping[str, Any] | None = None) -> None:
        denial = {"tool_name": call.name, "tool_use_id": call.id}
        self._totals.denials.append({**denial, "tool_input": dict(call.input if given is None else given)})

    def _take_structured_output(self, given: dict[str, Any]) -> ToolOutcome:
        from toolwire.tools.schema.json_schema import RawParameters  # noqa: PLC0415 - loads the validator

        meta = {"permission_decision": {"decision": "accept", "source": "config"}}
        try:
            RawParameters(self._settings.schema or {}).validate(given)
        except InvalidArguments as error:
            wrong = "; ".join(f"/{each.path}: {each.message}" for each in error.violations)
            return ToolOutcome.failed(f"Output does not match required schema: {wrong}", meta)
        self._totals.structured = given
        text = "Structured output provided successfully"
        return ToolOutcome(text, text, meta=meta)

    async def _call_substitute(self, call: PendingCall) -> ToolOutcome:
        """Call the function that the test provides in place of a built-in tool."""
        try:
            value = self._playback.tools[call.name](**call.input)
            text = str(await value if inspect.isawaitable(value) else value)
        except Exception as error:  # noqa: BLE001 - the test's function may raise anything; the model gets the error
            return ToolOutcome.failed(str(error))
        return ToolOutcome(text, text)

    async def _call_mcp(self, call: PendingCall, tool: Tool) -> ToolOutcome:
        """Send `tools/call`, and send it again after each URL elicitation that the user accepts."""
        server, name = tool.server, tool.definition["name"]
        for attempt in range(1 + _ELICITATIONS):
            request_id = server.new_id()
            meta = {"claudecode/toolUseId": call.id, "progressToken": request_id}
            call.mcp_request = (server, request_id)
            try:
                params = {"name": name, "arguments": dict(call.input), "_meta": meta}
                response = await server.request("tools/call", params, request_id)
            except RequestError as failure:
                return ToolOutcome.failed(str(failure))
            finally:
                call.mcp_request = None
            error: Any = response.get("error")
            required = isinstance(error, dict) and error.get("code") == _URL_ELICITATION_REQUIRED
            if not required or attempt == _ELICITATIONS:
                break
            action = await self._elicit(server.name, error.get("data") or {})
            if action != "accept":
                verb = "declined" if action == "decline" else "canceled"
                text = (
                    f'URL elicitation was {verb} by the user. The tool "{name}" could not complete '
                    "because it requires the user to open a URL."
                )
                return ToolOutcome([{"type": "text", "text": text}], text)
        outcome = convert_response(response, call.name, server.name)
        if outcome is None:  # the real CLI ignores an invalid response and keeps waiting
            await anyio.sleep_forever()
            raise AssertionError
        return outcome

    async def _elicit(self, server: str, data: dict[str, Any]) -> str:
        """Pass the elicitations of an error to the host. Returns `accept`, or the first other action."""
        for wanted in data.get("elicitations") or []:
            body = {
                "subtype": "elicitation",
                "mcp_server_name": server,
                "message": wanted.get("message", ""),
                "mode": "url",
                "url": wanted.get("url"),
                "elicitation_id": wanted.get("elicitationId"),
            }
            try:
                action = (await self._host.request(body)).get("action")
            except RequestError:
                return "cancel"
            if action != "accept":
                return str(action)
        return "accept"
