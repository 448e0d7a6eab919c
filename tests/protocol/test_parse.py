"""Frames to messages: nothing is lost, nothing is fatal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import messages
from toolwire._protocol.parse import parse, typed
from toolwire.messages import blocks
from toolwire.messages.system import TypedSystemMessage

CORPUS = Path(__file__).parents[1] / "differential" / "frames.jsonl"
FRAMES = [json.loads(line) for line in CORPUS.read_text().splitlines()]


TYPED = {cls.parsed_subtype for cls in TypedSystemMessage.__subclasses__()}


def system(subtype: str) -> Any:
    """Return the typed message of the corpus' first frame of that subtype."""
    return typed(parse(next(frame for frame in FRAMES if frame.get("subtype") == subtype)))


def assistant(*content: Any) -> list[Any]:
    frame = {"type": "assistant", "message": {"content": list(content), "model": "m"}}
    return parse(frame).content


def test_blocks_that_the_official_sdk_drops():
    """Each becomes an object of a class of its own, with its fields."""
    source = {"type": "base64", "media_type": "image/png", "data": "eA=="}
    assert assistant(
        {"type": "image", "source": source},
        {"type": "document", "source": source, "title": "t", "context": "c"},
        {"type": "redacted_thinking", "data": "ZW5j"},
        {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]},
        {"type": "container_upload", "file_id": "f"},
        {"type": "mcp_tool_use", "id": "i", "name": "n", "server_name": "s", "input": {"a": 1}},
        {"type": "mcp_tool_result", "tool_use_id": "i", "content": "x", "is_error": True},
        {"type": "web_search_tool_result", "tool_use_id": "i", "content": []},
        {"type": "tool_search_tool_result", "tool_use_id": "i", "content": {"a": 1}},
    ) == [
        blocks.ImageBlock(source),
        blocks.DocumentBlock(source, "t", "c"),
        blocks.RedactedThinkingBlock("ZW5j"),
        blocks.SearchResultBlock("s", "t", [{"type": "text", "text": "x"}]),
        blocks.ContainerUploadBlock("f"),
        blocks.McpToolUseBlock("i", "n", "s", {"a": 1}),
        blocks.McpToolResultBlock("i", "x", is_error=True),
        blocks.ServerToolResultBlock("i", [], "web_search_tool_result"),
        blocks.ServerToolResultBlock("i", {"a": 1}, "tool_search_tool_result"),
    ]


def test_odd_blocks_are_kept():
    """A block of a new type, without a type, or no block at all, becomes an UnknownBlock that keeps what came."""
    new, untyped, listed = {"type": "new", "a": 1}, {"a": 1}, {"type": ["text"]}
    assert assistant(new, untyped, listed, "text", None) == [
        blocks.UnknownBlock("new", new),
        blocks.UnknownBlock("", untyped),
        blocks.UnknownBlock("", listed),
        blocks.UnknownBlock("", "text"),
        blocks.UnknownBlock("", None),
    ]


def test_content_that_is_a_string_is_a_text_block_of_an_assistant():
    """An assistant always has a list of blocks; a user keeps the string."""
    said = parse({"type": "assistant", "message": {"content": "hi", "model": "m"}})
    assert said.content == [blocks.TextBlock("hi")]
    assert parse({"type": "user", "message": {"content": "hi"}}).content == "hi"


def test_user_messages_keep_pictures():
    """The content has what a user attached, not only the text."""
    frame = {"type": "user", "message": {"content": [{"type": "image", "source": {}}]}}
    assert parse(frame).content == [blocks.ImageBlock({})]


def test_raw_is_the_frame_itself():
    """`raw` of a message and of a block is the received object, not a copy."""
    block = {"type": "text", "text": "hi", "citations": [{"url": "x"}]}
    frame = {"type": "assistant", "message": {"content": [block], "model": "m"}}
    message = parse(frame)
    assert message.raw is frame
    assert message.content[0].raw is block
    assert message.content[0].citations is block["citations"]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame['type']}/{frame.get('subtype', '')}")
def test_every_message_carries_its_frame(frame):
    """`raw` or, for system messages, `data` is the frame itself."""
    message = parse(frame)
    kept = message.data if isinstance(message, messages.SystemMessage) else message.raw
    assert kept is frame


def test_fields_beyond_the_official_ones():
    """Fields that the CLI sends and the official classes lack are attributes of ours."""
    user = parse(next(frame for frame in FRAMES if "tool_result_meta" in frame))
    assert user.session_id == user.raw["session_id"]
    assert user.tool_result_meta[0]["id"] == "toolu_01"
    assert (user.is_replay, user.is_synthetic) == (False, False)
    replay = parse(next(frame for frame in FRAMES if "isReplay" in frame))
    assert replay.is_replay is True
    synthetic = parse(next(frame for frame in FRAMES if "isSynthetic" in frame))
    assert synthetic.is_synthetic is True
    said = parse(next(frame for frame in FRAMES if "tool_use_meta" in frame))
    assert said.tool_use_meta[0]["display_name"] == "Add"
    result = parse(next(frame for frame in FRAMES if "user_message_uuid" in frame))
    assert (result.ttft_ms, result.fast_mode_state) == (412, "off")
    assert result.user_message_uuid == result.raw["user_message_uuid"]
    assert parse(next(frame for frame in FRAMES if "request_id" in frame)).request_id == "req_011"
    reset = parse(next(frame for frame in FRAMES if frame["type"] == "conversation_reset"))
    assert reset.trigger == "clear"


# Message fields that have another key in the frame, or a deeper one.
SPELLED = {
    ("init", "permission_mode"): "permissionMode",
    ("init", "api_key_source"): "apiKeySource",
    ("status", "permission_mode"): "permissionMode",
    ("hook_progress", "hook_event_name"): "hook_event",
    ("auth_status", "is_authenticating"): "isAuthenticating",
}


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame['type']}/{frame.get('subtype', '')}")
def test_every_field_of_our_own_classes_is_read(frame):
    """A field has the value of its key in the frame, and the corpus has a value for nearly every field."""
    message = typed(parse(frame))
    ours = isinstance(message, (TypedSystemMessage, *messages.EXTRA_MESSAGES))
    if not ours or frame["type"] in ("active_goal", "keep_alive"):
        return
    source = {**frame, **frame.get("compact_metadata", {})}
    read = 0
    for name in type(message).__dataclass_fields__:
        if name in ("subtype", "data", "raw"):
            continue
        value = source.get(SPELLED.get((frame.get("subtype", frame["type"]), name), name))
        if value is not None:
            assert getattr(message, name) == value
            read += 1
    assert read >= 3


def test_typed_system_messages():
    """Some typed messages have the attributes that a user reads."""
    init = system("init")
    assert isinstance(init, messages.InitMessage)
    assert (init.model, init.cwd, init.permission_mode) == ("claude-sonnet-4-5", "/srv/app", "default")
    assert init.mcp_servers[0]["status"] == "connected"
    assert (init.claude_code_version, init.api_key_source) == ("2.1.325", "ANTHROPIC_API_KEY")
    assert "sdk_mcp_tools_list_changed" in init.capabilities
    boundary = system("compact_boundary")
    assert (boundary.trigger, boundary.pre_tokens, boundary.post_tokens) == ("auto", 155000, 21000)
    assert system("session_state_changed").state == "idle"
    assert system("line_dropped").limit == 268435456
    assert system("session_title_changed").title == "Sums"
    assert type(system("not_known_yet")) is messages.SystemMessage


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: f"{frame['type']}/{frame.get('subtype', '')}")
def test_typed_gives_a_system_message_its_class_and_leaves_the_rest(frame):
    """Only a plain SystemMessage changes, into one that is equal to it; twice is the same as once."""
    message = parse(frame)
    given = typed(message)
    assert (given is message) is (frame.get("subtype") not in TYPED or frame["type"] != "system")
    assert given == message
    assert typed(given) is given


def test_typed_takes_messages_that_a_program_made():
    """The subtype determines the class, whatever the data; odd messages and subclasses stay as they are."""

    class Own(messages.SystemMessage):
        pass

    assert typed(messages.SystemMessage("status", {"status": "requesting"})).status == "requesting"
    for odd in (
        Own("init", {}),
        messages.SystemMessage(["init"], {}),
        messages.SystemMessage("init", None),
        messages.SystemMessage("never heard of", {}),
    ):
        assert typed(odd) is odd


def test_an_unknown_type_is_kept():
    """A frame of a new type becomes an UnknownMessage of that type; a type that is no string counts as empty."""
    frame = {"type": "new", "a": 1}
    assert parse(frame) == messages.UnknownMessage("new", frame)
    assert parse({}) == messages.UnknownMessage("", {})
    assert parse({"type": ["user"]}).type == ""


def test_missing_fields_get_their_natural_empty_value():
    """A bare frame gives a message that can be used as any other."""
    said = parse({"type": "assistant"})
    assert (said.content, said.model, said.usage) == ([], "", None)
    assert parse({"type": "user"}).content == ""
    result = parse({"type": "result"})
    assert (result.subtype, result.duration_ms, result.is_error, result.session_id) == ("", 0, False, "")
    assert parse({"type": "stream_event"}) == messages.StreamEvent("", "", {})
    assert parse({"type": "rate_limit_event", "rate_limit_info": 3}).rate_limit_info.status == ""
    assert parse({"type": "system"}) == messages.SystemMessage("", {"type": "system"})
    progress = parse({"type": "system", "subtype": "task_progress"})
    assert (progress.task_id, progress.usage, progress.last_tool_name) == ("", {}, None)
    mirror = parse({"type": "system", "subtype": "mirror_error"})
    assert (mirror.key, mirror.error) == (None, "")
    [call] = assistant({"type": "tool_use"})
    assert call == blocks.ToolUseBlock("", "", {})
    assert parse({"type": "result", "deferred_tool_use": {"id": "x"}}).deferred_tool_use.input == {}
    assert parse({"type": "result", "deferred_tool_use": "odd"}).deferred_tool_use is None


def test_null_counts_as_missing_in_classes_of_ours():
    """A list that came as null is empty."""
    assert typed(parse({"type": "system", "subtype": "init", "tools": None})).tools == []
    assert parse({"type": "tool_use_summary", "preceding_tool_use_ids": None}).preceding_tool_use_ids == []


ODD_VALUES = (None, True, 0, 1.5, "", "odd", [], [None], ["text"], {}, {"type": ["x"]}, [{"type": {}}])


def with_one_value_changed(value: Any) -> Iterator[Any]:
    """Yield every copy of a JSON value in which one inner value is missing or of another type."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {other: value[other] for other in value if other != key}
            for changed in (*ODD_VALUES, *with_one_value_changed(inner)):
                yield {**value, key: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for changed in (*ODD_VALUES, *with_one_value_changed(inner)):
                yield [*value[:index], changed, *value[index + 1 :]]


def use(message: Any) -> None:
    """Do with a message what any reader would: none of it may raise."""
    assert repr(message)
    assert message == message  # noqa: PLR0124
    if isinstance(message, messages.UserMessage | messages.AssistantMessage):
        assert isinstance(message.text, str)


@pytest.mark.slow
def test_no_broken_frame_is_fatal():
    """Each frame with each value at any depth removed or swapped is still a usable message."""
    tried = 0
    for frame in FRAMES:
        for broken in with_one_value_changed(frame):
            use(parse(broken))
            tried += 1
    assert tried > 5000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(sorted({key for frame in FRAMES for key in frame})) | st.text(max_size=8)
types = st.sampled_from(sorted({frame["type"] for frame in FRAMES})) | json_values
subtypes = st.sampled_from(sorted({frame.get("subtype", "") for frame in FRAMES})) | json_values
block_types = st.sampled_from(["text", "thinking", "tool_use", "image", "x_tool_result"]) | json_values
contents = json_values | st.lists(
    st.builds(lambda kind, rest: {**rest, "type": kind}, block_types, st.dictionaries(keys, json_values)),
    max_size=3,
)


@given(st.dictionaries(keys, json_values, max_size=6), types, subtypes, contents)
def test_no_dict_is_fatal(frame, kind, subtype, content):
    """Whatever JSON object comes, it is a message and its frame is kept."""
    frame = {**frame, "type": kind, "subtype": subtype, "message": {"content": content}}
    message = parse(frame)
    use(message)
    assert (message.data if isinstance(message, messages.SystemMessage) else message.raw) is frame


@given(st.dictionaries(st.text(), json_values))
def test_no_arbitrary_dict_is_fatal(frame):
    """The same for objects that look like no frame at all."""
    use(parse(frame))
