"""Spans of served requests: `mcp` makes them, and only if they are turned on."""

import pytest

from shared.http_clients import HANDSHAKE, MODERN, Calc, served, text_of
from shared.spans import exporter
from toolwire import as_mcp_server
from toolwire._support.tracing import VARIABLE


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_call_over_http_has_a_span_if_that_was_asked_for(version, asked, monkeypatch):
    """A tracer provider alone causes no spans, neither on the fast path nor in `mcp`."""
    monkeypatch.setenv(VARIABLE, "1" if asked else "0")
    exporter().clear()
    async with served(Calc(), version) as client:
        assert text_of(await client.call("add", a=1, b=2)) == "3.0"
        await client.post("resources/list", {}, 2)  # never on the fast path
    names = [span.name for span in exporter().get_finished_spans()]
    assert {"tools/call add", "resources/list"} <= set(names) if asked else names == []


def test_a_server_for_other_code_follows_the_same_rule(monkeypatch):
    """What `as_mcp_server` returns has the middleware that makes spans only if they are turned on."""
    for asked in ("1", "0"):
        monkeypatch.setenv(VARIABLE, asked)
        kinds = {type(each).__name__ for each in as_mcp_server(Calc().server).middleware}
        assert ("OpenTelemetryMiddleware" in kinds) is (asked == "1")
