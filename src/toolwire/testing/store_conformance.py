"""Checks that a session store provides what the session functions, mirroring and resuming rely on.

Each contract is a function that gets a fresh store. It raises AssertionError, so that any test runner can be used.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import anyio

from toolwire.messages.system import SessionKey
from toolwire.sessions.entries import fold_session_summary
from toolwire.sessions.types import SessionStore, SessionStoreEntry, implements

_SESSION: Final = "11111111-1111-4111-8111-111111111111"
_OTHER: Final = "22222222-2222-4222-8222-222222222222"
_MAIN: Final[SessionKey] = {"project_key": "-proj", "session_id": _SESSION}
_AGENT: Final[SessionKey] = {**_MAIN, "subpath": "subagents/agent-a1"}
_MILLISECONDS_FROM: Final = 10**12
_CONCURRENT: Final = 8
_LARGE: Final = 20_000_000
_SHOWN: Final = 500

Contract = Callable[[Any], Awaitable[None]]
_OPTIONAL: Final = ("list_sessions", "list_session_summaries", "delete", "list_subkeys")


async def run_session_store_conformance(
    make_store: Callable[[], SessionStore | Awaitable[SessionStore]],
    *,
    skip_optional: frozenset[str] = frozenset(),
    strict: bool = True,
) -> None:
    """Check every contract on a fresh store from `make_store`. Raises AssertionError with the contract's name.

    `skip_optional`: optional methods that are not tested; methods that the store does not have are skipped anyway.
    `strict=False`: check only what the suite of the same name in the official package checks. The other contracts
    protect the data: no duplicates, exact entries, concurrent writers.
    """
    if unknown := set(skip_optional) - set(_OPTIONAL):
        raise AssertionError(f"skip_optional names methods that are not optional: {sorted(unknown)}")
    for contract, needs, is_ours in _CONTRACTS:
        store = make_store()
        if inspect.isawaitable(store):
            store = await store
        if set(needs) & skip_optional or not all(implements(store, each) for each in needs):
            continue
        if is_ours and not strict:
            continue
        try:
            await contract(store)
        except Exception as error:
            name = contract.__name__.replace("_", " ").strip()
            raise AssertionError(
                f"the store breaks the contract {name!r}: {str(error) or type(error).__name__}"
            ) from error


def _expect(found: object, expected: object, why: str = "") -> None:
    """Raise AssertionError if the values differ. Also works under `python -O`, unlike `assert`."""
    if found != expected:
        rule = f"{why}: " if why else ""
        raise AssertionError(f"{rule}got {_shorten(found)}, expected {_shorten(expected)}")


def _shorten(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


async def _keeps_order(store: Any) -> None:
    await store.append(_MAIN, _make(1, 2, 3))
    await store.append(_MAIN, _make(4, 5))
    _expect(await store.load(_MAIN), _make(1, 2, 3, 4, 5))


async def _returns_none_for_an_unknown_key(store: Any) -> None:
    _expect(await store.load(_MAIN), None, "load() of a key that was never written must be None")
    await store.append(_MAIN, _make(1))
    _expect(await store.load({**_MAIN, "subpath": "subagents/agent-x"}), None)


async def _ignores_an_empty_append(store: Any) -> None:
    await store.append(_MAIN, _make(1))
    await store.append(_MAIN, [])
    _expect(await store.load(_MAIN), _make(1))


async def _keeps_subagents_apart(store: Any) -> None:
    await store.append(_MAIN, _make(1))
    await store.append(_AGENT, _make(2))
    _expect((await store.load(_MAIN), await store.load(_AGENT)), (_make(1), _make(2)))


async def _keeps_projects_apart(store: Any) -> None:
    other: SessionKey = {**_MAIN, "project_key": "-other"}
    await store.append(_MAIN, _make(1))
    await store.append(other, _make(2))
    _expect((await store.load(_MAIN), await store.load(other)), (_make(1), _make(2)))


async def _lists_sessions(store: Any) -> None:
    await store.append(_MAIN, _make(1))
    await store.append({**_MAIN, "session_id": _OTHER}, _make(1))
    await store.append(_AGENT, _make(1))
    listed = await store.list_sessions("-proj")
    _expect(
        sorted(each["session_id"] for each in listed),
        [_SESSION, _OTHER],
        "subagents must not be listed as sessions",
    )
    _expect(
        all(each["mtime"] > _MILLISECONDS_FROM for each in listed),
        True,
        "mtime must be milliseconds since 1970",
    )
    _expect(await store.list_sessions("-empty"), [])


async def _deletes_only_the_given_session(store: Any) -> None:
    other: SessionKey = {**_MAIN, "session_id": _OTHER}
    elsewhere: SessionKey = {**_MAIN, "project_key": "-other"}
    await store.delete(_MAIN)  # unknown: no error
    for key in (_MAIN, _AGENT, other, elsewhere):
        await store.append(key, _make(1))
    await store.delete(_MAIN)
    _expect(
        [await store.load(key) for key in (_MAIN, _AGENT)],
        [None, None],
        "deleting a session must delete its subagents",
    )
    _expect([await store.load(key) for key in (other, elsewhere)], [_make(1)] * 2, "other sessions must stay")


async def _deletes_one_subagent(store: Any) -> None:
    second: SessionKey = {**_MAIN, "subpath": "subagents/agent-a2"}
    for key in (_MAIN, _AGENT, second):
        await store.append(key, _make(1))
    await store.delete(_AGENT)
    _expect([await store.load(key) for key in (_MAIN, _AGENT, second)], [_make(1), None, _make(1)])


async def _forgets_deleted_sessions_in_lists(store: Any) -> None:
    await store.append(_MAIN, _make(1))
    await store.delete(_MAIN)
    _expect(await store.list_sessions("-proj"), [])


async def _lists_subkeys(store: Any) -> None:
    await store.append(_MAIN, _make(1))
    await store.append(_AGENT, _make(1))
    await store.append({**_MAIN, "session_id": _OTHER, "subpath": "subagents/agent-b"}, _make(1))
    found = await store.list_subkeys({"project_key": "-proj", "session_id": _SESSION})
    _expect(
        list(found),
        ["subagents/agent-a1"],
        "list_subkeys() must return only this session's keys, without the main transcript",
    )


async def _keeps_summaries(store: Any) -> None:
    await store.append(_MAIN, [_say(1, "first"), _make_title("Mine")])
    await store.append({**_MAIN, "project_key": "-other"}, _make(1))
    await store.append(_MAIN, [_make_title("Newer")])
    [found] = await store.list_session_summaries("-proj")
    expected = fold_session_summary(
        None, _MAIN, [_say(1, "first"), _make_title("Mine"), _make_title("Newer")]
    )
    _expect((found["session_id"], found["data"]), (_SESSION, expected["data"]))
    _expect(found["mtime"] > _MILLISECONDS_FROM, True, "mtime must be milliseconds since 1970")
    again = fold_session_summary(found, _MAIN, [_make_title("Newest")])
    _expect(again["data"]["custom_title"], "Newest")


async def _stamps_summaries_with_the_time_of_the_list(store: Any) -> None:
    await store.append(_MAIN, _make(1))
    [listed], [summary] = await store.list_sessions("-proj"), await store.list_session_summaries("-proj")
    _expect(
        summary["mtime"] >= listed["mtime"],
        True,
        "a summary must not be older than its session, or it counts as stale",
    )


async def _does_not_change_summaries_for_subagents(store: Any) -> None:
    await store.append(_MAIN, [_say(1, "main")])
    before = await store.list_session_summaries("-proj")
    await store.append(_AGENT, [_say(2, "agent"), _make_title("of the agent")])
    _expect(
        [each["data"] for each in await store.list_session_summaries("-proj")],
        [each["data"] for each in before],
    )


async def _forgets_summaries_of_deleted_sessions(store: Any) -> None:
    await store.append(_MAIN, _make(1))
    await store.delete(_MAIN)
    _expect(await store.list_session_summaries("-proj"), [])


async def _stores_an_entry_once(store: Any) -> None:
    await store.append(_MAIN, _make(1, 2))
    await store.append(_MAIN, _make(1, 2, 3))  # a retry after a timeout with unknown outcome
    _expect(await store.load(_MAIN), _make(1, 2, 3), "an entry with a known uuid must be ignored")
    await store.append(_AGENT, _make(1))
    _expect(await store.load(_AGENT), _make(1), "uuids are only unique within a transcript")


async def _stores_an_entry_once_that_is_twice_in_a_batch(store: Any) -> None:
    await store.append(_MAIN, _make(1, 2, 1))
    _expect(await store.load(_MAIN), _make(1, 2), "an entry with a known uuid must be ignored")


async def _stores_batches_whole_after_cancelled_appends_and_retries(store: Any) -> None:
    """Cancel appends at several points. Their outcome is unknown, so all are sent again."""
    for attempt in range(6):
        with anyio.move_on_after(attempt * 0.002):
            await store.append(_MAIN, _make(*range(attempt * 100, attempt * 100 + 100)))
    for attempt in range(6):
        await store.append(_MAIN, _make(*range(attempt * 100, attempt * 100 + 100)))
    batches = _split([int(each["uuid"]) for each in await store.load(_MAIN)], 100)
    expected = [list(range(attempt * 100, attempt * 100 + 100)) for attempt in range(6)]
    _expect(sorted(batches), expected, "a batch must be stored completely and once, or not at all")


async def _stores_entries_without_a_uuid_each_time(store: Any) -> None:
    note = cast(SessionStoreEntry, {"type": "last-prompt", "lastPrompt": "x"})
    await store.append(_MAIN, [note])
    await store.append(_MAIN, [note, note])
    _expect(await store.load(_MAIN), [note] * 3)


async def _keeps_entries_exactly(store: Any) -> None:
    odd = {
        "type": "user",
        "uuid": "odd",
        "text": "NUL \x00, half a pair \ud83d, \u2028 🚀",
        "numbers": [2**80, -(2**63), 1e308, 0.1, 1, True, None],
        "nested": {"": [{}, [[]]], "a.b": {"$c": "d"}},
    }
    await store.append(_MAIN, [odd])
    _expect(await store.load(_MAIN), [odd])


async def _keeps_large_entries(store: Any) -> None:
    large = cast(SessionStoreEntry, {"type": "user", "uuid": "large", "text": "0123456789" * (_LARGE // 10)})
    await store.append(_MAIN, [large])
    _expect(await store.load(_MAIN), [large])


async def _keeps_batches_of_several_writers_whole(store: Any) -> None:
    async with anyio.create_task_group() as group:
        for writer in range(_CONCURRENT):
            group.start_soon(store.append, _MAIN, _make(*range(writer * 10, writer * 10 + 5)))
    names = [int(each["uuid"]) for each in await store.load(_MAIN)]
    batches = _split(names, 5)
    expected = [list(range(writer * 10, writer * 10 + 5)) for writer in range(_CONCURRENT)]
    _expect(sorted(batches), expected, "the entries of one append must stay together")


async def _summarizes_entries_of_several_writers(store: Any) -> None:
    async with anyio.create_task_group() as group:
        for writer in range(_CONCURRENT):
            group.start_soon(store.append, _MAIN, [_say(writer, f"by {writer}"), _make_title(f"of {writer}")])
    [found] = await store.list_session_summaries("-proj")
    expected = fold_session_summary(None, _MAIN, await store.load(_MAIN))
    _expect(found["data"], expected["data"], "the summary must cover all entries, in their order")


async def _lists_and_deletes_only_the_given_project(store: Any) -> None:
    projects = ["a", "a-", "ab", "A", "a/b", "a:b", "a%", "a_", "*", "ä"]
    for number, project in enumerate(projects):
        await store.append({"project_key": project, "session_id": _SESSION}, _make(number))
    await store.delete({"project_key": "a", "session_id": _SESSION})
    counts = [len(await store.list_sessions(project)) for project in projects]
    _expect(
        counts,
        [0, *[1] * (len(projects) - 1)],
        "the name of a project must not be used as a pattern or prefix",
    )


async def _reports_another_writer(store: Any) -> None:
    """Two conversations that write to one session must be able to detect each other."""
    returned = [await store.append_from(_MAIN, _make(number), who) for number, who in enumerate("aabba")]
    _expect(
        returned,
        [None, None, "a", None, "b"],
        "append_from() must return the previous writer if it was a different one",
    )


async def _distinguishes_similar_keys(store: Any) -> None:
    keys: list[SessionKey] = [
        {"project_key": "a", "session_id": _SESSION},
        {"project_key": "a-", "session_id": _SESSION},
        {"project_key": "a:b", "session_id": _SESSION},
        {"project_key": "a", "session_id": _SESSION, "subpath": "x"},
        {"project_key": "a", "session_id": _SESSION, "subpath": "x/y"},
        {"project_key": "a", "session_id": _SESSION, "subpath": "x:y"},
        {"project_key": "a", "session_id": _SESSION, "subpath": "X"},
        {"project_key": "a", "session_id": _SESSION, "subpath": "ü%_*"},
        {"project_key": "a", "session_id": _SESSION, "subpath": "../x"},
        {"project_key": "a", "session_id": _SESSION, "subpath": "a b\n{c}'\"\\"},
        {"project_key": "a", "session_id": _SESSION, "subpath": "subagents/" + "n" * 500},
    ]
    for number, key in enumerate(keys):
        await store.append(key, _make(number))
    _expect([await store.load(key) for key in keys], [_make(number) for number in range(len(keys))])


async def _returns_copies(store: Any) -> None:
    await store.append(_MAIN, [_say(1, "mine")])
    [found] = await store.load(_MAIN)
    found["message"]["content"] = "changed"
    _expect(
        await store.load(_MAIN),
        [_say(1, "mine")],
        "changing the value that load() returned must not change the store",
    )


def _split(names: list[int], size: int) -> list[list[int]]:
    return [names[at : at + size] for at in range(0, len(names), size)]


def _make(*numbers: int) -> list[SessionStoreEntry]:
    return [cast(SessionStoreEntry, {"type": "user", "uuid": str(number), "n": number}) for number in numbers]


def _say(number: int, text: str) -> SessionStoreEntry:
    message = {"role": "user", "content": text}
    return cast(SessionStoreEntry, {"type": "user", "uuid": str(number), "message": message})


def _make_title(title: str) -> SessionStoreEntry:
    return cast(SessionStoreEntry, {"type": "custom-title", "customTitle": title})


_CONTRACTS: Final[list[tuple[Contract, tuple[str, ...], bool]]] = [
    (_keeps_order, (), False),
    (_returns_none_for_an_unknown_key, (), False),
    (_ignores_an_empty_append, (), False),
    (_keeps_subagents_apart, (), False),
    (_keeps_projects_apart, (), False),
    (_lists_sessions, ("list_sessions",), False),
    (_deletes_only_the_given_session, ("delete",), False),
    (_deletes_one_subagent, ("delete",), False),
    (_forgets_deleted_sessions_in_lists, ("delete", "list_sessions"), False),
    (_lists_subkeys, ("list_subkeys",), False),
    (_keeps_summaries, ("list_session_summaries",), False),
    (_stamps_summaries_with_the_time_of_the_list, ("list_sessions", "list_session_summaries"), False),
    (_does_not_change_summaries_for_subagents, ("list_session_summaries",), False),
    (_forgets_summaries_of_deleted_sessions, ("delete", "list_session_summaries"), False),
    (_stores_an_entry_once, (), True),
    (_stores_an_entry_once_that_is_twice_in_a_batch, (), True),
    (_stores_batches_whole_after_cancelled_appends_and_retries, (), True),
    (_stores_entries_without_a_uuid_each_time, (), True),
    (_keeps_entries_exactly, (), True),
    (_keeps_large_entries, (), True),
    (_keeps_batches_of_several_writers_whole, (), True),
    (_summarizes_entries_of_several_writers, ("list_session_summaries",), True),
    (_lists_and_deletes_only_the_given_project, ("list_sessions", "delete"), True),
    (_reports_another_writer, ("append_from",), True),
    (_distinguishes_similar_keys, (), True),
    (_returns_copies, (), True),
]
"""Each contract, the optional methods that it needs, and True if it is not in the official suite."""
