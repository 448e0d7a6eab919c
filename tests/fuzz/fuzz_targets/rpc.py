"""JSON-RPC of a `ToolServer`: one response to each request, and no tool runs with bad arguments."""

import asyncio
import json
import random
from typing import Any, Final

import jsonschema

from fuzz.fuzz_targets.json_mutation import dump, load, mutate_json
from toolwire import ToolServer
from toolwire._protocol.jsonrpc import ClientChannel, Unanswerable
from toolwire.tools.dispatch.connection import DirectConnection
from toolwire.tools.tool import Tool

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 10},
        "s": {"type": "string", "maxLength": 5, "pattern": "^[a-z]*$"},
        "of": {"enum": ["a", 1, None, {"x": []}]},
        "list": {"type": "array", "items": {"$ref": "#/$defs/pair"}, "uniqueItems": True, "maxItems": 3},
        "any": {"anyOf": [{"type": "boolean"}, {"required": ["n"], "not": {"type": "array"}}]},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"pair": {"prefixItems": [{"type": "number"}, {"const": "b"}], "items": False, "type": "array"}},
}
_CODES: Final = {-32700, -32600, -32601, -32602, -32603, -32002, -32800}
_WORDS: Final = (
    *("jsonrpc", "2.0", "id", "method", "params", "name", "arguments", "_meta", "progressToken", "cursor"),
    *("initialize", "ping", "tools/list", "tools/call", "logging/setLevel", "notifications/cancelled"),
    *("resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "uri", "level"),
    *("resources/unsubscribe", "prompts/list", "prompts/get", "completion/complete", "ref", "argument"),
    *("context", "ref/prompt", "ref/resource", "value", "requestId", "result", "error", "protocolVersion"),
    *("2025-11-25", "debug", "typed", "raw", "write", "a", "b", "n", "s", "of", "list", "any", "color"),
    *(
        "file:///{path}",
        "file:///x",
        "file:///%2e%2e",
        "note://one",
        "capabilities",
        "notifications/initialized",
    ),
)
_run: list[Any] = []


async def typed(a: int, b: list[float] | None = None, color: str = "red") -> str:
    """A typed tool."""
    _run.append({"a": a})
    return f"{a}{b}{color}"


async def _raw(arguments: dict[str, Any]) -> dict[str, Any]:
    _run.append(arguments)
    return {"content": [{"type": "text", "text": "ok"}]}


def _server() -> ToolServer:
    raw = Tool("raw", "A raw tool.", _SCHEMA, _raw)
    server = ToolServer("fuzzed", tools=[raw])
    server.tool(typed)
    server.add_resource("file:///{path}", lambda path: path, name="file", inline=True)
    server.add_resource("note://one", lambda: "one", name="one", inline=True)
    server.add_prompt(lambda a, b: f"{a} {b}", name="write", complete={"a": ["this", "that"]}, inline=True)
    return server


class _Channel(ClientChannel):
    def notify(self, message: dict[str, Any]) -> None:
        dump(message)


_loop = asyncio.new_event_loop()
_served = _server()
_valid = jsonschema.Draft202012Validator(_SCHEMA)


def check(data: bytes) -> None:
    """Send the lines to one connection, one after the other, and check each response."""
    _loop.run_until_complete(_check(data))


async def _check(data: bytes) -> None:
    connection: Any = _served.connect(_Channel())
    assert isinstance(connection, DirectConnection)
    try:
        for line in data.split(b"\n"):
            await _check_line(connection, line)
    finally:
        await connection.aclose()
    assert not connection._calls


async def _check_line(connection: DirectConnection, line: bytes) -> None:
    _run.clear()
    try:
        message = load(line)
    except ValueError:
        message = NotImplemented  # ours may accept some that Python's own reader refuses, and the reverse
    reply = await connection.answer_bytes(line)
    runs = list(_run)
    answer = None if reply is None else json.loads(reply)
    if message is NotImplemented:
        assert not runs or answer is not None
        return
    assert len(runs) <= 1, "one request ran a tool twice"
    if not _wants_reply(message):
        assert answer is None or answer["id"] is None, "something that is no request was answered"
        assert not runs
        return
    _check_answer(message, answer)
    _check_call(message, answer, runs)
    try:
        direct = await connection.answer(load(line))
    except Unanswerable:
        direct = None
    assert (
        direct is None
        or "error" not in answer
        or direct.get("error", {}).get("code") == answer["error"]["code"]
    )


def _wants_reply(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and "id" in message
        and ("method" in message or not message.keys() & {"result", "error"})
        and isinstance(message["id"], int | float | str)
        and not isinstance(message["id"], bool)
    )


def _check_answer(message: dict[str, Any], answer: Any) -> None:
    assert isinstance(answer, dict), "no reply"
    assert answer["jsonrpc"] == "2.0"
    if answer["id"] is None:  # a line that our reader refuses and Python's accepts
        assert answer["error"]["code"] == -32700
        return
    assert answer["id"] == message["id"] or float(answer["id"]) == float(message["id"]), "crossed ids"
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        assert answer["error"]["code"] == -32600, "what is no JSON-RPC was taken for it"
    assert answer.keys() == {"jsonrpc", "id", "result"} or answer.keys() == {"jsonrpc", "id", "error"}
    if "error" in answer:
        assert answer["error"]["code"] in _CODES
        assert isinstance(answer["error"]["message"], str)
        assert len(answer["error"]["message"]) < 4_000, "an error quotes its input in full"
        assert answer["error"]["code"] != -32603, "an internal error"
    else:
        assert isinstance(answer["result"], dict)


def _check_call(message: dict[str, Any], answer: dict[str, Any], runs: list[Any]) -> None:
    params = message.get("params")
    is_call = message.get("method") == "tools/call" and isinstance(params, dict)
    if runs:
        assert is_call, "a tool ran without a call"
        assert "error" not in answer, "a call was refused, and ran"
    if is_call and params.get("name") == "raw" and "error" not in answer:
        given = params.get("arguments")
        good = _valid.is_valid({} if given is None else given)
        assert good == bool(runs), "a tool ran on arguments that break its schema, or did not on good ones"


def run(data: bytes) -> None:
    """Answer, and check nothing."""
    _loop.run_until_complete(_run_only(data))


async def _run_only(data: bytes) -> None:
    connection: Any = _served.connect(_Channel())
    await connection.answer_bytes(data)
    await connection.aclose()


def grow(data: bytes, size: int) -> bytes:
    """Return a call with the message many times in its arguments."""
    try:
        message = load(data.split(b"\n")[0])
    except ValueError:
        return data * (size // max(1, len(data)))
    many = [message] * (size // max(1, len(data)))
    params = {"name": "raw", "arguments": {"n": 1, "list": many}}
    return dump({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def mutate(data: bytes, rng: random.Random) -> bytes | None:
    """Change one of the messages."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    changed = mutate_json(lines[at], rng, _WORDS)
    if changed is None:
        return None
    lines[at : at + rng.choice([0, 1, 1, 1])] = [changed]
    return b"\n".join(lines)
