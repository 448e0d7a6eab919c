"""The tables of a ledger's file, their version, and how the file of an older version becomes one of this.

Runs inside a transaction of the caller, so that a file is made or migrated as a whole, by one process only.
"""

from sqlite3 import Connection
from typing import Final

from toolwire.catalog.ledger.types import MOST
from toolwire.errors import CatalogError

VERSION: Final = 3
_MARK: Final = 0x74776C67  # "twlg": this SQLite file is a ledger of ours

# `days` and `sessions` are the sums that the limits need, kept by the database itself: to add up 100,000 calls
# would cost every booking 5 ms. `entry_id` is what money is kept by: a tool's name is the API's to change, and
# stands there for people. `entries` has every name under which an entry was ever listed, so that neither a new id
# nor a new name gets rid of a stop or a price. `unpriced` has the entries whose price neither list nor reply told.
# A blank line ends a statement.
_SCHEMA: Final = f"""
CREATE TABLE spending (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    at REAL NOT NULL,
    day TEXT NOT NULL,
    session TEXT NOT NULL,
    tool TEXT NOT NULL,
    entry_id TEXT NOT NULL,
    variant TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    price INTEGER CHECK (price BETWEEN 0 AND {MOST}),
    guessed INTEGER NOT NULL CHECK (guessed IN (0, 1)),
    reserved INTEGER NOT NULL CHECK (reserved BETWEEN 0 AND {MOST}),
    exclusive INTEGER NOT NULL CHECK (exclusive IN (0, 1)),
    owner TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('sent', 'settled', 'released', 'unknown')),
    actual INTEGER CHECK (actual BETWEEN 0 AND {MOST}),
    over INTEGER NOT NULL DEFAULT 0 CHECK (over IN (0, 1)),
    why TEXT NOT NULL DEFAULT '',
    changed REAL NOT NULL,
    money INTEGER NOT NULL GENERATED ALWAYS AS
        (CASE state WHEN 'settled' THEN actual WHEN 'released' THEN 0 ELSE reserved END) STORED,
    CHECK ((state = 'settled') = (actual IS NOT NULL)),
    CHECK (price IS NOT NULL OR reserved = 0)
) STRICT;

CREATE INDEX by_time ON spending (at);

CREATE INDEX open_ones ON spending (state, exclusive) WHERE state IN ('sent', 'unknown');

CREATE UNIQUE INDEX one_call_a_key ON spending (session, key) WHERE state <> 'released' AND key <> '';

CREATE TABLE days (day TEXT PRIMARY KEY, money INTEGER NOT NULL CHECK (money >= 0)) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    session TEXT NOT NULL, entry_id TEXT NOT NULL, money INTEGER NOT NULL CHECK (money >= 0),
    PRIMARY KEY (session, entry_id)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER booked AFTER INSERT ON spending BEGIN
    INSERT INTO days VALUES (new.day, new.money) ON CONFLICT DO UPDATE SET money = money + excluded.money;
    INSERT INTO sessions VALUES (new.session, new.entry_id, new.money)
        ON CONFLICT DO UPDATE SET money = money + excluded.money; END;

CREATE TRIGGER changed AFTER UPDATE ON spending WHEN new.money <> old.money BEGIN
    UPDATE days SET money = money + new.money - old.money WHERE day = new.day;
    UPDATE sessions SET money = money + new.money - old.money
        WHERE session = new.session AND entry_id = new.entry_id; END;

CREATE TABLE entries (
    entry_id TEXT NOT NULL, name TEXT NOT NULL, scope TEXT NOT NULL, first_seen REAL NOT NULL,
    PRIMARY KEY (entry_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX by_name ON entries (scope, name);

CREATE TABLE stops (
    entry_id TEXT PRIMARY KEY, tool TEXT NOT NULL, why TEXT NOT NULL, at REAL NOT NULL,
    inherited_from TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE unpriced (
    entry_id TEXT NOT NULL, variant TEXT NOT NULL, tool TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (entry_id, variant)
) STRICT;

CREATE TABLE prices (
    entry_id TEXT NOT NULL,
    variant TEXT NOT NULL,
    tool TEXT NOT NULL,
    price INTEGER NOT NULL CHECK (price BETWEEN 0 AND {MOST}),
    offered INTEGER NOT NULL CHECK (offered BETWEEN 0 AND {MOST}),
    charged INTEGER NOT NULL DEFAULT 0 CHECK (charged BETWEEN 0 AND {MOST}),
    confirmed INTEGER NOT NULL DEFAULT 0 CHECK (confirmed IN (0, 1)),
    lost INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (entry_id, variant)
) STRICT;
"""  # noqa: S608 - a constant

# Version 2 booked a call as reserved before it was connected: what is still in that state was never sent, and its
# process, if it still runs, can no longer book it as sent. An agreed price counts as confirmed if a call was
# settled with it. The names of tools stand for those of entries, which version 2 did not keep.
_FROM_2_BEFORE: Final = """
DROP TRIGGER booked;

DROP TRIGGER changed;

DROP INDEX by_time;

DROP INDEX open_ones;

DROP INDEX one_call_a_key;

DROP TABLE days;

DROP TABLE sessions;

ALTER TABLE spending RENAME TO spending_2;

ALTER TABLE stops RENAME TO stops_2;

ALTER TABLE prices RENAME TO prices_2;
"""
_FROM_2_AFTER: Final = """
INSERT INTO spending (number, id, at, day, session, tool, entry_id, variant, key, digest, price, guessed, reserved,
        exclusive, owner, state, actual, over, why, changed)
    SELECT number, id, at, day, session, tool, entry_id, '', key, digest,
        CASE WHEN exclusive = 1 AND reserved = 0 THEN NULL ELSE reserved END, 0, reserved, exclusive, owner,
        CASE state WHEN 'reserved' THEN 'released' ELSE state END, actual, over, why, changed
    FROM spending_2 ORDER BY number;

INSERT INTO stops (entry_id, tool, why, at) SELECT entry_id, tool, why, at FROM stops_2;

INSERT INTO unpriced (entry_id, variant, tool, at) SELECT entry_id, '', tool, at FROM untold;

INSERT INTO prices (entry_id, variant, tool, price, offered, charged, confirmed)
    SELECT entry_id, '', tool, price, offered, charged, charged <= price AND entry_id IN (
        SELECT entry_id FROM spending_2 WHERE state = 'settled' AND over = 0 AND actual <= prices_2.price)
    FROM prices_2;

INSERT OR IGNORE INTO entries (entry_id, name, scope, first_seen)
    SELECT entry_id, tool, CASE instr(entry_id, ':') WHEN 0 THEN entry_id
        ELSE substr(entry_id, 1, instr(entry_id, ':') - 1) END, min(at)
    FROM (SELECT entry_id, tool, at FROM spending_2 UNION ALL SELECT entry_id, tool, at FROM stops_2
        UNION ALL SELECT entry_id, tool, at FROM untold UNION ALL SELECT entry_id, tool, 0.0 FROM prices_2)
    WHERE tool <> '' GROUP BY entry_id, tool;

DROP TABLE spending_2;

DROP TABLE stops_2;

DROP TABLE prices_2;

DROP TABLE untold;
"""


def prepare(connection: Connection, path: str) -> None:
    """Create the tables of a new file, migrate those of an older version, reject a file that is not a ledger."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    if mark == _MARK and version == VERSION:
        return
    if mark == _MARK and version == 2:  # noqa: PLR2004 - the version before
        _run(connection, _FROM_2_BEFORE, _SCHEMA, _FROM_2_AFTER)
    elif mark == _MARK and version > VERSION:
        raise CatalogError(
            f"the ledger {path} was written by a newer toolwire (version {version} of the file, this one knows"
            f" {VERSION}): update toolwire, or use another ledger"
        )
    elif mark == _MARK:
        # Version 1 kept prices and stops without saying of which API: nothing of them would be found again.
        raise CatalogError(
            f"the ledger {path} was written by an early toolwire (version {version} of the file) that did not keep"
            f" APIs apart, so it cannot be brought to version {VERSION}: use another ledger"
        )
    elif mark or version or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
        raise CatalogError(f"{path} is a database, but no ledger of toolwire")
    else:
        _run(connection, _SCHEMA)
    connection.execute(f"PRAGMA application_id={_MARK}")
    connection.execute(f"PRAGMA user_version={VERSION}")


def _run(connection: Connection, *scripts: str) -> None:
    # Not executescript: it would commit first, and two processes may be here at once.
    for script in scripts:
        for statement in script.strip().split("\n\n"):
            connection.execute(statement)
