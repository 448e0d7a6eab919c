"""A model of the control protocol beside a real `Session`: requests in both directions, and an end at any time.

The model is a few dicts. After every step it must be true that

- each request of ours got the one response that was sent for it, or a typed error, or was cancelled by its caller;
- each request of the CLI got exactly one response, unless it was cancelled, repeated, or the connection ended;
- nothing is pending that the model does not know of, and after the end nothing is pending at all.
"""

import json
from contextlib import ExitStack
from typing import Any, ClassVar

import anyio
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import checkpoint
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from toolwire import ClaudeSDKError, ProcessError
from toolwire._conversation.session import Session

PICKS = st.integers(0, 30)
IDS = st.sampled_from(["a", "b", "c"])
ODD = st.sampled_from([None, 7, "", "req_1", [], {"request_id": "a"}, "a"])
SUBTYPES = st.sampled_from(["instant", "broken", "nonsense", "unknown", "later", "later", "stubborn"])
HELD = st.sampled_from([False, False, True])
"""Whether what the CLI says waits, to arrive together with more."""
TURNS = 30


class Pipe:
    """A pipe that records what is written. While it stops, it can deliver last bytes of the CLI."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.last_words: list[bytes] = []

    async def open(self, listener: Any) -> None:
        self.listener = listener

    def write(self, line: bytes) -> None:
        self.written.append(json.loads(line))

    async def drain(self) -> None:
        await checkpoint()

    def end_input(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        await checkpoint()
        for chunk in self.last_words:
            self.listener.data_received(chunk)
        self.listener.ended(None)

    def kill(self) -> None:
        raise AssertionError("closing was not cut short, and there was no need to kill")


class Work:
    """A handler that runs until the test says how it ends. A stubborn one ignores its cancellation."""

    def __init__(self, number: int, request_id: str, *, stubborn: bool) -> None:
        self.number = number
        self.request_id = request_id
        self.stubborn = stubborn
        self.wanted = True
        self.running = False
        self.how = ""
        self.released = anyio.Event()

    async def run(self) -> dict[str, Any]:
        self.running = True
        try:
            await self._wait()
        finally:
            self.running = False
        if self.how == "raises":
            raise RuntimeError(f"no {self.number}")
        return {"echo": {1, 2} if self.how == "nonsense" else self.number}

    async def _wait(self) -> None:
        with anyio.CancelScope(shield=self.stubborn):
            while not self.released.is_set():
                try:
                    await self.released.wait()
                except anyio.get_cancelled_exc_class():
                    if not self.stubborn:
                        raise


class Asked:
    """A request that we sent."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.request_id = ""
        self.scope = anyio.CancelScope()
        self.outcomes: list[Any] = []
        self.allowed: list[Any] | None = None
        """What the outcome may be; None while it is open."""

    @property
    def open(self) -> bool:
        return self.allowed is None


class ControlModel(RuleBasedStateMachine):
    """Runs any sequence of actions of the two sides."""

    backend: ClassVar = "asyncio"
    sequences: ClassVar = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).sequences += 1
        self.stack = ExitStack()
        self.portal = self.stack.enter_context(start_blocking_portal(self.backend))
        self.count = 0
        self.asked: list[Asked] = []
        self.told: list[str] = []
        self.works: list[Work] = []
        self.replies: list[tuple[Any, str, Any]] = []  # that must have been written, in this order
        self.unsent: list[tuple[bytes, Any]] = []  # lines of the CLI, and how each changes the model
        self.unread = self.skipped = 0
        self.busy = False
        self.state = "open"
        self.least = self.steps = 0
        self.portal.call(self._open)

    async def _open(self) -> None:
        self.pipe = Pipe()
        handlers = {
            "instant": lambda body: {"echo": body["n"]},
            "broken": self._fail,
            "nonsense": lambda _: {"echo": {1, 2}},
            "later": self._work,
            "stubborn": self._work,
        }
        self.session = Session(self.pipe, handlers)
        await self.session.open()

    def _fail(self, body: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError(f"no {body['n']}")

    def _work(self, body: dict[str, Any]) -> Any:
        work = next(each for each in self.works if each.number == body["n"])
        assert work.request_id == body["request_id"]
        return work.run()

    @initialize(least=st.integers(0, 40))
    def lasts_a_while(self, least: int) -> None:
        """Set the least number of steps: otherwise most sequences would end after a few."""
        self.least = least

    @property
    def may_end(self) -> bool:
        return self.steps >= self.least

    # Our requests.

    @rule()
    def we_ask(self) -> None:
        """A request is sent at once; without a connection it is a typed error."""
        one = self._ask(60.0)
        if self.state == "open":
            frame = self.pipe.written[-1]
            assert frame["request"] == {"subtype": "question", "n": one.number}
            one.request_id = frame["request_id"]
        else:
            one.allowed = ["error"]

    @rule()
    def we_ask_and_do_not_wait(self) -> None:
        """A timeout is a typed error, and a late response is dropped."""
        one = self._ask(0.0)
        one.allowed = ["error"]
        if self.state == "open":
            one.request_id = self.pipe.written[-1]["request_id"]

    @rule()
    def we_tell(self) -> None:
        """A request without a waiter is sent, and its response is dropped."""
        before = len(self.pipe.written)
        self._in_loop(self.session.send, {"subtype": "hint"})
        assert len(self.pipe.written) == before + (self.state == "open")
        if self.state == "open":
            self.told.append(self.pipe.written[-1]["request_id"])

    @precondition(lambda self: any(each.open for each in self.asked))
    @rule(pick=PICKS)
    def a_caller_gives_up(self, pick: int) -> None:
        """A cancelled request is forgotten."""
        one = self._pick([each for each in self.asked if each.open], pick)
        one.allowed = ["cancelled"]
        self._in_loop(one.scope.cancel)

    @precondition(lambda self: self.state == "open" and any(each.open for each in self.asked))
    @rule(pick=PICKS)
    def a_caller_gives_up_as_the_answer_comes(self, pick: int) -> None:
        """The caller gets either the response or the cancellation, and not both."""
        self._flush(0)
        still = [each for each in self.asked if each.open]
        if not still:
            return
        one = self._pick(still, pick)
        answer = {"echo": self._number()}
        one.allowed = ["cancelled", answer]

        def both() -> None:
            self.session.data_received(_line(_answer(one.request_id, answer)))
            one.scope.cancel()

        self._in_loop(both)

    # The CLI's responses.

    @precondition(lambda self: self.state == "open" and self.asked)
    @rule(
        pick=PICKS,
        again=HELD,
        kind=st.sampled_from(["good", "good", "bad", "unsupported", "hollow"]),
        held=HELD,
    )
    def the_cli_answers(self, pick: int, again: bool, kind: str, held: bool) -> None:
        """It responds to any request that there ever was: pending, already answered, or cancelled."""
        known = [each for each in self.asked if each.request_id]
        one = self._pick([each for each in known if each.open or again], pick)
        if one is None:
            return
        answer: Any = {"echo": self._number()}
        frame = _answer(one.request_id, answer if kind == "good" else "no object")
        if kind in ("bad", "unsupported"):
            code = {"error_code": "unsupported_request"} if kind == "unsupported" else {}
            frame["response"] = {"subtype": "error", "request_id": one.request_id, "error": "no", **code}

        def change() -> None:
            if one.open:
                one.allowed = [{"good": answer, "hollow": {}}.get(kind, "error")]

        self._say(_line(frame), change, held)

    @precondition(lambda self: self.state == "open")
    @rule(request_id=ODD, pick=PICKS, held=HELD)
    def the_cli_answers_nobody(self, request_id: Any, pick: int, held: bool) -> None:
        """A response to an unknown request, or to one without a waiter, changes nothing."""
        known = self._pick(self.told, pick)
        self._say(_line(_answer(known or request_id, {"echo": -1})), _nothing, held)

    # Requests of the CLI.

    @precondition(lambda self: self.state == "open")
    @rule(request_id=IDS, subtype=SUBTYPES, held=HELD)
    def the_cli_asks(self, request_id: str, subtype: str, held: bool) -> None:
        """It gets its response at once or later. The same id again, while it is pending, is a repetition."""
        number = self._number()
        request = {"subtype": subtype, "n": number}
        line = _line({"type": "control_request", "request_id": request_id, "request": request})

        def change() -> None:
            if subtype == "unknown":
                self.replies.append((request_id, "error", None))
            elif any(each.wanted and each.request_id == request_id for each in self.works):
                return
            elif subtype == "instant":
                self.replies.append((request_id, "success", {"echo": number}))
            elif subtype in ("broken", "nonsense"):
                self.replies.append((request_id, "error", None))
            else:
                self.works.append(Work(number, request_id, stubborn=subtype == "stubborn"))

        self._say(line, change, held)

    @precondition(lambda self: self.state == "open")
    @rule(request_id=IDS | ODD, held=HELD)
    def the_cli_cancels(self, request_id: Any, held: bool) -> None:
        """No response is sent any more, and the id is free."""

        def change() -> None:
            for each in self.works:
                if each.wanted and each.request_id == request_id:
                    each.wanted = False

        line = _line({"type": "control_cancel_request", "request_id": request_id})
        self._say(line, change, held)

    @precondition(lambda self: any(each.wanted or each.running for each in self.works))
    @rule(pick=PICKS, how=st.sampled_from(["returns", "raises", "nonsense"]))
    def a_handler_ends(self, pick: int, how: str) -> None:
        """Its response is sent if the request was not cancelled."""
        self._flush(0)
        work = self._pick([each for each in self.works if each.wanted or each.running], pick)
        if work is None:
            return
        if work.wanted:
            good = how == "returns"
            self.replies.append(
                (work.request_id, "success" if good else "error", {"echo": work.number} if good else None)
            )
        work.wanted = False
        work.how = how
        self._in_loop(work.released.set)

    @precondition(lambda self: self.state == "open")
    @rule(
        broken=st.sampled_from(
            [
                {},
                {"request_id": 7},
                {"request_id": "a", "request": []},
                {"request_id": "a", "request": {"subtype": 1}},
            ]
        ),
        held=HELD,
    )
    def the_cli_asks_what_nobody_can_read(self, broken: dict[str, Any], held: bool) -> None:
        """The request is refused, with its id if there is one."""
        given = broken.get("request_id")
        reply = (given if isinstance(given, str) else None, "error", None)
        line = _line({"type": "control_request", **broken})
        self._say(line, lambda: self.replies.append(reply), held)

    # Frames that are not control frames.

    @precondition(lambda self: self.state == "open")
    @rule(held=HELD)
    def the_cli_says_something(self, held: bool) -> None:
        """A message is kept until it is read."""
        frame = {"type": "assistant", "message": {"content": []}, "n": self._number()}
        self._say(_line(frame), self._said, held)

    def _said(self) -> None:
        self.unread += 1
        self.busy = True

    @precondition(lambda self: self.state == "open")
    @rule(noise=st.sampled_from([b"warning: x", b"\xff\x00", b"[1]", b'{"type":', b"null"]), held=HELD)
    def the_cli_says_nonsense(self, noise: bytes, held: bool) -> None:
        """The line is skipped and counted."""

        def change() -> None:
            self.skipped += 1

        self._say(noise + b"\n", change, held)

    @precondition(lambda self: self.unread)
    @rule()
    def we_read(self) -> None:
        """We read one of the unread messages."""
        assert self.portal.call(self.session.next_frame)["type"] == "assistant"
        self.unread -= 1

    @precondition(lambda self: self.unsent)
    @rule(cut=st.integers(0, 1_000))
    def the_bytes_arrive(self, cut: int) -> None:
        """All held lines arrive, in two pieces that are cut anywhere."""
        self._flush(cut)

    # The end.

    @precondition(lambda self: self.state == "open" and self.may_end)
    @rule(code=st.sampled_from([0, 1, None]), why=st.sampled_from([None, ProcessError("gone")]))
    def the_cli_ends(self, code: int | None, why: Exception | None) -> None:
        """All requests fail with a typed error, and all handlers are cancelled."""
        self._flush(0)
        self._over("ended")
        self._in_loop(self.session.ended, code, why)

    @precondition(lambda self: self.state != "closed" and self.may_end)
    @rule(last_words=st.booleans())
    def we_close(self, last_words: bool) -> None:
        """We close at any time. What the CLI still sends is read, but not answered."""
        if last_words and self.state == "open":
            self.unsent = [pair for pair in self.unsent if b"control_request" not in pair[0]]
            self.pipe.last_words = [line for line, _ in self.unsent]
            request = {
                "type": "control_request",
                "request_id": "late",
                "request": {"subtype": "later", "n": 0},
            }
            self.pipe.last_words.append(_line(request))
        else:
            self.unsent.clear()
        interrupts = self.busy and self.state == "open"
        closing = self.portal.start_task_soon(self.session.aclose)
        self._settle()
        for each in self.works:
            self._in_loop(each.released.set)
        closing.result(timeout=30)
        for _, change in self.unsent:
            change()
        self.unsent.clear()
        self._over("closed")
        self._settle()
        if interrupts:
            assert self.pipe.written[-1]["request"] == {"subtype": "interrupt"}

    def _over(self, state: str) -> None:
        self.state = state
        for one in self.asked:
            if one.open:
                one.allowed = ["error"]
        for work in self.works:
            work.wanted = False

    # Invariants.

    @invariant()
    def time_goes_by(self) -> None:
        """Count the steps."""
        self.steps += 1

    @invariant()
    def every_caller_has_one_outcome(self) -> None:
        """A request has no outcome while it is pending; then the response to it, or a typed error."""
        for one in self.asked:
            if one.open:
                assert one.outcomes == [], "an outcome from nowhere"
            else:
                assert len(one.outcomes) == 1, f"{len(one.outcomes)} outcomes"
                assert one.outcomes[0] in (one.allowed or ())
        sent = [frame["request_id"] for frame in self.pipe.written if frame["type"] == "control_request"]
        assert len(set(sent)) == len(sent), "an id was used twice"

    @invariant()
    def every_request_has_one_reply(self) -> None:
        """The responses are those that the model expects, in the order in which they were made."""
        bodies = [frame["response"] for frame in self.pipe.written if frame["type"] == "control_response"]
        assert [
            (each["request_id"], each["subtype"], each.get("response")) for each in bodies
        ] == self.replies

    @invariant()
    def nothing_else_is_pending(self) -> None:
        """The session's own tables agree with the model."""
        session = self.session
        open_ids = {one.request_id for one in self.asked if one.open}
        assert set(session._pending) == open_ids
        if self.state == "open":  # closing sends one more request, whose response is dropped
            assert session._control._pending == open_ids
        assert {key: each.request_id for key, each in session._unanswered.items()} == {
            each.request_id: each.request_id for each in self.works if each.wanted
        }
        assert all(each.stubborn or each.running == each.wanted for each in self.works)
        assert len(session._tasks) == sum(each.wanted or each.running for each in self.works)
        assert (session.unread, session.skipped_lines) == (self.unread, self.skipped)
        assert session.alive == (self.state == "open")

    def teardown(self) -> None:
        """Close in any case, and check that nothing is left."""
        try:
            if self.state != "closed":
                self.least = 0
                self.we_close(last_words=False)
            self.every_caller_has_one_outcome()
            self.every_request_has_one_reply()
            self.nothing_else_is_pending()
            assert not self.session._tasks
            assert self.portal.call(self._tasks_left) == 0
        finally:
            self.portal.call(self.portal.stop, True)  # even if something hangs
            self.stack.close()

    async def _tasks_left(self) -> int:
        mine = anyio.get_current_task().id
        return sum("toolwire" in repr(each.coro) for each in anyio.get_running_tasks() if each.id != mine)

    # Helpers.

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _pick(self, choices: list[Any], pick: int) -> Any:
        return choices[pick % len(choices)] if choices else None

    def _ask(self, seconds: float) -> Asked:
        one: Asked = self.portal.call(Asked, self._number())
        self.asked.append(one)
        self.portal.start_task_soon(self._note_outcome, one, seconds)
        self._settle()
        return one

    async def _note_outcome(self, one: Asked, seconds: float) -> None:
        outcome: Any = "cancelled"
        with one.scope:
            try:
                outcome = await self.session.request({"subtype": "question", "n": one.number}, seconds)
            except ClaudeSDKError:
                outcome = "error"
        one.outcomes.append(outcome)

    def _say(self, line: bytes, change: Any, held: bool) -> None:
        self.unsent.append((line, change))
        if not held:
            self._flush(self.count)

    def _flush(self, cut: int) -> None:
        data = b"".join(line for line, _ in self.unsent)
        changes = [change for _, change in self.unsent]
        self.unsent.clear()
        cut %= len(data) + 1

        def arrive() -> None:
            for change in changes:
                change()
            self.session.data_received(data[:cut])
            self.session.data_received(data[cut:])

        self._in_loop(arrive)

    def _in_loop(self, function: Any, *args: Any) -> None:
        self.portal.call(function, *args)
        self._settle()

    def _settle(self) -> None:
        self.portal.call(self._until_quiet)

    async def _until_quiet(self) -> None:
        for _ in range(TURNS):
            await checkpoint()


class ControlModelOnTrio(ControlModel):
    """The same model on trio."""

    backend: ClassVar = "trio"
    sequences: ClassVar = 0


def _nothing() -> None:
    """Change nothing: for a line that has no effect."""


def _line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


def _answer(request_id: Any, response: Any) -> dict[str, Any]:
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return {"type": "control_response", "response": body}
