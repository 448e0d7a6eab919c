"""The steps of a script, for the scripted model and the scripted CLI: `say`, `call`, `think`, `turn`, `fail`, ...

Owns the values that describe the next thing that happens, which are plain data, and the evaluation of steps that
are functions. Must not know how answers are sent.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from reprlib import Repr
from types import UnionType
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


@dataclass(frozen=True)
class Garbage:
    value: Any


@dataclass(frozen=True)
class ExitEarly:
    code: int


@dataclass(frozen=True)
class Silence:
    pass


Answer = Block | Turn | Failure | Hang | Drop
"""The model's response to one request."""

Fault = Garbage | ExitEarly | Silence
"""Something that goes wrong in the CLI itself. Only `ScriptedCLI` can play it."""

Step = Answer | Callable[[Request], Answer]
"""One entry of a script: an answer, or a function that returns one for the request."""

Scene = Step | Fault | Callable[[Request], Answer | Fault]
"""One entry of a `ScriptedCLI`'s script: a step, or a fault of the CLI."""

Rule = Callable[[Request], Answer | None]
"""Called with requests that no entry of the script is meant for; returns `None` to pass one on."""


class StepError(Exception):
    """A function in a script raised (see `__cause__`) or did not return an answer."""


def load_script(steps: Iterable[Any], allowed: UnionType) -> deque[Any]:
    """Return the entries of a script as a queue; `TypeError` if one is neither `allowed` nor a function."""
    script = deque(steps)
    for step in script:
        if not callable(step) and not isinstance(step, allowed):
            raise TypeError(f"a script is a list of say(), call(), turn(), ...; got {step!r}")
    return script


def evaluate(step: Any, request: Request, allowed: Any) -> Any:
    """Return the answer of a step or rule to a request; `StepError` if it raises or returns none of `allowed`."""
    if not callable(step):
        return step
    name = getattr(step, "__qualname__", None) or repr(step)
    try:
        answer = step(request)
    except AssertionError as error:  # several lines, which a repr would escape
        raise StepError(f"{name} failed: {error}" if str(error) else f"{name} failed") from error
    except Exception as error:
        raise StepError(f"{name} raised {error!r}") from error
    if not isinstance(answer, allowed):
        raise StepError(f"{name} returned {answer!r}, which is not an answer such as say(...)")
    return answer


def say(text: str) -> Block:
    """The model says `text`; as a turn of its own, it then ends its turn."""
    return Text(text)


def think(text: str, *, signature: str = "c2NyaXB0ZWQ=") -> Block:
    """The model thinks `text`."""
    return Thinking(text, signature)


def call(
    name: str, input: Mapping[str, Any] | None = None, /, *, id: str | None = None, **arguments: Any
) -> Block:
    """The model calls the tool `name`, with arguments as keywords or in a mapping.

    `id` is the id of the call (generated if not given), never an argument: for a tool with an argument of that
    name, use the mapping.
    """
    if id is not None and not str(id).startswith("toolu_"):
        raise ValueError(
            f"call({name!r}, id={id!r}): the id of a call must begin with 'toolu_'; "
            f"to pass an argument named 'id', use call({name!r}, {{'id': {id!r}}})"
        )
    return Call(name, {**(input or {}), **arguments}, id)


def answer(output: Any) -> Block:
    """The model gives its structured output, in a session started with `--json-schema` or an `output_type`.

    `output` is the value that the type describes: a dict, a model, a dataclass, a list, a number, ...

    The CLI offers the model a tool for it, whose input has the schema, and validates the input:
    - valid: the run ends at once, with `structured_output` in the result and *no* further request,
      so nothing may follow in the script;
    - invalid: the model gets a failed tool result, and the next entry is taken;
    - a text without the call: the model is reminded once, and the next entry is taken.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415 - heavy, and few scripts need it

    from toolwire.client.reply import OUTPUT_KEY  # noqa: PLC0415

    value = output if isinstance(output, Mapping) else TypeAdapter(Any).dump_python(output, mode="json")
    # Of a type that is no object in JSON, such as list[int], the value travels in an object with one key.
    return call(STRUCTURED_OUTPUT, value if isinstance(value, Mapping) else {OUTPUT_KEY: value})


def turn(
    *blocks: Block,
    input_tokens: int = 10,
    output_tokens: int = 5,
    stop_reason: str | None = None,
    model: str | None = None,
    delay: float = 0.0,
    chunk_delay: float = 0.0,
    chunk_size: int | None = None,
) -> Answer:
    """The model answers with several blocks.

    `delay` is the time in seconds before the first byte, `chunk_delay` the time between streamed chunks, and
    `chunk_size` the number of characters in a chunk (`None`: each block whole, up to a million).
    `stop_reason` follows from the blocks and `model` from the request, unless given.
    """
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be 1 or more, not {chunk_size!r}")
    return Turn(blocks, input_tokens, output_tokens, stop_reason, model, delay, chunk_delay, chunk_size)


def fail(
    status: int,
    type: str | None = None,
    message: str | None = None,
    *,
    retry_after: float | None = None,
    retry: bool | None = None,
) -> Answer:
    """The API rejects the request with an HTTP error.

    The header `x-should-retry` is true for 408, 409, 429 and from 500 up, false for others, or as `retry` says.
    Each retry takes the next entry of the script.
    """
    server_side = status >= 500  # noqa: PLR2004  the HTTP class of server errors
    kind = type or _ERROR_TYPES.get(status, "api_error" if server_side else "invalid_request_error")
    if message is None:
        message = kind.removesuffix("_error").replace("_", " ").capitalize()
    if retry is None:
        retry = server_side or status in _RETRIED
    return Failure(status, kind, message, retry_after, retry)


def hang() -> Answer:
    """The API accepts the request and never answers, until the model is closed or the client disconnects."""
    return Hang()


def drop(text: str = "") -> Answer:
    """The API begins to answer, sends `text`, and drops the connection."""
    return Drop(text)


def garbage(value: object = "this is no frame") -> Fault:
    """The CLI writes `value`, which is not a frame of the protocol, then goes on with the next entry."""
    return Garbage(value)


def exit_early(code: int = 1) -> Fault:
    """The CLI exits in the middle of the turn, without a result, with this exit code."""
    return ExitEarly(code)


def silence() -> Fault:
    """The CLI stops responding, even to control requests, until it is closed."""
    return Silence()


class Expectation:
    """A step that checks the request before it answers."""

    def __init__(self, results: tuple[str, ...], prompt: str | None, then: "Step") -> None:
        self._results = results
        self._prompt = prompt
        self._then = then
        self.__qualname__ = repr(self)

    def __call__(self, request: Request) -> Answer:
        """Return the answer if the request is as expected; `AssertionError` with both sides if not."""
        actual = tuple(result.text for result in request.tool_results)
        if self._results and actual != self._results:
            raise AssertionError(f"tool results\n  expected: {self._results!r}\n  actual:   {actual!r}")
        if self._prompt is not None and not re.search(self._prompt, request.prompt):
            raise AssertionError(f"prompt\n  expected: {self._prompt!r}\n  actual:   {request.prompt!r}")
        return self._then(request) if callable(self._then) else self._then

    def __repr__(self) -> str:
        return f"expect({', '.join(map(repr, self._results))}, then={self._then!r})"


def expect(*results: str, then: "Step", prompt: str | None = None) -> Expectation:
    """Check the tool results (texts, in order), or that the prompt matches, then go on with `then`.

    Anything else fails the test and shows both sides: `expect("42", then=say("It is 42."))`.
    """
    return Expectation(results, prompt, then)


def when(pattern: str, answer: Answer) -> "Rule":
    """Make a rule for `ScriptedModel(rules=[...])`: every prompt that matches gets this answer."""

    def rule(request: Request) -> Answer | None:
        return answer if not request.side and re.search(pattern, request.prompt) else None

    rule.__qualname__ = f"when({pattern!r})"
    return rule
