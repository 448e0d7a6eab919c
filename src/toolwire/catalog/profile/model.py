"""Profiles: all that is particular to one catalogue's API, as data.

Owns the fields, their rules, the built-in profiles and the reading of profile files (TOML, and YAML where PyYAML
is installed). It reads the one file that it is told to; it knows nothing of HTTP.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from toolwire.catalog.money import micros
from toolwire.catalog.profile.file import read
from toolwire.catalog.profile.rules import (
    ListParams,
    ProfileError,
    Secret,
    check_address,
    check_header,
    check_keys,
    check_paging,
    check_path,
    check_secret,
    check_type,
    check_variable,
)
from toolwire.catalog.tools.definitions import Entry
from toolwire.catalog.values import at

__all__ = ["BUILTIN", "ListParams", "Profile", "ProfileError", "Secret", "at", "check_address"]

_METHODS: Final = ("POST", "PUT", "PATCH")


@dataclass(frozen=True)
class Profile:
    """Everything about one API.

    Paths into replies and items are dotted (`function.name`); empty means none, `a|b.c` the first that is there.
    """

    name: str
    base_url: str
    list_path: str
    call_path: str
    list_params: ListParams = field(default_factory=ListParams)
    items: str = "items"
    """Path to the list in a page; empty: the page is the list."""
    more: str = ""
    """Path to the flag that says there is another page; without it pages are read until one has nothing new."""
    id: str = "id"
    item_name: str = "name"
    description: str = "description"
    schema: str = "schema"
    price: str = ""
    category: str = ""
    name_separator: str = ""
    """Where the API's names are ids: the readable name is the text before this in the description."""
    call_method: str = "POST"
    id_field: str = "product_id"
    arguments_field: str = "parameters"
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """More that every call's body says."""
    request_id_field: str = ""
    """Where the body carries the call's own id."""
    idempotency_header: str = ""
    """The header that carries the call's own id."""
    idempotent: bool = False
    """Whether the API promises to charge once for the same id: only then is a call ever sent again."""
    uncharged_statuses: frozenset[int] = frozenset({400, 401, 402, 403, 404, 422})
    """Statuses that the API answers without charging."""
    streams: bool = False
    """Whether calls may ask for `?stream=true` and get server-sent events."""
    timeout: float = 30.0
    """Seconds that a call may take."""
    timeouts: Mapping[str, float] = field(default_factory=dict)
    """The same, for single tools by name or id."""
    max_reply_bytes: int = 10 * 1024 * 1024
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    """Header -> the secret that it carries."""
    base_url_variable: str = ""
    budget_variable: str = ""
    filter_variable: str = ""

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def load(cls, path: str | Path) -> "Profile":
        """The profile in a `.toml`, `.yaml` or `.yml` file."""
        path = Path(path)
        return cls.from_dict(read(path), where=str(path))

    @classmethod
    def find(cls, text: str) -> "Profile":
        """A built-in profile by its name, or one in a file by its path."""
        if text in BUILTIN:
            return BUILTIN[text]
        if Path(text).suffix or Path(text).exists():
            return cls.load(text)
        raise ProfileError(
            f"there is no profile {text!r}: built in are {', '.join(BUILTIN)}; for one of your own, "
            "give the path of its .toml or .yaml file"
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "profile") -> "Profile":
        """A profile from the keys and tables that a file has."""
        if not isinstance(data, Mapping):
            raise ProfileError(f"{where}: a profile must be a table of settings, got {type(data).__name__}")
        values = _known(data, cls, where)
        if "list_params" in values:
            values["list_params"] = _made(values["list_params"], ListParams, f"{where}: list_params")
        if "secrets" in values:
            check_type(values["secrets"], "table", f"{where}: secrets")
            values["secrets"] = {
                header: _made(each, Secret, f"{where}: secrets.{header}")
                for header, each in values["secrets"].items()
            }
        if isinstance(values.get("uncharged_statuses"), list):
            check_type(values["uncharged_statuses"], "statuses", f"{where}: uncharged_statuses")
            values["uncharged_statuses"] = frozenset(values["uncharged_statuses"])
        try:
            return cls(**values)
        except ProfileError as error:
            raise ProfileError(f"{where}: {error}") from None

    def as_dict(self) -> dict[str, Any]:
        """What `from_dict` takes: the settings that differ from the defaults, in plain JSON types."""
        plain: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if value == _default(each):
                continue
            if isinstance(value, frozenset):
                value = sorted(value)
            elif isinstance(value, ListParams):
                value = vars(value).copy()
            elif each.name == "secrets":
                value = {header: vars(secret).copy() for header, secret in value.items()}
            elif isinstance(value, Mapping):
                value = dict(value)
            plain[each.name] = value
        return plain

    def resolved(self, environ: Mapping[str, str]) -> "Profile":
        """The profile with the address that the environment gives, if it gives one."""
        variable = self.base_url_variable
        if not variable or not (address := environ.get(variable, "").strip()):
            return self
        try:
            return replace(self, base_url=address)
        except ProfileError as error:
            raise ProfileError(f"{variable}: {error}") from None

    def entry(self, item: Any) -> Entry | None:
        """The entry that an item of the list tells of; None for one without an id: it could not be bought."""
        identity = at(item, self.id)
        if isinstance(identity, bool) or not isinstance(identity, (str, int)) or identity == "":
            return None
        name, description = at(item, self.item_name), at(item, self.description)
        category = at(item, self.category)
        try:
            price = micros(at(item, self.price))
        except ValueError:  # the same as none: it is learnt from a reply
            price = None
        return Entry(
            id=str(identity),
            name=str(identity) if name is None else str(name),
            description=description if isinstance(description, str) else "",
            schema=at(item, self.schema),
            price=price,
            category=category if isinstance(category, str) and category else None,
            raw=item if isinstance(item, Mapping) else {},
        )


_TYPES: Final = {
    **dict.fromkeys(("idempotent", "streams"), "true or false"),
    **dict.fromkeys(("timeout",), "seconds"),
    **dict.fromkeys(("max_reply_bytes",), "whole number"),
    **dict.fromkeys(("extra_body", "timeouts", "secrets"), "table"),
    "uncharged_statuses": "statuses",
    "list_params": "",
}


def _check(profile: Profile) -> None:
    for each in fields(profile):
        check_type(getattr(profile, each.name), _TYPES.get(each.name, "text"), each.name)
    for required in ("name", "id", "id_field", "arguments_field"):
        if not getattr(profile, required):
            raise ProfileError(f"{required} must not be empty")
    check_address(profile.base_url)
    for path in ("list_path", "call_path"):
        check_path(getattr(profile, path), path)
    check_paging(profile.list_params)
    _check_call(profile)
    for header, secret in profile.secrets.items():
        check_secret(header, secret)
    for variable in ("base_url_variable", "budget_variable", "filter_variable"):
        if getattr(profile, variable):
            check_variable(getattr(profile, variable), variable)


def _check_call(profile: Profile) -> None:
    if profile.call_method not in _METHODS:
        raise ProfileError(f"call_method must be one of {', '.join(_METHODS)}, got {profile.call_method!r}")
    for tool, seconds in profile.timeouts.items():
        check_type(seconds, "seconds", f"timeouts.{tool}")
    if profile.idempotency_header:
        check_header(profile.idempotency_header, "idempotency_header")
    if profile.idempotent and not (profile.idempotency_header or profile.request_id_field):
        raise ProfileError(
            "idempotent is true, and nothing carries the call's id: set idempotency_header or request_id_field"
        )


def _known(data: Mapping[str, Any], cls: type, where: str) -> dict[str, Any]:
    """The settings of a table, all of them known and none missing."""
    allowed = fields(cls)
    check_keys(data, [each.name for each in allowed], where)
    if missing := [each.name for each in allowed if each.name not in data and _default(each) is MISSING]:
        raise ProfileError(f"{where}: {', '.join(missing)} must be set")
    return dict(data)


def _made(data: Any, cls: type, where: str) -> Any:
    check_type(data, "table", where)
    return cls(**_known(data, cls, where))


def _default(each: Any) -> Any:
    return each.default_factory() if each.default_factory is not MISSING else each.default


BUILTIN: Final[dict[str, Profile]] = {
    "agentpmt": Profile(
        name="agentpmt",
        base_url="https://api.agentpmt.com",
        list_path="/products/fetch",
        call_path="/products/purchase",
        items="tools",
        more="details.has_next_page",
        id="function.name",
        item_name="function.name",
        description="function.description",
        schema="function.parameters",
        price="price|function.price",
        category="category|function.category",
        name_separator=" — ",
        secrets={
            "x-api-key": Secret("AGENT_PAYMENT_API_KEY", "api_key"),
            "x-budget-key": Secret("AGENT_PAYMENT_BUDGET_KEY", "budget_key"),
        },
        base_url_variable="AGENT_PAYMENT_BASE_URL",
        budget_variable="AGENT_PAYMENT_BUDGET",
        filter_variable="AGENT_PAYMENT_TOOLS_FILTER",
    )
}
