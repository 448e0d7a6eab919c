"""Undocumented names of `mcp` that `compat` uses: a test for each says what broke when `mcp` has changed."""

import ast
import inspect
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import mcp_types as types
import pytest
from mcp.client import streamable_http
from mcp.server import MCPServer, Server
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import RootModel

import toolwire
from toolwire.mcp import compat
from toolwire.mcp.foreign.detect import find_low_level_server
from toolwire.mcp.versions import SERVING_HTTP, installed

pytestmark = pytest.mark.anyio

ROOT = Path(toolwire.__file__).parent

# What the documentation of `mcp` shows: whatever else is imported goes through `compat`.
DOCUMENTED = {
    "mcp": None,
    "mcp.types": None,
    "mcp_types": None,
    "mcp.server": {"CacheHint", "MCPServer", "Server", "ServerRequestContext"},
    "mcp.server.streamable_http": {"EventCallback", "EventId", "EventMessage", "EventStore", "StreamId"},
    "mcp.server.streamable_http_manager": {"StreamableHTTPSessionManager"},
    "mcp.server.subscriptions": None,
    "mcp.client.session": {"ClientSession"},
    "mcp.client.streamable_http": {"streamable_http_client"},
    "mcp.client.subscriptions": {"listen"},
    "mcp.shared.exceptions": {"MCPError"},
}


def imported(path):
    """Yield the modules and names that a file imports from `mcp`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and re.match(r"mcp(_types)?\b", node.module or ""):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if re.match(r"mcp(_types)?\b", alias.name))


@pytest.mark.slow
def test_only_compat_uses_what_is_not_documented():
    """No other module imports such a name, or touches a private attribute of an object of `mcp`."""
    wrong = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in ROOT.rglob("*.py")
        if path != ROOT / "mcp/compat.py"
        for module, name in imported(path)
        if module not in DOCUMENTED or (DOCUMENTED[module] is not None and name not in DOCUMENTED[module])
    ]
    assert wrong == []
    private = re.compile(
        r"session\._connection|_server_info_stamp|_lifespan_manager|\"_(lowlevel|mcp)_server\""
    )
    allowed = {ROOT / "mcp/compat.py", ROOT / "mcp/foreign/detect.py"}
    assert [p for p in ROOT.rglob("*.py") if p not in allowed and private.search(p.read_text())] == []


def test_every_name_has_a_test():
    """Each name in `compat.__all__` occurs in this file."""
    here = Path(__file__).read_text()
    assert [name for name in compat.__all__ if f"compat.{name}" not in here] == []


def test_versions():
    """Sessions, envelopes and the fast path depend on which protocol versions have a handshake."""
    assert {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} <= set(compat.HANDSHAKE_PROTOCOL_VERSIONS)
    assert "2026-07-28" in compat.MODERN_PROTOCOL_VERSIONS
    assert not set(compat.HANDSHAKE_PROTOCOL_VERSIONS) & set(compat.MODERN_PROTOCOL_VERSIONS)


def test_cacheable_methods():
    """Their results carry `ttlMs` and `cacheScope` from 2026-07-28 on."""
    assert {"tools/list", "resources/list", "resources/read", "prompts/list"} <= set(compat.CACHEABLE_METHODS)


@pytest.mark.parametrize("kind", [Server, MCPServer])
async def test_the_connection_of_a_request(kind):
    """`compat.connection_of` returns a `compat.ClientConnection` with all that serving and the proxy use."""
    seen = []

    async def note(ctx, call_next):
        seen.append(compat.connection_of(ctx))
        return await call_next(ctx)

    server = find_low_level_server(kind("s"))
    server.middleware.append(note)
    async with toolwire.testing.connect(server):
        pass
    connection = seen[0]
    assert isinstance(connection, compat.ClientConnection)
    assert connection.state == {}
    for name in ("session_id", "protocol_version", "client_capabilities", "initialize_accepted"):
        assert hasattr(connection, name), name
    assert connection.has_standalone_channel
    assert callable(connection.exit_stack.callback)
    assert callable(connection.exit_stack.push_async_callback)
    assert inspect.iscoroutinefunction(connection.notify)


def test_the_spans_of_requests():
    """`mcp` makes spans in a middleware; `compat.drop_spans` removes that one and no other."""

    async def own(ctx, call_next):
        return await call_next(ctx)

    server = Server("s")
    assert [type(each).__name__ for each in server.middleware] == ["OpenTelemetryMiddleware"]
    server.middleware.append(own)
    compat.drop_spans(server)
    assert server.middleware == [own]


def test_the_server_info_that_is_kept():
    """After `compat.forget_server_info`, results of 2026-07-28 carry the new name."""
    server = Server("old", version="1")
    assert server.server_info_stamp["name"] == "old"
    server.name = "new"
    compat.forget_server_info(server)
    assert server.server_info_stamp["name"] == "new"


def test_the_standard_run():
    """`compat.uses_standard_run` is false if a server overrides `run`, which direct dispatch must not bypass."""

    class Own(Server):
        async def run(self, *args, **more):
            await super().run(*args, **more)

    assert compat.uses_standard_run(Server("s"))
    assert not compat.uses_standard_run(Own("s"))


def test_direct_dispatch():
    """`compat.ServerRunner`, `compat.JSONRPCDispatcher` and `compat.TransportContext` have what we use."""
    dispatcher = compat.JSONRPCDispatcher(object(), object(), inline_methods=frozenset({"initialize"}))
    for name in ("run", "send_raw_request", "notify"):
        assert inspect.iscoroutinefunction(getattr(dispatcher, name)), name
    connection = compat.ClientConnection.for_loop(dispatcher)
    runner = compat.ServerRunner(Server("s"), connection, None, init_options=None)
    assert list(inspect.signature(runner.on_request).parameters) == ["dctx", "method", "params"]
    assert callable(runner.on_notify)
    assert compat.TransportContext(kind="jsonrpc", can_send_request=True).can_send_request


async def test_aclose_shielded():
    """`compat.aclose_shielded` runs the callbacks of a connection's exit stack."""
    connection, ran = compat.ClientConnection.for_loop(object()), []
    connection.exit_stack.callback(ran.append, 1)
    await compat.aclose_shielded(connection)
    assert ran == [1]


def test_errors_of_handlers():
    """`compat.handler_exception_to_error_data` converts an `MCPError`, and returns None for other exceptions."""
    error = compat.handler_exception_to_error_data(MCPError(-32001, "no"))
    assert (error.code, error.message) == (-32001, "no")
    assert compat.handler_exception_to_error_data(ZeroDivisionError()) is None
    assert issubclass(compat.NoBackChannelError, MCPError)
    assert "roots/list" in str(compat.NoBackChannelError("roots/list"))


def test_messages():
    """`compat.SessionMessage` and `compat.ServerMessageMetadata` carry a message and the request it belongs to."""
    message = types.JSONRPCNotification(jsonrpc="2.0", method="x")
    assert compat.SessionMessage(message).message is message
    assert compat.ServerMessageMetadata(related_request_id=7).related_request_id == 7


@pytest.mark.parametrize("wrapped", [False, True])
def test_messages_for_the_streams(monkeypatch, wrapped):
    """`compat.make_message` does not validate, and puts the message where `mcp` 1.x reads it: in `root`."""
    if wrapped:
        monkeypatch.setattr(compat, "_WRAPPED", RootModel[types.JSONRPCRequest])
    message = compat.make_message(types.JSONRPCRequest, id=1, method="x", params=None).message
    assert getattr(message, "root", message).method == "x"
    assert hasattr(message, "root") == wrapped
    assert message.model_dump(exclude_unset=True) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "x",
        "params": None,
    }


def test_large_events():
    """`compat.event_limit` returns the argument with which mcp's client limits events, which exists from 2.3 on."""
    expected = {"max_sse_event_size": 7} if installed() >= (2, 3) else {}
    assert compat.event_limit(streamable_http.streamable_http_client, 7) == expected


def test_the_schema_of_a_tool():
    """`compat.set_schema_lookup` sets what `mcp` calls from 2.3 on, so that it need not list the tools."""
    server = Server("s")
    assert hasattr(server, "get_tool_input_schema") == (installed() >= (2, 3))
    compat.set_schema_lookup(server, {"add": {"type": "object"}}.get)
    assert server.get_tool_input_schema("add") == {"type": "object"}


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (Server.run, "read_stream write_stream initialization_options raise_exceptions"),
        (
            Server.get_capabilities,
            "notification_options experimental_capabilities extensions protocol_version",
        ),
        (Server.get_request_handler, "method"),
        (Server.add_request_handler, "method params_type handler"),
        (Server.add_notification_handler, "method params_type handler"),
        (
            StreamableHTTPSessionManager.__init__,
            "app event_store retry_interval stateless max_request_body_size session_idle_timeout",
        ),
        (StreamableHTTPSessionManager.handle_request, "scope receive send"),
    ],
    ids=lambda each: each.__qualname__ if callable(each) else "",
)
def test_methods_that_are_overridden_or_called(method, parameters):
    """They have at least the parameters that we pass or override."""
    assert set(parameters.split()) <= set(inspect.signature(method).parameters)


def test_sessions_without_a_limit():
    """mcp's session manager takes `max_sessions` from 2.2 on: we turn it off, since our own limit applies."""
    has = "max_sessions" in inspect.signature(StreamableHTTPSessionManager).parameters
    assert has == (installed() >= SERVING_HTTP)


async def test_what_a_server_is_made_of():
    """Handlers are found by method, with the type of their params; `middleware` is a list."""
    server = Server("s")
    server.add_request_handler("x/y", types.RequestParams, print)
    entry = server.get_request_handler("x/y")
    assert isinstance(entry, compat.HandlerEntry)
    assert (entry.params_type, entry.handler) == (types.RequestParams, print)
    assert server.get_request_handler("x/z") is None
    assert isinstance(server.middleware, list)
    async with server.lifespan(server) as state:
        assert state == {}


def test_the_stream_of_notifications():
    """`compat.GET_STREAM_KEY` is the id of the stream for notifications that belong to no request."""
    assert "GET_STREAM_KEY" in inspect.getsource(StreamableHTTPServerTransport)
    assert isinstance(compat.GET_STREAM_KEY, str)


def test_request_ids():
    """`compat.coerce_request_id` takes "7" and 7 for one id; `compat.as_request_id` accepts nothing but ids."""
    assert compat.coerce_request_id("7") == compat.coerce_request_id(7) == 7
    assert compat.coerce_request_id("a7") == "a7"
    assert [compat.as_request_id(each) for each in (7, "7", True, None, [])] == [7, "7", None, None, None]


def test_params_and_results():
    """`compat.validate_client_request` and `compat.serialize_server_result` follow the given version."""
    compat.validate_client_request("tools/call", "2025-11-25", {"name": "add", "arguments": {}})
    with pytest.raises(ValueError, match="name"):
        compat.validate_client_request("tools/call", "2025-11-25", {})
    with pytest.raises(KeyError):
        compat.validate_client_request("logging/setLevel", "2026-07-28", {"level": "info"})
    result = {"content": [], "resultType": "complete"}
    assert compat.serialize_server_result("tools/call", "2025-11-25", result) == {"content": []}
    assert compat.serialize_server_result("tools/call", "2026-07-28", result)["resultType"] == "complete"


def test_headers():
    """`compat.classify_inbound_request` returns a `compat.InboundLadderRejection` if headers and body differ."""
    meta = {
        types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
        types.CLIENT_INFO_META_KEY: {"name": "t", "version": "1"},
        types.CLIENT_CAPABILITIES_META_KEY: {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
    accepted = compat.classify_inbound_request(body, headers=headers)
    assert not isinstance(accepted, compat.InboundLadderRejection)
    refused = compat.classify_inbound_request(body, headers={**headers, "mcp-method": "tools/call"})
    assert isinstance(refused, compat.InboundLadderRejection)
    assert compat.validate_mcp_param_headers({"type": "object", "properties": {}}, {}, {}) is None


def test_authenticated_users():
    """`compat.authorization_context` contains the client id of a `compat.AuthenticatedUser`."""
    user = compat.AuthenticatedUser(AccessToken(token="", client_id="me", scopes=[]))
    assert "me" in compat.authorization_context(user).values()


def test_request_state():
    """`compat.RequestStateBoundary` takes the keys of `compat.RequestStateSecurity`, or ephemeral ones."""
    keys = compat.RequestStateSecurity(keys=["k" * 43])
    for security in (keys, compat.RequestStateSecurity.ephemeral()):
        assert callable(compat.RequestStateBoundary(security, default_audience="s"))


def test_the_handlers_of_the_proxy():
    """`compat.HandlerEntry`, `compat.CallNext` and `compat.HandlerResult` exist for the proxy's middleware."""
    entry = compat.HandlerEntry(types.RequestParams, print)
    assert (entry.params_type, entry.handler) == (types.RequestParams, print)
    assert compat.CallNext is not None
    assert compat.HandlerResult is not None


@pytest.mark.parametrize("text", ["Not Found", "Server returned an error response"])
def test_errors_of_the_client(text):
    """`compat.CLIENT_HTTP_ERRORS` has the texts that mcp's HTTP client uses for a status without an MCP error."""
    assert text in compat.CLIENT_HTTP_ERRORS
    assert f'message="{text}"' in inspect.getsource(streamable_http)


def test_an_unknown_version_says_so(monkeypatch):
    """If a name is missing, the error says which version is installed and what to do."""
    monkeypatch.setitem(sys.modules, "mcp.server.runner", SimpleNamespace())
    with pytest.raises(ImportError, match=r"does not know this version of mcp \(2\..*pip install 'mcp"):
        runpy.run_path(compat.__file__)
