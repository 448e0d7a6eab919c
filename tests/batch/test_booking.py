"""The money of a batch: it is reserved before a run starts; a run waits if others may release money."""

import asyncio

import pytest

from toolwire.batch.booking import AlreadyBooked, Books, NoMoney, attempt_of, key_of
from toolwire.batch.states import Claim
from toolwire.catalog.ledger.sqlite import SqliteLedger
from toolwire.errors import BatchError

pytestmark = pytest.mark.anyio


def claim(key, attempt=1):
    return Claim(key, '"x"', attempt, "session", False, "w", "m", "t")


@pytest.fixture
async def books(tmp_path):
    ledger = SqliteLedger(tmp_path / "ledger.db")
    made = Books(ledger, "b", "uid", 10, 30)
    yield made
    await made.aclose()
    ledger.close()


async def test_many_runs_may_be_in_progress_at_once(books):
    """Unlike calls of a paid tool, whose price is not trusted before the first reply."""
    ids = [await books.reserve(claim(key)) for key in "abc"]
    assert len(set(ids)) == 3
    assert await books.sums() == (0, 30, 0)


async def test_a_run_waits_for_money_that_others_may_release(books):
    """It is refused only when the money spent leaves no room."""
    ids = [await books.reserve(claim(key)) for key in "abc"]
    waiting = asyncio.create_task(books.reserve(claim("d")))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await books.settle(ids[0], 2)
    await books.settle(ids[1], 3)
    async with asyncio.timeout(10):
        await waiting
    await books.settle(ids[2], 10)
    await books.settle(await waiting, 10)
    with pytest.raises(NoMoney, match="no room for a run of 0.00001: 0.000025 spent"):
        await books.reserve(claim("e"))
    assert await books.sums() == (25, 0, 0)


async def test_money_held_for_unknown_runs_is_not_waited_for(books):
    """Setting the cost of an unknown run is up to a person, who may take days."""
    for key in "abc":
        await books.mark_unknown(await books.reserve(claim(key)), "lost")
    with pytest.raises(NoMoney, match="0.00003 held for unknown runs"):
        await books.reserve(claim("d"))


async def test_a_cancelled_reservation_leaves_nothing_reserved(books):
    """Nothing stays reserved, even if the booking was made at the moment of the cancellation."""
    ids = [await books.reserve(claim(key)) for key in "abc"]
    waiting = asyncio.create_task(books.reserve(claim("d")))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.wait({waiting})
    await books.release_unstarted("d", 1)
    await books.release(ids[0])
    assert await books.sums() == (0, 20, 0)


async def test_every_step_is_idempotent(books):
    """A step whose reply from the database was lost may or may not have been done, so it can be repeated."""
    a, b, c = [await books.reserve(claim(key)) for key in "abc"]
    assert await books.reserve(claim("a")) == a
    for _ in range(2):
        await books.settle(a, 4)
        await books.release(b)
        await books.mark_unknown(c, "lost")
    assert await books.sums() == (4, 0, 10)
    await books.settle(c, 5)  # a late result
    assert await books.sums() == (9, 0, 0)


async def test_a_run_that_cost_more_is_booked_and_stops_nothing(books):
    """The CLI checks its limit between turns only."""
    await books.settle(await books.reserve(claim("a")), 14)
    assert books.ledger.stops() == []
    await books.reserve(claim("b"))
    assert await books.sums() == (14, 10, 0)


async def test_many_lost_runs_stop_nothing(books):
    """Many lost replies stop a paid tool, but not a batch."""
    free = Books(books.ledger, "b", "other", 10, None)
    for number in range(8):
        await free.mark_unknown(await free.reserve(claim(f"k{number}")), "lost")
    assert books.ledger.stops() == []
    await free.reserve(claim("more"))
    await free.aclose()


async def test_an_ended_attempt_is_never_booked_again(books):
    """The key of the attempt prevents it."""
    await books.settle(await books.reserve(claim("a")), 4)
    with pytest.raises(AlreadyBooked, match="booked and closed, so it is not run again"):
        await books.reserve(claim("a"))
    await books.reserve(claim("a", 2))


async def test_the_booking_of_a_run_that_never_started_is_released(books):
    """The booking is found by the key of the attempt."""
    await books.reserve(claim("a"))
    await books.release_unstarted("a", 2)
    assert (await books.sums())[1] == 10
    await books.release_unstarted("a", 1)
    assert await books.sums() == (0, 0, 0)


async def test_a_person_sets_the_cost_of_an_unknown_attempt(books):
    """The cost may be nothing, an amount, or all that was reserved."""
    a, b, c = [await books.reserve(claim(key)) for key in "abc"]
    for each in (a, b, c):
        await books.mark_unknown(each, "lost")
    assert {attempt_of(row) for row in await books.unknown()} == {("a", 1), ("b", 1), ("c", 1)}
    assert [await books.resolve(a, 0), await books.resolve(b, 3), await books.resolve(c, None)] == [0, 3, 10]
    assert await books.sums() == (13, 0, 0)
    with pytest.raises(BatchError, match="is settled, not unknown"):
        await books.resolve(b, 3)


def test_keys_of_attempts_do_not_collide():
    """Keys of attempts stay different whatever the key of the run contains."""
    assert key_of("a#1", 2) != key_of("a", 12)
