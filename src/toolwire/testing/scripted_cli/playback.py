"""The script of one `ScriptedCLI` and the records of what happened, shared by all its connections.

Owns the progress through the script and what assertions read. Must not know of frames, tasks or the protocol.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolwire.testing.request import Request, bare_name
from toolwire.testing.script import Answer, Fault, Scene, StepError, evaluate, fail, load_script


@dataclass(frozen=True)
class ToolCall:
    """One call that the CLI made or denied: `input` is what the tool got, `result` what the model read."""

    name: str
    input: Mapping[str, Any]
    result: str
    is_error: bool
    id: str = field(default="", compare=False)

    @property
    def bare_name(self) -> str:
        """The tool's own name, without `mcp__server__`."""
        return bare_name(self.name)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.input.items())
        return f"{self.name}({given}) -> {'error ' if self.is_error else ''}{self.result!r}"


class Playback:
    """The script and the records of one scripted CLI."""

    def __init__(
        self, script: Iterable[Scene], *, allow: bool, tools: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.script: deque[Scene] = load_script(script, Answer | Fault)
        self.allow = allow
        self.tools = tools
        self.calls: list[ToolCall] = []
        self.prompts: list[str] = []
        self.unexpected: list[str] = []
        self.failure: BaseException | None = None
        self.pending: dict[str, str] = {}
        """Descriptions of the turns, tool calls and requests to the host that have no end yet, by id."""

    def take_next(self, request: Request) -> Answer | Fault:
        """Take and evaluate the next entry of the script; an API error if there is none or it fails."""
        if not self.script:
            return self._reject("the script has run out", request)
        try:
            answer: Answer | Fault = evaluate(self.script.popleft(), request, Answer | Fault)
        except StepError as error:
            self.failure = error.__cause__
            return self._reject(str(error), request)
        return answer

    def _reject(self, reason: str, request: Request) -> Answer:
        results = [tuple(result) for result in request.tool_results]
        given = f"tool results {results!r}" if results else f"prompt {request.prompt!r}"
        self.unexpected.append(f"{reason}: {given}")
        return fail(400, message=f"scripted CLI: {reason}: {given}")
