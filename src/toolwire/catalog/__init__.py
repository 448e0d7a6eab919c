"""Remote catalogues: the entries of a REST API become tools whose calls are checked, budgeted and booked.

Each name is imported when it is first used; `make generate` writes the stub for type checkers.
"""

from toolwire import _find_names, _load_lazily

_CATALOG_NAMES = {
    "catalog.http.connection": "Retry",
    "catalog.ledger.postgres": "PostgresLedger",
    "catalog.ledger.sql_ledger": "Ledger",
    "catalog.ledger.sqlite": "SqliteLedger",
    "catalog.ledger.types": "Limits",
    "catalog.profile.model": "Profile Secret",
    "catalog.purchase.limits": "Breaker",
    "catalog.refresh": "Status",
    "catalog.server": "Catalog",
}

_load_lazily(globals(), _find_names(_CATALOG_NAMES))
