"""A past conversation as people read it: prompts, responses, and calls with their results and subagents, in order.

The same for files and for stores. Messages are read one at a time, so that memory is bounded by the longest line
and a small node for each entry (a store returns a whole transcript at once). Does not know how they are displayed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from toolwire.sessions import disk, entries, paths, transcript, tree
from toolwire.sessions.paths import Directory
from toolwire.sessions.types import SDKSessionInfo, SessionMessage, SessionStore

_DEEPEST: Final = 20
"""The depth to which subagents of subagents are shown at their call; deeper ones come at the end."""

_DESCRIPTIVE_INPUTS: Final = (
    "command",
    "file_path",
    "pattern",
    "url",
    "query",
    "description",
    "path",
    "prompt",
    "skill",
)
"""Inputs of common tools that best describe a call, in order of preference."""


@dataclass(frozen=True)
class FileTranscript:
    """A transcript on disk. `metadata` is that of a subagent."""

    path: Path
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def read_all(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the entries, each with its offset in the file."""
        return transcript.read_entries(self.path)

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], dict[str, Any]]]:
        """Yield a function that returns the entry at an offset of the file; empty if it was replaced meanwhile."""
        with transcript.open_transcript(self.path) as file:
            yield lambda place: transcript.read_entry(file, place)

    def read_lines(self) -> Iterator[bytes]:
        """Yield the exact bytes of the file in pieces, without a last line that is still being written."""
        return transcript.copy_lines(self.path)


@dataclass(frozen=True)
class LoadedTranscript:
    """A transcript loaded from a store."""

    entries: Sequence[Mapping[str, Any]]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def read_all(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the entries, each with its number."""
        return ((place, dict(entry)) for place, entry in enumerate(self.entries))

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], dict[str, Any]]]:
        """Yield a function that returns an entry by its number."""
        yield lambda place: dict(self.entries[place])

    def read_lines(self) -> Iterator[bytes]:
        """Yield the entries as lines."""
        return (entries.write_line(entry) for entry in self.entries)


Transcript = FileTranscript | LoadedTranscript


@dataclass(frozen=True)
class RecordedSession:
    """A session with the transcripts of its subagents, by their subpath."""

    session_id: str
    project_key: str
    main: Transcript
    subagents: Mapping[str, Transcript]
    folder: Path | None = None
    """For a session on disk, the folder beside it."""
    file_size: int | None = None
    last_modified: int | None = None

    def describe(self) -> SDKSessionInfo:
        """Return the list entry of the session; its summary may be empty."""
        data: dict[str, Any] = {}
        last = 0
        for _, entry in self.main.read_all():
            entries.fold_entry(data, entry)
            last = max(last, entries.read_time(entry.get("timestamp")) or 0)
        data["is_sidechain"] = False
        mtime = last if self.last_modified is None else self.last_modified
        found = entries.describe_session(
            {"session_id": self.session_id, "mtime": mtime, "data": data}, file_size=self.file_size
        )
        return found or SDKSessionInfo(self.session_id, "", mtime, self.file_size)

    def read_messages(self, last: int = 0) -> Iterator[SessionMessage]:
        """Yield the messages of the main conversation in order; only the `last` ones, unless it is 0."""
        ordered = tree.order_messages(self.main.read_all(), whole_history=True)
        with self.main.reading() as read:
            for node in ordered[-last:]:
                entry = read(node.position)
                if entry.get("uuid") == node.uuid:
                    yield tree.make_message(entry, self.session_id)

    def read_conversation(self) -> "Conversation":
        """Return the whole conversation, including the messages before compactions."""
        return Conversation(self)


def open_session(
    session_id: str, directory: Directory | None = None, config_dir: Directory | None = None
) -> RecordedSession:
    """Open a session on disk. ValueError if the id is not a UUID, FileNotFoundError if there is no such session."""
    entries.check_session_id(session_id)
    return open_file(disk.find_file(session_id, directory, config_dir))


def open_file(file: paths.SessionFile) -> RecordedSession:
    """Open a session whose transcript was found."""
    below: dict[str, Transcript] = {
        path.relative_to(file.folder).with_suffix("").as_posix(): FileTranscript(
            path, paths.read_subagent_metadata(path)
        )
        for path in paths.list_subagent_files(file.folder)
    }
    return RecordedSession(
        file.session_id,
        file.path.parent.name,
        FileTranscript(file.path),
        below,
        file.folder,
        file.size,
        file.mtime,
    )


async def load_session(
    session_store: SessionStore, session_id: str, directory: Directory | None = None
) -> RecordedSession:
    """Load a session from a store. ValueError if the id is not a UUID, FileNotFoundError if it is not there."""
    from toolwire.sessions import store_functions  # noqa: PLC0415 - loads anyio, which the rest does not need

    entries.check_session_id(session_id)
    project_key = paths.project_key_for_directory(directory)
    loaded = await store_functions.load_all(session_store, session_id, directory)
    below: dict[str, Transcript] = {}
    for subpath, found in loaded.items():
        if subpath:
            below[subpath] = LoadedTranscript(*entries.split_metadata(found))
    return RecordedSession(session_id, project_key, LoadedTranscript(loaded[""]), below)


@dataclass(frozen=True)
class Text:
    """A text: a prompt, a response (`answer`), thinking, or the summary of a compaction."""

    kind: Literal["prompt", "answer", "thinking", "summary"]
    text: str


@dataclass(frozen=True)
class Picture:
    """A picture as it is in the transcript, unchecked."""

    media_type: str
    data: str
    """Base64; empty for an external picture, which has an `address`."""
    address: str = ""


@dataclass(frozen=True)
class Other:
    """A content block of another kind."""

    kind: str
    text: str


@dataclass(frozen=True)
class Result:
    """The result of a tool call."""

    parts: "Sequence[Text | Picture | Other]"
    is_error: bool = False


@dataclass(frozen=True)
class Subagent:
    """The conversation of a subagent."""

    agent_id: str
    agent_type: str
    description: str
    messages: "Iterator[Message]"


@dataclass(frozen=True)
class Call:
    """A call of a tool, with its result and the subagents that it started."""

    name: str
    input: Any
    result: Result | None = None
    subagents: Sequence[Subagent] = ()

    @property
    def gist(self) -> str:
        """The input that best describes the call; empty if none is known."""
        given = self.input if isinstance(self.input, Mapping) else {}
        texts = [given[name] for name in _DESCRIPTIVE_INPUTS if isinstance(given.get(name), str)]
        return texts[0] if texts else ""

    def list_inputs(self) -> list[tuple[str, str]]:
        """Return the name and text of each input; the name is empty if the input is not an object."""
        if isinstance(self.input, Mapping):
            return [(str(name), write_value(value)) for name, value in self.input.items()]
        return [] if self.input is None else [("", write_value(self.input))]


Part = Text | Picture | Other | Call


@dataclass(frozen=True)
class Message:
    """One entry of the conversation. `speaker` is "tool" for a result whose call is missing."""

    speaker: Literal["user", "assistant", "tool"]
    uuid: str
    timestamp: str
    parts: Sequence[Part]
    model: str = ""


def write_value(value: Any) -> str:
    """Format a value for people: a string as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


class Conversation:
    """The messages of a session in order. Iterate once."""

    def __init__(self, session: RecordedSession) -> None:
        self._session = session
        self._started: dict[str, list[str]] = {}
        for name, each in session.subagents.items():
            if isinstance(call := each.metadata.get("toolUseId"), str):
                self._started.setdefault(call, []).append(name)
        self._shown: set[str] = set()

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages of the main conversation."""
        return self._walk(self._session.main, of_subagent=False, depth=0)

    def list_remaining(self) -> Iterator[Subagent]:
        """Yield the subagents that were not shown at a call. Use after iterating over the conversation."""
        for name in self._session.subagents:
            if name not in self._shown:
                yield self._open(name, 0)

    def _open(self, name: str, depth: int) -> Subagent:
        self._shown.add(name)
        found = self._session.subagents[name]
        return Subagent(
            name.rpartition("/")[2].removeprefix("agent-"),
            _text(found.metadata.get("agentType")),
            _text(found.metadata.get("description")),
            self._walk(found, of_subagent=True, depth=depth + 1),
        )

    def _walk(self, source: Transcript, *, of_subagent: bool, depth: int) -> Iterator[Message]:
        ordered = tree.order_messages(source.read_all(), of_subagent=of_subagent, whole_history=True)
        called = {call for node in ordered for call in node.tool_uses}
        results = {
            call: node.position for node in reversed(ordered) for call in node.tool_results if call in called
        }
        with source.reading() as read:
            for node in ordered:
                if message := self._read(read(node.position), results, read, depth):
                    yield message

    def _read(
        self,
        entry: Mapping[str, Any],
        results: Mapping[str, int],
        read: Callable[[int], dict[str, Any]],
        depth: int,
    ) -> Message | None:
        message = entry.get("message")
        message = message if isinstance(message, dict) else {}
        of_user = entry.get("type") == "user"
        said: Literal["prompt", "answer", "summary"] = "prompt" if of_user else "answer"
        if entry.get("isCompactSummary"):
            said = "summary"
        parts: list[Part] = []
        stray = False
        for block in entries.read_blocks(entry):
            call = block.get("id")
            if block.get("type") == "tool_use":
                place = results.get(call) if isinstance(call, str) else None
                result = None if place is None else _find_result(read(place), call)
                names = [] if depth >= _DEEPEST else self._started.get(_text(call), [])
                started = [self._open(each, depth) for each in names if each not in self._shown]
                parts.append(Call(_text(block.get("name")) or "?", block.get("input"), result, started))
            elif block.get("type") == "tool_result":
                if _text(block.get("tool_use_id")) not in results:  # the call is missing
                    stray = True
                    parts += _read_result(block).parts
            else:
                parts += _read_block(block, said)
        if not parts:
            return None
        speaker: Literal["user", "assistant", "tool"] = "user" if of_user else "assistant"
        return Message(
            "tool" if stray else speaker,
            _text(entry.get("uuid")),
            _text(entry.get("timestamp")),
            parts,
            _text(message.get("model")),
        )


def _read_block(
    block: Mapping[str, Any], said: Literal["prompt", "answer", "thinking", "summary"]
) -> list[Text | Picture | Other]:
    match block.get("type"):
        case "text":
            text = _text(block.get("text"))
            return [Text(said, text)] if text.strip() else []
        case "thinking":
            text = _text(block.get("thinking"))
            return [Text("thinking", text)] if text.strip() else []
        case "redacted_thinking":
            return [Text("thinking", "(not readable: the model's API has encrypted it)")]
        case "image":
            source = block.get("source")
            source = source if isinstance(source, dict) else {}
            return [
                Picture(_text(source.get("media_type")), _text(source.get("data")), _text(source.get("url")))
            ]
        case kind:
            rest = {name: value for name, value in block.items() if name not in {"type", "signature"}}
            return [Other(_text(kind) or "?", write_value(rest))]


def _find_result(entry: Mapping[str, Any], call: object) -> Result | None:
    for block in entries.read_blocks(entry):
        if block.get("type") == "tool_result" and block.get("tool_use_id") == call:
            return _read_result(block)
    return None


def _read_result(block: Mapping[str, Any]) -> Result:
    parts = [
        part for each in entries.list_blocks(block.get("content")) for part in _read_block(each, "answer")
    ]
    return Result(parts, block.get("is_error") is True)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
