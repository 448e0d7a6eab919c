"""Checks a profile against its API without buying anything: reads one page and describes what would be sent.

A second page is requested only to check that it differs from the first.

Owns the checks and their messages. An error is a mistake with which tools cannot be bought, or not at the right
price; a warning is something that looks wrong, which only the user can decide.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from toolwire._support.scrubber import Scrubber
from toolwire.catalog.http.api import Api
from toolwire.catalog.http.listing import Reading, outline
from toolwire.catalog.http.requests import (
    OutgoingRequest,
    Position,
    add_credentials,
    order_request,
    page_request,
)
from toolwire.catalog.money import PER_DOLLAR, dollars
from toolwire.catalog.profile.extract import quote_value
from toolwire.catalog.profile.model import Price, Profile
from toolwire.catalog.secrets import Credentials
from toolwire.catalog.tools.definitions import Definition, Entry, define, readable_name
from toolwire.catalog.values import get_path
from toolwire.errors import CatalogError

_MASK: Final = "***"
_ENCODED_MASK: Final = "%2A%2A%2A"
_PRICE_WORDS: Final = re.compile(r"price|cost|cents?\b|credits?|usd|dollars?|amount|fee", re.IGNORECASE)
_ID: Final = re.compile(r"[0-9a-fA-F-]{16,}|\d+")
_EXAMPLES: Final = 3
_CENT: Final = PER_DOLLAR // 100
_UNIT_NAMES: Final = ("currency", "unit", "price_unit", "currency_code")
_DOLLAR_NAMES: Final = {"", "usd", "us$", "$", "dollar", "dollars", "usdc", "usdt"}
# Micro-dollars: a call that costs less than the first or more than the second is probably priced in another unit.
_TINY: Final = 100
_DEAR: Final = 10 * PER_DOLLAR
# Fields in which replies report success, with the values they use; `success` needs no condition.
_FLAGS: Final = ("ok", "isSuccess", "is_success", "succeeded")
_CODES: Final = (
    "code",
    "errno",
    "errcode",
    "err_code",
    "error_code",
    "errorCode",
    "retcode",
    "ret",
    "returnCode",
)
_WORDS: Final = ("status", "state", "result")
_UNAUTHORIZED: Final = re.compile(r"HTTP 40[13]\b")


@dataclass(frozen=True)
class Finding:
    """An error or a warning about a profile."""

    level: Literal["error", "warning"]
    text: str


@dataclass
class Checked:
    """The result of a check. Fields are None where the check did not get that far."""

    profile: str
    list_request: OutgoingRequest
    """Secrets are masked, and the target is a whole URL; the same for `call_request`."""
    reading: Reading | None = None
    next_page: str = ""
    """The request for the next page; empty at the end of the list."""
    entry: Entry | None = None
    """The first entry, as read."""
    definition: Definition | None = None
    """The first entry as a tool."""
    call_request: OutgoingRequest | None = None
    prices: tuple[int, ...] = ()
    """All prices that could be read, the lowest first."""
    balance: int | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        return not any(each.level == "error" for each in self.findings)

    def error(self, text: str) -> None:
        """Add a finding that must be fixed."""
        self.findings.append(Finding("error", text))

    def warn(self, text: str) -> None:
        """Add a finding about something that looks wrong."""
        self.findings.append(Finding("warning", text))


async def check_profile(profile: Profile, api: Api, scrubber: Scrubber) -> Checked:
    """Read one page of the list and the balance, and check them. Buys nothing; a failing API is a finding."""
    checked = await _check(profile, api)
    checked.findings = [replace(each, text=scrubber.text(each.text)) for each in checked.findings]
    checked.next_page = scrubber.text(checked.next_page)  # a link from the API may repeat our secrets
    return checked


async def _check(profile: Profile, api: Api) -> Checked:
    first = Reading(profile).position or Position()
    checked = Checked(profile.name, _mask_request(profile, page_request(profile, first)))
    try:
        reading = await api.read_list(1)
    except CatalogError as error:
        hint = f". Sent: {_describe_secrets(profile)}" if _UNAUTHORIZED.search(str(error)) else ""
        checked.error(f"{error}{hint}")
    else:
        _check_page(profile, reading, checked)
        if reading.position is not None:
            await _check_second_page(reading, api, checked)
    for warning in _setting_warnings(profile):
        checked.warn(warning)
    if profile.balance is not None:
        try:
            checked.balance = await api.balance()
        except CatalogError as error:
            checked.warn(f"the balance could not be read: {error}")
    return checked


async def _check_second_page(first: Reading, api: Api, checked: Checked) -> None:
    """Check that the second page differs: an API that ignores the parameter returns the first page again."""
    try:
        both = await api.read_list(2)
    except CatalogError as error:
        checked.error(str(error))
        return
    known = set(first.paging_problems())
    for problem in both.paging_problems():
        if problem not in known:
            checked.warn(problem)


def _check_page(profile: Profile, reading: Reading, checked: Checked) -> None:
    checked.reading = reading
    if reading.position is not None:
        request = _mask_request(profile, page_request(profile, reading.position))
        body = f" {request.content.decode()}" if request.content else ""
        checked.next_page = f"{request.method} {request.target}{body}"
    entries = reading.entries
    prices = {price for each in entries for price in (each.price, *each.prices.values()) if price is not None}
    checked.prices = tuple(sorted(prices))
    if not reading.items:
        checked.error(
            f"the list has no items at list.items = {profile.list.items!r}: {_describe_page(reading)}"
        )
        return
    for problem in reading.problems():
        text = f"{problem.text}: {problem.example}" if problem.example else problem.text
        (checked.error if problem.essential else checked.warn)(text)
    if not entries:
        return
    checked.entry = entries[0]
    for warning in (
        *_entry_warnings(profile, reading),
        *_price_warnings(profile, reading, checked.prices),
        *_reply_warnings(profile, reading),
    ):
        checked.warn(warning)
    _make_tools(profile, entries, checked)


def _make_tools(profile: Profile, entries: list[Entry], checked: Checked) -> None:
    """Build tools from the entries on the page, and the request that would buy the first."""
    definitions, skipped = define(entries, separator=profile.entry.name_separator)
    if skipped:
        shown = "; ".join(f"{each.name or each.id}: {each.reason}" for each in skipped[:_EXAMPLES])
        note = checked.warn if definitions else checked.error
        note(f"{len(skipped)} of {len(entries)} entries cannot be tools: {shown}")
    by_id = {each.id: each for each in definitions}
    checked.definition = by_id.get(entries[0].id)
    refused: dict[str, int] = {}
    for entry in entries:
        if (definition := by_id.get(entry.id)) is None:
            continue
        entry_id = checked.reading.numbers.get(entry.id, entry.id) if checked.reading else entry.id
        try:
            request = order_request(profile, entry_id, _placeholders(definition), "CALL-ID")
        except CatalogError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
            continue
        if entry is entries[0]:
            checked.call_request = _mask_request(profile, request)
    for reason, count in list(refused.items())[:_EXAMPLES]:
        note = checked.warn if sum(refused.values()) < len(definitions) else checked.error
        note(f"{count} of {len(entries)} entries cannot be called: {reason}")


def _entry_warnings(profile: Profile, reading: Reading) -> Iterator[str]:
    paths, entries = profile.entry, reading.entries
    if (twice := reading.items - reading.without_id - len({each.id for each in entries})) > 0:
        yield f"{twice} items have the same id as another item: is entry.id = {paths.id!r} the right path?"
    names = [readable_name(each.id, each.name, each.description, paths.name_separator) for each in entries]
    if all(_ID.fullmatch(name) for name in names):
        hint = ", or entry.name_separator if the description begins with the name"
        yield f"the names are ids ({names[0][:40]}): set entry.name{hint}"
    separator = paths.name_separator
    if separator and not any(separator in each.description for each in entries):
        yield f"entry.name_separator = {separator!r} is in no description, so it has no effect"
    if "description" not in paths.model_fields_set and not any(each.description for each in entries):
        has = outline(reading.first_item)
        yield f"no entry has a description, which the model needs: set entry.description (the item has {has})"


def _price_warnings(profile: Profile, reading: Reading, prices: tuple[int, ...]) -> Iterator[str]:
    price = profile.entry.price
    if not price.path and not price.by_value:
        found = [each for each in outline(reading.first_item, 100).split(", ") if _PRICE_WORDS.search(each)]
        hint = f" (is it {found[0]}?)" if found else ""
        yield f"entry.price is not set{hint}: the cost of a call is not known before it is bought"
        return
    unpriced = sum(each.price is None and not each.prices for each in reading.entries)
    if unpriced and not reading.unreadable_prices and {"price", "price.by_value"} & reading.found.keys():
        yield f"{unpriced} of {len(reading.entries)} entries have no price: the cost of calling them is not known"
    if prices and (doubt := _unit_doubt(price, reading.first_item, prices)):
        yield f"prices {_span(prices)}{doubt}"
    if price.argument:
        yield from _argument_warnings(price.argument, reading.entries)


def _unit_doubt(price: Price, item: Any, prices: tuple[int, ...]) -> str:
    """Explain why the prices may be in another unit; "" if nothing suggests it."""
    highest = prices[-1]
    if price.unit == "dollars" and not price.units:
        word = next((word for word in ("cents", "credits", "micros") if word[:-1] in price.path.lower()), "")
        whole = all(each % PER_DOLLAR == 0 for each in prices) and highest > 0
        if beside := _unit_beside(price.path, item):
            return f", and {beside}: entry.price.unit is dollars. Set it, or unit_path and units"
        if word or whole:
            return f": is the unit {word or 'cents'}? entry.price.unit is dollars"
    elif (
        price.unit in ("cents", "micros") and "." in str(get_path(item, price.path)) and highest < 10 * _TINY
    ):
        return f": is the unit dollars? entry.price.unit is {price.unit}"
    if highest >= _DEAR:
        return f": is a call that expensive? entry.price.unit is {price.unit}"
    if 0 < highest < _TINY:
        return (
            f": are these prices per call, and not per token or another part of a call? entry.price.unit is "
            f"{price.unit}"
        )
    return ""


def _argument_warnings(argument: str, entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        if not entry.prices:
            continue
        parameters = _parameters(entry.schema)
        if argument not in parameters:
            yield (
                f"entry.price.argument = {argument!r} is not a parameter of {entry.name}, which will always "
                "cost the highest price"
            )
            return
        choices = get_path(parameters[argument], "enum")
        if isinstance(choices, list) and not entry.prices.keys() & {str(each) for each in choices}:
            priced = ", ".join(list(entry.prices)[:_EXAMPLES])
            allowed = ", ".join(map(str, choices[:_EXAMPLES]))
            yield (
                f"{entry.name} has prices for {priced}, but its {argument!r} can only be {allowed}: it will always "
                "cost the highest price"
            )
            return


def _setting_warnings(profile: Profile) -> Iterator[str]:
    """Yield warnings about the profile alone."""
    price, reply = profile.entry.price, profile.reply
    tables = (profile.request, profile.call)
    if not profile.secrets and not any(table.headers or table.query for table in tables):
        yield "there is no [secrets]: the API cannot know who pays"
    for name in ("cost", "balance"):
        path = getattr(reply, name) or getattr(reply, f"{name}_header")
        other_unit = price.unit != "dollars" or bool(price.units)
        if path and other_unit and f"{name}_unit" not in reply.model_fields_set:
            yield f"prices are not in dollars, but reply.{name}_unit is not set: the {name} is read as dollars"


def _describe_secrets(profile: Profile) -> str:
    """Describe where the secrets are sent, for a request that was not authorized."""
    places = [
        f"the query parameter {each.key}"
        if each.place == "query"
        else "basic authentication"
        if each.place == "basic"
        else f"the header {each.key}: {each.template.replace('{value}', _MASK)}"
        for each in profile.secrets.values()
    ]
    return f"{' and '.join(places)} (check [secrets])" if places else "no secret, since there is no [secrets]"


def _unit_beside(path: str, item: Any) -> str:
    """Describe a field beside the price that names another unit than dollars."""
    first = next((each for each in path.split("|") if get_path(item, each) is not None), "")
    table = first.rpartition(".")[0]
    for name in _UNIT_NAMES:
        place = f"{table}.{name}" if table else name
        value = get_path(item, place)
        if isinstance(value, str) and value.strip().lower() not in _DOLLAR_NAMES:
            return f"{place} is {value[:40]!r}"
    return ""


def _reply_warnings(profile: Profile, reading: Reading) -> Iterator[str]:
    """Yield warnings about replies, based on a page of the list, which often has the same envelope."""
    page, reply = reading.first_page, profile.reply
    if not isinstance(page, Mapping) or reply.failure:
        return
    for name, value in page.items():
        if (name in _FLAGS and isinstance(value, bool)) or (name in _CODES and type(value) is int):
            condition = (
                f"equals = {quote_value(not value)}" if isinstance(value, bool) else f"not_in = [{value}]"
            )
        elif name in _WORDS and isinstance(value, str):
            condition = f"not_in = [{quote_value(value)}]"
        else:
            continue
        yield (
            f"the list has {name} = {quote_value(value)}: if replies to calls report failures like this, set "
            f'[reply] failure = [{{ path = "{name}", {condition} }}]'
        )
        return


def _placeholders(definition: Definition) -> dict[str, Any]:
    """Make placeholder arguments, to show what a call would look like."""
    properties = definition.schema.get("properties", {})
    return {name: _placeholder(name, schema) for name, schema in properties.items()}


def _placeholder(name: str, schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return f"<{name}>"
    for key in ("default", "const"):
        if schema.get(key) is not None:
            return schema[key]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    usual: dict[Any, Any] = {"integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
    return usual.get(kind, f"<{name}>")


def _parameters(schema: Any) -> Mapping[str, Any]:
    found = get_path(schema, "properties")
    return found if isinstance(found, Mapping) else schema if isinstance(schema, Mapping) else {}


def _mask_request(profile: Profile, request: OutgoingRequest) -> OutgoingRequest:
    """Return the request as it would be sent, with masked secrets and a whole URL."""
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    for each in profile.secrets.values():
        shown = each.template.replace("{value}", _MASK)
        if each.place == "query":
            query[each.key] = shown
        elif each.place == "basic":
            headers["Authorization"] = f"Basic {_MASK}"
        else:
            headers[each.key] = shown
    sent = add_credentials(request, Credentials(headers, query))
    target = profile.base_url.rstrip("/") + sent.target.replace(_ENCODED_MASK, _MASK)
    return OutgoingRequest(sent.method, target, sent.headers, sent.content)


def _span(prices: tuple[int, ...]) -> str:
    lowest, highest = (dollars(each, 2 if each % _CENT == 0 else 4) for each in (prices[0], prices[-1]))
    return f"of {lowest}" if lowest == highest else f"from {lowest} to {highest}"


def _describe_page(reading: Reading) -> str:
    page = reading.first_page
    return f"the page has {outline(page)}" if isinstance(page, Mapping) else "the page is an empty list"


def price_words(entry: Entry) -> str:
    """Format the price of an entry."""
    if entry.prices:
        each = ", ".join(
            f"{value} {'unreadable' if price is None else dollars(price)}"
            for value, price in entry.prices.items()
        )
        return f"by {entry.price_argument}: {each}"
    return "unknown" if entry.price is None else dollars(entry.price)


def describe_parameters(definition: Definition) -> list[str]:
    """Format the parameters of a tool, one line each: `city (string, required)`."""
    required = definition.schema.get("required", [])
    lines = []
    for name, schema in definition.schema.get("properties", {}).items():
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        words = [" or ".join(kind) if isinstance(kind, list) else str(kind or "any")]
        words += ["required"] if name in required else []
        lines.append(f"{name} ({', '.join(words)})")
    return lines


def found_counts(checked: Checked) -> dict[str, int]:
    """Count how many items of the page have each field."""
    reading = checked.reading
    if reading is None:
        return {}
    entries = reading.entries
    return {
        "items": reading.items,
        "ids": reading.items - reading.without_id,
        "names": reading.found.get("name", 0),
        "descriptions": reading.found.get("description", 0),
        "schemas": reading.found.get("schema", 0),
        "categories": reading.found.get("category", 0),
        "prices": sum(each.price is not None or bool(each.prices) for each in entries),
        "unreadable_prices": reading.unreadable_prices,
    }
