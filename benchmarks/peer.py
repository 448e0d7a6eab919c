"""The peer: a program that an SDK starts in place of the CLI, and that follows a plan and times it.

Neutral: it uses the standard library only, nothing of any SDK, and sends the same bytes to all. `PLAN` and
`REPORT`, two paths, are written at its top (`processes.write_peer`).

What it sends is prepared before the timing starts, and the responses are checked afterwards, so that the time is
that of the SDK as far as possible.
"""

import contextlib
import json
import os
import resource
import select
import sys
import time
from functools import partial

PLAN: str
REPORT: str

_CHUNK = 1 << 16  # the capacity of a pipe


class Pipes:
    """Reads and writes lines of JSON on stdin and stdout, blocking. Calls in flight do not use it."""

    def __init__(self):
        self.rest = b""

    def send(self, *messages):
        data = b"".join(map(encode, messages))
        while data:
            data = data[os.write(1, data) :]

    def read_line(self):
        while b"\n" not in self.rest:
            chunk = os.read(0, _CHUNK)
            if not chunk:
                raise EOFError
            self.rest += chunk
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)


class Peer:
    """Follows a plan once, and writes the report."""

    def __init__(self, plan):
        self.plan = plan
        self.pipes = Pipes()
        self.report = {"steps": []}
        self.ids = 0

    def run(self):
        """Initialize, wait for the prompt, do the steps, send the result message, and wait until the input ends."""
        self.wait_for(lambda message: message.get("type") == "user")
        for server in self.plan.get("servers", ()):
            self.initialize_server(server)
        for step in self.plan["steps"]:
            self.report["steps"].append(getattr(self, f"play_{step['do']}")(**step["with"]))
        self.report["own_cpu"] = time.process_time()
        part = f"{REPORT}.{os.getpid()}"  # many peers may finish at the same time
        with open(part, "w") as file:
            json.dump(self.report, file)
        os.rename(part, REPORT)
        if self.plan.get("bare"):  # the floor does not understand a result message
            return
        self.pipes.send(RESULT)
        with contextlib.suppress(EOFError):
            self.wait_for(lambda _message: False)

    def wait_for(self, found):
        """Respond to requests of the SDK until a message arrives for which `found` returns true; return it."""
        while True:
            message = self.pipes.read_line()
            if message.get("type") == "control_request":
                response = {"subtype": "success", "request_id": message["request_id"], "response": HELLO}
                self.pipes.send({"type": "control_response", "response": response})
            if found(message):
                return message

    def initialize_server(self, server):
        """Initialize an in-process server, as the CLI does before the first call."""
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "peer", "version": "1"},
        }
        self.send_request(server, "initialize", hello)
        self.pipes.send(self.make_request(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}))
        self.wait_for(lambda message: message.get("type") == "control_response")

    def send_request(self, server, method, params):
        """Send an MCP request to a server. Returns its result."""
        self.pipes.send(
            self.make_request(server, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        )
        reply = self.wait_for(lambda message: message.get("type") == "control_response")
        return reply["response"]["response"]["mcp_response"]["result"]

    def make_request(self, server, message):
        """Return a control request that carries an MCP message to a server."""
        self.ids += 1
        body = {"subtype": "mcp_message", "server_name": server, "message": message}
        return {"type": "control_request", "request_id": f"peer_{self.ids}", "request": body}

    # The steps of a plan.

    def play_calls(self, server, tool, arguments, count, depth=1, warm=0, expect=None):
        """Call a tool `count` times, with `depth` calls in flight. Each response must contain the text `expect`."""
        lines = [encode(each) for each in self.make_calls(server, tool, arguments, count + warm)]
        play = time_each if depth == 1 else partial(keep_in_flight, depth=depth)
        if warm:
            play(lines[:warm])
        before = read_parent_cpu()
        times, took, replies = play(lines[warm:])
        cpu = read_parent_cpu() - before
        if not self.plan.get("bare"):
            check(replies, count, expect)
        return {"seconds": took, "times": times, "cpu": cpu}

    def make_calls(self, server, tool, arguments, count):
        """Yield `count` requests to call a tool."""
        for number in range(count):
            params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number + 10}}
            params["_meta"]["claudecode/toolUseId"] = f"toolu_{number:024d}"
            yield self.make_request(
                server, {"jsonrpc": "2.0", "id": number + 10, "method": "tools/call", "params": params}
            )

    def play_listing(self, server, count):
        """Request the whole list of tools, page by page: once to time how it is made, then `count` times more."""
        message = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}
        lines, tools, cursor, first, made = [], 0, "", 0.0, 0.0
        while cursor is not None:
            lines.append(encode(self.make_request(server, message)))
            before = read_parent_cpu()
            _times, took, replies = time_each(lines[-1:])
            first, made = first + took, made + read_parent_cpu() - before
            page = json.loads(b"".join(replies))["response"]["response"]["mcp_response"]["result"]
            tools, cursor = tools + len(page["tools"]), page.get("nextCursor")
            message["params"] = {"cursor": cursor}
        before = read_parent_cpu()
        _times, took, replies = time_each(lines * count)
        cpu = read_parent_cpu() - before
        check(replies, len(lines) * count, '"tools"', once=False)
        again = {"seconds": took / count, "cpu": cpu / count}
        return {"tools": tools, "pages": len(lines), "first": {"seconds": first, "cpu": made}, "again": again}

    def play_messages(self, count, size, partial=False):
        """Send messages with `size` characters of text each. Returns when it began, on the system's clock."""
        message = {"type": "assistant", "session_id": "bench", "uuid": "u", "parent_tool_use_id": None}
        body = {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "stop_reason": None,
            "usage": {},
        }
        text = "lorem ipsum dolor sit amet \u00e9 " * (size // 29 + 1)
        message["message"] = {**body, "content": [{"type": "text", "text": text[:size]}]}
        if partial:
            delta = {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": text[:size]},
            }
            message = {
                "type": "stream_event",
                "session_id": "bench",
                "uuid": "u",
                "parent_tool_use_id": None,
                "event": delta,
            }
        line = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        many = max(1, min(count, 65536 // len(line)))
        block = line * many
        cpu = read_parent_cpu()
        begun = time.monotonic_ns()
        left = count
        while left > 0:
            data = memoryview(block if left >= many else line * left)
            left -= many
            while data:
                data = data[os.write(1, data) :]
        return {"begun": begun, "bytes": len(line) * count, "cpu": cpu}


def encode(message):
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def read_parent_cpu():
    """Return the processor time of the process that started this one, all its threads, in seconds.

    Linux lets a process read the processor clock of another one by its id, at no cost to that process. The value is
    exact once the process is idle, hence the sleep. Without such a clock it is always 0.
    """
    time.sleep(0.005)
    return time.clock_gettime((~os.getppid() << 3) | 2) if sys.platform == "linux" else 0.0


def time_each(lines):
    """Send each line and wait for its response. Returns the time of each, the time of all, and the responses."""
    clock, write, read = time.perf_counter_ns, os.write, os.read
    times, replies = [], []
    begun = clock()
    for line in lines:
        start = clock()
        write(1, line)
        chunk = read(0, _CHUNK)
        while not chunk.endswith(b"\n"):
            replies.append(chunk)
            chunk = read(0, _CHUNK)
            if not chunk:
                raise EOFError("the SDK has closed its end of the pipe")
        times.append(clock() - start)
        replies.append(chunk)
    return times, (clock() - begun) / 1e9, replies


def keep_in_flight(lines, depth):
    """Send the lines with `depth` calls in flight.

    What cannot be written yet waits, so that neither side blocks the other.
    """
    os.set_blocking(1, False)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    replies, waiting, sent, got = [], b"".join(lines[:depth]), min(depth, len(lines)), 0
    begun = time.perf_counter_ns()
    while got < len(lines):
        if waiting:
            with contextlib.suppress(BlockingIOError):
                waiting = waiting[os.write(1, waiting) :]
            if waiting:
                poll.register(1, select.POLLOUT)
        ready = dict(poll.poll(30_000))
        if not ready:
            raise TimeoutError(f"no response within 30 s, after {got} of {len(lines)}")
        if 1 in ready:
            poll.unregister(1)
        if 0 in ready:
            chunk = os.read(0, _CHUNK)
            if not chunk:
                raise EOFError
            replies.append(chunk)
            ended = chunk.count(b"\n")
            got += ended
            waiting += b"".join(lines[sent : sent + ended])
            sent = min(sent + ended, len(lines))
    took = (time.perf_counter_ns() - begun) / 1e9
    os.set_blocking(1, True)
    return [], took, replies


def check(replies, count, expect, once=True):
    """Check that there is one successful response for each call, and that it contains the expected text."""
    lines = b"".join(replies).split(b"\n")[:-1]
    if len(lines) != count:
        raise ValueError(f"{count} calls got {len(lines)} responses")
    seen = set()
    for line in lines:
        body = json.loads(line)["response"]
        if body["subtype"] != "success" or (
            expect is not None and expect not in line.decode().replace('\\"', '"')
        ):
            raise ValueError(f"a wrong answer: {line[:300]!r}")
        seen.add(body["request_id"])
    if once and len(seen) != count:
        raise ValueError("some calls got two responses, others none")


HELLO = {"commands": [], "agents": [], "models": [], "output_style": "default", "pid": os.getpid()}
RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "bench", "uuid": "r",
    "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "total_cost_usd": 0.0, "usage": {},
    "stop_reason": "end_turn",
}  # fmt: skip


def main():
    """Follow the plan, and write the report, or the error if it fails."""
    if "-v" in sys.argv or "--version" in sys.argv:
        sys.stdout.write("2.1.325 (Claude Code)\n")
        return
    with open(PLAN) as file:
        plan = json.load(file)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        Peer(plan).run()
    except (OSError, ValueError, LookupError, EOFError) as error:
        with open(REPORT, "w") as file:
            json.dump({"error": f"{type(error).__name__}: {error}"}, file)
        raise


main()
