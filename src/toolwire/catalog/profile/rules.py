"""Checks single settings of a profile, one function for each kind, with a message for what is wrong.

A check returns the value, or raises a ValueError whose text continues the name of the setting: "must be ...".
It knows neither the tables of a profile nor pydantic.
"""

import ipaddress
import re
from typing import Any, Final
from urllib.parse import urlsplit

from toolwire._support.addresses import is_loopback
from toolwire.errors import UsageError

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")
# Headers that the connection sets itself: a profile with these could talk to another host, or smuggle a request.
CONNECTION_HEADERS: Final = frozenset(
    {
        *(
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "upgrade",
            "te",
            "trailer",
            "keep-alive",
        ),
        *("proxy-authorization", "proxy-connection", "content-type", "content-encoding", "accept-encoding"),
        "expect",
    }
)
_SLASH: Final = re.compile(r"/|\\|%2f|%5c", re.IGNORECASE)
_MOST_TIMEOUT: Final = 24 * 3600
_MOST_KEY: Final = 200
_MOST_VALUE: Final = 4_000
_MOST_SHOWN: Final = 80


class ProfileError(UsageError):
    """A profile that cannot be used: the text says what is wrong, where, and what to do."""


def check_address(address: str, *, allow_http: bool = False) -> str:
    """Check a base URL: https, or plain http to this machine (or where it is allowed)."""
    words = f"must be an https address such as https://api.example.com, got {address[:200]!r}"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{words}: {error}") from error
    if not host or not _is_plain(address) or "\\" in address:
        raise ValueError(words)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password: those go into [secrets]")
    if parts.query or parts.fragment or "?" in address or "#" in address:
        raise ValueError(f"{words}: without a query or fragment")
    if parts.scheme not in ("http", "https"):
        raise ValueError(words)
    if parts.scheme == "http" and not allow_http and not is_loopback(host):
        raise ValueError(
            f"{words}: plain http is allowed to 127.0.0.1, ::1 and localhost only (or with network.allow_http)"
        )
    if parts.path.strip("/"):
        check_path(parts.path)
    return address


def check_proxy(address: str) -> str:
    """Check the URL of an HTTP proxy. It has no user: that comes from a variable."""
    if not address:
        return address
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.scheme not in ("http", "https") or not _is_plain(address) or parts.query:
        raise ValueError(f"must be the address of a proxy such as http://proxy:3128, got {address[:200]!r}")
    if parts.username is not None or parts.path.strip("/"):
        raise ValueError(
            "must be scheme, host and port alone: user and password go into network.proxy_variable"
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
    """Check the path of a URL: it must not climb."""
    if "?" in path:
        raise ValueError(f"must be a path alone: what follows the ? goes into query, got {path[:200]!r}")
    if not _PATH.fullmatch(path) or path.startswith("//"):
        raise ValueError(f"must be a path such as /products/fetch, got {path[:200]!r}")
    if climbs(path):
        raise ValueError(f"must not have . or .. in it, got {path[:200]!r}")
    return path


def check_call_path(path: str) -> str:
    """Check a path in which `{id}` may stand for the entry's id."""
    check_path(path.replace("{id}", "id"))
    return path


def check_header(name: str) -> str:
    """Check the name of a header: not one that belongs to the connection."""
    if not _HEADER.fullmatch(name):
        raise ValueError(f"must be the name of a header, and {name[:80]!r} is not the name of a header")
    if name.lower() in CONNECTION_HEADERS:
        raise ValueError(f"must not be {name}: {name} is set by the connection itself")
    return name


def is_header(name: str) -> bool:
    """True for the name of a header that does not belong to the connection."""
    return _HEADER.fullmatch(name) is not None and name.lower() not in CONNECTION_HEADERS


def is_header_value(value: str) -> bool:
    """True for text that cannot be more than the value of a header."""
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


def check_variable(name: str) -> str:
    """Check the name of an environment variable."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"must be the name of an environment variable, got {name[:80]!r}")
    return name


def check_template(template: str) -> str:
    """Check a template: text with `{value}` once."""
    if template.count("{value}") != 1 or not template.isprintable() or not template.isascii():
        raise ValueError("must have {value} once, such as 'Bearer {value}'")
    return template


def check_seconds(value: Any) -> float:
    """Check a number of seconds."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= _MOST_TIMEOUT:
        raise ValueError(f"must be seconds, over 0 and at most a day, got {show_value(value)}")
    return float(value)


def check_status(value: Any) -> int:
    """Check an HTTP status."""
    if type(value) is not int or not 100 <= value <= 599:  # noqa: PLR2004 - as HTTP has them
        raise ValueError(f"must be an HTTP status such as 404, got {show_value(value)}")
    return value


def check_rate(value: Any) -> float:
    """Check the dollars that one unit of money is worth."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1_000_000:  # noqa: PLR2004
        raise ValueError(
            "must be dollars, cents, micros, or the dollars that one unit is worth such as 0.01, "
            f"got {show_value(value)}"
        )
    return float(value)


def show_value(value: Any) -> str:
    """Format a value of a profile for a message, cut."""
    try:
        return repr(value)[:_MOST_SHOWN]
    except (ValueError, RecursionError):  # a number with too many digits, tables inside of tables without end
        return f"a {type(value).__name__} that is too large to be shown"


def climbs(path: str) -> bool:
    """True if a path has a step `.` or `..`, in whatever spelling: for some servers an encoded slash is a slash."""
    return any(step.lower().replace("%2e", ".") in (".", "..") for step in _SLASH.split(path))


def _is_plain(address: str) -> bool:
    return address.isascii() and address.isprintable() and " " not in address
