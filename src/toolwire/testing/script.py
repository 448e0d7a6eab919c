"""Scripts for the scripted model and the scripted CLI: steps, the requests to the model, and its responses as JSON.

Owns the steps of a script (`say`, `call`, `think`, `turn`, `fail`, ...), which are plain data; the evaluation of
steps that are functions; the parsing of requests to the Messages API; and the JSON of its responses. Pure: must not
know about sockets, threads or the progress through a script.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import Repr
from types import UnionType
from typing import Any, NamedTuple, assert_never

from toolwire._support.words import closest

_short = Repr()
_short.maxstring = _short.maxother = 60

# The tool that the CLI offers the model when it was started with --json-schema.
STRUCTURED_OUTPUT = "StructuredOutput"
_REMINDER = "<system-reminder>"
_SUGGESTION = "[SUGGESTION MODE:"


# --- the requests ---


class ToolResult(NamedTuple):
    """The result of one tool call, as the CLI sent it to the model."""

    tool_use_id: str
    text: str
    is_error: bool


@dataclass(frozen=True)
class Request:
    """One received request. The names of `headers` are in lower case; credentials are redacted."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> str:
        """The name of the requested model."""
        return str(self.body.get("model", ""))

    @property
    def system(self) -> str:
        """The system prompt, all its blocks joined."""
        return "\n".join(_texts(self.body.get("system")))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model may call."""
        return [str(tool.get("name", "")) for tool in _dicts(self.body.get("tools"))]

    @property
    def prompt(self) -> str:
        """The text of the last user message that has any, without tool results and the CLI's own reminders."""
        for content in self._user_contents():
            said = [text for text in _texts(content) if not text.lstrip().startswith(_REMINDER)]
            if said:
                return "\n".join(said)
        return ""

    @property
    def tool_results(self) -> list[ToolResult]:
        """The tool results in the last user message."""
        content = next(self._user_contents(), None)
        return [
            ToolResult(
                str(block.get("tool_use_id", "")),
                "\n".join(_texts(block.get("content"))),
                block.get("is_error") is True,
            )
            for block in _dicts(content)
            if block.get("type") == "tool_result"
        ]

    @property
    def session_id(self) -> str | None:
        """The id of the CLI session."""
        return self.headers.get("x-claude-code-session-id")

    @property
    def agent_id(self) -> str | None:
        """The id of the subagent; `None` for the main conversation."""
        return self.headers.get("x-claude-code-agent-id")

    @property
    def side(self) -> bool:
        """True for a request that the CLI sends for its own purposes; it takes no entry of the script.

        Observed with CLI 2.1.325. Where possible, requests are recognised by features other than wording:
        - `max_tokens` is 1: a warm-up or a quota check;
        - `output_config.format`: a helper that expects JSON, such as for the session's title. The structured output
          of the conversation itself uses a tool instead;
        - only tools that the API runs itself (they have a `type` and no schema): the search of the WebSearch tool;
        - a prompt that begins with the marker of prompt suggestions, if the host turned them on.
        """
        tools = _dicts(self.body.get("tools"))
        output = self.body.get("output_config")
        return (
            self.body.get("max_tokens") == 1
            or (isinstance(output, dict) and "format" in output)
            or (bool(tools) and all("type" in tool and "input_schema" not in tool for tool in tools))
            or self.prompt.startswith(_SUGGESTION)
        )

    def _user_contents(self) -> Iterator[Any]:
        # The CLI also puts messages of role "system" after the last user message.
        for message in reversed(_dicts(self.body.get("messages"))):
            if message.get("role") == "user":
                yield message.get("content")


def bare_name(tool: str) -> str:
    """Return the name of a tool without its server: `add` for `mcp__calc__add`."""
    return tool.split("__", 2)[-1] if tool.startswith("mcp__") else tool


def find_call(calls: Sequence[tuple[str, Mapping[str, Any]]], tool: str, arguments: Mapping[str, Any]) -> int:
    """Return the index of the first call of a tool with at least these arguments. Raises `AssertionError` if none.

    The name is bare (`add`) or full (`mcp__calc__add`).
    """
    __tracebackhide__ = True
    same_tool = [place for place, (name, _) in enumerate(calls) if tool in (name, bare_name(name))]
    for place in same_tool:
        given = calls[place][1]
        if all(key in given and given[key] == value for key, value in arguments.items()):
            return place
    names = {each for name, _ in calls for each in (name, bare_name(name))}
    near = None if same_tool else closest(tool, names)
    what = "was called with other arguments" if same_tool else "was not called"
    shown = [calls[place] for place in same_tool] or calls
    lines = [f"{tool} {what}{f' (did you mean {near!r}?)' if near else ''}"]
    lines += [f"expected: {format_call(tool, arguments)}"]
    lines += [f"called:   {format_call(name, given)}" for name, given in shown] or ["no tool was called"]
    raise AssertionError("\n".join(lines))


def format_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """Format a call as `add(a=1, b=2)`."""
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(content: Any) -> list[str]:
    """Return the texts in `content`, which may be a string or a list of blocks."""
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in _dicts(content) if block.get("type") == "text"]


# --- the steps ---

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
"""A step: the model's response to one request."""

Fault = Garbage | ExitEarly | Silence
"""A step: a failure of the CLI itself. Only `ScriptedCLI` can play it."""

Step = Answer | Callable[[Request], Answer]
"""One entry of a script: an answer, or a function that returns one for the request."""

Scene = Step | Fault | Callable[[Request], Answer | Fault]
"""One entry of a `ScriptedCLI`'s script: a step, or a fault of the CLI."""

Rule = Callable[[Request], Answer | None]
"""A function that is called with a request for which the script has no entry. Returns `None` to pass it on."""


class StepError(Exception):
    """A function in a script raised an exception (see `__cause__`) or did not return an answer."""


def load_script(steps: Iterable[Any], allowed: UnionType) -> deque[Any]:
    """Return the entries of a script as a queue. Raises `TypeError` if one is neither `allowed` nor a function."""
    script = deque(steps)
    for step in script:
        if not callable(step) and not isinstance(step, allowed):
            raise TypeError(f"a script consists of say(), call(), turn(), ... or functions; got {step!r}")
    return script


def evaluate(step: Any, request: Request, allowed: Any) -> Any:
    """Return the answer of a step or rule to a request. Raises `StepError` if it fails or returns another type."""
    if not callable(step):
        return step
    name = getattr(step, "__qualname__", None) or repr(step)
    try:
        answer = step(request)
    except AssertionError as error:  # its text may have several lines, which a repr would escape
        raise StepError(f"{name} failed: {error}" if str(error) else f"{name} failed") from error
    except Exception as error:
        raise StepError(f"{name} raised {error!r}") from error
    if not isinstance(answer, allowed):
        raise StepError(f"{name} returned {answer!r}, which is not an answer such as say(...)")
    return answer


def say(text: str) -> Block:
    """The model responds with `text`. Outside `turn()`, this ends the model's turn."""
    return Text(text)


def think(text: str, *, signature: str = "c2NyaXB0ZWQ=") -> Block:
    """The model thinks `text`."""
    return Thinking(text, signature)


def call(
    name: str, input: Mapping[str, Any] | None = None, /, *, id: str | None = None, **arguments: Any
) -> Block:
    """The model calls the tool `name`, with arguments as keywords or in a mapping.

    `id` is always the id of the call (generated if not given). To pass an argument named `id`, use the mapping.
    """
    if id is not None and not str(id).startswith("toolu_"):
        raise ValueError(
            f"call({name!r}, id={id!r}): the id of a call must begin with 'toolu_'; "
            f"to pass an argument named 'id', use call({name!r}, {{'id': {id!r}}})"
        )
    return Call(name, {**(input or {}), **arguments}, id)


def answer(output: Any) -> Block:
    """The model returns its structured output, in a session started with `--json-schema` or an `output_type`.

    `output` is a value of that type: a dict, a model, a dataclass, a list, a number, ...

    The CLI offers the model a tool for the output, whose input has the schema, and validates the input:
    - valid: the run ends at once, with `structured_output` in the result and *no* further request,
      so nothing may follow in the script;
    - invalid: the model gets a failed tool result, and the next entry of the script is played;
    - a text without the call: the model is reminded once, and the next entry of the script is played.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415 - heavy, and few scripts need it

    from toolwire.client.reply import OUTPUT_KEY  # noqa: PLC0415

    value = output if isinstance(output, Mapping) else TypeAdapter(Any).dump_python(output, mode="json")
    # A value that is not an object in JSON, such as a list[int], is wrapped in an object with one key.
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
    """The model responds with several blocks.

    `delay` is the time in seconds before the first byte, `chunk_delay` the time between streamed chunks, and
    `chunk_size` the number of characters in a chunk (`None`: each block whole, up to a million).
    By default, `stop_reason` is derived from the blocks and `model` from the request.
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

    The header `x-should-retry` is true for 408, 409, 429 and for 500 and above, otherwise false; `retry` overrides
    it. Each retry takes the next entry of the script.
    """
    server_side = status >= 500  # noqa: PLR2004  the HTTP class of server errors
    kind = type or _ERROR_TYPES.get(status, "api_error" if server_side else "invalid_request_error")
    if message is None:
        message = kind.removesuffix("_error").replace("_", " ").capitalize()
    if retry is None:
        retry = server_side or status in _RETRIED
    return Failure(status, kind, message, retry_after, retry)


def hang() -> Answer:
    """The API accepts the request and never responds, until the model is closed or the client disconnects."""
    return Hang()


def drop(text: str = "") -> Answer:
    """The API starts its response, sends `text`, and drops the connection."""
    return Drop(text)


def garbage(value: object = "this is no frame") -> Fault:
    """The CLI writes `value`, which is not a frame of the protocol, and continues with the next entry."""
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
        """Return the answer if the request is as expected. Raises `AssertionError` with both sides if not."""
        actual = tuple(result.text for result in request.tool_results)
        if self._results and actual != self._results:
            raise AssertionError(f"tool results\n  expected: {self._results!r}\n  actual:   {actual!r}")
        if self._prompt is not None and not re.search(self._prompt, request.prompt):
            raise AssertionError(f"prompt\n  expected: {self._prompt!r}\n  actual:   {request.prompt!r}")
        return self._then(request) if callable(self._then) else self._then

    def __repr__(self) -> str:
        return f"expect({', '.join(map(repr, self._results))}, then={self._then!r})"


def expect(*results: str, then: "Step", prompt: str | None = None) -> Expectation:
    """Check the texts of the tool results, in order, and that the prompt matches, then play `then`.

    For example `expect("42", then=say("It is 42."))`. If the check fails, the test fails and shows both sides.
    `prompt` is a regular expression.
    """
    return Expectation(results, prompt, then)


def when(pattern: str, answer: Answer) -> "Rule":
    """Return a rule for `ScriptedModel(rules=[...])`: every prompt that matches `pattern` gets this answer."""

    def rule(request: Request) -> Answer | None:
        return answer if not request.side and re.search(pattern, request.prompt) else None

    rule.__qualname__ = f"when({pattern!r})"
    return rule


# --- the responses of the Messages API ---

Event = dict[str, Any]

# The default size of a chunk, in characters. A normal text is one chunk; the CLI reads a text of 20 MB in half the
# time that it would need for a single chunk.
_LARGEST = 1_000_000


def build_message(turn: Turn, *, id: str, model: str, call_ids: list[str]) -> dict[str, Any]:
    """Return the turn as one message, for a request without streaming."""
    ids = iter(call_ids)
    calls = any(isinstance(block, Call) for block in turn.blocks)
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": turn.model or model,
        "content": [_to_json_block(block, ids) for block in turn.blocks],
        "stop_reason": turn.stop_reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": turn.input_tokens,
            "output_tokens": turn.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def build_events(turn: Turn, *, id: str, model: str, call_ids: list[str]) -> Iterator[Event]:
    """Yield the events of the streamed turn."""
    message = build_message(turn, id=id, model=model, call_ids=call_ids)
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        start, deltas = _to_deltas(block, turn.chunk_size or _LARGEST)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
        "usage": {"output_tokens": turn.output_tokens},
    }
    yield {"type": "message_stop"}


def build_error(type: str, text: str) -> dict[str, Any]:
    """Return the body of an HTTP error."""
    return {"type": "error", "error": {"type": type, "message": text}}


def encode_event(event: Event) -> bytes:
    """Encode one event of a stream."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))


def to_json(value: Any) -> bytes:
    """Encode as JSON in UTF-8, as the API does; as ASCII with escapes if a text has a lone surrogate."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _to_json_block(block: Block, ids: Iterator[str]) -> dict[str, Any]:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call(name, input):
            return {"type": "tool_use", "id": next(ids), "name": name, "input": dict(input)}
        case _:
            assert_never(block)


def _to_deltas(block: dict[str, Any], size: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the block of the start event, and the deltas."""

    def split(kind: str, name: str, text: str) -> list[dict[str, Any]]:
        return [{"type": kind, name: text[at : at + size]} for at in range(0, len(text) or 1, size)]

    match block:
        case {"type": "text", "text": text}:
            return {**block, "text": ""}, split("text_delta", "text", text)
        case {"type": "thinking", "thinking": text, "signature": signature}:
            deltas = split("thinking_delta", "thinking", text)
            return {**block, "thinking": "", "signature": ""}, [
                *deltas,
                {"type": "signature_delta", "signature": signature},
            ]
        case _:
            return {**block, "input": {}}, split(
                "input_json_delta", "partial_json", json.dumps(block["input"])
            )
