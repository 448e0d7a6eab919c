"""Our parser compared with the official one, frame by frame: what both parse has the same fields and values."""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk._errors import MessageParseError
from claude_agent_sdk._internal.message_parser import parse_message

from toolwire import messages
from toolwire._protocol.parse import parse, typed
from toolwire.messages import EXTRA_MESSAGES, AssistantMessage, UserMessage, blocks

FRAMES = [json.loads(line) for line in (Path(__file__).parent / "frames.jsonl").read_text().splitlines()]

# The official parser drops all other blocks, by who is speaking. Ours keeps them: a picture in a prompt or
# the result of a web search is part of the conversation.
KEPT_BY_THE_OFFICIAL = {
    "assistant": {
        "text",
        "thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "advisor_tool_result",
    },
    "user": {"text", "tool_use", "tool_result"},
}


def name_of(frame: dict[str, Any]) -> str:
    return f"{frame['type']}/{frame.get('subtype', '')}"


def without_dropped_blocks(frame: dict[str, Any]) -> dict[str, Any]:
    """Return the frame with only those blocks that the official parser keeps."""
    kept = KEPT_BY_THE_OFFICIAL.get(frame.get("type", ""))
    if kept is None or not isinstance(frame["message"]["content"], list):
        return frame
    content = [block for block in frame["message"]["content"] if block["type"] in kept]
    return {**frame, "message": {**frame["message"], "content": content}}


def assert_same(official: Any, ours: Any) -> None:
    """Assert that the class has the same name, and that ours has every official field with the same value."""
    if is_dataclass(official):
        assert type(ours).__name__ == type(official).__name__
        for spec in fields(official):
            assert_same(getattr(official, spec.name), getattr(ours, spec.name))
    elif isinstance(official, list):
        assert isinstance(ours, list)
        assert len(official) == len(ours)
        for one, other in zip(official, ours, strict=True):
            assert_same(one, other)
    else:
        assert official == ours
        assert type(official) is type(ours)


@pytest.mark.parametrize("frame", FRAMES, ids=name_of)
def test_a_frame_gives_the_same_official_fields(frame):
    """Both read a well-formed frame alike; a type that the official one skips is an extra message here."""
    official = parse_message(frame)
    ours = parse(without_dropped_blocks(frame))
    if official is None:
        assert isinstance(ours, EXTRA_MESSAGES)
    else:
        assert not isinstance(ours, EXTRA_MESSAGES)
        assert_same(official, ours)
        assert list(vars(ours))[: len(vars(official))] == list(vars(official))
        if "advisor_tool_result" not in repr(ours):  # whose repr shows the type too
            assert repr(ours) == repr(official)


def with_one_key_less(value: Any) -> Iterator[Any]:
    """Yield every copy of a JSON value that lacks one key of one dict at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {other: value[other] for other in value if other != key}
            for changed in with_one_key_less(inner):
                yield {**value, key: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for changed in with_one_key_less(inner):
                yield [*value[:index], changed, *value[index + 1 :]]


def test_a_frame_without_one_of_its_keys_gives_the_same_too():
    """Where the official parser can do without a key, ours returns the same message."""
    compared = refused = 0
    for frame in FRAMES:
        for broken in with_one_key_less(frame):
            try:
                official = parse_message(broken)
            except MessageParseError:
                refused += 1
                continue
            if official is not None:
                compared += 1
                assert_same(official, parse(without_dropped_blocks(broken)))
    assert compared > 500
    assert refused > 50


def test_the_corpus_has_a_frame_for_every_class():
    """Nothing that the parser can make is left out of the comparison."""
    made = [give(parse(frame)) for frame in FRAMES for give in (lambda message: message, typed)]
    contents = [message.content for message in made if isinstance(message, UserMessage | AssistantMessage)]
    made += [block for content in contents if isinstance(content, list) for block in content]
    wanted = {
        kind
        for place in (blocks, messages)
        for kind in vars(place).values()
        if isinstance(kind, type) and is_dataclass(kind)
    }
    in_others = {messages.RateLimitInfo, messages.DeferredToolUse}
    made_by_the_host = {messages.McpProgressMessage, messages.McpLogMessage}
    assert {type(message) for message in made} == wanted - in_others - made_by_the_host
