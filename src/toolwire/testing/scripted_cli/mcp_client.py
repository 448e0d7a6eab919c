"""The scripted CLI as a client of the host's in-process MCP servers.

Owns the handshake, request ids, lists of tools and their prefixed names. Must not know of turns or permissions.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from toolwire._support.waiting import WaitGroup
from toolwire._transport.find_cli import TESTED
from toolwire.testing.scripted_cli.host_channel import HostChannel, RequestError

_PROTOCOL_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07")
_INITIALIZE: Final = {
    "protocolVersion": _PROTOCOL_VERSIONS[0],
    "capabilities": {},
    "clientInfo": {"name": "claude-code", "title": "Claude Code", "version": TESTED},
}
_GRACE: Final = 10  # passes of the event loop; a list_changed notification takes about 4 from a tool to here
_SHOWN_ANNOTATIONS: Final = {
    "readOnlyHint": "readOnly",
    "destructiveHint": "destructive",
    "openWorldHint": "openWorld",
}


@dataclass(frozen=True)
class Tool:
    """A tool of a server, as the server lists it."""

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
    """Return `add_two` as `Add Two`."""
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
        """The refreshes of the list of tools that are under way."""
        self._host = host
        self._next_id = 0

    @property
    def prefix(self) -> str:
        return f"mcp__{_normalize(self.name)}__"

    async def initialize(self) -> None:
        """Initialize the server and list its tools; `initialized` is set at the end, also after a failure."""
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
        """Refresh the list of tools; one tool without an object schema loses them all, as in the real CLI."""
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
            return  # the host has left, or has removed the server
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
        """Send a notification, or the response to a request of the server."""
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
        """Add the servers that the host's `initialize` names; known ones stay as they are."""
        for name in names:
            if name not in self._servers:
                self._servers[name] = MCPServer(self._host, name)
                self._host.start_task(self._servers[name].initialize)

    def replace(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Set the servers; returns those added and removed. All are initialized again, as the real CLI does."""
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
        """Wait for all handshakes."""
        for server in list(self._servers.values()):
            await server.initialized.wait()

    async def wait_listed(self) -> None:
        """Wait for changed lists of tools, including those that the host is about to announce.

        A real model takes a while between two requests; a script does not, so this has to wait.
        """
        for _ in range(_GRACE):
            await checkpoint()
        for server in list(self._servers.values()):
            await server.listings.wait()

    def find(self, name: str) -> Tool | None:
        """Return the tool that the model knows by this name."""
        return self.tools().get(name)

    def tools(self) -> dict[str, Tool]:
        """Return all tools, by the names that the model knows."""
        return {
            server.prefix + _normalize(tool["name"]): Tool(server, tool)
            for server in self._servers.values()
            for tool in server.tools
        }

    def receive(self, name: Any, message: Any) -> None:
        """Handle a message of a server: refresh a changed list, reject requests, ignore anything else."""
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
        """Return the entries of `system/init`."""
        return [
            {"name": each.name, "status": each.status, "source": "sdk"} for each in self._servers.values()
        ]

    def describe_status(self) -> list[dict[str, Any]]:
        """Return the entries of the response to `mcp_status`."""
        return [server.describe_status() for server in self._servers.values()]


def _normalize(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)
