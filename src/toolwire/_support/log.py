"""The loggers below `toolwire`. Silent unless the application sets up logging, as a library should be.

No secret is logged: `secrets.redact` is applied to the message, arguments and traceback of every record.
"""

import logging
import time
from typing import Final

from toolwire._support.secrets import redact

logging.getLogger("toolwire").addHandler(logging.NullHandler())


def logger_for(name: str) -> logging.Logger:
    """Return the logger `toolwire.<name>`."""
    logger = logging.getLogger(f"toolwire.{name}")
    logger.addFilter(_redact_record)
    return logger


def _redact_record(record: logging.LogRecord) -> bool:
    """Remove secrets from a record. A filter of all our loggers; other loggers are not changed."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - logging itself reports it, and must not break the caller
        return True
    clean = redact(message)
    if clean != message:
        record.msg, record.args = clean, ()
    if record.exc_info is not None and record.exc_info[1] is not None:
        trace = _FORMATTER.formatException(record.exc_info)
        if (clean := redact(trace)) != trace:
            record.exc_text, record.exc_info = clean, None
    return True


_FORMATTER: Final = logging.Formatter()
_MOST_RECORDS: Final = 5
_INTERVAL: Final = 10.0  # seconds


class RepeatLimit(logging.Filter):
    """Allows each line of code five records in ten seconds; the next record says how many were left out.

    For loggers of other libraries, whose records any client can trigger. Our own records are never dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        # By place in the code: the start of the interval, and the number of records in it.
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == "toolwire":
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        since, count = self._seen.get(place, (now, 0))
        if now - since < _INTERVAL:
            self._seen[place] = (since, count + 1)
            return count < _MOST_RECORDS
        self._seen[place] = (now, 1)
        if count > _MOST_RECORDS:
            left_out = f" ({count - _MOST_RECORDS} more like this were left out)"
            record.msg, record.args = record.getMessage() + left_out, ()
        return True
