"""The tree of loggers below `toolwire`. Silent unless the application sets up logging, as a library should be.

Nothing secret is logged: what looks like a key or token is taken out of every record, and so is every value that
was named to `keep_secret`, in messages, arguments and traces.
"""

import logging
import re
from collections.abc import Iterable
from typing import Final

logging.getLogger("toolwire").addHandler(logging.NullHandler())

REDACTED: Final = "<redacted>"
_SHORTEST: Final = 6  # a shorter value would be found in the middle of ordinary words
_TOKENS: Final = re.compile(r"sk-ant-[\w-]{6,}|(?<=Bearer )[\w.~+/=-]{6,}", re.IGNORECASE)
_secrets: set[str] = set()


def logger_for(name: str) -> logging.Logger:
    """The logger `toolwire.<name>`."""
    logger = logging.getLogger(f"toolwire.{name}")
    logger.addFilter(_redact)
    return logger


def keep_secret(values: Iterable[str]) -> None:
    """Never log these values, for as long as the process lives."""
    _secrets.update(value for value in values if len(value) >= _SHORTEST)


def redacted(text: str) -> str:
    """A text without secrets."""
    for secret in sorted(_secrets, key=len, reverse=True):  # one may begin with another
        text = text.replace(secret, REDACTED)
    return _TOKENS.sub(REDACTED, text)


def _redact(record: logging.LogRecord) -> bool:
    """A filter on every logger of ours. A record with nothing in it to hide stays as it is."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - logging itself reports it, and must not break who logs
        return True
    clean = redacted(message)
    if clean != message:
        record.msg, record.args = clean, ()
    if record.exc_info is not None and record.exc_info[1] is not None:
        trace = _FORMATTER.formatException(record.exc_info)
        if (clean := redacted(trace)) != trace:
            record.exc_text, record.exc_info = clean, None
    return True


_FORMATTER: Final = logging.Formatter()
