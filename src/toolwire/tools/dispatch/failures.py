"""What a user's function raised, judged: a failure of that function alone, or something that must go on up.

`SystemExit` and `KeyboardInterrupt` that a function raises end nothing but its call. A real Ctrl-C must never be
swallowed: it is told by the signal handler that raised it.
"""

import signal
import threading
from traceback import walk_tb
from typing import Any

from toolwire._support.threads import Workers
from toolwire.errors import message_of


def is_failure(error: BaseException) -> bool:
    """Whether it is the function's own: no cancellation, no Ctrl-C, nothing that its carrier raised."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_failure(each) for each in error.exceptions)
    if isinstance(error, KeyboardInterrupt):
        return not was_pressed(error)
    return isinstance(error, Exception | SystemExit)


def was_pressed(error: KeyboardInterrupt) -> bool:
    """Whether a user's Ctrl-C may have raised it, here on the event loop; when in doubt it did."""
    if threading.current_thread() is not threading.main_thread():
        return False  # signals are handled in the main thread
    handler = signal.getsignal(signal.SIGINT)
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    if handler is signal.default_int_handler:
        # It leaves no frame. Only what a worker thread raised is known to be no signal.
        return Workers.run.__code__ not in codes
    return bool(codes) and codes[-1] is _code(handler)


def _code(handler: Any) -> Any:
    """The code of a handler in Python, behind partials and methods."""
    handler = getattr(handler, "func", handler)
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


def named(error: BaseException) -> str:
    """The text of an exception with the name of its class before it."""
    text, name = message_of(error), type(error).__name__
    return f"{name}: {text}" if text else name
