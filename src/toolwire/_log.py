"""The tree of loggers below `toolwire`. Silent unless the application sets up logging, as a library should be.

Nothing secret is logged: `_secrets.redacted` goes over every record, its message, arguments and trace.
"""

import logging
from typing import Final

from toolwire._secrets import REDACTED, keep_secret, redacted

__all__ = ["REDACTED", "keep_secret", "logger_for", "redacted"]

logging.getLogger("toolwire").addHandler(logging.NullHandler())


def logger_for(name: str) -> logging.Logger:
    """The logger `toolwire.<name>`."""
    logger = logging.getLogger(f"toolwire.{name}")
    logger.addFilter(_redact)
    return logger


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
