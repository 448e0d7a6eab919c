"""Reads the reply to a call, and builds the MCP result from it.

Pure: it sees a decoded body, never the network. Paths and conditions of the profile have precedence; everything
else is found automatically, in the formats that most APIs use:

    {success, result, cost, balance}
    {success, output, error}
    {success, response: {status_code, data: {success, output}}, purchase_details, error}

A reply is an envelope, often with several levels, around the result. Each level may say that the call failed,
which is then true whatever the other levels and the HTTP status say. Inside the result only its first level is
checked. Cost and balance are read from the outermost level and from the objects about the purchase: an amount
further inside is part of the result. So is every field beside the result that does not belong to the envelope.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from toolwire._support.log import logger_for
from toolwire.catalog.http.answers import RawBody
from toolwire.catalog.money import DOLLARS, PER_DOLLAR, dollars, micros
from toolwire.catalog.profile.extract import quote_value, read_amount
from toolwire.catalog.profile.tables import Condition, Reply, rate_of
from toolwire.catalog.values import fits, get_path, has_path, is_denied, json_text
from toolwire.tools.results.content import Audio, Image, Resource, blob_uri, sniff
from toolwire.tools.schema.arguments import clip

_log = logger_for("catalog.replies")

_RESULTS: Final = ("output", "result", "data", "response")
_ENVELOPES: Final = ("response", "data", "purchase_result")
_PURCHASES: Final = ("purchase_details", "purchase_result")
_PAYMENTS: Final = (
    *_PURCHASES,
    "payment",
    "billing",
)  # the last two outermost only: elsewhere they may be data
_COSTS: Final = ("cost", "price", "amount_charged", "total_cost", "amount")
_BALANCES: Final = ("balance", "remaining_balance", "new_balance", "balance_after")
_MARKS: Final = {"success", "error", "errors", "status_code", *_PURCHASES}
_ENVELOPE_KEYS: Final = {*_MARKS, *_PAYMENTS, *_RESULTS}
_ERRORS: Final = ("error", "errors", "message", "detail", "reason")
_FAILED: Final = ("error", "failed", "failure")
_WENT_WELL: Final = ("ok", "success", "successful", "completed", "complete", "done")
_FIRST_BAD_STATUS: Final = 400
_LONGEST_ERROR: Final = 2_000
_DEPTH: Final = 16
_LOGGED: set[str] = set()  # warnings about replies, each of which is logged once

UNREADABLE: Final = "unreadable reply"
FAILED: Final = "Tool execution failed: "
"""The beginning of the result of a failed call."""


@dataclass(frozen=True)
class Outcome:
    """The meaning of a reply: success or failure, result, cost and balance."""

    ok: bool
    text: str = ""
    """The result as text; empty for a failure without one."""
    structured: dict[str, Any] | None = None
    """The result as an object, if it is one (a list is `{"result": [...]}`)."""
    cost: int | None = None
    """The cost in the reply, in micro-dollars; None if it has none."""
    balance: int | None = None
    """The remaining balance in the reply, in micro-dollars; None if it has none."""
    error: str | None = None
    """The reason for a failure, in the API's words; None for a success."""
    unreadable_cost: str | None = None
    """A cost in the reply that is not an amount, as JSON (`"5 EUR"`); `cost` is None then."""
    content: tuple[dict[str, Any], ...] = ()
    """Images, audio and files, as content blocks of an MCP result."""


def read_reply(body: Any, reply: Reply = Reply(), headers: Mapping[str, str] | None = None) -> Outcome:  # noqa: B008 - frozen
    """Read a decoded reply by the profile's `[reply]`. Never raises. The names of `headers` are lower case."""
    headers = headers or {}
    if isinstance(body, RawBody):
        outcome = _read_raw(body)
    elif isinstance(body, Mapping):
        outcome = _read_by_paths(body, reply)
    else:
        outcome = _read_automatically(body)
    if reply.cost_header:
        value = headers.get(reply.cost_header.lower())
        cost, unreadable = read_amount(value, rate_of(reply.cost_unit))
        outcome = replace(outcome, cost=cost, unreadable_cost=unreadable)
        if outcome.ok and value is None:
            _log_once(
                f"a reply has no header {reply.cost_header} (reply.cost_header), so its cost is not known"
            )
    if reply.balance_header:
        balance, _ = read_amount(headers.get(reply.balance_header.lower()), rate_of(reply.balance_unit))
        outcome = replace(outcome, balance=balance)
    return outcome


def _read_raw(body: RawBody) -> Outcome:
    """Read a reply that is not JSON: text, an image, audio, or else a file."""
    if isinstance(body.content, str):
        return Outcome(True, _replace_surrogates(body.content))
    seen = sniff(body.content) or (body.media_type if body.media_type.startswith("audio/") else "")
    made: Image | Audio | Resource
    if not body.content:
        return Outcome(ok=True)
    if seen.startswith("image/"):
        made = Image(body.content, mime_type=seen)
    elif seen.startswith("audio/"):
        made = Audio(body.content, mime_type=seen)
    else:
        made = Resource(blob_uri(body.content), blob=body.content, mime_type=body.media_type)
    return Outcome(ok=True, content=(made.block(),))


def _read_by_paths(body: Mapping[str, Any], reply: Reply) -> Outcome:
    """Read an object by the profile's paths, as far as they are set."""
    money = {name for path in (reply.cost, reply.balance) for name in path.split("|") if "." not in name}
    rest = {name: value for name, value in body.items() if name not in money}
    outcome = _read_automatically(rest if len(rest) < len(body) else body)
    if reply.result and outcome.ok:
        outcome = _take_result(outcome, body, reply.result)
    if reply.cost:
        cost, unreadable = read_amount(get_path(body, reply.cost), rate_of(reply.cost_unit))
        outcome = replace(outcome, cost=cost, unreadable_cost=unreadable)
    if reply.balance:
        balance, _ = read_amount(get_path(body, reply.balance), rate_of(reply.balance_unit))
        outcome = replace(outcome, balance=balance)
    if reply.failure:
        outcome = _apply_conditions(outcome, body, reply)
    elif not outcome.ok and (error := _error_text_at(body, reply.error)):
        outcome = replace(outcome, error=error)
    if reply.cost and outcome.ok and outcome.cost is None and outcome.unreadable_cost is None:
        _log_once(f"a reply has nothing at reply.cost = {reply.cost!r}, so its cost is not known")
    return outcome


def _take_result(outcome: Outcome, body: Mapping[str, Any], path: str) -> Outcome:
    if not has_path(body, path):
        _log_once(f"a reply has nothing at reply.result = {path!r}, so the whole reply is used")
        return outcome
    result = get_path(body, path)
    return replace(outcome, text=_text(result), structured=_structured(result))


def _apply_conditions(outcome: Outcome, body: Mapping[str, Any], reply: Reply) -> Outcome:
    """Decide success or failure by the profile's conditions alone."""
    held = [condition for condition in reply.failure if _holds(condition, body)]
    if not held:
        if outcome.ok:
            return outcome
        text, structured = _text(dict(body)), _structured(body)  # without conditions it looked like a failure
        judged = replace(outcome, ok=True, error=None, text=text, structured=structured)
        return _take_result(judged, body, reply.result) if reply.result else judged
    first = held[0]
    found = (_error_text(body.get(key)) for key in _ERRORS)
    error = _error_text_at(body, reply.error) or next(filter(None, found), "") or outcome.error
    why = error or f"the API reports a failure ({first.path} is {quote_value(get_path(body, first.path))})"
    has_cost = outcome.cost is not None or outcome.unreadable_cost is not None
    free = not has_cost and any(not condition.charged for condition in held)
    return replace(outcome, ok=False, error=clip(why, _LONGEST_ERROR), cost=0 if free else outcome.cost)


def _holds(condition: Condition, body: Mapping[str, Any]) -> bool:
    """True if all tests of a condition are true for the value."""
    value, exists = get_path(body, condition.path), has_path(body, condition.path)
    checks = []
    if "equals" in condition.model_fields_set:
        checks.append(exists and _same(value, condition.equals))
    if condition.one_of is not None:
        checks.append(exists and any(_same(value, each) for each in condition.one_of))
    if condition.not_in is not None:
        checks.append(value is not None and not any(_same(value, each) for each in condition.not_in))
    if condition.present is not None:
        something = value is not None and value is not False and value not in ("", [], {})
        checks.append(something is condition.present)
    return all(checks)


def _same(value: Any, other: Any) -> bool:
    """True if two values are equal as JSON, where true is not 1."""
    return isinstance(value, bool) is isinstance(other, bool) and bool(value == other)


def _error_text_at(body: Mapping[str, Any], path: str) -> str:
    value = get_path(body, path)
    return _error_text(value) or ("" if value is None or value == "" else _text(value))


def _log_once(warning: str) -> None:
    if warning not in _LOGGED:
        _LOGGED.add(warning)
        _log.warning("%s", warning)


def _read_automatically(body: Any) -> Outcome:
    """Read a reply in one of the usual formats."""
    if isinstance(body, list):
        return Outcome(True, _text(body), _structured(body))
    if not isinstance(body, Mapping):
        return Outcome(ok=False, error=f"{UNREADABLE}: {_kind(body)} instead of an object")
    levels, key = _open_envelope(body)
    payments = [
        level[name]
        for level in levels
        for name in (_PAYMENTS if level is body else _PURCHASES)
        if isinstance(level.get(name), Mapping)
    ]
    # In a reply without an envelope, `cost` is part of the result.
    outer = body if _ENVELOPE_KEYS & body.keys() or _says_failed(body) else {}
    (cost, unreadable), (balance, _) = _amount(outer, payments, _COSTS), _amount(outer, payments, _BALANCES)
    result = _result(levels, key, _names_of_amounts(outer))
    text, structured = _text(result), _structured(result)
    failures = [level for level in (*levels, *payments) if _says_failed(level)]
    inner = levels[-1][key] if key else None
    if (
        isinstance(inner, Mapping)
        and isinstance(inner.get("success"), (bool, str))
        and is_denied(inner["success"])
    ):
        failures.append(inner)
    if failures:
        why = _why(levels, failures) or _text(inner) or text or "the API reports a failure without a reason"
        return Outcome(False, text, structured, cost, balance, clip(why, _LONGEST_ERROR), unreadable)
    return Outcome(True, text, structured, cost, balance, unreadable_cost=unreadable)


def build_result(outcome: Outcome, price: int | None = None) -> dict[str, Any]:
    """Build the MCP result. `price` is that of the catalogue, for a success whose reply has no cost.

    Structured content is `{"result": ..., "cost": 0.01, "balance": 9.99}` in dollars: the result is a separate
    field, so that a `cost` inside it is not overwritten.
    """
    cost = outcome.cost if outcome.cost is not None or not outcome.ok else price
    lines = []
    if outcome.ok:
        lines += [outcome.text] if outcome.text else []
    else:
        lines.append(f"{FAILED}{outcome.error or 'no reason given'}")
    lines += [f"Cost: {dollars(cost)}"] if cost is not None else []
    lines += [f"Remaining Balance: {dollars(outcome.balance, 2)}"] if outcome.balance is not None else []
    # The model's API rejects empty text.
    text = "\n".join(lines) or ("The result is attached." if outcome.content else "The tool gave no result.")
    content = [{"type": "text", "text": text}, *outcome.content]
    made: dict[str, Any] = {"content": content, "isError": not outcome.ok}
    if outcome.ok and outcome.structured is not None:
        inner = outcome.structured
        made["structuredContent"] = {"result": inner["result"] if inner.keys() == {"result"} else inner}
        for name, amount in (("cost", cost), ("balance", outcome.balance)):
            if amount is not None:
                made["structuredContent"][name] = amount / PER_DOLLAR
    return made


def _open_envelope(body: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return the levels of the envelope, outermost first, and the key of the result in the last one."""
    levels = [body]
    for _ in range(_DEPTH):
        key = _result_key(levels[-1])
        value = levels[-1][key] if key else None
        if key not in _ENVELOPES or not isinstance(value, Mapping) or not _is_envelope(value):
            return levels, key
        levels.append(value)
    return levels, None


def _result_key(level: Mapping[str, Any]) -> str | None:
    there = [each for each in _RESULTS if each in level]
    return next((each for each in there if level[each] is not None), there[0] if there else None)


def _is_envelope(value: Mapping[str, Any]) -> bool:
    return bool({"success", "status_code", "output", "result", "data"} & value.keys())


def _result(levels: list[Mapping[str, Any]], key: str | None, money: set[str]) -> Any:
    """Return what was bought: the result and the fields beside it on any level.

    Without a result, it is everything except the envelope. `money` are the names of the amounts that were read on
    the outermost level.
    """
    body, last = levels[0], levels[-1]
    if key is None and last is body and not _ENVELOPE_KEYS & body.keys():
        return dict(body)
    beside: dict[str, Any] = {}
    for level, below in zip(levels, [*levels[1:], None], strict=True):
        drop = {*_MARKS, *(money | set(_PAYMENTS) if level is body else ())}
        for name, value in level.items():
            if name in drop or (below is not None and (value is below or name == "message")):
                continue
            if (key is None and level is last) or not _is_noise(name, value):
                beside[name] = value
    if key is None:
        return beside["message"] if beside.keys() == {"message"} else beside or None
    result = last[key]
    beside = {
        name: value
        for name, value in beside.items()
        if name != key and not (isinstance(value, str) and value == result)
    }
    if not beside:
        return result
    return beside if result is None else {key: result, **beside}


def _is_noise(name: str, value: Any) -> bool:
    """True for a field beside a result that carries no information."""
    return value is None or (
        name == "status" and isinstance(value, str) and value.strip().lower() in (*_WENT_WELL, *_FAILED)
    )


def _says_failed(level: Mapping[str, Any]) -> bool:
    status: Any = level.get("status_code")
    if isinstance(status, str) and status.isdecimal() and len(status) < 5:  # noqa: PLR2004 - a status has three
        status = int(status)
    if fits(status, "number") and status >= _FIRST_BAD_STATUS:
        return True
    if level.get("success") is not None:
        return is_denied(level["success"])
    # The word alone may be data, such as the state of a job.
    failed = isinstance(level.get("status"), str) and level["status"].strip().lower() in _FAILED
    return bool(level.get("error") or (failed and any(_error_text(level.get(key)) for key in _ERRORS)))


def _why(levels: list[Mapping[str, Any]], failures: list[Mapping[str, Any]]) -> str:
    """Return the API's reason for a failure: from the innermost level that failed, else from any level."""
    for group, keys in ((failures, _ERRORS), (levels, _ERRORS[:2])):
        for level in reversed(group):
            for key in keys:
                if text := _error_text(level.get(key)):
                    return text
    for level in failures:
        if level.get("status_code") is not None:
            return f"status {clip(str(level['status_code']), 20)}"
    return ""


def _error_text(error: Any) -> str:
    """Return the text of an error, which may be a text, an object or a list."""
    if isinstance(error, str):
        return _replace_surrogates(error).strip()
    if isinstance(error, Mapping):
        inner = next((error[key] for key in ("message", "detail", "error", "title") if error.get(key)), None)
        return _error_text(inner) if isinstance(inner, str) else _text(dict(error)) if error else ""
    if isinstance(error, list):
        return "; ".join(
            filter(None, (_error_text(each) if isinstance(each, (str, dict)) else "" for each in error))
        )
    return ""


def _amount(
    body: Mapping[str, Any], payments: list[Mapping[str, Any]], names: tuple[str, ...]
) -> tuple[int | None, str | None]:
    """Return the first amount in the envelope; if none can be read, the first unreadable value, quoted."""
    # Outside the objects about the payment only the plain names are used: others may be part of the result.
    plain = names[:2] if names is _BALANCES else names[:1]
    first_unreadable = None
    for place, wanted in ((body, plain), *((payment, names) for payment in payments)):
        for name in wanted:
            amount, unreadable = read_amount(place.get(name), DOLLARS)
            if amount is not None:
                return amount, None
            if unreadable is not None and names is _COSTS:
                first_unreadable = first_unreadable or unreadable
                _log_once(f"A reply's {name} is {_kind(place[name])} that cannot be read as dollars")
    return None, first_unreadable


def _names_of_amounts(body: Mapping[str, Any]) -> set[str]:
    """Return the names on the outermost level that `_amount` can read, or that are empty."""
    names = set()
    for name in (_COSTS[0], *_BALANCES[:2]):
        with contextlib.suppress(ValueError):
            if body.get(name) is not None:
                micros(body[name])
            names.add(name)
    return names


def _text(result: Any) -> str:
    if isinstance(result, str):
        return _replace_surrogates(result)
    if result is None:
        return ""
    try:
        return orjson.dumps(result).decode()
    except TypeError:
        pass  # integers over 64 bits, half surrogate pairs and very deep values are rejected by orjson only
    try:
        return json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return UNREADABLE


def _structured(result: Any) -> dict[str, Any] | None:
    if isinstance(result, list):
        result = {"result": result}
    if not isinstance(result, Mapping) or not result:
        return None
    return None if json_text(result) is None else dict(result)  # what cannot be sent is in the text


def _replace_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which cannot be sent."""
    return text.encode("utf-8", "replace").decode()


def _kind(value: Any) -> str:
    names = {
        "null": "null",
        "boolean": "a boolean",
        "number": "a number",
        "string": "text",
        "array": "a list",
    }
    return next((words for kind, words in names.items() if fits(value, kind)), type(value).__name__)
