"""The sample paid API of the examples, and toolwire's client for it, with waits too short to notice."""

import sys
from dataclasses import replace
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "paid_api.py"
sys.path.insert(0, str(PROGRAM.parent))

from _paid_products import BROKEN  # noqa: E402 - found by the line above
from paid_api import Fault, PaidApi  # noqa: E402

from toolwire.catalog.http.api import Api, Retry  # noqa: E402
from toolwire.catalog.profile.model import BUILTIN  # noqa: E402

__all__ = ["BROKEN", "KEYS", "PROGRAM", "Fault", "PaidApi", "api_for", "profile_for"]

KEYS = {"x-api-key": "key-of-a-test", "x-budget-key": "budget-of-a-test"}
QUICK = Retry(attempts=3, wait=0.01, longest_wait=0.02, jitter=0.0, longest_retry_after=0.05)


def profile_for(url, **changes):
    """AgentPMT's profile, at another address."""
    changes = {"price": "price", "category": "category", "timeout": 5.0, **changes}
    return replace(BUILTIN["agentpmt"], base_url=url, **changes)


def api_for(
    url,
    *,
    retry=QUICK,
    secrets=KEYS,
    connect_timeout=2.0,
    transport=None,
    resolver=None,
    ssl_context=None,
    **changes,
):
    """A client for that address; `changes` are settings of the profile."""
    more = {} if resolver is None else {"resolver": resolver}
    return Api(
        profile_for(url, **changes),
        secrets,
        retry=retry,
        connect_timeout=connect_timeout,
        transport=transport,
        ssl_context=ssl_context,
        **more,
    )
