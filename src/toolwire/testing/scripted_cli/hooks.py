"""The hooks that the host has registered: who is called for an event, and what they are told.

Owns matching and the common fields. What their answers mean is for those who call them.
"""

import re
from typing import Any
from uuid import uuid4

from toolwire.testing.scripted_cli.host import Host, Refused


class Hooks:
    """The hooks of one connection."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.stopping = False
        """Whether a Stop hook has kept this turn going."""

    async def call(self, event: str, tool_name: str | None = None, **fields: Any) -> dict[str, Any]:
        """Call the hooks for an event; what they answer, later ones over earlier ones."""
        merged: dict[str, Any] = {}
        for matcher in self._host.hooks.get(event) or []:
            if _matches(matcher.get("matcher"), tool_name):
                for callback in matcher.get("hookCallbackIds") or []:
                    merged |= await self._one(event, callback, tool_name, fields)
        if event == "Stop":
            self.stopping = merged.get("decision") == "block"
        return merged

    async def _one(
        self, event: str, callback: str, tool_name: str | None, fields: dict[str, Any]
    ) -> dict[str, Any]:
        setup = self._host.setup
        told: dict[str, Any] = {
            "session_id": setup.session_id,
            "transcript_path": "",
            "cwd": setup.cwd,
            "permission_mode": setup.mode,
            "hook_event_name": event,
        }
        if tool_name is not None:
            told["tool_name"] = tool_name
        if event == "Stop":
            told["stop_hook_active"] = self.stopping
        body = {"subtype": "hook_callback", "callback_id": callback, "input": {**told, **fields}}
        try:
            return await self._host.ask({**body, "tool_use_id": fields.get("tool_use_id", str(uuid4()))})
        except Refused:
            return {}  # a hook that fails blocks nothing


def _matches(matcher: str | None, name: str | None) -> bool:
    return matcher in (None, "", "*") or name is None or re.fullmatch(str(matcher), name) is not None
