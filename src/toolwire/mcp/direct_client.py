"""A client of a server in this process, without a CLI in between: for `toolwire call` and for tests of tools.

Owns the JSON-RPC of one client and the typed results. Accepts every in-process server that `mcp_servers` accepts: a
`ToolServer`, a wrapped one, an MCP server object of another library. Requests of the server to its client are
handled as in a session, by the same code.

    async with connect(server) as c:
        assert (await c.call("add", a=1, b=2)).text == "3"
"""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import anyio

from toolwire._protocol.json_codec import NOT_FINITE, has_non_finite, loads
from toolwire._protocol.jsonrpc import make_notification
from toolwire._protocol.lines import encode
from toolwire._support.threads import loop_caller
from toolwire._version import __version__
from toolwire.errors import McpError
from toolwire.mcp.foreign import as_server
from toolwire.tools.dispatch.interface import Server
from toolwire.tools.elicitation import CallbackChannel, ClientCallbacks, ElicitationRequest, SamplingRequest

_PROTOCOL = "2025-11-25"


@dataclass(frozen=True)
class ListedTool:
    """A tool as the server lists it; `raw` has everything."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    title: str | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class CallResult:
    """The result of a tool. `structured` is its structured content, `meta` its `_meta`."""

    content: list[dict[str, Any]]
    structured: Any = None
    is_error: bool = False
    meta: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by newlines."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text")


@dataclass(frozen=True)
class ListedResource:
    """A resource as the server lists it."""

    uri: str
    name: str
    description: str = ""
    mime_type: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class ListedTemplate:
    """A resource template as the server lists it."""

    uri_template: str
    name: str
    description: str = ""
    mime_type: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class ResourceContent:
    """One part of a resource: `text`, or `blob` in base64."""

    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class ListedPrompt:
    """A prompt as the server lists it; `arguments` are their names."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class PromptResult:
    """A prompt that the server filled in."""

    messages: list[dict[str, Any]]
    description: str = ""

    @property
    def text(self) -> str:
        """The text of all messages, joined by newlines."""
        contents = [message.get("content") for message in self.messages]
        return "\n".join(each["text"] for each in contents if isinstance(each, dict) and "text" in each)


@dataclass(frozen=True)
class Completed:
    """Values that the server suggests for an argument; `total` is their number, if the server sends it."""

    values: list[str]
    total: int | None = None
    has_more: bool = False


@dataclass(frozen=True)
class Notified:
    """A notification of the server, such as `notifications/progress`."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)


class DirectClient:
    """One client of one server; `connect` makes it."""

    def __init__(
        self,
        server: Server,
        name: str,
        callbacks: ClientCallbacks,
        on_notification: Callable[[Notified], None] | None = None,
    ) -> None:
        self._tag = secrets.token_hex(4)  # makes the ids of tool uses unique among all clients
        self.server_info: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        self.instructions: str | None = None
        self.notifications: list[Notified] = []
        """The notifications that the server has sent so far: progress, logs, changed lists."""
        self._on_notification = on_notification
        self._connection = server.connect(_Channel(name, callbacks, self._notified))
        self._ids = count()

    async def call(self, name: str, arguments: dict[str, Any] | None = None, /, **more: Any) -> CallResult:
        """Call a tool, with arguments as keywords or in a dict. Raises `McpError` if the server refuses."""
        request_id = next(self._ids)
        meta = {
            "claudecode/toolUseId": f"toolu_direct_{self._tag}_{request_id}",
            "progressToken": request_id,
        }
        params = {"name": name, "arguments": {**(arguments or {}), **more}, "_meta": meta}
        result = await self._request("tools/call", params, request_id)
        return CallResult(
            content=result.get("content") or [],
            structured=result.get("structuredContent"),
            is_error=result.get("isError") is True,
            meta=result.get("_meta") or {},
            raw=result,
        )

    async def list_tools(self) -> list[ListedTool]:
        """Return all tools, of all pages."""
        return [
            ListedTool(
                name=each["name"],
                description=each.get("description") or "",
                input_schema=each.get("inputSchema") or {},
                output_schema=each.get("outputSchema"),
                title=each.get("title"),
                annotations=each.get("annotations") or {},
                meta=each.get("_meta") or {},
                raw=each,
            )
            async for each in self._iter_all("tools/list", "tools")
        ]

    async def list_resources(self) -> list[ListedResource]:
        """Return all resources."""
        return [
            ListedResource(
                each["uri"], each.get("name", ""), each.get("description") or "", each.get("mimeType"), each
            )
            async for each in self._iter_all("resources/list", "resources")
        ]

    async def list_resource_templates(self) -> list[ListedTemplate]:
        """Return all resource templates."""
        return [
            ListedTemplate(
                each["uriTemplate"],
                each.get("name", ""),
                each.get("description") or "",
                each.get("mimeType"),
                each,
            )
            async for each in self._iter_all("resources/templates/list", "resourceTemplates")
        ]

    async def read_resource(self, uri: str) -> list[ResourceContent]:
        """Return the parts of a resource."""
        result = await self._request("resources/read", {"uri": uri})
        return [
            ResourceContent(
                each.get("uri", uri), each.get("text"), each.get("blob"), each.get("mimeType"), each
            )
            for each in result.get("contents") or []
        ]

    async def subscribe(self, uri: str) -> None:
        """Subscribe to updates of a resource; they are in `notifications`."""
        await self._request("resources/subscribe", {"uri": uri})

    async def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        await self._request("resources/unsubscribe", {"uri": uri})

    async def list_prompts(self) -> list[ListedPrompt]:
        """Return all prompts."""
        return [
            ListedPrompt(
                each["name"],
                each.get("description") or "",
                tuple(argument["name"] for argument in each.get("arguments") or []),
                each,
            )
            async for each in self._iter_all("prompts/list", "prompts")
        ]

    async def get_prompt(self, name: str, /, **arguments: str) -> PromptResult:
        """Return a prompt, filled in with arguments."""
        result = await self._request("prompts/get", {"name": name, "arguments": arguments})
        return PromptResult(result.get("messages") or [], result.get("description") or "")

    async def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        arguments: dict[str, str] | None = None,
    ) -> Completed:
        """Return suggestions for an argument of a prompt or resource template that begins with `value`.

        `arguments` are the other arguments that are already filled in.
        """
        if (prompt is None) == (template is None):
            raise ValueError("complete() needs prompt=... or template=..., and not both")
        ref = (
            {"type": "ref/resource", "uri": template}
            if prompt is None
            else {"type": "ref/prompt", "name": prompt}
        )
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if arguments:
            params["context"] = {"arguments": arguments}
        found = (await self._request("completion/complete", params)).get("completion") or {}
        return Completed(found.get("values") or [], found.get("total"), found.get("hasMore") is True)

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send any other request, by its MCP name, and return the result unchanged."""
        result: dict[str, Any] = await self._request(method, params or {})
        return result

    # Inside.

    async def initialize(self) -> None:
        """Do the handshake with the server."""
        info = {"name": "toolwire.testing", "version": __version__}
        params = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": info}
        result = await self._request("initialize", params)
        self.server_info = result.get("serverInfo") or {}
        self.capabilities = result.get("capabilities") or {}
        self.instructions = result.get("instructions")
        await self._send(make_notification("notifications/initialized"))

    async def aclose(self) -> None:
        """Disconnect."""
        with anyio.CancelScope(shield=True):
            delivered = anyio.Event()
            # Notifications that were just sent are delivered before this.
            loop_caller()(delivered.set)
            await delivered.wait()
            await self._connection.aclose()

    def _notified(self, message: dict[str, Any]) -> None:
        notified = Notified(message.get("method", ""), message.get("params") or {})
        self.notifications.append(notified)
        if self._on_notification is not None:
            self._on_notification(notified)

    async def _iter_all(self, method: str, key: str) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            result = await self._request(method, {} if cursor is None else {"cursor": cursor})
            for each in result.get(key) or []:
                yield each
            cursor = result.get("nextCursor")
            if cursor is None:
                return

    async def _request(self, method: str, params: dict[str, Any], request_id: int | None = None) -> Any:
        request_id = next(self._ids) if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        try:
            response = await self._send(message)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._send(make_notification("notifications/cancelled", {"requestId": request_id}))
            raise
        error = response.get("error")
        if error is not None:
            raise McpError(error.get("code", 0), error.get("message", ""), error.get("data"))
        return response.get("result") or {}

    async def _send(self, message: dict[str, Any]) -> dict[str, Any]:
        if has_non_finite(message):
            raise TypeError(f"the request cannot be sent: {NOT_FINITE}")
        # Encoded as JSON and decoded, so that a test gets the same values as a client.
        response = await self._connection.answer(loads(encode(message), lone_surrogates=True))
        received: dict[str, Any] = loads(encode(response or {}), lone_surrogates=True)
        return received


class _Channel(CallbackChannel):
    """The channel to a `DirectClient`."""

    def __init__(
        self, server: str, callbacks: ClientCallbacks, notify: Callable[[dict[str, Any]], None]
    ) -> None:
        super().__init__(server, callbacks)
        self._notify = notify

    def notify(self, message: dict[str, Any]) -> None:
        self._notify(message)


@asynccontextmanager
async def connect(
    server: object,
    *,
    on_elicitation: Callable[[ElicitationRequest], Any] | None = None,
    on_sampling: Callable[[SamplingRequest], Any] | None = None,
    roots: list[Any] | None = None,
    on_notification: Callable[[Notified], None] | None = None,
    name: str | None = None,
) -> AsyncIterator[DirectClient]:
    """Connect a client to `server`: a `ToolServer`, a wrapped one, or an MCP server of another library.

    `on_notification` is called with each notification of the server as it arrives. `name` is the server name that
    is passed to callbacks, instead of the server's own.
    """
    if isinstance(server, dict) and server.get("type") == "sdk":  # from `create_sdk_mcp_server`
        server = server["instance"]
    name = str(name or getattr(server, "name", None) or "server")
    callbacks = ClientCallbacks(on_elicitation, on_sampling, roots)
    client = DirectClient(as_server(server), name, callbacks, on_notification)
    try:
        await client.initialize()
        yield client
    finally:
        await client.aclose()
