"""The CLI's side of the pipes, as a program of its own: plays a plan and times it.

Neutral: the standard library only, nothing of either SDK, and the same bytes for both. It is started by an SDK in
place of the CLI; `PLAN` and `REPORT`, two paths, are written in front of it (`processes.peer_program`).

Everything that it sends while it times is made before, and what comes back is looked at afterwards, so that the
time is that of the other side as far as that is possible.
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

_CHUNK = 1 << 16  # what a pipe holds


class Pipes:
    """Lines in and out, blocking, except where many calls are in flight."""

    def __init__(self):
        self.rest = b""

    def send(self, *messages):
        data = b"".join(map(encoded, messages))
        while data:
            data = data[os.write(1, data) :]

    def line(self):
        while b"\n" not in self.rest:
            chunk = os.read(0, _CHUNK)
            if not chunk:
                raise EOFError
            self.rest += chunk
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)


class Peer:
    """One run of a plan."""

    def __init__(self, plan):
        self.plan = plan
        self.pipes = Pipes()
        self.report = {"steps": []}
        self.ids = 0

    def run(self):
        """Shake hands, take the prompt, play, say that it is over, and wait for the end of the input."""
        self.until(lambda message: message.get("type") == "user")
        for server in self.plan.get("servers", ()):
            self.greet(server)
        for step in self.plan["steps"]:
            self.report["steps"].append(getattr(self, step["do"])(**step["with"]))
        self.report["own_cpu"] = time.process_time()
        part = f"{REPORT}.{os.getpid()}"  # many peers may end at once
        with open(part, "w") as file:
            json.dump(self.report, file)
        os.rename(part, REPORT)
        if self.plan.get("bare"):  # the floor neither knows the end nor needs it
            return
        self.pipes.send(RESULT)
        with contextlib.suppress(EOFError):
            self.until(lambda _message: False)

    def until(self, found):
        """Answer what the SDK asks until a message is the one that is waited for."""
        while True:
            message = self.pipes.line()
            if message.get("type") == "control_request":
                answer = {"subtype": "success", "request_id": message["request_id"], "response": HELLO}
                self.pipes.send({"type": "control_response", "response": answer})
            if found(message):
                return message

    def greet(self, server):
        """What the CLI does with an in-process server before the first call."""
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "peer", "version": "1"},
        }
        self.asked(server, "initialize", hello)
        self.pipes.send(self.request(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}))
        self.until(lambda message: message.get("type") == "control_response")

    def asked(self, server, method, params):
        """The result of one MCP request."""
        self.pipes.send(self.request(server, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        reply = self.until(lambda message: message.get("type") == "control_response")
        return reply["response"]["response"]["mcp_response"]["result"]

    def request(self, server, message):
        self.ids += 1
        body = {"subtype": "mcp_message", "server_name": server, "message": message}
        return {"type": "control_request", "request_id": f"peer_{self.ids}", "request": body}

    # The steps of a plan.

    def calls(self, server, tool, arguments, count, depth=1, warm=0, expect=None):
        """Call a tool `count` times, `depth` at a time. `expect` is a text that each answer must have in it."""
        lines = [encoded(each) for each in self.made(server, tool, arguments, count + warm)]
        play = one_by_one if depth == 1 else partial(in_flight, depth=depth)
        if warm:
            play(lines[:warm])
        before = parent_cpu()
        times, took, replies = play(lines[warm:])
        cpu = parent_cpu() - before
        if not self.plan.get("bare"):
            check(replies, count, expect)
        return {"seconds": took, "times": times, "cpu": cpu}

    def made(self, server, tool, arguments, count):
        for number in range(count):
            params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number + 10}}
            params["_meta"]["claudecode/toolUseId"] = f"toolu_{number:024d}"
            yield self.request(
                server, {"jsonrpc": "2.0", "id": number + 10, "method": "tools/call", "params": params}
            )

    def listing(self, server, count):
        """The whole of `tools/list`, page by page: once to see it made, then `count` times more."""
        message = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}
        lines, tools, cursor, first, made = [], 0, "", 0.0, 0.0
        while cursor is not None:
            lines.append(encoded(self.request(server, message)))
            before = parent_cpu()
            _times, took, replies = one_by_one(lines[-1:])
            first, made = first + took, made + parent_cpu() - before
            page = json.loads(b"".join(replies))["response"]["response"]["mcp_response"]["result"]
            tools, cursor = tools + len(page["tools"]), page.get("nextCursor")
            message["params"] = {"cursor": cursor}
        before = parent_cpu()
        _times, took, replies = one_by_one(lines * count)
        cpu = parent_cpu() - before
        check(replies, len(lines) * count, '"tools"', once=False)
        again = {"seconds": took / count, "cpu": cpu / count}
        return {"tools": tools, "pages": len(lines), "first": {"seconds": first, "cpu": made}, "again": again}

    def messages(self, count, size, partial=False):
        """A stream of messages with `size` characters of text each. Gives when it began, on the system's clock."""
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
        cpu = parent_cpu()
        begun = time.monotonic_ns()
        left = count
        while left > 0:
            data = memoryview(block if left >= many else line * left)
            left -= many
            while data:
                data = data[os.write(1, data) :]
        return {"begun": begun, "bytes": len(line) * count, "cpu": cpu}


def encoded(message):
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def parent_cpu():
    """The processor time of the process that started this one, all its threads, in seconds.

    Linux lets a process read the clock of another by its id, at no cost to the other. It is exact once the other
    has come to rest, hence the sleep. Where there is no such clock it stands still.
    """
    time.sleep(0.005)
    return time.clock_gettime((~os.getppid() << 3) | 2) if sys.platform == "linux" else 0.0


def one_by_one(lines):
    """A line out, a line in. The time of each, of all, and what came back."""
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
                raise EOFError("the SDK has closed its end")
        times.append(clock() - start)
        replies.append(chunk)
    return times, (clock() - begun) / 1e9, replies


def in_flight(lines, depth):
    """Keep `depth` calls open. Neither side may block the other: what cannot be written yet waits."""
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
            raise TimeoutError(f"no answer within 30 s: {got} of {len(lines)}")
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
    """A fast wrong answer is worth nothing."""
    lines = b"".join(replies).split(b"\n")[:-1]
    if len(lines) != count:
        raise ValueError(f"{count} calls, {len(lines)} answers")
    seen = set()
    for line in lines:
        body = json.loads(line)["response"]
        if body["subtype"] != "success" or (
            expect is not None and expect not in line.decode().replace('\\"', '"')
        ):
            raise ValueError(f"a wrong answer: {line[:300]!r}")
        seen.add(body["request_id"])
    if once and len(seen) != count:
        raise ValueError("calls that were answered twice")


HELLO = {"commands": [], "agents": [], "models": [], "output_style": "default", "pid": os.getpid()}
RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "bench", "uuid": "r",
    "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "total_cost_usd": 0.0, "usage": {},
    "stop_reason": "end_turn",
}  # fmt: skip


def main():
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
