"""What a server may want of a user, and what the user's application answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from toolwire._support.log import logger_for
from toolwire._support.record import Record
from toolwire._support.tasks import maybe_await

logger = logger_for("elicitation")


@dataclass(repr=False, eq=False)
class ElicitationRequest(Record):
    """A server asks the user something."""

    server: str
    message: str
    mode: str = "form"
    """`form`: fill in `schema`. `url`: open `url`."""
    schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(repr=False, eq=False)
class ElicitationResult(Record):
    """The answer: `content` fits the request's schema when the action is `accept`."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


@dataclass(repr=False, eq=False)
class SamplingRequest(Record):
    """A server asks a model something, through the application."""

    server: str
    params: dict[str, Any]
    """As MCP's `sampling/createMessage` has them: `messages`, `maxTokens`, `systemPrompt`, ..."""


async def answer_elicitation(
    callback: Callable[[ElicitationRequest], Any] | None, request: ElicitationRequest
) -> dict[str, Any]:
    """Return the response of `on_elicitation` to a request; without a callback the request is declined."""
    if callback is None:
        logger.warning(
            "MCP server %r requested input from the user; declined, because on_elicitation is not set",
            request.server,
        )
        return {"action": "decline"}
    return elicitation_to_wire(await maybe_await(callback(request)))


def elicitation_to_wire(answer: object) -> dict[str, Any]:
    """What `on_elicitation` returned, as MCP and the CLI spell it."""
    if isinstance(answer, ElicitationResult):
        wire: dict[str, Any] = {"action": answer.action}
        return wire if answer.content is None else {**wire, "content": answer.content}
    if isinstance(answer, Mapping) and answer.get("action") in ("accept", "decline", "cancel"):
        return dict(answer)
    raise TypeError(
        "on_elicitation must return an ElicitationResult, or a dict with an action of accept, decline or cancel; "
        f"got {type(answer).__name__}"
    )


def sampling_to_wire(answer: object) -> dict[str, Any]:
    """What `on_sampling` returned, as MCP spells it. A string is a whole answer."""
    if isinstance(answer, str):
        content = {"type": "text", "text": answer}
        return {"role": "assistant", "content": content, "model": "unknown", "stopReason": "endTurn"}
    if isinstance(answer, Mapping) and "content" in answer:
        return {"role": "assistant", "model": "unknown", **answer}
    raise TypeError(
        f"on_sampling must return a string or an MCP result with content, got {type(answer).__name__}"
    )
