"""The tables of a profile: what can be said of an API, field by field.

Each table is a frozen pydantic model without room for unknown keys; the descriptions are the documentation
(`docs/profiles.md`) and, through the JSON schema, what an editor shows. The rules of single values are in `rules`.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import chain, combinations, product
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from toolwire.catalog.money import RATES
from toolwire.catalog.profile import rules

Text = StrictStr
PathInto = Annotated[StrictStr, Field(max_length=1_000, examples=["data.items", "price|function.price"])]
UrlPath = Annotated[StrictStr, AfterValidator(rules.check_path)]
CallPath = Annotated[StrictStr, AfterValidator(rules.check_call_path)]
Key = Annotated[StrictStr, AfterValidator(rules.check_key)]
Header = Annotated[StrictStr, AfterValidator(rules.check_header)]
HeaderValue = Annotated[StrictStr, AfterValidator(rules.check_header_value)]
Variable = Annotated[StrictStr, AfterValidator(rules.check_variable)]
OptionalVariable = Annotated[StrictStr, AfterValidator(lambda name: name and rules.check_variable(name))]
Network = Annotated[StrictStr, AfterValidator(rules.check_network)]
Seconds = Annotated[
    float,
    BeforeValidator(rules.check_seconds),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 86400}),
]
Status = Annotated[
    int,
    BeforeValidator(rules.check_status),
    WithJsonSchema({"type": "integer", "minimum": 100, "maximum": 599}),
]


def _check_unit(value: Any) -> Any:
    return value if isinstance(value, str) and value in RATES else rules.check_rate(value)


Unit = Annotated[
    Literal["dollars", "cents", "micros"] | float,
    BeforeValidator(_check_unit),
    WithJsonSchema({"anyOf": [{"enum": list(RATES)}, {"type": "number", "exclusiveMinimum": 0}]}),
]
"""`dollars`, `cents`, `micros`, or the dollars that one unit is worth."""


def rate_of(unit: str | float) -> Decimal:
    """Return the dollars that one unit is worth, exactly."""
    return RATES[unit] if isinstance(unit, str) else Decimal(repr(unit))


def _check_json(name: str, value: Any) -> None:
    """Reject a value that is not JSON, such as a date: it could neither be sent nor compared."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be what JSON can say: {error}") from None


class Table(BaseModel):
    """A part of a profile."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, allow_inf_nan=False)


class SecretPart(Table):
    """One of several values that a secret is made of."""

    variable: Variable = Field(description="The environment variable that holds it.")
    name: Text = Field(
        default="", description="Its name in a credentials file. Empty: the variable in small letters."
    )

    @property
    def file_name(self) -> str:
        """Its name in a credentials file."""
        return self.name or self.variable.lower()


class Secret(Table):
    """One secret, where it comes from and where it goes."""

    variable: OptionalVariable = Field(default="", description="The environment variable that holds it.")
    name: Text = Field(
        default="", description="Its name in a credentials file. Empty: the variable in small letters."
    )
    parts: tuple[SecretPart, ...] = Field(
        default=(),
        description="Where `variable` is not set: values that make up the secret, joined with `:`, such as a user "
        "and a password.",
    )
    encoding: Literal["plain", "base64"] = Field(
        default="plain", description="The encoding of the joined parts: as they are, or in base64."
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
        "`api:{value}` for a fixed user, `{value}:` for a key in the place of the user.",
    )

    @property
    def file_name(self) -> str:
        """Its name in a credentials file; empty if it has no variable of its own."""
        return self.name or self.variable.lower()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.variable and not self.parts:
            raise ValueError(
                "variable must be set: the environment variable that holds the secret (or parts)"
            )
        if self.encoding != "plain" and not self.parts:
            raise ValueError(
                "encoding is that of parts: without them the variable is sent as it is. Set parts, or leave it out"
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
            raise ValueError("key has no use with place = 'basic', whose header is always Authorization")
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
"""Kind -> the settings that it uses."""


class Paging(Table):
    """Paging: the way from one page of the list to the next."""

    kind: Literal["none", "page", "offset", "cursor", "link"] = Field(
        default="none",
        description="`none`: one request has all. `page`: numbered pages. `offset`: the number of items to skip. "
        '`cursor`: each page names the next. `link`: a `Link` header with `rel="next"`, or a URL in the page.',
    )
    parameter: Text = Field(
        default="", description="The parameter with the page, offset or cursor. Empty: called as the kind."
    )
    size_parameter: Text = Field(
        default="", description="The parameter with the number of items a page. Empty: not sent."
    )
    size: StrictInt = Field(default=100, ge=1, le=10_000, description="The number of items on a page.")
    first: StrictInt | None = Field(
        default=None,
        ge=0,
        description="The number of the first page (1 unless set), or the first offset (0).",
    )
    place: Literal["query", "body"] = Field(
        default="query", description="The place of the parameters; `body` needs a POST list."
    )
    more: PathInto = Field(
        default="",
        description="Path in a page to a flag that says whether another follows (`page`, `offset`, `cursor`).",
    )
    total_pages: PathInto = Field(
        default="details.total_pages|total_pages",
        description="Path in a page to the number of pages (`page`).",
    )
    total_items: PathInto = Field(
        default="", description="Path in a page to the number of all items (`page`, `offset`)."
    )
    cursor: PathInto = Field(
        default="",
        description="Path in a page to the next cursor (`cursor`), or to the URL of the next page (`link`; without "
        "it the `Link` header counts). Absent, null or empty ends the list.",
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
        if "kind" in self.model_fields_set and self.kind == "none":  # somebody has switched pages off
            return self
        used = _PAGING_SETTINGS[self.kind]
        if idle := [name for name in type(self).model_fields if name in self.model_fields_set - used]:
            kinds = [kind for kind, settings in _PAGING_SETTINGS.items() if idle[0] in settings]
            raise ValueError(
                f"{idle[0]} has no use with kind = {self.kind!r}: set kind to one of {', '.join(kinds)}, "
                "or leave it out"
            )
        return self


class Request(Table):
    """Settings of one kind of request."""

    query: Mapping[Key, Text] = Field(default={}, description="Fixed query parameters.")
    headers: Mapping[Header, HeaderValue] = Field(default={}, description="Fixed headers.")
    body: Mapping[str, Any] = Field(default={}, description="Fixed fields of the JSON body.")
    timeout: Seconds = Field(default=30.0, description="Seconds that one request may take.")
    max_reply_bytes: StrictInt = Field(
        default=10 * 1024 * 1024, gt=0, description="A longer reply is not read to its end."
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
    paging: Paging = Field(default=Paging(), description="The way from one page to the next.")

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
                f"{twice[0]!r} must be set in one place, and both paging and {paging.place} set it"
            )
        return self


class Price(Table):
    """The place and unit of the price in an item."""

    path: PathInto = Field(
        default="", description="Path in an item to the price of one call. Empty: the list does not tell."
    )
    unit: Unit = Field(
        default="dollars",
        description="The unit of the price: `dollars`, `cents`, `micros` (millionths of a dollar), or the dollars "
        "that one unit is worth, such as 0.01 for credits.",
    )
    unit_path: PathInto = Field(
        default="",
        description="Path in an item to the name of its unit, looked up in `units`. Absent: `unit` counts.",
    )
    units: Mapping[str, Unit] = Field(
        default={},
        description="Name -> unit, such as `{credits = 0.01, USDC = 1.0}`. Another name is an unreadable price.",
    )
    argument: Text = Field(default="", description="The argument that decides the price, such as `action`.")
    by_value: PathInto = Field(
        default="",
        description="Path in an item to the prices by that argument: an object, or a list of objects.",
    )
    value_path: PathInto = Field(
        default="value|name|id",
        description="Where `by_value` is a list: path in each object to the argument's value.",
    )
    price_path: PathInto = Field(
        default="price", description="Where `by_value` has objects: path in each to its price."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.argument) != bool(self.by_value):
            raise ValueError("argument and by_value must be set together: prices by the value of an argument")
        if bool(self.unit_path) != bool(self.units):
            raise ValueError("unit_path and units must be set together: the units by their names")
        return self


class EntryPaths(Table):
    """The paths to the fields of an item. Paths are dotted; `a|b.c` is the first that is there."""

    id: PathInto = Field(
        default="id", min_length=1, description="Path to the id by which the entry is bought."
    )
    name: PathInto = Field(default="name", description="Path to its name. Absent: the id.")
    description: PathInto = Field(
        default="description", description="Path to the description that the model reads."
    )
    schema_: PathInto = Field(
        default="schema", alias="schema", description="Path to the JSON schema of the arguments."
    )
    category: PathInto = Field(default="", description="Path to a category, by which tools can be chosen.")
    name_separator: Text = Field(
        default="",
        description="Where the names are ids: the readable name is the text before this in the description.",
    )
    price: Price = Field(default=Price(), description="The place and unit of the price.")


class Call(Request):
    """The request that calls an entry, which buys it."""

    method: Literal["GET", "POST", "PUT", "PATCH"] = Field(
        default="POST", description="With `GET` the arguments go into the query."
    )
    path: CallPath = Field(description="The path below `base_url`; `{id}` stands for the entry's id.")
    id_field: Text = Field(
        default="",
        description="The field with the entry's id (dotted: `params.name`). Empty: it is in the path.",
    )
    arguments: Text = Field(
        default="",
        description="The field that holds the arguments (dotted: `params.input`). Empty: each is a field itself.",
    )
    request_id_field: Text = Field(default="", description="The field with the call's own id.")
    idempotency_header: Annotated[
        StrictStr, AfterValidator(lambda name: name and rules.check_header(name))
    ] = Field(default="", description="The header with the call's own id.")
    idempotent: StrictBool = Field(
        default=False,
        description="True if the API promises to charge once for the same id: only then is a call whose answer was "
        "lost sent again.",
    )
    uncharged_statuses: frozenset[Status] = Field(
        default=frozenset({400, 401, 402, 403, 404, 422, 429}),
        description="Statuses on which the API does not charge.",
    )
    retry_statuses: frozenset[Status] = Field(
        default=frozenset(),
        description="Statuses on which the call may be sent again; of `uncharged_statuses` unless `idempotent`.",
    )
    streams: StrictBool = Field(
        default=False, description="True if a call may be answered with server-sent events, for progress."
    )
    stream_query: Mapping[Key, Text] = Field(
        default={"stream": "true"}, description="The query parameters that ask for events, with `streams`."
    )
    timeouts: Mapping[str, Seconds] = Field(
        default={}, description="Other timeouts for single tools, by name or id."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "{id}" not in self.path and not self.id_field:
            raise ValueError(
                "id_field must be set, or path must have {id}: nothing tells the API what to run"
            )
        if self.idempotent and not (self.idempotency_header or self.request_id_field):
            raise ValueError(
                "idempotent is true: set idempotency_header or request_id_field, which carries the id"
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
                    f"{one} and {other} must be different fields, and none inside of the other, "
                    f"got {field!r} and {second!r}"
                )
        if self.stream_query and not self.streams and "stream_query" in self.model_fields_set:
            raise ValueError("stream_query has no use without streams = true")


def _paths(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted paths to the values in a body."""
    for key, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{key}.{inner}" for inner in _paths(value))
        else:
            yield key


def _is_inside(field: str, other: str) -> bool:
    """True if one of two dotted fields is a part of the other."""
    return f"{field}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field}.")


class Condition(Table):
    """One sign of failure in a reply. All that is set must hold."""

    path: PathInto = Field(min_length=1, description="Path in the reply.")
    equals: Any = Field(default=None, description="It fails if the value is this.")
    one_of: tuple[Any, ...] | None = Field(default=None, description="It fails if the value is one of these.")
    not_in: tuple[Any, ...] | None = Field(
        default=None, description="It fails if there is a value, and it is none of these."
    )
    present: StrictBool | None = Field(
        default=None,
        description="true: it fails if there is something (not null, false or empty). false: if there is not.",
    )
    charged: StrictBool = Field(
        default=True, description="false: the API does not charge for this failure, so its money is released."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.model_fields_set & {"equals", "one_of", "not_in", "present"}:
            raise ValueError("one of equals, one_of, not_in, present must be set")
        _check_json("equals, one_of and not_in", [self.equals, self.one_of, self.not_in])
        return self


class Reply(Table):
    """The reading of the reply to a call. Without paths it is read as most APIs write it."""

    kind: Literal["json", "text", "binary"] = Field(
        default="json",
        description="`json`; `text`; or `binary`: pictures and sound as such, else a file. A reply that says it is "
        "JSON is always read as JSON.",
    )
    result: PathInto = Field(default="", description="Path to the result. Empty: found by itself.")
    cost: PathInto = Field(default="", description="Path to what the call cost.")
    cost_header: Text = Field(default="", description="The header that tells what the call cost.")
    cost_unit: Unit = Field(default="dollars", description="The unit of the cost, as in `[entry.price]`.")
    balance: PathInto = Field(default="", description="Path to what is left.")
    balance_header: Text = Field(default="", description="The header that tells what is left.")
    balance_unit: Unit = Field(default="dollars", description="The unit of the balance.")
    error: PathInto = Field(default="", description="Path to the words for a failure.")
    failure: tuple[Condition, ...] = Field(
        default=(),
        description="Conditions that make a reply a failure; one is enough. Empty: found by itself.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("cost", "balance"):
            told = getattr(self, name) or getattr(self, f"{name}_header")
            if f"{name}_unit" in self.model_fields_set and not told:
                raise ValueError(
                    f"{name} or {name}_header must be set with {name}_unit: a {name} that is found by itself "
                    "counts as dollars"
                )
        return self


class Balance(Request):
    """A request that tells what is left, for `toolwire catalog check`."""

    method: Literal["GET", "POST"] = Field(default="GET", description="`GET`, or `POST` with a JSON body.")
    path: UrlPath = Field(description="The path below `base_url`.")
    amount: PathInto = Field(min_length=1, description="Path in the reply to the balance.")
    unit: Unit = Field(default="dollars", description="The unit of the balance, as in `[entry.price]`.")


class NetworkSettings(Table):
    """The addresses that connections may go to. By default: public ones, directly, with the usual certificates."""

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
        default="", description="A file with the certificates (PEM) to trust instead of the system's."
    )
    allow_http: StrictBool = Field(
        default=False, description="True allows plain http to other machines than this one."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.proxy_variable and not self.proxy:
            raise ValueError("proxy must be set with proxy_variable")
        return self


class Environment(Table):
    """Environment variables that go before the profile."""

    base_url: OptionalVariable = Field(default="", description="The variable with another `base_url`.")
    budget: OptionalVariable = Field(default="", description="The variable with a budget in dollars.")
    filter: OptionalVariable = Field(
        default="", description="The variable with the tools that are wanted, with commas."
    )


class Settings(Table):
    """All tables of a profile. `Profile` adds what is done with them."""

    name: Text = Field(min_length=1, description="The name of the API, and of the server.")
    base_url: Text = Field(
        description="The address of the API, with the part of the path that all requests share."
    )
    secrets: Mapping[str, Secret] = Field(
        default={}, description="The secrets, each under a name of your choice."
    )
    request: Shared = Field(default=Shared(), description="Settings of all requests.")
    list: ListRequest = Field(description="The request for the list.")
    entry: EntryPaths = Field(default=EntryPaths(), description="The paths to the fields of an item.")
    call: Call = Field(description="The request that calls an entry.")
    reply: Reply = Field(default=Reply(), description="The reading of the reply to a call.")
    balance: Balance | None = Field(default=None, description="A request that tells what is left.")
    network: NetworkSettings = Field(
        default=NetworkSettings(), description="The addresses that connections may go to."
    )
    environment: Environment = Field(
        default=Environment(), description="Variables that go before the profile."
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
        if twice := sorted({each for each in headers if headers.count(each) > 1 or each in fixed_headers}):
            raise ValueError(f"the header {twice[0]} must be set in one place, and is set twice")
        query = [each.key for each in secrets if each.place == "query"]
        fixed_query = {name for table in tables for name in table.query} | {self.list.paging.parameter_name}
        fixed_query |= (
            {self.call.id_field, self.call.request_id_field} if self.call.method == "GET" else set()
        )
        if twice := sorted({each for each in query if query.count(each) > 1 or each in fixed_query}):
            raise ValueError(f"the query parameter {twice[0]} must be set in one place, and is set twice")
        return self
