"""The client's methods that ask the CLI about the run, the model and what there is to use, or change it.

One method per control request, with the official or the TypeScript SDK's name for it. `_mcp_controls`,
`_file_controls` and `_session_controls` have the rest. Arguments are checked before anything is sent.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

from toolwire.client.answers import (
    AccountInfo,
    AgentInfo,
    InitializeResponse,
    InterruptReceipt,
    ModelInfo,
    ProactivityLevel,
    ReloadOutputStylesResponse,
    ReloadPluginsResponse,
    ReloadSkillsResponse,
    SlashCommand,
    TaskOutput,
    UsageResponse,
)
from toolwire.client.requests import (
    Requests,
    checked_choice,
    checked_mapping,
    checked_path,
    checked_text,
    given,
)
from toolwire.client.status import ContextUsageResponse
from toolwire.hooks.registry import register
from toolwire.options import command_line as _argv
from toolwire.permissions import PermissionMode

KEEP: Final = "keep"


class Controls(Requests):
    """Control requests about the run, tasks, the model, and what the CLI has to offer."""

    # The run.

    async def interrupt(self, cancel_queued: bool = False) -> InterruptReceipt:
        """Stop the turn that runs. Its result still comes.

        Prompts that were sent and not begun run next, and the receipt lists them in `still_queued`;
        `cancel_queued` drops them too.
        """
        answer = await self.control_request("interrupt", **given(cancel_queued=cancel_queued))
        return cast("InterruptReceipt", answer)

    async def cancel_async_message(self, message_uuid: str) -> bool:
        """Drop a prompt that waits behind the turn that runs; False if it has begun or is not known.

        `message_uuid` is the `uuid` of the message dict that was sent.
        """
        uuid = checked_text("message_uuid", message_uuid)
        return bool((await self.control_request("cancel_async_message", message_uuid=uuid)).get("cancelled"))

    async def stop_task(self, task_id: str) -> None:
        """Stop a background task; its end comes as a task message. An unknown one is no error for the CLI."""
        await self.control_request("stop_task", task_id=checked_text("task_id", task_id))

    async def background_tasks(self, tool_use_id: str | None = None) -> bool:
        """Let running commands and subagents go on in the background, all or that of one tool call.

        The turn goes on at once. False only if `tool_use_id` names nothing that runs.
        """
        target = None if tool_use_id is None else checked_text("tool_use_id", tool_use_id)
        answer = await self.control_request("background_tasks", **given(tool_use_id=target))
        return bool(answer.get("backgrounded", True))

    async def get_task_output(self, task_id: str) -> TaskOutput:
        """The last 8 KiB that a background command has written, while it runs and after."""
        answer = await self.control_request("get_task_output", task_id=checked_text("task_id", task_id))
        return cast("TaskOutput", answer)

    # Model and mode.

    async def set_permission_mode(self, mode: PermissionMode) -> PermissionMode:
        """Change the permission mode from now on, and return it."""
        answer = await self.control_request("set_permission_mode", mode=checked_text("mode", mode))
        return cast("PermissionMode", answer.get("mode", mode))

    async def set_model(self, model: str | None = None) -> str | None:
        """Change the model from now on, None is the default one; returns the name of the model now used.

        The CLI takes names that it does not know; the API then refuses the next turn.
        """
        name = None if model is None else checked_text("model", model)
        return cast("str | None", (await self.control_request("set_model", model=name)).get("model", name))

    async def set_max_thinking_tokens(
        self,
        max_thinking_tokens: int | None,
        thinking_display: Literal["summarized", "omitted", "highlights", "keep"] | None = KEEP,
    ) -> None:
        """Change how much the model may think, None: as at first, and what is shown of it, None: the default."""
        if max_thinking_tokens is not None and (
            isinstance(max_thinking_tokens, bool) or not isinstance(max_thinking_tokens, int)
        ):
            raise TypeError(
                f"max_thinking_tokens must be an integer or None, got {type(max_thinking_tokens).__name__}"
            )
        checked_choice(
            "thinking_display", thinking_display, ("summarized", "omitted", "highlights", KEEP, None)
        )
        display: dict[str, Any] = {} if thinking_display == KEEP else {"thinking_display": thinking_display}
        await self.control_request(
            "set_max_thinking_tokens", max_thinking_tokens=max_thinking_tokens, **display
        )

    async def set_proactivity_level(self, level: Literal["ask", "default", "proactive"]) -> ProactivityLevel:
        """Choose how much Claude does unasked. Needs `reinitialize(proactivity=True)` before."""
        checked_choice("level", level, ("ask", "default", "proactive"))
        return cast("ProactivityLevel", await self.control_request("set_proactivity_level", level=level))

    # What the CLI is and has.

    async def initialization_result(self) -> InitializeResponse:
        """What the CLI said of itself when it was initialized last."""
        return cast("InitializeResponse", self._live.info or {})

    async def reinitialize(self, **fields: Any) -> InitializeResponse:
        """Initialize the running session again with the same options; `fields` are added to the request.

        Hooks are registered anew, and a hook that is being waited for is given up.
        """
        hooks, _ = register(self.options.hooks or {})
        request = {**_argv.initialize_request(self.options, hooks), **fields}
        live = self._live
        answer = await self.control_request(request.pop("subtype"), **request)
        live.info = answer
        return cast("InitializeResponse", answer)

    async def supported_commands(self) -> list[SlashCommand]:
        """The commands and skills that a prompt may begin with, as of the start of the session."""
        return (await self.initialization_result()).get("commands", [])

    async def supported_models(self) -> list[ModelInfo]:
        """The models to choose from, as of the start of the session."""
        return (await self.initialization_result()).get("models", [])

    async def supported_agents(self) -> list[AgentInfo]:
        """The subagents that the model may start, as of the start of the session."""
        return (await self.initialization_result()).get("agents", [])

    async def account_info(self) -> AccountInfo:
        """Which account and which kind of key is used."""
        return (await self.initialization_result()).get("account", {})

    async def list_models(self) -> list[ModelInfo]:
        """The models to choose from, asked anew."""
        return cast("list[ModelInfo]", (await self.control_request("list_models")).get("models", []))

    async def get_context_usage(
        self, detail: Literal["summary", "full"] | None = None
    ) -> ContextUsageResponse:
        """What fills the context window. `summary` estimates; `full`, the default, has the API count."""
        checked_choice("detail", detail, ("summary", "full", None))
        return cast(
            "ContextUsageResponse", await self.control_request("get_context_usage", **given(detail=detail))
        )

    async def get_usage(self, skip_behaviors: bool = False) -> UsageResponse:
        """Cost and tokens of the session, and the limits of a plan.

        `skip_behaviors` spares the CLI from reading the transcripts of the last days.
        """
        answer = await self.control_request("get_usage", **given(skip_behaviors=skip_behaviors))
        return cast("UsageResponse", answer)

    async def get_session_cost(self) -> str:
        """The cost of the session as the CLI words it."""
        return str((await self.control_request("get_session_cost")).get("text", ""))

    # What is on disk, read again.

    async def reload_plugins(
        self,
        *,
        hold_on_cache_impact: bool = False,
        add_plugins: Sequence[Mapping[str, Any]] | None = None,
        refuse_if_busy: bool = False,
    ) -> ReloadPluginsResponse:
        """Read plugins again, and load those of `add_plugins` too (as in the option `plugins`, absolute paths).

        `hold_on_cache_impact` changes nothing if the tools would change under a cached conversation;
        `refuse_if_busy` is refused with the error code `reload_plugins_busy` while a turn runs.
        """
        plugins = None if add_plugins is None else _plugins(add_plugins)
        flags = given(
            hold_on_cache_impact=hold_on_cache_impact, add_plugins=plugins, refuse_if_busy=refuse_if_busy
        )
        return cast("ReloadPluginsResponse", await self.control_request("reload_plugins", **flags))

    async def reload_skills(self) -> ReloadSkillsResponse:
        """Read skills again."""
        return cast("ReloadSkillsResponse", await self.control_request("reload_skills"))

    async def reload_output_styles(self) -> ReloadOutputStylesResponse:
        """Read output styles again."""
        return cast("ReloadOutputStylesResponse", await self.control_request("reload_output_styles"))


def _plugins(plugins: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    checked = [checked_mapping("a plugin in add_plugins", plugin) for plugin in plugins]
    for plugin in checked:
        if not Path(checked_path("the path of a plugin", plugin.get("path"))).is_absolute():
            raise ValueError(f"the path of a plugin must be absolute, got {plugin['path']!r}")
    return [{**plugin, "path": os.fspath(plugin["path"])} for plugin in checked]
