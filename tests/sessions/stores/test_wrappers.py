"""Stores that wrap another one: they keep the same contract, change keys, or redact secrets."""

import claude_agent_sdk
import pytest
from claude_agent_sdk.testing import run_session_store_conformance as run_official

from toolwire import InMemorySessionStore, RedactingSessionStore, ScopedSessionStore
from toolwire.sessions.types import implements
from toolwire.testing import run_session_store_conformance

pytestmark = pytest.mark.anyio
KEY = {"project_key": "-work", "session_id": "11111111-1111-4111-8111-111111111111"}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda: ScopedSessionStore(InMemorySessionStore(), tenant="one"),
        lambda: RedactingSessionStore(InMemorySessionStore(), secrets=["hunter22"]),
    ],
)
@pytest.mark.asyncio_only
async def test_a_wrapped_store_keeps_every_contract(wrap):
    """It passes our conformance suite and the official one."""
    await run_session_store_conformance(wrap)
    await run_official(wrap)


async def test_tenants_do_not_see_each_other():
    """They share one store, and have sessions with the same project key and id."""
    inner = InMemorySessionStore()
    one, two = ScopedSessionStore(inner, tenant="one"), ScopedSessionStore(inner, tenant="two")
    await one.append(KEY, [{"type": "user", "uuid": "1"}])
    assert await two.load(KEY) is None
    assert await two.list_sessions("-work") == []
    assert len(await one.list_sessions("-work")) == 1


async def test_a_project_key_of_ones_own_joins_machines():
    """With a fixed `project_key`, another folder on another host finds the same sessions."""
    store = ScopedSessionStore(InMemorySessionStore(), project_key="shop")
    await store.append(KEY, [{"type": "user", "uuid": "1"}])
    assert len(await store.load({**KEY, "project_key": "-home-me-shop"})) == 1


@pytest.mark.parametrize("scope", [{}, {"tenant": ""}, {"tenant": "a/b"}])
async def test_a_scope_that_says_nothing_is_refused(scope):
    """So is a scope that could be confused with another one."""
    with pytest.raises(ValueError, match=r"scope|tenant"):
        ScopedSessionStore(InMemorySessionStore(), **scope)


async def test_a_wrapper_has_what_the_store_inside_has():
    """Our own check and the official package's both see exactly the methods of the wrapped store."""

    class Two:
        append = load = None

    store = ScopedSessionStore(Two(), tenant="one")
    assert not implements(store, "delete")
    assert implements(ScopedSessionStore(InMemorySessionStore(), tenant="one"), "delete")
    with pytest.raises(ValueError, match="list_subkeys"):
        await claude_agent_sdk.list_subagents_from_store(store, KEY["session_id"])


async def test_secrets_do_not_reach_the_store():
    """They are replaced at any depth, base64 included, and by pattern; ids, signatures and opaque data are kept."""
    inner = InMemorySessionStore()
    store = RedactingSessionStore(inner, secrets=["hunter22secret"], patterns=[r"AKIA[0-9A-Z]{16}"])
    entry = {
        "type": "assistant",
        "uuid": "hunter22secret",
        "message": {
            "content": [
                {"type": "thinking", "thinking": "use hunter22secret", "signature": "hunter22secret"},
                {"type": "tool_use", "id": "t", "input": {"url": "https://x/?k=hunter22secret", "n": 5}},
                {"type": "redacted_thinking", "data": "hunter22secret"},
                {"type": "text", "text": "AKIAABCDEFGHIJKLMNOP and aHVudGVyMjJzZWNyZXQ="},
            ]
        },
    }
    await store.append(KEY, [entry])
    [stored] = inner.get_entries(KEY)
    blocks = stored["message"]["content"]
    assert (stored["uuid"], blocks[0]["signature"], blocks[2]) == (
        "hunter22secret",
        "hunter22secret",
        entry["message"]["content"][2],
    )
    assert blocks[0]["thinking"] == "use [redacted]"
    assert blocks[1]["input"] == {"url": "https://x/?k=[redacted]", "n": 5}
    assert "AKIA" not in blocks[3]["text"]
    assert "aHVudGVy" not in blocks[3]["text"]  # the secret in base64
