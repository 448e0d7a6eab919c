"""`run()` and `run_sync()`: one call, one `Reply`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast, overload

import anyio

from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._transport.custom import Transport
from toolwire.client.output import Output
from toolwire.errors import OptionsError, ProcessError, ResultError, result_error_text
from toolwire.messages import AnyMessage, AssistantMessage, ResultMessage, UserMessage
from toolwire.messages.blocks import ToolResultBlock, ToolUseBlock
from toolwire.options.agent_options import ClaudeAgentOptions

T = TypeVar("T")


@dataclass
class ToolCall:
    """One use of a tool: what Claude asked for, and what it got."""

    id: str
    name: str
    input: dict[str, Any]
    result: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    done: bool = False
    """False when the run ended before the tool did."""


@dataclass
class Reply(Generic[T]):
    """All that came of one run."""

    messages: list[AnyMessage] = field(default_factory=list, repr=False)
    """Every message in order, those that `query()` leaves out too."""
    result: ResultMessage | None = None
    """The last result of the run; None only in a reply that an exception carries."""
    output: T = cast("T", None)  # noqa: RUF009 - None until there is one
    """The structured output, validated, when `output_type` was given; the CLI's own when a schema was."""

    def add(self, message: AnyMessage) -> None:
        """Take one more message in."""
        self.messages.append(message)
        if isinstance(message, ResultMessage):
            self.result = message

    @property
    def text(self) -> str:
        """Claude's final answer."""
        if self.result is not None and self.result.result:
            return self.result.result
        texts = [message.text for message in self.messages if isinstance(message, AssistantMessage)]
        return next((text for text in reversed(texts) if text), "")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tools that were called, in order, subagents' included, each with its result."""
        calls: dict[str, ToolCall] = {}
        for message in self.messages:
            if not isinstance(message, AssistantMessage | UserMessage) or isinstance(message.content, str):
                continue
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    calls.setdefault(block.id, ToolCall(block.id, block.name, block.input))
                elif isinstance(block, ToolResultBlock) and block.tool_use_id in calls:
                    call = calls[block.tool_use_id]
                    call.result, call.is_error, call.done = block.content, block.is_error, True
        return list(calls.values())

    @property
    def cost(self) -> float | None:
        """Dollars, as the CLI reckons them."""
        return None if self.result is None else self.result.total_cost_usd

    @property
    def usage(self) -> dict[str, Any] | None:
        """Tokens, as the API counts them."""
        return None if self.result is None else self.result.usage

    @property
    def session_id(self) -> str | None:
        """What `ClaudeAgentOptions(resume=...)` takes to go on from here."""
        return None if self.result is None else self.result.session_id

    @property
    def num_turns(self) -> int:
        """How many turns it took."""
        return 0 if self.result is None else self.result.num_turns

    def __str__(self) -> str:
        return self.text


@overload
async def run(
    prompt: Prompt,
    *,
    options: ClaudeAgentOptions | None = None,
    output_type: type[T],
    transport: Transport | None = None,
    on_message: Callable[[AnyMessage], object] | None = None,
) -> Reply[T]: ...
@overload
async def run(
    prompt: Prompt,
    *,
    options: ClaudeAgentOptions | None = None,
    output_type: Any = None,
    transport: Transport | None = None,
    on_message: Callable[[AnyMessage], object] | None = None,
) -> Reply[Any]: ...
async def run(
    prompt: Prompt,
    *,
    options: ClaudeAgentOptions | None = None,
    output_type: Any = None,
    transport: Transport | None = None,
    on_message: Callable[[AnyMessage], object] | None = None,
) -> Reply[Any]:
    """Ask, wait, and get one `Reply`.

    With `output_type` (a Pydantic model, dataclass, TypedDict, or any type that Pydantic knows) Claude must answer
    in that shape, and `reply.output` is an instance of it. `on_message` sees each message as it comes.

    A run that fails raises `ResultError`, an output that does not fit `OutputValidationError`; both carry the
    `reply` as far as it got.
    """
    check_prompt(prompt)
    given = options if options is not None else ClaudeAgentOptions()
    expected = None if output_type is None else Output(output_type)
    if expected is not None:
        if given.output_format is not None:
            raise OptionsError(
                "output_type and options.output_format both name the output: give one", "output_format"
            )
        given = replace(given, output_format=expected.format)
    conversation = Conversation(given, transport)
    try:
        await conversation.open()
        reply = await run_on(conversation, prompt, on_message)
    finally:
        await conversation.aclose()
    if expected is not None:
        reply.output = expected.validate(reply.output, reply)
    return reply


async def run_on(
    conversation: Conversation, prompt: Prompt, on_message: Callable[[AnyMessage], object] | None
) -> Reply[Any]:
    """Send a prompt on an open conversation and read it to its end. A failed run's error carries the reply."""
    reply: Reply[Any] = Reply()
    try:
        conversation.feed(prompt, "", end=True)
        while (message := await conversation.next_message(everything=True)) is not None:
            reply.add(message)
            if on_message is not None:
                on_message(message)
    except ResultError as error:
        error.reply = reply
        raise
    result = reply.result
    if result is None:
        raise ProcessError("Claude Code ended without a result")
    if result.is_error:
        text = f"Claude Code returned an error result: {result_error_text(result.raw or {})}"
        failed = ResultError(text, data=result.raw)
        failed.reply = reply
        raise failed
    reply.output = result.structured_output
    return reply


@overload
def run_sync(
    prompt: str,
    *,
    options: ClaudeAgentOptions | None = None,
    output_type: type[T],
    on_message: Callable[[AnyMessage], object] | None = None,
) -> Reply[T]: ...
@overload
def run_sync(
    prompt: str,
    *,
    options: ClaudeAgentOptions | None = None,
    output_type: Any = None,
    on_message: Callable[[AnyMessage], object] | None = None,
) -> Reply[Any]: ...
def run_sync(
    prompt: str,
    *,
    options: ClaudeAgentOptions | None = None,
    output_type: Any = None,
    on_message: Callable[[AnyMessage], object] | None = None,
) -> Reply[Any]:
    """`run()` for code that is not async. Inside an event loop, `await run(...)` instead."""

    async def inside() -> Reply[Any]:
        return await run(prompt, options=options, output_type=output_type, on_message=on_message)

    return anyio.run(inside)
