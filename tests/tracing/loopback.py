"""Once imported, refuses every address but those of this machine (`pytest -p loopback`)."""

import socket
import sys

refused: list[str] = []
"""What was tried."""


def _refuse_others(event: str, arguments: tuple) -> None:
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in {"socket.connect", "socket.sendto"}:
        made, address = arguments
        if made.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        host = address[0]
    else:
        return
    if host not in {"127.0.0.1", "::1", "localhost", None}:
        refused.append(f"{event} {host}")
        raise PermissionError(f"only loopback is allowed here, not {host}")


sys.addaudithook(_refuse_others)
