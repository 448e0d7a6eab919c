"""Every function for sessions and the official one on the same files: the same answer, or a reason."""

import json
import re
from dataclasses import asdict, is_dataclass

import anyio
import claude_agent_sdk as official
import pytest

import toolwire as ours
from differential.differences import SESSIONS
from differential.session_cases import AGENT, CASES, Case
from shared.transcripts import SESSION

OURS, THEIRS = "toolwire", "official"
PACKAGES = {OURS: ours, THEIRS: official}


class Run:
    """One function of one package on a fresh copy of a case."""

    def __init__(self, package, make, config):
        self.package = package
        self.case = Case(config)
        make(self.case)
        self.config = config
        self.directory = self.case.directory or None
        self.session = self.case.session

    # --- on disk ---

    def list_sessions(self):
        return self.package.list_sessions(self.directory)

    def list_sessions_page(self):
        return self.package.list_sessions(self.directory, 1, 0, False)

    def get_session_info(self):
        return self.package.get_session_info(self.session, self.directory)

    def get_session_messages(self):
        return self.package.get_session_messages(self.session, self.directory)

    def get_session_messages_page(self):
        return self.package.get_session_messages(self.session, self.directory, 2, 1)

    def get_session_messages_before_the_start(self):
        return self.package.get_session_messages(self.session, self.directory, 1, -1)

    def list_subagents(self):
        return self.package.list_subagents(self.session, self.directory)

    def get_subagent_messages(self):
        return self.package.get_subagent_messages(self.session, AGENT, self.directory)

    def rename_session(self):
        before = self.files()
        self.package.rename_session(self.session, " New ", self.directory)
        return self.changes(before)

    def tag_session(self):
        before = self.files()
        self.package.tag_session(self.session, "blue\u200b", self.directory)
        self.package.tag_session(self.session, None, self.directory)
        return self.changes(before)

    def delete_session(self):
        self.package.delete_session(self.session, self.directory)
        return sorted(self.files())

    def fork_session(self):
        before = self.files()
        made = self.package.fork_session(self.session, self.directory, self.case.up_to)
        new = {name: raw for name, raw in self.files().items() if name not in before}
        lines = next(raw for name, raw in new.items() if name.endswith(f"{made.session_id}.jsonl"))
        others = sorted(name.replace(made.session_id, "<id>") for name in new)
        return [normalise([json.loads(line) for line in lines.splitlines()]), others]

    def project_key_for_directory(self):
        return self.package.project_key_for_directory(self.directory)

    # --- in a store ---

    def key(self):
        return {"project_key": self.package.project_key_for_directory(self.directory), "session_id": SESSION}

    def fold_session_summary(self):
        return self.package.fold_session_summary(None, self.key(), self.entries())

    def entries(self):
        found = []
        for path in sorted(self.config.glob(f"projects/*/{SESSION}.jsonl")):
            for line in path.read_bytes().splitlines() if path.is_file() else []:
                try:
                    found.append(json.loads(line))
                except (ValueError, RecursionError):
                    continue
        return found

    async def store(self):
        store = self.package.InMemorySessionStore()
        await store.append(self.key(), self.entries())
        for path in self.config.glob(f"projects/*/{SESSION}/subagents/*.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            note = path.with_suffix(".meta.json")
            if note.exists():
                lines.insert(0, {"type": "agent_metadata", **json.loads(note.read_text())})
            await store.append({**self.key(), "subpath": f"subagents/{path.stem}"}, lines)
        return store

    async def import_session_to_store(self):
        store = self.package.InMemorySessionStore()
        await self.package.import_session_to_store(self.session, store, directory=self.directory)
        [folder] = {path.parent.name for path in self.config.glob(f"projects/*/{SESSION}.jsonl")}
        key = {"project_key": folder, "session_id": SESSION}
        below = [await store.load({**key, "subpath": each}) for each in await store.list_subkeys(key)]
        return [await store.load(key), below]

    async def list_sessions_from_store(self):
        rows = await self.package.list_sessions_from_store(await self.store(), self.directory)
        return [{**asdict(row), "last_modified": None} for row in rows]

    async def get_session_info_from_store(self):
        row = await self.package.get_session_info_from_store(await self.store(), self.session, self.directory)
        return row and {**plain(row), "file_size": None}

    async def get_session_info_with_size_from_store(self):
        row = await self.package.get_session_info_from_store(await self.store(), self.session, self.directory)
        return row and row.file_size

    async def get_session_messages_from_store(self):
        return await self.package.get_session_messages_from_store(
            await self.store(), self.session, self.directory
        )

    async def list_subagents_from_store(self):
        return await self.package.list_subagents_from_store(await self.store(), self.session, self.directory)

    async def get_subagent_messages_from_store(self):
        return await self.package.get_subagent_messages_from_store(
            await self.store(), self.session, AGENT, self.directory
        )

    async def rename_session_via_store(self):
        store = await self.store()
        await self.package.rename_session_via_store(store, self.session, " New ", self.directory)
        return self.last(await store.load(self.key()))

    async def tag_session_via_store(self):
        store = await self.store()
        await self.package.tag_session_via_store(store, self.session, "blue\u200b", self.directory)
        return self.last(await store.load(self.key()))

    async def delete_session_via_store(self):
        store = await self.store()
        await self.package.delete_session_via_store(store, self.session, self.directory)
        return store.size

    async def fork_session_via_store(self):
        store = await self.store()
        made = await self.package.fork_session_via_store(store, self.session, self.directory, self.case.up_to)
        key = {**self.key(), "session_id": made.session_id}
        return [normalise(await store.load(key)), await store.list_subkeys(key)]

    # --- what is compared ---

    def files(self):
        return {
            str(path.relative_to(self.config)): path.read_bytes()
            for path in self.config.rglob("*")
            if path.is_file()
        }

    def changes(self, before):
        return {
            name: raw.removeprefix(before.get(name, b"")).decode()
            for name, raw in self.files().items()
            if raw != before.get(name)
        }

    @staticmethod
    def last(lines):
        return (
            {name: value for name, value in lines[-1].items() if name not in ("uuid", "timestamp")}
            if lines
            else None
        )


def normalise(lines):
    """Return the lines of a fork without its new ids and times."""
    names = {line["uuid"]: number for number, line in enumerate(lines) if "uuid" in line}
    plain = []
    for line in lines:
        kept = {key: value for key, value in line.items() if key not in ("sessionId", "timestamp")}
        for key in ("uuid", "parentUuid", "logicalParentUuid"):
            if key in kept:
                kept[key] = names.get(kept[key])
        if kept.get("logicalParentUuid", 0) is None:
            del kept["logicalParentUuid"]  # the official copy has it in every line
        plain.append(kept)
    return plain


FUNCTIONS = [
    name for name in vars(Run) if re.match(r"(list|get|rename|tag|delete|fork|fold|project|import)_", name)
]


def play(name, make, function, config):
    """Return the answer of one package as plain data; for an exception, its class."""
    config.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAUDE_CONFIG_DIR", str(config))
        patch.chdir(config.parent)
        try:
            found = getattr(Run(PACKAGES[name], make, config), function)
            value = anyio.run(found) if function.endswith("store") else found()
        except Exception as error:  # noqa: BLE001 - which it is, is compared
            return f"raises {type(error).__name__}"
    return plain(value)


def plain(value):
    """Return rows and messages as dicts, without what depends on the time of the call."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if is_dataclass(value):
        return {key: plain(each) for key, each in asdict(value).items() if key != "last_modified"}
    return value


LISTED = {(case, function) for case, functions, _ in SESSIONS for function in functions.split()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_same_answer_or_a_reason(tmp_path, case, function):
    """Each difference is a row of the table, and each row a difference."""
    mine, theirs = (play(name, CASES[case], function, tmp_path / name) for name in (OURS, THEIRS))
    if (case, function) in LISTED:
        assert mine != theirs, f"it is the same now: take {case}, {function} out of differences.py"
    elif ("*", function) not in LISTED or case == "a conversation":
        assert (mine != theirs) == (("*", function) in LISTED), (mine, theirs)


def test_the_table_names_cases_and_functions_that_exist():
    """A row with a misspelt name would have no effect."""
    assert {case for case, _ in LISTED} <= {*CASES, "*"}
    assert {function for _, function in LISTED} <= set(FUNCTIONS)


def test_each_public_function_is_compared():
    """All 21 of them are compared."""
    names = set(official.__all__) & {
        name for name in dir(official) if "session" in name or "subagent" in name
    }
    functions = {name for name in names if callable(getattr(official, name)) and name[0].islower()}
    functions.add("project_key_for_directory")
    assert functions <= set(FUNCTIONS)
    assert len(functions) == 21
