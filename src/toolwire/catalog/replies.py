"""What the API answered to a call, and what the model is shown of it.

Owns the reading of the known shapes of a reply and the making of the MCP result. Pure: it sees a decoded body,
never the network. The shapes:

    {success, result, cost, balance}
    {success, output, error}
    {success, response: {status_code, data: {success, output}}, purchase_details, error}

A reply is an envelope, often of several levels, around the result. Each level may say that the call failed, and one
that does is believed, whatever the others and the HTTP status say. Inside the result only its own first level is
asked.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from toolwire.catalog._values import fits
from toolwire.catalog.money import PER_DOLLAR, dollars, micros
from toolwire.tools.parameters import clipped

_RESULTS: Final = ("output", "result", "data", "response")
_ENVELOPES: Final = ("response", "data", "purchase_result")
_PAYMENTS: Final = ("purchase_details", "purchase_result", "payment", "billing")
_COSTS: Final = ("cost", "price", "amount_charged", "total_cost", "amount")
_BALANCES: Final = ("balance", "remaining_balance", "new_balance", "balance_after")
_ENVELOPE_KEYS: Final = {"success", "error", "errors", "status_code", "message", *_PAYMENTS, *_RESULTS}
_ERRORS: Final = ("error", "errors", "message", "detail", "reason")
_FAILED: Final = ("false", "0", "no")
_FIRST_BAD_STATUS: Final = 400
_LONGEST_ERROR: Final = 2_000
_DEPTH: Final = 16
_NOTHING: Final = object()

UNREADABLE: Final = "unreadable reply"


@dataclass(frozen=True)
class Outcome:
    """A reply, read."""

    ok: bool
    text: str = ""
    """The result as text; empty for a failure without one."""
    structured: dict[str, Any] | None = None
    """The result as an object, when it is one (a list is `{"result": [...]}`)."""
    cost: int | None = None
    """Micro-dollars that the reply says were charged; None when it does not say."""
    balance: int | None = None
    """Micro-dollars that the reply says are left; None when it does not say."""
    error: str | None = None
    """Why it failed, in the API's words; None when it did not."""


def read_reply(body: Any) -> Outcome:
    """The outcome that a decoded reply tells of. Never raises."""
    if not isinstance(body, Mapping):
        return Outcome(ok=False, error=f"{UNREADABLE}: {_kind(body)} instead of an object")
    levels, result = _opened(body)
    text, structured = _text(result), _structured(result)
    payments = [level[key] for level in levels for key in _PAYMENTS if isinstance(level.get(key), Mapping)]
    # In a reply that is all result, `cost` is part of that.
    told = levels if _ENVELOPE_KEYS & body.keys() else []
    cost, balance = _amount(told, payments, _COSTS), _amount(told, payments, _BALANCES)
    failures = [level for level in (*levels, *payments) if _says_failed(level)]
    if isinstance(result, Mapping) and result.get("success") is False:
        failures.append(result)
    if failures:
        why = _why(levels, failures) or text or "the API says that it failed, and not why"
        return Outcome(False, text, structured, cost, balance, clipped(why, _LONGEST_ERROR))
    return Outcome(True, text, structured, cost, balance)


def shown(outcome: Outcome, price: int | None = None) -> dict[str, Any]:
    """The MCP result for an outcome. `price` is the catalogue's, for a success whose reply does not tell its cost.

    Structured content is `{"result": ..., "cost": 0.01, "balance": 9.99}` in dollars: the result is kept whole
    beside the money, so that a `cost` of its own is not overwritten.
    """
    cost = outcome.cost if outcome.cost is not None or not outcome.ok else price
    lines = []
    if outcome.ok:
        lines += [outcome.text] if outcome.text else []
    else:
        lines.append(f"Tool execution failed: {outcome.error or 'no reason given'}")
    lines += [f"Cost: {dollars(cost)}"] if cost is not None else []
    lines += [f"Remaining Balance: {dollars(outcome.balance, 2)}"] if outcome.balance is not None else []
    text = "\n".join(lines) or "The tool gave no result."  # the model's API refuses empty text
    made: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": not outcome.ok}
    if outcome.ok and outcome.structured is not None:
        inner = outcome.structured
        made["structuredContent"] = {"result": inner["result"] if inner.keys() == {"result"} else inner}
        for name, amount in (("cost", cost), ("balance", outcome.balance)):
            if amount is not None:
                made["structuredContent"][name] = amount / PER_DOLLAR
    return made


def _opened(body: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], Any]:
    """The levels of the envelope, the outermost first, and the result inside."""
    levels = [body]
    inner: Any = body
    for _ in range(_DEPTH):
        there = [each for each in _RESULTS if each in inner]
        key = next((each for each in there if inner[each] is not None), there[0] if there else None)
        if key is None:
            break
        value = inner[key]
        if key in _ENVELOPES and isinstance(value, Mapping) and _is_envelope(value):
            levels.append(value)
            inner = value
            continue
        return levels, value
    # No level has a result: what is not envelope is the result, if there is any.
    left = {
        name: value for name, value in inner.items() if name not in {*_ENVELOPE_KEYS, *_COSTS, *_BALANCES}
    }
    if inner is body and not _ENVELOPE_KEYS & body.keys():
        return levels, dict(body)
    return levels, left or inner.get("message")


def _is_envelope(value: Mapping[str, Any]) -> bool:
    return bool({"success", "status_code", "output", "result", "data"} & value.keys())


def _says_failed(level: Mapping[str, Any]) -> bool:
    status: Any = level.get("status_code")
    if isinstance(status, str) and status.isdecimal() and len(status) < 5:  # noqa: PLR2004 - a status has three
        status = int(status)
    if fits(status, "number") and status >= _FIRST_BAD_STATUS:
        return True
    said = level.get("success", _NOTHING)
    if said is _NOTHING or said is None:
        return bool(level.get("error"))
    return str(said).strip().lower() in _FAILED


def _why(levels: list[Mapping[str, Any]], failures: list[Mapping[str, Any]]) -> str:
    """The API's words for a failure: of the levels that say so the innermost, else of any."""
    for group, keys in ((failures, _ERRORS), (levels, _ERRORS[:2])):
        for level in reversed(group):
            for key in keys:
                if words := _words(level.get(key)):
                    return words
    for level in failures:
        if level.get("status_code") is not None:
            return f"status {clipped(str(level['status_code']), 20)}"
    return ""


def _words(error: Any) -> str:
    """What an error says, whatever its form."""
    if isinstance(error, str):
        return _sound(error).strip()
    if isinstance(error, Mapping):
        inner = next((error[key] for key in ("message", "detail", "error", "title") if error.get(key)), None)
        return _words(inner) if isinstance(inner, str) else _text(dict(error)) if error else ""
    if isinstance(error, list):
        return "; ".join(
            filter(None, (_words(each) if isinstance(each, (str, dict)) else "" for each in error))
        )
    return ""


def _amount(
    levels: list[Mapping[str, Any]], payments: list[Mapping[str, Any]], names: tuple[str, ...]
) -> int | None:
    """The first amount of money that the envelope tells. One that makes no sense is not told."""
    # Outside of what is about the payment only the plain word is taken: any other may be part of the result.
    for places, wanted in ((levels, names[:2] if names is _BALANCES else names[:1]), (payments, names)):
        for place in places:
            for name in wanted:
                try:
                    return micros(place[name])
                except (KeyError, ValueError):
                    continue
    return None


def _text(result: Any) -> str:
    if isinstance(result, str):
        return _sound(result)
    if result is None:
        return ""
    try:
        return orjson.dumps(result).decode()
    except TypeError:
        pass  # whole numbers past 64 bits, half surrogate pairs and very deep values are too much for orjson only
    try:
        return json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return UNREADABLE


def _structured(result: Any) -> dict[str, Any] | None:
    if isinstance(result, list):
        result = {"result": result}
    if not isinstance(result, Mapping) or not result:
        return None
    try:
        orjson.dumps(result)
    except TypeError:  # it could not be sent; the text has it
        return None
    return dict(result)


def _sound(text: str) -> str:
    """Text that can be sent: half a surrogate pair cannot."""
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
