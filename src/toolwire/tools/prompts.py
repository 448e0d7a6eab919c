"""Prompts: typed functions that return messages for a conversation.

Owns their entries in the list, and the conversion of a function's result to messages. Calls no function, and must
not know connections.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypedDict

from toolwire._support.words import did_you_mean
from toolwire.tools.exposed_function import ExposedFunction, Source, check_settings, function_name
from toolwire.tools.names import find_name_problem
from toolwire.tools.paging import Pages
from toolwire.tools.results.content import ROLES
from toolwire.tools.results.result import check_block, dump_model, to_block
from toolwire.tools.results.to_json import BadResult, clean, type_name

_PAIR: Final = 2
_HINT: Final = (
    "return a str, content such as Image, a pair such as ('assistant', 'text'), "
    '{"role": ..., "content": ...}, or a list of these'
)


class PromptSettings(TypedDict, total=False):
    """The settings of a prompt."""

    name: str | None
    title: str | None
    description: str | None
    complete: Mapping[str, Source] | None
    icons: list[Any] | None
    meta: dict[str, Any] | None
    timeout: float | None
    inline: bool


@dataclass
class ServedPrompt(ExposedFunction):
    """A function that is served as a prompt."""

    def __post_init__(self) -> None:
        self.name = self.name or function_name(self.function)
        self.label = f"Prompt {self.name!r}"
        if (problem := find_name_problem(self.name)) is not None:
            raise self.error(problem)
        self.inspect_function()
        for key in ("title", "description"):
            if not isinstance(getattr(self, key), str | None):
                raise self.error(f"the {key} must be a string")
        self.definition = self._define()
        """Its entry in the list. Built once; do not change it."""

    def _define(self) -> dict[str, Any]:
        definition: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.title is not None:
            definition["title"] = self.title
        definition["arguments"] = [
            {
                "name": name,
                **{key: shown[key] for key in ("title", "description") if key in shown},
                "required": name in self.required,
            }
            for name, shown in self.arguments.items()
        ]
        return definition | self.extras()

    def messages(self, value: Any) -> dict[str, Any]:
        """Convert the function's result to a `GetPromptResult`; `BadResult` if that is not possible."""
        return {"description": self.description, "messages": _messages(value)}


class Prompts:
    """The prompts of one server."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._prompts: dict[str, ServedPrompt] = {}
        self.by_name: Mapping[str, ServedPrompt] = MappingProxyType(self._prompts)
        self.pages = Pages("prompts", self._prompts, lock)
        self.ever = False
        """True once there was a prompt. Until then, requests for prompts are unknown methods."""

    def add(self, prompt: ServedPrompt, *, replace: bool) -> None:
        """Add a prompt; `ToolDefinitionError` if its name is taken."""
        with self._lock:
            if prompt.name in self._prompts and not replace:
                raise prompt.error("the server already has it; replace=True replaces it")
            self._prompts[prompt.name] = prompt
            self.pages.drop()
            self.ever = True

    def remove(self, name: str) -> ServedPrompt:
        """Remove a prompt. KeyError if there is no such prompt."""
        with self._lock:
            if name in self._prompts:
                self.pages.drop()
                return self._prompts.pop(name)
        raise KeyError(self.unknown(name))

    def unknown(self, name: str) -> str:
        """Return the error text for a request for an unknown prompt."""
        return f"Unknown prompt: {name!r}.{did_you_mean(name, self._prompts)}"


def make_prompt(function: Callable[..., Any], settings: Mapping[str, Any]) -> ServedPrompt:
    """Make a prompt from a function."""
    return ServedPrompt(function, **check_settings(ServedPrompt, settings))


def _messages(value: Any) -> list[dict[str, Any]]:
    """Convert the result of a function to a list of messages."""
    if isinstance(value, list) or (isinstance(value, tuple) and not _is_pair(value)):
        return [message for each in value for message in _messages(each)]
    role, content = _split_message(value)
    if role not in ROLES:
        raise BadResult(f"a message's role must be 'user' or 'assistant', not {role!r}", type(role))
    several = content if isinstance(content, list | tuple) else [content]
    return [{"role": role, "content": _block(each)} for each in several]


def _split_message(value: Any) -> tuple[Any, Any]:
    if isinstance(value, tuple):
        return value[0], value[1]
    if hasattr(type(value), "model_dump") and hasattr(value, "role"):  # a message class of mcp or FastMCP
        value = dump_model(value, mode="json")
    if isinstance(value, Mapping) and "role" in value and "content" in value:
        return value["role"], value["content"]
    return "user", value


def _is_pair(value: tuple[Any, ...]) -> bool:
    return len(value) == _PAIR and isinstance(value[0], str) and value[0] in ROLES


def _block(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"type": "text", "text": clean(str.__str__(value))}
    if isinstance(value, Mapping) and "type" in value:
        return check_block(value, "the message's content")
    block = to_block(value)
    if block is None:
        raise BadResult(f"{type_name(type(value))} is not a message: {_HINT}", type(value))
    return block
