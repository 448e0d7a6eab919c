"""A past conversation as users read it: calls have their results and subagents, and odd content breaks nothing."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from shared.transcripts import SESSION, Writer, call, conversations, harbour, text
from toolwire import InMemorySessionStore, sessions
from toolwire.sessions import recorded
from toolwire.sessions.recorded import Call, Other, Picture, Text

pytestmark = pytest.mark.anyio


def read(config, session=SESSION):
    """Return the messages of a session on disk."""
    return list(recorded.open_session(session, config_dir=config).read_conversation())


def calls_of(messages):
    """Return all calls in order."""
    return [part for message in messages for part in message.parts if isinstance(part, Call)]


def test_a_call_has_its_result_and_the_subagent_that_it_started(tmp_path):
    """Results are not separate messages, and a subagent's conversation is at its call."""
    harbour(tmp_path)
    messages = read(tmp_path)
    assert [message.speaker for message in messages] == ["user"] + ["assistant"] * 7
    look, picture, agent, failed = calls_of(messages)
    assert look.gist == "cat visitors.csv"
    assert look.result.parts == [Text("answer", "Lisbon 120000\nFaro 45000")]
    assert isinstance(picture.result.parts[0], Picture)
    assert failed.result.is_error
    [subagent] = agent.subagents
    assert (subagent.agent_id, subagent.agent_type, subagent.description) == ("a1", "scout", "compare")
    assert [part.text for message in subagent.messages for part in message.parts] == [
        "Compare the towns.",
        "Faro is small.",
    ]


async def test_a_store_gives_the_same_conversation(tmp_path):
    """Messages and subagents are the same from a file and from a store."""
    harbour(tmp_path)
    store = InMemorySessionStore()
    await sessions.import_session_to_store(SESSION, store, config_dir=tmp_path)
    loaded = await recorded.load_session(store, SESSION, "/work")
    theirs, mine = list(loaded.read_conversation()), read(tmp_path)
    assert [message.uuid for message in theirs] == [message.uuid for message in mine]
    assert len(calls_of(theirs)[2].subagents) == 1
    with pytest.raises(FileNotFoundError, match="not found in the store"):
        await recorded.load_session(store, SESSION, "/elsewhere")


@given(writer=conversations())
def test_nothing_that_was_said_is_lost(writer):
    """The texts and calls are those of `get_session_messages`, whatever the tree of messages is."""
    with tempfile.TemporaryDirectory() as folder:
        writer.write(Path(folder))
        there = sessions.get_session_messages(SESSION, config_dir=folder, whole_history=True)
        found = read(folder)
    expected = []
    for message in there:
        content = message.message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        expected += [each.get("text") or each["id"] for each in blocks if each["type"] != "tool_result"]
    seen = []
    for message in found:
        for part in message.parts:
            if isinstance(part, Call):
                assert part.result.parts == [Text("answer", "ok")]
            else:
                seen.append(part.text)
    assert seen == [each for each in expected if not each.startswith("toolu_")]


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        [None, 3, "text"],
        [{"type": ["tool_use"]}, {"type": "tool_use", "id": {"a": 1}, "name": 5, "input": [1]}],
        [{"type": "tool_result", "tool_use_id": ["x"], "content": {"type": "text"}}],
        [{"type": "image", "source": "nowhere"}, {"type": "text", "text": {"a": 1}}],
        [{"type": "thinking"}, {"type": "document", "source": {"data": "x"}}],
    ],
)
def test_content_of_any_shape_is_read(tmp_path, content):
    """The CLI does not guarantee these shapes: odd content is shown as it is, or left out."""
    writer = Writer()
    at = writer.ask(None, "before")
    at = writer.add("assistant", at, message={"role": "assistant", "id": "m", "content": content})
    writer.respond(at, text("after"))
    writer.write(tmp_path)
    said = [part.text for message in read(tmp_path) for part in message.parts if isinstance(part, Text)]
    assert said[0] == "before"
    assert said[-1] == "after"


def test_a_result_without_its_call_is_shown(tmp_path):
    """Here the line of the call is lost."""
    writer = Writer()
    at = writer.ask(None, "hi")
    writer.give(at, "gone", "output")
    writer.write(tmp_path)
    assert [(message.speaker, message.parts[0].text) for message in read(tmp_path)] == [
        ("user", "hi"),
        ("tool", "output"),
    ]


def test_subagents_that_start_each_other_end(tmp_path):
    """Here the metadata describes a cycle. Each subagent is shown once; one without a call comes at the end."""
    path = harbour(tmp_path)
    circle = Writer()
    at = circle.add("user", None, isSidechain=True, message={"role": "user", "content": "round"})
    circle.respond(at, call("t9", "Agent", prompt="round"), isSidechain=True)
    circle.write_subagent(path, "a2", toolUseId="t9")
    circle.write_subagent(path, "a3", toolUseId="nowhere")
    conversation = recorded.open_session(SESSION, config_dir=tmp_path).read_conversation()
    list(conversation)
    remaining = list(conversation.list_remaining())
    shown = [each.agent_id for each in remaining]
    assert shown == ["a2", "a3"]
    assert all(calls_of(each.messages) for each in remaining)


def test_deep_values_are_shown_without_an_error():
    """Values that are nested too deeply to be written as JSON are replaced by a note."""
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert recorded.write_value(deep) == "(nested too deeply to be shown)"
    assert Call("T", {"a": deep}).list_inputs() == [("a", "(nested too deeply to be shown)")]
    while deep:
        deep = deep.pop()


def test_unknown_blocks_are_shown_by_their_kind(tmp_path):
    """A later CLI may add kinds of content."""
    writer = Writer()
    writer.respond(writer.ask(None, "hi"), {"type": "hologram", "light": 3, "signature": "long"})
    writer.write(tmp_path)
    assert read(tmp_path)[-1].parts == [Other("hologram", '{\n  "light": 3\n}')]
