"""Refuses to start the real CLI with the user's own account while the test kit is in use.

A test that uses a fixture of the kit but forgets to pass its options would talk to the real model, and cost money.
Owns the list of kits in use, in this process and (by an environment variable) in its parents. Must not know the
kits: they register with a text that says which options have to be passed.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from toolwire.errors import LiveStartError

MARK: Final = "TOOLWIRE_TEST_KIT"
"""Variable in every environment that the kit makes for a CLI. Its value is the address of the scripted model."""
IN_USE: Final = "TOOLWIRE_TEST_KIT_IN_USE"
"""Variable of this process while kits are in use. Its value is their names, for processes that a test starts."""

_kits: dict[object, tuple[str, str]] = {}
_inherited: Final = os.environ.get(IN_USE)  # read at import, because tests change the environment
_lock = threading.Lock()
_allowed: ContextVar[bool] = ContextVar("toolwire_allow_live", default=False)


def use_kit(name: str, to_pass: str) -> Callable[[], None]:
    """Refuse live starts in all threads until the returned function is called.

    `to_pass` names the arguments that the options need, such as `**scripted_cli.options_kwargs()`.
    """
    key = object()
    with _lock:
        _kits[key] = name, to_pass
        _publish()

    def leave() -> None:
        with _lock:
            if _kits.pop(key, None) is not None:
                _publish()

    return leave


def _publish() -> None:
    names = dict.fromkeys(name for name, _ in _kits.values())
    if names:
        os.environ[IN_USE] = ", ".join(names)
    elif _inherited is None:
        os.environ.pop(IN_USE, None)
    else:
        os.environ[IN_USE] = _inherited


@contextmanager
def allow_live() -> Iterator[None]:
    """Allow starting the real CLI with your own account although the test kit is in use."""
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def refuse_live_start(env: Mapping[str, str]) -> None:
    """Raise `LiveStartError` if a kit is in use and this environment is not one of its own."""
    with _lock:
        kits = list(dict.fromkeys(_kits.values()))
    if not (kits or _inherited) or _allowed.get() or _belongs_to_kit(env):
        return
    if kits:
        names = " and ".join(name for name, _ in kits)
        options = " or ".join(f"ClaudeAgentOptions({to_pass}, ...)" for _, to_pass in kits)
        advice = f"Pass the options of the kit: {options}."
    else:
        names = f"{_inherited}, in the process that started this one"
        advice = "Start this process with the environment of the kit: env=environment.env."
    raise LiveStartError(
        f"Refused to start the real Claude Code with your own account while the test kit is in use ({names}). "
        f"{advice} To start it on purpose, do so inside `with toolwire.testing.allow_live():`."
    )


def _belongs_to_kit(env: Mapping[str, str]) -> bool:
    """Return True if the CLI would talk to the kit's model, and not to another provider."""
    elsewhere = any(name.startswith("CLAUDE_CODE_USE_") and value for name, value in env.items())
    return MARK in env and env[MARK] == env.get("ANTHROPIC_BASE_URL") and not elsewhere
