"""Interprets single transcript entries, and folds them into the summary of a session: titles, prompts, times, tag.

Used for files and stores alike. The order of messages is in `sessions/tree`. No I/O.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from toolwire._protocol import json_codec, lines
from toolwire.messages.system import SessionKey
from toolwire.sessions.types import SDKSessionInfo, SessionStoreEntry, SessionSummaryEntry

_SESSION_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
NOT_MIRRORED: Final = frozenset({"api-request", "api-request-blob", "api-request-shape"})
"""Types of entries that the CLI writes to disk but never sends to a store: copies of requests to the API."""

_METADATA: Final = "agent_metadata"
_PROMPT_LENGTH: Final = 200
_NOT_A_PROMPT: Final = re.compile(
    r"<local-command-stdout>|<session-start-hook>|<tick>|<goal>|\[Request interrupted by user[^\]]*\]"
    r"|\s*<(ide_opened_file|ide_selection)>.*</\1>\s*\Z",
    re.DOTALL,
)
_COMMAND: Final = re.compile(r"<command-name>(.*?)</command-name>", re.DOTALL)
_LAST_ONE_COUNTS: Final = {
    "customTitle": "custom_title",
    "aiTitle": "ai_title",
    "lastPrompt": "last_prompt",
    "summary": "summary_hint",
    "gitBranch": "git_branch",
}


def is_session_id(value: object) -> bool:
    """Return True for a UUID in its usual form."""
    return isinstance(value, str) and _SESSION_ID.fullmatch(value) is not None


def check_session_id(value: object, name: str = "session_id") -> None:
    """Raise ValueError unless it is a UUID."""
    if not is_session_id(value):
        raise ValueError(f"Invalid {name}: {value!r} is not a UUID")


def read_line(line: bytes) -> dict[str, Any] | None:
    """Parse one line of a transcript. None if it is empty, torn or not a JSON object, so that it can be skipped."""
    try:
        entry = json_codec.loads(line, lone_surrogates=True)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def write_line(entry: Mapping[str, Any]) -> bytes:
    """Encode an entry as one line. Its type comes first, as the official readers expect."""
    return lines.encode({"type": entry["type"], **entry} if "type" in entry else dict(entry))


def fold_session_summary(
    prev: SessionSummaryEntry | None, key: SessionKey, entries: Iterable[SessionStoreEntry]
) -> SessionSummaryEntry:
    """Add entries of a session's main transcript to its summary, and return the new one.

    A store calls this in `append` with the summary that it has (or None), and stores the result with the entries,
    so that sessions can be listed without loading them. `mtime` is not changed: the store sets it.
    """
    data = dict(prev["data"]) if prev else {}
    for entry in entries:
        fold_entry(data, entry)
    session_id = prev["session_id"] if prev else key["session_id"]
    return {"session_id": session_id, "mtime": prev["mtime"] if prev else 0, "data": data}


def fold_entry(data: dict[str, Any], entry: Mapping[str, Any]) -> None:
    """Add an entry to the data of a summary."""
    data.setdefault("is_sidechain", entry.get("isSidechain") is True)
    if "created_at" not in data and (created := read_time(entry.get("timestamp"))) is not None:
        data["created_at"] = created
    if "cwd" not in data and (cwd := entry.get("cwd")) and isinstance(cwd, str):
        data["cwd"] = cwd
    for field, name in _LAST_ONE_COUNTS.items():
        if isinstance(value := entry.get(field), str):
            data[name] = value
    if entry.get("type") == "tag":
        if isinstance(tag := entry.get("tag"), str) and tag:
            data["tag"] = tag
        else:
            data.pop("tag", None)
    if entry.get("type") == "user" and not data.get("first_prompt_locked"):
        _fold_prompt(data, entry)


def _fold_prompt(data: dict[str, Any], entry: Mapping[str, Any]) -> None:
    if entry.get("isMeta") or entry.get("isCompactSummary"):
        return
    for text in prompt_texts(entry):
        line = text.replace("\n", " ").strip()
        if not line or _NOT_A_PROMPT.match(line):
            continue
        if command := _COMMAND.search(line):
            data.setdefault("command_fallback", command[1])
            continue
        data["first_prompt"] = shorten(line)
        data["first_prompt_locked"] = True
        return


def prompt_texts(entry: Mapping[str, Any]) -> list[str]:
    """Return the texts that the user wrote in an entry; an empty list if it holds the result of a tool."""
    blocks = read_blocks(entry)
    return [] if any(each.get("type") == "tool_result" for each in blocks) else list_texts(blocks)


def read_blocks(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content blocks of an entry's message."""
    message = entry.get("message")
    return list_blocks(message.get("content") if isinstance(message, dict) else None)


def list_blocks(content: object) -> list[dict[str, Any]]:
    """Return the blocks of a message content, which may also be a plain string."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def list_texts(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the texts of all text blocks."""
    texts = [each.get("text") for each in blocks if each.get("type") == "text"]
    return [each for each in texts if isinstance(each, str)]


def split_metadata(found: Iterable[SessionStoreEntry]) -> tuple[list[SessionStoreEntry], dict[str, Any]]:
    """Split a stored transcript into its entries and the metadata of its subagent (empty if it has none)."""
    lines: list[SessionStoreEntry] = []
    metadata: dict[str, Any] = {}
    for entry in found:
        if entry.get("type") == _METADATA:
            metadata = {name: value for name, value in entry.items() if name != "type"}
        else:
            lines.append(entry)
    return lines, metadata


def make_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry in which a store keeps the metadata of a subagent."""
    return {"type": _METADATA, **metadata}


def shorten(text: str, length: int = _PROMPT_LENGTH) -> str:
    """Cut a text after `length` characters, and mark the cut with an ellipsis."""
    return text if len(text) <= length else text[:length].rstrip() + "…"


def read_time(value: object) -> int | None:
    """Convert a timestamp such as `2026-01-02T03:04:05.678Z` to milliseconds since 1970; None if it is invalid."""
    if not isinstance(value, str):
        return None
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    try:
        return int(when.timestamp() * 1000)
    except (OverflowError, ValueError):
        return None


def write_time(when: datetime) -> str:
    """Format a time as the CLI does, in UTC with milliseconds."""
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_time(milliseconds: int | None) -> str:
    """Format a time in UTC; empty if there is none, or it is out of range."""
    if not milliseconds:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return ""


def describe_session(
    summary: SessionSummaryEntry,
    *,
    last_modified: int | None = None,
    file_size: int | None = None,
    cwd: str | None = None,
) -> SDKSessionInfo | None:
    """Return the list entry of a session from its summary. None for a subagent, or if there is nothing to show.

    `last_modified` replaces the summary's `mtime`. `cwd` is used if the transcript has none.
    """
    data = summary["data"]
    title = data.get("custom_title") or data.get("ai_title")
    first_prompt = data.get("first_prompt") or data.get("command_fallback")
    shown = title or data.get("last_prompt") or data.get("summary_hint") or first_prompt
    if data.get("is_sidechain") or not shown:
        return None
    return SDKSessionInfo(
        session_id=summary["session_id"],
        summary=shown,
        last_modified=summary["mtime"] if last_modified is None else last_modified,
        file_size=file_size,
        custom_title=title or None,
        first_prompt=first_prompt or None,
        git_branch=data.get("git_branch") or None,
        cwd=data.get("cwd") or cwd,
        tag=data.get("tag"),
        created_at=data.get("created_at"),
    )


def choose_title(data: Mapping[str, Any]) -> str:
    """Return the title of a session from the data of its summary, else its first prompt; may be empty."""
    names = ("custom_title", "ai_title", "first_prompt", "command_fallback")
    return next((title for name in names if (title := data.get(name))), "")


def clean_title(title: str) -> str:
    """Return a title without surrounding whitespace. ValueError if nothing is left."""
    if not (cleaned := title.strip()):
        raise ValueError("title must be non-empty")
    return cleaned


def clean_tag(tag: str) -> str:
    """Return a tag without invisible characters. ValueError if nothing is left."""
    cleaned = tag
    for _ in range(10):
        before = cleaned
        cleaned = unicodedata.normalize("NFKC", cleaned)
        cleaned = "".join(each for each in cleaned if unicodedata.category(each) not in {"Cf", "Co", "Cn"})
        if cleaned == before:
            break
    if not (cleaned := cleaned.strip()):
        raise ValueError("tag must be non-empty; None removes the tag")
    return cleaned
