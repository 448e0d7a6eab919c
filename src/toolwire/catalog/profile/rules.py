"""The smaller parts of a profile, and what a setting may be: one check each, and the words for what is wrong."""

import difflib
import ipaddress
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import urlsplit

from toolwire.errors import UsageError

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")
# What the connection itself owns: a profile that set these could talk to somebody else, or smuggle a request.
_NOT_HEADERS: Final = {
    *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "keep-alive"),
    *(
        "proxy-authorization",
        "proxy-connection",
        "content-type",
        "content-encoding",
        "accept-encoding",
        "expect",
    ),
}
_MOST_PAGE: Final = 10_000
_LONGEST_TIMEOUT: Final = 24 * 3600


class ProfileError(UsageError):
    """A profile that cannot be used: the text says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class ListParams:
    """How the pages of the list are asked for: `?page=1&page_size=100`. An empty name leaves that parameter out."""

    page: str = "page"
    size: str = "page_size"
    page_size: int = 100
    first_page: int = 1


@dataclass(frozen=True)
class Secret:
    """One secret that goes into a header."""

    variable: str
    """The environment variable that holds it."""
    name: str = ""
    """Its name in a credentials file; empty: the variable's name, in small letters."""
    template: str = "{value}"
    """What the header says, such as `Bearer {value}`."""

    @property
    def file_name(self) -> str:
        """The name by which a credentials file has it."""
        return self.name or self.variable.lower()


def _is_statuses(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and all(
        type(each) is int and 100 <= each <= 599  # noqa: PLR2004 - as HTTP has them
        for each in value
    )


def _is_seconds(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 < value <= _LONGEST_TIMEOUT


_KINDS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "": (lambda _: True, ""),
    "text": (lambda value: isinstance(value, str), "text"),
    "true or false": (lambda value: isinstance(value, bool), "true or false"),
    "whole number": (lambda value: type(value) is int and value > 0, "a whole number over 0"),
    "whole number from 0": (lambda value: type(value) is int and value >= 0, "a whole number from 0"),
    "seconds": (_is_seconds, "seconds, over 0 and at most a day"),
    "table": (
        lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
        "a table with names as keys",
    ),
    "statuses": (_is_statuses, "a list of HTTP statuses such as [400, 404]"),
}


def check_type(value: Any, kind: str, where: str) -> None:
    """Refuse a value of another kind."""
    fits, words = _KINDS[kind]
    if not fits(value):
        raise ProfileError(f"{where} must be {words}, got {repr(value)[:80]}")


def check_keys(data: Mapping[Any, Any], allowed: Collection[str], where: str) -> None:
    """Refuse a setting that does not exist, with the nearest that does."""
    for key in data:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(allowed)}"
            raise ProfileError(f"{where}: there is no setting {str(key)[:80]!r}: {hint}")


def check_address(address: str) -> None:
    """Refuse a base URL to which secrets must not be sent: https, or plain http to this machine only."""
    what = f"base_url must be an https address such as https://api.example.com, got {address[:200]!r}"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ProfileError(f"{what}: {error}") from error
    if not host or not address.isascii() or not address.isprintable() or " " in address or "\\" in address:
        raise ProfileError(what)
    if parts.username is not None or parts.password is not None:
        raise ProfileError(
            "base_url must not hold a user or password: secrets go into headers, see `secrets`"
        )
    if parts.query or parts.fragment or "?" in address or "#" in address:
        raise ProfileError(f"{what}: without a query or fragment")
    if parts.scheme == "http" and not _is_loopback(host):
        raise ProfileError(f"{what}: plain http is allowed to 127.0.0.1, ::1 and localhost only")
    if parts.scheme not in ("http", "https"):
        raise ProfileError(what)
    if parts.path.strip("/"):
        check_path(parts.path, "the path of base_url")


def check_path(path: str, where: str) -> None:
    """Refuse a path that is none, or that climbs."""
    if not _PATH.fullmatch(path) or path.startswith("//"):
        raise ProfileError(f"{where} must be a path such as /products/fetch, got {path[:200]!r}")
    if _climbs(path.split("/")):
        raise ProfileError(f"{where} must not have . or .. in it, got {path[:200]!r}")


def check_header(name: str, where: str) -> None:
    """Refuse what is no name of a header, and headers that the connection owns."""
    if not _HEADER.fullmatch(name):
        raise ProfileError(f"{where}: {name[:80]!r} is not the name of a header")
    if name.lower() in _NOT_HEADERS:
        raise ProfileError(f"{where}: {name} is set by the connection itself, a profile may not")


def check_variable(name: str, where: str) -> None:
    """Refuse what is no name of an environment variable."""
    if not _VARIABLE.fullmatch(name):
        raise ProfileError(f"{where} must be the name of an environment variable, got {name[:80]!r}")


def check_secret(header: str, secret: Any) -> None:
    """Refuse a secret that cannot be found or put into its header."""
    where = f"secrets.{header}"
    check_header(header, where)
    if not isinstance(secret, Secret):
        raise ProfileError(f"{where} must be a Secret, got {type(secret).__name__}")
    for each in fields(secret):
        check_type(getattr(secret, each.name), "text", f"{where}.{each.name}")
    check_variable(secret.variable, f"{where}.variable")
    if secret.template.count("{value}") != 1 or not secret.template.isprintable():
        raise ProfileError(f"{where}.template must have {{value}} once, such as 'Bearer {{value}}'")


def check_paging(params: Any) -> None:
    """Refuse parameters that ask for no pages."""
    if not isinstance(params, ListParams):
        raise ProfileError(f"list_params must be ListParams, got {type(params).__name__}")
    for each in ("page", "size"):
        check_type(getattr(params, each), "text", f"list_params.{each}")
    for each in ("page_size", "first_page"):
        check_type(getattr(params, each), "whole number from 0", f"list_params.{each}")
    if not 1 <= params.page_size <= _MOST_PAGE:
        raise ProfileError(f"list_params.page_size must be 1 to {_MOST_PAGE}, got {params.page_size}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _climbs(steps: Iterable[str]) -> bool:
    return any(step.lower().replace("%2e", ".") in (".", "..") for step in steps)
