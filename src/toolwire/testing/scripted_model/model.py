"""`ScriptedModel`: a Messages API on loopback that plays a script, to drive the real CLI in tests.

Owns the script's progress: which request takes which turn, what is on record, what was unexpected.
Must not know of HTTP (server.py) or of the CLI's flags and environment (environment.py).
"""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import Repr
from types import TracebackType
from typing import Any, Self

from toolwire.testing.request import Request
from toolwire.testing.script import Answer, Failure, Rule, Step, fail, say
from toolwire.testing.scripted_model.server import ModelServer

_short = Repr()
_short.maxstring = 120
_short.maxlist = 3


@dataclass(frozen=True)
class Unexpected:
    """A request that no turn was there for, or whose turn could not be made."""

    reason: str
    request: Request
    error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {_describe(self.request)}"


class ScriptedModel:
    """Answers each request of the conversation with the next entry of `script`.

    - `subagents`, when given, is a script of its own for the requests of subagents, which come
      while the main conversation goes on; without it they take their turns from `script`.
    - `rules` are asked, in order, about what the script has no turn for: the CLI's own requests
      (`request.side`), which otherwise get a short text, and requests after the script's end.
    - A request after the end is refused with HTTP 400, noted in `unexpected`, and makes
      `assert_finished` fail.

    The CLI sends a refused request again in a plainer form (without some beta header, or without
    streaming). Such a repetition gets the same refusal and takes no turn.
    """

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        subagents: Iterable[Step] | None = None,
        rules: Iterable[Rule] = (),
    ) -> None:
        self._script = deque(script)
        self._subagents = None if subagents is None else deque(subagents)
        self._rules = tuple(rules)
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._others: list[Request] = []
        self._unexpected: list[Unexpected] = []
        self._refused: dict[tuple[str | None, ...], tuple[Any, Failure]] = {}
        self._server: ModelServer | None = None
        self._closed = False

    def start(self) -> Self:
        """Listen. A `with` block does it."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this scripted model was closed; make a new one")
            if self._server is None:
                self._server = ModelServer(self._answer, self._note)
                self._server.start()
        return self

    def close(self) -> None:
        """Break off every open request and stop listening. May be called again; never waits for a turn."""
        with self._lock:
            server = None if self._closed else self._server
            self._closed = True
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base address, for `ANTHROPIC_BASE_URL`."""
        if self._server is None:
            raise RuntimeError("the scripted model is not started; use it in a `with` block")
        return self._server.url

    @property
    def requests(self) -> list[Request]:
        """The requests of the conversation so far, in order of arrival, those of subagents included."""
        with self._lock:
            return list(self._requests)

    @property
    def others(self) -> list[Request]:
        """All other requests: the CLI's own, repetitions of refused ones, token counts, probes."""
        with self._lock:
            return list(self._others)

    @property
    def unexpected(self) -> list[Unexpected]:
        """What should not have happened."""
        with self._lock:
            return list(self._unexpected)

    @property
    def remaining(self) -> list[Step]:
        """The turns not yet taken."""
        with self._lock:
            return [*self._script, *(self._subagents or ())]

    def assert_finished(self) -> None:
        """Raise `AssertionError` unless every turn was taken and nothing unexpected came."""
        remaining, unexpected = self.remaining, self.unexpected
        lines = [f"turn not taken: {step!r}" for step in remaining]
        lines += [f"request not expected: {surprise}" for surprise in unexpected]
        if lines:
            cause = next((surprise.error for surprise in unexpected if surprise.error), None)
            raise AssertionError("\n".join(["the script was not followed", *lines])) from cause

    def _note(self, request: Request, problem: str | None) -> None:
        with self._lock:
            self._others.append(request)
            if problem is not None:
                self._unexpected.append(Unexpected(problem, request))

    def _answer(self, request: Request) -> Answer:
        """Decide on one messages request; runs in the thread of its connection."""
        if request.side:
            self._note(request, None)
            return self._by_rule(request) or say("ok")
        with self._lock:
            refusal = self._repeated(request)
            if refusal is not None:
                self._others.append(request)
                return refusal
            self._requests.append(request)
            script = self._script if request.agent_id is None or self._subagents is None else self._subagents
            step = script.popleft() if script else None
        result = self._by_rule(request) if step is None else self._made(step, request)
        if result is None:
            result = self._surprise("the script has run out", request)
        if isinstance(result, Failure) and not result.retry and request.session_id:
            with self._lock:
                self._refused[_asker(request)] = (request.body.get("messages"), result)
        return result

    def _repeated(self, request: Request) -> Failure | None:
        """The refusal that the same messages of the same session already met, if they did."""
        if request.session_id is None:
            return None
        messages, refusal = self._refused.get(_asker(request), (None, None))
        return refusal if refusal is not None and messages == request.body.get("messages") else None

    def _by_rule(self, request: Request) -> Answer | None:
        for rule in self._rules:
            result = self._made(rule, request)
            if result is not None:
                return result
        return None

    def _made(self, step: Step | Rule, request: Request) -> Answer | None:
        if not callable(step):
            return step
        try:
            return step(request)
        except Exception as error:  # noqa: BLE001  the test's function, in our thread: told by assert_finished
            return self._surprise(f"{_name(step)} raised {error!r}", request, error)

    def _surprise(self, reason: str, request: Request, error: Exception | None = None) -> Failure:
        surprise = Unexpected(reason, request, error)
        with self._lock:
            self._unexpected.append(surprise)
        return fail(400, message=f"scripted model: {surprise}")


def _asker(request: Request) -> tuple[str | None, ...]:
    return request.session_id, request.agent_id, request.model


def _name(step: object) -> str:
    return getattr(step, "__qualname__", None) or repr(step)


def _describe(request: Request) -> str:
    who = "" if request.agent_id is None else f" by subagent {request.agent_id}"
    results = [tuple(result) for result in request.tool_results]
    said = f"tool results {_short.repr(results)}" if results else f"prompt {_short.repr(request.prompt)}"
    return f"{request.method} {request.path}{who} with {said}"
