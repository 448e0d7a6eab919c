"""Decides if our own spans are wanted: the one rule for runs, served tools and catalogues.

Spans are made only where someone asked for them, by an option or by `TOOLWIRE_TRACING`. That a program has set up
OpenTelemetry says nothing: it may have other tracers, and every token would count twice. Loads no OpenTelemetry.
"""

import os
from contextvars import ContextVar
from typing import Final

VARIABLE: Final = "TOOLWIRE_TRACING"
_OFF: Final = frozenset({"", "0", "false", "no", "off"})

IN_TRACED_CALL: Final[ContextVar[bool]] = ContextVar("toolwire_in_traced_call", default=False)
"""True inside a call that has a span of ours: what happens in it is traced too."""


def is_tracing_wanted(option: bool | None = None) -> bool:
    """Return True if spans were asked for: by the option, or where it is None by a traced call or the variable."""
    if option is not None:
        return option
    return IN_TRACED_CALL.get() or os.environ.get(VARIABLE, "").strip().lower() not in _OFF
