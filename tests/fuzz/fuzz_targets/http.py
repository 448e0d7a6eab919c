"""Requests over HTTP: the fast path responds exactly as `mcp` does, and a call that is refused has not run.

Each message goes to one application twice: as clients send it, so that the fast path may take it, and with an
`accept` header that only `mcp` handles. All in this process, without a socket.
"""

import asyncio
import json
import random
from typing import Any, Final

from fuzz.fuzz_targets.json_mutation import dump, load, mutate_json
from toolwire import Context, ToolServer
from toolwire.mcp.serve.start import http_app

_OLD: Final = "2025-11-25"
_NEW: Final = "2026-07-28"
_BOTH: Final = b"application/json, text/event-stream"
_ANY: Final = b"*/*"
_SECONDS: Final = 60.0
_ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": _NEW,
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_WORDS: Final = (
    *("jsonrpc", "2.0", "id", "method", "params", "name", "arguments", "_meta", "progressToken", "cursor"),
    *(
        "ping",
        "tools/list",
        "tools/call",
        "logging/setLevel",
        "notifications/cancelled",
        "requestId",
        "level",
    ),
    *(
        "prompts/list",
        "completion/complete",
        "task",
        "ttl",
        "requestState",
        "inputResponses",
        "result",
        "error",
    ),
    *("add", "told", "broken", "a", "b", "debug", "tasks/get", "taskId", "notifications/progress", "reason"),
    *_ENVELOPE,
)
_runs: list[str] = []


async def add(a: float, b: float) -> float:
    """Add."""
    _runs.append("add")
    return a + b


async def told(context: Context) -> str:
    """Tell of progress first."""
    _runs.append("told")
    context.progress(1, 2)
    return "told"


async def broken() -> str:
    """Fail."""
    _runs.append("broken")
    raise ValueError("broken")


class _Served:
    """The running application, with a session of an older client."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        server = ToolServer("fuzzed")
        for function in (add, told, broken):
            server.tool(function)
        self._app = http_app(server)
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        waiting: asyncio.Future[dict[str, str]] = self._loop.create_future()
        events = [{"type": "lifespan.startup"}]

        async def receive() -> dict[str, str]:
            return events.pop() if events else await waiting

        async def send(message: dict[str, Any]) -> None:
            assert message["type"] == "lifespan.startup.complete", message
            ready.set_result(None)

        self._lifespan = self._loop.create_task(self._app({"type": "lifespan"}, receive, send))
        await ready
        info = {"protocolVersion": _OLD, "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
        opening = dump({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": info})
        headers = await self._post(opening, _BOTH, ())
        self.session = next(value for name, value in headers[1] if name == b"mcp-session-id")
        await self._post(dump({"jsonrpc": "2.0", "method": "notifications/initialized"}), _BOTH, self._old())

    def post(self, body: bytes, accept: bytes, modern: bool) -> tuple[int, list[Any], list[str]]:
        """Return the status, the messages of the response, and the tools that ran."""
        _runs.clear()
        more = self._new(body) if modern else self._old()
        status, headers, content = self._loop.run_until_complete(
            asyncio.wait_for(self._post(body, accept, more), _SECONDS)
        )
        return status, _messages(dict(headers).get(b"content-type", b""), content), list(_runs)

    def _old(self) -> tuple[tuple[bytes, bytes], ...]:
        return (b"mcp-session-id", self.session), (b"mcp-protocol-version", _OLD.encode())

    def _new(self, body: bytes) -> tuple[tuple[bytes, bytes], ...]:
        message = load(body)
        names = {"mcp-method": message.get("method"), "mcp-name": (message.get("params") or {}).get("name")}
        told = [(key.encode(), value.encode("latin-1", "replace")) for key, value in names.items() if value]
        return (b"mcp-protocol-version", _NEW.encode()), *told

    async def _post(self, body: bytes, accept: bytes, more: Any) -> tuple[int, Any, bytes]:
        sent: list[dict[str, Any]] = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        gone: asyncio.Future[dict[str, str]] = self._loop.create_future()

        async def receive() -> Any:
            return parts.pop() if parts else await gone

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [
            *((b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"accept", accept)),
            *((b"content-length", str(len(body)).encode()), *more),
        ]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        try:
            await self._app(scope, receive, send)
        finally:
            gone.cancel()
        content = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
        assert sent, "no reply"
        return sent[0]["status"], sent[0]["headers"], content


_served = _Served()


def check(data: bytes) -> None:
    """Post one message twice, in a session and, if it has the fields for that, without one."""
    try:
        message = load(data)
    except ValueError:
        message = None
    if isinstance(message, dict) and message.get("method") == "initialize":
        return  # each would open another session
    _compare(data, message, modern=False)
    if isinstance(message, dict) and isinstance(message.get("method"), str):
        params = message.get("params")
        if isinstance(params, dict) and isinstance(params.get("_meta"), dict):
            params["_meta"] = {**_ENVELOPE, **params["_meta"]}
            if isinstance(params.get("name", ""), str):
                _compare(dump(message), message, modern=True)


def _compare(data: bytes, message: Any, *, modern: bool) -> None:
    quick = _served.post(data, _BOTH, modern)
    slow = _served.post(data, _ANY, modern)
    for _, messages, runs in (quick, slow):
        assert len(runs) <= 1, "one request ran a tool twice"
        if any("error" in each for each in messages if isinstance(each, dict)):
            assert not runs, "a call was refused, and ran"
        replies = [each for each in messages if isinstance(each, dict) and {"result", "error"} & each.keys()]
        assert len(replies) <= 1, "two replies to one request"
        if runs:
            assert isinstance(message, dict)
            assert [each["id"] for each in replies] == [message["id"]], "a call that ran has no reply"
    assert quick == slow, f"the quick way answered {quick!r}, and mcp {slow!r}"


def _messages(kind: bytes, content: bytes) -> list[Any]:
    """Return the messages in the body of a response, without the ids of events."""
    if kind.startswith(b"text/event-stream"):
        lines = [line[5:].strip() for line in content.splitlines() if line.startswith(b"data:")]
        return [json.loads(line) for line in lines if line]
    return [json.loads(content)] if kind.startswith(b"application/json") and content else [content.decode()]


def run(data: bytes) -> None:
    """Use the fast path only."""
    _served.post(data, _BOTH, modern=False)


def grow(data: bytes, size: int) -> bytes:
    """Return a call that has the message many times in its arguments."""
    try:
        message = load(data)
    except ValueError:
        return data * (size // max(1, len(data)))
    many = [message] * (size // max(1, len(data)))
    params = {"name": "add", "arguments": {"a": 1, "b": many}}
    return dump({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def mutate(data: bytes, rng: random.Random) -> bytes | None:
    """Make another message."""
    return mutate_json(data, rng, _WORDS)
