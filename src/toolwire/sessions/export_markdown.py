"""A session as Markdown, for reading and for pasting into a document.

Its content cannot change the document around it: prompts and outputs are quoted or fenced, HTML is escaped, open
code blocks are closed, and external pictures are not shown. Control characters are made visible.
"""

import re
from collections.abc import Iterator
from typing import Final

from toolwire._support.words import reveal
from toolwire.sessions import recorded
from toolwire.sessions.cost import read_cost
from toolwire.sessions.export_header import describe_header
from toolwire.sessions.recorded import Call, Message, Other, Picture, RecordedSession, Result, Subagent, Text

LONGEST: Final = 200_000
"""The number of characters of one text that are shown; a longer text is cut, with a note."""

_DEEPEST: Final = 6
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant", "tool": "Tool"}


def render(session: RecordedSession) -> Iterator[str]:
    """Yield a session as Markdown, in pieces."""
    header = describe_header(session.describe(), read_cost(session))
    yield f"# {_inline(header.title)}\n\n"
    for name, value in header.facts:
        yield f"- {name}: {_inline(value)}\n"
    conversation = session.read_conversation()
    yield from _render_messages(conversation, 2)
    for subagent in conversation.list_remaining():
        yield from _render_subagent(subagent, 2)


def cut(text: str) -> tuple[str, str]:
    """Return a text, cut if too long, with invisible characters made visible; and a note about the part cut."""
    if len(text) <= LONGEST:
        return reveal(text), ""
    return reveal(text[:LONGEST]), f"{len(text) - LONGEST:,} more characters; the JSONL export has them all"


def _render_messages(messages: "recorded.Conversation | Iterator[Message]", level: int) -> Iterator[str]:
    before = ""
    for message in messages:
        if message.speaker != before:
            when = message.timestamp[:19].replace("T", " ")
            yield f"\n{_heading(level)} {_SPEAKERS[message.speaker]}{f' · {_inline(when)}' if when else ''}\n"
        before = message.speaker
        for part in message.parts:
            yield from _render_part(part, message.speaker, level)


def _render_part(part: recorded.Part, speaker: str, level: int) -> Iterator[str]:
    match part:
        case Text(kind="answer", text=text) if speaker == "assistant":
            shown, more = cut(text)
            yield f"\n{_tame(shown)}\n{_note(more)}"
        case Text(kind="answer", text=text):
            yield _fence(text)
        case Text(kind=kind, text=text):
            shown, more = cut(text)
            label = {
                "thinking": "*Thinking*\n\n",
                "summary": "*Summary of the earlier conversation*\n\n",
            }.get(kind, "")
            yield f"\n{_quote(label + _tame(shown))}\n{_note(more)}"
        case Picture():
            yield f"\n*({describe_picture(part)})*\n"
        case Other(kind=kind, text=text):
            yield f"\n*{_inline(kind)}*\n{_fence(text)}"
        case Call():
            yield from _render_call(part, level)


def _render_call(call: Call, level: int) -> Iterator[str]:
    yield f"\n**{_inline(call.name)}**\n"
    inputs = call.list_inputs()
    for name, text in inputs:
        if name and len(text) <= 80 and "\n" not in text:  # noqa: PLR2004 - fits on a line
            yield f"\n{_inline(name)}: {_code(text)}\n"
        else:
            yield f"\n{_inline(name)}:\n{_fence(text)}" if name else _fence(text)
    for subagent in call.subagents:
        yield from _render_subagent(subagent, level + 1)
        yield f"\n*End of subagent {_inline(subagent.agent_id)}*\n"
    yield from _render_result(call.result, level)


def _render_result(result: Result | None, level: int) -> Iterator[str]:
    if result is None:
        yield "\n*No result*\n"
        return
    yield "\nFailed:\n" if result.is_error else "\nReturned:\n"
    for part in result.parts:
        if isinstance(part, Text):
            yield _fence(part.text)
        else:
            yield from _render_part(part, "tool", level)


def _render_subagent(subagent: Subagent, level: int) -> Iterator[str]:
    name = " ".join(filter(None, ("Subagent", subagent.agent_type)))
    about = f": {subagent.description}" if subagent.description else ""
    yield f"\n{_heading(level)} {_inline(name + about)}\n"
    yield from _render_messages(subagent.messages, level + 1)


def describe_picture(picture: Picture) -> str:
    """Return the text that replaces a picture."""
    if picture.address:
        return f"picture at {_inline(picture.address)}"
    size = len(picture.data) * 3 // 4
    return f"picture, {_inline(picture.media_type) or 'of an unknown type'}, {size:,} bytes"


def _heading(level: int) -> str:
    return "#" * min(level, _DEEPEST)


def _inline(text: str) -> str:
    """Put a text on one line and escape all markup in it."""
    line = reveal(" ".join(text.split()))[:500]
    return re.sub(r"([\\`*_\[\]<>&|~])", r"\\\1", line)


def _code(text: str) -> str:
    shown = reveal(text)
    if not shown.strip():
        return "(empty)"
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    space = " " if "`" in (shown[0], shown[-1]) else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def _fence(text: str) -> str:
    shown, more = cut(text)
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    return f"\n{ticks}\n{shown.rstrip()}\n{ticks}\n{_note(more)}"


def _note(more: str) -> str:
    return f"\n*({more})*\n" if more else ""


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


def _tame(text: str) -> str:
    """Escape HTML and pictures in Markdown, and close a code block that was left open."""
    lines: list[str] = []
    fence = ""
    for line in text.rstrip().split("\n"):
        found = _FENCE.match(line)
        if fence:
            lines.append(line)
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
            lines.append(line)
        else:
            lines.append(_tame_line(line))
    return "\n".join([*lines, fence] if fence else lines)


def _tame_line(line: str) -> str:
    """Escape HTML and pictures in a line, except in inline code."""
    pieces = re.split("(`+)", line)
    last = {pieces[at]: at for at in range(1, len(pieces), 2)}
    made: list[str] = []
    at = 0
    while at < len(pieces):
        if at % 2 and last[pieces[at]] > at:
            end = next(each for each in range(at + 2, len(pieces), 2) if pieces[each] == pieces[at])
            made += pieces[at : end + 1]
            at = end + 1
            continue
        made.append(_TAG.sub("&lt;", pieces[at]).replace("![", "!\\["))
        at += 1
    return "".join(made)
