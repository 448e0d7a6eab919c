"""Transports of the kinds that public test suites have: they replay frames, and record every call.

`replay_class` makes a subclass for either package, so that the same transport runs on both.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio

Frame = dict[str, Any]


class Replay:
    """A transport that accepts control requests and answers each prompt with its frames. Subclasses override that.

    `calls` has the names of the calls in their order; a write is recorded with the kind of its frame, a read when
    it begins.
    """

    def __init__(self, *frames: Frame, **more: Any) -> None:
        self.calls: list[str] = []
        self.written: list[Frame] = []
        self.lines: list[str] = []
        self.frames = list(frames)  # the answer to a prompt
        self.changed = anyio.Event()
        self.ended = False
        self.__dict__.update(more)

    async def connect(self) -> None:
        self.calls.append("connect")

    async def write(self, data: str) -> None:
        frame = json.loads(data)
        request = frame.get("request") or {}
        self.calls.append(f"write {request.get('subtype') or frame['type']}")
        self.lines.append(data)
        self.written.append(frame)
        self.notify()

    def read_messages(self) -> AsyncIterator[Frame]:
        self.calls.append("read_messages")
        return self.play()

    async def play(self) -> AsyncIterator[Frame]:
        """Answer each written frame, until the input has ended."""
        answered = 0
        while True:
            while answered < len(self.written):
                frame = self.written[answered]
                answered += 1
                for answer in self.answers(frame):
                    yield answer
            if self.ended:
                return
            await self.changed.wait()

    def answers(self, frame: Frame) -> list[Frame]:
        if frame["type"] == "control_request":
            return [accepted(frame)]
        return self.frames if frame["type"] == "user" else []

    def notify(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    async def end_input(self) -> None:
        self.calls.append("end_input")
        self.ended = True
        self.notify()

    async def close(self) -> None:
        self.calls.append("close")
        self.ended = True
        self.notify()

    def is_ready(self) -> bool:
        self.calls.append("is_ready")
        return True


def replay_class(sdk: Any, kind: type[Replay] = Replay) -> Callable[..., Any]:
    """Make a subclass of the package's own `Transport` that replays."""
    return type(kind.__name__, (kind, sdk.Transport), {})


def accepted(request: Frame, **response: Any) -> Frame:
    """Return a successful control response to a request."""
    body = {"subtype": "success", "request_id": request["request_id"], "response": response}
    return {"type": "control_response", "response": body}


def said(text: str) -> Frame:
    """Return an assistant message."""
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "model": "m", "content": content}}


def done(text: str = "done", **more: Any) -> Frame:
    """Return a result message."""
    base = {"subtype": "success", "is_error": False, "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
    return {"type": "result", "session_id": "s", "result": text, **base, **more}


def system(subtype: str, **more: Any) -> Frame:
    """Return a system message."""
    return {"type": "system", "subtype": subtype, **more}
