"""Writes transcripts as the CLI does, for the tests of sessions."""

import base64
import json
import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

SESSION = "6f1c2d3e-0000-4000-8000-000000000001"
WHEN = datetime(2026, 1, 2, tzinfo=UTC)


class Writer:
    """A transcript in the making: a line for each block, results below their calls, rewinds as branches."""

    def __init__(self, session=SESSION):
        self.lines = []
        self.session = session
        self.number = 0
        self.responses = 0

    def add(self, kind, parent, **fields):
        """Add a line to the tree, and return its uuid."""
        self.number += 1
        name = str(uuid.UUID(int=self.number))
        when = WHEN + timedelta(seconds=self.number)
        line = {"parentUuid": parent, "isSidechain": False, "type": kind, **fields, "uuid": name}
        stamp = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.lines.append({**line, "timestamp": stamp, "sessionId": self.session, "cwd": "/work"})
        return name

    def ask(self, parent, text, **fields):
        """Add a prompt and the attachment that follows it; returns the attachment's uuid."""
        name = self.add("user", parent, message={"role": "user", "content": text}, **fields)
        return self.add("attachment", name, attachment={"type": "date"})

    def answer(self, parent, text, calls=0, finish_order=()):
        """Add a response of a text and calls, and results in this order; returns the parent of the next line."""
        message_id = f"msg_{self.number}"
        names = [f"toolu_{self.number}_{index}" for index in range(calls)]
        blocks = [{"type": "text", "text": text}]
        blocks += [{"type": "tool_use", "id": name, "name": "T", "input": {}} for name in names]
        at, lines = parent, []
        for block in blocks:
            at = self.add(
                "assistant", at, message={"role": "assistant", "id": message_id, "content": [block]}
            )
            lines.append((at, block))
        for index in finish_order or range(calls):
            if index < calls:
                line, block = lines[index + 1]
                result = {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
                message = {"role": "user", "content": [result]}
                at = self.add("user", line, message=message, sourceToolAssistantUUID=line)
        return at

    def compact(self, place, keep):
        """Add a compaction after a line, which keeps one message; returns the parent of the next prompt."""
        segment = {"headUuid": keep, "tailUuid": keep, "anchorUuid": str(uuid.UUID(int=self.number + 2))}
        boundary = self.add(
            "system",
            None,
            subtype="compact_boundary",
            logicalParentUuid=place,
            compactMetadata={"preservedSegment": segment},
        )
        message = {"role": "user", "content": "the summary"}
        return self.add("user", boundary, message=message, isCompactSummary=True)

    def respond(self, parent, *blocks, usage=None, model="claude-opus-5-5", name=None, **fields):
        """Add a response, one line for each block, all with the same usage; returns the uuids of the lines."""
        self.responses += 1
        message = {
            "role": "assistant",
            "id": name or f"msg_{self.session[:4]}_{self.responses}",
            "model": model,
        }
        message |= {"usage": usage} if usage else {}
        made = []
        for block in blocks:
            parent = self.add("assistant", parent, message={**message, "content": [block]}, **fields)
            made.append(parent)
        return made

    def give(self, parent, call, content, **fields):
        """Add the result of a call, and return its uuid."""
        block = {"type": "tool_result", "tool_use_id": call, "content": content, **fields}
        return self.add("user", parent, message={"role": "user", "content": [block]})

    def note(self, **line):
        """Add a line that is not part of the tree."""
        self.lines.append({**line, "sessionId": self.session})

    def encode(self):
        """Return the whole file as bytes."""
        return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in self.lines)

    def write(self, config, key="-work"):
        """Write the transcript where the CLI would, and return its path."""
        folder = config / "projects" / key
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.session}.jsonl"
        path.write_bytes(self.encode())
        return path

    def write_subagent(self, path, agent, **metadata):
        """Write this transcript beside that of a session, as a subagent of it."""
        folder = path.with_suffix("") / "subagents"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"agent-{agent}.jsonl").write_bytes(self.encode())
        (folder / f"agent-{agent}.meta.json").write_text(json.dumps(metadata))


def text(said):
    """Return a text block."""
    return {"type": "text", "text": said}


def call(name, tool="Bash", **given):
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def image(data, media_type="image/png"):
    """Return an image block."""
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded}}


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
"""One pixel."""


def harbour(config):
    """Write a session with thinking, parallel calls, a failure, a picture and a subagent; returns its path."""
    writer = Writer()
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 1000}
    at = writer.ask(None, "Where could our harbour festival be?", gitBranch="quay")
    lines = writer.respond(
        at,
        {"type": "thinking", "thinking": "First the numbers.", "signature": "s"},
        text("I will look at the **numbers**."),
        call("t1", command="cat visitors.csv", description="Look"),
        call("t2", "Read", file_path="/home/ada/chart.png"),
        call("t3", "Agent", description="compare", prompt="Compare the towns.", subagent_type="scout"),
        usage=usage,
    )
    at = writer.give(lines[2], "t1", "Lisbon 120000\nFaro 45000")
    at = writer.give(lines[3], "t2", [image(PNG)])
    at = writer.give(lines[4], "t3", [text("Lisbon.")])
    [at] = writer.respond(at, call("t4", command="false"), usage=usage)
    at = writer.give(at, "t4", "Exit code 1", is_error=True)
    [at] = writer.respond(at, text("# Lisbon\n\nIt has the largest harbour."), usage=usage)
    writer.note(type="custom-title", customTitle="Harbour festival")
    writer.note(type="tag", tag="travel")
    path = writer.write(config)
    below = Writer()
    below.number = 1000
    at = below.add("user", None, isSidechain=True, message={"role": "user", "content": "Compare the towns."})
    below.respond(
        at, text("Faro is small."), usage=usage, model="claude-haiku-5", name="msg_sub", isSidechain=True
    )
    below.write_subagent(path, "a1", agentType="scout", toolUseId="t3", description="compare")
    return path


@st.composite
def conversations(draw):
    """Generate a conversation of some turns, with rewinds, parallel calls, metadata and hidden messages."""
    writer = Writer()
    places = [None]
    for turn in range(draw(st.integers(1, 5))):
        place = draw(st.sampled_from(places)) if draw(st.integers(0, 3)) == 0 else places[-1]
        meta = {"isMeta": True} if draw(st.integers(0, 5)) == 0 else {}
        place = writer.ask(place, f"prompt {turn}", **meta)
        for step in range(draw(st.integers(0, 3))):
            calls = draw(st.integers(0, 3))
            place = writer.answer(place, f"text {turn}.{step}", calls, draw(st.permutations(range(3))))
        places.append(place)
        if draw(st.booleans()):
            writer.note(type="last-prompt", lastPrompt=f"prompt {turn}")
        if draw(st.integers(0, 4)) == 0:
            writer.note(type="custom-title", customTitle=f"Title {turn}")
        if draw(st.integers(0, 4)) == 0:
            writer.note(type="tag", tag=draw(st.sampled_from(["", "blue"])))
    return writer


def texts(messages):
    """Return for each block, in order, its text, or the id of its call or result."""
    said = []
    for message in messages:
        content = message.message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        said += [each.get("text") or each.get("tool_use_id") or each.get("id") for each in blocks]
    return said
