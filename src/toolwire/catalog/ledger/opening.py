"""Finds and opens a ledger: a SQLite file, or a Postgres database by its URL."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

from platformdirs import user_state_path

from toolwire._support.log import logger_for
from toolwire.catalog.ledger.sql_ledger import Ledger
from toolwire.catalog.ledger.sqlite import MEMORY, SqliteLedger
from toolwire.catalog.money import dollars
from toolwire.errors import UsageError

if TYPE_CHECKING:
    from toolwire.catalog.ledger.postgres import PostgresLedger

logger = logger_for("catalog")

Address = str | os.PathLike[str]
"""The path of a SQLite file, or the URL of a Postgres database."""
LEDGER: Final = "TOOLWIRE_LEDGER"
"""The environment variable with the address of the ledger."""
_SCHEMES: Final = ("postgresql://", "postgres://")


def state_folder() -> Path:
    """Return the user's state folder."""
    return user_state_path("toolwire", appauthor=False)


def default_address(environ: Mapping[str, str] = os.environ) -> Address:
    """Return the default address of the ledger: `$TOOLWIRE_LEDGER`, or `ledger.db` in the user's state folder."""
    given = environ.get(LEDGER)
    if not given:
        return state_folder() / "ledger.db"
    return given if is_url(given) else Path(given).expanduser()


def is_url(address: object) -> TypeGuard[str]:
    """True if an address is the URL of a Postgres database. UsageError for a URL with another scheme."""
    if not isinstance(address, str):
        return False
    if address.startswith(_SCHEMES):
        return True
    scheme, mark, _ = address.partition("://")
    if mark and scheme.replace("+", "").isalnum():
        raise UsageError(f"a ledger must be a file or a postgresql:// URL, got {scheme}://")
    return False


def is_remote(ledger: Ledger | Address) -> bool:
    """True if processes on other machines may use a ledger, or the one at an address."""
    return is_url(ledger) if isinstance(ledger, str | os.PathLike) else ledger.remote


def is_in_memory(ledger: Ledger | Address) -> bool:
    """True if only this process can use a ledger, or the one at an address."""
    return (os.fspath(ledger) if isinstance(ledger, str | os.PathLike) else ledger.path) == MEMORY


def open_ledger(address: Address, *, create: bool = True) -> "SqliteLedger | PostgresLedger":
    """Open the ledger at an address. It is created if it does not exist, unless `create` is False."""
    if not is_url(address):
        return SqliteLedger(address, create=create)
    from toolwire.catalog.ledger.postgres import PostgresLedger  # noqa: PLC0415 - an extra

    return PostgresLedger(address, create=create)


def recover(ledger: Ledger) -> Ledger:
    """Book the open calls of dead processes as unknown, and log them. Returns the ledger."""
    for row in ledger.recover():
        if row.state == "unknown":
            logger.warning(
                "a call of %s was in flight when its process died: %s is reserved (toolwire catalog reconcile %s)",
                row.tool,
                dollars(row.reserved),
                row.id,
            )
    return ledger
