"""The client's methods about files and folders where the CLI runs. See `_controls`."""

import os
from typing import Any, Literal, cast

from toolwire.client.answers import (
    FileContents,
    FileSuggestions,
    RepoRoot,
    RewindFilesResult,
    SetCwdResult,
    WorkspaceDiff,
)
from toolwire.client.requests import (
    Requests,
    checked_choice,
    checked_number,
    checked_path,
    checked_text,
    given,
)

Path = str | os.PathLike[str]


class FileControls(Requests):
    """Control requests about files and folders."""

    async def rewind_files(self, user_message_id: str, dry_run: bool = False) -> RewindFilesResult:
        """Put tracked files back as they were at a user message (needs `enable_file_checkpointing`).

        `dry_run` changes nothing and tells what would be.
        """
        uuid = checked_text("user_message_id", user_message_id)
        answer = await self.control_request("rewind_files", user_message_id=uuid, **given(dry_run=dry_run))
        return cast("RewindFilesResult", answer)

    async def read_file(
        self, path: Path, max_bytes: int | None = None, encoding: Literal["utf-8", "base64"] = "utf-8"
    ) -> FileContents:
        """Read a file where the CLI runs, if its Read tool might: 1 MB of it at most, or `max_bytes`."""
        if max_bytes is not None:
            checked_number("max_bytes", max_bytes)
        checked_choice("encoding", encoding, ("utf-8", "base64"))
        fields = given(max_bytes=max_bytes, encoding=None if encoding == "utf-8" else encoding)
        answer = await self.control_request("read_file", path=checked_path("path", path), **fields)
        return cast("FileContents", answer)

    async def seed_read_state(self, path: Path, mtime: int) -> None:
        """Tell the CLI that the model has read a file, so that it may edit it.

        `mtime` is when the file was last changed before that, in milliseconds; if it has changed since, the CLI
        ignores the request.
        """
        if isinstance(mtime, bool) or not isinstance(mtime, int):
            raise TypeError(
                "mtime must be in whole milliseconds, as in int(path.stat().st_mtime * 1000), "
                f"got {type(mtime).__name__}"
            )
        await self.control_request("seed_read_state", path=checked_path("path", path), mtime=mtime)

    async def file_suggestions(self, query: str) -> FileSuggestions:
        """Paths that fit what somebody types after an @; an empty query is allowed."""
        if not isinstance(query, str):
            raise TypeError(f"query must be a string, got {type(query).__name__}")
        return cast("FileSuggestions", await self.control_request("file_suggestions", query=query))

    async def get_workspace_diff(self) -> WorkspaceDiff:
        """What has changed in the git repository that the session works in."""
        return cast("WorkspaceDiff", await self.control_request("get_workspace_diff"))

    # Folders.

    async def set_cwd(self, path: Path, *, trusted_directory: str | None = None) -> SetCwdResult:
        """Move an idle session to another folder.

        A folder that nobody has trusted yet is answered with `needs_trust`: ask the user, then call again with the
        answer's `directory` as `trusted_directory`.
        """
        fields: dict[str, Any] = {}
        if trusted_directory is not None:
            accepted = checked_text("trusted_directory", trusted_directory)
            fields = {"trust_accepted": True, "trusted_directory": accepted}
        return cast(
            "SetCwdResult", await self.control_request("set_cwd", path=checked_path("path", path), **fields)
        )

    async def register_repo_root(
        self,
        directory: Path,
        *,
        reload_claude_md: bool = False,
        reload_plugins: bool = False,
        reload_skills: bool = False,
    ) -> RepoRoot:
        """Add a folder below the working directory, or below one of `add_dirs`, as a working directory."""
        flags = given(
            reload_claude_md=reload_claude_md, reload_plugins=reload_plugins, reload_skills=reload_skills
        )
        folder = checked_path("directory", directory)
        return cast("RepoRoot", await self.control_request("register_repo_root", directory=folder, **flags))

    async def add_directory(self, mount_path: Path) -> RepoRoot:
        """Attach a mounted folder, in a session that Anthropic hosts; elsewhere use `register_repo_root`."""
        path = checked_path("mount_path", mount_path)
        return cast("RepoRoot", await self.control_request("add_directory", mount_path=path))
