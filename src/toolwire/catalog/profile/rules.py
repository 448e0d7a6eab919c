"""Checks single settings of a profile, one function for each kind, with a message for what is wrong.

A check returns the value, or raises a ValueError whose text follows the name of the setting: "must be ...".
Knows neither the tables of a profile nor pydantic.
"""

import ipaddress
import re
from typing import Any, Final
from urllib.parse import urlsplit

from toolwire._support.addresses import is_loopback
from toolwire.errors import UsageError

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")
# Headers that the connection sets itself: a profile could use them to reach another host or to smuggle a request.
CONNECTION_HEADERS: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"),
        *("proxy-authorization", "proxy-connection", "content-type", "content-encoding", "accept-encoding"),
        "keep-alive",
    }
)
_SLASH: Final = re.compile(r"/|\\|%2f|%5c", re.IGNORECASE)
_MOST_KEY: Final = 200
_MOST_VALUE: Final = 4_000
_MOST_SHOWN: Final = 80


class ProfileError(UsageError):
    """A profile is invalid. The message says what is wrong, where, and what to do."""


def check_address(address: str, *, allow_http: bool = False) -> str:
    """Check a base URL: https, or plain http to this machine (or to any, with `allow_http`)."""
    expected = f"must be an https address such as https://api.example.com, got {address[:200]!r}"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{expected}: {error}") from error
    if not host or not is_plain(address):
        raise ValueError(expected)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user or password: those belong in [secrets]")
    if parts.query or parts.fragment or "?" in address or "#" in address:
        raise ValueError(f"{expected}: without a query or fragment")
    if parts.scheme not in ("http", "https"):
        raise ValueError(expected)
    if parts.scheme == "http" and not allow_http and not is_loopback(host):
        raise ValueError(
            f"{expected}: plain http is allowed only to 127.0.0.1, ::1 and localhost (or with network.allow_http)"
        )
    if parts.path.strip("/"):
        check_path(parts.path)
    return address


def check_proxy(address: str) -> str:
    """Check the URL of an HTTP proxy. User and password come from an environment variable."""
    if not address:
        return address
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.scheme not in ("http", "https") or not is_plain(address) or parts.query:
        raise ValueError(f"must be the address of a proxy such as http://proxy:3128, got {address[:200]!r}")
    if parts.username is not None or parts.path.strip("/"):
        raise ValueError(
            "must be only scheme, host and port: user and password belong in network.proxy_variable"
        )
    return address


def check_network(text: str) -> str:
    """Check an IP address or network."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"must be an IP address or a network such as 10.0.0.0/8, got {text[:80]!r}"
        ) from None
    return text


def check_path(path: str) -> str:
    """Check the path of a URL: it must not contain `.` or `..`."""
    if "?" in path:
        raise ValueError(f"must be only a path: the part after the ? belongs in query, got {path[:200]!r}")
    if not _PATH.fullmatch(path) or path.startswith("//"):
        raise ValueError(f"must be a path such as /products/fetch, got {path[:200]!r}")
    if climbs(path):
        raise ValueError(f"must not contain . or .. as a step, got {path[:200]!r}")
    return path


def check_call_path(path: str) -> str:
    """Check a path that may contain `{id}` for the entry's id."""
    check_path(path.replace("{id}", "id"))
    return path


def check_header(name: str) -> str:
    """Check the name of a header. Those that the connection sets itself are rejected."""
    if not _HEADER.fullmatch(name):
        raise ValueError(f"must be the name of a header, got {name[:80]!r}")
    if name.lower() in CONNECTION_HEADERS:
        raise ValueError(f"must not be {name}, which the connection sets itself")
    return name


def is_header(name: str) -> bool:
    """True for a valid header name that the connection does not set itself."""
    return _HEADER.fullmatch(name) is not None and name.lower() not in CONNECTION_HEADERS


def is_header_value(value: str) -> bool:
    """True for text that is safe as the value of a header: it cannot inject another one."""
    return bool(value) and value.isascii() and value.isprintable() and value == value.strip()


def check_header_value(value: str) -> str:
    """Check the value of a header: printable ASCII without spaces around it."""
    if not is_header_value(value):
        raise ValueError(f"must be printable ASCII without spaces around it, got {value[:80]!r}")
    if len(value) > _MOST_VALUE:
        raise ValueError(f"must have at most {_MOST_VALUE} characters")
    return value


def check_key(name: str) -> str:
    """Check the name of a query parameter, or a key of a body."""
    if not name or not name.isprintable() or len(name) > _MOST_KEY:
        raise ValueError(f"must be a name, got {name[:80]!r}")
    return name


def check_template(template: str) -> str:
    """Check a template: a text that contains `{value}` once."""
    if template.count("{value}") != 1 or not template.isprintable() or not template.isascii():
        raise ValueError("must contain {value} once, such as 'Bearer {value}'")
    return template


def show_value(value: Any) -> str:
    """Format a value of a profile for a message, shortened."""
    try:
        return repr(value)[:_MOST_SHOWN]
    except (ValueError, RecursionError):  # a number with too many digits, or a table nested inside itself
        return f"a {type(value).__name__} that is too large to be shown"


def climbs(path: str) -> bool:
    """True if a path has a step `.` or `..`, encoded or not: some servers treat an encoded slash as a slash."""
    return any(step.lower().replace("%2e", ".") in (".", "..") for step in _SLASH.split(path))


def is_plain(text: str) -> bool:
    """True if a text has only characters that may be in a URL: ASCII without spaces, controls and backslashes."""
    return text.isascii() and text.isprintable() and " " not in text and "\\" not in text
