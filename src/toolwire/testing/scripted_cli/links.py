"""The scripted CLI as a client of the host's in-process MCP servers.

Owns the handshake, the ids, the lists of tools and their prefixed names. Must not know of turns or permissions.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from toolwire._transport.find_cli import TESTED
from toolwire.testing.scripted_cli.host import Host, Refused

VERSION: Final = TESTED
_INFO: Final = {
    "name": "claude-code",
    "title": "Claude Code",
    "description": "Anthropic's agentic coding tool",
    "websiteUrl": "https://claude.com/claude-code",
    "version": VERSION,
}
_SPOKEN: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07")
_BREATH: Final = 10  # turns of the event loop; an announcement takes about 4 from a tool to here
_SHOWN_ANNOTATIONS: Final = {
    "readOnlyHint": "readOnly",
    "destructiveHint": "destructive",
    "openWorldHint": "openWorld",
}


@dataclass(frozen=True)
class Tool:
    """A tool of a server, as the server lists it."""

    link: "Link"
    definition: dict[str, Any]

    @property
    def annotations(self) -> dict[str, Any]:
        return self.definition.get("annotations") or {}

    @property
    def read_only(self) -> bool:
        return self.annotations.get("readOnlyHint") is True

    @property
    def display_name(self) -> str:
        return str(self.annotations.get("title") or pretty(self.definition["name"]))


def pretty(name: str) -> str:
    """`add_two` as people read it."""
    return " ".join(word[:1].upper() + word[1:] for word in re.split(r"[_\s.-]+", name) if word)


class Link:
    """One server."""

    def __init__(self, host: Host, name: str) -> None:
        self.name = name
        self.status = "pending"
        self.info: dict[str, Any] = {}
        self.tools: list[dict[str, Any]] = []
        self.shaken = anyio.Event()
        self.stale = 0
        """How many times the list is being taken anew; `listed` is set when one is done."""
        self.listed = anyio.Event()
        self._host = host
        self._ids = 0

    @property
    def prefix(self) -> str:
        return f"mcp__{_plain(self.name)}__"

    async def handshake(self) -> None:
        """Initialize the server and list its tools; `shaken` is set at the end, good or bad."""
        self._ids = 0
        try:
            offer = {"protocolVersion": _SPOKEN[0], "capabilities": {}, "clientInfo": dict(_INFO)}
            reply = await self.request("initialize", offer)
            result = reply.get("result")
            if not isinstance(result, dict) or result.get("protocolVersion") not in _SPOKEN:
                self.status = "failed"
                return
            self.info = result.get("serverInfo") or {}
            await self._host.ask(self._body({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            self.status = "connected"
            if "tools" in (result.get("capabilities") or {}):
                await self.list_tools()
        except Refused:
            self.status = "failed"
        finally:
            self.shaken.set()

    async def list_tools(self) -> None:
        """Take the list of tools anew; one without an object schema loses them all, as in the real CLI."""
        tools: dict[str, dict[str, Any]] = {}
        cursor = None
        while True:
            reply = await self.request("tools/list", None if cursor is None else {"cursor": cursor})
            result = reply.get("result")
            if not isinstance(result, dict):
                break
            for tool in result.get("tools") or []:
                tools.setdefault(tool["name"], tool)
            cursor = result.get("nextCursor")
            if cursor is None:
                break
        whole = all((tool.get("inputSchema") or {}).get("type") == "object" for tool in tools.values())
        self.tools = list(tools.values()) if whole else []

    async def request(
        self, method: str, params: dict[str, Any] | None = None, on_id: Callable[[int], None] | None = None
    ) -> dict[str, Any]:
        """Send a JSON-RPC request; the answer as it came."""
        message: dict[str, Any] = {"method": method, "jsonrpc": "2.0", "id": self._ids}
        if params is not None:
            message["params"] = params
        if method == "tools/call":
            message["params"]["_meta"]["progressToken"] = self._ids
        if on_id is not None:
            on_id(self._ids)
        self._ids += 1
        answer = (await self._host.ask(self._body(message))).get("mcp_response")
        return answer if isinstance(answer, dict) else {}

    def cancel(self, request_id: int) -> None:
        """Tell the server that a call is no longer wanted."""
        params = {"requestId": request_id, "reason": "AbortError: remote-cancel"}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        self._host.tell(self._body(message))

    def say(self, message: dict[str, Any]) -> None:
        """Send an answer to something that the server asked."""
        self._host.tell(self._body(message))

    def _body(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"subtype": "mcp_message", "server_name": self.name, "message": message}


class Links:
    """All servers of a connection."""

    def __init__(self, host: Host, names: Iterable[str]) -> None:
        self._host = host
        self._links = {name: Link(host, name) for name in names}

    def add(self, names: Iterable[str]) -> None:
        """Servers that `initialize` names; known ones stay as they are."""
        for name in names:
            if name not in self._links:
                self._links[name] = Link(self._host, name)
                self._host.start(self._links[name].handshake)

    def replace(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Exactly these from now on: who came, who went. All are greeted anew, as the real CLI does."""
        wanted = list(names)
        added = [name for name in wanted if name not in self._links]
        removed = [name for name in self._links if name not in wanted]
        self._links = {name: self._links.get(name) or Link(self._host, name) for name in wanted}
        if added:
            self.handshake()
        return added, removed

    def handshake(self) -> None:
        """Greet all servers, side by side."""
        for link in self._links.values():
            link.shaken = anyio.Event()
            self._host.start(link.handshake)

    async def ready(self) -> None:
        """Wait for the handshakes."""
        for link in list(self._links.values()):
            await link.shaken.wait()

    async def settled(self) -> None:
        """Wait for changed lists, also for those that the host is about to announce.

        A real model takes its time between two requests; a script does not, so it has to be taken here.
        """
        for _ in range(_BREATH):
            await checkpoint()
        for link in list(self._links.values()):
            while link.stale:
                await link.listed.wait()

    def find(self, name: str) -> Tool | None:
        """The tool that the model knows under this name."""
        return self.tools().get(name)

    def tools(self) -> dict[str, Tool]:
        """All tools, by the names that the model knows."""
        return {
            link.prefix + _plain(tool["name"]): Tool(link, tool)
            for link in self._links.values()
            for tool in link.tools
        }

    def receive(self, name: Any, message: Any) -> None:
        """A message of a server: a changed list is taken anew, requests are refused, the rest is dropped."""
        link = self._links.get(name) if isinstance(name, str) else None
        if link is None or not isinstance(message, dict):
            return
        method, request_id = message.get("method"), message.get("id")
        if method == "notifications/tools/list_changed":
            link.stale += 1
            link.listed = anyio.Event()
            self._host.start(_relist, link)
        elif method == "ping":
            link.say({"result": {}, "jsonrpc": "2.0", "id": request_id})
        elif method and request_id is not None:
            error = {"code": -32601, "message": "Method not found"}
            link.say({"jsonrpc": "2.0", "id": request_id, "error": error})

    def brief(self) -> list[dict[str, Any]]:
        """As `system/init` names them."""
        return [{"name": link.name, "status": link.status, "source": "sdk"} for link in self._links.values()]

    def status(self) -> list[dict[str, Any]]:
        """As `mcp_status` has them."""
        return [_status(link) for link in self._links.values()]


async def _relist(link: Link) -> None:
    try:
        await link.list_tools()
    except Refused:
        return  # the host has left, or knows the server no more
    finally:
        link.stale -= 1
        link.listed.set()


def _status(link: Link) -> dict[str, Any]:
    if link.status != "connected":
        return {
            "name": link.name,
            "status": link.status,
            "transport": "sdk",
            "scope": "user",
            "source": "sdk",
        }
    tools = []
    for tool in link.tools:
        annotations = tool.get("annotations") or {}
        shown = {ours: True for wire, ours in _SHOWN_ANNOTATIONS.items() if annotations.get(wire) is True}
        tools.append({"name": tool["name"], "annotations": shown})
    return {
        "name": link.name,
        "status": link.status,
        "serverInfo": link.info,
        "transport": "sdk",
        "scope": "dynamic",
        "source": "sdk",
        "tools": tools,
    }


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)
