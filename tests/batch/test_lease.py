"""Leases are judged by heartbeat numbers and by the observer's own monotonic clock."""

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


async def test_a_worker_without_heartbeats_loses_its_lease(records, clock):
    """The time counts from when the last heartbeat number was first seen, and must exceed `stale`."""
    records.add_worker("other", "e", "elsewhere:1:boot:ns", "m")
    watch = Lease(records, None, clock=clock)
    assert await watch.find_lost() == []
    clock.now += 29
    assert await watch.find_lost() == []
    records.heartbeat("other")
    clock.now += 29
    assert await watch.find_lost() == []
    clock.now += 29
    assert await watch.find_lost() == []
    clock.now += 2
    assert await watch.find_lost() == ["other"]
    assert records.heartbeat("other") is False


async def test_a_process_that_was_suspended_revokes_no_lease(records, clock):
    """All may have been suspended together, as by a pause of containers: the others get time for a heartbeat."""
    records.add_worker("other", "e", "elsewhere:1:boot:ns", "m")
    watch = Lease(records, None, clock=clock)
    assert await watch.find_lost() == []
    clock.now += 3600
    assert await watch.find_lost() == []
    clock.now += 29
    assert await watch.find_lost() == []
    clock.now += 2
    assert await watch.find_lost() == ["other"]


async def test_a_process_that_was_blocked_by_a_lock_revokes_no_lease(records, clock, monkeypatch):
    """A process suspended while it holds the database lock blocks the heartbeats of all others too."""
    records.add_worker("other", "e", "elsewhere:1:boot:ns", "m")
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


async def test_a_clock_that_jumps_revokes_no_lease_with_heartbeats(records, clock):
    """A run of two hours is not started again: between two checks the number has changed."""
    records.add_worker("other", "e", "elsewhere:1:boot:ns", "m")
    watch = Lease(records, None, clock=clock)
    for _ in range(5):
        assert await watch.find_lost() == []
        clock.now += 7200
        records.heartbeat("other")
    assert await watch.find_lost() == []


async def test_a_dead_process_of_this_machine_is_detected_at_once(records, clock):
    """The start time in its name is not that of the living process with that id."""
    pid, _, *rest = this_process().split(":")
    records.add_worker("dead", "e", ":".join([pid, "1", *rest]), "m")
    records.add_worker("alive", "e", this_process(), "m")
    records.add_worker("far", "e", f"{pid}:1:other:other", "m")
    assert await Lease(records, None, clock=clock).find_lost() == ["dead"]


async def test_a_worker_detects_that_its_lease_was_revoked(records, clock):
    """Before that, it is `unsafe`: no heartbeat has succeeded for too long."""
    lease = Lease(records, "me", beat=5, stale=30, clock=clock)
    await lease.acquire("e", "m")
    lease.stop()
    lease.heartbeat()
    assert not lease.unsafe
    clock.now += 26
    assert lease.unsafe
    lease.heartbeat()
    assert not lease.unsafe
    records.revoke_lease("me", records.workers()[0]["beat"])
    lease.heartbeat()
    assert lease.lost.is_set()


async def test_an_unreachable_database_loses_no_lease(records, clock, caplog):
    """The next heartbeat tries again."""
    lease = Lease(records, "me", clock=clock)
    records._engine.dispose()
    records._engine = records._autocommit = make_engine("postgresql://nobody@127.0.0.1:1/none")
    lease.heartbeat()
    assert not lease.lost.is_set()
    assert "could not be renewed" in caplog.text


def test_a_lease_must_outlast_its_heartbeats(records):
    """Otherwise every worker would count as lost."""
    with pytest.raises(BatchError, match="beat must be above 0 and less than stale"):
        Lease(records, "w", beat=30, stale=30)


def test_every_start_has_an_id_of_its_own():
    """If two processes had one id, the living one would renew the lease of the dead one."""
    assert len({new_worker_id() for _ in range(100)}) == 100
