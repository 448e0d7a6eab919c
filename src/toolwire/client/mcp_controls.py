"""The client's methods about MCP servers: change them, ask them, wait for them."""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, cast

import anyio

from toolwire._support.secrets import redact
from toolwire.client.requests import (
    Requests,
    checked_choice,
    checked_mapping,
    checked_number,
    checked_text,
    given,
)
from toolwire.client.status import (
    McpCallResult,
    McpModeOverride,
    McpResource,
    McpServerStatus,
    McpSetServersResult,
    McpStatusResponse,
)
from toolwire.errors import CLIConnectionError, CLITimeoutError, OptionsError

_FIRST_LOOK: Final = 0.02  # seconds between two looks at the status, doubled each time
_SLOWEST_LOOK: Final = 0.25
_LATE: Final = ("pending", "not known to the CLI")


class McpControls(Requests):
    """Control requests about MCP servers."""

    async def wait_until_ready(
        self,
        timeout: float = 30.0,  # noqa: ASYNC109 - it has an error of its own
        servers: Collection[str] | None = None,
    ) -> McpStatusResponse:
        """Wait until MCP servers are connected and their tools listed, and return their status.

        Of any kind: in-process, started by the CLI, remote. `servers` names those to wait for; None is all that
        are configured and not disabled. The model sees the tools from the next turn on.

        Raises `CLITimeoutError` for servers that are late and `CLIConnectionError` for servers that failed, each
        with all their names and the CLI's reasons. The session lives on in both cases.
        """
        checked_number("timeout", timeout)
        wanted = _names(servers)
        status: McpStatusResponse = {"mcpServers": []}
        pause = _FIRST_LOOK
        with anyio.move_on_after(timeout):
            while True:
                status = await self.get_mcp_status()
                if not any(why in _LATE for why in self._missing(status, wanted).values()):
                    break
                await anyio.sleep(pause)
                pause = min(pause * 2, _SLOWEST_LOOK)
        missing = self._missing(status, wanted)
        if not missing:
            return status
        late = any(why in _LATE for why in missing.values())
        text = redact(", ".join(f"{name} ({why})" for name, why in sorted(missing.items())))
        if late:
            raise CLITimeoutError(f"MCP servers not ready within {timeout:g} s: {text}")
        raise CLIConnectionError(f"MCP servers not ready: {text}")

    def _missing(self, status: McpStatusResponse, wanted: Collection[str] | None) -> dict[str, str]:
        """The servers that are not ready, each with the reason."""
        found = {server["name"]: server for server in status["mcpServers"]}
        names = wanted
        if names is None:
            enabled = [name for name, server in found.items() if server["status"] != "disabled"]
            names = [*enabled, *(name for name in self._configured() if name not in found)]
        reasons = {name: _reason(found.get(name)) for name in names}
        return {name: why for name, why in reasons.items() if why is not None}

    def _configured(self) -> Collection[str]:
        try:
            return self._live.mcp_servers
        except OptionsError:  # they are in a file: only the CLI knows their names
            return ()

    async def get_mcp_status(self) -> McpStatusResponse:
        """How each MCP server is doing."""
        return cast("McpStatusResponse", await self.control_request("mcp_status"))

    async def reconnect_mcp_server(self, server_name: str) -> None:
        """Try again to reach an MCP server. Refused for in-process ones, which are never away."""
        await self.control_request("mcp_reconnect", serverName=checked_text("server_name", server_name))

    async def toggle_mcp_server(self, server_name: str, enabled: bool) -> None:
        """Switch an MCP server on or off."""
        name = checked_text("server_name", server_name)
        await self.control_request("mcp_toggle", serverName=name, enabled=enabled)

    async def set_mcp_servers(self, servers: Mapping[str, Any]) -> McpSetServersResult:
        """Replace the MCP servers of the session: those set before, and all in-process ones.

        In-process servers that stay keep their connection, and calls that run go on. A server that the CLI itself
        started from `mcp_servers` stays until a call has named it; `remove_mcp_server` sees to that.
        """
        full = {name: _complete(server) for name, server in checked_mapping("servers", servers).items()}
        live = self._live
        with self._explained(live):
            return cast("McpSetServersResult", await live.set_servers(full))

    async def add_mcp_server(self, name: str, server: Any) -> McpSetServersResult:
        """Add a server, in-process or by its config; one of that name is replaced."""
        return await self.set_mcp_servers({**self._live.mcp_servers, name: server})

    async def remove_mcp_server(self, name: str) -> McpSetServersResult:
        """Take a server away. KeyError if there is none of that name."""
        rest = self._live.mcp_servers
        server = rest.pop(name)
        result = await self.set_mcp_servers(rest)
        if name in result.get("removed", ()) or not isinstance(server, Mapping):
            return result
        status = await self.get_mcp_status()
        if all(each["name"] != name for each in status["mcpServers"]):
            return result
        # It came on the command line, and the CLI lets go of such a one only after a call has named it.
        await self.set_mcp_servers({**rest, name: server})
        return await self.set_mcp_servers(rest)

    async def set_mcp_permission_mode_override(
        self, server_name: str, mode: Literal["default", "auto"] | None
    ) -> McpModeOverride:
        """Be stricter with one server than the session's mode is; None takes that back.

        `default` asks before each of its tools, `auto` lets the classifier decide.
        """
        checked_choice("mode", mode, ("default", "auto", None))
        name = checked_text("server_name", server_name)
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

        Nobody is asked for permission unless `check_permissions` is set. `result_not_for_model` leaves the result
        as the server gave it. In-process tools are refused: call the function itself.
        """
        given_arguments = checked_mapping("arguments", {} if arguments is None else arguments)
        more = given(check_permissions=check_permissions, result_not_for_model=result_not_for_model)
        answer = await self.control_request(
            "mcp_call",
            control_timeout=control_timeout,
            tool=checked_text("tool", tool),
            arguments=given_arguments,
            **more,
        )
        return cast("McpCallResult", answer)

    async def read_mcp_resource(self, server_name: str, uri: str) -> McpResource:
        """Read a `ui://` resource of a server that the CLI connects to; what comes is not to be trusted."""
        if not checked_text("uri", uri).startswith("ui://"):
            raise ValueError(f"uri must begin with ui://, got {uri!r}")
        name = checked_text("server_name", server_name)
        return cast("McpResource", await self.control_request("mcp_read_resource", serverName=name, uri=uri))

    async def send_mcp_message(self, server_name: str, message: Mapping[str, Any]) -> None:
        """Hand the CLI a JSON-RPC message of an in-process server. A `ToolServer` sends its own; see its `Context`.

        The CLI takes anything, and acts on `notifications/tools/list_changed`.
        """
        body = checked_mapping("message", message)
        name = checked_text("server_name", server_name)
        await self.control_request("mcp_message", server_name=name, message=body)


def _names(servers: Collection[str] | None) -> list[str] | None:
    if servers is None:
        return None
    if isinstance(servers, str):
        raise TypeError("servers must be a list of names, got a string")
    return [checked_text("a name in servers", name) for name in servers]


def _reason(server: McpServerStatus | None) -> str | None:
    """Why a server is not ready; None if it is."""
    if server is None:
        return "not known to the CLI"
    if server["status"] == "connected":
        return None if "tools" in server else "pending"
    error = server.get("error")
    return f"{server['status']}: {error}" if error else server["status"]


def _complete(server: Any) -> Any:
    """A config as the CLI wants it here: it takes `args` for granted, which on its command line it does not."""
    if isinstance(server, Mapping) and "command" in server and "args" not in server:
        return {**server, "args": []}
    return server
