"""Ledgers of every kind for one test suite: in a file, in memory, in a real Postgres."""

import itertools
from contextlib import contextmanager

import psycopg
import pytest

from toolwire.catalog.ledger.postgres import PostgresLedger
from toolwire.catalog.ledger.sqlite import SqliteLedger

_schemas = itertools.count()


class SqliteLedgers:
    """A ledger in a SQLite file, or in memory; its owners are names that count as alive until `end`."""

    def __init__(self, path, **given):
        self._dead = set()
        self.ledger = SqliteLedger(path, owner="me", alive=lambda owner: owner not in self._dead, **given)

    @contextmanager
    def acting_as(self, owner):
        """Yield the ledger for another owner."""
        before, self.ledger.owner = self.ledger.owner, owner
        try:
            yield self.ledger
        finally:
            self.ledger.owner = before

    def end(self, owner):
        """Let an owner count as dead from now on."""
        self._dead.add(owner)

    def close(self):
        self.ledger.close()


class PostgresLedgers:
    """A ledger in a schema of its own in a Postgres database; its owners have leases until `end`."""

    def __init__(self, url, **given):
        self.url, self.given = url, {"schema": f"ledger_{next(_schemas)}", **given}
        self.ledger = PostgresLedger(url, owner="me", **self.given)
        self._others = {}

    @contextmanager
    def acting_as(self, owner):
        """Yield a ledger of another owner, as another process would have it."""
        if owner not in self._others:
            self._others[owner] = PostgresLedger(self.url, owner=owner, **self.given)
        yield self._others[owner]

    def end(self, owner):
        """Expire the lease of an owner, and keep it from being renewed."""
        if owner in self._others:
            self._others[owner]._closing.set()
        # The server may have been started just now, which would count as a sign of life: so there is no lease at
        # all.
        self.run("UPDATE owners SET beat = '2000-01-01', lease = '-1 s' WHERE owner = %s", owner)

    def run(self, query, *values):
        """Run a statement beside the ledger, and return what it found."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(f"SET search_path = {self.given['schema']}")
            found = db.execute(query, values or None)
            return found.fetchall() if found.description else []

    def close(self):
        for each in [*self._others.values(), self.ledger]:
            each.close()


LEDGERS = {
    "file": lambda request, **given: SqliteLedgers(
        request.getfixturevalue("tmp_path") / "state" / "ledger.db", **given
    ),
    "memory": lambda request, **given: SqliteLedgers(":memory:", **given),
    "postgres": lambda request, **given: PostgresLedgers(request.getfixturevalue("ledger_url"), **given),
}
"""Every kind of ledger, for the contract tests: a function of pytest's request and settings of the ledger."""
EVERY_KIND = ["file", "memory", pytest.param("postgres", marks=pytest.mark.process)]
