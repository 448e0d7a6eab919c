"""The test kit: a scripted model, a scripted CLI, recordings, a direct client, and the real CLI's environment.

Each name is loaded when it is first used, so that the pytest plugin costs nothing in tests that do not use it.
`__init__.pyi` is the same list for type checkers.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "testing.scripted_cli.cli": "Scene ScriptedCLI ToolCall exit_early garbage silence",
    "tools.client": """
        CallResult Completed DirectClient ListedPrompt ListedResource ListedTemplate ListedTool Notified
        PromptResult ResourceContent connect
    """,
    "testing.environment": "ClaudeEnvironment allow_live claude_environment",
    "testing.scripted_model.model": "ScriptedModel Unexpected",
    "testing.recording.recorder": "Recorder",
    "testing.recording.replay": "Replay ReplayMismatch",
    "testing.request": "Request ToolResult",
    "testing.script": "Answer Rule Step answer call drop expect fail hang say think turn when",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_WHERE)  # noqa: PLE0605 - the list for type checkers is in the stub


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"toolwire.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
