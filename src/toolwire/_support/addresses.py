"""Recognises the hosts that are this machine. No name is looked up."""

import ipaddress
from typing import Final

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""The usual names of this machine."""


def is_loopback(host: str) -> bool:
    """True if a host can only be this machine: `localhost`, 127.0.0.0/8 or ::1, in brackets or not."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
