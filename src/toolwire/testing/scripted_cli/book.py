"""What a scripted CLI plays and what it has seen: the script's progress, the calls, the prompts.

Owns the script shared by all connections of one `ScriptedCLI`, the words for faults, and the records that
assertions read. Must not know of frames, tasks or the protocol.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolwire.testing.request import Request
from toolwire.testing.script import Answer, Step, fail


@dataclass(frozen=True)
class Garbage:
    """See `garbage`."""

    value: Any


@dataclass(frozen=True)
class ExitEarly:
    """See `exit_early`."""

    code: int


@dataclass(frozen=True)
class Silence:
    """See `silence`."""


Fault = Garbage | ExitEarly | Silence
Scene = Step | Fault | Callable[[Request], Answer | Fault]
"""One entry of a scripted CLI's script: a turn of the model, or a fault of the CLI."""


def garbage(value: object = "this is no frame") -> Garbage:
    """The CLI writes something that is no frame of the protocol, then goes on with the next entry."""
    return Garbage(value)


def exit_early(code: int = 1) -> ExitEarly:
    """The CLI ends in the middle of the turn, without a result, with this exit code."""
    return ExitEarly(code)


def silence() -> Silence:
    """The CLI says nothing any more, not even to control requests, until it is closed."""
    return Silence()


@dataclass(frozen=True)
class ToolCall:
    """One call that the CLI made or refused: `input` is what the tool got, `result` what the model read."""

    name: str
    input: Mapping[str, Any]
    result: str
    is_error: bool
    id: str = field(default="", compare=False)

    @property
    def bare_name(self) -> str:
        """The tool's own name, without `mcp__server__`."""
        return self.name.split("__", 2)[-1] if self.name.startswith("mcp__") else self.name

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.input.items())
        return f"{self.name}({given}) -> {'error ' if self.is_error else ''}{self.result!r}"


class Book:
    """The script and the records of one scripted CLI."""

    def __init__(
        self, script: Iterable[Scene], *, allow: bool, tools: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.script = deque(script)
        for step in self.script:
            if not callable(step) and not isinstance(step, Answer | Fault):
                raise TypeError(f"a script is made of say(), call(), turn(), ...; got {step!r}")
        self.allow = allow
        self.tools = tools
        self.calls: list[ToolCall] = []
        self.prompts: list[str] = []
        self.unexpected: list[str] = []
        self.failure: Exception | None = None
        self.open: dict[str, str] = {}
        """What has begun and not ended, by id: turns, tool calls, questions to the host."""

    def next(self, request: Request) -> Answer | Fault:
        """The next entry, made if it is a function; a refusal of the API when there is none."""
        if not self.script:
            return self._surprise("the script has run out", request)
        step = self.script.popleft()
        if not callable(step):
            return step
        name = getattr(step, "__qualname__", repr(step))
        try:
            made: object = step(request)
        except Exception as error:  # noqa: BLE001 - the test's own function: told by assert_finished
            self.failure = error
            return self._surprise(f"{name} raised {error!r}", request)
        if isinstance(made, Answer | Fault):
            return made
        return self._surprise(f"{name} returned {made!r}, which is no answer", request)

    def _surprise(self, reason: str, request: Request) -> Answer:
        results = [tuple(result) for result in request.tool_results]
        asked = f"tool results {results!r}" if results else f"prompt {request.prompt!r}"
        self.unexpected.append(f"{reason}: {asked}")
        return fail(400, message=f"scripted CLI: {reason}: {asked}")
