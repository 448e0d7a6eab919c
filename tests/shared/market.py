"""The sample paid API of the examples, and toolwire's client for it, with waits too short to notice."""

import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "paid_api.py"
sys.path.insert(0, str(PROGRAM.parent))

from _paid_products import BROKEN, Product, takes  # noqa: E402 - found by the line above
from paid_api import Fault, PaidApi  # noqa: E402

from toolwire.catalog.http.api import Api  # noqa: E402
from toolwire.catalog.http.connection import Retry  # noqa: E402
from toolwire.catalog.profile.model import BUILTIN  # noqa: E402
from toolwire.catalog.profile.tables import Call, Request  # noqa: E402
from toolwire.catalog.secrets import Credentials  # noqa: E402

__all__ = [
    "BROKEN",
    "KEYS",
    "PRICED",
    "PROGRAM",
    "Fault",
    "PaidApi",
    "Product",
    "api_for",
    "keys_of",
    "profile_for",
    "takes",
]

KEYS = {"x-api-key": "key-of-a-test", "x-budget-key": "budget-of-a-test"}
# Where the settings go that a test may give without their table.
TABLES = {
    "price": ("entry.price.path",),
    "category": ("entry.category",),
    "timeout": ("call.timeout", "list.timeout"),
    "max_reply_bytes": ("call.max_reply_bytes", "list.max_reply_bytes"),
    **{name: (f"call.{name}",) for name in Call.model_fields if name not in Request.model_fields},
    "body": ("call.body",),
}
QUICK = Retry(attempts=3, wait=0.01, longest_wait=0.02, jitter=0.0, longest_retry_after=0.05)

# AgentPMT's API, with prices where the sample API has them.
PRICED = """
name = "priced"
base_url = "https://api.example.com"
[list]
path = "/products/fetch"
items = "tools"
paging = { kind = "page", size_parameter = "page_size", more = "details.has_next_page" }
[entry]
id = "function.name"
name = "function.name"
description = "function.description"
schema = "function.parameters"
category = "category"
name_separator = " — "
price = { path = "price" }
[call]
path = "/products/purchase"
id_field = "product_id"
arguments = "parameters"
timeout = 20
[environment]
base_url = "AGENT_PAYMENT_BASE_URL"
budget = "AGENT_PAYMENT_BUDGET"
[secrets.api_key]
variable = "AGENT_PAYMENT_API_KEY"
name = "api_key"
key = "x-api-key"
[secrets.budget_key]
variable = "AGENT_PAYMENT_BUDGET_KEY"
name = "budget_key"
key = "x-budget-key"
"""


def profile_for(url, *, based_on="agentpmt-keys", **changes):
    """Return AgentPMT's older profile for another address; `changes` are tables, or settings of TABLES."""
    tables = {"base_url": url}
    for name, value in {"price": "price", "category": "category", "timeout": 5.0, **changes}.items():
        for path in TABLES.get(name, (name,)):
            *steps, last = path.split(".")
            table = tables
            for step in steps:
                table = table.setdefault(step, {})
            table[last] = value
    return BUILTIN[based_on].changed(**tables)


def keys_of(headers):
    """Return credentials that consist of these headers."""
    return Credentials(headers=headers, values=tuple(headers.values()))


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
    """Make a client for that address; `changes` are settings of the profile."""
    more = {} if resolver is None else {"resolver": resolver}
    return Api(
        profile_for(url, **changes),
        keys_of(secrets),
        retry=retry,
        connect_timeout=connect_timeout,
        transport=transport,
        ssl_context=ssl_context,
        **more,
    )
