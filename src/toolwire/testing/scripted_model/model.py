"""`ScriptedModel`: a Messages API on loopback that plays a script, to drive the real CLI in tests.

Owns the progress through the script: which request takes which entry, the records, unexpected requests.
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
from toolwire.testing.script import Answer, Failure, Rule, Step, StepError, evaluate, fail, load_script, say
from toolwire.testing.scripted_model.server import ModelServer

_short = Repr()
_short.maxstring = 120
_short.maxlist = 3


@dataclass(frozen=True)
class Unexpected:
    """A request for which the script had no entry, or whose entry failed."""

    reason: str
    request: Request
    error: Exception | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {_describe(self.request)}"


class ScriptedModel:
    """Answers each request of the conversation with the next entry of `script`.

    - `subagents` is a script of its own for the requests of subagents, which come while the main
      conversation goes on; without it they take entries of `script`.
    - `rules` are called, in order, with requests that the script has no entry for: the CLI's own requests
      (`request.side`), which otherwise get a short text, and requests after the script's end.
    - A request after the end is rejected with HTTP 400, recorded in `unexpected`, and makes
      `assert_finished` fail.

    The CLI sends a rejected request again in a simpler form (without some beta header, or without
    streaming). Such a repetition gets the same error and takes no entry.
    """

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        subagents: Iterable[Step] | None = None,
        rules: Iterable[Rule] = (),
    ) -> None:
        self._script: deque[Step] = load_script(script, Answer)
        self._subagents = None if subagents is None else load_script(subagents, Answer)
        self._rules = tuple(rules)
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._others: list[Request] = []
        self._unexpected: list[Unexpected] = []
        self._rejected: dict[tuple[str | None, ...], tuple[Any, Failure]] = {}
        self._server: ModelServer | None = None
        self._closed = False

    def start(self) -> Self:
        """Start listening. A `with` block does it."""
        with self._lock:
            if self._closed:
                raise RuntimeError(
                    "this scripted model was closed and cannot be started again; make a new one"
                )
            if self._server is None:
                self._server = ModelServer(self._answer, self._record)
                self._server.start()
        return self

    def close(self) -> None:
        """Drop all open connections and stop listening. May be called again; never waits for an answer."""
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
            raise RuntimeError("the scripted model is not started; use it in a `with` block or call start()")
        return self._server.url

    @property
    def requests(self) -> list[Request]:
        """The requests of the conversation so far, in order of arrival, those of subagents included."""
        with self._lock:
            return list(self._requests)

    @property
    def others(self) -> list[Request]:
        """All other requests: the CLI's own, repetitions of rejected ones, token counts, probes."""
        with self._lock:
            return list(self._others)

    @property
    def unexpected(self) -> list[Unexpected]:
        """The requests that the script was not prepared for."""
        with self._lock:
            return list(self._unexpected)

    @property
    def remaining(self) -> list[Step]:
        """The entries of the scripts that are not played yet."""
        with self._lock:
            return [*self._script, *(self._subagents or ())]

    def assert_finished(self) -> None:
        """Raise `AssertionError` unless every entry was played and no unexpected request came."""
        remaining, unexpected = self.remaining, self.unexpected
        lines = [f"not played: {step!r}" for step in remaining]
        lines += [f"request not expected: {each}" for each in unexpected]
        if lines:
            cause = next((each.error for each in unexpected if each.error), None)
            raise AssertionError("\n".join(["the script was not followed", *lines])) from cause

    def _record(self, request: Request, problem: str | None) -> None:
        with self._lock:
            self._others.append(request)
            if problem is not None:
                self._unexpected.append(Unexpected(problem, request))

    def _answer(self, request: Request) -> Answer:
        """Return the answer to one messages request. Runs in the thread of its connection."""
        try:
            answer = self._find_answer(request)
        except StepError as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else None
            answer = self._reject(str(error), request, cause)
        if isinstance(answer, Failure) and not answer.retry and request.session_id and not request.side:
            with self._lock:
                self._rejected[_sender(request)] = (request.body.get("messages"), answer)
        return answer

    def _find_answer(self, request: Request) -> Answer:
        if request.side:
            self._record(request, None)
            return self._apply_rules(request) or say("ok")
        with self._lock:
            rejection = self._find_rejection(request)
            if rejection is not None:
                self._others.append(request)
                return rejection
            self._requests.append(request)
            script = self._script if request.agent_id is None or self._subagents is None else self._subagents
            step = script.popleft() if script else None
        if step is not None:
            answer: Answer = evaluate(step, request, Answer)
            return answer
        return self._apply_rules(request) or self._reject("the script has run out", request)

    def _find_rejection(self, request: Request) -> Failure | None:
        """Return the error that the same messages of the same session already got, if any."""
        if request.session_id is None:
            return None
        messages, rejection = self._rejected.get(_sender(request), (None, None))
        return rejection if rejection is not None and messages == request.body.get("messages") else None

    def _apply_rules(self, request: Request) -> Answer | None:
        answers = (evaluate(rule, request, Answer | None) for rule in self._rules)
        return next((answer for answer in answers if answer is not None), None)

    def _reject(self, reason: str, request: Request, error: Exception | None = None) -> Failure:
        unexpected = Unexpected(reason, request, error)
        with self._lock:
            self._unexpected.append(unexpected)
        return fail(400, message=f"scripted model: {unexpected}")


def _sender(request: Request) -> tuple[str | None, ...]:
    return request.session_id, request.agent_id, request.model


def _describe(request: Request) -> str:
    who = "" if request.agent_id is None else f" by subagent {request.agent_id}"
    results = [tuple(result) for result in request.tool_results]
    said = f"tool results {_short.repr(results)}" if results else f"prompt {_short.repr(request.prompt)}"
    return f"{request.method} {request.path}{who} with {said}"
