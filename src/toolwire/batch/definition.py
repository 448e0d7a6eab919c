"""`Batch` and `Run`: how a user defines a batch. Everything is checked here, before anything starts.

Owns the types of items and outputs, and their conversion to and from JSON. Starts nothing itself: `open()` returns
an `OpenBatch` (module `opened`), which does.
"""

import asyncio
import copy
import dataclasses
import inspect
import json
import typing
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

import anyio
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from toolwire._support.tasks import is_async, on_trio
from toolwire._support.threads import Workers
from toolwire._support.words import closest
from toolwire.batch.states import BEAT, ON_LOST, POLL, STALE, OnLost, to_dollars
from toolwire.catalog.money import micros
from toolwire.client.reply import OutputType
from toolwire.errors import BatchError, OptionsError
from toolwire.options.agent_options import ClaudeAgentOptions

if TYPE_CHECKING:
    from toolwire.batch.opened import OpenBatch

T = TypeVar("T")
Money = str | int | float | Decimal
Task = Callable[[Any], Any]

LONGEST_NAME: Final = 200
LONGEST_KEY: Final = 500
SILENCE: Final = 15 * 60.0
_FIELDS: Final = frozenset(each.name for each in dataclasses.fields(ClaudeAgentOptions))
_SESSION_OPTIONS: Final = (
    "session_id",
    "resume",
    "continue_conversation",
    "fork_session",
    "resume_session_at",
)
"""Options that select the session of a run, which the batch does itself."""
_threads: Final = Workers(abandoned_limit=40)
"""Threads for user tasks: a task that hangs uses up no thread of the records, and does not block process exit."""


class Run:
    """One run: its prompt, and options that override those of the batch.

    Run(f"Review {repo.name}.", cwd=repo.path)
    """

    def __init__(self, prompt: str, **changes: Any) -> None:
        given: Any = prompt
        if not isinstance(given, str) or not given.strip():
            raise OptionsError(f"Run: the prompt must be a non-empty string, got {prompt!r}", "prompt")
        _check_changes(changes)
        self.prompt = prompt
        self.changes = changes

    def __repr__(self) -> str:
        changes = "".join(f", {name}={value!r}" for name, value in self.changes.items())
        return f"Run({self.prompt!r}{changes})"


class Batch(Generic[T]):
    """Many runs under one name. Opening a batch with the same name again continues where it stopped.

        review = Batch("review-2026-11", output_type=Verdict, budget="500", per_run="2")

        @review.task
        def prepare(repo: Repo) -> Run:
            return Run(f"Review {repo.name}.", cwd=repo.path)

        async with review.open() as batch:
            await batch.add({repo.name: repo for repo in repos})
            async for done in batch.results():
                print(done.key, done.state, done.output, done.cost)

    - `options`: the options of every run; a `Run` may override some of them.
    - `output_type`: the type of the structured output, as for `run()`.
    - `concurrency`: the number of simultaneous runs in one worker. Default: as many as its free memory allows.
    - `budget`, `per_run`: dollars. A run is stopped at `per_run`; when `budget` has no room for another run, the
      remaining runs are refused.
    - `timeout`: seconds that a run may take; `silence`: seconds that it may go without sending a message.
    - `attempts`: how often a run is tried if it fails at no cost or for a temporary reason (an overloaded API).
    - `on_lost`: what happens to a run whose worker was lost. `"hold"`: the run becomes *unknown*, is never run
      twice, and a person decides; `"resume"`: its session continues from the transcript; `"again"`: it starts over.
    """

    @overload
    def __init__(
        self: "Batch[T]",
        name: str,
        options: ClaudeAgentOptions | None = None,
        output_type: type[T] = ...,
        *,
        concurrency: int | None = None,
        budget: Money | None = None,
        per_run: Money | None = None,
        timeout: float | None = None,
        silence: float | None = SILENCE,
        attempts: int = 1,
        on_lost: OnLost = "hold",
    ) -> None: ...
    @overload
    def __init__(
        self: "Batch[Any]",
        name: str,
        options: ClaudeAgentOptions | None = None,
        output_type: Any = None,
        *,
        concurrency: int | None = None,
        budget: Money | None = None,
        per_run: Money | None = None,
        timeout: float | None = None,
        silence: float | None = SILENCE,
        attempts: int = 1,
        on_lost: OnLost = "hold",
    ) -> None: ...
    def __init__(
        self,
        name: str,
        options: ClaudeAgentOptions | None = None,
        output_type: Any = None,
        *,
        concurrency: int | None = None,
        budget: Money | None = None,
        per_run: Money | None = None,
        timeout: float | None = None,
        silence: float | None = SILENCE,
        attempts: int = 1,
        on_lost: OnLost = "hold",
    ) -> None:
        self.name = _check_name(name)
        self.options = _check_options(options, on_lost)
        if output_type is not None and self.options.output_format is not None:
            raise OptionsError(
                "output_type and options.output_format are both set: use only one of them", "output_format"
            )
        self.output = None if output_type is None else OutputType(output_type)
        self.concurrency = _check_count("concurrency", concurrency)
        self.attempts = _check_count("attempts", attempts) or 1
        self.timeout = _check_seconds("timeout", timeout)
        self.silence = _check_seconds("silence", silence)
        if on_lost not in ON_LOST:
            raise OptionsError(f"on_lost must be one of {', '.join(ON_LOST)}, got {on_lost!r}", "on_lost")
        self.on_lost = on_lost
        self.budget = _check_money("budget", budget)
        self.per_run = _check_money("per_run", per_run)
        if self.budget is not None:
            if self.per_run is None:
                raise OptionsError(
                    "budget needs per_run, the most that one run may cost: it is reserved before a run starts",
                    "per_run",
                )
            if self.per_run > self.budget:
                raise OptionsError(
                    f"per_run is {to_dollars(self.per_run)} dollars, budget {to_dollars(self.budget)}: no run fits",
                    "per_run",
                )
        self._task: Task | None = None
        self._items: TypeAdapter[Any] | None = None

    def task(self, function: Task) -> Task:
        """Decorate the function that turns an item into a `Run` or a prompt, in the worker. It may be async."""
        if self._task is not None:
            raise OptionsError(f"batch {self.name!r} has a task already: {_describe(self._task)}", "task")
        if not callable(function):
            raise OptionsError(f"@batch.task needs a function, got {function!r}", "task")
        self._items = _item_type(function)
        self._task = function
        return function

    @asynccontextmanager
    async def open(
        self,
        at: str | Path | None = None,
        *,
        work: bool = True,
        ledger: Any = None,
        dbos: Any = None,
        poll: float = POLL,
        beat: float = BEAT,
        stale: float = STALE,
        drain: float | None = None,
    ) -> AsyncIterator["OpenBatch[T]"]:
        """Open the batch, to add runs and read results. With `work`, this process also executes runs.

        `at`: None for SQLite files in the user's state folder, another folder for them, or `postgresql://...` for
        several machines. `ledger`: a `Ledger` to use instead of the batch's own. `dbos`: a launched DBOS instance,
        if the program has one. `poll`: seconds between two polls for runs and results. A worker sends a heartbeat
        every `beat` seconds, and counts as lost after `stale` seconds without one. Leaving the block waits at most
        `drain` seconds for the runs of this process; None means until they end.
        """
        if on_trio():
            raise BatchError(
                "a batch runs on asyncio only, because its engine does: use asyncio.run(), not trio"
            )
        from toolwire.batch.opened import OpenBatch  # noqa: PLC0415 - it imports this module

        opened: OpenBatch[T] = OpenBatch(
            self, at, work=work, ledger=ledger, dbos=dbos, poll=poll, beat=beat, stale=stale
        )
        await opened.start()
        try:
            yield opened
        except BaseException:
            await _finish(opened, 0.0)
            raise
        await _finish(opened, drain)

    # --- for workers ---

    @property
    def settings(self) -> dict[str, Any]:
        """The settings to record, for commands that work without the user's file."""
        return {
            "budget": self.budget,
            "per_run": self.per_run,
            "attempts": self.attempts,
            "on_lost": self.on_lost,
            "timeout": self.timeout,
        }

    def encode(self, key: str, item: Any) -> str:
        """Return an item as JSON. `BatchError` for an invalid key, or an item that is not JSON or does not fit."""
        check_key(key)
        try:
            if self._items is None:
                text = to_json(item)
                json.loads(text)
            else:
                # Encode and decode: an item that a worker could not decode later must fail now.
                valid = self._items.validate_python(item)
                text = self._items.dump_json(valid)
                self._items.validate_json(text)
        except (ValidationError, PydanticSerializationError, ValueError, TypeError) as error:
            raise BatchError(f"the item of {key!r} is not valid: {error}") from error
        if self._task is None:
            self._check_prompt(key, json.loads(text))
        return text.decode()

    def _check_prompt(self, key: str, prompt: Any) -> None:
        if not isinstance(prompt, str):
            raise BatchError(
                f"the item of {key!r} is not a prompt, and batch {self.name!r} has no @batch.task to convert it"
            )
        if not prompt.strip():
            raise BatchError(f"the item of {key!r} is an empty prompt")

    async def prepare(self, key: str, item: str) -> Run:
        """Call the user's task to turn an item into a `Run`."""
        value = json.loads(item) if self._items is None else self._items.validate_json(item)
        if self._task is None:
            return Run(value)
        try:
            if is_async(self._task):
                made = await self._task(value)
            else:
                made = await _threads.run(partial(self._task, value))
                if inspect.isawaitable(made):
                    made = await made
        except (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # it would end this worker, and then every other one that gets the run
            what = (
                f"called sys.exit({error.code!r})"
                if isinstance(error, SystemExit)
                else f"raised {type(error).__name__}: {error}"
            )
            raise BatchError(f"{_describe(self._task)} {what} for {key!r}") from error
        if isinstance(made, str):
            return Run(made)
        if not isinstance(made, Run):
            raise BatchError(
                f"{_describe(self._task)} must return a Run or a prompt, got {type(made).__name__} for {key!r}"
            )
        return made

    def options_for(self, run: Run) -> ClaudeAgentOptions:
        """Return the options of a run, without those that select its session."""
        options = copy.copy(self.options)  # not `replace`, which would repeat warnings about the options
        for name, value in run.changes.items():
            setattr(options, name, value)
        if self.output is not None:
            options.output_format = self.output.format
        if self.on_lost == "resume":  # what is not stored when the worker is lost is repeated
            options.session_store_flush = "eager"
        if self.per_run is not None:
            most = float(to_dollars(self.per_run))
            options.max_budget_usd = (
                most if options.max_budget_usd is None else min(options.max_budget_usd, most)
            )
        return options

    def session_of(self, uid: str, key: str, attempt: int) -> str:
        """Return the session id of an attempt, which is thus known before the attempt starts."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"toolwire:batch:{uid}:{key}:{attempt}"))

    def decode_output(self, value: Any, text: str) -> Any:
        """Return an output as an instance of `output_type`; `OutputValidationError` if it does not match."""
        if self.output is None:
            return value
        return self.output.validate(value, _Text(text))


@dataclasses.dataclass(frozen=True)
class _Text:
    """The part of a reply that the error about a missing output shows."""

    text: str


async def _finish(opened: "OpenBatch[Any]", drain: float | None) -> None:
    """Close a batch even if the task is cancelled. A cancellation while it waits for its runs stops the runs."""
    closing = asyncio.create_task(opened.close(drain))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not closing.done():
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError as error:
                cancelled = error
                opened.stop_runs()
    closing.result()
    if cancelled is not None:
        raise cancelled


def _item_type(function: Task) -> TypeAdapter[Any] | None:
    """Return the type adapter for the items of a task; None if its parameter has no annotation."""
    try:
        parameters = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL)
        ]
    except (TypeError, ValueError):
        return None
    if not parameters or any(
        each.default is each.empty and each.kind != each.VAR_POSITIONAL for each in parameters[1:]
    ):
        raise OptionsError(f"@batch.task: {_describe(function)} must take exactly one item", "task")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise OptionsError(
            f"@batch.task: an annotation of {_describe(function)} cannot be resolved: {error}", "task"
        ) from error
    kind = hints.get(parameters[0].name)
    if kind is None or kind is Any:
        return None
    try:
        return TypeAdapter(kind)
    except Exception as error:  # Pydantic raises many kinds
        raise OptionsError(
            f"@batch.task: the item type of {_describe(function)} cannot be converted to JSON: {error}",
            "task",
        ) from error


def _describe(function: Any) -> str:
    return f"{getattr(function, '__qualname__', None) or repr(function)}()"


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise OptionsError(
            f"the name of a batch must be a printable string of 1 to {LONGEST_NAME} characters, got {name!r}",
            "name",
        )
    return name


def check_key(key: Any) -> str:
    """Return the key of a run; `BatchError` if it is not valid."""
    if not isinstance(key, str) or not key or len(key) > LONGEST_KEY or "\0" in key:
        raise BatchError(
            f"the key of a run must be a string of 1 to {LONGEST_KEY} characters without NUL, got {str(key)[:80]!r}"
            f" ({type(key).__name__})"
        )
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise BatchError(f"the key of a run must be valid Unicode, got {key[:80]!r}") from error
    return key


def _check_options(options: Any, on_lost: str) -> ClaudeAgentOptions:
    if options is None:
        return ClaudeAgentOptions()
    if not isinstance(options, ClaudeAgentOptions):
        raise OptionsError(f"options must be ClaudeAgentOptions, got {type(options).__name__}", "options")
    for name in _SESSION_OPTIONS:
        if getattr(options, name):
            raise OptionsError(f"options.{name} cannot be set in a batch: each run has its own session", name)
    if on_lost == "resume" and options.persist_session is False:
        raise OptionsError(
            "on_lost='resume' needs transcripts, so options.persist_session must not be False", "on_lost"
        )
    return options


def _check_changes(changes: dict[str, Any]) -> None:
    for name in changes:
        if name in _SESSION_OPTIONS or name == "output_format":
            raise OptionsError(f"Run: {name} cannot be changed, because the batch sets it", name)
        if name not in _FIELDS:
            near = closest(name, _FIELDS)
            hint = f"; did you mean {near}?" if near else ""
            raise OptionsError(f"Run: there is no option {name!r}{hint}", name)


def _check_count(name: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise OptionsError(f"{name} must be an integer of at least 1, got {value!r}", name)
    return value


def _check_seconds(name: str, value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise OptionsError(f"{name} must be a number of seconds above 0, or None, got {value!r}", name)
    return value


def _check_money(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        amount = micros(value)
    except ValueError as error:
        raise OptionsError(f"{name}: {error}", name) from error
    if amount == 0:
        raise OptionsError(f"{name} must be more than 0 dollars, got {value!r}", name)
    return amount
