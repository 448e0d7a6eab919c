"""What the parts of a scripted CLI need of their connection. An interface, so that they can be read one by one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from toolwire.testing.scripted_cli.book import Book
from toolwire.testing.scripted_cli.setup import Setup

if TYPE_CHECKING:
    from toolwire.testing.scripted_cli.agent import Agent
    from toolwire.testing.scripted_cli.links import Links


class Refused(Exception):  # noqa: N818 - it names the host's answer
    """The host answered a question with an error."""


class Host(Protocol):
    """The connection, as seen from inside the CLI."""

    setup: Setup
    book: Book
    hooks: dict[str, Any]
    links: "Links"
    agent: "Agent"
    silent: bool
    input_ended: bool

    def emit(self, frame: Any) -> None:
        """Say something to the host."""
        ...

    def tell(self, body: dict[str, Any]) -> str:
        """Ask the host something without waiting; the id of the question."""
        ...

    async def ask(self, body: dict[str, Any], on_id: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Ask the host and wait for its answer; `Refused` if that is an error."""
        ...

    def start(self, work: Callable[..., Any], *args: Any) -> None:
        """Do something beside the conversation."""
        ...

    async def end_input(self) -> None:
        """No more input will come."""
        ...
