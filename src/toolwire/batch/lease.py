"""Leases: how the processes of a batch detect that one of them has died.

Each worker increments a number in the records every few seconds (its heartbeat), under an id that is new for every
start. A process that sees the same number for too long, by its own monotonic clock, revokes the lease: that worker
may then start nothing more, and learns of it at its next heartbeat. Time during which the observing process was
itself suspended does not count. A process of the same machine that has ended is detected at once.
"""

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import anyio

from toolwire._support.log import logger_for
from toolwire.batch.records import Records
from toolwire.batch.states import BEAT, STALE
from toolwire.catalog.ledger.process_owner import owner_alive, this_process
from toolwire.errors import BatchError

logger = logger_for("batch")


def new_worker_id() -> str:
    """Return an id that is unique to this start of a worker."""
    host = os.uname().nodename if hasattr(os, "uname") else "worker"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


class Lease:
    """The lease of one worker. Without `worker`, it only watches the leases of the others.

    `heartbeat_records` have their own database connection, so that heartbeats do not wait for other work of this
    process. `clock` must keep running while this process is suspended and must never jump, like `time.monotonic`.
    """

    def __init__(
        self,
        records: Records,
        worker: str | None,
        *,
        beat: float = BEAT,
        stale: float = STALE,
        clock: Callable[[], float] = time.monotonic,
        heartbeat_records: Records | None = None,
    ) -> None:
        if not 0 < beat < stale:
            raise BatchError(
                "beat must be above 0 and less than stale, or every worker would count as lost:"
                f" got beat={beat:g}, stale={stale:g}"
            )
        self._records = records
        self._heartbeat_records = records if heartbeat_records is None else heartbeat_records
        self._worker = worker
        self.beat_seconds = beat
        self.stale_seconds = stale
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        self._last_check = clock()
        self.process = this_process()
        self.last_heartbeat = clock()
        self.lost = threading.Event()
        """Set when another process has revoked the lease of this worker."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    async def acquire(self, executor: str, machine: str) -> None:
        """Record the lease and start its heartbeats, in a thread so that neither runs nor user code delay them."""
        if self._worker is None:
            return
        await anyio.to_thread.run_sync(
            self._records.add_worker, self._worker, executor, self.process, machine
        )
        self.last_heartbeat = self._clock()
        self._thread = threading.Thread(
            target=self._send_heartbeats, name="toolwire batch lease", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(self.beat_seconds)

    def _send_heartbeats(self) -> None:
        while not self._ending.wait(self.beat_seconds) and not self.lost.is_set():
            self.heartbeat()

    def heartbeat(self) -> None:
        """Renew the lease. If the database is unreachable the lease is not lost yet; see `unsafe`."""
        before = self._clock()
        try:
            alive = self._heartbeat_records.heartbeat(self._worker or "")
        except Exception as error:  # noqa: BLE001 - SQLAlchemy and drivers raise many kinds
            logger.warning(
                "the lease of this worker could not be renewed, will retry: %s",
                " ".join(str(error).split())[:200],
            )
            return
        if alive:
            self.last_heartbeat = before
        else:
            logger.error("another process declared this worker lost: its runs are stopped")
            self.lost.set()

    @property
    def unsafe(self) -> bool:
        """True if the last heartbeat is so old that others may declare this worker lost before it can notice."""
        return self._clock() - self.last_heartbeat > self.stale_seconds - self.beat_seconds

    async def find_lost(self) -> list[str]:
        """Revoke the leases of dead workers.

        Return the ids of all workers whose lease was revoked and whose runs have not been settled yet.
        """
        lost = []
        started = self._clock()
        if started - self._last_check > self.stale_seconds:
            self._seen.clear()  # this process was suspended or blocked, and perhaps all others too
        self._last_check = started
        rows = await anyio.to_thread.run_sync(self._records.workers)
        for row in rows:
            if row["id"] == self._worker:
                continue
            if row["gone"] or (
                self._is_stale(row, started)
                and await anyio.to_thread.run_sync(self._records.revoke_lease, row["id"], row["beat"])
            ):
                lost.append(row["id"])
        present = {row["id"] for row in rows}
        self._seen = {each: seen for each, seen in self._seen.items() if each in present}
        return lost

    def _is_stale(self, row: dict[str, Any], started: float) -> bool:
        """True if a worker sent no heartbeat for too long, judged by a check that began at `started`.

        The time that the check itself took does not count: a lock that delayed it also delayed the heartbeats.
        """
        now = self._clock()
        beat, since = self._seen.get(row["id"], (-1, now))
        if beat != row["beat"]:
            self._seen[row["id"]] = row["beat"], now
            since = now
        return started - since > self.stale_seconds or _has_ended(row["process"], self.process)


def _has_ended(process: str, here: str) -> bool:
    """True if `process` ran on this machine and has ended. False for other machines, where this is unknown."""
    _, _, *theirs = process.split(":")
    _, _, *ours = here.split(":")
    return bool(ours) and all(ours) and theirs == ours and not owner_alive(process)
