"""Remote catalogues as tools: what a REST API sells becomes tools that are checked, budgeted and accounted for.

Each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolwire.catalog.http.retry import Retry as Retry
    from toolwire.catalog.ledger.sqlite import SqliteLedger as SqliteLedger
    from toolwire.catalog.ledger.types import Ledger as Ledger
    from toolwire.catalog.ledger.types import Limits as Limits
    from toolwire.catalog.profile.model import Profile as Profile
    from toolwire.catalog.profile.model import Secret as Secret
    from toolwire.catalog.purchase.limits import Breaker as Breaker
    from toolwire.catalog.server import Catalog as Catalog
    from toolwire.catalog.server import Status as Status

_WHERE = {
    "Breaker": "purchase.limits",
    "Catalog": "server",
    "Ledger": "ledger.types",
    "Limits": "ledger.types",
    "Profile": "profile.model",
    "Retry": "http.retry",
    "Secret": "profile.model",
    "SqliteLedger": "ledger.sqlite",
    "Status": "server",
}

__all__ = sorted(_WHERE)  # noqa: PLE0605 - the names above, for type checkers


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
