"""Questions to the user on the terminal of a program: may a tool run, and what a server wants to know.

Reading blocks, so it is done in a worker thread, one question at a time, and given up when it is withdrawn. Text of
others is shown without its control characters. Where there is no terminal the answer is no, with the reason.
"""

import json
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from toolwire._support.threads import Workers
from toolwire.permissions._asking import Answer, Asker
from toolwire.permissions.types import PermissionResultDeny, ToolPermissionContext

ReadLine: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and gives the line that was typed; None at the end of input."""

_LONGEST: Final = 4_000
_DECLINE: Final = "/decline"
_NOBODY: Final = (
    "The call was not allowed: it needs the user's permission, and there is no terminal to ask on."
)
_workers = Workers(8)
_turn = threading.Lock()  # one question at a time


def ask_on_terminal(read_line: ReadLine | None = None) -> Asker:
    """An asker for `ask`: shows the call and takes yes, always or no. `no because ...` tells the model why."""

    async def ask_on_terminal(name: str, given: dict[str, Any], context: ToolPermissionContext) -> Answer:
        read = read_line or (_read if _there() else None)
        if read is None:
            return PermissionResultDeny(message=_NOBODY)
        always = not context.suppress_always_allow_rule
        choices = "[y]es, [a]lways in this session, [n]o: " if always else "[y]es, [n]o: "
        arguments = clean(json.dumps(given, ensure_ascii=False, default=str))
        rest = len(arguments) - _LONGEST
        cut = f" ... {rest} more characters" if rest > 0 else ""
        why = f"\n  {clean(context.decision_reason)}" if context.decision_reason else ""
        question = f"May it call {clean(name)}?\n  {arguments[:_LONGEST]}{cut}{why}\n{choices}"
        while True:
            line = await read(question)
            if line is None:
                return PermissionResultDeny(message="The user does not allow this call.")
            word, _, reason = line.strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    return True
                case "a" | "always" if always:
                    return "always"
                case "n" | "no":
                    said = f" They say: {reason.strip()}" if reason.strip() else ""
                    return PermissionResultDeny(message=f"The user does not allow this call.{said}")
            question = choices

    return ask_on_terminal


class Request(Protocol):
    """What an `ElicitationRequest` has."""

    @property
    def server(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def schema(self) -> dict[str, Any] | None: ...
    @property
    def url(self) -> str | None: ...


def terminal_elicitation(
    read_line: ReadLine | None = None,
) -> Callable[[Request], Awaitable[dict[str, Any]]]:
    """For `ClaudeAgentOptions(on_elicitation=...)`: asks field by field; declines without a terminal."""

    async def terminal_elicitation(request: Request) -> dict[str, Any]:
        read = read_line or (_read if _there() else None)
        if read is None:
            return {"action": "decline"}
        head = f"{clean(request.server)} asks: {clean(request.message)}\n"
        if request.mode == "url":
            line = await read(
                f"{head}  {clean(request.url or '')}\nOpen it; enter when done, {_DECLINE} to decline: "
            )
            return {"action": "decline" if line is None or line.strip() == _DECLINE else "accept"}
        schema = request.schema or {}
        needed, content = schema.get("required") or (), {}
        for name, wanted in (schema.get("properties") or {}).items():
            try:
                value = await _filled(read, head, name, wanted, needed=name in needed)
            except EOFError:
                return {"action": "decline"}
            if value is not None:
                content[name] = value
            head = ""
        if head:  # a question without fields
            line = await read(f"{head}Enter to accept, {_DECLINE} to decline: ")
            if line is None or line.strip() == _DECLINE:
                return {"action": "decline"}
        return {"action": "accept", "content": content}

    return terminal_elicitation


async def _filled(read: ReadLine, head: str, name: str, wanted: Any, *, needed: bool) -> Any:
    schema: Mapping[str, Any] = wanted if isinstance(wanted, Mapping) else {}
    choices = _choices(schema)
    kind = " | ".join(map(_text, choices)) or schema.get("type", "text")
    default = schema.get("default")
    known = f" [{_text(default)}]" if default is not None else "" if needed else " []"
    about = f"  {clean(str(schema['description']))}\n" if schema.get("description") else ""
    prompt = f"{about}{clean(f'{name} ({kind}){known}')}: "
    while True:
        line = await read(head + prompt)
        if line is None or line.strip() == _DECLINE:
            raise EOFError
        head = ""
        if not line.strip() and (default is not None or not needed):
            return default
        try:
            return _value(line.strip(), schema, choices)
        except ValueError as error:
            head = f"  {clean(str(error))}\n"


def _value(line: str, schema: Mapping[str, Any], choices: list[Any]) -> Any:
    """What was typed as a value; ValueError if it does not fit. The server checks the rest."""
    kind = schema.get("type")
    if kind == "array":
        items: Any = schema.get("items") or {}
        return [_value(part.strip(), items, _choices(items)) for part in line.split(",") if part.strip()]
    if choices:
        for choice in choices:
            if line == _text(choice):
                return choice
        raise ValueError(f"one of: {', '.join(map(_text, choices))}")
    if kind == "boolean":
        if line.lower() not in ("y", "yes", "true", "n", "no", "false"):
            raise ValueError("yes or no")
        return line.lower()[0] in "yt"
    if kind not in ("integer", "number"):
        return line
    number: int | float = int(line) if kind == "integer" else float(line)
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and number < low) or (high is not None and number > high):
        raise ValueError(f"a number from {low} to {high}")
    return number


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    listed = schema.get("enum")
    return (
        list(listed) if listed else [each["const"] for each in schema.get("oneOf") or () if "const" in each]
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def clean(text: str) -> str:
    """Text of others, without what moves the cursor or changes colours."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def _there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def _read(prompt: str) -> str | None:
    """A line from the terminal."""
    gone = threading.Event()
    try:
        return await _workers.run(lambda: _blocking(prompt, gone))
    finally:
        gone.set()


def _blocking(prompt: str, gone: threading.Event) -> str | None:
    import select  # noqa: PLC0415 - where it is needed

    while not _turn.acquire(timeout=0.1):
        if gone.is_set():
            return None
    try:
        _forget_typed()
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while sys.platform != "win32" and not select.select([sys.stdin], [], [], 0.1)[0]:
            if gone.is_set():
                sys.stderr.write("\n(the question was withdrawn)\n")
                return None
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    finally:
        _turn.release()


def _forget_typed() -> None:
    """What was typed before a question was there is no answer to it."""
    with suppress(ImportError, OSError):
        import termios  # noqa: PLC0415 - POSIX only

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
