"""What a ledger needs from a database: transactions that run SQL, alone or in groups, one thread at a time.

Contains what all databases have in common, and knows no particular one.

Statements are written once, for SQLite and Postgres: placeholders are `?` (or `?1`, `?2`, ... where a value is
used twice), flags are the numbers 0 and 1, and only syntax that both databases understand is used. The
differences are in `schema`.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Protocol

from toolwire.catalog.ledger.types import Unavailable
from toolwire.errors import CatalogError


class Found(Protocol):
    """The rows that a statement found."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """An open transaction."""

    def execute(self, query: str, values: Sequence[Any] = (), /) -> Found:
        """Run a statement."""
        ...

    def executemany(self, query: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once for each row of values."""
        ...


@dataclass
class Group:
    """Transactions of one thread that are committed together, all on `db`."""

    db: Any
    thread: int = field(default_factory=threading.get_ident)
    durable: bool = False
    """True if the open transaction will survive a power cut."""
    error: CatalogError | None = None
    """Why nothing more can be booked in it."""

    def check(self) -> None:
        """Raise if nothing more can be booked."""
        if self.error is not None:
            raise type(self.error)(str(self.error)) from self.error  # `Unavailable` is retried for longer


class Database(ABC):
    """Opens transactions. Failures are raised as `CatalogError`. `path` is its location, without a password."""

    failure: ClassVar[type[Exception]]
    """The base class of the exceptions of the database's module."""

    def __init__(self, path: str, patience: float) -> None:
        self.path = path
        self._patience = patience
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._group: Group | None = None

    @abstractmethod
    def writing(self, durable: bool = True) -> AbstractContextManager[Transaction]:
        """Run a transaction during which nobody else can write. Rolled back if anything is raised in it.

        `durable`: it survives a power cut. Otherwise it survives only the end of the process.
        """

    @abstractmethod
    def reading(self, *, current: bool = False) -> AbstractContextManager[Transaction]:
        """Run a transaction that sees one state of the ledger; `current`: the state that others write to now."""

    @abstractmethod
    def together(self) -> AbstractContextManager[None]:
        """Commit everything that this thread writes inside at the end. A step that raises is rolled back alone."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. May be called twice."""

    @abstractmethod
    def refuse(self, error: Any) -> NoReturn:
        """Raise a `CatalogError` for a failure of the database."""

    @property
    def grouped(self) -> bool:
        """True if this thread is inside `together`, so that nothing is committed before its end."""
        return self._own_group() is not None

    def _own_group(self) -> Group | None:
        group = self._group
        return group if group is not None and group.thread == threading.get_ident() else None

    def _check_not_grouped(self) -> None:
        if self.grouped:
            raise CatalogError("together() of a ledger cannot be nested")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock that lets only one thread of this process write. Failures are raised as `CatalogError`."""
        with self._locked(), self._failures():
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._check_process()
        if not self._lock.acquire(timeout=2 * self._patience):
            raise Unavailable(
                f"the ledger {self.path} was locked by another thread for too long; no paid call is sent without it"
            )
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise failures of the database as `CatalogError`."""
        try:
            yield
        except self.failure as error:
            self.refuse(error)
        except UnicodeEncodeError as error:  # half a surrogate pair, which JSON allows
            raise CatalogError(f"a value to be booked is not valid text: {error.object!r}") from error

    def _check_process(self) -> None:
        if os.getpid() != self._pid:  # neither locks nor connections can be shared with a child process
            raise CatalogError(
                f"the ledger {self.path} was opened before a fork: open it again in the child process"
            )
