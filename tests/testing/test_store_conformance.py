"""The conformance suite for session stores: our stores pass it and the official one, and a faulty store fails."""

import claude_agent_sdk
import pytest
from claude_agent_sdk.testing import run_session_store_conformance as run_official

from toolwire import InMemorySessionStore
from toolwire.testing import run_session_store_conformance

pytestmark = pytest.mark.anyio


async def test_our_stores_keep_every_contract(make_store):
    """Our suite checks the contracts of the official suite and more."""
    await run_session_store_conformance(make_store)


@pytest.mark.asyncio_only
async def test_our_stores_pass_the_official_suite(make_store):
    """This runs the suite of the official package itself."""
    await run_official(make_store)


async def test_the_official_store_passes_the_official_part():
    """It fails our own part, because it stores repeated entries twice."""
    await run_session_store_conformance(claude_agent_sdk.InMemorySessionStore, strict=False)
    with pytest.raises(AssertionError, match="stores an entry once"):
        await run_session_store_conformance(claude_agent_sdk.InMemorySessionStore)


class Minimal:
    """A store with only the required methods."""

    def __init__(self):
        self._inner = InMemorySessionStore()

    async def append(self, key, entries):
        """Add entries."""
        await self._inner.append(key, entries)

    async def load(self, key):
        """Return entries."""
        return await self._inner.load(key)


async def test_methods_that_a_store_lacks_are_left_out():
    """Two methods are enough; the store may be created by a coroutine."""

    async def make():
        return Minimal()

    await run_session_store_conformance(make)


def break_store(method, **changes):
    """Return a store class in which one method is wrong."""
    return type("Broken", (InMemorySessionStore,), {method: changes["by"]})


async def _append_reversed(self, key, entries):
    await InMemorySessionStore.append(self, key, entries[::-1])


async def _load_empty(self, key):
    return await InMemorySessionStore.load(self, key) or []


async def _load_ignores_subpath(self, key):
    return await InMemorySessionStore.load(self, {name: key[name] for name in ("project_key", "session_id")})


async def _list_in_seconds(self, project_key):
    listed = await InMemorySessionStore.list_sessions(self, project_key)
    return [{**each, "mtime": each["mtime"] // 1000} for each in listed]


async def _delete_without_subagents(self, key):
    self._transcripts.pop((key["project_key"], key["session_id"], key.get("subpath", "")), None)


async def _summaries_of_all(self, project_key):
    return list(self._summaries.values())


async def _subkeys_of_all(self, key):
    return [subpath for _, _, subpath in self._transcripts if subpath]


async def _load_lossy(self, key):
    found = await InMemorySessionStore.load(self, key)
    return found and [
        {**each, **({"text": each["text"].replace("\0", "")} if "text" in each else {})} for each in found
    ]


@pytest.mark.parametrize(
    ("method", "wrong", "contract"),
    [
        ("append", _append_reversed, "keeps order"),
        ("load", _load_empty, "returns none for an unknown key"),
        ("load", _load_ignores_subpath, "returns none for an unknown key"),
        ("list_sessions", _list_in_seconds, "lists sessions"),
        ("delete", _delete_without_subagents, "deletes only the given session"),
        ("list_session_summaries", _summaries_of_all, "keeps summaries"),
        ("list_subkeys", _subkeys_of_all, "lists subkeys"),
        ("load", _load_lossy, "keeps entries exactly"),
    ],
)
async def test_a_fault_is_named(method, wrong, contract):
    """The error names the contract that the store breaks."""
    with pytest.raises(AssertionError, match=contract):
        await run_session_store_conformance(break_store(method, by=wrong))


async def test_a_name_that_is_not_optional_is_refused():
    """A misspelt name must not skip a check."""
    with pytest.raises(AssertionError, match="load"):
        await run_session_store_conformance(InMemorySessionStore, skip_optional=frozenset({"load"}))
