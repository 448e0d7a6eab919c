"""The ways in which `paid_api.py` can misbehave: a named fault for every point of a request.

A fault stays in `api.faults` until a request to its path triggers it. Those in BEFORE happen before anything is
bought; those in AFTER happen when the money has been taken and only the reply can still go wrong.
"""

import json
import os
import socket
import struct
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from threading import Event

BEFORE = {"reset_before_buying", "hang_before_buying", "status_before_buying", "redirect"}
REPLIES = {"half_reply", "garbage", "oversized", "wrong_type", "drip", "close_idle"}
AFTER = {"reset_after_buying", "hang_after_buying", "status_after_buying"} | REPLIES


@dataclass
class Fault:
    """One thing that goes wrong, `times` times, with requests to `path`."""

    kind: str
    path: str = "/products/purchase"
    times: int = 1
    seconds: float = 60.0  # how long to hang, or to wait between two bytes of a dripping reply
    status: int = 503
    retry_after: str = ""
    to: str = "http://127.0.0.1:9/elsewhere"
    size: int = 50_000_000

    def __post_init__(self) -> None:
        """Refuse an unknown kind: a test with a misspelled fault would test nothing."""
        if self.kind not in (known := BEFORE | AFTER | {"reset_on_connect"}):
            raise ValueError(f"There is no fault {self.kind!r}. Known: {', '.join(sorted(known))}")


def strike(fault: Fault, handler: BaseHTTPRequestHandler, closing: Event, reply: bytes) -> bool:
    """Carry out a fault. Returns False if the request then continues normally."""
    if fault.kind.startswith("hang"):
        # Then it buys or replies all the same, though the caller may have disconnected, as real servers do.
        return closing.wait(fault.seconds)
    if fault.kind.startswith("reset"):
        reset(handler)
    elif fault.kind.startswith("status"):
        body = json.dumps({"success": False, "error": f"fault: {fault.status}"}).encode()
        send(
            handler, fault.status, body, extra={"Retry-After": fault.retry_after} if fault.retry_after else {}
        )
    elif fault.kind == "redirect":
        send(handler, 307, b"{}", extra={"Location": fault.to})
    else:
        spoil(fault, handler, closing, reply)
    return True


def spoil(fault: Fault, handler: BaseHTTPRequestHandler, closing: Event, reply: bytes) -> None:
    """Send the reply to a purchase that was charged, with a defect."""
    if fault.kind == "half_reply":
        send(handler, 200, reply, cut=len(reply) // 2)
        reset(handler)
    elif fault.kind == "garbage":
        send(handler, 200, b'{"success": tru\x00\xff garbage')
    elif fault.kind == "wrong_type":
        send(handler, 200, b"<html>" + reply + b"</html>", kind="text/html")
    elif fault.kind == "oversized":
        send(handler, 200, b'{"success": true, "result": "' + b"x" * fault.size + b'"}')
    elif fault.kind == "drip":
        send(handler, 200, reply, cut=0)
        for byte in reply:
            if not closing.wait(fault.seconds):
                handler.wfile.write(bytes([byte]))
    else:  # close_idle: the reply is good and announces keep-alive, but the connection is closed
        send(handler, 200, reply)
        handler.close_connection = True


def reset(handler: BaseHTTPRequestHandler) -> None:
    """Reset the connection, instead of closing it in an orderly way."""
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(handler.connection.detach())


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    *,
    kind: str = "application/json",
    extra: dict[str, str] | None = None,
    cut: int | None = None,
) -> None:
    """Write an HTTP reply: all of it, or its head and the first `cut` bytes of the body."""
    handler.send_response(status)
    for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(extra or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body[:cut])
