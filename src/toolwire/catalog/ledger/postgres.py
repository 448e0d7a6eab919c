"""The ledger in a Postgres database that any number of processes on any number of machines book in.

Owns the lease of this process. An owner is not a process id, which says nothing on another machine, but a name
that nobody else has, with a row in the database that says until when it lives. A thread renews it by the clock of
the database, as long as this ledger is open. Who is paused for longer than that is dead to others: they book its
open calls as unknown, and what it had booked before may not be sent any more. It goes on under a new name.

The rules are those of `sql_ledger`, connections and transactions of `postgres_database`.
"""

import math
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from toolwire._support.log import logger_for
from toolwire.catalog.ledger import queries as query
from toolwire.catalog.ledger.postgres_database import SCHEMA, PostgresDatabase, PostgresTransaction
from toolwire.catalog.ledger.pricing import Agreed
from toolwire.catalog.ledger.sql_ledger import SqlLedger
from toolwire.catalog.ledger.types import Booking, Held, LeaseLost, Limits, Order, Row
from toolwire.errors import CatalogError, UsageError

logger = logger_for("catalog")

LEASE: Final = 30.0
"""Seconds after which an owner that gives no sign of life counts as dead."""
_BEATS: Final = 6  # in the time of a lease
_SHORTEST_LEASE: Final = 0.5


class PostgresLedger(SqlLedger):
    """A `Ledger` in a Postgres database (`toolwire[postgres]`).

        ledger = PostgresLedger("postgresql://toolwire@db.example/shop")

    The tables are in a `schema` of their own, and made if there are none, unless `create` is False. Each step waits
    `patience` seconds at most. Who gives no sign of life for `lease` seconds counts as dead. `owner` is a name that
    no living process has (default: a new one); `clock` gives seconds since 1970 (default: the database's).
    """

    def __init__(
        self,
        url: str,
        *,
        owner: str | None = None,
        lease: float = LEASE,
        patience: float = 10.0,
        create: bool = True,
        schema: str = SCHEMA,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not (math.isfinite(lease) and lease >= _SHORTEST_LEASE):
            raise UsageError(f"a lease is {_SHORTEST_LEASE:g} seconds or more, not {lease!r}")
        self._clock = clock
        self.lease, self.remote = lease, True
        self.owner = _new_owner() if owner is None else owner
        self._lock = threading.Lock()
        self._registered = False
        self._closing = threading.Event()
        self._beats: threading.Thread | None = None
        self._leases = PostgresDatabase(
            url, schema_name=schema, patience=patience, create=create, owner=self._find_owner
        )
        super().__init__(self._leases)

    def close(self) -> None:
        """Give up the lease and close the connections. Twice is fine."""
        self._closing.set()
        if self._registered:
            self._registered = False
            try:
                self._leases.leave(self.owner)
            except CatalogError as error:  # it expires by itself
                logger.warning("the lease of %s could not be given up: %s", self.owner, error)
        super().close()

    def beat(self) -> float:
        """Renew the lease, or begin it. Returns its seconds; `LeaseLost` if it had expired."""
        owner = self.owner
        if self._ensure_lease() or self._leases.beat(owner):
            return self.lease
        self._lose(owner)
        raise LeaseLost(_paused(owner))

    def _find_owner(self, writes: bool) -> str:
        """Return the name under which a transaction is made; who writes has a lease."""
        if writes:
            self._ensure_lease()
        return self.owner

    def _ensure_lease(self) -> bool:
        """Make the row of this owner, and keep it fresh from now on. Returns True if it was made just now."""
        with self._lock:
            if self._registered:
                return False
            if not self._leases.register(self.owner, self.lease):
                raise CatalogError(
                    f"another process books as {self.owner}: the name of an owner must be its own"
                )
            self._registered = True
            if self._beats is None:
                self._beats = threading.Thread(target=self._keep_lease, name="toolwire lease", daemon=True)
                self._beats.start()
            return True

    def _lose(self, owner: str) -> None:
        """Take a new name: others have taken this owner for dead."""
        with self._lock:
            if self.owner == owner:
                self.owner = _new_owner()
                self._registered = False
                logger.warning("%s. It goes on as %s", _paused(owner), self.owner)

    def _keep_lease(self) -> None:
        """Renew the lease until the ledger is closed. What fails is tried again with the next beat."""
        while not self._closing.wait(self.lease / _BEATS):
            try:
                self.beat()
            except LeaseLost:
                continue  # it was logged, and the next beat begins a new one
            except CatalogError as error:
                logger.warning("the lease of %s could not be renewed: %s", self.owner, error)

    def _book(self, db: Any, order: Order, agreed: Agreed, limits: Limits) -> Booking:
        booking = super()._book(db, order, agreed, limits)
        db.on_lost.append(partial(self._release_unsent, booking.id))
        return booking

    def _hold(self, db: Any, order: Order, agreed: Agreed, limits: Limits) -> Held:
        held = super()._hold(db, order, agreed, limits)
        db.on_lost.append(partial(self._drop_unused, held.id))
        return held

    def _drop_unused(self, id: str, db: PostgresTransaction) -> None:
        """Give back what was held, which came out too late for anybody to know of it."""
        self._drop_held(db, id)

    def _release_unsent(self, id: str, db: PostgresTransaction) -> None:
        """Give the money back of a call that was booked, which came out too late for it to be sent."""
        row = query.row(db, id)
        if row.state in ("sent", "unknown"):  # unknown, if others took this process for dead meanwhile
            self._move(db, row, "released")

    def _expect(self, db: Any, statements: Sequence[query.Statement]) -> None:
        db.prefetch(statements)

    def _now(self, db: Any) -> float:
        return float(db.now) if self._clock is None else self._clock()

    def _is_alive(self, db: Any, owner: str) -> bool:
        return owner == self.owner or self._leases.is_alive(db, owner)

    def _check_owner(self, db: Any, row: Row | None = None) -> None:
        owner = self.owner
        if not db.lease:
            self._lose(owner)
        if not db.lease or (row is not None and row.owner != owner):
            raise LeaseLost(f"{_paused(owner if row is None else row.owner)}: nothing is sent")


def _new_owner() -> str:
    """Return a name that no other process has: where it runs, for people, and chance."""
    host = "".join(each for each in socket.gethostname() if each.isalnum() or each in "-.")
    return f"{host}:{os.getpid()}:{secrets.token_hex(6)}"


def _paused(owner: str) -> str:
    return (
        f"{owner} was paused or cut off from the ledger for longer than its lease, so others count it as dead"
    )
