"""Turns the arguments of a `Catalog` into limits, prices, filters and paths. Pure."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

from toolwire.catalog.ledger.opening import Address, is_url, state_folder
from toolwire.catalog.ledger.sqlite_database import MEMORY
from toolwire.catalog.ledger.types import Ledger, Limits
from toolwire.catalog.money import micros
from toolwire.catalog.profile.model import Profile
from toolwire.errors import UsageError

DEFAULT_PRICE: Final = "TOOLWIRE_DEFAULT_PRICE"
"""The variable with what a call counts as, in dollars, if nobody tells its price."""
File = str | Path | Literal[False] | None
"""A file that the user named; False for none, None for the usual one."""


def combine_limits(
    budget: float | str | Limits | None,
    per_day: float | str | None,
    total: float | str | None,
    profile: Profile,
    environ: Mapping[str, str],
) -> Limits:
    """Combine the budgets of the caller and of the environment: the smaller one counts."""
    limits = budget if isinstance(budget, Limits) else Limits()
    variable = profile.environment.budget
    given = {
        "per_session": [
            ("budget", None if isinstance(budget, Limits) else budget),
            (variable, environ.get(variable) if variable else None),
        ],
        "per_day": [("budget_day", per_day)],
        "total": [("budget_total", total)],
    }
    found: dict[str, Any] = {}
    for name, sources in given.items():
        amounts = [_amount(source, value) for source, value in sources if value is not None]
        amounts += [] if (known := getattr(limits, name)) is None else [known]
        found[name] = min(amounts) if amounts else None
    return replace(limits, **found)


def _amount(source: str, value: float | str) -> int:
    """Read a budget. An empty one is rejected: a variable that is set to nothing does not mean "no limit"."""
    try:
        return micros(value)
    except ValueError as error:
        hint = " (unset the variable for no limit)" if value == "" else ""
        raise UsageError(f"{source} is not an amount of dollars: {error}{hint}") from None


def check_positive(name: str, value: float) -> Any:
    """Reject a number that is not over 0."""
    if isinstance(value, (bool, str)) or not 0 < value < inf:
        raise UsageError(f"{name} must be a number over 0, got {value!r}")
    return value


def check_count(name: str, value: int) -> int:
    """Reject a value that is not a whole number of 1 or more."""
    if type(value) is not int or value < 1:
        raise UsageError(f"{name} must be a whole number, 1 or more, got {value!r}")
    return value


def resolve_default_price(given: float | str | None, environ: Mapping[str, str]) -> int | None:
    """Return the price that a call without a known price counts as, from the caller or the environment."""
    said = environ.get(DEFAULT_PRICE, "").strip() or None if given is None else given
    try:
        return None if said is None else micros(said)
    except ValueError as error:
        raise UsageError(f"the default price is not an amount of dollars: {error}") from None


def parse_filter(profile: Profile, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Parse the filter in the environment: words with commas between them."""
    words = environ.get(profile.environment.filter, "") if profile.environment.filter else ""
    return tuple(each.strip() for each in words.split(",") if each.strip())


def choose_file(given: File, otherwise: Path | None) -> Path | None:
    """Return the file that was named, or the usual one; None for False."""
    if given is False:
        return None
    return otherwise if given is None else Path(given)


def default_audit_path(ledger: Ledger | Address) -> Path | None:
    """Return the usual path of the audit file: beside the ledger's file, or where that would usually be."""
    if is_url(ledger):
        return state_folder() / "audit.jsonl"
    if not isinstance(ledger, str | os.PathLike) or os.fspath(ledger) == MEMORY:
        return None
    return Path(ledger).parent / "audit.jsonl"


def short_digest(*texts: str) -> str:
    """Return a short hash of these texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
