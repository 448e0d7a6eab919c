"""The client's control requests about MCP servers: change them, call them, wait for them."""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, cast

import anyio

from toolwire._support.secrets import redact
from toolwire.client.controls import (
    ControlRequests,
    check_choice,
    check_mapping,
    check_number,
    check_text,
    omit_unset,
)
from toolwire.client.responses import (
    McpCallResult,
    McpModeOverride,
    McpResource,
    McpServerStatus,
    McpSetServersResult,
    McpStatusResponse,
)
from toolwire.errors import CLIConnectionError, CLITimeoutError, OptionsError

_FIRST_PAUSE: Final = 0.02  # seconds between two status requests, doubled each time
_LONGEST_PAUSE: Final = 0.25
_UNKNOWN: Final = "not known to the CLI"
_LATE: Final = ("pending", _UNKNOWN)


class McpControls(ControlRequests):
    """Control requests about MCP servers."""

    async def wait_until_ready(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - it has an error of its own
        servers: Collection[str] | None = None,
    ) -> McpStatusResponse:
        """Wait until MCP servers are connected and their tools listed, and return their status.

        This works for in-process servers, those that the CLI starts, and remote ones. `servers` names those to wait
        for; None means all that are configured and not disabled. The model sees the tools from the next turn on.

        Raises `CLITimeoutError` if a server is late, and `CLIConnectionError` if none is late and some failed. Both
        name every server that is not ready, with the CLI's reason. The session stays usable.
        """
        check_number("timeout", timeout)
        wanted = _check_names(servers)
        status: McpStatusResponse = {"mcpServers": []}
        pause = _FIRST_PAUSE
        with anyio.move_on_after(timeout):
            while True:
                status = await self.get_mcp_status()
                if not any(why in _LATE for why in self._find_missing(status, wanted).values()):
                    break
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        missing = self._find_missing(status, wanted)
        if not missing:
            return status
        late = any(why in _LATE for why in missing.values())
        text = redact(", ".join(f"{name} ({why})" for name, why in sorted(missing.items())))
        if late:
            raise CLITimeoutError(f"MCP servers not ready within {timeout:g} s: {text}")
        raise CLIConnectionError(f"MCP servers not ready: {text}")

    def _find_missing(self, status: McpStatusResponse, wanted: Collection[str] | None) -> dict[str, str]:
        """Return the servers that are not ready, each with the reason."""
        found = {server["name"]: server for server in status["mcpServers"]}
        names = wanted
        if names is None:
            enabled = [name for name, server in found.items() if server["status"] != "disabled"]
            names = [*enabled, *(name for name in self._list_configured() if name not in found)]
        reasons = {name: _explain_status(found.get(name)) for name in names}
        return {name: why for name, why in reasons.items() if why is not None}

    def _list_configured(self) -> Collection[str]:
        try:
            return self._live.mcp_servers
        except OptionsError:  # they are in a file: only the CLI knows their names
            return ()

    async def get_mcp_status(self) -> McpStatusResponse:
        """Return the status of every MCP server."""
        return cast("McpStatusResponse", await self.control_request("mcp_status"))

    async def reconnect_mcp_server(self, server_name: str) -> None:
        """Reconnect an MCP server. The CLI refuses this for in-process servers, which are always connected."""
        await self.control_request("mcp_reconnect", serverName=check_text("server_name", server_name))

    async def toggle_mcp_server(self, server_name: str, enabled: bool) -> None:
        """Enable or disable an MCP server."""
        name = check_text("server_name", server_name)
        await self.control_request("mcp_toggle", serverName=name, enabled=enabled)

    async def set_mcp_servers(self, servers: Mapping[str, Any]) -> McpSetServersResult:
        """Replace the MCP servers of the session: those set before, and all in-process ones.

        In-process servers that stay keep their connection and their running calls. A server that the CLI started
        from the option `mcp_servers` stays until one call has named it and the next has not; `remove_mcp_server`
        takes care of that.
        """
        full = {name: _add_args(server) for name, server in check_mapping("servers", servers).items()}
        live = self._live
        with self._explain_unsupported(live):
            return cast("McpSetServersResult", await live.set_servers(full))

    async def add_mcp_server(self, name: str, server: Any) -> McpSetServersResult:
        """Add a server, in-process or by its configuration. A server of the same name is replaced."""
        return await self.set_mcp_servers({**self._live.mcp_servers, name: server})

    async def remove_mcp_server(self, name: str) -> McpSetServersResult:
        """Remove a server; raises KeyError if there is none of that name."""
        rest = self._live.mcp_servers
        server = rest.pop(name)
        result = await self.set_mcp_servers(rest)
        if name in result.get("removed", ()) or not isinstance(server, Mapping):
            return result
        status = await self.get_mcp_status()
        if all(each["name"] != name for each in status["mcpServers"]):
            return result
        # The CLI got it on the command line and removes such a server only after a call has named it.
        await self.set_mcp_servers({**rest, name: server})
        return await self.set_mcp_servers(rest)

    async def set_mcp_permission_mode_override(
        self, server_name: str, mode: Literal["default", "auto"] | None
    ) -> McpModeOverride:
        """Make one server's permission mode stricter than the session's; None undoes that.

        `default` asks before each call of its tools; `auto` lets the classifier decide.
        """
        check_choice("mode", mode, ("default", "auto", None))
        name = check_text("server_name", server_name)
        answer = await self.control_request("set_mcp_permission_mode_override", serverName=name, mode=mode)
        return cast("McpModeOverride", answer)

    async def mcp_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        check_permissions: bool = False,
        result_not_for_model: bool = False,
        control_timeout: float | None = None,
    ) -> McpCallResult:
        """Call a tool (`mcp__server__tool`) of a server that the CLI connects to, without the model.

        Permissions are not checked unless `check_permissions` is set. With `result_not_for_model` the result is
        returned exactly as the server sent it. The CLI refuses in-process tools: call the function itself.
        """
        flags = omit_unset(check_permissions=check_permissions, result_not_for_model=result_not_for_model)
        answer = await self.control_request(
            "mcp_call",
            control_timeout=control_timeout,
            tool=check_text("tool", tool),
            arguments=check_mapping("arguments", {} if arguments is None else arguments),
            **flags,
        )
        return cast("McpCallResult", answer)

    async def read_mcp_resource(self, server_name: str, uri: str) -> McpResource:
        """Read a `ui://` resource of a server that the CLI connects to. Treat the contents as untrusted."""
        if not check_text("uri", uri).startswith("ui://"):
            raise ValueError(f"uri must begin with ui://, got {uri!r}")
        name = check_text("server_name", server_name)
        return cast("McpResource", await self.control_request("mcp_read_resource", serverName=name, uri=uri))

    async def send_mcp_message(self, server_name: str, message: Mapping[str, Any]) -> None:
        """Send the CLI a JSON-RPC message in the name of an in-process server. A `ToolServer` does so by itself.

        The CLI accepts any message, and acts on `notifications/tools/list_changed`.
        """
        body = check_mapping("message", message)
        name = check_text("server_name", server_name)
        await self.control_request("mcp_message", server_name=name, message=body)


def _check_names(servers: Collection[str] | None) -> list[str] | None:
    if servers is None:
        return None
    if isinstance(servers, str):
        raise TypeError("servers must be a list of names, got a string")
    return [check_text("a name in servers", name) for name in servers]


def _explain_status(server: McpServerStatus | None) -> str | None:
    """Return why a server is not ready; None if it is."""
    if server is None:
        return _UNKNOWN
    if server["status"] == "connected":
        return None if "tools" in server else "pending"
    error = server.get("error")
    return f"{server['status']}: {error}" if error else server["status"]


def _add_args(server: Any) -> Any:
    """Add `args` to a configuration without it: this request requires it, the command line does not."""
    if isinstance(server, Mapping) and "command" in server and "args" not in server:
        return {**server, "args": []}
    return server
