"""History on disk: our functions and the official ones on the same files."""

import json
import uuid
from dataclasses import asdict

import claude_agent_sdk as official
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.transcripts import SESSION, Writer, conversations
from toolwire import sessions as ours


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Yield a CLI's folder, which both packages read."""
    folder = tmp_path_factory.mktemp("config")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAUDE_CONFIG_DIR", str(folder))
        yield folder


def both(name, *arguments, **more):
    """Return the answers of both packages as plain data."""
    return [_plain(getattr(package, name)(*arguments, **more)) for package in (ours, official)]


def _plain(value):
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


@given(conversations())
def test_messages_and_lists_are_the_same(config, writer):
    """For any conversation, messages come in the same order, and the row in a list is the same."""
    writer.write(config)
    for name, arguments in [
        ("get_session_messages", (SESSION,)),
        ("get_session_messages", (SESSION, "/work", 2, 1)),
        ("get_session_info", (SESSION, "/work")),
        ("list_sessions", ("/work",)),
    ]:
        mine, theirs = both(name, *arguments)
        assert mine == theirs, name


@given(conversations(), st.data())
def test_forks_are_the_same(config, writer, data):
    """The copies have the same entries, except for ids and times."""
    writer.write(config)
    spoken = [line["uuid"] for line in writer.lines if line["type"] in {"user", "assistant"}]
    up_to = data.draw(st.none() | st.sampled_from(spoken))
    copies = []
    for package in (ours, official):
        made = package.fork_session(SESSION, "/work", up_to_message_id=up_to)
        path = config / "projects" / "-work" / f"{made.session_id}.jsonl"
        copies.append(_normalise([json.loads(line) for line in path.read_text().splitlines()]))
        path.unlink()
    assert copies[0] == copies[1]


def _normalise(lines):
    names = {line["uuid"]: number for number, line in enumerate(lines)}
    for line in lines:
        for field in ("uuid", "parentUuid", "logicalParentUuid"):
            if field in line:
                line[field] = names.get(line[field])
        if line.get("logicalParentUuid", 0) is None:
            del line["logicalParentUuid"]  # the official copy has it in every line
        line["sessionId"] = None
    for line in lines[-2:]:
        line.pop("timestamp", None)
    return [sorted(line.items(), key=lambda item: item[0]) for line in lines]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("rename_session", ("x", "t"), ValueError),
        ("rename_session", (SESSION, "  "), ValueError),
        ("rename_session", (str(uuid.UUID(int=5)), "t"), FileNotFoundError),
        ("tag_session", (SESSION, "\u200b"), ValueError),
        ("tag_session", (str(uuid.UUID(int=5)), "t"), FileNotFoundError),
        ("delete_session", ("x",), ValueError),
        ("delete_session", (str(uuid.UUID(int=5)),), FileNotFoundError),
        ("fork_session", (SESSION, "/work", "x"), ValueError),
        ("fork_session", (SESSION, "/work", str(uuid.UUID(int=5000))), ValueError),
        ("fork_session", (str(uuid.UUID(int=5)),), FileNotFoundError),
    ],
)
def test_errors_are_of_the_same_kind(config, name, arguments, error):
    """Programs that catch the official errors catch ours."""
    writer = Writer()
    writer.ask(None, "hello")
    writer.write(config)
    for package in (ours, official):
        with pytest.raises(error):
            getattr(package, name)(*arguments)


@pytest.mark.parametrize("name", ["get_session_info", "get_session_messages", "list_subagents"])
def test_what_is_not_there_is_nothing(config, name):
    """A bad id or an unknown session is no error where the official package has none."""
    for wanted in ("x", "", str(uuid.UUID(int=5))):
        mine, theirs = both(name, wanted)
        assert mine == theirs


def test_renamed_and_tagged_by_one_package_is_seen_by_the_other(config):
    """Both write the same lines."""
    writer = Writer()
    writer.ask(None, "hello")
    path = writer.write(config)
    added = []
    for package in (ours, official):
        before = len(path.read_bytes())
        package.rename_session(SESSION, " Mine ")
        package.tag_session(SESSION, "blue\u200b")
        package.tag_session(SESSION, None)
        added.append(path.read_bytes()[before:])
    assert added[0] == added[1]
