"""Builds the requests that a profile describes: a page of the list, an order, the balance. Pure: sends nothing.

A request contains no secrets; `add_credentials` adds them just before it is sent.

The arguments of a GET call go into the query: text unchanged, numbers as JSON, booleans as `true` and `false`, null
is left out, a list of such values repeats its name (`tag=a&tag=b`), and anything nested is JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

from toolwire._protocol.json_codec import dumps
from toolwire.catalog.profile.model import Profile
from toolwire.catalog.profile.rules import climbs, is_plain
from toolwire.catalog.profile.tables import Balance, Call, ListRequest
from toolwire.catalog.secrets import Credentials
from toolwire.errors import CatalogError

DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_JSON: Final = "application/json"
_LONGEST_TARGET: Final = 32 * 1024
_ACCEPT: Final = {"json": _JSON, "text": "text/*, application/json;q=0.9", "binary": "*/*"}


@dataclass(frozen=True)
class OutgoingRequest:
    """One HTTP request, without secrets and without the base URL."""

    method: str
    target: str
    """The path below the base URL, and the query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Position:
    """The position of a page in the list."""

    number: int = 1
    """The number of the page, counted from 1."""
    value: int | str | None = None
    """The page, offset or cursor to request; None if no parameter is sent."""
    target: str = ""
    """The path and query of the API's link to this page."""


def page_request(profile: Profile, position: Position) -> OutgoingRequest:
    """Build the request for a page of the list."""
    paging = profile.list.paging
    where: dict[str, Any] = {}
    if position.value is not None and paging.kind in ("page", "offset", "cursor"):
        where[paging.parameter_name] = position.value
    if paging.size_parameter and paging.kind != "none":
        where[paging.size_parameter] = paging.size
    in_body = paging.place == "body"
    request = _request(
        profile,
        profile.list,
        query={} if in_body else {name: str(value) for name, value in where.items()}.items(),
        fields={**profile.list.body, **(where if in_body else {})},
    )
    return (
        replace(request, target=_drop_secret_parameters(profile, position.target))
        if position.target
        else request
    )


def order_request(
    profile: Profile, entry_id: str | int, arguments: Mapping[str, Any], key: str
) -> OutgoingRequest:
    """Build the request that buys a call. CatalogError if arguments are not JSON, or clash with fixed fields."""
    call = profile.call
    path = call.path.replace("{id}", _encode_path_step(entry_id)) if "{id}" in call.path else call.path
    query: list[tuple[str, str]] = list(call.stream_query.items()) if call.streams else []
    fields: dict[str, Any] = {}
    if call.method == "GET":
        query += _query_fields(profile, entry_id, arguments, key)
    else:
        fields = _body_fields(profile, entry_id, arguments, key)
    accept = _ACCEPT[profile.reply.kind]
    extra = {"Accept": f"text/event-stream, {accept}" if call.streams else accept}
    if call.method == "GET":
        extra["Cache-Control"] = "no-store"  # a paid result must not come from a cache on the way
    if call.idempotency_header:
        extra[call.idempotency_header] = key
    request = _request(profile, call, path, query=query, fields=fields, headers=extra)
    if len(request.target) > _LONGEST_TARGET:
        raise CatalogError(
            f"the request is too long: its path and query have {len(request.target):,} characters, "
            f"at most {_LONGEST_TARGET:,} are allowed"
        )
    return request


def balance_request(profile: Profile) -> OutgoingRequest:
    """Build the request for the balance. CatalogError if the profile has no [balance]."""
    balance = profile.balance
    if balance is None:
        raise CatalogError(f"profile {profile.name} has no [balance], so the balance cannot be fetched")
    return _request(profile, balance, fields=dict(balance.body))


def add_credentials(request: OutgoingRequest, credentials: Credentials) -> OutgoingRequest:
    """Add the secrets to a request. The returned request must never be shown."""
    target = request.target
    if credentials.query:
        target += ("&" if "?" in target else "?") + urlencode(credentials.query)
    return replace(request, target=target, headers={**request.headers, **credentials.headers})


def next_link(profile: Profile, link: str, current: str) -> str:
    """Return path (below the base URL) and query of a link to the next page. CatalogError if it leads elsewhere.

    `current` is the target of the page with the link: a link may be relative to it.
    """
    base = profile.base_url.rstrip("/")
    base_path = urlsplit(base).path
    try:
        steps = urlsplit(link.strip()).path  # `urljoin` would resolve . and ..
        found = urlsplit(urljoin(base + current, link.strip()))
    except ValueError:
        raise CatalogError(
            "the link to the next page is not a valid URL, so the rest of the list cannot be read"
        ) from None
    if not same_origin(found.geturl(), base):
        raise CatalogError(
            f"the link to the next page leads to {str(found.hostname)[:100]}, which is not the API's origin: it is "
            "not followed"
        )
    path = found.path
    inside = path == base_path or path.startswith(f"{base_path}/")
    if not inside or climbs(steps) or not is_plain(path):
        raise CatalogError(
            f"the link to the next page leads to {path[:100]!r}, outside base_url: it is not followed"
        )
    if len(link) > _LONGEST_TARGET:
        raise CatalogError(
            f"the link to the next page is too long ({len(link):,} characters): it is not followed"
        )
    if not is_plain(found.query):
        raise CatalogError(
            "the link to the next page has characters that a URL cannot contain: it is not followed"
        )
    return path.removeprefix(base_path) + (f"?{found.query}" if found.query else "")


def same_origin(one: str, other: str) -> bool:
    """True if two URLs have the same scheme, host and port."""
    return _origin(one) == _origin(other)


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return parts.scheme, parts.hostname or "", port


def write_json(value: Any) -> bytes:
    """Encode a value as JSON, with integers of any size. CatalogError if it is not JSON."""
    try:
        return dumps(value)
    except (TypeError, ValueError) as error:
        raise CatalogError(f"the arguments cannot be sent: {error}") from None


def _request(
    profile: Profile,
    table: ListRequest | Call | Balance,
    path: str = "",
    *,
    query: Iterable[tuple[str, str]] = (),
    fields: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> OutgoingRequest:
    fixed = {**profile.request.query, **table.query}
    pairs = [*fixed.items(), *query]
    path = path or table.path
    target = f"{path}?{_encode_query(pairs)}" if pairs else path
    made = _merge_headers({"Accept": _JSON}, headers or {}, profile.request.headers, table.headers)
    content = b""
    if table.method != "GET":
        content = write_json(fields or {})
        made["Content-Type"] = _JSON
    return OutgoingRequest(table.method, target, made, content)


def _merge_headers(*tables: Mapping[str, str]) -> dict[str, str]:
    """Merge headers; a later one replaces an earlier one, whatever the case of their names."""
    made: dict[str, tuple[str, str]] = {}
    for table in tables:
        made.update({name.lower(): (name, value) for name, value in table.items()})
    return dict(made.values())


def _query_fields(
    profile: Profile, entry_id: str | int, arguments: Mapping[str, Any], key: str
) -> list[tuple[str, str]]:
    call = profile.call
    own = {
        name: value for name, value in ((call.id_field, str(entry_id)), (call.request_id_field, key)) if name
    }
    if call.arguments:
        given: Mapping[str, Any] = {call.arguments: dict(arguments)}
    else:
        taken = {*own, *profile.request.query, *call.query, *_secret_keys(profile)}
        taken |= call.stream_query.keys() if call.streams else set()
        _refuse_clash(arguments, taken)
        given = arguments
    return [*own.items(), *((name, text) for name, value in given.items() for text in _query_texts(value))]


def _body_fields(
    profile: Profile, entry_id: str | int, arguments: Mapping[str, Any], key: str
) -> dict[str, Any]:
    call = profile.call
    own = {call.id_field: entry_id, call.request_id_field: key}
    body: dict[str, Any] = _copy_table(call.body)
    for name, value in own.items():
        if name:
            _put(body, name, value)
    if call.arguments:
        _put(body, call.arguments, dict(arguments))
    else:
        _refuse_clash(arguments, body)
        body.update(arguments)
    return body


def _put(body: dict[str, Any], path: str, value: Any) -> None:
    *steps, last = path.split(".")
    for step in steps:
        inner = body.setdefault(step, {})
        if not isinstance(inner, dict):
            raise CatalogError(
                f"call.body of the profile has a value at {step!r}, but {path!r} needs a table there"
            )
        body = inner
    body[last] = value


def _copy_table(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy_table(value) if isinstance(value, Mapping) else value for key, value in table.items()}


def _refuse_clash(arguments: Mapping[str, Any], taken: Iterable[str]) -> None:
    if clash := sorted(arguments.keys() & set(taken)):
        raise CatalogError(
            f"the argument {clash[0]!r} has the same name as a field that the profile sets itself, so the call "
            "cannot be sent. Set call.arguments in the profile, or leave the argument out"
        )


def _query_texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)) and not any(
        isinstance(each, (Mapping, list, tuple)) for each in value
    ):
        return [_query_text(each) for each in value if each is not None]
    return [_query_text(value)]


def _query_text(value: Any) -> str:
    return value if isinstance(value, str) else write_json(value).decode()


def _encode_query(pairs: Iterable[tuple[str, str]]) -> str:
    try:
        return urlencode(list(pairs))
    except UnicodeEncodeError:
        raise CatalogError(
            "the arguments contain half of a surrogate pair, which is not valid text"
        ) from None


def _encode_path_step(entry_id: str | int) -> str:
    """Encode an id as one step of a path, so that it can neither leave nor end the path."""
    text = str(entry_id)
    if not text or climbs(text):
        raise CatalogError(f"the id {text[:80]!r} cannot be a part of a path, so nothing was sent")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise CatalogError("the id contains half of a surrogate pair, which is not valid text") from None


def _secret_keys(profile: Profile) -> set[str]:
    return {each.key for each in profile.secrets.values() if each.place == "query"}


def _drop_secret_parameters(profile: Profile, target: str) -> str:
    """Drop query parameters with our secrets from a link: an API may repeat them, and they are added later."""
    keys = _secret_keys(profile)
    path, mark, query = target.partition("?")
    if not mark or not keys:
        return target
    kept = [pair for pair in query.split("&") if not keys & {name for name, _ in parse_qsl(pair, True)}]
    return f"{path}?{'&'.join(kept)}" if kept else path
