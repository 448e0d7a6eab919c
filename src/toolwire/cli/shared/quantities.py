"""Parses times, ages and sizes from a command line."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from toolwire.errors import UsageError

_AGO: Final = re.compile(r"(\d{1,4})([hdw])")
_SIZE: Final = re.compile(r"(\d{1,12})\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """Parse a date, or a time ago: `12h`, `7d` or `4w`, where today is one of the days. Days are in UTC."""
    if found := _AGO.fullmatch(text.strip()):
        count, unit = int(found[1]), found[2]
        if unit == "h":
            return now - timedelta(hours=count)
        days = count * (7 if unit == "w" else 1)
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return today - timedelta(days=max(days - 1, 0))
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{option} takes 12h, 7d, 4w or a date such as 2026-11-01, not {text!r}") from error
    return day if day.tzinfo else day.replace(tzinfo=UTC)


def parse_age(option: str, text: str) -> timedelta:
    """Parse `12h`, `30d` or `8w`."""
    found = _AGO.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} takes 12h, 30d or 8w, not {text!r}")
    hours = {"h": 1, "d": 24, "w": 24 * 7}[found[2]]
    return timedelta(hours=int(found[1]) * hours)


def parse_size(option: str, text: str) -> int:
    """Parse `500MB`, `2G` or a number of bytes; a KB has 1024 bytes."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} takes a size such as 500MB or 2G, not {text!r}")
    return int(found[1]) << (10 * _UNITS[found[2].lower()])
