"""The tables of a profile: everything that can be set for an API, field by field.

Each table is a frozen pydantic model that rejects unknown keys. The descriptions of the fields are the
documentation: `docs/profiles.md` contains them, and editors show them through the JSON schema. The checks of
single values are in `rules`.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import chain, combinations, product
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from toolwire.catalog.money import RATES
from toolwire.catalog.profile import rules


def _expect(what: str) -> WrapValidator:
    """Return a validator that says what a value must be, in place of pydantic's own messages."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise ValueError(f"must be {what}, got {rules.show_value(value)}") from None

    return WrapValidator(check)


Text = StrictStr
PathInto = Annotated[StrictStr, Field(max_length=1_000, examples=["data.items", "price|function.price"])]
UrlPath = Annotated[StrictStr, AfterValidator(rules.check_path)]
CallPath = Annotated[StrictStr, AfterValidator(rules.check_call_path)]
Key = Annotated[StrictStr, AfterValidator(rules.check_key)]
Header = Annotated[StrictStr, AfterValidator(rules.check_header)]
HeaderValue = Annotated[StrictStr, AfterValidator(rules.check_header_value)]
_A_VARIABLE: Final = _expect("the name of an environment variable")
Variable = Annotated[StrictStr, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$"), _A_VARIABLE]
OptionalVariable = Annotated[StrictStr, Field(pattern="^([A-Za-z_][A-Za-z0-9_]*)?$"), _A_VARIABLE]
Network = Annotated[StrictStr, AfterValidator(rules.check_network)]
Seconds = Annotated[
    float,
    Field(strict=True, gt=0, le=24 * 3600),
    _expect("a number of seconds, over 0 and at most a day"),
]
Status = Annotated[StrictInt, Field(ge=100, le=599), _expect("an HTTP status such as 404")]
Unit = Annotated[
    Literal["dollars", "cents", "micros"] | Annotated[float, Field(strict=True, gt=0, le=1_000_000)],
    _expect("dollars, cents, micros, or the worth of one unit in dollars such as 0.01"),
]
"""`dollars`, `cents`, `micros`, or the worth of one unit in dollars."""


def rate_of(unit: str | float) -> Decimal:
    """Return the exact worth of one unit in dollars."""
    return RATES[unit] if isinstance(unit, str) else Decimal(repr(unit))


def _check_json(name: str, value: Any) -> None:
    """Reject a value that is not JSON, such as a date: it can neither be sent nor compared."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be valid JSON: {error}") from None


class Table(BaseModel):
    """A part of a profile."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, allow_inf_nan=False)


class SecretPart(Table):
    """One of several values that make up a secret."""

    variable: Variable = Field(description="The environment variable with the value.")
    name: Text = Field(
        default="",
        description="The name in a credentials file. Empty: the name of the variable in lower case.",
    )

    @property
    def file_name(self) -> str:
        """The name in a credentials file."""
        return self.name or self.variable.lower()


class Secret(SecretPart):
    """One secret: where it comes from and where it is sent."""

    variable: OptionalVariable = Field(default="", description="The environment variable with the secret.")
    parts: tuple[SecretPart, ...] = Field(
        default=(),
        description="Used if `variable` is not set: the values that make up the secret, joined with `:`, such as a "
        "user and a password.",
    )
    encoding: Literal["plain", "base64"] = Field(
        default="plain", description="The encoding of the joined parts: unchanged, or in base64."
    )
    place: Literal["header", "query", "basic"] = Field(
        default="header",
        description="`header`, `query` (a parameter of the URL), or `basic` (HTTP basic authentication).",
    )
    key: Text = Field(
        default="Authorization", description="The name of the header or query parameter. Not used by `basic`."
    )
    template: Annotated[StrictStr, AfterValidator(rules.check_template)] = Field(
        default="{value}",
        description="The text that is sent, such as `Bearer {value}`. With `basic` it is `user:password`: "
        "`api:{value}` for a fixed user, `{value}:` for a key instead of the user.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.variable and not self.parts:
            raise ValueError(
                "variable must be set to the environment variable with the secret (or set parts)"
            )
        if self.encoding != "plain" and not self.parts:
            raise ValueError(
                "encoding applies only to parts: a variable is sent unchanged. Set parts, or remove encoding"
            )
        if self.place == "header":
            try:
                rules.check_header(self.key)
            except ValueError as error:
                raise ValueError(f"key {error}") from None
        if self.place == "query":
            if "key" not in self.model_fields_set:
                raise ValueError("key must be set: the name of the query parameter")
            rules.check_key(self.key)
        if self.place == "basic" and "key" in self.model_fields_set:
            raise ValueError("key has no effect with place = 'basic', whose header is always Authorization")
        return self


class Shared(Table):
    """Settings of every request to the API."""

    headers: Mapping[Header, HeaderValue] = Field(default={}, description="Fixed headers of every request.")
    query: Mapping[Key, Text] = Field(default={}, description="Fixed query parameters of every request.")


_SIZED: Final = {"kind", "size_parameter", "size", "place"}
_PAGING_SETTINGS: Final[Mapping[str, set[str]]] = {
    "none": {"kind"},
    "page": {*_SIZED, "parameter", "first", "more", "total_pages", "total_items"},
    "offset": {*_SIZED, "parameter", "first", "more", "total_items"},
    "cursor": {*_SIZED, "parameter", "more", "cursor"},
    "link": {*_SIZED, "cursor"},
}
"""Kind -> the settings that apply to it."""


class Paging(Table):
    """Paging: how to get from one page of the list to the next."""

    kind: Literal["none", "page", "offset", "cursor", "link"] = Field(
        default="none",
        description="`none`: one request returns all. `page`: numbered pages. `offset`: the number of items to "
        "skip. `cursor`: each page has the cursor of the next. "
        '`link`: a `Link` header with `rel="next"`, or a URL in the page.',
    )
    parameter: Text = Field(
        default="", description="The parameter with the page, offset or cursor. Empty: the name of the kind."
    )
    size_parameter: Text = Field(
        default="", description="The parameter with the number of items per page. Empty: not sent."
    )
    size: StrictInt = Field(default=100, ge=1, le=10_000, description="The number of items on a page.")
    first: StrictInt | None = Field(
        default=None,
        ge=0,
        description="The number of the first page (1 unless set), or the first offset (0).",
    )
    place: Literal["query", "body"] = Field(
        default="query", description='Where the parameters are sent; `body` requires `method = "POST"`.'
    )
    more: PathInto = Field(
        default="",
        description="Path in a page to a flag that says whether another page follows (`page`, `offset`, `cursor`).",
    )
    total_pages: PathInto = Field(
        default="details.total_pages|total_pages",
        description="Path in a page to the number of pages (`page`).",
    )
    total_items: PathInto = Field(
        default="", description="Path in a page to the total number of items (`page`, `offset`)."
    )
    cursor: PathInto = Field(
        default="",
        description="Path in a page to the next cursor (`cursor`), or to the URL of the next page (`link`; without "
        "it the `Link` header is used). A missing, null or empty value ends the list.",
    )

    @property
    def parameter_name(self) -> str:
        """The parameter with the page, offset or cursor."""
        return self.parameter or self.kind

    @property
    def start(self) -> int:
        """The number of the first page, or the first offset."""
        return self.first if self.first is not None else int(self.kind == "page")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "cursor" and not self.cursor:
            raise ValueError("cursor must be set: the path in a page to the next cursor, such as meta.next")
        if "kind" in self.model_fields_set and self.kind == "none":  # the user has switched paging off
            return self
        used = _PAGING_SETTINGS[self.kind]
        if idle := [name for name in type(self).model_fields if name in self.model_fields_set - used]:
            kinds = [kind for kind, settings in _PAGING_SETTINGS.items() if idle[0] in settings]
            raise ValueError(
                f"{idle[0]} has no effect with kind = {self.kind!r}: set kind to one of {', '.join(kinds)}, "
                "or remove it"
            )
        return self


class Request(Table):
    """Settings of one kind of request."""

    query: Mapping[Key, Text] = Field(default={}, description="Fixed query parameters.")
    headers: Mapping[Header, HeaderValue] = Field(default={}, description="Fixed headers.")
    body: Mapping[str, Any] = Field(default={}, description="Fixed fields of the JSON body.")
    timeout: Seconds = Field(default=30.0, description="The time limit of one request, in seconds.")
    max_reply_bytes: StrictInt = Field(
        default=10 * 1024 * 1024,
        gt=0,
        description="The size limit of a reply, in bytes. A longer one is not read to its end.",
    )

    @model_validator(mode="after")
    def _check_body(self) -> Self:
        method = getattr(self, "method", "POST")
        if method == "GET" and self.body:
            raise ValueError("body must be empty with method GET: use query")
        _check_json("body", dict(self.body))
        return self


class ListRequest(Request):
    """The request for the list of entries."""

    method: Literal["GET", "POST"] = Field(default="GET", description="`GET`, or `POST` with a JSON body.")
    path: UrlPath = Field(description="The path below `base_url`.")
    items: PathInto = Field(
        default="", description="Path in a page to the list of items. Empty: the page is the list."
    )
    paging: Paging = Field(default=Paging(), description="How to get from one page to the next.")

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        paging = self.paging
        if paging.place == "body" and self.method == "GET":
            raise ValueError("paging.place must be query with method GET")
        fixed = self.query if paging.place == "query" else self.body
        used = [paging.size_parameter] + [paging.parameter_name] * (
            paging.kind in ("page", "offset", "cursor")
        )
        if paging.kind != "none" and (twice := [name for name in used if name in fixed]):
            raise ValueError(
                f"{twice[0]!r} must be set in one place, but both paging and {paging.place} set it"
            )
        return self


class Price(Table):
    """Where an item has its price, and in which unit."""

    path: PathInto = Field(
        default="", description="Path in an item to the price of one call. Empty: the list has no prices."
    )
    unit: Unit = Field(
        default="dollars",
        description="The unit of the price: `dollars`, `cents`, `micros` (millionths of a dollar), or the worth "
        "of one unit in dollars, such as 0.01 for credits.",
    )
    unit_path: PathInto = Field(
        default="",
        description="Path in an item to the name of its unit, a key of `units`. If it is missing, `unit` applies.",
    )
    units: Mapping[str, Unit] = Field(
        default={},
        description="Name -> unit, such as `{credits = 0.01, USDC = 1.0}`. A price in another unit is unreadable.",
    )
    argument: Text = Field(
        default="", description="The argument that determines the price, such as `action`."
    )
    by_value: PathInto = Field(
        default="",
        description="Path in an item to the prices by value of that argument: an object, or a list of objects.",
    )
    value_path: PathInto = Field(
        default="value|name|id",
        description="If `by_value` is a list: path in each object to the argument's value.",
    )
    price_path: PathInto = Field(
        default="price", description="If `by_value` has objects: path in each object to its price."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.argument) != bool(self.by_value):
            raise ValueError(
                "argument and by_value must be set together: the prices by the value of an argument"
            )
        if bool(self.unit_path) != bool(self.units):
            raise ValueError("unit_path and units must be set together: unit_path leads to a name in units")
        return self


class EntryPaths(Table):
    """The paths to the fields of an item. Paths are dotted; `a|b.c` is the first that exists."""

    id: PathInto = Field(
        default="id", min_length=1, description="Path to the id with which the entry is bought."
    )
    name: PathInto = Field(default="name", description="Path to the name. If it is missing, the id is used.")
    description: PathInto = Field(
        default="description", description="Path to the description that the model reads."
    )
    schema_: PathInto = Field(
        default="schema", alias="schema", description="Path to the JSON schema of the arguments."
    )
    category: PathInto = Field(default="", description="Path to a category, which filters can use.")
    name_separator: Text = Field(
        default="",
        description="If the names are ids: the readable name is the text before this separator in the description.",
    )
    price: Price = Field(default=Price(), description="Where the price is, and its unit.")


class Call(Request):
    """The request that calls an entry, and so buys it."""

    method: Literal["GET", "POST", "PUT", "PATCH"] = Field(
        default="POST", description="The HTTP method. With `GET` the arguments are sent in the query."
    )
    path: CallPath = Field(description="The path below `base_url`; `{id}` is replaced with the entry's id.")
    id_field: Text = Field(
        default="",
        description="The field with the entry's id (dotted: `params.name`). Empty: the id is in the path.",
    )
    arguments: Text = Field(
        default="",
        description="The field with the arguments (dotted: `params.input`). Empty: each one is a field itself.",
    )
    request_id_field: Text = Field(default="", description="The field with the unique id of the call.")
    idempotency_header: Annotated[
        StrictStr, AfterValidator(lambda name: name and rules.check_header(name))
    ] = Field(default="", description="The header with the unique id of the call.")
    idempotent: StrictBool = Field(
        default=False,
        description="True if the API promises to charge only once for the same id. Only then is a call sent again "
        "if its reply was lost.",
    )
    uncharged_statuses: frozenset[Status] = Field(
        default=frozenset({400, 401, 402, 403, 404, 422, 429}),
        description="HTTP statuses for which the API does not charge.",
    )
    retry_statuses: frozenset[Status] = Field(
        default=frozenset(),
        description="HTTP statuses after which the call may be sent again. They must be among `uncharged_statuses` "
        "unless `idempotent` is true.",
    )
    streams: StrictBool = Field(
        default=False, description="True if the reply may be a stream of server-sent events, with progress."
    )
    stream_query: Mapping[Key, Text] = Field(
        default={"stream": "true"},
        description="The query parameters that request a stream, if `streams` is true.",
    )
    timeouts: Mapping[str, Seconds] = Field(
        default={}, description="Timeouts for single tools, by name or id, instead of `timeout`."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "{id}" not in self.path and not self.id_field:
            raise ValueError(
                "id_field must be set, or path must contain {id}: otherwise the API cannot know what to run"
            )
        if self.idempotent and not (self.idempotency_header or self.request_id_field):
            raise ValueError(
                "idempotency_header or request_id_field must be set if idempotent is true: it carries the id"
            )
        if not self.idempotent and (charged := sorted(self.retry_statuses - self.uncharged_statuses)):
            raise ValueError(
                f"retry_statuses must be among uncharged_statuses unless idempotent is true: {charged[0]} is not"
            )
        self._check_fields()
        return self

    def _check_fields(self) -> None:
        used = {
            "id_field": self.id_field,
            "arguments": self.arguments,
            "request_id_field": self.request_id_field,
        }
        fields = {name: field for name, field in used.items() if field}
        place, keys = ("query", self.query) if self.method == "GET" else ("body", _paths(self.body))
        fixed = [(f"{place}.{key}", key) for key in keys]
        for (one, field), (other, second) in chain(
            combinations(fields.items(), 2), product(fields.items(), fixed)
        ):
            if field == second or (self.method != "GET" and _is_inside(field, second)):
                raise ValueError(
                    f"{one} and {other} must be different fields, and not one inside the other, "
                    f"got {field!r} and {second!r}"
                )
        if self.stream_query and not self.streams and "stream_query" in self.model_fields_set:
            raise ValueError("stream_query has no effect without streams = true")


def _paths(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted paths to the values in a body."""
    for key, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{key}.{inner}" for inner in _paths(value))
        else:
            yield key


def _is_inside(field: str, other: str) -> bool:
    """True if one of two dotted fields is inside the other, or both are the same."""
    return f"{field}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field}.")


class Condition(Table):
    """A condition that marks a reply as a failure. All of its tests that are set must be true."""

    path: PathInto = Field(min_length=1, description="Path in the reply.")
    equals: Any = Field(default=None, description="True if the value equals this.")
    one_of: tuple[Any, ...] | None = Field(default=None, description="True if the value is one of these.")
    not_in: tuple[Any, ...] | None = Field(
        default=None, description="True if there is a value and it is not one of these."
    )
    present: StrictBool | None = Field(
        default=None,
        description="`true`: there must be a value (not null, false or empty). `false`: there must be none.",
    )
    charged: StrictBool = Field(
        default=True,
        description="`false` if the API does not charge for this failure: the reserved money is released.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.model_fields_set & {"equals", "one_of", "not_in", "present"}:
            raise ValueError("equals, one_of, not_in or present must be set")
        _check_json("equals, one_of and not_in", [self.equals, self.one_of, self.not_in])
        return self


class Reply(Table):
    """How the reply to a call is read. Without paths, the usual formats are recognized."""

    kind: Literal["json", "text", "binary"] = Field(
        default="json",
        description="`json`, `text`, or `binary` (images and audio, anything else as a file). A reply with the "
        "content type JSON is always read as JSON.",
    )
    result: PathInto = Field(default="", description="Path to the result. Empty: found automatically.")
    cost: PathInto = Field(default="", description="Path to the cost of the call.")
    cost_header: Text = Field(default="", description="The header with the cost of the call.")
    cost_unit: Unit = Field(default="dollars", description="The unit of the cost, as in `[entry.price]`.")
    balance: PathInto = Field(default="", description="Path to the remaining balance.")
    balance_header: Text = Field(default="", description="The header with the remaining balance.")
    balance_unit: Unit = Field(default="dollars", description="The unit of the balance.")
    error: PathInto = Field(default="", description="Path to the error message of a failure.")
    failure: tuple[Condition, ...] = Field(
        default=(),
        description="Conditions for a failure; one that is true is enough. Empty: recognized automatically.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("cost", "balance"):
            path = getattr(self, name) or getattr(self, f"{name}_header")
            if f"{name}_unit" in self.model_fields_set and not path:
                raise ValueError(
                    f"{name} or {name}_header must be set with {name}_unit: a {name} that is found automatically "
                    "is read as dollars"
                )
        return self


class Balance(Request):
    """The request for the remaining balance, for `toolwire catalog check`."""

    method: Literal["GET", "POST"] = Field(default="GET", description="`GET`, or `POST` with a JSON body.")
    path: UrlPath = Field(description="The path below `base_url`.")
    amount: PathInto = Field(min_length=1, description="Path in the reply to the balance.")
    unit: Unit = Field(default="dollars", description="The unit of the balance, as in `[entry.price]`.")


class NetworkSettings(Table):
    """Where connections may go. By default: to public addresses, directly, with the system's certificates."""

    allow: tuple[Network, ...] = Field(
        default=(),
        description="Internal addresses or networks that this API may resolve to, such as `10.0.0.0/8`.",
    )
    proxy: Annotated[StrictStr, AfterValidator(rules.check_proxy)] = Field(
        default="", description="An HTTP proxy, such as `http://proxy:3128`."
    )
    proxy_variable: OptionalVariable = Field(
        default="", description="The environment variable with `user:password` for the proxy."
    )
    ca_file: Text = Field(
        default="", description="A file with certificates (PEM) to trust instead of the system's."
    )
    allow_http: StrictBool = Field(default=False, description="True allows plain http to other machines.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.proxy_variable and not self.proxy:
            raise ValueError("proxy must be set with proxy_variable")
        return self


class Environment(Table):
    """Environment variables that override the profile."""

    base_url: OptionalVariable = Field(
        default="", description="The variable with the `base_url` to use instead."
    )
    budget: OptionalVariable = Field(default="", description="The variable with a budget in dollars.")
    filter: OptionalVariable = Field(
        default="", description="The variable with the tools to include, separated by commas."
    )


class Settings(Table):
    """All tables of a profile. `Profile` adds the operations on them."""

    name: Text = Field(min_length=1, description="The name of the API and of the server.")
    base_url: Text = Field(
        description="The URL of the API, including the part of the path that all requests share."
    )
    secrets: Mapping[str, Secret] = Field(
        default={}, description="The secrets, each with a name of your choice."
    )
    request: Shared = Field(default=Shared(), description="Settings of all requests.")
    list: ListRequest = Field(description="The request for the list.")
    entry: EntryPaths = Field(default=EntryPaths(), description="The paths to the fields of an item.")
    call: Call = Field(description="The request that calls an entry.")
    reply: Reply = Field(default=Reply(), description="How the reply to a call is read.")
    balance: Balance | None = Field(default=None, description="The request for the remaining balance.")
    network: NetworkSettings = Field(default=NetworkSettings(), description="Where connections may go.")
    environment: Environment = Field(
        default=Environment(), description="The environment variables that override the profile."
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("must not be empty")
        return name

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        try:
            rules.check_address(self.base_url, allow_http=self.network.allow_http)
        except ValueError as error:
            raise ValueError(f"base_url {error}") from None
        secrets = list(self.secrets.values())
        tables = [table for table in (self.request, self.list, self.call, self.balance) if table is not None]
        headers = [
            "authorization" if each.place == "basic" else each.key.lower()
            for each in secrets
            if each.place != "query"
        ]
        headers += [self.call.idempotency_header.lower()] if self.call.idempotency_header else []
        fixed_headers = {header.lower() for table in tables for header in table.headers}
        query = [each.key for each in secrets if each.place == "query"]
        fixed_query = {name for table in tables for name in table.query} | {self.list.paging.parameter_name}
        fixed_query |= (
            {self.call.id_field, self.call.request_id_field} if self.call.method == "GET" else set()
        )
        for what, names, fixed in (
            ("header", headers, fixed_headers),
            ("query parameter", query, fixed_query),
        ):
            if twice := sorted({each for each in names if names.count(each) > 1 or each in fixed}):
                raise ValueError(f"the {what} {twice[0]} is set twice: set it in one place")
        return self
