"""`OpenAPI`: a server whose tools are the operations of an OpenAPI document.

Owns which tools there are, where requests go and what a call does. The document is read in a thread behind the
handshake, when the first client connects, and again on request or at intervals. Nothing is fetched but the document
itself, and requests with credentials only go to the base URL.
"""

import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import anyio

from toolwire._protocol.json_codec import dumps
from toolwire._support.log import logger_for
from toolwire._support.scrubber import Scrubber
from toolwire._support.threads import Workers
from toolwire.catalog.http.connection import Retry
from toolwire.catalog.http.requests import OutgoingRequest
from toolwire.catalog.profile.rules import check_address
from toolwire.catalog.profile.tables import NetworkSettings
from toolwire.catalog.refresh import RefreshedServer, Status
from toolwire.catalog.secrets import CREDENTIALS
from toolwire.catalog.tools.definitions import LONGEST, Skipped, Wish, assign, slug
from toolwire.catalog.values import tidy
from toolwire.errors import CatalogError, ToolDefinitionError, UsageError
from toolwire.openapi.document import MOST_BYTES, Document, open_document, read_bytes
from toolwire.openapi.http import (
    SAFE_METHODS,
    Limits,
    NotReceived,
    Received,
    Sender,
    same_origin,
    split_url,
)
from toolwire.openapi.operations import Listed, Operation, list_operations, read_operations
from toolwire.openapi.requests import build_request
from toolwire.openapi.responses import to_tool_result
from toolwire.openapi.schemas import Schemas, find_bad
from toolwire.openapi.security import (
    Auth,
    Credentials,
    Scheme,
    add_to,
    find_auth,
    find_key_places,
    read_schemes,
)
from toolwire.openapi.tools import Arguments, Selection, build_tool, make_output
from toolwire.tools.context import Context
from toolwire.tools.lint import Finding
from toolwire.tools.names import full_name
from toolwire.tools.results.result import error_result
from toolwire.tools.schema.arguments import InvalidArguments, Parameters
from toolwire.tools.server import ToolServer
from toolwire.tools.tool import Tool

logger = logger_for("openapi")

BASE_URL: Final = "TOOLWIRE_BASE_URL"
"""The variable with the base URL, if none is given."""
_MOST_SCHEMA: Final = 32 * 1024  # bytes of a listed schema
_LEAST_SCHEMA: Final = 4 * 1024
_MOST_LIST: Final = 4 * 1024 * 1024  # bytes for all of them, as long as each has the least
_FETCH_LIMITS: Final = Limits(timeout=60.0, most_bytes=MOST_BYTES)
_LONGEST_NAME: Final = 24  # of the server: the names of its tools come behind it
_PLAIN_STEMS: Final = ("openapi", "swagger", "spec", "api", "index", "schema", "api_docs", "openapi_spec")
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")

Progress = Callable[[str, int, int], None]
"""Hears what is being done, how much of it is done, and how much there is; "" at the end."""


class OpenAPI(RefreshedServer):
    """The operations of an OpenAPI document as tools.

        api = OpenAPI("petstore.yaml", base_url="https://api.example.com/v1", auth={"api_key": key})
        options = ClaudeAgentOptions(mcp_servers={"pets": api}, allowed_tools=["mcp__pets"])

    It is a `ToolServer`: served, wrapped and tested like any other.
    """

    _LOADING = "The document is still being read."
    _DOWN = "The document cannot be used"
    _FAILED = "the document cannot be used"

    def __init__(  # noqa: PLR0915 - one line for each setting
        self,
        document: str | os.PathLike[str] | Mapping[str, Any],
        *,
        name: str | None = None,
        base_url: str | None = None,
        allow_servers: bool = False,
        server_variables: Mapping[str, str] | None = None,
        auth: Mapping[str, Auth] | str | None = None,
        headers: Mapping[str, str] | None = None,
        credentials_file: str | os.PathLike[str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        external_files: bool = False,
        output_schemas: bool = False,
        max_schema_bytes: int | None = None,
        timeout: float = 30.0,
        max_response_bytes: int = 4 * 1024 * 1024,
        max_in_flight: int = 32,
        retry: Retry | None = None,
        network: NetworkSettings | Mapping[str, Any] | None = None,
        refresh: float | None = None,
        environ: Mapping[str, str] = os.environ,
        on_progress: Progress | None = None,
    ) -> None:
        """Make a server of a document; nothing is read before a client connects.

        `document` is a file, an address, or the document itself. Requests go to `base_url` (or the variable
        `TOOLWIRE_BASE_URL`); without it to the first server that the document names, if `allow_servers` is set or
        the document came from there.
        `server_variables` are for that one's address. `auth` has the credentials by security scheme, `headers` are
        sent with every request; both may also come from the environment or from `credentials_file` (see
        docs/openapi.md). `include` and `exclude` choose operations (see `Selection`). `external_files` lets the
        document refer to files in its folder. `output_schemas` lists the schemas of responses too. A schema of more
        than `max_schema_bytes` (32 KiB, and less if there are over 128 tools) is listed in short, and still checked
        whole. `timeout` is in seconds for a call, retries included. At most `max_in_flight` requests are out at
        once. `network` has the settings of a profile's `[network]`: `allow`, `allow_http`, `proxy`, `ca_file`.
        `refresh` reads the document again every so many seconds.

        `UsageError` names what is wrong.
        """
        self.source = document if isinstance(document, Mapping) else os.fspath(document)
        super().__init__(name or _name_of(self.source), refresh, logger, lifespan=self._live)
        self._url = self.source if isinstance(self.source, str) and _is_url(self.source) else None
        try:
            self._network = (
                network if isinstance(network, NetworkSettings) else NetworkSettings(**(network or {}))
            )
        except (TypeError, ValueError) as error:
            raise UsageError(f"network has wrong settings: {error}") from None
        wanted = base_url if base_url is not None else environ.get(BASE_URL)
        self._given_base = None if wanted is None else self._check_base(wanted)
        if self._url is not None:
            split_url(self._url, self._network, "the address of the document")
        elif isinstance(self.source, str) and not Path(self.source).is_file():
            found = "is not a file" if Path(self.source).exists() else "does not exist"
            raise UsageError(f"{self.source} {found}: give the path or the address of an OpenAPI document")
        self._allow_servers = allow_servers
        self._server_variables = dict(server_variables or {})
        self._auth = auth
        self._headers = dict(headers or {})
        given_file = credentials_file or environ.get(CREDENTIALS)
        self._credentials_file = Path(given_file) if given_file else None
        self._selection = Selection(tuple(include), tuple(exclude))
        self._external_files = external_files
        self._output_schemas = output_schemas
        self._most_schema = max_schema_bytes and int(_check_positive("max_schema_bytes", max_schema_bytes))
        self._limits = Limits(
            _check_positive("timeout", timeout),
            int(_check_positive("max_response_bytes", max_response_bytes)),
        )
        self._max_in_flight = int(_check_positive("max_in_flight", max_in_flight))
        self._retry = retry
        self._environ = environ
        self._on_progress = on_progress
        self._io = Workers(4)
        self._slots: anyio.CapacityLimiter | None = None
        self._credentials = Credentials({}, {}, self._headers, self._given_base)
        self._senders: dict[str, Sender] = {}
        self._names: dict[str, str] = {}  # of tools, by method and path; they outlive a refresh
        self._own: frozenset[str] = frozenset()
        self.content: bytes | None = None
        """The bytes of the document, as they were read."""
        self.base_url: str | None = self._given_base
        """Where requests go; None if it is not known, or not allowed."""
        self.base_problem = ""
        """Why there is no base URL."""
        self.named_server: str | None = None
        """The first server that the document names."""
        self.title_of_document = ""
        """What the document calls itself, in one line."""
        self.schemes: Mapping[str, Scheme] = {}
        """The security schemes of the document."""
        self.operations: dict[str, Operation] = {}
        """The operations by tool name."""
        self.notes: dict[str, tuple[str, ...]] = {}
        """What a reader of the document should know, by tool name."""

    # For users and clients.

    async def loaded(self, within: float = 120.0) -> Status:
        """Wait until the document has been read, or could not be. For a server that somebody is connected to."""
        return await super().loaded(within)

    def load(self) -> Status:
        """Read a document that is no address, now. `UsageError` says why it cannot be used."""
        if self._url is not None:
            raise UsageError(f"{self._url} is fetched when a client connects; wait for `loaded()`")
        try:
            self._offer(None if isinstance(self.source, Mapping) else read_bytes(Path(self.source)))
        finally:
            self._tell_progress("", 0, 0)
        return self.status

    def find_problems(self) -> list[Finding]:
        """Return what is odd about the document, once it is read; `toolwire check` shows it."""
        from toolwire.openapi.check import find_problems  # noqa: PLC0415 - only for those who check

        return find_problems(self)

    def missing_credentials(self) -> dict[str, str]:
        """Return what is missing for each operation that cannot be called, by tool name."""
        problems = {
            name: self._credentials.problem_of(each.security) for name, each in self.operations.items()
        }
        return {name: problem for name, problem in problems.items() if problem is not None}

    @property
    def _has_list(self) -> bool:
        return bool(self.operations)

    def _scrub(self, text: str) -> str:
        return self._credentials.scrubber.text(text)

    # The lifespan.

    @asynccontextmanager
    async def _live(self, _server: ToolServer[None]) -> AsyncIterator[None]:
        self._slots = anyio.CapacityLimiter(self._max_in_flight)
        self._credentials.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._schedule.keep, partial(self._fetch, self._listable, self._take_document))
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _take_document(self) -> None:
        """Read the document, and make tools of it if it has changed."""
        try:
            content = await self._read()
            if content is None or content != self.content or self.status.state != "live":
                await self._io.run(partial(self._offer, content))
                self._credentials.start()
        finally:
            self._tell_progress("", 0, 0)

    async def _read(self) -> bytes | None:
        """Return the bytes of the document; None if it was given as it is."""
        if isinstance(self.source, Mapping):
            return None
        if self._url is None:
            return await self._io.run(partial(read_bytes, Path(self.source)))
        origin, target = split_url(self._url, self._network, "the address of the document")
        request = OutgoingRequest("GET", target, {"Accept": "application/json, application/yaml, */*;q=0.5"})
        self._tell_progress("fetching", 0, 0)
        received = await self._sender(origin).send(request, _FETCH_LIMITS, Scrubber(()))
        if received.status != 200:  # noqa: PLR2004 - nothing else is a document
            where = received.headers.get("location", "")
            to = f", to {where[:200]!r}: redirects are not followed, give that address" if where else ""
            raise CatalogError(f"{self._url}: HTTP {received.status}{to}")
        return received.content

    # The tools.

    def _offer(self, content: bytes | None) -> None:
        """Make tools of a document, and offer them in place of those until now. In a thread."""
        document = self._open(content)
        credentials, base, problem = self._prepare(document)
        listed, skipped = list_operations(document)
        names = self._assign_names(listed)
        chosen = [each for each in listed if self._selection.wants(each, names.get(each.label) or "")]
        for pattern in self._selection.unused([(each, names.get(each.label) or "") for each in listed]):
            logger.warning("%s: no operation fits the pattern %r", self.name, pattern)
        schemas = Schemas(document)
        usable, unusable = read_operations(
            document,
            schemas,
            chosen,
            find_key_places(self.schemes),
            partial(self._tell_progress, "reading operations"),
        )
        self._tell_progress("checking schemas", 0, 0)
        bad = find_bad(schemas, {each.label: each.schema for each in usable})
        most = self._most_schema or min(_MOST_SCHEMA, max(_LEAST_SCHEMA, _MOST_LIST // max(1, len(usable))))
        makers = _Makers(schemas, Schemas(document, "response"), bad, base, most)
        tools: list[Tool[Any]] = []
        operations: dict[str, Operation] = {}
        notes: dict[str, tuple[str, ...]] = {}
        skipped += unusable
        for operation in usable:
            label, name = operation.label, names[operation.label]
            lean = replace(operation, output=())
            try:
                tool, noted = self._make_tool(operation, lean, name, makers)
            except Exception as error:  # noqa: BLE001 - one bad operation never costs the others
                skipped.append(Skipped(label, label, str(error) or type(error).__name__))
                continue
            tools.append(tool)
            operations[tool.name], notes[tool.name] = lean, noted
        schemas.forget_document()
        self._credentials, self.base_url, self.base_problem = credentials, base, problem
        known = set(self.status.skipped)
        for each in skipped:
            if each not in known:
                logger.warning("%s: %s is left out: %s", self.name, each.name, each.reason)
        self.swap([name for name in self._own if name not in operations], tools)
        self._own = frozenset(operations)
        self.content = content
        self.operations, self.notes = operations, notes
        self.status = Status("live", len(listed), len(tools), tuple(skipped), at=time.time())

    def _make_tool(
        self, operation: Operation, lean: Operation, name: str | None, makers: "_Makers"
    ) -> tuple[Tool[Any], tuple[str, ...]]:
        """Make the tool of an operation, and notes on it. Raises if it can be none."""
        if operation.label in makers.bad:
            raise ToolDefinitionError(makers.bad[operation.label])
        if name is None:
            raise ToolDefinitionError("no name is free for it")
        prefix = self._prefix(operation, makers.base)
        short, cut = makers.schemas.fit(operation.schema, operation.uses, makers.most)
        output, note = make_output(operation, makers.outputs) if self._output_schemas else (None, "")
        arguments = Arguments(short, lean, makers.schemas)
        call = partial(self._call, lean, prefix, arguments, output)
        tool = build_tool(lean, name, arguments, call, None if output is None else output.json_schema)
        return tool, tuple(filter(None, (*operation.notes, cut, note)))

    def _open(self, content: bytes | None) -> Document:
        source = self._url or (str(self.source) if isinstance(self.source, str) else "the document")
        self._tell_progress("reading", 0, 0)
        if content is None:
            try:
                content = dumps(self.source)
            except (TypeError, ValueError) as error:
                raise UsageError(f"the document holds something that is not JSON: {error}") from None
        path = Path(self.source) if self._url is None and isinstance(self.source, str) else None
        return open_document(content, source, path=path, external_files=self._external_files)

    def _prepare(self, document: Document) -> tuple[Credentials, str | None, str]:
        """Find the base URL, and the credentials that may go there."""
        base, problem = self._given_base, ""
        info = document.data.get("info")
        title = info.get("title") if isinstance(info, Mapping) else None
        self.title_of_document = " ".join(tidy(title, 80).split()) or self.name
        self.named_server = _server_of(document, self._server_variables)
        if self._url is not None and self.named_server is not None:
            self.named_server = urljoin(self._url, self.named_server)
        if base is None:
            base, problem = self._find_server()
        self.schemes = schemes = read_schemes(document)
        auth = find_auth(schemes, self._auth, self._environ, self._credentials_file)
        return Credentials(schemes, auth, self._headers, base), base, problem

    def _find_server(self) -> tuple[str | None, str]:
        """Return the URL of the document's first server if requests may go there; else None, and why not."""
        told = self.named_server
        if told is None or not _is_url(told):
            return None, "the document names no server: give base_url (--base-url)"
        if not self._allow_servers and not (self._url is not None and same_origin(self._url, told)):
            return None, (
                f"the document names the server {told[:200]}, which is not used without leave: give "
                f"base_url={told[:200]!r} (--base-url), or allow_servers=True (--allow-servers)"
            )
        try:
            return self._check_base(told), ""
        except UsageError as error:
            return None, str(error)

    def _check_base(self, url: str) -> str:
        try:
            return check_address(url, allow_http=self._network.allow_http).rstrip("/")
        except (ValueError, AttributeError) as error:
            raise UsageError(f"base_url {error}") from None

    def _prefix(self, operation: Operation, base: str | None) -> str:
        """Return the path that goes before that of an operation, which may have a server of its own."""
        if base is None:
            return ""
        if not operation.server:
            return urlsplit(base).path.rstrip("/")
        url = urljoin(f"{base}/", operation.server)
        if _VARIABLE.search(url) or not same_origin(url, base):
            raise ToolDefinitionError(
                f"it has a server of its own, {operation.server[:200]}, and requests only go to {base}"
            )
        return urlsplit(self._check_base(url)).path.rstrip("/")

    def _assign_names(self, listed: Sequence[Listed]) -> dict[str, str | None]:
        longest = max(LONGEST - len(full_name(self.name, "")), _LONGEST_NAME)
        wishes = [Wish(each.label, slug(each.name) or f"{each.method}_operation") for each in listed]
        taken = set(self.tools) - self._own
        names = assign(wishes, taken=taken, known=self._names, longest=longest)
        self._names = {label: name for label, name in names.items() if name is not None}
        return names

    def _tell_progress(self, what: str, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(what, done, total)

    # Calls.

    async def _call(
        self,
        operation: Operation,
        prefix: str,
        checker: Arguments,
        output: Parameters | None,
        arguments: dict[str, Any],
        _context: Context[Any],
    ) -> dict[str, Any]:
        credentials, base = self._credentials, self.base_url
        if base is None:
            return error_result(f"{operation.label}: {self.base_problem}; nothing was sent")
        try:
            if checker.is_large:
                await self._io.run(partial(checker.validate_whole, arguments))
            request = build_request(operation, arguments)
            request = replace(request, target=prefix + request.target)
            received = await self._send(operation, request, base, credentials)
        except InvalidArguments as error:
            return error_result(str(error))
        except CatalogError as error:
            said = credentials.scrubber.text(str(error))
            if isinstance(error, NotReceived) and error.sent and operation.method not in SAFE_METHODS:
                said += ". It may have been carried out: check before you repeat it"
            return error_result(f"{operation.label}: {said}")
        return await to_tool_result(received, operation.method, credentials.scrubber, self._io, output)

    async def _send(
        self, operation: Operation, request: OutgoingRequest, base: str, credentials: Credentials
    ) -> Received:
        """Send a request. GET and HEAD are sent again with a new token if the API refuses the one in use.

        The time limit is for all of it: waiting for a token, too.
        """
        sender = self._sender(base)
        again = operation.method in SAFE_METHODS
        async with self._slots or anyio.CapacityLimiter(1):
            ends = anyio.current_time() + self._limits.timeout
            while True:
                added = None
                with anyio.move_on_after(ends - anyio.current_time()):
                    added = await credentials.find(
                        operation.security, partial(self._send_token_request, credentials)
                    )
                if added is None:
                    seconds = f"{self._limits.timeout:g} s"
                    raise CatalogError(f"no access token could be had within {seconds}; nothing was sent")
                limits = replace(self._limits, timeout=max(0.0, ends - anyio.current_time()))
                received = await sender.send(add_to(request, added), limits, credentials.scrubber)
                if received.status != 401 or not credentials.reject(added) or not again:  # noqa: PLR2004
                    return received
                again = False

    async def _send_token_request(
        self, credentials: Credentials, url: str, request: OutgoingRequest, limits: Limits
    ) -> Received:
        try:
            origin, target = split_url(url, self._network, "token_url")
        except UsageError as error:
            raise CatalogError(str(error)) from None
        try:
            return await self._sender(origin).send(
                replace(request, target=target), limits, credentials.scrubber
            )
        except NotReceived as error:  # of the token: the call itself was not sent
            raise CatalogError(f"no access token could be had ({error}); nothing was sent") from None

    def _sender(self, url: str) -> Sender:
        """Return the sender to the origin of a URL."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._senders:
            self._senders[origin] = Sender(origin, self._network, retry=self._retry)
        return self._senders[origin]


@dataclass(frozen=True)
class _Makers:
    """What the tools of one document are made with."""

    schemas: Schemas
    outputs: Schemas
    bad: Mapping[str, str]
    """Operations whose schema does not compile, and why."""
    base: str | None
    most: int
    """Bytes of a listed schema."""


def _is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _name_of(source: str | Mapping[str, Any]) -> str:
    """Name a server after its document."""
    if isinstance(source, Mapping):
        info = source.get("info")
        title = info.get("title") if isinstance(info, Mapping) else None
        words = [slug(title) if isinstance(title, str) else ""]
    elif _is_url(source):
        host = urlsplit(source).hostname or ""
        labels = [each for each in host.split(".") if each not in ("www", "api", "docs", "developer")]
        words = [slug(labels[0] if labels and not host.replace(".", "").isdecimal() else "")]
    else:
        path = Path(source)
        words = [slug(path.stem), slug(path.absolute().parent.name)]
    words = [each for each in words if each and each.lower() not in _PLAIN_STEMS]
    return words[0][:_LONGEST_NAME].rstrip("_-") if words else "api"


def _server_of(document: Document, variables: Mapping[str, str]) -> str | None:
    """Return the URL of a document's first server, with its variables filled in; it may be relative."""
    data = document.data
    if document.version == "2.0":
        schemes, host, path = data.get("schemes"), data.get("host"), data.get("basePath")
        path = path if isinstance(path, str) and path.startswith("/") else ""
        if not isinstance(host, str) or not host:
            return path or None
        listed = [each for each in schemes if isinstance(each, str)] if isinstance(schemes, list) else []
        scheme = "https" if "https" in listed or not listed else listed[0]
        return f"{scheme}://{host}{path}"
    servers = data.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    url = first.get("url") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(url, str):
        return None
    table = first.get("variables")
    told = table if isinstance(table, Mapping) else {}

    def fill(found: re.Match[str]) -> str:
        entry = told.get(found[1])
        usual = entry.get("default") if isinstance(entry, Mapping) else None
        choices = entry.get("enum") if isinstance(entry, Mapping) else None
        value = variables.get(found[1], usual)
        if value is None:
            raise UsageError(
                f"the server {url[:200]} has a variable {found[1]!r}: set it in server_variables"
            )
        if isinstance(choices, list) and choices and value not in choices:
            raise UsageError(f"the server's variable {found[1]!r} must be one of {choices}, got {value!r}")
        return str(value)

    return _VARIABLE.sub(fill, url)


def _check_positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not value > 0:
        raise UsageError(f"{name} must be over 0, got {value!r}")
    return value
