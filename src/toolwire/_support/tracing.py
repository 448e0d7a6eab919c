"""Decides whether we create spans: one rule for runs, served tools and catalogues.

Spans are created only if an option or `TOOLWIRE_TRACING` enables them. That a program has set up OpenTelemetry is
not enough: it may have other tracers, and every token would be counted twice. Does not load OpenTelemetry.
"""

import os
from contextvars import ContextVar
from typing import Final

VARIABLE: Final = "TOOLWIRE_TRACING"
_OFF: Final = frozenset({"", "0", "false", "no", "off"})

IN_TRACED_CALL: Final[ContextVar[bool]] = ContextVar("toolwire_in_traced_call", default=False)
"""True inside a call that has one of our spans: runs and calls inside it are traced too."""


def is_tracing_wanted(option: bool | None = None) -> bool:
    """Return True if spans are enabled: by the option, or if that is None, by a traced call or the variable."""
    if option is not None:
        return option
    return IN_TRACED_CALL.get() or os.environ.get(VARIABLE, "").strip().lower() not in _OFF
