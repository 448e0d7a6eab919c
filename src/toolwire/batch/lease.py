"""Leases: how the processes of a batch know of each other who lives.

Each worker counts up a number in the records, every few seconds, under an id that no other start ever had. Who has
seen the same number for too long, by a clock of its own that no one can set, takes the lease: then that worker may
begin nothing more, and finds out at its next beat. Only the time counts in which one was looking oneself. On the
same machine a process that has ended is seen at once.
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
    """Return an id for this start of a worker, which no other start has."""
    host = os.uname().nodename if hasattr(os, "uname") else "worker"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


class Lease:
    """The lease of one worker; without `worker`, only looks after those of others.

    `pulse` are records with a connection of their own, for the beats. `clock` must go on while this process is
    stopped, and never jump: that of `time.monotonic`.
    """

    def __init__(
        self,
        records: Records,
        worker: str | None,
        *,
        beat: float = BEAT,
        stale: float = STALE,
        clock: Callable[[], float] = time.monotonic,
        pulse: Records | None = None,
    ) -> None:
        if not 0 < beat < stale:
            raise BatchError(
                f"a worker must beat more often than its lease takes to go stale: beat={beat:g}, stale={stale:g}"
            )
        self._records = records
        self._pulse = records if pulse is None else pulse
        self._worker = worker
        self.beat_seconds = beat
        self.stale_seconds = stale
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked = clock()
        self.process = this_process()
        self.last_beat = clock()
        self.lost = threading.Event()
        """Set when this worker has lost its lease."""
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    async def join(self, executor: str, machine: str) -> None:
        """Begin the lease, and keep it fresh from now on, in a thread: neither runs nor user code delay it."""
        if self._worker is None:
            return
        await anyio.to_thread.run_sync(self._records.join, self._worker, executor, self.process, machine)
        self.last_beat = self._clock()
        self._thread = threading.Thread(target=self._keep, name="toolwire batch lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop keeping it fresh."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(self.beat_seconds)

    def _keep(self) -> None:
        while not self._ending.wait(self.beat_seconds) and not self.lost.is_set():
            self.beat()

    def beat(self) -> None:
        """Show that this worker lives. A database that is away is no loss yet; see `unsafe`."""
        before = self._clock()
        try:
            alive = self._pulse.beat(self._worker or "")
        except Exception as error:  # noqa: BLE001 - SQLAlchemy and drivers raise many kinds
            logger.warning(
                "the lease of this worker could not be renewed: %s", " ".join(str(error).split())[:200]
            )
            return
        if alive:
            self.last_beat = before
        else:
            logger.error("this worker was given up as lost by others: it ends its runs")
            self.lost.set()

    @property
    def unsafe(self) -> bool:
        """True if others may take this worker for lost before it can know: its last beat is too long ago."""
        return self._clock() - self.last_beat > self.stale_seconds - self.beat_seconds

    async def find_lost(self) -> list[str]:
        """Take the leases of workers that are gone. Returns all workers whose lease is taken, and not cleared."""
        lost = []
        asked = self._clock()
        if asked - self._looked > self.stale_seconds:
            self._seen.clear()  # this process was stopped or kept waiting, and perhaps all others with it
        self._looked = asked
        rows = await anyio.to_thread.run_sync(self._records.workers)
        for row in rows:
            if row["id"] == self._worker:
                continue
            if row["gone"] or (
                self._is_over(row, asked)
                and await anyio.to_thread.run_sync(self._records.bury, row["id"], row["beat"])
            ):
                lost.append(row["id"])
        present = {row["id"] for row in rows}
        self._seen = {each: seen for each, seen in self._seen.items() if each in present}
        return lost

    def _is_over(self, row: dict[str, Any], asked: float) -> bool:
        """True if a worker has shown nothing for too long, as was seen by a look that began at `asked`.

        The time that the look itself took does not count: a lock that kept it waiting kept others from their beats.
        """
        now = self._clock()
        beat, since = self._seen.get(row["id"], (-1, now))
        if beat != row["beat"]:
            self._seen[row["id"]] = row["beat"], now
            since = now
        return asked - since > self.stale_seconds or _has_ended(row["process"], self.process)


def _has_ended(process: str, here: str) -> bool:
    """True if a process of this machine has certainly ended. Of others nothing can be told that way."""
    _, _, *theirs = process.split(":")
    _, _, *ours = here.split(":")
    return bool(ours) and all(ours) and theirs == ours and not owner_alive(process)
