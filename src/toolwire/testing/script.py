"""The words a script for the scripted model is written in: `say`, `call`, `think`, `turn`, `fail`, ...

Owns the values that stand for what the model does next; they are plain data and do nothing.
Must not know how they are sent.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from reprlib import Repr
from typing import Any

from toolwire.testing.request import Request

_short = Repr()
_short.maxstring = _short.maxother = 60

# The tool that the CLI offers the model when it was started with --json-schema.
STRUCTURED_OUTPUT = "StructuredOutput"

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_RETRIED = {408, 409, 429}


@dataclass(frozen=True)
class Text:
    text: str

    def __repr__(self) -> str:
        return f"say({_short.repr(self.text)})"


@dataclass(frozen=True)
class Thinking:
    text: str
    signature: str

    def __repr__(self) -> str:
        return f"think({_short.repr(self.text)})"


@dataclass(frozen=True)
class Call:
    name: str
    input: Mapping[str, Any]
    id: str | None = None

    def __repr__(self) -> str:
        return f"call({self.name!r}, {_short.repr(dict(self.input))})"


Block = Text | Thinking | Call


@dataclass(frozen=True)
class Turn:
    blocks: tuple[Block, ...]
    input_tokens: int = 10
    output_tokens: int = 5
    stop_reason: str | None = None
    model: str | None = None
    delay: float = 0.0
    chunk_delay: float = 0.0
    chunk_size: int | None = None

    def __repr__(self) -> str:
        return f"turn({', '.join(map(repr, self.blocks))})"


@dataclass(frozen=True)
class Failure:
    status: int
    type: str
    message: str
    retry_after: float | None = None
    retry: bool = False

    def __repr__(self) -> str:
        return f"fail({self.status}, {self.type!r}, {_short.repr(self.message)})"


@dataclass(frozen=True)
class Hang:
    def __repr__(self) -> str:
        return "hang()"


@dataclass(frozen=True)
class Drop:
    text: str = field(default="")

    def __repr__(self) -> str:
        return f"drop({_short.repr(self.text)})"


Answer = Block | Turn | Failure | Hang | Drop
"""What the model does with one request."""

Step = Answer | Callable[[Request], Answer]
"""One entry of a script: an answer, or a function that makes it when the request is there."""

Rule = Callable[[Request], Answer | None]
"""Asked about requests that no entry of the script is meant for; `None` passes."""


def say(text: str) -> Text:
    """The model says `text`; as a turn of its own, it then ends its turn."""
    return Text(text)


def think(text: str, *, signature: str = "c2NyaXB0ZWQ=") -> Thinking:
    """The model thinks `text`."""
    return Thinking(text, signature)


def call(
    name: str, input: Mapping[str, Any] | None = None, /, *, id: str | None = None, **arguments: Any
) -> Call:
    """The model calls the tool `name`, with arguments as keywords or in a mapping.

    `id` is the id of the call (made up when not given), never an argument: for a tool with an
    argument of that name, use the mapping.
    """
    if id is not None and not str(id).startswith("toolu_"):
        raise ValueError(
            f"call({name!r}, id={id!r}): the id of a call begins with 'toolu_'; "
            "an argument named 'id' goes into the mapping"
        )
    return Call(name, {**(input or {}), **arguments}, id)


def answer(output: Mapping[str, Any]) -> Call:
    """The model gives its structured output, in a session started with `--json-schema`.

    The CLI offers the model a tool for it, whose input is the schema. It checks the input:
    - a good one ends the run at once, with `structured_output` in the result and *no* further
      request, so nothing may follow in the script;
    - a bad one comes back as a failed tool result, and the next turn is asked for;
    - a text without the call is answered once with a reminder, and the next turn is asked for.
    """
    return call(STRUCTURED_OUTPUT, output)


def turn(
    *blocks: Block,
    input_tokens: int = 10,
    output_tokens: int = 5,
    stop_reason: str | None = None,
    model: str | None = None,
    delay: float = 0.0,
    chunk_delay: float = 0.0,
    chunk_size: int | None = None,
) -> Turn:
    """One answer of several blocks.

    `delay` is the seconds before the first byte, `chunk_delay` those between streamed pieces, and
    `chunk_size` the characters in a piece (`None`: each block whole, up to a million).
    `stop_reason` follows from the blocks and `model` from the request, unless given.
    """
    if chunk_size is not None and chunk_size < 1:
        raise ValueError("chunk_size must be 1 or more")
    return Turn(blocks, input_tokens, output_tokens, stop_reason, model, delay, chunk_delay, chunk_size)


def fail(
    status: int,
    type: str | None = None,
    message: str | None = None,
    *,
    retry_after: float | None = None,
    retry: bool | None = None,
) -> Failure:
    """The API refuses the request with an HTTP error.

    The client is told whether to try again (`x-should-retry`): yes for 408, 409, 429 and from 500
    up, no for others, or as `retry` says. Each try takes the next entry of the script.
    """
    server_side = status >= 500  # noqa: PLR2004  the HTTP class of server errors
    kind = type or _ERROR_TYPES.get(status, "api_error" if server_side else "invalid_request_error")
    if message is None:
        message = kind.removesuffix("_error").replace("_", " ").capitalize()
    if retry is None:
        retry = server_side or status in _RETRIED
    return Failure(status, kind, message, retry_after, retry)


def hang() -> Hang:
    """The API takes the request and never answers, until the model is closed or the client leaves."""
    return Hang()


def drop(text: str = "") -> Drop:
    """The API begins to answer, sends `text`, and breaks the connection off."""
    return Drop(text)


class Expectation:
    """A step that first looks at what the model was given."""

    def __init__(self, results: tuple[str, ...], prompt: str | None, then: "Step") -> None:
        self._results = results
        self._prompt = prompt
        self._then = then
        self.__qualname__ = repr(self)

    def __call__(self, request: Request) -> Answer:
        """The answer, if all is as expected; AssertionError with both sides if not."""
        came = tuple(result.text for result in request.tool_results)
        if self._results and came != self._results:
            raise AssertionError(f"tool results\n  expected: {self._results!r}\n  actual:   {came!r}")
        if self._prompt is not None and not re.search(self._prompt, request.prompt):
            raise AssertionError(f"prompt\n  expected: {self._prompt!r}\n  actual:   {request.prompt!r}")
        return self._then(request) if callable(self._then) else self._then

    def __repr__(self) -> str:
        return f"expect({', '.join(map(repr, self._results))}, then={self._then!r})"


def expect(*results: str, then: "Step", prompt: str | None = None) -> Expectation:
    """The model expects these tool results (texts, in order), or a prompt that matches, and goes on with `then`.

    What came instead fails the test, with both sides: `expect("42", then=say("It is 42."))`.
    """
    return Expectation(results, prompt, then)


def when(pattern: str, answer: Answer) -> "Rule":
    """A rule for `ScriptedModel(rules=[...])`: to a prompt that matches, this answer, as often as it is asked."""

    def rule(request: Request) -> Answer | None:
        return answer if not request.side and re.search(pattern, request.prompt) else None

    rule.__qualname__ = f"when({pattern!r})"
    return rule
