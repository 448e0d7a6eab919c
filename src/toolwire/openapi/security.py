"""The credentials of an API: which ones an operation needs, where they come from, and how they are sent.

They come from the caller, the environment or a file that only its owner can read; never from a model, and never
from the document. An operation's requirements are alternatives, each of one or more schemes: the first one with all
its credentials present is used. An OAuth2 token (client credentials) is fetched when it is first needed and again
before it expires. Its endpoint is set by the caller, or taken from the document if it is on the origin of the API
itself.
"""

import base64
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, quote_plus, urlencode

import anyio

from toolwire._protocol.json_codec import loads
from toolwire._support.scrubber import Scrubber
from toolwire._support.secrets import keep_secret
from toolwire._support.words import closest
from toolwire.catalog.http.answers import is_success
from toolwire.catalog.http.connection import check_value
from toolwire.catalog.http.requests import OutgoingRequest, same_origin
from toolwire.catalog.profile.rules import is_header
from toolwire.catalog.secrets import read_credentials_file
from toolwire.errors import CatalogError, UsageError
from toolwire.openapi.document import Document, Unusable, as_object
from toolwire.openapi.http import Limits, Response
from toolwire.openapi.operations import Requirement

Kind = Literal["apiKey", "basic", "bearer", "unsupported"]
SendTokenRequest = Callable[[str, OutgoingRequest, Limits], Awaitable[Response]]
"""Sends a request to the URL of a token endpoint."""

VARIABLE: Final = "TOOLWIRE_AUTH_"
"""The prefix of a scheme's environment variable; the name of the scheme in capitals follows."""
_TOKEN_LIMITS: Final = Limits(timeout=20.0, most_bytes=64 * 1024)
_MARGIN: Final = 30.0  # seconds before its expiry at which a token is replaced
_DEFAULT_LIFETIME: Final = 300.0  # of a token whose response does not say
_MOST_TOKENS: Final = 8  # the latest tokens, which are removed from all texts


@dataclass(frozen=True)
class ClientCredentials:
    """An OAuth2 client: `ClientCredentials("id", "secret", token_url="https://...", scopes=["read"])`."""

    client_id: str
    client_secret: str = field(repr=False)
    token_url: str = ""
    """If empty, the document's token endpoint is used; it must be on the origin of the API."""
    scopes: Sequence[str] = ()
    in_body: bool = False
    """True to send id and secret in the body instead of a header."""


Auth = str | tuple[str, str] | ClientCredentials | Mapping[str, Any]
"""The credentials for one scheme: a key or token, user and password, or an OAuth2 client."""


@dataclass(frozen=True)
class Scheme:
    """A security scheme of a document."""

    name: str
    kind: Kind
    place: str = "header"
    key: str = "Authorization"
    token_url: str = ""
    """The token endpoint for OAuth2 client credentials."""
    type_name: str = ""
    """The type of the scheme, as the document names it."""

    @property
    def variable(self) -> str:
        """The environment variable for its credentials."""
        return VARIABLE + re.sub(r"[^A-Z0-9]+", "_", self.name.upper()).strip("_")


@dataclass
class RequestCredentials:
    """The headers, query parameters and cookies that credentials add to a request."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: dict[str, str] = field(default_factory=dict, repr=False)
    cookies: dict[str, str] = field(default_factory=dict, repr=False)
    tokens: dict[str, str] = field(default_factory=dict, repr=False)
    """The access tokens among them, by scheme name."""


def read_schemes(document: Document) -> dict[str, Scheme]:
    """Read the security schemes of a document, by name."""
    if document.version == "2.0":
        table = document.data.get("securityDefinitions")
    else:
        table = as_object(document.data.get("components")).get("securitySchemes")
    found = {}
    for name, given in as_object(table).items():
        try:
            definition, _ = document.follow(given)
        except Unusable:
            continue
        if isinstance(definition, Mapping):
            found[str(name)] = _read_scheme(str(name), definition)
    return found


def find_key_places(schemes: Mapping[str, Scheme]) -> set[tuple[str, str]]:
    """Return where API keys go, as place and name; the names of headers are in lower case."""
    keys = [each for each in schemes.values() if each.kind == "apiKey"]
    return {(each.place, each.key.lower() if each.place == "header" else each.key) for each in keys}


def _read_scheme(name: str, definition: Mapping[str, Any]) -> Scheme:
    kind, http_scheme = str(definition.get("type", "")), str(definition.get("scheme", "")).lower()
    if kind == "apiKey":
        key, place = definition.get("name"), definition.get("in")
        valid = isinstance(key, str) and key and place in ("header", "query", "cookie")
        if not valid or (place == "header" and not is_header(str(key))):
            return Scheme(name, "unsupported", type_name=f"apiKey in {place!r}")
        return Scheme(name, "apiKey", str(place), str(key), type_name="apiKey")
    if kind == "basic" or (kind == "http" and http_scheme == "basic"):
        return Scheme(name, "basic", type_name="basic")
    if kind == "http" and http_scheme == "bearer":
        return Scheme(name, "bearer", type_name="bearer")
    if kind in ("oauth2", "openIdConnect"):
        return Scheme(name, "bearer", token_url=_token_url(definition), type_name=kind)
    type_name = " ".join(filter(None, (kind, http_scheme))) or "without a type"
    return Scheme(name, "unsupported", type_name=type_name)


def _token_url(definition: Mapping[str, Any]) -> str:
    flow = as_object(definition.get("flows")).get("clientCredentials")
    if not isinstance(flow, Mapping):
        flow = definition if definition.get("flow") == "application" else {}  # Swagger 2
    url = flow.get("tokenUrl")
    return url if isinstance(url, str) else ""


def find_auth(
    schemes: Mapping[str, Scheme],
    auth: Mapping[str, Auth] | str | None,
    environ: Mapping[str, str],
    file: str | Path | None,
) -> dict[str, Auth]:
    """Find the credentials of schemes: in `auth`, else in the environment, else in the file."""
    if isinstance(auth, str):
        usable = [name for name, scheme in schemes.items() if scheme.kind != "unsupported"]
        if len(usable) != 1:
            known = ", ".join(usable) or "none"
            raise UsageError(
                f"auth must name its security scheme, as in auth={{NAME: ...}}: the document has {known}"
            )
        auth = {usable[0]: auth}
    given: dict[str, Auth] = dict(auth or {})
    for name in given:
        if name not in schemes:
            near = closest(name, schemes)
            hint = f"; did you mean {near}?" if near else f": it has {', '.join(schemes) or 'none'}"
            raise UsageError(
                f"auth has credentials for {name!r}, but the document has no such security scheme{hint}"
            )
    stored = read_credentials_file(Path(file)) if file is not None else {}
    for name, scheme in schemes.items():
        if name not in given and scheme.kind != "unsupported":
            found = _look_up(scheme, environ, stored)
            if found is not None:
                given[name] = found
    return given


def _look_up(scheme: Scheme, environ: Mapping[str, str], stored: Mapping[str, Any]) -> Auth | None:
    def get(ending: str) -> str:
        own = environ.get(f"{scheme.variable}{ending.upper()}", "")
        return (own or str(stored.get(f"{scheme.name}{ending}", ""))).strip()

    if value := get(""):
        return value
    identity, secret = get("_client_id"), get("_client_secret")
    if not identity and not secret:
        return None
    if not identity or not secret:
        raise UsageError(
            f"set both {scheme.variable}_CLIENT_ID and {scheme.variable}_CLIENT_SECRET: one of them is missing"
        )
    return ClientCredentials(identity, secret, get("_token_url"), tuple(get("_scopes").split()))


class Credentials:
    """The credentials of one API, ready to be sent."""

    def __init__(
        self,
        schemes: Mapping[str, Scheme],
        auth: Mapping[str, Auth],
        headers: Mapping[str, str],
        base_url: str | None,
    ) -> None:
        self._schemes = schemes
        self._fixed = dict(headers)
        self._secrets: list[str] = []
        for name, value in headers.items():
            if not is_header(name):
                raise UsageError(f"headers must not have {name!r}: the connection sets that itself")
            check_value(name, value)
            self._secrets += [value, value.partition(" ")[2]]
        self._static: dict[str, RequestCredentials] = {}
        self._tokens: dict[str, _Token] = {}
        for name, given in auth.items():
            self._add(schemes[name], given, base_url)
        self._secrets = [each for each in self._secrets if each]
        self._fetched: deque[str] = deque(maxlen=_MOST_TOKENS)
        keep_secret(self._secrets)
        self.scrubber = Scrubber(self._secrets)

    @property
    def known(self) -> frozenset[str]:
        """The names of the schemes with credentials."""
        return frozenset({*self._static, *self._tokens})

    def problem_of(self, security: Sequence[Requirement]) -> str | None:
        """Return a sentence about the credentials that an operation lacks; None if it can be called."""
        if not security or self._choose(security) is not None or self._fixed:
            return None
        alternatives = [" and ".join(map(self._describe, each)) for each in security]
        return f"it needs credentials: {', or '.join(alternatives)}"

    async def find(self, security: Sequence[Requirement], send: SendTokenRequest) -> RequestCredentials:
        """Return the credentials for a request of an operation. `CatalogError` says what is missing."""
        if (problem := self.problem_of(security)) is not None:
            raise CatalogError(f"{problem}; nothing was sent")
        found = RequestCredentials(dict(self._fixed))
        for name in self._choose(security) or ():
            if name in self._tokens:
                token = await self._tokens[name].get(send, self._add_secret)
                found.headers["Authorization"] = f"Bearer {token}"
                found.tokens[name] = token
            else:
                static = self._static[name]
                found.headers |= static.headers
                found.query |= static.query
                found.cookies |= static.cookies
        return found

    def discard_tokens(self, used: RequestCredentials) -> bool:
        """Discard the tokens of a request that the API rejected. Returns True if there were any."""
        for name, token in used.tokens.items():
            self._tokens[name].discard(token)
        return bool(used.tokens)

    def start(self) -> None:
        """Prepare for use in the current event loop."""
        for token in self._tokens.values():
            token.start()

    def _choose(self, security: Sequence[Requirement]) -> tuple[str, ...] | None:
        """Return the schemes of the first requirement that can be met; an empty one only if no other can be."""
        met = [tuple(each) for each in security if each.keys() <= self.known]
        return next((each for each in met if each), met[0] if met else None)

    def _describe(self, name: str) -> str:
        scheme = self._schemes.get(name)
        if scheme is None:
            return f"{name[:80]} (which the document does not define)"
        if scheme.kind == "unsupported":
            return f"{name[:80]} ({scheme.type_name[:80]}, which is not supported)"
        return f"{name[:80]} (auth={{{name[:80]!r}: ...}}, or {scheme.variable})"

    def _add_secret(self, secret: str) -> None:
        """Remove one more secret from all texts from now on."""
        keep_secret([secret])
        self._fetched.append(secret)
        self.scrubber = Scrubber([*self._secrets, *self._fetched])

    def _add(self, scheme: Scheme, given: Auth, base_url: str | None) -> None:
        name = scheme.name
        if scheme.kind == "unsupported":
            raise UsageError(f"auth[{name!r}]: the scheme is {scheme.type_name[:80]}, which is not supported")
        if isinstance(given, Mapping):
            try:
                given = ClientCredentials(**given)
            except TypeError:
                raise UsageError(
                    f"auth[{name!r}] must have client_id and client_secret; token_url, scopes, in_body are optional"
                ) from None
        if isinstance(given, ClientCredentials):
            self._add_client(scheme, given, base_url)
            return
        if scheme.kind == "basic":
            self._add_login(name, given)
            return
        if not isinstance(given, str) or not given:
            raise UsageError(
                f"auth[{name!r}] must be the {'key' if scheme.kind == 'apiKey' else 'token'}, as a string"
            )
        check_value(f"auth[{name!r}]", given)
        self._secrets += [given, quote_plus(given)]  # the second as in a query or a cookie
        place = {"query": "query", "cookie": "cookies"}.get(scheme.place, "headers")
        sent = f"Bearer {given}" if scheme.kind == "bearer" else given
        self._static[name] = RequestCredentials(**{place: {scheme.key: sent}})

    def _add_login(self, name: str, given: str | tuple[str, str]) -> None:
        user, mark, password = given.partition(":") if isinstance(given, str) else (given[0], ":", given[1])
        if not mark:
            raise UsageError(f"auth[{name!r}] must be (user, password), or user:password")
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._secrets += [f"{user}:{password}", password, encoded]
        self._static[name] = RequestCredentials({"Authorization": f"Basic {encoded}"})

    def _add_client(self, scheme: Scheme, client: ClientCredentials, base_url: str | None) -> None:
        name = scheme.name
        if scheme.kind != "bearer":
            raise UsageError(f"auth[{name!r}]: the scheme is {scheme.type_name} and takes no OAuth2 client")
        if not client.client_id or not client.client_secret:
            raise UsageError(f"auth[{name!r}] must have client_id and client_secret")
        url = client.token_url or scheme.token_url
        if not client.token_url and (not url or base_url is None or not same_origin(url, base_url)):
            own = f"the document's own, {url[:200]}, is not on the origin of the API"
            reason = own if url else "the document has none"
            raise UsageError(f"auth[{name!r}] needs token_url, the URL of the token endpoint: {reason}")
        self._tokens[name] = token = _Token(client, url)
        self._secrets += [client.client_secret, quote_plus(client.client_secret), token.login]


def add_credentials(request: OutgoingRequest, added: RequestCredentials) -> OutgoingRequest:
    """Add credentials to a request. The result must not be shown or logged.

    `CatalogError` if an argument uses the place of a key: the keys of an object may become names of parameters.
    """
    target = request.target
    sent = {name for name, _ in parse_qsl(target.partition("?")[2], keep_blank_values=True)}
    sent_cookies = {each.partition("=")[0] for each in request.headers.get("Cookie", "").split("; ")}
    taken = [*(sent & added.query.keys()), *(sent_cookies & set(map(quote_plus, added.cookies)))]
    if taken:
        raise CatalogError(f"an argument sets {taken[0]!r}, which is for credentials; nothing was sent")
    if added.query:
        target += ("&" if "?" in target else "?") + urlencode(added.query)
    own = {name.lower() for name in added.headers}
    headers = {
        name: value for name, value in request.headers.items() if name.lower() not in own
    } | added.headers
    if added.cookies:
        mine = [f"{quote_plus(name)}={quote_plus(value)}" for name, value in added.cookies.items()]
        headers["Cookie"] = "; ".join([*filter(None, [headers.get("Cookie")]), *mine])
    return OutgoingRequest(request.method, target, headers, request.content)


class _Token:
    """The access token of one OAuth2 client."""

    def __init__(self, client: ClientCredentials, url: str) -> None:
        self._client = client
        self._url = url
        self._token = ""
        self._expires = 0.0
        self._lock = anyio.Lock()
        login = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        self.login = base64.b64encode(login.encode()).decode()

    def start(self) -> None:
        self._lock = anyio.Lock()

    def discard(self, token: str) -> None:
        """Discard this token. If another call has replaced it already, the new one is kept."""
        if self._token == token:
            self._token = ""

    async def get(self, send: SendTokenRequest, add_secret: Callable[[str], None]) -> str:
        """Return a valid token. If several callers need a new one, it is fetched once."""
        async with self._lock:
            if not self._token or time.monotonic() >= self._expires:
                self._token, lifetime = await self._fetch(send, add_secret)
                self._expires = time.monotonic() + max(0.0, lifetime - min(_MARGIN, lifetime / 2))
            return self._token

    async def _fetch(self, send: SendTokenRequest, add_secret: Callable[[str], None]) -> tuple[str, float]:
        """Fetch a token. Returns it with its lifetime in seconds."""
        client = self._client
        fields = {"grant_type": "client_credentials"}
        if client.scopes:
            fields["scope"] = " ".join(client.scopes)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if client.in_body:
            fields |= {"client_id": client.client_id, "client_secret": client.client_secret}
        else:
            headers["Authorization"] = f"Basic {self.login}"
        request = OutgoingRequest("POST", "", headers, urlencode(fields).encode())
        response = await send(self._url, request, _TOKEN_LIMITS)
        try:
            body = as_object(loads(response.content))
        except ValueError:
            body = {}
        token = body.get("access_token")
        if not is_success(response.status) or not isinstance(token, str) or not token:
            error = body.get("error")
            reason = f": {error[:200]}" if isinstance(error, str) else ""
            raise CatalogError(
                f"no access token could be fetched (HTTP {response.status}{reason}); nothing was sent"
            )
        try:
            check_value("the access token", token)
        except UsageError as error:
            raise CatalogError(str(error)) from None
        add_secret(token)
        lifetime = body.get("expires_in")
        if isinstance(lifetime, bool) or not isinstance(lifetime, int | float):
            lifetime = _DEFAULT_LIFETIME
        return token, float(lifetime)
