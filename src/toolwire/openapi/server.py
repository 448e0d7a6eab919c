"""`OpenAPI`: a server whose tools are the operations of an OpenAPI document.

Owns which tools there are, where requests go and what a call does. The document is read in a thread when the first
client connects, without delaying the handshake, and again on request or at intervals. Nothing is fetched except the
document itself, and requests with credentials only go to the base URL.
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
from toolwire.catalog.http.requests import OutgoingRequest, same_origin
from toolwire.catalog.profile.rules import check_address
from toolwire.catalog.profile.tables import NetworkSettings
from toolwire.catalog.refresh import RefreshedServer, Status
from toolwire.catalog.secrets import CREDENTIALS
from toolwire.catalog.tools.definitions import LONGEST, Skipped, assign, slug
from toolwire.catalog.values import tidy
from toolwire.errors import CatalogError, ToolDefinitionError, UsageError
from toolwire.openapi.check import find_problems
from toolwire.openapi.document import MOST_BYTES, Document, as_object, have_changed, open_document, read_bytes
from toolwire.openapi.http import SAFE_METHODS, Limits, NoResponse, Response, Sender, split_url
from toolwire.openapi.operations import ListedOperation, Operation, list_operations, read_operations
from toolwire.openapi.requests import build_request
from toolwire.openapi.responses import to_tool_result
from toolwire.openapi.schemas import Schemas, find_invalid
from toolwire.openapi.security import (
    Auth,
    Credentials,
    Scheme,
    add_credentials,
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
"""The environment variable with the base URL, used if none is passed."""
_MOST_SCHEMA: Final = 32 * 1024  # the limit for one listed schema, in bytes
_LEAST_SCHEMA: Final = 4 * 1024  # the limit is not lowered below this, however many tools there are
_MOST_LIST: Final = 4 * 1024 * 1024  # the target for all listed schemas together, in bytes
_FETCH_LIMITS: Final = Limits(timeout=60.0, most_bytes=MOST_BYTES)
_LONGEST_NAME: Final = 24  # of the server: it is a prefix of the names of its tools
_PLAIN_STEMS: Final = ("openapi", "swagger", "spec", "api", "index", "schema", "api_docs", "openapi_spec")
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")

Progress = Callable[[str, int, int], None]
"""Called with the current step, how much of it is done, and the total; the step is "" at the end."""


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
        """Create a server for a document. The document is read when the first client connects, or by `load()`.

        `document` is a path, a URL, or the document itself. Requests go to `base_url` (or the environment variable
        `TOOLWIRE_BASE_URL`). Without it they go to the first server that the document names, but only if
        `allow_servers` is set or the document was fetched from that server; `server_variables` fills in the
        variables of its URL. `auth` has the credentials by security scheme; they may also come from the environment
        or from `credentials_file` (see docs/openapi.md). `headers` are sent with every request. `include` and
        `exclude` select operations (see `Selection`). `external_files` allows references to files in the document's
        folder. `output_schemas` also lists the schemas of responses. A schema of more than `max_schema_bytes` (32
        KiB, and less if there are over 128 tools) is listed in a shortened form; arguments are still validated
        against the complete one. `timeout` limits one call in seconds, retries included. At most `max_in_flight`
        requests are sent concurrently. `network` has the settings of a profile's `[network]`: `allow`,
        `allow_http`, `proxy`, `ca_file`. `refresh` is the number of seconds after which the document is read again.

        Raises `UsageError` for a wrong setting.
        """
        self.source = document if isinstance(document, Mapping) else os.fspath(document)
        super().__init__(name or _default_name(self.source), refresh, logger, lifespan=self._live)
        self._url = self.source if isinstance(self.source, str) and _is_url(self.source) else None
        self._path = Path(self.source) if isinstance(self.source, str) and self._url is None else None
        try:
            self._network = (
                network if isinstance(network, NetworkSettings) else NetworkSettings(**(network or {}))
            )
        except (TypeError, ValueError) as error:
            raise UsageError(f"network has wrong settings: {error}") from None
        given_base = base_url if base_url is not None else environ.get(BASE_URL)
        self._given_base = None if given_base is None else self._check_base(given_base)
        if self._url is not None:
            split_url(self._url, self._network, "the URL of the document")
        elif self._path is not None and not self._path.is_file():
            problem = "is not a file" if self._path.exists() else "does not exist"
            raise UsageError(f"{self.source} {problem}: pass the path or the URL of an OpenAPI document")
        self._allow_servers = allow_servers
        self._server_variables = dict(server_variables or {})
        self._auth = auth
        self._headers = dict(headers or {})
        given_file = credentials_file or environ.get(CREDENTIALS)
        self._credentials_file = Path(given_file) if given_file else None
        self._selection = Selection(tuple(include), tuple(exclude))
        self._external_files = external_files
        self._digests: Mapping[str, bytes | None] = {}  # of the other files that the document refers to
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
        self._names: dict[str, str] = {}  # tool names by method and path; a refresh keeps them
        self._own: frozenset[str] = frozenset()
        self.content: bytes | None = None
        """The bytes of the document; None before it is read, and if it was passed as a mapping."""
        self.base_url: str | None = self._given_base
        """The base URL of all requests; None if it is unknown or not allowed."""
        self.base_problem = ""
        """Why there is no base URL."""
        self.named_server: str | None = None
        """The first server that the document names."""
        self.title_of_document = ""
        """The title of the document, in one line."""
        self.schemes: Mapping[str, Scheme] = {}
        """The security schemes of the document."""
        self.operations: dict[str, Operation] = {}
        """The operations by tool name."""
        self.notes: dict[str, tuple[str, ...]] = {}
        """Remarks on the operations, such as ignored parameters, by tool name."""

    # For users and clients.

    async def loaded(self, within: float = 120.0) -> Status:
        """Wait until the document has been read or reading it has failed. Only for a server with a client."""
        return await super().loaded(within)

    def load(self) -> Status:
        """Read the document now, if it is not a URL. `UsageError` says why it cannot be used."""
        if self._url is not None:
            raise UsageError(
                f"{self._url} is fetched when a client connects: connect one and await `loaded()`"
            )
        try:
            self._publish(None if self._path is None else read_bytes(self._path))
        finally:
            self._report_progress("", 0, 0)
        return self.status

    def find_problems(self) -> list[Finding]:
        """Return the problems of the document, after it has been read. `toolwire check` shows them."""
        return find_problems(self)

    def missing_credentials(self) -> dict[str, str]:
        """Return the operations that lack credentials: a sentence about what is missing, by tool name."""
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
        """Read the document, and replace the tools if it or a file that it refers to has changed."""
        try:
            content = await self._read()
            if (
                content is None
                or content != self.content
                or self.status.state != "live"
                or await self._io.run(partial(have_changed, self._digests))
            ):
                await self._io.run(partial(self._publish, content))
                self._credentials.start()
        finally:
            self._report_progress("", 0, 0)

    async def _read(self) -> bytes | None:
        """Return the bytes of the document; None if it was passed as a mapping."""
        if self._path is not None:
            return await self._io.run(partial(read_bytes, self._path))
        if self._url is None:
            return None
        origin, target = split_url(self._url, self._network, "the URL of the document")
        request = OutgoingRequest("GET", target, {"Accept": "application/json, application/yaml, */*;q=0.5"})
        self._report_progress("fetching", 0, 0)
        response = await self._sender(origin).send(request, _FETCH_LIMITS, Scrubber(()))
        if response.status != 200:  # noqa: PLR2004 - nothing else is a document
            location = response.headers.get("location", "")
            hint = f", to {location[:200]!r}: redirects are not followed, pass that URL" if location else ""
            raise CatalogError(f"{self._url}: HTTP {response.status}{hint}")
        return response.content

    # The tools.

    def _publish(self, content: bytes | None) -> None:
        """Build the tools of a document, and replace the current tools with them. Runs in a thread."""
        document = self._open(content)
        credentials, base, problem = self._prepare(document)
        listed, skipped = list_operations(document)
        names = self._assign_names(listed)
        chosen = [each for each in listed if self._selection.includes(each, names.get(each.label) or "")]
        for pattern in self._selection.unused([(each, names.get(each.label) or "") for each in listed]):
            logger.warning("%s: no operation matches the pattern %r", self.name, pattern)
        schemas = Schemas(document)
        usable, unusable = read_operations(
            document,
            schemas,
            chosen,
            find_key_places(self.schemes),
            partial(self._report_progress, "reading operations"),
        )
        self._report_progress("checking schemas", 0, 0)
        invalid = find_invalid(schemas, {each.label: each.schema for each in usable})
        most = self._most_schema or min(_MOST_SCHEMA, max(_LEAST_SCHEMA, _MOST_LIST // max(1, len(usable))))
        source = _ToolSource(schemas, Schemas(document, "response"), invalid, base, most)
        tools: list[Tool[Any]] = []
        operations: dict[str, Operation] = {}
        notes: dict[str, tuple[str, ...]] = {}
        skipped += unusable
        for operation in usable:
            label, name = operation.label, names[operation.label]
            lean = replace(operation, output=())
            try:
                tool, noted = self._make_tool(operation, lean, name, source)
            except Exception as error:  # noqa: BLE001 - one bad operation must not affect the others
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
        self.content, self._digests = content, document.digests
        self.operations, self.notes = operations, notes
        self.status = Status("live", len(listed), len(tools), tuple(skipped), at=time.time())

    def _make_tool(
        self, operation: Operation, lean: Operation, name: str | None, source: "_ToolSource"
    ) -> tuple[Tool[Any], tuple[str, ...]]:
        """Build the tool of an operation, and the notes on it. Raises if it cannot be a tool."""
        if operation.label in source.invalid:
            raise ToolDefinitionError(source.invalid[operation.label])
        if name is None:
            raise ToolDefinitionError("every name that it could have is taken")
        prefix = self._prefix(operation, source.base)
        short, cut = source.schemas.fit(operation.schema, operation.uses, source.most)
        output, note = make_output(operation, source.outputs) if self._output_schemas else (None, "")
        arguments = Arguments(short, lean, source.schemas)
        call = partial(self._call, lean, prefix, arguments, output)
        tool = build_tool(lean, name, arguments, call, None if output is None else output.json_schema)
        return tool, tuple(filter(None, (*operation.notes, cut, note)))

    def _open(self, content: bytes | None) -> Document:
        source = self.source if isinstance(self.source, str) else "the document"
        self._report_progress("reading", 0, 0)
        if content is None:
            try:
                content = dumps(self.source)
            except (TypeError, ValueError) as error:
                raise UsageError(f"the document contains a value that is not JSON: {error}") from None
        return open_document(content, source, path=self._path, external_files=self._external_files)

    def _prepare(self, document: Document) -> tuple[Credentials, str | None, str]:
        """Find the base URL, and the credentials that may go there."""
        base, problem = self._given_base, ""
        title = as_object(document.data.get("info")).get("title")
        self.title_of_document = " ".join(tidy(title, 80).split()) or self.name
        self.named_server = _first_server(document, self._server_variables)
        if self._url is not None and self.named_server is not None:
            self.named_server = urljoin(self._url, self.named_server)
        if base is None:
            base, problem = self._find_server()
        self.schemes = schemes = read_schemes(document)
        auth = find_auth(schemes, self._auth, self._environ, self._credentials_file)
        return Credentials(schemes, auth, self._headers, base), base, problem

    def _find_server(self) -> tuple[str | None, str]:
        """Return the URL of the document's first server if requests may go there; else None and the reason."""
        server = self.named_server
        if server is None or not _is_url(server):
            return None, "the document names no server: set base_url (--base-url)"
        if not self._allow_servers and not (self._url is not None and same_origin(self._url, server)):
            return None, (
                f"the document names the server {server[:200]}, which needs your permission: set "
                f"base_url={server[:200]!r} (--base-url), or allow_servers=True (--allow-servers)"
            )
        try:
            return self._check_base(server), ""
        except UsageError as error:
            return None, str(error)

    def _check_base(self, url: str) -> str:
        try:
            return check_address(url, allow_http=self._network.allow_http).rstrip("/")
        except (ValueError, AttributeError) as error:
            raise UsageError(f"base_url {error}") from None

    def _prefix(self, operation: Operation, base: str | None) -> str:
        """Return the path that precedes the operation's path: that of the base URL or of its own server."""
        if base is None:
            return ""
        if not operation.server:
            return urlsplit(base).path.rstrip("/")
        url = urljoin(f"{base}/", operation.server)
        if _VARIABLE.search(url) or not same_origin(url, base):
            raise ToolDefinitionError(
                f"it has its own server, {operation.server[:200]}, but requests only go to {base}"
            )
        return urlsplit(self._check_base(url)).path.rstrip("/")

    def _assign_names(self, listed: Sequence[ListedOperation]) -> dict[str, str | None]:
        longest = max(LONGEST - len(full_name(self.name, "")), _LONGEST_NAME)
        bases = {each.label: slug(each.name) or f"{each.method}_operation" for each in listed}
        taken = set(self.tools) - self._own
        names = assign(bases, taken=taken, known=self._names, longest=longest)
        self._names = {label: name for label, name in names.items() if name is not None}
        return names

    def _report_progress(self, what: str, done: int, total: int) -> None:
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
            response = await self._send(operation, request, base, credentials)
        except InvalidArguments as error:
            return error_result(str(error))
        except CatalogError as error:
            text = credentials.scrubber.text(str(error))
            if isinstance(error, NoResponse) and error.sent and operation.method not in SAFE_METHODS:
                text += ". The request may have been carried out: check before you repeat it"
            return error_result(f"{operation.label}: {text}")
        return await to_tool_result(response, operation.method, credentials.scrubber, self._io, output)

    async def _send(
        self, operation: Operation, request: OutgoingRequest, base: str, credentials: Credentials
    ) -> Response:
        """Send a request. GET and HEAD are sent again with a new token if the API rejects the current one.

        The timeout covers everything, including the wait for a token.
        """
        sender = self._sender(base)
        may_repeat = operation.method in SAFE_METHODS
        async with self._slots or anyio.CapacityLimiter(1):
            deadline = anyio.current_time() + self._limits.timeout
            while True:
                added = None
                with anyio.move_on_after(deadline - anyio.current_time()):
                    added = await credentials.find(
                        operation.security, partial(self._send_token_request, credentials)
                    )
                if added is None:
                    seconds = f"{self._limits.timeout:g} s"
                    raise CatalogError(f"no access token could be fetched within {seconds}; nothing was sent")
                limits = replace(self._limits, timeout=max(0.0, deadline - anyio.current_time()))
                response = await sender.send(add_credentials(request, added), limits, credentials.scrubber)
                if response.status != 401 or not credentials.discard_tokens(added) or not may_repeat:  # noqa: PLR2004
                    return response
                may_repeat = False

    async def _send_token_request(
        self, credentials: Credentials, url: str, request: OutgoingRequest, limits: Limits
    ) -> Response:
        try:
            origin, target = split_url(url, self._network, "token_url")
        except UsageError as error:
            raise CatalogError(str(error)) from None
        try:
            return await self._sender(origin).send(
                replace(request, target=target), limits, credentials.scrubber
            )
        except NoResponse as error:  # to the token request: the call itself was not sent
            raise CatalogError(f"no access token could be fetched ({error}); nothing was sent") from None

    def _sender(self, url: str) -> Sender:
        """Return the sender for the origin of a URL."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._senders:
            self._senders[origin] = Sender(origin, self._network, retry=self._retry)
        return self._senders[origin]


@dataclass(frozen=True)
class _ToolSource:
    """The common input from which all tools of one document are built."""

    schemas: Schemas
    outputs: Schemas
    invalid: Mapping[str, str]
    """Operations whose schema does not compile, with the reason."""
    base: str | None
    most: int
    """The largest listed schema, in bytes."""


def _is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _default_name(source: str | Mapping[str, Any]) -> str:
    """Return the name of a server whose user gave none, from the title or location of its document."""
    if isinstance(source, Mapping):
        title = as_object(source.get("info")).get("title")
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


def _first_server(document: Document, variables: Mapping[str, str]) -> str | None:
    """Return the URL of a document's first server, with its variables filled in. It may be relative."""
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
    first = as_object(servers[0]) if isinstance(servers, list) and servers else {}
    url, definitions = first.get("url"), as_object(first.get("variables"))
    if not isinstance(url, str):
        return None

    def fill(found: re.Match[str]) -> str:
        entry = as_object(definitions.get(found[1]))
        value, choices = variables.get(found[1], entry.get("default")), entry.get("enum")
        if value is None:
            raise UsageError(
                f"the server URL {url[:200]} has a variable {found[1]!r} without a default: set it in "
                "server_variables"
            )
        if isinstance(choices, list) and choices and value not in choices:
            raise UsageError(f"the server variable {found[1]!r} must be one of {choices}, got {value!r}")
        return str(value)

    return _VARIABLE.sub(fill, url)


def _check_positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not value > 0:
        raise UsageError(f"{name} must be over 0, got {value!r}")
    return value
