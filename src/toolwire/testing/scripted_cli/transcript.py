"""The transcript of a scripted CLI: written to the real CLI's location, mirrored to the host, and resumed from.

Owns the entries of a turn, in the real CLI's order: one for each block of a response, with the results below their
calls. Does nothing unless the host requested a mirror (`--session-mirror`) or the test requested files.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from toolwire._transport.find_cli import TESTED
from toolwire.sessions import transcript as files
from toolwire.sessions.entries import NOT_MIRRORED, list_blocks, list_texts, write_time
from toolwire.sessions.paths import list_session_files
from toolwire.testing.scripted_cli.host import Settings

Entry = dict[str, Any]
_OF_FRAMES = ("message", "uuid", "timestamp")


class Transcript:
    """The transcript of one conversation."""

    def __init__(self, settings: Settings, emit: Callable[[Entry], None]) -> None:
        self._settings = settings
        self._emit = emit
        self._is_kept = settings.mirrors or settings.writes_files
        self._unsent: list[Entry] = []
        self._leaf: str | None = None
        self._calls: dict[str, str] = {}
        self._prompt = ""
        self._cost: Entry | None = None
        self._path = Path()

    def resume(self) -> tuple[list[Entry], Entry] | None:
        """Return the messages and the last cost of the conversation to resume; None if it does not exist."""
        settings = self._settings
        if not self._is_kept:
            return [], {}
        old = self._find_old()
        lines = [entry for _, entry in files.read_entries(old)] if old is not None and old.exists() else []
        if old is not None and not settings.forks:
            settings.session_id, self._path = old.stem, old
        else:
            self._path = settings.project_folder / f"{settings.session_id}.jsonl"
        if settings.resumed is not None and settings.writes_files and not lines:
            return None
        if settings.forks:
            copied = [each for each in lines if each.get("type") not in NOT_MIRRORED]
            self._unsent = [{**each, "sessionId": settings.session_id} for each in copied]
        self._leaf = next((each["uuid"] for each in reversed(lines) if "parentUuid" in each), None)
        costs = [each for each in lines if each.get("type") == "cost-state"]
        said = files.read_messages(old, old.stem) if lines and old is not None else []
        messages = [{"role": each.type, "content": each.message.get("content")} for each in said]
        return messages, costs[-1] if costs else {}

    def _find_old(self) -> Path | None:
        settings = self._settings
        if settings.resumed:
            path = Path(settings.resumed)
            return path if path.is_absolute() else settings.project_folder / f"{settings.resumed}.jsonl"
        found = list_session_files([settings.project_folder]) if settings.continues else ()
        newest = next(iter(found), None)
        return None if newest is None else newest.path

    def add_prompt(self, content: Any) -> None:
        """Add a prompt."""
        self._prompt = "\n".join(list_texts(list_blocks(content)))
        now = write_time(datetime.now(UTC))
        for operation in ({"operation": "enqueue", "content": self._prompt}, {"operation": "dequeue"}):
            self._note("queue-operation", **operation, timestamp=now)
        self._add_message("user", {"message": {"role": "user", "content": content}, "promptSource": "sdk"})
        self._add_message("attachment", {"attachment": {"type": "date", "date": now[:10]}})

    def add(self, frame: Entry) -> None:
        """Add the message of a frame: a block of a response, or the result of a call."""
        fields = {name: frame[name] for name in _OF_FRAMES if name in frame}
        if "tool_use_result" in frame:
            fields["toolUseResult"] = frame["tool_use_result"]
        parent = self._leaf
        for block in frame["message"].get("content") or []:
            if block.get("type") == "tool_result":
                parent = self._calls.get(block.get("tool_use_id"), parent)
                fields["sourceToolAssistantUUID"] = parent
        name = self._add_message(frame["type"], fields, parent)
        for block in frame["message"].get("content") or []:
            if block.get("type") == "tool_use":
                self._calls[block["id"]] = name

    def end_turn(self, result: Entry) -> None:
        """Store the cost so far, and send all entries before the result."""
        self._cost = {"totalCostUSD": result["total_cost_usd"], "modelUsage": result["modelUsage"]}
        self.send()

    def note_prompt(self) -> None:
        """Add and send the last prompt, as the real CLI does after a result."""
        self._note("last-prompt", lastPrompt=self._prompt, leafUuid=self._leaf)
        self.send()

    def end(self) -> None:
        """Add and send the cost, as the last entry of the conversation."""
        if self._cost is not None:
            self._note("cost-state", **self._cost)
            self.send()

    def send(self) -> None:
        """Write the new entries to the file and mirror them to the host."""
        entries, self._unsent = self._unsent, []
        if not entries:
            return
        if self._settings.writes_files:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            files.append_entries(self._path, entries)
        if self._settings.mirrors:
            self._emit({"type": "transcript_mirror", "filePath": str(self._path), "entries": entries})

    def _note(self, kind: str, **fields: Any) -> None:
        if self._is_kept:
            self._unsent.append({"type": kind, **fields, "sessionId": self._settings.session_id})

    def _add_message(self, kind: str, fields: Entry, parent: str | None = None) -> str:
        settings = self._settings
        entry = {
            "parentUuid": parent or self._leaf,
            "isSidechain": False,
            "type": kind,
            "uuid": str(uuid4()),
            "timestamp": write_time(datetime.now(UTC)),
            **fields,
            "userType": "external",
            "entrypoint": "sdk-py",
            "cwd": settings.cwd,
            "sessionId": settings.session_id,
            "version": TESTED,
            "gitBranch": "HEAD",
        }
        self._leaf = str(entry["uuid"])
        if self._is_kept:
            self._unsent.append(entry)
        return self._leaf
