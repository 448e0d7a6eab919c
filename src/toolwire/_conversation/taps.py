"""Looking at the frames that go by, for debugging and tracing.

A tap hears every frame in both directions. One that fails is taken off with a log line: looking must never break
what is looked at.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

from toolwire._support.log import logger_for

logger = logger_for("session")

Direction = Literal["in", "out"]
Tap = Callable[[Direction, dict[str, Any]], None]

LONGEST: Final = 500
"""Characters of a text that are shown."""
_MOST: Final = 50  # items of a list


class Taps:
    """Those who look. False when nobody does, so that looking costs nothing then."""

    def __init__(self, *taps: Tap | None) -> None:
        self._taps = [tap for tap in taps if tap is not None]

    def __bool__(self) -> bool:
        return bool(self._taps)

    def __call__(self, direction: Direction, frame: dict[str, Any]) -> None:
        for tap in list(self._taps):
            try:
                tap(direction, frame)
            except Exception:
                logger.exception("a tap on frames failed and is taken off")
                self._taps.remove(tap)


def eliding(tap: Tap) -> Tap:
    """A tap that is shown frames with long texts and lists cut."""
    return lambda direction, frame: tap(direction, elided(frame))


def elided(value: Any) -> Any:
    """A copy in which long texts and lists are cut, and say by how much."""
    if isinstance(value, str):
        return (
            value if len(value) <= LONGEST else f"{value[:LONGEST]}… ({len(value) - LONGEST} more characters)"
        )
    if isinstance(value, dict):
        return {key: elided(each) for key, each in value.items()}
    if isinstance(value, list):
        cut = [elided(each) for each in value[:_MOST]]
        return cut if len(value) <= _MOST else [*cut, f"… ({len(value) - _MOST} more items)"]
    return value
