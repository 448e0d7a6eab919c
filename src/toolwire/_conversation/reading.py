"""Reads the messages of a session: takes frames out of its queue, parses them, and leaves out the extra ones.

`wiring` loads it while the CLI starts, because the classes of the messages take longer to load than the rest of a
session.
"""

from collections.abc import Awaitable, Callable

from toolwire._conversation.session import Session
from toolwire._protocol.parse import parse, typed
from toolwire.messages.conversation import EXTRA_MESSAGES, AnyMessage

_EXTRA = frozenset(EXTRA_MESSAGES)


class Reader:
    """The messages of a session that the user wants to see, in order.

    `before_result` is awaited with the session id of a result before the result is taken out of the queue.
    """

    def __init__(
        self,
        session: Session,
        *,
        everything: bool,
        before_result: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        self._before_result = before_result
        self.everything = everything
        """True: extra messages too, and system messages in our own classes."""
        self._session = session
        self._inbox = session.inbox

    def take(self) -> AnyMessage | None:
        """Return the next message if that needs no waiting, else None."""
        inbox = self._inbox
        while inbox:
            if self._before_result is not None and _is_result(inbox[0]):
                return None
            frame = inbox.popleft()
            message: AnyMessage = parse(frame) if isinstance(frame, dict) else frame
            if self.everything:
                return typed(message)
            if message.__class__ not in _EXTRA:
                return message
        return None

    async def wait(self, *, of_response: bool = False) -> AnyMessage | None:
        """Wait for the next message and return it; None after a normal end. Raises the error if the CLI failed.

        With `of_response`, raises `CLIConnectionError` when no result is due, instead of waiting forever.
        """
        while (message := self.take()) is None:
            if not await self._session.wait_for_frame(of_response=of_response):
                return None
            if self._before_result is not None and _is_result(self._inbox[0]):
                await self._before_result(self._inbox[0].get("session_id") or "")
                if _is_result(self._inbox[0]):  # no message was put before it meanwhile
                    return parse(self._inbox.popleft())
        return message


def _is_result(frame: object) -> bool:
    return isinstance(frame, dict) and frame.get("type") == "result"
