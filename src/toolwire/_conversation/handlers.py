"""The table of handlers for the CLI's control requests, made from options.

Each handler turns the body of a request into the arguments of a user's callback, and what that returns into the
response.
"""

from collections.abc import Mapping
from typing import Any

from toolwire._protocol.control import Handler
from toolwire._support.tasks import maybe_await
from toolwire.hooks.registry import RegisteredHook
from toolwire.options.agent_options import ClaudeAgentOptions, OnElicitation, OnUserDialog
from toolwire.permissions import CanUseTool
from toolwire.permissions.types import context_from_wire, result_to_wire
from toolwire.tools.elicitation import ElicitationRequest, answer_elicitation


def make_handlers(options: ClaudeAgentOptions, hooks: Mapping[str, RegisteredHook]) -> dict[str, Handler]:
    """Make the table for a session with these options and registered hooks."""
    table: dict[str, Handler] = {"elicitation": _elicitation(options.on_elicitation)}
    if options.can_use_tool is not None:
        table["can_use_tool"] = _permission(options.can_use_tool)
    if hooks:
        from toolwire.hooks import calling  # noqa: PLC0415 - not needed without hooks

        table["hook_callback"] = calling.make_handler(hooks)
    if options.on_user_dialog is not None:
        table["request_user_dialog"] = _dialog(options.on_user_dialog)
    return table


def _permission(decide: CanUseTool) -> Handler:
    async def answer(body: dict[str, Any]) -> dict[str, Any]:
        given = body.get("input")
        tool_input: dict[str, Any] = given if isinstance(given, dict) else {}
        verdict = await maybe_await(
            decide(str(body.get("tool_name", "")), tool_input, context_from_wire(body))
        )
        return result_to_wire(verdict, tool_input)

    return answer


def _elicitation(ask: OnElicitation | None) -> Handler:
    async def answer(body: dict[str, Any]) -> dict[str, Any]:
        request = ElicitationRequest(
            server=str(body.get("mcp_server_name", "")),
            message=str(body.get("message", "")),
            mode=body.get("mode", "form"),
            schema=body.get("requested_schema"),
            url=body.get("url"),
            elicitation_id=body.get("elicitation_id"),
            raw=body,
        )
        return await answer_elicitation(ask, request)

    return answer


def _dialog(show: OnUserDialog) -> Handler:
    async def answer(body: dict[str, Any]) -> dict[str, Any]:
        shown = await maybe_await(show(body))
        if not isinstance(shown, dict):
            raise TypeError(f"on_user_dialog must return a dict, got {type(shown).__name__}")
        return shown

    return answer
