"""What a ledger needs of a database: transactions that run SQL, alone or in groups. Knows no database.

Statements are written once, for SQLite and Postgres: values are marked `?` (or `?1`, `?2`, ... where one is used
twice), flags are the numbers 0 and 1, and only what both databases understand is used. `schema` has what differs.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Found(Protocol):
    """The rows that a statement found."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """A transaction that is open."""

    def execute(self, query: str, values: Sequence[Any] = (), /) -> Found:
        """Run a statement."""
        ...

    def executemany(self, query: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each row of values."""
        ...


class Database(Protocol):
    """Opens transactions. Its failures are `CatalogError`."""

    @property
    def path(self) -> str:
        """Where it is, for people; without a password."""
        ...

    @property
    def grouped(self) -> bool:
        """True if this thread is inside `together`, so that nothing is certain before its end."""
        ...

    def writing(self, durable: bool = True) -> AbstractContextManager[Transaction]:
        """Run a transaction that nobody else can write beside. Undone if anything is raised in it.

        `durable`: it survives a power cut. One that is not survives the end of a process.
        """
        ...

    def reading(self, *, current: bool = False) -> AbstractContextManager[Transaction]:
        """Run a transaction that sees one state of the ledger; `current`: the state that others write to now."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Commit what this thread writes inside at once, at the end. What raises inside is undone alone."""
        ...

    def close(self) -> None:
        """Close all connections. Twice is fine."""
        ...
