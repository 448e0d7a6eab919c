"""The client's methods about settings, the whole conversation, and what a host shows of it. See `_controls`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from toolwire.client.answers import (
    ForkConversationResult,
    PlanResponse,
    RewindConversationResult,
    SideAnswer,
)
from toolwire.client.listings import (
    BinaryVersion,
    ExportedConversation,
    HooksListing,
    MemoryDialog,
    PermissionRules,
    SandboxDialog,
    SettingsResponse,
    SkillsDialog,
    StatusResponse,
)
from toolwire.client.requests import Requests, checked_choice, checked_mapping, checked_text, given


class SessionControls(Requests):
    """Control requests about settings, the conversation and its host."""

    # Settings and rules.

    async def get_settings(self) -> SettingsResponse:
        """The settings in force and where they came from."""
        return cast("SettingsResponse", await self.control_request("get_settings"))

    async def apply_flag_settings(self, settings: Mapping[str, Any]) -> None:
        """Change settings for this session, as the option `settings` does at its start.

        Top-level keys replace those of earlier calls; None clears one. One bad value and nothing is applied.
        """
        await self.control_request("apply_flag_settings", settings=checked_mapping("settings", settings))

    async def update_settings(
        self, source: Literal["localSettings", "userSettings"], settings: Mapping[str, Any]
    ) -> None:
        """Write settings to a file. The CLI takes `outputStyle` for local and `effortLevel` for user settings.

        Refused when `setting_sources` leaves that source out.
        """
        checked_choice("source", source, ("localSettings", "userSettings"))
        body = checked_mapping("settings", settings)
        await self.control_request("update_settings", source=source, settings=body)

    async def list_permission_rules(self) -> PermissionRules:
        """The permission rules in force and where they came from."""
        return cast("PermissionRules", (await self.control_request("list_permission_rules")).get("state", {}))

    async def get_hooks_listing(self) -> HooksListing:
        """The hooks of settings, plugins and this session, and all events that there are."""
        return cast("HooksListing", await self.control_request("get_hooks_listing"))

    # The conversation.

    async def rename_session(
        self, title: str, *, source: Literal["host", "remote"] = "host", session_id: str | None = None
    ) -> None:
        """Give the session a title. With `session_id`, only if it is still that session."""
        checked_choice("source", source, ("host", "remote"))
        same = None if session_id is None else checked_text("session_id", session_id)
        fields = {"title": checked_text("title", title), "source": source, **given(session_id=same)}
        await self.control_request("rename_session", **fields)

    async def generate_session_title(
        self, description: str, persist: bool = False, *, control_timeout: float | None = None
    ) -> str | None:
        """Have the model find a title for what is described; None if it finds none. `persist` keeps it."""
        answer = await self.control_request(
            "generate_session_title",
            control_timeout=control_timeout,
            description=checked_text("description", description),
            persist=bool(persist),
        )
        return cast("str | None", answer.get("title"))

    async def side_question(
        self,
        question: str,
        history: Sequence[Mapping[str, str]] = (),
        *,
        control_timeout: float | None = None,
    ) -> SideAnswer:
        """Ask the model something beside the conversation, which it knows and which stays as it is.

        `history` is earlier side questions, as dicts with `question` and `response`.
        """
        before = [_exchange(each) for each in history]
        answer = await self.control_request(
            "side_question",
            control_timeout=control_timeout,
            question=checked_text("question", question),
            **given(history=before or None),
        )
        return cast("SideAnswer", answer)

    async def rewind_conversation(
        self,
        target_message_uuid: str,
        *,
        allow_assistant_target: bool = False,
        allow_summarized_target: bool = False,
    ) -> RewindConversationResult:
        """Cut the conversation back to before a message; files stay as they are (see `rewind_files`)."""
        flags = given(
            allow_assistant_target=allow_assistant_target, allow_summarized_target=allow_summarized_target
        )
        uuid = checked_text("target_message_uuid", target_message_uuid)
        answer = await self.control_request("rewind_conversation", target_message_uuid=uuid, **flags)
        return cast("RewindConversationResult", answer)

    async def fork_conversation(
        self, target_message_uuid: str | None = None, title: str | None = None
    ) -> ForkConversationResult:
        """Fork the conversation at a message. The CLI does it for remote sessions only, and else says so."""
        names = {"target_message_uuid": target_message_uuid, "title": title}
        fields: dict[str, Any] = {
            name: checked_text(name, value) for name, value in names.items() if value is not None
        }
        return cast("ForkConversationResult", await self.control_request("fork_conversation", **fields))

    async def export_conversation(self) -> ExportedConversation:
        """The conversation as plain text."""
        return cast("ExportedConversation", await self.control_request("export_conversation"))

    async def get_plan(self) -> PlanResponse:
        """The plan that Claude wrote in plan mode, if any."""
        return cast("PlanResponse", await self.control_request("get_plan"))

    async def end_session(self, reason: str | None = None) -> None:
        """Have the CLI stop what it does and leave. Messages end after that."""
        why = None if reason is None else checked_text("reason", reason)
        await self.control_request("end_session", **given(reason=why))

    # The host.

    async def get_status(self) -> StatusResponse:
        """What `/status` shows."""
        return cast("StatusResponse", await self.control_request("get_status"))

    async def get_binary_version(self) -> BinaryVersion:
        """Which CLI this is."""
        return cast("BinaryVersion", await self.control_request("get_binary_version"))

    async def get_memory_dialog(self) -> MemoryDialog:
        """Which files Claude has its instructions and memories from."""
        return cast("MemoryDialog", await self.control_request("get_memory_dialog"))

    async def get_skills_dialog(self) -> SkillsDialog:
        """Which skills of the user and the project there are."""
        return cast("SkillsDialog", await self.control_request("get_skills_dialog"))

    async def get_sandbox_dialog(self) -> SandboxDialog:
        """Whether and how commands are kept in a sandbox."""
        return cast("SandboxDialog", await self.control_request("get_sandbox_dialog"))

    async def set_has_subscribers(self, has_subscribers: bool | None) -> None:
        """Tell the CLI whether somebody watches, for sessions that hold back partial messages; None: unknown."""
        checked_choice("has_subscribers", has_subscribers, (True, False, None))
        await self.control_request("set_has_subscribers", has_subscribers=has_subscribers)

    async def set_prompt_suggestions_paused(self, paused: bool) -> None:
        """Hold back prompt suggestions, or let them come again."""
        checked_choice("paused", paused, (True, False))
        await self.control_request("set_prompt_suggestions_paused", paused=paused)

    async def message_rated(
        self,
        message_uuid: str,
        sentiment: Literal["positive", "negative"],
        surface: Literal["assistant_text", "tool_use"] = "assistant_text",
        cleared: bool = False,
    ) -> None:
        """Tell the CLI what the user thinks of a message; `cleared` takes it back."""
        checked_choice("sentiment", sentiment, ("positive", "negative"))
        checked_choice("surface", surface, ("assistant_text", "tool_use"))
        uuid = checked_text("message_uuid", message_uuid)
        await self.control_request(
            "message_rated", messageUuid=uuid, sentiment=sentiment, surface=surface, cleared=bool(cleared)
        )


def _exchange(exchange: Mapping[str, str]) -> dict[str, str]:
    body = checked_mapping("an exchange in history", exchange)
    if missing := [name for name in ("question", "response") if not isinstance(body.get(name), str)]:
        raise ValueError(f"an exchange in history needs {missing[0]!r} as a string")
    return body
