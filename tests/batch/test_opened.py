"""A batch from end to end, with a scripted CLI: results, money, failures, and decisions of the user."""

import asyncio
import json
import re
import sys
import threading
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import BaseModel

from toolwire import ClaudeAgentOptions
from toolwire.batch import Batch, Run
from toolwire.batch.booking import Books
from toolwire.batch.opened import list_names, open_existing
from toolwire.batch.outbox import Outbox
from toolwire.batch.records import Records, make_engine
from toolwire.batch.states import Claim
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.errors import BatchError
from toolwire.testing import ScriptedCLI, answer, exit_early, fail, hang, say, turn

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # DBOS leaves connections to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
COST = Decimal("0.00014")  # of one scripted turn


class Verdict(BaseModel):
    name: str


@dataclass
class Repo:
    name: str


class Model:
    """A model that answers by the name in the prompt, and records the names."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def __call__(self, request):
        name = re.search(r"Look at (\w+)", request.prompt)[1]
        self.asked.append(name)
        given = self.answers.get(name, answer({"name": name}))
        return given.pop(0) if isinstance(given, list) else given


def make(model, name="b", **settings):
    options = settings.pop("options", {})
    cli = ScriptedCLI([model] * 1000)
    given = {"output_type": Verdict, "concurrency": 4, "per_run": "0.01", **settings}
    batch = Batch(name, ClaudeAgentOptions(spawn_claude_code_process=cli, **options), **given)

    @batch.task
    def prepare(repo: Repo) -> Run:
        return Run(f"Look at {repo.name}")

    return batch


def repos(*names):
    return {name: Repo(name) for name in names}


async def collect(opened):
    async with asyncio.timeout(60):
        return {done.key: done async for done in opened.results()}


def opened(batch, at, **given):
    return batch.open(at, **{"poll": 0.05, "beat": 0.2, "stale": 5.0, **given})


async def test_results_are_typed_and_paid(tmp_path):
    """Each result has its output and its cost; the sums agree."""
    model = Model()
    async with opened(make(model, budget="1"), tmp_path / "b") as batch:
        assert await batch.add(repos("a", "b", "c")) == 3
        found = await collect(batch)
        progress = batch.progress
    assert {key: done.output for key, done in found.items()} == {key: Verdict(name=key) for key in "abc"}
    assert {done.cost for done in found.values()} == {COST}
    assert (progress.done, progress.spent, progress.reserved, progress.budget) == (3, 3 * COST, 0, 1)
    assert not list((tmp_path / "b" / "outbox").iterdir())


async def test_the_same_name_continues_the_batch(tmp_path):
    """Known keys are skipped, results of earlier starts come first, and nothing is run twice."""
    model = Model()
    async with opened(make(model), tmp_path / "b") as batch:
        await batch.add(repos("a", "b"))
        await collect(batch)
    async with opened(make(model), tmp_path / "b") as batch:

        async def more():
            for name in ("b", "c", "a", "c"):
                yield name, Repo(name)

        assert await batch.add(more()) == 1
        async with asyncio.timeout(60):
            keys = [done.key async for done in batch.results()]
    assert (set(keys[:2]), keys[2:]) == ({"a", "b"}, ["c"])
    assert sorted(model.asked) == ["a", "b", "c"]


async def test_a_batch_that_cannot_be_opened_leaves_no_worker(tmp_path):
    """Its heartbeats end, so it neither counts as a worker nor keeps a thread and a connection."""
    async with opened(make(Model()), tmp_path / "b") as batch:
        with pytest.raises(BatchError, match="already open in this process"):
            async with opened(make(Model()), tmp_path / "b"):
                pass
        assert (await batch.refresh()).workers == 1
    assert not [each for each in threading.enumerate() if each.name == "toolwire batch lease"]


@pytest.mark.parametrize("at", [None, "x" * 300])
async def test_a_folder_that_cannot_be_used_is_an_error_in_words(tmp_path, monkeypatch, at):
    """Here, the state folder is below a file, or a name is too long; a folder without permission is alike."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOOLWIRE_BATCHES", str(tmp_path / "file" / "state"))
    with pytest.raises(BatchError, match="cannot be used for the data of a batch: .* Choose another folder"):
        async with opened(make(Model()), at):
            pass


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("abc", "needs a mapping"),
        (5, "needs a mapping"),
        ([1], "pairs of a key"),
        ({"": Repo("x")}, "key of a run"),
    ],
)
async def test_invalid_items_are_refused(tmp_path, given, says):
    """Nothing is added."""
    async with opened(make(Model()), tmp_path / "b", work=False) as batch:
        with pytest.raises(BatchError, match=says):
            await batch.add(given)
        assert (await batch.refresh()).total == 0


async def test_retryable_failures_are_retried(tmp_path):
    """A failure that cost nothing, or is temporary, is retried up to `attempts`."""
    model = Model(over=[fail(400), answer({"name": "over"})], never=fail(529, retry=False))
    async with opened(make(model, attempts=2), tmp_path / "b") as batch:
        await batch.add(repos("over", "never"))
        found = await collect(batch)
    assert {key: (done.state, done.attempts) for key, done in found.items()} == {
        "over": ("done", 2),
        "never": ("failed", 2),
    }
    assert "529" in found["never"].error


async def test_an_output_that_does_not_fit_was_paid_for(tmp_path):
    """It is not retried by itself, and its cost counts."""
    batch = Batch(
        "b", ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("no")] * 9)), Verdict, attempts=3
    )
    async with opened(batch, tmp_path / "b") as one:
        await one.add({"a": "Hello"})
        found = await collect(one)
    assert (found["a"].state, found["a"].attempts) == ("failed", 1)
    assert found["a"].cost > 0
    assert found["a"].error


async def test_a_task_that_raises_fails_its_own_run_only(tmp_path):
    """The failed run costs nothing, and the others run."""
    batch = Batch(
        "b", ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("hi")] * 9)), concurrency=2
    )

    @batch.task
    def prepare(item: str) -> Run:
        if item == "bad":
            raise ValueError("not this one")
        return Run(item)

    async with opened(batch, tmp_path / "b") as one:
        await one.add({"bad": "bad", "good": "good"})
        found = await collect(one)
    assert (found["good"].state, found["good"].text) == ("done", "hi")
    assert (found["bad"].state, found["bad"].error, found["bad"].cost) == (
        "failed",
        "ValueError: not this one",
        0,
    )


async def test_a_task_that_never_returns_is_over_in_time(tmp_path):
    """It may block its thread or its coroutine, exit, or cancel itself: its run fails, and the others run."""
    batch = Batch(
        "b",
        ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("hi")] * 9)),
        timeout=3,
        concurrency=6,
    )
    forever = threading.Event()

    async def cancel_itself():
        raise asyncio.CancelledError

    class Odd(BaseException):
        pass

    def odd():
        raise Odd("no luck")

    @batch.task
    def prepare(name: str):
        makers = {
            "blocks": forever.wait,
            "waits": asyncio.Event().wait,
            "exits": lambda: sys.exit(3),
            "cancels": cancel_itself,
            "raises": odd,
        }
        return makers.get(name, lambda: f"Look at {name}")()

    try:
        async with opened(batch, tmp_path / "b") as at:
            await at.add({name: name for name in ("blocks", "waits", "exits", "cancels", "raises", "a")})
            found = await collect(at)
    finally:
        forever.set()
    assert found["a"].state == "done"
    assert {key: done.error for key, done in found.items() if done.state == "failed"} == {
        "blocks": "BatchError: the @batch.task function took longer than 3 seconds",
        "waits": "BatchError: the @batch.task function took longer than 3 seconds",
        "exits": f"BatchError: {prepare.__qualname__}() called sys.exit(3) for 'exits'",
        "cancels": "BatchError: the @batch.task function cancelled itself",
        "raises": f"BatchError: {prepare.__qualname__}() raised Odd: no luck for 'raises'",
    }


async def test_a_run_whose_task_still_works_can_be_cancelled(tmp_path):
    """Nothing is reserved for it yet, so there is nothing to wait for."""
    batch = Batch("b", ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([])))
    called, forever = asyncio.Event(), asyncio.Event()

    @batch.task
    async def prepare(name: str):
        called.set()
        await forever.wait()

    async with opened(batch, tmp_path / "b") as at:
        await at.add({"a": "a"})
        async with asyncio.timeout(30):
            await called.wait()
            progress = await at.cancel()
    assert (progress.cancelled, progress.running) == (1, 0)


async def test_a_start_that_raises_fails_its_own_run_only(tmp_path):
    """A user's own function may start the CLI. If it raises, the reserved money is released."""

    def refuse(*_):
        raise ZeroDivisionError("no CLI today")

    batch = Batch(
        "b", ClaudeAgentOptions(spawn_claude_code_process=ScriptedCLI([say("hi")] * 9)), per_run="0.01"
    )

    @batch.task
    def prepare(name: str):
        return Run("-", spawn_claude_code_process=refuse) if name == "bad" else f"Look at {name}"

    async with opened(batch, tmp_path / "b") as at:
        await at.add({name: name for name in ("bad", "a")})
        found = await collect(at)
        assert (found["bad"].state, found["a"].state) == ("failed", "done")
        assert found["bad"].error == "ZeroDivisionError: no CLI today"
        assert at.progress.reserved == 0


async def test_a_run_that_takes_too_long_is_stopped_and_its_cost_is_known(tmp_path):
    """The CLI is interrupted, and reports its cost so far."""
    async with opened(make(Model(slow=hang()), timeout=0.3), tmp_path / "b") as batch:
        await batch.add(repos("slow", "a"))
        found = await collect(batch)
        assert (found["slow"].state, found["a"].state) == ("failed", "done")
        assert "longer than 0.3 seconds" in found["slow"].error
        assert batch.progress.reserved == 0


async def test_a_run_that_is_silent_for_too_long_is_stopped(tmp_path):
    """The timeout for the whole run makes no difference."""
    async with opened(make(Model(slow=hang()), silence=0.3, timeout=600), tmp_path / "b") as batch:
        await batch.add(repos("slow"))
        found = await collect(batch)
    assert "sent no message for 0.3 seconds" in found["slow"].error


async def test_a_cli_that_ends_without_a_result_is_unknown(tmp_path):
    """Its cost is unknown, so its money is held until a person sets the cost."""
    async with opened(make(Model(gone=exit_early(3)), budget="0.02"), tmp_path / "b") as batch:
        await batch.add(repos("gone"))
        found = await collect(batch)
        assert found["gone"].state == "unknown"
        assert batch.progress.reserved == Decimal("0.01")
        (unknown,) = await batch.unknown()
        assert (unknown["key"], unknown["attempt"], unknown["reserved"]) == ("gone", 1, Decimal("0.01"))
        with pytest.raises(BatchError, match="has no run 'x'"):
            await batch.reconcile("x", "1")
        assert await batch.reconcile("gone", "0.003") == Decimal("0.003")
        found = await collect(batch)
        assert (found["gone"].state, found["gone"].cost) == ("failed", Decimal("0.003"))
        assert (batch.progress.spent, batch.progress.reserved) == (Decimal("0.003"), 0)
        with pytest.raises(BatchError, match="is failed, and the cost of all its attempts is known"):
            await batch.reconcile("gone", "1")


@pytest.mark.parametrize("said", ["0.003", None])
async def test_reconciling_again_after_it_was_interrupted(tmp_path, said, monkeypatch):
    """The ledger has the cost, but the run does not: the second call records that cost and books nothing more."""
    async with opened(make(Model(gone=exit_early(3)), budget="0.02"), tmp_path / "b") as batch:
        await batch.add(repos("gone"))
        await collect(batch)
        with monkeypatch.context() as patched:
            patched.setattr("toolwire.batch.records.Records.resolve", interrupted)
            with pytest.raises(ZeroDivisionError):
                await batch.reconcile("gone", said)
        cost = Decimal(said or "0.01")
        assert await batch.reconcile("gone", said) == cost
        found = await collect(batch)
        assert (found["gone"].state, found["gone"].cost) == ("failed", cost)
        assert (batch.progress.spent, batch.progress.reserved) == (cost, 0)


def interrupted(*_):
    """Fail in place of a function, as if the process had ended there."""
    raise ZeroDivisionError


async def test_a_lost_cli_is_retried_with_on_lost_again(tmp_path):
    """A run that loses its CLI each time is held in the end, with all its money."""
    model = Model(gone=[exit_early(3), answer({"name": "gone"})], always=exit_early(3))
    async with opened(make(model, on_lost="again"), tmp_path / "b") as batch:
        await batch.add(repos("gone", "always"))
        found = await collect(batch)
        assert (found["gone"].state, found["gone"].attempts) == ("done", 2)
        assert (found["always"].state, found["always"].attempts) == ("unknown", 3)
        assert model.asked.count("always") == 3
        assert len(await batch.unknown()) == 4


async def test_a_budget_refuses_runs_without_room(tmp_path):
    """Runs wait for money that is only reserved, so as many run as the real costs allow."""
    model = Model()
    async with opened(make(model, budget="0.001", per_run="0.0003"), tmp_path / "b") as batch:
        await batch.add(repos(*(f"k{number}" for number in range(12))))
        found = await collect(batch)
        states = [done.state for done in found.values()]
        assert (states.count("done"), states.count("refused")) == (6, 6)
        assert batch.progress.spent == 6 * COST
        assert "no room for a run" in next(done.error for done in found.values() if done.state == "refused")
    async with opened(make(model, budget="1", per_run="0.0003"), tmp_path / "b") as batch:
        assert await batch.retry() == 6
        assert {done.state for done in (await collect(batch)).values()} == {"done"}
    assert len(model.asked) == 12


async def test_cancelled_runs_stop_and_can_be_retried(tmp_path):
    """Waiting runs never start, running ones report their cost."""
    model = Model(**{f"k{number}": hang() for number in range(4)})
    async with opened(make(model, concurrency=2), tmp_path / "b") as batch:
        await batch.add(repos("k0", "k1", "k2", "k3"))
        async with asyncio.timeout(30):
            while len(model.asked) < 2:
                await asyncio.sleep(0.01)
            progress = await batch.cancel()
        assert (progress.cancelled, progress.running, progress.reserved) == (4, 0, 0)
        assert len(model.asked) == 2
        model.answers = {}
        assert await batch.retry(["cancelled"]) == 4
        assert {done.state for done in (await collect(batch)).values()} == {"done"}


async def test_a_batch_that_is_cancelled_while_runs_are_added_stays_cancelled(tmp_path):
    """Nothing starts after `cancel` has returned; adding again continues the batch."""
    model = Model()
    many = [(f"k{number}", Repo(f"k{number}")) for number in range(700)]  # more than are added in one step
    added, cancelled = asyncio.Event(), asyncio.Event()

    async def items():
        for number, pair in enumerate(many):
            if number == 600:
                added.set()
                await cancelled.wait()
            yield pair

    async with asyncio.timeout(120), opened(make(model), tmp_path / "b") as batch:
        adding = asyncio.create_task(batch.add(items()))
        await added.wait()
        assert (await batch.cancel()).waiting == 0
        asked = len(model.asked)
        cancelled.set()
        with pytest.raises(BatchError, match="cancelled while runs were added: the rest was not added"):
            await adding
        progress = await batch.refresh()
        assert (progress.total, progress.waiting, len(model.asked)) == (500, 0, asked)
        assert await batch.add(many[-3:]) == 3
        states = [done.state for done in (await collect(batch)).values()]
        assert states.count("cancelled") == 500 - asked


async def test_leaving_the_block_waits_for_the_runs(tmp_path):
    """Running ones are finished; waiting ones stay for the next start."""
    model = Model(**{f"k{number}": turn(answer({"name": "x"}), delay=0.5) for number in range(4)})
    async with opened(make(model, concurrency=2), tmp_path / "b") as batch:
        await batch.add(repos("k0", "k1", "k2", "k3"))
        async with asyncio.timeout(30):
            while len(model.asked) < 2:
                await asyncio.sleep(0.01)
    async with opened(make(model), tmp_path / "b", work=False) as batch:
        assert (batch.progress.running, batch.progress.done, batch.progress.waiting) == (0, 2, 2)
    async with opened(make(model), tmp_path / "b") as batch:
        assert len(await collect(batch)) == 4
    assert sorted(model.asked) == ["k0", "k1", "k2", "k3"]


async def test_a_run_that_waits_for_money_does_not_start_any_more(tmp_path):
    """Leaving the block would otherwise start it as soon as a run that is being finished releases money."""
    model = Model(a=turn(answer({"name": "a"}), delay=1))
    batch = make(model, budget="0.015")
    async with opened(batch, tmp_path / "b") as one:
        await one.add(repos("a", "b"))
        async with asyncio.timeout(30):
            while not model.asked or one.progress.running < 2:
                await one.refresh()
                await asyncio.sleep(0.01)
    async with opened(batch, tmp_path / "b", work=False) as one:
        assert (one.progress.done, one.progress.waiting, one.progress.reserved) == (1, 1, 0)
    assert model.asked == ["a"]
    async with opened(batch, tmp_path / "b") as one:
        assert {done.state for done in (await collect(one)).values()} == {"done"}


async def test_an_error_in_the_block_stops_the_runs(tmp_path):
    """Their cost is booked; with `hold` they count as failed, since they may have had effects."""
    model = Model(a=hang())
    with pytest.raises(RuntimeError, match="mine"):
        async with opened(make(model), tmp_path / "b") as batch:
            await batch.add(repos("a"))
            async with asyncio.timeout(30):
                while not model.asked:
                    await asyncio.sleep(0.01)
            raise RuntimeError("mine")
    async with opened(make(model), tmp_path / "b", work=False) as batch:
        found = await collect(batch)
        assert (found["a"].state, found["a"].error) == ("failed", "the process that ran it was stopped")
        assert batch.progress.reserved == 0


async def test_a_cancellation_while_waiting_for_runs_stops_them(tmp_path):
    """However often it happens: their cost is booked, and nothing is left behind."""
    model = Model(a=hang())
    leaving = asyncio.Event()

    async def drive():
        async with opened(make(model), tmp_path / "b") as batch:
            await batch.add(repos("a"))
            while not model.asked:
                await asyncio.sleep(0.01)
            leaving.set()

    async with asyncio.timeout(60):
        driving = asyncio.create_task(drive())
        await leaving.wait()
        while not driving.done():
            driving.cancel()
            await asyncio.wait({driving}, timeout=0.1)
    assert driving.cancelled()
    async with opened(make(model), tmp_path / "b", work=False) as batch:
        found = await collect(batch)
        assert (found["a"].state, found["a"].error) == ("failed", "the process that ran it was stopped")
        assert batch.progress.reserved == 0


async def make_lost(tmp_path, batch, *, start=True, answered=False):
    """Leave behind what a killed worker leaves: a run, its booking, and perhaps its result in the outbox."""
    async with opened(batch, tmp_path / "b", work=False) as one:
        await one.add(repos("a"))
    records = Records(make_engine(f"sqlite:///{tmp_path / 'b' / 'runs.db'}"))
    records.find(batch.name)
    records.add_worker("dead", "dead", "1:1::", "m")
    claim = records.claim("a", "dead", "t")
    machine = Path(tmp_path / "state" / "machine").read_text()
    ledger = SqliteLedger(tmp_path / "b" / "ledger.db")
    books = Books(ledger, batch.name, records.uid, batch.per_run, batch.budget)
    booking = await books.reserve(claim)
    if start:
        assert records.start(claim, booking, batch.per_run, "session-1", machine)
    if answered:
        result = {
            "is_error": False,
            "total_cost_usd": 0.002,
            "structured_output": {"name": "late"},
            "result": "",
        }
        content = {"uid": records.uid, "key": "a", "attempt": 1, "booking": booking, "worker": "dead"}
        Outbox(tmp_path / "b" / "outbox").write("a", 1, {**content, "result": result})
    records.revoke_lease("dead", 0)
    await books.aclose()
    ledger.close()
    records.close()


@pytest.mark.parametrize(
    ("on_lost", "state", "asked", "attempts"),
    [("hold", "unknown", 0, 1), ("again", "done", 1, 2), ("resume", "done", 1, 2)],
)
async def test_what_a_lost_worker_had_is_decided_by_on_lost(tmp_path, on_lost, state, asked, attempts):
    """The run is held, or started again; the money of the lost attempt stays reserved either way."""
    model = Model()
    batch = make(model, on_lost=on_lost)
    await make_lost(tmp_path, batch)
    async with opened(batch, tmp_path / "b") as one:
        found = await collect(one)
        assert (found["a"].state, found["a"].attempts, len(model.asked)) == (state, attempts, asked)
        assert one.progress.reserved == Decimal("0.01")
        assert (await one.unknown())[0]["attempt"] == 1


async def test_a_batch_that_is_cancelled_ends_although_its_worker_was_lost(tmp_path):
    """`on_lost` would let the run wait to be started again, which it never is: `results()` did not end."""
    model = Model()
    batch = make(model, on_lost="again")
    await make_lost(tmp_path, batch)
    records = Records(make_engine(f"sqlite:///{tmp_path / 'b' / 'runs.db'}"))
    records.find(batch.name)
    records.cancel()
    records.close()
    async with opened(batch, tmp_path / "b") as one:
        found = await collect(one)
        assert (found["a"].state, model.asked) == ("cancelled", [])
        assert (await one.unknown())[0]["reserved"] == Decimal("0.01")
        assert await one.retry() == 1
        assert (await collect(one))["a"].state == "done"


async def test_decisions_about_a_run_whose_worker_was_lost(tmp_path, monkeypatch):
    """Nobody has settled it yet, so its cost is not known: the messages say that a worker does it."""
    monkeypatch.setattr("toolwire.batch.opened._CANCEL", 0.1)
    batch = make(Model())
    await make_lost(tmp_path, batch)
    async with open_existing(batch.name, tmp_path / "b") as one:
        with pytest.raises(BatchError, match="'a' is running: .* start another one, which settles it"):
            await one.reconcile("a", "0.1")
        with pytest.raises(BatchError, match="1 runs have not ended .* Start a worker, which settles"):
            await one.cancel()
    async with opened(batch, tmp_path / "b") as one:
        assert (await collect(one))["a"].state == "unknown"
        assert await one.reconcile("a", "0.1") == Decimal("0.1")


async def test_a_run_that_was_not_started_is_started_whatever_on_lost_says(tmp_path):
    """Its CLI was never started, so its money is released."""
    model = Model()
    batch = make(model)
    await make_lost(tmp_path, batch, start=False)
    async with opened(batch, tmp_path / "b") as one:
        found = await collect(one)
        assert (found["a"].state, one.progress.reserved, one.progress.spent) == ("done", 0, COST)


async def test_a_result_in_the_outbox_is_booked(tmp_path):
    """The result was paid for: the run is done, with its output and cost, and is not started again."""
    model = Model()
    batch = make(model, on_lost="again")
    await make_lost(tmp_path, batch, answered=True)
    async with opened(batch, tmp_path / "b") as one:
        found = await collect(one)
        assert (found["a"].state, found["a"].output) == ("done", Verdict(name="late"))
        assert (one.progress.spent, one.progress.reserved, model.asked) == (Decimal("0.002"), 0, [])
        assert not list((tmp_path / "b" / "outbox").iterdir())


@pytest.mark.parametrize("said", ["0.005", "0"])
async def test_a_result_after_a_person_decided_changes_nothing(tmp_path, said):
    """Its cost cannot be booked any more: the cost and state that the person set stay."""
    batch = make(Model())
    await make_lost(tmp_path, batch, answered=True)
    (file,) = (tmp_path / "b" / "outbox").iterdir()
    elsewhere = file.rename(tmp_path / "elsewhere")  # on the disk of a machine that is off
    async with opened(batch, tmp_path / "b") as one:
        await one.reconcile("a", said)
    elsewhere.rename(file)
    async with asyncio.timeout(30), opened(batch, tmp_path / "b") as one:
        found = await collect(one)
        assert (found["a"].state, found["a"].cost) == ("failed", Decimal(said))
        assert one.progress.spent == Decimal(said)
    assert not list((tmp_path / "b" / "outbox").iterdir())


async def test_a_run_to_resume_on_another_machine_needs_a_store(tmp_path):
    """Its transcript is not on this machine, so it is held, with a message that says what to do."""
    model = Model()
    batch = make(model, on_lost="resume")
    await make_lost(tmp_path, batch)
    (tmp_path / "state" / "machine").write_text("another")
    async with opened(batch, tmp_path / "b") as one:
        found = await collect(one)
        assert found["a"].state == "unknown"
        assert "session_store" in found["a"].error
        assert model.asked == []


async def test_commands_find_a_batch_by_its_name(tmp_path):
    """The user's file is not needed, and the batch's settings are not changed."""
    async with opened(make(Model(), budget="1", on_lost="again"), None) as batch:
        await batch.add(repos("a"))
        await collect(batch)
    assert list_names() == ["b"]
    async with open_existing("b") as found:
        assert (found.progress.done, found.progress.budget) == (1, 1)
        assert [done.key async for done in found.ended()] == ["a"]
    with pytest.raises(BatchError, match="there is no batch 'c' at .*; existing batches: b"):
        async with open_existing("c"):
            pass


async def test_progress_is_plain_json(tmp_path):
    """Dollars are strings, so that they stay exact."""
    async with opened(make(Model(), budget="5"), tmp_path / "b", work=False) as batch:
        told = json.loads(json.dumps(batch.progress.to_dict()))
    assert (told["budget"], told["waiting"], told["spent"]) == ("5", 0, "0")


async def test_known_keys_before_new_ones_do_not_continue_a_batch_that_is_cancelled(tmp_path):
    """A program that is started again adds all its items again: none of the new ones may run after `cancel`."""
    known = [(f"k{number}", Repo(f"k{number}")) for number in range(500)]
    added, cancelled = asyncio.Event(), asyncio.Event()

    async def items():
        for pair in known:
            yield pair
        added.set()
        await cancelled.wait()
        yield "new", Repo("new")

    async with asyncio.timeout(120), opened(make(Model()), tmp_path / "b", work=False) as batch:
        await batch.add(known)
        adding = asyncio.create_task(batch.add(items()))
        await added.wait()
        await batch.cancel()
        cancelled.set()
        with pytest.raises(BatchError, match="cancelled while runs were added"):
            await adding
        assert (await batch.refresh()).waiting == 0


async def test_reconciling_does_not_count_what_a_lost_worker_has_booked(tmp_path):
    """The cost of an attempt that was settled but not recorded is recorded, beside that of the unknown attempt."""
    batch = make(Model())
    await make_lost(tmp_path, batch, start=False)
    ledger = SqliteLedger(tmp_path / "b" / "ledger.db")
    records = Records(make_engine(f"sqlite:///{tmp_path / 'b' / 'runs.db'}"))
    records.find(batch.name)
    books = Books(ledger, batch.name, records.uid, batch.per_run, batch.budget)
    (first,) = [each.id for each in ledger.rows(states=("sent",))]
    await books.settle(first, 5_000)
    claim = Claim("a", "null", 2, session="", resumes=False, worker="dead", machine="", token=str(first))
    await books.mark_unknown(await books.reserve(claim), "lost")
    await books.aclose()
    ledger.close()
    records.close()
    async with opened(batch, tmp_path / "b", work=False) as one:
        assert await one.reconcile("a", "0.003") == Decimal("0.003")
        assert one.progress.spent == Decimal("0.008")
