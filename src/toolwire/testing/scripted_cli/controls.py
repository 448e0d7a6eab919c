"""What a scripted CLI answers to the host's control requests, by table.

Owns the answers only; what a request sets going is done by the links and the agent.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from toolwire.testing.scripted_cli.host import Host
from toolwire.testing.scripted_cli.links import VERSION
from toolwire.testing.scripted_cli.setup import DEFAULT_MODEL

_MODES: Final = ("default", "acceptEdits", "plan", "dontAsk", "auto")
_EMPTY: Final = frozenset(
    {
        *("set_max_thinking_tokens", "mcp_toggle", "apply_flag_settings", "stop_task", "background_tasks"),
        *("set_has_subscribers", "seed_read_state", "reload_plugins", "reload_skills", "rename_session"),
        *("set_prompt_suggestions_paused", "get_context_usage", "get_usage", "get_settings", "list_models"),
        *("get_session_cost", "get_status", "cancel_async_message", "rewind_files", "read_file"),
    }
)


def answer(host: Host, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request, without its id."""
    subtype = body.get("subtype")
    handler = _TABLE.get(subtype) if isinstance(subtype, str) else None
    if handler is not None:
        return handler(host, body)
    if subtype in _EMPTY:
        return _good({})
    shown = "undefined" if subtype is None else subtype
    return _bad(f"Unsupported control request subtype: {shown}", "unsupported_request")


def _good(response: dict[str, Any]) -> dict[str, Any]:
    return {"subtype": "success", "response": response}


def _bad(error: str, code: str | None = None) -> dict[str, Any]:
    return {"subtype": "error", "error": error, **({"error_code": code} if code else {})}


def _initialize(host: Host, body: dict[str, Any]) -> dict[str, Any]:
    host.hooks.update(body.get("hooks") or {})
    if body.get("jsonSchema"):
        host.setup.schema = body["jsonSchema"]
    host.links.add(body.get("sdkMcpServers") or [])
    return _good(
        {
            "commands": [],
            "agents": [],
            "output_style": "default",
            "available_output_styles": ["default"],
            "models": [{"value": "default", "displayName": "Default", "description": "scripted"}],
            "account": {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "firstParty"},
            "claude_code_version": VERSION,
            "current_permission_mode": host.setup.mode,
            "hook_on_failure_supported": True,
            "hooks_applied": True,
            "session_state": "idle",
            "capabilities": [],
        }
    )


def _interrupt(host: Host, _body: dict[str, Any]) -> dict[str, Any]:
    host.agent.interrupt()
    return _good({"still_queued": []})


def _set_model(host: Host, body: dict[str, Any]) -> dict[str, Any]:
    host.setup.model = body.get("model") or DEFAULT_MODEL
    return _good({"model": host.setup.model})


def _set_mode(host: Host, body: dict[str, Any]) -> dict[str, Any]:
    mode = body.get("mode")
    if mode == "bypassPermissions" and host.setup.mode != mode:
        text = "Cannot set permission mode to bypassPermissions: not launched with --dangerously-skip-permissions"
        return _bad(text, "bypass_not_launched")
    if mode not in (*_MODES, "bypassPermissions"):
        return _bad(f"Invalid permission mode: {mode}", "invalid_mode")
    host.setup.mode = mode
    host.agent.say_mode()
    return _good({"mode": mode})


def _mcp_status(host: Host, _body: dict[str, Any]) -> dict[str, Any]:
    return _good({"mcpServers": host.links.status()})


def _mcp_set_servers(host: Host, body: dict[str, Any]) -> dict[str, Any]:
    servers = body.get("servers") or {}
    added, removed = host.links.replace(name for name, each in servers.items() if each.get("type") == "sdk")
    return _good({"added": added, "removed": removed, "errors": {}})


def _mcp_message(host: Host, body: dict[str, Any]) -> dict[str, Any]:
    host.links.receive(body.get("server_name"), body.get("message"))
    return {"subtype": "success"}


def _end_session(host: Host, _body: dict[str, Any]) -> dict[str, Any]:
    host.start(host.end_input)
    return _good({})


def _version(_host: Host, _body: dict[str, Any]) -> dict[str, Any]:
    return _good({"version": VERSION})


_TABLE: Final[Mapping[str, Callable[[Host, dict[str, Any]], dict[str, Any]]]] = {
    "initialize": _initialize,
    "interrupt": _interrupt,
    "set_model": _set_model,
    "set_permission_mode": _set_mode,
    "mcp_status": _mcp_status,
    "mcp_set_servers": _mcp_set_servers,
    "mcp_message": _mcp_message,
    "end_session": _end_session,
    "get_binary_version": _version,
}
