"""Leases are told by numbers and by a clock of one's own, which nobody can set."""

import pytest

from toolwire.batch.lease import Lease, new_worker_id
from toolwire.batch.records import Records, make_engine
from toolwire.catalog.ledger.process_owner import this_process
from toolwire.errors import BatchError

pytestmark = pytest.mark.anyio


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def records(tmp_path):
    made = Records(make_engine(f"sqlite:///{tmp_path / 'runs.db'}"))
    made.prepare()
    made.create("b", {})
    yield made
    made.close()


async def test_who_shows_nothing_for_too_long_loses_its_lease(records, clock):
    """Counted from when that was first seen, and only once it is longer than the lease."""
    records.join("other", "e", "elsewhere:1:boot:ns", "m")
    watch = Lease(records, None, clock=clock)
    assert await watch.find_lost() == []
    clock.now += 29
    assert await watch.find_lost() == []
    records.beat("other")
    clock.now += 29
    assert await watch.find_lost() == []
    clock.now += 29
    assert await watch.find_lost() == []
    clock.now += 2
    assert await watch.find_lost() == ["other"]
    assert records.beat("other") is False


async def test_who_did_not_look_itself_takes_no_lease(records, clock):
    """All may have been stopped together, as by a pause of their containers: the others get time to show."""
    records.join("other", "e", "elsewhere:1:boot:ns", "m")
    watch = Lease(records, None, clock=clock)
    assert await watch.find_lost() == []
    clock.now += 3600
    assert await watch.find_lost() == []
    clock.now += 29
    assert await watch.find_lost() == []
    clock.now += 2
    assert await watch.find_lost() == ["other"]


async def test_who_is_kept_waiting_by_a_lock_takes_no_lease(records, clock, monkeypatch):
    """A process that was stopped while it held the database's lock keeps all others from their beats too."""
    records.join("other", "e", "elsewhere:1:boot:ns", "m")
    watch = Lease(records, None, clock=clock)
    assert await watch.find_lost() == []

    def wait_and_list(list_workers=records.workers):
        clock.now += 40
        return list_workers()

    clock.now += 5
    monkeypatch.setattr(records, "workers", wait_and_list)
    assert await watch.find_lost() == []
    monkeypatch.undo()
    clock.now += 1
    assert await watch.find_lost() == []
    clock.now += 29
    assert await watch.find_lost() == []
    clock.now += 2
    assert await watch.find_lost() == ["other"]


async def test_a_clock_that_jumps_takes_no_lease_of_who_beats(records, clock):
    """A run of two hours is not begun again: between two looks the number has changed."""
    records.join("other", "e", "elsewhere:1:boot:ns", "m")
    watch = Lease(records, None, clock=clock)
    for _ in range(5):
        assert await watch.find_lost() == []
        clock.now += 7200
        records.beat("other")
    assert await watch.find_lost() == []


async def test_a_process_of_this_machine_that_has_ended_is_seen_at_once(records, clock):
    """Its name has a start time that no living process of that id has."""
    pid, _, *rest = this_process().split(":")
    records.join("dead", "e", ":".join([pid, "1", *rest]), "m")
    records.join("alive", "e", this_process(), "m")
    records.join("far", "e", f"{pid}:1:other:other", "m")
    assert await Lease(records, None, clock=clock).find_lost() == ["dead"]


async def test_a_worker_finds_that_its_lease_is_gone(records, clock):
    """And before that, that it may be: it has not got through for too long."""
    lease = Lease(records, "me", beat=5, stale=30, clock=clock)
    await lease.join("e", "m")
    lease.end()
    lease.beat()
    assert not lease.unsafe
    clock.now += 26
    assert lease.unsafe
    lease.beat()
    assert not lease.unsafe
    records.bury("me", records.workers()[0]["beat"])
    lease.beat()
    assert lease.lost.is_set()


async def test_a_database_that_is_away_takes_no_lease(records, clock, caplog):
    """It is tried again with the next beat."""
    lease = Lease(records, "me", clock=clock)
    records._engine.dispose()
    records._engine = make_engine("postgresql://nobody@127.0.0.1:1/none")
    lease.beat()
    assert not lease.lost.is_set()
    assert "could not be renewed" in caplog.text


def test_a_lease_must_outlast_its_beats(records):
    """Otherwise every worker would count as lost."""
    with pytest.raises(BatchError, match="beat more often"):
        Lease(records, "w", beat=30, stale=30)


def test_every_start_has_an_id_of_its_own():
    """One id in two processes would keep a dead one's lease fresh."""
    assert len({new_worker_id() for _ in range(100)}) == 100
