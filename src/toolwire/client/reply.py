"""`run()` and `run_sync()`: one prompt, one `Reply`, with an output of a type that the caller chooses.

Owns the way from an output type to a JSON schema and from the CLI's JSON back to an instance.
"""

import copy
import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast, overload

import anyio

from toolwire._conversation.wiring import Conversation, Prompt, check_prompt
from toolwire._transport.custom import Transport
from toolwire.errors import OptionsError, OutputValidationError, ProcessError, ResultError, result_error_text
from toolwire.messages import AnyMessage, AssistantMessage, ResultMessage, UserMessage
from toolwire.messages.blocks import ToolResultBlock, ToolUseBlock
from toolwire.options.agent_options import ClaudeAgentOptions

T = TypeVar("T")
OUTPUT_KEY: Final = "value"  # the one key of the object that wraps an output that is not an object


@dataclass
class ToolCall:
    """One tool call: its arguments and its result."""

    id: str
    name: str
    input: dict[str, Any]
    result: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    done: bool = False
    """False if the run ended before the tool returned."""

    @property
    def text(self) -> str:
        """The text of the result, without images and other content; empty if there is none."""
        if not isinstance(self.result, list):
            return self.result or ""
        texts = (block.get("text") for block in self.result if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))


@dataclass
class Reply(Generic[T]):
    """The outcome of one run: messages, result, output."""

    messages: list[AnyMessage] = field(default_factory=list, repr=False)
    """Every message in order, including those that `query()` leaves out."""
    result: ResultMessage | None = None
    """The last result of the run; None only in the reply attached to an exception."""
    output: T = cast("T", None)  # noqa: RUF009 - None until there is one
    """The structured output: an instance of `output_type`, or the CLI's own JSON if a schema was given."""

    def add(self, message: AnyMessage) -> None:
        """Append a message."""
        self.messages.append(message)
        if isinstance(message, ResultMessage):
            self.result = message

    @property
    def text(self) -> str:
        """The text of Claude's final answer."""
        if self.result is not None and self.result.result:
            return self.result.result
        texts = [message.text for message in self.messages if isinstance(message, AssistantMessage)]
        return next((text for text in reversed(texts) if text), "")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls in order, subagents' included, each with its result."""
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
        """The cost in US dollars, as computed by the CLI."""
        return None if self.result is None else self.result.total_cost_usd

    @property
    def usage(self) -> dict[str, Any] | None:
        """Token counts from the API."""
        return None if self.result is None else self.result.usage

    @property
    def session_id(self) -> str | None:
        """The session id; pass it as `ClaudeAgentOptions(resume=...)` to continue from here."""
        return None if self.result is None else self.result.session_id

    @property
    def num_turns(self) -> int:
        """Number of turns."""
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
    """Send a prompt, wait for the end of the run, and return a `Reply`.

    With `output_type` (a Pydantic model, dataclass, TypedDict, or any type that Pydantic supports) Claude must
    answer in that shape, and `reply.output` is an instance of it. `on_message` is called with each message.

    Raises `ResultError` if the run fails and `OutputValidationError` if the output does not fit; both have the
    `reply` so far as an attribute.
    """
    check_prompt(prompt)
    given = options if options is not None else ClaudeAgentOptions()
    expected = None if output_type is None else OutputType(output_type)
    if expected is not None:
        given = expected.add_to(given)
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
    """Send a prompt on an open conversation and read to the end. A `ResultError` carries the reply so far."""
    reply: Reply[Any] = Reply()
    try:
        conversation.include_all()
        await conversation.feed(prompt, "", end=True)
        take = conversation.take_message
        while (message := take() or await conversation.next_message()) is not None:
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
    """Like `run()`, for code that is not async. Inside an event loop use `await run(...)` instead."""

    if _is_async():
        raise RuntimeError(
            "run_sync() was called inside a running event loop, as in a coroutine or a notebook: "
            "write `await run(...)` there"
        )

    async def inside() -> Reply[Any]:
        return await run(prompt, options=options, output_type=output_type, on_message=on_message)

    return anyio.run(inside)


def _is_async() -> bool:
    """True inside a running event loop of any kind."""
    try:
        anyio.get_current_task()
    except RuntimeError:  # from anyio, or from sniffio in older versions
        return False
    return True


class OutputType:
    """The type of a structured output. A type that is not an object in JSON is wrapped in one with a single key."""

    def __init__(self, output_type: Any) -> None:
        from toolwire.tools.schema.pydantic_types import HINT, adapter_of, gist, readable  # noqa: PLC0415 - loads Pydantic

        self._name = getattr(output_type, "__name__", str(output_type))
        if isinstance(output_type, str | dict) or inspect.isroutine(output_type):
            raise OptionsError(
                f"output_type must be a type, got {output_type!r}. For a JSON schema use options.output_format.",
                "output_type",
            )
        try:
            self._adapter = adapter_of(readable(output_type))
            schema = self._adapter.json_schema()
        except Exception as error:  # Pydantic raises many kinds, and an annotation may raise any
            reason = _find_unresolved_name(output_type) or gist(error)
            raise OptionsError(
                f"output_type {self._name} has no JSON schema: {reason}; {HINT}", "output_type"
            ) from error
        self._wrapped = schema.get("type") != "object"
        self.format: dict[str, Any] = {
            "type": "json_schema",
            "schema": _wrap(schema) if self._wrapped else schema,
        }

    def add_to(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Return a copy of the options with this output format; raises `OptionsError` if they have one."""
        if options.output_format is not None:
            raise OptionsError(
                "output_type and options.output_format are both set: use only one of them", "output_format"
            )
        changed = copy.copy(options)  # `replace` would repeat the warnings about unusual values
        changed.output_format = self.format
        return changed

    def validate(self, value: Any, reply: Any) -> Any:
        """Return an instance of the type; raises `OutputValidationError`."""
        from pydantic import ValidationError  # noqa: PLC0415 - loaded in __init__ already

        if value is None:
            raise OutputValidationError(
                f"Claude returned no structured output, expected {self._name}. Its text was: {reply.text[:500]}",
                reply=reply,
            )
        inner = value.get(OUTPUT_KEY) if self._wrapped and isinstance(value, dict) else value
        try:
            # As JSON, not as Python values: in JSON, dates and enums are strings and tuples are lists.
            valid = self._adapter.validate_json(json.dumps(inner))
        except ValidationError as error:
            raise OutputValidationError(
                f"The structured output is not a valid {self._name}: {error}", output=inner, reply=reply
            ) from error
        if self._wrapped and not (isinstance(value, dict) and OUTPUT_KEY in value):
            text = f"The structured output is not a valid {self._name}: the key {OUTPUT_KEY!r} is missing"
            raise OutputValidationError(text, output=value, reply=reply)
        return valid


def _find_unresolved_name(output_type: Any) -> NameError | None:
    """Return the error for an undefined name in a TypedDict's annotations, if there is one."""
    try:
        typing.get_type_hints(output_type)
    except NameError as error:
        return error
    except Exception:  # noqa: BLE001 - Pydantic reports anything else
        return None
    return None


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that holds a value of this schema under its one key."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {OUTPUT_KEY: inner},
        "required": [OUTPUT_KEY],
        "additionalProperties": False,
    }
    if "$defs" in schema:
        wrapped["$defs"] = schema["$defs"]
    return wrapped
