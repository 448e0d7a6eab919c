"""Remote catalogues as tools: what a REST API sells becomes tools that are checked, budgeted and accounted for.

Each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.catalog.gateway import Catalog as Catalog
    from toolwire.catalog.gateway import Status as Status
    from toolwire.catalog.http import Retry as Retry
    from toolwire.catalog.ledger import SqliteLedger as SqliteLedger
    from toolwire.catalog.limits import Breaker as Breaker
    from toolwire.catalog.profile import ListParams as ListParams
    from toolwire.catalog.profile import Profile as Profile
    from toolwire.catalog.profile import Secret as Secret
    from toolwire.catalog.spending import Ledger as Ledger
    from toolwire.catalog.spending import Limits as Limits

_WHERE = {
    "Breaker": "limits",
    "Catalog": "gateway",
    "Ledger": "spending",
    "Limits": "spending",
    "ListParams": "profile",
    "Profile": "profile",
    "Retry": "http",
    "Secret": "profile",
    "SqliteLedger": "ledger",
    "Status": "gateway",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605 - the names above, for type checkers


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
