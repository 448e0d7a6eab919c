"""Plays the CLI's side of one fixed conversation, with one fault at one step of it. Run as a program.

The environment variable STEP names the step, FAULT the fault, REACHED a file to make just before it. The
conversation has, in the order of `STEPS`, initialize, any number of control requests, and for each prompt two
messages, a piece of a stream, a tool call, a permission request and a hook, then a result that repeats what the
host answered to the last three. So a test that sees the right result knows that every response arrived.

It imports little, because it is started a thousand times.
"""

import json
import os
import sys

STEPS = {
    "start": "nothing was read or written",
    "initialize": "initialize was read and not answered",
    "idle": "initialize was answered",
    "control": "a control request of the host was read and not answered",
    "prompt": "a prompt was read, and nothing said yet",
    "message": "the first message was sent",
    "stream": "in the middle of a streamed message",
    "tool": "a tool was called, and its result not read",
    "permission": "a permission was asked for, and the answer not read",
    "hook": "a hook was called, and its answer not read",
    "result": "the result was sent, and idle not yet reported",
    "closing": "the input has ended",
}
TURN = ("prompt", "message", "stream", "tool", "permission", "hook", "result")
"""The steps that a prompt makes the CLI take."""
RIGHT = "tool 42, permission allow, hook continue"
"""The text of a result after answers that are right."""
LIMIT = 1_000_000
"""The longest line that the tests let through."""
HUGE = 100_000_000

spoil = []  # functions that write the next frames in its place, one each
answers = {}  # control responses of the host, by request id
prompts = []  # that have had no turn yet
seen_ids = []  # of the host's control requests


def write(data):
    """Write bytes to stdout, all of them, now."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def pause(seconds=0.004):
    """Give the reader time to read what was written."""
    import time  # noqa: PLC0415

    time.sleep(seconds)


def tell(**frame):
    """Write a frame, with a fault if one is due."""
    line = json.dumps(frame, ensure_ascii=False).encode() + b"\n"
    if spoil:
        spoil.pop(0)(line)
    else:
        write(line)


def respond(request, **response):
    """Send a successful response to a control request of the host."""
    body = {"subtype": "success", "request_id": request["request_id"], "response": response}
    tell(type="control_response", response=body)


def say(text):
    """Write an assistant message."""
    content = [{"type": "text", "text": text}]
    tell(type="assistant", message={"role": "assistant", "model": "m", "content": content})


def state(name):
    """Report the state of the session."""
    tell(type="system", subtype="session_state_changed", state=name, sdk_host_only=True)


def read():
    """Read the next frame of the host; None at the end of input."""
    try:
        line = sys.stdin.buffer.readline()
    except (OSError, ValueError):  # closed by a fault
        return None
    frame = json.loads(line) if line else None
    if frame is not None and "request_id" in frame:
        seen_ids.append(frame["request_id"])
    return frame


def take(frame):
    """Handle a frame that the host may send at any time."""
    if frame["type"] == "control_response":
        answers[frame["response"]["request_id"]] = frame["response"]
    elif frame["type"] == "control_request":
        at("initialize" if frame["request"]["subtype"] == "initialize" else "control")
        respond(frame, claude_code_version="9.9.9", mcpServers=[])
        if frame["request"]["subtype"] == "initialize":
            at("idle")
    else:
        prompts.append(frame)


def ask(step, **body):
    """Send a control request, and return the host's response."""
    tell(type="control_request", request_id=step, request=body)
    at(step)
    while step not in answers:
        frame = read()
        if frame is None:
            leave()
        take(frame)
    answer = answers.pop(step)
    return answer.get("response") if answer["subtype"] == "success" else answer


def call_tool():
    """Call the host's tool, and return its text, or "failed"."""
    params = {"name": "add", "arguments": {"a": 15, "b": 27}, "_meta": {"progressToken": 2}}
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    reply = ask("tool", subtype="mcp_message", server_name="calc", message=message)
    result = (reply.get("mcp_response") or {}).get("result") or {}
    texts = [block["text"] for block in result.get("content") or [] if "text" in block]
    return "failed" if result.get("isError") or "content" not in result else "".join(texts)[:100]


def turn():
    """Take one turn."""
    state("running")
    at("prompt")
    say("one: äöü €")
    at("message")
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "tw"}}
    tell(type="stream_event", uuid="u", session_id="s", event=piece)
    at("stream")
    tell(type="stream_event", uuid="u", session_id="s", event=piece)
    say("two")
    tool = call_tool()
    allowed = ask("permission", subtype="can_use_tool", tool_name="Bash", input={}, tool_use_id="t1")
    given = {"hook_event_name": "Stop"}
    hooked = ask("hook", subtype="hook_callback", callback_id="hook_0", input=given, tool_use_id=None)
    permission = allowed.get("behavior") or "failed"
    hook = "failed" if "error" in hooked else "continue" if hooked.get("continue", True) else "stop"
    tell(
        type="result",
        subtype="success",
        is_error=False,
        duration_ms=1,
        duration_api_ms=1,
        num_turns=1,
        session_id="s",
        result=f"tool {tool}, permission {permission}, hook {hook}",
    )
    at("result")
    state("idle")


def leave():
    """Exit, because the input has ended."""
    at("closing")
    os._exit(0)


# --- faults: bytes ---


def tear(*places):
    """Write the next frame in pieces. A place is a share of the line, or an index into it."""

    def torn(line):
        cuts = sorted(
            {int(len(line) * each) if isinstance(each, float) else each % len(line) for each in places}
        )
        for start, end in zip([0, *cuts], [*cuts, len(line)], strict=True):
            write(line[start:end])
            pause()

    spoil.append(torn)


def tear_character():
    """Cut the next frame inside its first character of several bytes, or else in the middle."""

    def torn(line):
        place = next((n for n, byte in enumerate(line) if byte > 127), len(line) // 2) + 1
        write(line[:place])
        pause()
        write(line[place:])

    spoil.append(torn)


def byte_by_byte():
    """Write each byte of the next frame separately."""
    spoil.append(lambda line: [write(bytes([byte])) for byte in line])


def cut_off():
    """Write half of the next frame, and exit."""

    def half(line):
        write(line[: len(line) // 2])
        os._exit(0)

    spoil.append(half)


def cut_short():
    """Write half of the next frame as if it were all, and exit with an error."""

    def half(line):
        write(line[: len(line) // 2] + b"\n")
        os._exit(1)

    spoil.append(half)


def lines(*data):
    """Return a fault that writes these lines between the frames of the conversation."""
    return lambda: write(b"\n".join(data) + b"\n")


EXTRA = b'{"type":"system","subtype":"note","text":"extra"%s}'

BYTES = {
    "garbage": lines(b"[SandboxDebug] hi", b'{"cut": ', b"}{", b"\x1b[31mred\x1b[0m"),
    "NUL": lines(b"\0", b"\0" * 5000, b'{"type":"system"\0}', b'{"type":"system","subtype":"a\0b"}'),
    "not UTF-8": lines(b"\xff\xfe\x80", b'{"type":"system","subtype":"\xff"}', b"\xed\xa0\x80"),
    "other encodings": lines(
        '{"type":"system"}'.encode("utf-16"), b"\xef\xbb\xbf" + EXTRA % b"", '{"a":"ä"}'.encode("latin-1")
    ),
    "blank lines": lines(b"", b"\r", b" \t ", b"\r\r", b"\x0b\x0c", b"\x1c"),
    "no objects": lines(b"42", b"null", b'"text"', b"[]", b"true", b"[{}]", b"-0", b"1e999"),
    "deep": lines(b"[" * 100_000, b'{"a":' * 100_000, b'{"type":' + b"[" * 900 + b"]" * 900 + b"}"),
    "numbers": lines(EXTRA % b',"n":NaN', EXTRA % b',"n":1e999', EXTRA % (b',"n":' + b"9" * 5000)),
    "surrogates": lines(EXTRA % b',"n":"\\ud83d"', EXTRA % b',"\\udfff":"\\ud83d\\ud83d"'),
    "two on a line": lines(EXTRA % b"" + EXTRA % b""),
    "repeated keys": lines(b'{"type":"system","type":"nothing","subtype":1,"subtype":"x"}'),
    "too long": lines(EXTRA % (b',"text":"' + b"x" * (LIMIT + 1) + b'"')),
    "no line end": lambda: (write(b"x" * 200_000), pause(), write(b"\n")),
    "CRLF": lambda: spoil.append(lambda line: write(line[:-1] + b"\r\n")),
    "indented": lambda: spoil.append(lambda line: write(b" \t " + line)),
    "twice": lambda: spoil.append(lambda line: write(line * 2)),
    "glued": lambda: spoil.append(lambda line: write(EXTRA % b"" + b"\n" + line + EXTRA % b"" + b"\n")),
    "torn at the first byte": lambda: tear(1),
    "torn in the middle": lambda: tear(0.5),
    "torn before the line end": lambda: tear(-1),
    "torn in many places": lambda: tear(0.1, 0.3, 0.31, 0.5, 0.9, -2),
    "torn character": tear_character,
    "byte by byte": byte_by_byte,
}
"""Faults after which the conversation goes on as if nothing had been."""
SPOILS = {
    "CRLF", "indented", "twice", "glued", "torn at the first byte", "torn in the middle",
    "torn before the line end", "torn in many places", "torn character", "byte by byte", "cut off", "cut short",
}  # fmt: skip
"""Those that need a frame that comes after them."""


# --- faults: frames ---


def frames(*data):
    """Return a fault that writes these frames between those of the conversation."""
    return lambda: [write(json.dumps(each).encode() + b"\n") for each in data]


def asked(*bodies, **frame):
    """Return a fault that writes control requests."""
    return frames(
        *(
            {"type": "control_request", "request_id": f"odd {n}", "request": each, **frame}
            for n, each in enumerate(bodies)
        )
    )


def answered(*bodies):
    """Return a fault that writes control responses."""
    return frames(*({"type": "control_response", "response": each} for each in bodies))


def assistant(*messages):
    """Return a fault that writes assistant messages."""
    return frames(*({"type": "assistant", "message": each} for each in messages))


def content(*contents):
    """Return a fault that writes assistant messages with this content."""
    return assistant(*({"role": "assistant", "model": "m", "content": each} for each in contents))


def rpc(*messages):
    """Return a fault that writes messages to the MCP server."""
    return asked(*({"subtype": "mcp_message", "server_name": "calc", "message": each} for each in messages))


ODD = (None, 7, "text", [], {}, [1], True)
"""Values that are of the wrong type nearly everywhere."""
CALL = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
}

FRAMES = {
    "unknown type": frames({"type": "no such thing"}, {"type": "keep_alive"}, {"type": ""}),
    "no type": frames({}, {"message": {}}, {"": ""}),
    "type is no text": frames(*({"type": each} for each in (None, 7, [], {}, ["result"], True))),
    "assistant without message": frames({"type": "assistant"}, {"type": "user"}),
    "message of the wrong type": assistant(*ODD),
    "content of the wrong type": content(*ODD, [None], [[]], ["text"]),
    "blocks without fields": content(
        *([{"type": each}] for each in ("text", "tool_use", "tool_result", "thinking"))
    ),
    "blocks of the wrong type": content(
        *([{"type": each}] for each in (None, 7, [], "odd")),
        [{"type": "text", "text": 7}],
        [{"type": "tool_use", "input": 7}],
    ),
    "user of the wrong type": frames(*({"type": "user", "message": each} for each in ODD)),
    "system of the wrong type": frames(
        *({"type": "system", "subtype": each} for each in ODD), {"type": "system"}
    ),
    "init of the wrong type": frames(*({"type": "system", "subtype": "init", "tools": each} for each in ODD)),
    "tasks of the wrong type": frames(
        *(
            {"type": "system", "subtype": kind, "task_id": each, "patch": each, "task_type": each}
            for kind in ("task_started", "task_updated", "task_notification", "task_progress")
            for each in (None, 7, [], {})
        )
    ),
    "stream events of the wrong type": frames(
        *({"type": "stream_event", "event": each} for each in ODD), {"type": "stream_event"}
    ),
    "other kinds of the wrong type": frames(
        *(
            {"type": kind, "data": 7, "uuid": [], "rate_limit_info": 7, "tool_use_id": {}}
            for kind in (
                "rate_limit_event",
                "tool_progress",
                "auth_status",
                "tool_use_summary",
                "prompt_suggestion",
            )
        )
    ),
    "request without id": frames(
        {"type": "control_request", "request": {"subtype": "can_use_tool"}},
        *(
            {"type": "control_request", "request_id": each, "request": {"subtype": "can_use_tool"}}
            for each in ODD
            if each != "text"
        ),
    ),
    "request without body": frames({"type": "control_request", "request_id": "odd"}),
    "request of the wrong type": asked(*(each for each in ODD if each != {})),
    "request without subtype": asked({}, *({"subtype": each} for each in ODD)),
    "unknown subtype": asked({"subtype": "no_such_thing"}, {"subtype": "initialize"}, {"subtype": ""}),
    "permission without fields": asked(
        {"subtype": "can_use_tool"},
        *({"subtype": "can_use_tool", "tool_name": each, "input": each} for each in ODD),
    ),
    "hook that nobody has": asked(
        {"subtype": "hook_callback"},
        *({"subtype": "hook_callback", "callback_id": each, "input": each} for each in ODD),
    ),
    "elicitation without fields": asked(
        {"subtype": "elicitation"}, {"subtype": "elicitation", "mode": 7, "requested_schema": 7}
    ),
    "server that nobody has": asked(
        {"subtype": "mcp_message", "server_name": "ghost", "message": CALL},
        *({"subtype": "mcp_message", "server_name": each, "message": CALL} for each in ODD),
        {"subtype": "mcp_message"},
    ),
    "MCP message of the wrong type": rpc(*ODD),
    "MCP message without fields": rpc(
        {"jsonrpc": "2.0"}, {"id": 7}, {"method": "tools/call", "id": 7}, {"jsonrpc": "2.0", "id": 7}
    ),
    "MCP id of the wrong type": rpc(*({**CALL, "id": each} for each in (None, [], {}, 1.5, True, ""))),
    "MCP params of the wrong type": rpc(
        *({**CALL, "params": each} for each in ODD),
        *({**CALL, "params": {"name": each, "arguments": each}} for each in ODD),
    ),
    "MCP method of the wrong type": rpc(*({**CALL, "method": each} for each in ODD)),
    "MCP calls with one id": rpc(CALL, CALL, CALL),
    "MCP cancel of nothing": rpc(
        *(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": each}
            for each in (*ODD, {"requestId": 99}, {"requestId": []})
        )
    ),
    "MCP response to nothing": rpc(
        {"jsonrpc": "2.0", "id": 99, "result": {}}, {"jsonrpc": "2.0", "id": None, "error": {}}
    ),
    "response to nothing": answered(
        {"subtype": "success", "request_id": "nobody"}, {"subtype": "error", "request_id": "nobody"}
    ),
    "response of the wrong type": answered(*ODD),
    "response without body": frames({"type": "control_response"}),
    "response id of the wrong type": answered(
        *({"subtype": "success", "request_id": each, "response": {}} for each in ODD)
    ),
    "cancel of nothing": frames(
        {"type": "control_cancel_request"},
        *({"type": "control_cancel_request", "request_id": each} for each in ODD),
    ),
    "requests with one id": frames(
        *(
            {
                "type": "control_request",
                "request_id": "again",
                "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}},
            }
            for _ in range(3)
        ),
    ),
    "late answers": lambda: [respond({"request_id": each}, late=True) for each in seen_ids],
}
"""Frames after which the conversation goes on as if nothing had been."""


# --- faults: the process ---


def close(descriptor):
    """Close a standard stream, and keep running."""
    os.close(descriptor)
    hang()


def hang():
    """Do nothing any more, but exit on SIGTERM."""
    while True:
        pause(60)


def deaf():
    """Do nothing any more, and ignore SIGTERM."""
    import signal  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang()


def signal_self(number):
    """Send a signal to this process."""
    os.kill(os.getpid(), number)


def flood_stderr(megabytes):
    """Write lines to stderr, more than any buffer holds."""
    data = (b"e" * 1023 + b"\n") * 1024
    for _ in range(megabytes):
        view = memoryview(data)
        while view:
            view = view[os.write(2, view) :]


def leave_child():
    """Exit, and leave a child behind that holds every stream open for a while."""
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "3"], {})  # noqa: S606 - without the mark, it is not counted
    os._exit(0)


def huge_line():
    """Write one line of 100 MB."""
    piece = b"x" * 1_000_000
    write(b'{"type":"system","text":"')
    for _ in range(HUGE // len(piece)):
        write(piece)
    write(b'"}\n')


PROCESS = {
    "exit 0": lambda: os._exit(0),
    "exit 1": lambda: os._exit(1),
    "exit 137": lambda: os._exit(137),
    "SIGKILL": lambda: signal_self(9),
    "SIGSEGV": lambda: signal_self(11),
    "SIGSTOP": lambda: signal_self(19),
    "SIGTERM": lambda: signal_self(15),
    "hang": hang,
    "deaf": deaf,
    "close stdin": lambda: close(0),
    "close stdout": lambda: close(1),
    "close stderr": lambda: os.close(2),
    "complain": lambda: os.write(2, b"one\ntwo \xff\nthree"),
    "flood stderr": lambda: flood_stderr(2),
    "flood stderr, 50 MB": lambda: flood_stderr(50),
    "leave a child": leave_child,
    "cut off": cut_off,
    "cut short": cut_short,
    "100 MB": huge_line,
}

FAULTS = {**BYTES, **FRAMES, **PROCESS, "none": lambda: None}


def at(step):
    """Cause the fault if it is due at this step, the first time that the step comes."""
    global STEP  # noqa: PLW0603
    if step == STEP:
        STEP = None
        if "REACHED" in os.environ:
            os.close(os.open(os.environ["REACHED"], os.O_CREAT))
        FAULTS[os.environ["FAULT"]]()


def main():
    """Play the conversation until the input ends."""
    at("start")
    while (frame := read()) is not None:
        take(frame)
        while prompts:
            prompts.pop()
            turn()
    leave()


STEP = None
if __name__ == "__main__":
    STEP = os.environ["STEP"]
    main()
