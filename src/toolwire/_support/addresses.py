"""Recognises loopback hosts, without looking up any name."""

import ipaddress
from typing import Final

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""The usual names of this machine."""


def is_loopback(host: str) -> bool:
    """Return True if a host always means this machine: `localhost`, 127.0.0.0/8 or ::1, in brackets or not."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
