"""The turn of a scripted CLI: from a prompt to its result, by the script.

Owns the order of what is said in a turn, its end, and interrupts. How one tool call goes (hooks, permission, the
call itself) is `_calls`'; the shapes are `_frames`'.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import anyio

from toolwire.testing.request import Request
from toolwire.testing.script import STRUCTURED_OUTPUT, Call, Drop, Failure, Hang, Turn
from toolwire.testing.scripted_cli.book import ExitEarly, Fault, Garbage, Silence
from toolwire.testing.scripted_cli.calls import Calls, Running
from toolwire.testing.scripted_cli.frames import (
    Frames,
    Tally,
    api_error_text,
    error_kind,
    tool_result,
    tool_use_meta,
)
from toolwire.testing.scripted_cli.hooks import Hooks
from toolwire.testing.scripted_cli.host import Host
from toolwire.testing.scripted_cli.tool_results import REJECTED, STOPPED, Outcome
from toolwire.testing.scripted_model import sse

_ENFORCE = (
    "[structured-output-enforce] You MUST call the StructuredOutput tool to complete this request. "
    "Call this tool now."
)


class Exited(Exception):  # noqa: N818 - it names what happened, and is no fault of ours
    """The script lets the CLI end here."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"exit code {code}")


class Agent:
    """Plays the script to one host."""

    def __init__(self, host: Host) -> None:
        self.failed = False
        """Whether the last result was an error."""
        self._host = host
        self._frames = Frames(host.setup)
        self._hooks = Hooks(host)
        self._calls = Calls(host, self._frames, self._hooks)
        self._messages: list[dict[str, Any]] = []
        self._scope: anyio.CancelScope | None = None
        self._tally = Tally()
        self._count = 0
        self._call_count = 0
        self._reminded = False

    async def turn(self, frame: dict[str, Any]) -> None:
        """One prompt, up to its result."""
        content = (frame.get("message") or {}).get("content", "")
        self._messages.append({"role": "user", "content": content})
        prompt = self._request().prompt
        self._host.book.prompts.append(prompt)
        self._tally = Tally()
        self._reminded = False
        self._hooks.stopping = False
        self._calls.begin(self._tally)
        key = f"turn {id(self)}"
        self._host.book.open[key] = f"the turn for {prompt!r} has no result"
        self._host.emit(self._frames.state("running"))
        with anyio.CancelScope() as self._scope:
            await self._host.links.ready()
            await self._converse(prompt)
        if self._scope.cancelled_caught:
            self._aborted()
        self._scope = None
        self._host.emit(self._frames.state("idle"))
        del self._host.book.open[key]

    def interrupt(self) -> None:
        """Stop the turn that runs, if one does."""
        if self._scope is not None:
            self._calls.withdraw()
            self._scope.cancel()

    def say_mode(self) -> None:
        """Tell the host which permission mode holds."""
        self._host.emit(self._frames.system("status", status=None, permissionMode=self._host.setup.mode))

    # The conversation.

    async def _converse(self, prompt: str) -> None:
        blocked = await self._hooks.call("UserPromptSubmit", prompt=prompt)
        if blocked.get("decision") == "block":
            self._refuse_prompt(prompt, str(blocked.get("reason", "")))
            return
        self._host.emit(self._frames.init(self._offered(), self._host.links.brief()))
        attempt = 0
        while True:
            step = self._host.book.next(self._request())
            if isinstance(step, Failure) and step.retry:
                attempt += 1
                self._retried(step, attempt)
            elif isinstance(step, Failure):
                self._api_error(step)
                return
            elif not isinstance(step, Drop | Garbage | ExitEarly | Silence | Hang):
                if await self._answered(step if isinstance(step, Turn) else Turn((step,))):
                    return
            else:
                await self._fault(step)

    async def _fault(self, step: Fault | Drop | Hang) -> None:
        match step:
            case Garbage(value):
                self._host.emit(value)
            case ExitEarly(code):
                raise Exited(code)
            case Silence():
                self._host.silent = True
                await anyio.sleep_forever()
            case Hang():
                await anyio.sleep_forever()
            case Drop():
                pass  # the real CLI asks again, and so takes the next entry

    async def _answered(self, turn: Turn) -> bool:
        """One answer of the model with all that follows from it; whether the run is over."""
        if turn.delay:
            await anyio.sleep(turn.delay)
        self._tally.add(turn)
        message, calls = await self._say(turn)
        self._tally.stop_reason = message["stop_reason"]
        self._messages.append({"role": "assistant", "content": message["content"]})
        if not calls:
            return await self._finished(message)
        results = await self._run_calls(calls)
        await self._host.links.settled()
        self._messages.append({"role": "user", "content": results})
        if self._tally.structured is not None:
            text = json.dumps(self._tally.structured, separators=(",", ":"), ensure_ascii=False)
            self._result(result=text, structured_output=self._tally.structured)
            return True
        limit = self._host.setup.max_turns
        if limit is not None and self._tally.requests >= limit:
            errors = [f"Reached maximum number of turns ({limit})"]
            self._result("error_max_turns", "max_turns", is_error=True, errors=errors)
            return True
        return False

    async def _say(self, turn: Turn) -> tuple[dict[str, Any], list[tuple[Call, str]]]:
        """The frames of one answer: a frame for each block, between its stream events when those are wanted."""
        self._count += 1
        ids: dict[str, Any] = {"id": f"msg_{self._count:04d}", "model": self._host.setup.model}
        calls = list(self._numbered(turn))
        ids["call_ids"] = [call_id for _, call_id in calls]
        message = sse.message(turn, **ids)
        envelope = {**message, "stop_reason": None}
        called = iter(calls)
        for event in sse.events(turn, **ids):
            if event["type"] == "content_block_delta" and turn.chunk_delay:
                await anyio.sleep(turn.chunk_delay)
            if event["type"] == "content_block_stop":
                block = message["content"][event["index"]]
                extra = {}
                if block["type"] == "tool_use":
                    call, call_id = next(called)
                    extra = tool_use_meta(call, call_id, self._host.links.find(call.name))
                self._host.emit(self._frames.assistant(envelope, block, **extra))
            if self._host.setup.partial:
                self._host.emit(self._frames.event(event, ids["id"]))
        return message, calls

    async def _run_calls(self, calls: list[tuple[Call, str]]) -> list[dict[str, Any]]:
        """Read-only ones beside each other, the others one by one; the results as they come."""
        self._calls.expect(calls)
        results: list[dict[str, Any]] = []

        async def one(call: Call, call_id: str) -> None:
            outcome = await self._calls.perform(call, call_id)
            results.append(self._report(call_id, outcome))

        for read_only, batch in groupby(calls, lambda pair: self._calls.read_only(pair[0])):
            if read_only:
                async with anyio.create_task_group() as group:
                    for call, call_id in batch:
                        group.start_soon(one, call, call_id)
            else:
                for call, call_id in batch:
                    await one(call, call_id)
        return results

    async def _finished(self, message: dict[str, Any]) -> bool:
        said = [block["text"] for block in message["content"] if block["type"] == "text"]
        self._tally.text = said[-1] if said else ""
        if self._host.setup.schema is not None and not self._reminded:
            self._reminded = True
            self._remind(_ENFORCE)
            return False
        stop = await self._hooks.call("Stop", last_assistant_message=self._tally.text)
        if stop.get("decision") == "block":
            self._remind(f"Stop hook feedback:\n{stop.get('reason', '')}")
            note = "Stop hook error occurred · ctrl+o to see"
            self._host.emit(
                self._frames.system("notification", key="stop-hook-error", text=note, priority="immediate")
            )
            return False
        self._result(result=self._tally.text)
        return True

    # Ends.

    def _result(
        self, subtype: str = "success", reason: str = "completed", is_error: bool = False, **fields: Any
    ) -> None:
        self.failed = is_error
        if subtype == "success":
            fields = {"api_error_status": None, **fields}
        self._host.emit(self._frames.result(self._tally, subtype, reason, is_error, **fields))

    def _api_error(self, failure: Failure) -> None:
        self._tally.stop_reason = "stop_sequence"
        self._host.emit(self._frames.api_error(failure))
        fields = {"api_error_status": failure.status, "api_error_type": failure.type}
        self._result("success", "api_error", is_error=True, result=api_error_text(failure), **fields)

    def _retried(self, failure: Failure, attempt: int) -> None:
        about = {"error_status": failure.status, "error": error_kind(failure)}
        self._host.emit(
            self._frames.system("api_retry", attempt=attempt, max_retries=10, retry_delay_ms=0, **about)
        )

    def _refuse_prompt(self, prompt: str, reason: str) -> None:
        text = f"UserPromptSubmit operation blocked by hook:\n{reason}\n\nOriginal prompt: {prompt}"
        outcome = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": reason}
        self._messages.pop()
        self._host.emit(
            self._frames.system(
                "informational",
                content=text,
                level="warning",
                prevent_continuation=True,
                prompt_submit_outcome=outcome,
            )
        )
        self._tally.user_frames = -1  # the real CLI counts no turn at all here, and gives no reason
        self.failed = False
        frame = self._frames.result(self._tally, "success", "completed", False, result=text)
        del frame["terminal_reason"]
        self._host.emit(frame)

    def _aborted(self) -> None:
        """The frames of an interrupted turn."""
        calls = self._calls.left()
        results = []
        for call_id, running in calls:
            text = STOPPED if running is Running.CALLED else REJECTED
            rejected = Outcome(
                text, "User rejected tool use", is_error=True, meta={"non_execution_kind": "user-rejected"}
            )
            results.append(self._report(call_id, rejected))
        said = "[Request interrupted by user for tool use]" if calls else "[Request interrupted by user]"
        interruption = {"type": "text", "text": said}
        self._messages.append({"role": "user", "content": [*results, interruption]})
        self._user([interruption])
        stop = self._tally.stop_reason or "null"
        errors = [f"[ede_diagnostic] result_type=user last_content_type=n/a stop_reason={stop}"]
        reason = "aborted_tools" if calls else "aborted_streaming"
        self._result("error_during_execution", reason, is_error=True, errors=errors)

    # Small things.

    def _report(self, call_id: str, outcome: Outcome) -> dict[str, Any]:
        self._calls.ended(call_id, outcome)
        block = tool_result(call_id, outcome)
        extra: dict[str, Any] = {"tool_use_result": outcome.kept}
        if outcome.meta is not None:
            extra["tool_result_meta"] = [{"id": call_id, **outcome.meta}]
        self._user([block], **extra)
        return block

    def _user(self, content: list[dict[str, Any]], **extra: Any) -> None:
        self._tally.user_frames += 1
        self._host.emit(self._frames.user(content, **extra))

    def _remind(self, text: str) -> None:
        block = {"type": "text", "text": text}
        self._messages.append({"role": "user", "content": [block]})
        self._user([block], isSynthetic=True)

    def _numbered(self, turn: Turn) -> Iterator[tuple[Call, str]]:
        for block in turn.blocks:
            if isinstance(block, Call):
                self._call_count += 1
                yield block, block.id or f"toolu_{self._call_count:04d}"

    def _offered(self) -> list[str]:
        own = [*self._host.book.tools, *([STRUCTURED_OUTPUT] if self._host.setup.schema else [])]
        return [name for name in [*own, *self._host.links.tools()] if not self._host.setup.hides(name)]

    def _request(self) -> Request:
        tools = [{"name": name} for name in self._offered()]
        body = {"model": self._host.setup.model, "messages": list(self._messages), "tools": tools}
        return Request("POST", "/v1/messages", {}, body)
