"""One tool call of a scripted CLI: hooks, permission, the call, what comes of it.

Owns that order and the calls of the turn that are not done. Must not know what is said before or after.
"""

import enum
import inspect
from collections.abc import Mapping
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from toolwire.testing.script import STRUCTURED_OUTPUT, Call
from toolwire.testing.scripted_cli.book import ToolCall
from toolwire.testing.scripted_cli.frames import Frames, Tally
from toolwire.testing.scripted_cli.hooks import Hooks
from toolwire.testing.scripted_cli.host import Host, Refused
from toolwire.testing.scripted_cli.links import Link, Tool, pretty
from toolwire.testing.scripted_cli.tool_results import NO_PERMISSION, NO_TOOL, Outcome, failed, from_answer
from toolwire.tools.schema.arguments import InvalidArguments

_ELICITATION: Final = -32042
_REPEATS: Final = 3


class Running(enum.Enum):
    """How far a call is."""

    WAITING = enum.auto()
    CALLED = enum.auto()


class Denied(Exception):  # noqa: N818 - an outcome, not a fault
    """A call that is not made, and what the model reads instead."""

    def __init__(self, text: str, meta: dict[str, Any]) -> None:
        self.outcome = failed(text, meta)
        super().__init__(text)


class Calls:
    """The tool calls of one connection."""

    def __init__(self, host: Host, frames: Frames, hooks: Hooks) -> None:
        self._host = host
        self._hooks = hooks
        self._frames = frames
        self._tally = Tally()
        self._open: dict[str, tuple[Call, Running]] = {}
        self._inputs: dict[str, Mapping[str, Any]] = {}
        self._sent: dict[str, tuple[Link, int]] = {}
        self._questions: dict[str, str] = {}

    # What the agent asks for.

    def begin(self, tally: Tally) -> None:
        """A new turn."""
        self._tally = tally

    def expect(self, calls: list[tuple[Call, str]]) -> None:
        """The model wants these."""
        for call, call_id in calls:
            self._open[call_id] = (call, Running.WAITING)
            self._host.book.open[call_id] = f"the call of {call.name} has no result"

    def left(self) -> list[tuple[str, Running]]:
        """Those that are not done."""
        return [(call_id, running) for call_id, (_, running) in self._open.items()]

    def ended(self, call_id: str, outcome: Outcome) -> None:
        """One has a result: put it on record."""
        call, _ = self._open.pop(call_id)
        self._host.book.open.pop(call_id, None)
        given = self._inputs.pop(call_id, call.input)
        self._host.book.calls.append(
            ToolCall(call.name, dict(given), outcome.text, outcome.is_error, call_id)
        )

    def withdraw(self) -> None:
        """The turn is interrupted: the servers and the host hear that no answer is wanted."""
        for link, request_id in self._sent.values():
            link.cancel(request_id)
        for call_id, question in self._questions.items():
            call, _ = self._open[call_id]
            self._deny(call, call_id, dict(call.input))
            self._host.emit({"type": "control_cancel_request", "request_id": question})

    def read_only(self, call: Call) -> bool:
        """Whether a call may run beside others."""
        tool = self._host.links.find(call.name)
        return tool is not None and tool.read_only

    async def perform(self, call: Call, call_id: str) -> Outcome:
        """All that happens for one call."""
        name = call.name
        tool = self._host.links.find(name)
        known = tool is not None or name in self._host.book.tools
        structured = name == STRUCTURED_OUTPUT and self._host.setup.schema is not None
        if self._host.setup.hides(name) or not (known or structured):
            text = NO_TOOL.format(name=name)
            return Outcome(f"<tool_use_error>{text}</tool_use_error>", text, is_error=True)
        if structured:
            return self._structured(dict(call.input))
        try:
            given, meta = await self._permitted(call, call_id, tool)
        except Denied as denied:
            return denied.outcome
        self._inputs[call_id] = given
        self._open[call_id] = (call, Running.CALLED)
        outcome = await (
            self._own(name, given) if tool is None else self._sent_to(tool, call_id, name, given)
        )
        outcome.meta = {"permission_decision": meta}
        await self._after(call, call_id, tool, given, outcome)
        return outcome

    # Around the call: hooks and permission.

    async def _after(
        self, call: Call, call_id: str, tool: Tool | None, given: Mapping[str, Any], outcome: Outcome
    ) -> None:
        about: dict[str, Any] = {"tool_input": dict(given), "tool_use_id": call_id, **_server(tool)}
        if outcome.is_error:
            about |= {"error": outcome.text, "is_interrupt": False}
            await self._hooks.call("PostToolUseFailure", call.name, **about)
        else:
            await self._hooks.call("PostToolUse", call.name, **about, tool_response=outcome.kept)

    async def _permitted(
        self, call: Call, call_id: str, tool: Tool | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments to use, and who allowed it; `Denied` if nobody did."""
        given = dict(call.input)
        about = {"tool_input": given, "tool_use_id": call_id, **_server(tool)}
        hook = await self._hooks.call("PreToolUse", call.name, **about)
        said = hook.get("hookSpecificOutput") or {}
        decision = said.get("permissionDecision") or ("deny" if hook.get("decision") == "block" else None)
        given = said.get("updatedInput") or given
        if decision == "deny":
            reason = said.get("permissionDecisionReason") or hook.get("reason") or "Blocked by hook"
            meta = {"decision": "reject", "source": "hook", "reason_type": "hook"}
            self._deny(call, call_id, given)
            raise Denied(f"PreToolUse:{call.name} hook error: {reason}", _not_run("permission-rule", meta))
        if decision == "allow":
            return given, {"decision": "accept", "source": "hook", "reason_type": "hook"}
        setup = self._host.setup
        if decision != "ask" and (self._host.book.allow or setup.allows(call.name)):
            return given, {"decision": "accept", "source": "config", "reason_type": "rule"}
        if setup.asks and setup.mode != "dontAsk":
            return await self._asked(call, call_id, tool, given)
        text = NO_PERMISSION.format(name=call.name)
        self._deny(call, call_id, given)
        self._host.emit(
            self._frames.system("permission_denied", tool_name=call.name, tool_use_id=call_id, message=text)
        )
        raise Denied(text, _not_run("user-rejected", {"decision": "reject", "source": "config"}))

    async def _asked(
        self, call: Call, call_id: str, tool: Tool | None, given: dict[str, Any]
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
            **_server(tool),
            "display_name": pretty(call.name.split("__", 2)[-1]),
            "input": given,
            "permission_suggestions": [suggestion],
            "tool_use_id": call_id,
        }
        self._host.emit(self._frames.state("requires_action"))
        try:
            answer = await self._host.ask(body, lambda each: self._questions.__setitem__(call_id, each))
        except Refused as refused:
            answer = {"behavior": "deny", "message": f"Tool permission request failed: {refused}"}
        finally:
            self._questions.pop(call_id, None)
        self._host.emit(self._frames.state("running"))
        if answer.get("behavior") == "allow":
            self._learn(answer.get("updatedPermissions") or [])
            return answer.get("updatedInput") or given, {"decision": "accept", "source": "user_temporary"}
        self._deny(call, call_id, given)
        if answer.get("interrupt"):
            self._host.agent.interrupt()
            await checkpoint()
        meta = {"decision": "reject", "source": "user_reject"}
        raise Denied(str(answer.get("message", "")), _not_run("permission-rule", meta))

    def _learn(self, updates: list[dict[str, Any]]) -> None:
        for update in updates:
            if update.get("type") == "addRules" and update.get("behavior") == "allow":
                rules = [rule["toolName"] for rule in update.get("rules", []) if not rule.get("ruleContent")]
                self._host.setup.allowed.extend(rules)
            elif update.get("type") == "setMode":
                self._host.setup.mode = update.get("mode", self._host.setup.mode)

    def _deny(self, call: Call, call_id: str, given: dict[str, Any]) -> None:
        about = {"tool_name": call.name, "tool_use_id": call_id, "tool_input": given}
        self._tally.denials.append(about)

    # The call itself.

    def _structured(self, given: dict[str, Any]) -> Outcome:
        from toolwire.tools.schema.json_schema import RawParameters  # noqa: PLC0415 - loads the validator

        meta = {"permission_decision": {"decision": "accept", "source": "config"}}
        try:
            RawParameters(self._host.setup.schema or {}).validate(given)
        except InvalidArguments as error:
            wrong = "; ".join(f"/{each.path}: {each.message}" for each in error.violations)
            return failed(f"Output does not match required schema: {wrong}", meta)
        self._tally.structured = given
        text = "Structured output provided successfully"
        return Outcome(text, text, meta=meta)

    async def _own(self, name: str, given: Mapping[str, Any]) -> Outcome:
        """A stand-in for a built-in tool."""
        try:
            value = self._host.book.tools[name](**given)
            text = str(await value if inspect.isawaitable(value) else value)
        except Exception as error:  # noqa: BLE001 - the test's own function: the model reads of it
            return failed(str(error))
        return Outcome(text, text)

    async def _sent_to(self, tool: Tool, call_id: str, name: str, given: Mapping[str, Any]) -> Outcome:
        link = tool.link
        for attempt in range(1 + _REPEATS):
            params = {
                "name": tool.definition["name"],
                "arguments": dict(given),
                "_meta": {"claudecode/toolUseId": call_id},
            }
            try:
                answer = await link.request(
                    "tools/call", params, lambda each: self._sent.__setitem__(call_id, (link, each))
                )
            except Refused as refused:
                return failed(str(refused))
            finally:
                self._sent.pop(call_id, None)
            error = answer.get("error")
            if not isinstance(error, dict) or error.get("code") != _ELICITATION or attempt == _REPEATS:
                break
            action = await self._elicited(link.name, error)
            if action != "accept":
                word = "declined" if action == "decline" else "canceled"
                told = f'The tool "{tool.definition["name"]}" could not complete'
                text = f"URL elicitation was {word} by the user. {told} because it requires the user to open a URL."
                return Outcome([{"type": "text", "text": text}], text)
        outcome = from_answer(answer, name, link.name)
        if outcome is None:  # the real CLI drops such an answer and waits on
            await anyio.sleep_forever()
            raise AssertionError
        return outcome

    async def _elicited(self, server: str, error: dict[str, Any]) -> str:
        for wanted in (error.get("data") or {}).get("elicitations") or []:
            body = {
                "subtype": "elicitation",
                "mcp_server_name": server,
                "message": wanted.get("message", ""),
                "mode": "url",
                "url": wanted.get("url"),
                "elicitation_id": wanted.get("elicitationId"),
            }
            try:
                action = (await self._host.ask(body)).get("action")
            except Refused:
                return "cancel"
            if action != "accept":
                return str(action)
        return "accept"


def _server(tool: Tool | None) -> dict[str, Any]:
    return {} if tool is None else {"mcp_server": {"name": tool.link.name, "source": "sdk"}}


def _not_run(kind: str, decision: dict[str, Any]) -> dict[str, Any]:
    return {"non_execution_kind": kind, "permission_decision": decision}
