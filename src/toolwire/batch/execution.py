"""One attempt of a run: starts its CLI, watches it, and returns how it ended. Books nothing.

A run that takes too long, is silent for too long, or must stop is interrupted first, so that the CLI reports its
cost so far. If the CLI does not respond it is ended anyway, and then the cost is unknown.
"""

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any, Final

import anyio

from toolwire._conversation.wiring import Conversation
from toolwire._support.log import logger_for
from toolwire.batch.definition import Batch, Run
from toolwire.batch.states import Claim, Outcome, State
from toolwire.catalog.money import micros
from toolwire.client.reply import run_on
from toolwire.client.warm import WarmPool
from toolwire.errors import (
    ClaudeSDKError,
    OptionsError,
    OutputValidationError,
    ResultError,
    result_error_text,
)
from toolwire.messages import AnyMessage, InitMessage, ResultMessage
from toolwire.options.agent_options import ClaudeAgentOptions
from toolwire.sessions import paths
from toolwire.sessions.store_functions import get_session_info_from_store

logger = logger_for("batch")

GRACE: Final = 2.0
"""Seconds that the CLI of a stopped run has to report its cost."""
_RESUME_PROMPT: Final = "Go on from where you were interrupted."
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500


class Stop:
    """A request to stop a run. `state` is the state it then ends in; `why` is a message for the user.

    `is_booked` is set once the money of the run is reserved; until then its CLI is certainly not started.
    """

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.state: State = "failed"
        self.why = ""
        self.is_booked = False

    def set(self, state: State, why: str) -> None:
        """Request the stop. Only the first request counts."""
        if not self._requested.is_set():
            self.state, self.why = state, why
            self._requested.set()

    @property
    def is_set(self) -> bool:
        """True if a stop was requested."""
        return self._requested.is_set()

    async def wait(self) -> None:
        """Wait until a stop is requested."""
        await self._requested.wait()


async def choose_session(
    options: ClaudeAgentOptions, claim: Claim, fresh: str
) -> tuple[ClaudeAgentOptions, bool]:
    """Return the options with the session of this attempt set, and True if it resumes an earlier session.

    If the lost attempt left no transcript there is nothing to resume: this one starts over with session id `fresh`.
    """
    options = copy.copy(options)
    if claim.resumes and await has_transcript(options, claim.session):
        options.resume = claim.session
        return options, True
    options.session_id = fresh
    return options, False


async def has_transcript(options: ClaudeAgentOptions, session: str) -> bool:
    """True if the session can be resumed here: from this disk, or from the session store."""
    folder = paths.find_config_dir(options.env or {})
    if await anyio.to_thread.run_sync(paths.find_session, session, options.cwd, folder) is not None:
        return True
    store = options.session_store
    return store is not None and await get_session_info_from_store(store, session, options.cwd) is not None


class Execution:
    """One attempt of a run.

    `on_result` is called with each raw result as soon as the CLI sends it, `on_session` once with the session id.
    """

    def __init__(
        self,
        batch: Batch[Any],
        stop: Stop,
        on_result: Callable[[dict[str, Any]], object],
        on_session: Callable[[str], object],
    ) -> None:
        self._batch = batch
        self._stop = stop
        self._on_result = on_result
        self._on_session: Callable[[str], object] | None = on_session
        self._last_message = 0.0
        self._result: dict[str, Any] | None = None

    async def carry_out(
        self, run: Run, options: ClaudeAgentOptions, *, resumes: bool, pool: WarmPool | None
    ) -> Outcome:
        """Execute the run, and return how it ended."""
        prompt = _RESUME_PROMPT if resumes else run.prompt
        loop = asyncio.get_running_loop()
        try:
            if pool is not None:
                conversation = await pool.take()
            else:
                conversation = Conversation(options)
                await conversation.open()
        except OptionsError as error:
            return Outcome("failed", 0, error=str(error))
        except ClaudeSDKError as error:  # no prompt was sent yet, so nothing was spent
            return Outcome("failed", 0, error=str(error), retryable=True)
        except Exception as error:  # noqa: BLE001 - user code, such as a custom function that starts the CLI
            return Outcome("failed", 0, error=f"{type(error).__name__}: {error}", retryable=True)
        if self._stop.is_set:
            await conversation.aclose()
            return Outcome(self._stop.state, 0, error=self._stop.why, retryable=True)
        self._last_message = loop.time()
        work = asyncio.create_task(run_on(conversation, prompt, self._on_message))
        try:
            await self._watch(work)
            if not work.done():
                await self._interrupt(conversation, work)
        finally:
            work.cancel()
            await conversation.aclose()
            await asyncio.wait({work}, timeout=GRACE)
        failure = None if work.cancelled() or not work.done() else work.exception()
        if self._result is None and isinstance(failure, ResultError) and failure.data:
            self._on_raw(failure.data)
        return self._conclude(failure)

    def _on_message(self, message: AnyMessage) -> None:
        self._last_message = asyncio.get_running_loop().time()
        if isinstance(message, ResultMessage):
            self._on_raw(message.raw or {})
        elif self._on_session is not None and isinstance(message, InitMessage) and message.session_id:
            self._on_session(message.session_id)
            self._on_session = None

    def _on_raw(self, result: dict[str, Any]) -> None:
        self._result = result
        self._on_result(result)

    async def _watch(self, work: "asyncio.Task[Any]") -> None:
        """Wait until the run ends, exceeds a time limit, or must stop."""
        loop = asyncio.get_running_loop()
        timeout, silence = self._batch.timeout, self._batch.silence
        end = None if timeout is None else loop.time() + timeout
        stop = asyncio.create_task(self._stop.wait())
        try:
            while not work.done() and not stop.done():
                limits = [end] if end is not None else []
                if silence is not None:
                    limits.append(self._last_message + silence)
                left = max(0.0, min(limits) - loop.time()) if limits else None
                await asyncio.wait({work, stop}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                now = loop.time()
                if end is not None and now >= end:
                    self._stop.set("failed", f"the run took longer than {timeout:g} seconds")
                elif silence is not None and now >= self._last_message + silence:
                    self._stop.set("failed", f"the run sent no message for {silence:g} seconds")
                if self._stop.is_set:
                    return
        finally:
            stop.cancel()

    async def _interrupt(self, conversation: Conversation, work: "asyncio.Task[Any]") -> None:
        """Interrupt the turn, so that the CLI still reports its cost."""
        try:
            async with asyncio.timeout(GRACE):
                await conversation.session.request({"subtype": "interrupt"}, GRACE)
                await asyncio.wait({work})
        except (TimeoutError, ClaudeSDKError) as error:
            logger.info("a stopped run did not report its cost: %s", str(error) or "no response")

    def _conclude(self, error: BaseException | None) -> Outcome:
        if self._result is None:
            why = self._stop.why if self._stop.is_set else str(error or "the CLI ended without a result")
            return Outcome("unknown", None, error=why)
        return conclude(
            self._batch, self._result, self._stop.state if self._stop.is_set else None, self._stop.why
        )


def conclude(
    batch: Batch[Any], result: dict[str, Any], stopped: State | None = None, why: str = ""
) -> Outcome:
    """Return the outcome of an attempt from the CLI's result.

    `stopped` is the state requested if the attempt was stopped, for the reason `why`.
    """
    cost = read_cost(result)
    kept = {
        "text": result.get("result") if isinstance(result.get("result"), str) else "",
        "output": result.get("structured_output"),
        "usage": result.get("usage"),
        "session_id": result.get("session_id"),
        "turns": result.get("num_turns"),
    }
    if cost is None:
        return Outcome("unknown", None, json.dumps(kept), "the result from the CLI has no valid cost")
    if stopped is not None and result.get("is_error"):
        return Outcome(stopped, cost, json.dumps(kept), why)
    if result.get("is_error"):
        status = result.get("api_error_status")
        temporary = isinstance(status, int) and (status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR)
        return Outcome(
            "failed", cost, json.dumps(kept), result_error_text(result), retryable=temporary or cost == 0
        )
    try:
        batch.decode_output(kept["output"], str(kept["text"]))
    except OutputValidationError as error:
        return Outcome("failed", cost, json.dumps(kept), str(error))
    return Outcome("done", cost, json.dumps(kept))


def read_cost(result: dict[str, Any]) -> int | None:
    """Return the cost in a result in micro-dollars, rounded up; None if it is missing or invalid."""
    value = result.get("total_cost_usd")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return micros(value)
    except ValueError:
        return None
