"""Messages as values: comparison, text, and the classes that go beyond the official ones."""

import copy
import dataclasses
import pickle
import subprocess
import sys
import typing

import pytest

import toolwire
from toolwire import messages
from toolwire._protocol.parse import parse, typed
from toolwire._support.record import ParsedRecord
from toolwire.messages import (
    EXTRA_MESSAGES,
    AnyMessage,
    AssistantMessage,
    InitMessage,
    LineDroppedMessage,
    McpLogMessage,
    McpProgressMessage,
    Message,
    RateLimitInfo,
    StatusMessage,
    SystemMessage,
    TaskStartedMessage,
    UnknownMessage,
    UserMessage,
)
from toolwire.messages.blocks import ContentBlock, TextBlock, ThinkingBlock, ToolUseBlock
from toolwire.messages.system import TypedSystemMessage

CLASSES = [getattr(messages, name) for name in messages.__all__ if name.endswith(("Message", "Event"))]
DATACLASSES = [kind for kind in CLASSES if dataclasses.is_dataclass(kind)]
NOTICE = {"type": "system", "subtype": "status", "status": "requesting"}


def test_text_of_an_assistant_message_is_its_text_blocks_joined():
    """Thinking and tool use are not text; two text blocks are joined without a separator."""
    content = [ThinkingBlock("hm", "s"), TextBlock("a"), ToolUseBlock("1", "t", {}), TextBlock("b")]
    assert AssistantMessage(content, "m").text == "ab"
    assert AssistantMessage([], "m").text == ""


def test_text_of_a_user_message():
    """A prompt may be a string or blocks."""
    assert UserMessage("hello").text == "hello"
    assert UserMessage([TextBlock("hel"), TextBlock("lo")]).text == "hello"


def test_fields_of_ours_stay_out_of_comparison_and_repr():
    """A comparison written for the official class holds for parsed messages."""
    ours = UserMessage("hi", session_id="s", is_replay=True, tool_result_meta=[{}], raw={"type": "user"})
    assert ours == UserMessage("hi")
    assert "session_id" not in repr(ours)
    assert repr(ours).startswith("UserMessage(content='hi', uuid=None")


@pytest.mark.parametrize("kind", DATACLASSES, ids=lambda kind: kind.__name__)
def test_every_message_shows_the_frame(kind):
    """A system message has the frame in `data`, every other in `raw`."""
    names = [spec.name for spec in dataclasses.fields(kind)]
    assert ("raw" in names) != issubclass(kind, SystemMessage)
    if issubclass(kind, SystemMessage):
        assert names[:2] == ["subtype", "data"]


def test_a_notice_equals_the_plain_system_message():
    """Where the official SDK yields a SystemMessage, one written in a test equals our typed class."""
    notice = StatusMessage("status", NOTICE, status="requesting")
    assert notice == SystemMessage("status", NOTICE)
    assert SystemMessage("status", NOTICE) == notice
    assert notice != SystemMessage("status", {})
    assert notice != InitMessage("status", NOTICE)
    assert notice != NOTICE
    assert repr(notice) == f"StatusMessage(subtype='status', data={NOTICE!r})"
    with pytest.raises(TypeError, match="unhashable"):
        hash(notice)


def test_an_official_subclass_does_not_equal_the_plain_one():
    """As in the official SDK, where a task message is equal to its own kind only."""
    assert TaskStartedMessage("task_started", {}, "t", "d", "u", "s") != SystemMessage("task_started", {})


def test_fields_of_a_notice_have_defaults_of_their_own():
    """The default list of one message is not shared with the next."""
    first, second = InitMessage("init", {}), InitMessage("init", {})
    first.tools.append("Bash")
    assert second.tools == []
    assert (second.model, second.session_id) == ("", None)


def test_a_notice_knows_its_fields():
    """Keywords set them; one that does not exist is an error; the dataclass functions work."""
    notice = LineDroppedMessage("line_dropped", {}, bytes=3, limit=2)
    assert (notice.bytes, notice.limit) == (3, 2)
    assert dataclasses.asdict(dataclasses.replace(notice, limit=1))["limit"] == 1
    assert pickle.loads(pickle.dumps(notice)).bytes == 3  # noqa: S301
    assert copy.deepcopy(notice).bytes == 3
    with pytest.raises(TypeError, match="LineDroppedMessage has no field 'bites'"):
        LineDroppedMessage("line_dropped", {}, bites=3)


def test_extra_messages_are_what_the_official_union_lacks():
    """The tuple, and the difference between the two unions, are the same classes."""
    assert set(EXTRA_MESSAGES) == set(typing.get_args(AnyMessage)) - set(typing.get_args(Message))
    assert isinstance(UnknownMessage("x"), EXTRA_MESSAGES)
    assert not isinstance(SystemMessage("x", {}), EXTRA_MESSAGES)


def test_every_class_is_public_and_parsed_from_something_of_its_own():
    """A class that is parsed from a type of its own is in a union; it can be imported from `toolwire`."""
    notices = TypedSystemMessage.__subclasses__()
    classes = [*notices, *typing.get_args(AnyMessage), *typing.get_args(ContentBlock)]
    assert {cls.__name__ for cls in classes} <= set(toolwire.__all__)
    ours = [cls for cls in ParsedRecord.__subclasses__() if cls.__module__.startswith("toolwire.")]
    assert [cls for cls in ours if cls not in classes] == []
    assert len({cls.parsed_subtype for cls in notices}) == len(notices)


def test_users_may_subclass_messages():
    """A subclass needs no type or subtype, and the parser does not make it."""

    class Picture(toolwire.ImageBlock):
        pass

    class Start(InitMessage):
        pass

    assert Picture({"type": "url"}).source == {"type": "url"}
    assert Start("init", {}, model="m").model == "m"
    assert type(typed(parse({"type": "system", "subtype": "init"}))) is InitMessage


def test_messages_of_the_host():
    """Progress and logs of in-process servers need no more than the server's name."""
    assert McpProgressMessage("calc", "toolu_1", 1, 2, "half").total == 2
    assert McpLogMessage("calc", "warning", {"a": 1}, "calc.add", "toolu_1").logger == "calc.add"
    assert (McpProgressMessage("calc").progress, McpLogMessage("calc").level) == (0, "info")


def test_rate_limit_info_counts_its_raw():
    """There `raw` is the official SDK's own field, and compares as it does there."""
    assert RateLimitInfo("allowed", raw={"a": 1}) != RateLimitInfo("allowed")


@pytest.mark.process
def test_importing_the_messages_loads_nothing_heavy():
    """Messages, parser, hooks and permissions do without Pydantic, MCP and HTTP."""
    code = (
        "import sys, toolwire._protocol.parse, toolwire.permissions.types; from toolwire.hooks import Hooks;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(loaded.stdout.split()) & {"pydantic", "mcp", "httpx", "httpx2", "claude_agent_sdk"}
