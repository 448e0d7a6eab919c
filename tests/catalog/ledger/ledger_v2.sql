-- The tables of a ledger's file of version 2, as they were made then.
CREATE TABLE spending (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    at REAL NOT NULL,
    day TEXT NOT NULL,
    session TEXT NOT NULL,
    tool TEXT NOT NULL,
    entry_id TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    reserved INTEGER NOT NULL CHECK (reserved BETWEEN 0 AND 1000000000000),
    exclusive INTEGER NOT NULL CHECK (exclusive IN (0, 1)),
    owner TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'sent', 'settled', 'released', 'unknown')),
    actual INTEGER CHECK (actual BETWEEN 0 AND 1000000000000),
    over INTEGER NOT NULL DEFAULT 0 CHECK (over IN (0, 1)),
    why TEXT NOT NULL DEFAULT '',
    changed REAL NOT NULL,
    money INTEGER NOT NULL GENERATED ALWAYS AS
        (CASE state WHEN 'settled' THEN actual WHEN 'released' THEN 0 ELSE reserved END) STORED,
    CHECK ((state = 'settled') = (actual IS NOT NULL))
) STRICT;

CREATE INDEX by_time ON spending (at);

CREATE INDEX open_ones ON spending (state, entry_id) WHERE state IN ('reserved', 'sent', 'unknown');

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

CREATE TABLE stops (
    entry_id TEXT PRIMARY KEY, tool TEXT NOT NULL, why TEXT NOT NULL, at REAL NOT NULL
) STRICT;

CREATE TABLE untold (entry_id TEXT PRIMARY KEY, tool TEXT NOT NULL, at REAL NOT NULL) STRICT;

CREATE TABLE prices (
    entry_id TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    price INTEGER NOT NULL CHECK (price BETWEEN 0 AND 1000000000000),
    offered INTEGER NOT NULL CHECK (offered BETWEEN 0 AND 1000000000000),
    charged INTEGER NOT NULL DEFAULT 0 CHECK (charged BETWEEN 0 AND 1000000000000)
) STRICT;
PRAGMA application_id=0x74776C67;

PRAGMA user_version=2;
