"""The user's own transport on both packages: the same calls in the same order, the same messages, the same errors.

The kinds are those of public test suites: transports that replay a list of frames, answer what was written, break
off, raise, or are slow. Each plays its part on the official package and on ours, through `query()` and a client.
"""

import json

import anyio
import claude_agent_sdk
import pytest
from anyio.lowlevel import checkpoint

import toolwire
from differential.differences import expected
from shared.replay import Replay, accepted, done, replay_class, said, system

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the official package leaves streams open

LIMIT = 30


class ListThenEnd(Replay):
    """Answers what was written when it is first read, then its frames, then ends: everything before the prompt."""

    async def play(self):
        for frame in self.written:
            yield accepted(frame)
        for frame in self.frames:
            yield frame


class LooksAtTheLastLine(ListThenEnd):
    """Takes the request id out of the last line that was written, as text."""

    async def play(self):
        assert '"subtype": "initialize"' in self.lines[-1]
        request_id = self.lines[-1].partition('"request_id": "')[2].partition('"')[0]
        yield accepted({"request_id": request_id}, commands=[])
        for frame in self.frames:
            yield frame


class WaitsForThePrompt(Replay):
    """Plays its frames when the prompt was written, then ends without waiting for the end of the input."""

    async def play(self):
        for answered in range(2):
            while len(self.written) <= answered:
                await self.changed.wait()
            for frame in self.answers(self.written[answered]):
                yield frame


class Polls(WaitsForThePrompt):
    """Polls for what was written."""

    async def play(self):
        while not self.written:
            await checkpoint()
        yield accepted(self.written[0])
        while len(self.written) < 2:
            await checkpoint()
        for frame in self.frames:
            yield frame
            await checkpoint()


class RaisesAtTheEnd(ListThenEnd):
    """Ends with an exception, as a process that failed does."""

    error: Exception

    async def play(self):
        async for frame in super().play():
            yield frame
        raise self.error


class MessagesFirst(ListThenEnd):
    """Speaks before it answers `initialize`."""

    async def play(self):
        for frame in self.frames:
            yield frame
        yield accepted(self.written[0])


class SlowToWrite(Replay):
    """Takes several turns of the event loop for each write."""

    async def write(self, data):
        await super().write(data)
        for _ in range(5):
            await checkpoint()


class SlowToRead(Replay):
    """Takes several turns of the event loop for each frame."""

    async def play(self):
        async for frame in super().play():
            for _ in range(5):
                await checkpoint()
            yield frame


class NotAGenerator(Replay):
    """An object with `__aiter__` and `__anext__` instead of a generator."""

    def play(self):
        inner = super().play()

        class Frames:
            def __aiter__(self):
                return self

            async def __anext__(self):
                return await anext(inner)

        return Frames()


class RefusesInitialize(Replay):
    """Answers `initialize` with an error."""

    def answers(self, frame):
        body = {"subtype": "error", "request_id": frame["request_id"], "error": "not today"}
        return [{"type": "control_response", "response": body}]


class CannotConnect(Replay):
    """Raises in `connect()`."""

    async def connect(self):
        await super().connect()
        raise OSError("no route")


class CannotWrite(Replay):
    """Raises in its first write."""

    async def write(self, data):
        await super().write(data)
        raise OSError("broken pipe")


class CannotWriteThePrompt(Replay):
    """Raises in the write of the prompt."""

    async def write(self, data):
        await super().write(data)
        if self.written[-1]["type"] == "user":
            raise OSError("broken pipe")


class ReadsNothing(Replay):
    """`read_messages()` itself raises."""

    def read_messages(self):
        super().read_messages()
        raise LookupError("no reading here")


class WritesNothingAfterItsEnd(ListThenEnd):
    """Reading has ended, and writing the prompt fails."""

    async def write(self, data):
        await super().write(data)
        if self.written[-1]["type"] == "user":
            raise OSError("broken pipe")


class ClosesBadly(Replay):
    """Raises in `close()`."""

    async def close(self):
        await super().close()
        raise OSError("cannot close")


class CannotEndTheInput(Replay):
    """Raises in `end_input()`."""

    async def end_input(self):
        await super().end_input()
        raise OSError("cannot end")


class AsksBack(Replay):
    """Asks for a permission, and answers the prompt when that was decided."""

    def answers(self, frame):
        if frame["type"] == "user":
            ask = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}
            return [{"type": "control_request", "request_id": "q", "request": ask}]
        if frame["type"] == "control_response":
            return [said(json.dumps(frame["response"]["response"])), *self.frames]
        return super().answers(frame)


class AsksAndEnds(ListThenEnd):
    """Asks for a permission, a hook and a tool, and ends without waiting for the answers."""

    async def play(self):
        async for frame in super().play():
            yield frame
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 1}},
        }
        for number, request in enumerate(
            (
                {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}},
                {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"x": 1}, "tool_use_id": "t"},
                {"subtype": "mcp_message", "server_name": "calc", "message": call},
                {"subtype": "never heard of"},
            )
        ):
            yield {"type": "control_request", "request_id": str(number), "request": request}


ANSWER = [system("init", session_id="s"), said("hi"), done()]
FAILED = done("API Error: 529", is_error=True, api_error_status=529)


# What is played: a kind of transport, its frames, and what else it needs, made for a package.
PLAYS = {
    "list, then end": (ListThenEnd, ANSWER, {}),
    "list without a result": (ListThenEnd, ANSWER[:-1], {}),
    "nothing but an answer to initialize": (ListThenEnd, [], {}),
    "the last line as text": (LooksAtTheLastLine, ANSWER, {}),
    "answers what was written": (Replay, ANSWER, {}),
    "waits for the prompt": (WaitsForThePrompt, ANSWER, {}),
    "waits for the prompt, no result": (WaitsForThePrompt, ANSWER[:-1], {}),
    "polls": (Polls, ANSWER, {}),
    "messages before initialize is answered": (MessagesFirst, ANSWER, {}),
    "slow to write": (SlowToWrite, ANSWER, {}),
    "slow to read": (SlowToRead, ANSWER, {}),
    "not a generator": (NotAGenerator, ANSWER, {}),
    "two results": (ListThenEnd, [*ANSWER, *ANSWER], {}),
    "many messages": (ListThenEnd, [said(str(n)) for n in range(90)] + [done()], {}),
    "a type that nobody knows": (ListThenEnd, [{"type": "new"}, *ANSWER], {}),
    "raises at the end": (RaisesAtTheEnd, ANSWER, {"error": lambda sdk: LookupError("lost")}),
    "raises without a message": (RaisesAtTheEnd, [], {"error": lambda sdk: LookupError("lost")}),
    "process error at the end": (
        RaisesAtTheEnd,
        ANSWER[:-1],
        {"error": lambda sdk: sdk.ProcessError("exit", exit_code=3, stderr="why")},
    ),
    "process error after a failed result": (
        RaisesAtTheEnd,
        [FAILED],
        {"error": lambda sdk: sdk.ProcessError("exit", exit_code=1)},
    ),
    "no JSON at the end": (
        RaisesAtTheEnd,
        ANSWER,
        {"error": lambda sdk: sdk.CLIJSONDecodeError("{", ValueError("bad"))},
    ),
    "refuses initialize": (RefusesInitialize, ANSWER, {}),
    "cannot connect": (CannotConnect, ANSWER, {}),
    "cannot write": (CannotWrite, ANSWER, {}),
    "cannot write the prompt": (CannotWriteThePrompt, ANSWER, {}),
    "cannot write after the end of reading": (WritesNothingAfterItsEnd, ANSWER, {}),
    "read_messages() raises": (ReadsNothing, ANSWER, {}),
    "close() raises": (ClosesBadly, ANSWER, {}),
    "end_input() raises": (CannotEndTheInput, ANSWER, {}),
    "asks for a permission": (AsksBack, ANSWER, {}),
    "asks and ends": (AsksAndEnds, ANSWER, {}),
}


async def prompts():
    for text in ("one", "two"):
        yield {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}


def options_of(sdk, transport):
    if not isinstance(transport, AsksBack | AsksAndEnds):
        return sdk.ClaudeAgentOptions()

    async def decide(name, tool_input, context):
        return sdk.PermissionResultAllow()

    async def hook(hook_input, tool_use_id, context):
        await checkpoint()
        return {"continue_": True}

    @sdk.tool("add", "Add", {"a": float})
    async def add(args):
        return {"content": [{"type": "text", "text": str(args["a"])}]}

    return sdk.ClaudeAgentOptions(
        can_use_tool=decide,
        hooks={"PreToolUse": [sdk.HookMatcher(hooks=[hook])]} if isinstance(transport, AsksAndEnds) else None,
        mcp_servers={"calc": sdk.create_sdk_mcp_server("calc", "1", [add])},
    )


async def ask_query(sdk, transport, note):
    prompt = prompts() if isinstance(transport, AsksBack | AsksAndEnds) else "hello"
    async for message in sdk.query(prompt=prompt, options=options_of(sdk, transport), transport=transport):
        note(message)


async def ask_stream(sdk, transport, note):
    async for message in sdk.query(prompt=prompts(), options=options_of(sdk, transport), transport=transport):
        note(message)


async def ask_client(sdk, transport, note, prompt="hello"):
    async with sdk.ClaudeSDKClient(options_of(sdk, transport), transport=transport) as client:
        await client.query(prompt)
        async for message in client.receive_response():
            note(message)


async def listen(sdk, transport, note):
    client = sdk.ClaudeSDKClient(options_of(sdk, transport), transport=transport)
    try:
        await client.connect("hello")
        async for message in client.receive_messages():
            note(message)
            if len(transport.frames) == transport.noted:
                break
    finally:
        await client.disconnect()


WAYS = {"query": ask_query, "stream": ask_stream, "client": ask_client, "listen": listen}


async def play(sdk, kind, frames, more, way):
    """Return what a program saw, and what its transport saw."""
    transport = replay_class(sdk, kind)(*frames, **{name: make(sdk) for name, make in more.items()})
    transport.noted = 0
    seen = []

    def note(message):
        transport.noted += 1
        seen.append(repr(message))  # the class and all official fields

    error = None
    with anyio.fail_after(LIMIT):
        try:
            await way(sdk, transport, note)
        except Exception as raised:  # noqa: BLE001 - it is compared
            error = type(raised).__name__, str(raised)
    written = [
        {**frame, "request_id": "…"} if frame["type"] == "control_request" else frame
        for frame in transport.written
    ]
    return {"messages": seen, "error": error, "calls": transport.calls, "written": written}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", PLAYS)
def test_the_same(name, backend):
    """Calls, written frames, messages and the error are the same, except for the listed differences.

    The official package is on asyncio: on trio the order of its calls is left to chance.
    """
    kind, frames, more = PLAYS[name]
    differing = {}
    for way, ask in WAYS.items():
        official = anyio.run(play, claude_agent_sdk, kind, frames, more, ask)
        ours = anyio.run(play, toolwire, kind, frames, more, ask, backend=backend)
        for part in official:
            if official[part] != ours[part]:
                differing[part] = way, official[part], ours[part]
    allowed = expected(f"transport/{name}/")
    if backend == "trio" and "error" in allowed:  # how much is read before the error is left to chance
        allowed.add("messages")
    assert {part: both for part, both in differing.items() if part not in allowed} == {}
    assert allowed - {"messages"} <= differing.keys()


def test_the_text_of_lines():
    """It is what `json.dumps` writes, with one newline: transports search it, and compare it with recordings."""
    for text in ("hello", "Grüße 🙂", "half \ud83d", "\u2028\n\t"):
        lines = []
        for sdk in (claude_agent_sdk, toolwire):
            transport = replay_class(sdk)(*ANSWER)
            anyio.run(ask_client, sdk, transport, lambda message: None, text)
            lines.append(transport.lines[1:])
        assert lines[0] == lines[1]
