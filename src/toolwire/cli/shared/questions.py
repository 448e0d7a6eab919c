"""Questions to the user on a terminal: may this tool run, and what a server wants to know.

Owns the words of the questions and what an answer means. The functions block and are called in the thread that owns
the terminal; how a line is read is passed in. Where there is no terminal every answer is no, and stderr says why.
"""

import json
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rich.console import Console
from rich.text import Text

from toolwire.cli.run_screen import arguments, one_line, plain, tool_name
from toolwire.errors import UsageError
from toolwire.permissions import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from toolwire.tools.elicitation import ElicitationRequest, ElicitationResult


class ReadLine(Protocol):
    """Shows a prompt and gives the line; EOFError at the end of input."""

    def __call__(self, prompt: str, *, remember: bool = False) -> str: ...


DECLINE: Final = "/decline"
_SHOWN: Final = 4_000  # characters of arguments that are shown before a call is allowed
_NOBODY: Final = (
    "The call was not allowed: permission is needed, and there is no terminal to ask the user on."
)


class Asker:
    """Asks on `console`, or says no to everything when `read_line` is None."""

    def __init__(self, console: Console, notes: Console, read_line: ReadLine | None) -> None:
        self._console = console
        self._notes = notes
        self._read_line = read_line
        self._always: set[str] = set()
        self._noted: set[str] = set()

    # May a tool run?

    def permission(
        self, name: str, given: Mapping[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """The answer for one call."""
        if name in self._always:
            return PermissionResultAllow()
        shown = tool_name(name)
        if self._read_line is None:
            way = f"--allow {shown}" + " or --yes" * name.startswith("mcp__")
            self._note(f"{shown} was not allowed: no terminal to ask on. Use {way}.")
            return PermissionResultDeny(message=_NOBODY)
        forget_typed()
        self._tell(("May it call ", ""), (shown, "bold"), ("?", ""))
        text = arguments(given) or "(no arguments)"
        rest = len(text) - _SHOWN
        self._tell((f"  {text[:_SHOWN]}" + (f" … {rest} more characters" if rest > 0 else ""), ""))
        if context.decision_reason:
            self._tell((f"  {one_line(context.decision_reason)}", "dim"))
        return self._decision(name)

    def _decision(self, name: str) -> PermissionResult:
        while True:
            answer = self._line("[y]es, [a]lways this tool in this run, [n]o: ")
            word, _, reason = ("n" if answer is None else answer).strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    return PermissionResultAllow()
                case "a" | "always":
                    self._always.add(name)
                    return PermissionResultAllow()
                case "n" | "no":
                    if answer is not None and not reason.strip():
                        reason = self._line("Why not? The model reads it (enter: no reason): ") or ""
                    more = f" They say: {reason.strip()}" if reason.strip() else ""
                    return PermissionResultDeny(message=f"The user does not allow this call.{more}")

    # What a server wants to know.

    def elicitation(self, request: ElicitationRequest) -> ElicitationResult:
        """The user's answer to a server."""
        if self._read_line is None:
            self._note(f"{plain(request.server)} wanted to ask the user something: declined, no terminal.")
            return ElicitationResult("decline")
        forget_typed()
        self._tell((f"{plain(request.server)} asks: ", "bold"), (plain(request.message), ""))
        if request.mode == "url":
            return self._visit(request.url or "")
        schema = request.schema or {}
        self._tell((f"  (enter: accept what is in brackets; {DECLINE} or Ctrl-D: decline)", "dim"))
        if not schema.get("properties"):
            return ElicitationResult("decline") if self._declined("ok: ") else ElicitationResult("accept", {})
        content: dict[str, Any] = {}
        for name, given in schema["properties"].items():
            field = Field(name, _resolved(given, schema), name in (schema.get("required") or ()))
            try:
                value = self._filled(field)
            except EOFError:
                return ElicitationResult("decline")
            if value is not None:
                content[name] = value
        return ElicitationResult("accept", content)

    def _visit(self, url: str) -> ElicitationResult:
        self._tell((f"  {one_line(url)}", "underline"))
        declined = self._declined(f"Open it; enter when done, {DECLINE} to decline: ")
        return ElicitationResult("decline" if declined else "accept")

    def _declined(self, prompt: str) -> bool:
        answer = self._line(prompt)
        return answer is None or answer.strip() == DECLINE

    def _filled(self, field: "Field") -> Any:
        if about := one_line(str(field.schema.get("description") or "")):
            self._tell((f"  {about}", "dim"))
        while True:
            answer = self._line(field.prompt)
            if answer is None or answer.strip() == DECLINE:
                raise EOFError
            try:
                return field.read(answer.strip())
            except ValueError as error:
                self._tell((f"  {one_line(str(error))}", "red"))

    # Small things.

    def _line(self, prompt: str) -> str | None:
        """What was typed; None at the end of input."""
        if self._read_line is None:
            return None
        try:
            return self._read_line(prompt)
        except EOFError:
            return None

    def _tell(self, *parts: tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._notes.print(Text(text, style="yellow"), soft_wrap=True)


@dataclass(frozen=True)
class Field:
    """One thing that a server wants to know."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    @property
    def prompt(self) -> str:
        """Name, kind or choices, default."""
        kind = str(self.schema.get("type") or "text")
        listed = choices(self.schema.get("items") or {} if kind == "array" else self.schema)
        words = {"boolean": "yes/no", "array": "several, with commas"}
        shown = " | ".join(map(_text, listed)) + ", with commas" * (kind == "array") if listed else ""
        default = self.schema.get("default")
        known = f" [{_text(default)}]" if default is not None else "" if self.required else " []"
        return one_line(f"{self.name} ({shown or words.get(kind, kind)}){known}") + ": "

    def read(self, answer: str) -> Any:
        """The value that an answer stands for, None for no value; ValueError if it is none."""
        from toolwire.tools.schema.json_schema import RawParameters  # noqa: PLC0415 - loads the validator
        from toolwire.tools.schema.parameters import InvalidArguments  # noqa: PLC0415

        if not answer and self.required and self.schema.get("default") is None:
            raise ValueError(f"{self.name} is needed")
        if not answer:
            return self.schema.get("default")
        value = _value(answer, self.schema)
        try:
            RawParameters({"type": "object", "properties": {self.name: self.schema}}).validate(
                {self.name: value}
            )
        except InvalidArguments as error:
            raise ValueError("; ".join(each.message for each in error.violations)) from None
        return value


def _value(answer: str, schema: Mapping[str, Any]) -> Any:
    """What was typed, as a value of a kind; whether it fits is not looked at."""
    kind = schema.get("type")
    if kind == "array" and not answer.startswith("["):
        return [_value(part.strip(), schema.get("items") or {}) for part in answer.split(",") if part.strip()]
    if kind == "boolean" and answer.lower() in ("y", "yes", "n", "no"):
        return answer.lower().startswith("y")
    for choice in choices(schema):
        if answer == _text(choice):
            return choice
    try:
        return answer if kind == "string" else json.loads(answer)
    except ValueError:
        return answer


def rules(allow: list[str], servers: Iterable[str], *, yes: bool, builtin: bool) -> list[str]:
    """What --allow and --yes name, as the CLI spells it; `UsageError` for what is no tool of the targets."""
    names = list(servers)
    found = [f"mcp__{name}" for name in names] if yes else []
    for rule in allow:
        server, _, tool = rule.removeprefix("mcp__").replace("__", ".", 1).partition(".")
        if server in names:
            found.append(f"mcp__{server}__{tool}" if tool else f"mcp__{server}")
        elif builtin and not rule.startswith("mcp__"):
            found.append(rule)
        else:
            forms = ", ".join(f"{name} or {name}.TOOL" for name in names)
            raise UsageError(f"--allow {rule} means no tool of the targets: write {forms}.")
    return found


def line_reader(console: Console) -> "ReadLine | None":
    """What reads lines from the terminal, with `console` for the prompts; None without a terminal."""
    if not sys.stdin.isatty() or not console.file.isatty():
        return None
    try:
        import readline  # noqa: PLC0415 - not on every system
    except ImportError:
        history = None
    else:
        readline.set_auto_history(False)
        history = readline.add_history

    def read(prompt: str, *, remember: bool = False) -> str:
        if console.file is not sys.stdout:  # `input` would write the prompt there
            console.out(prompt, end="", highlight=False)
        try:
            with on_ctrl_c(signal.default_int_handler):
                line = input(prompt if console.file is sys.stdout else "")
        except (EOFError, KeyboardInterrupt):
            console.out("")
            raise
        if remember and line.strip() and history is not None:
            history(line)
        return line

    return read


@contextmanager
def on_ctrl_c(handler: Any) -> Iterator[None]:
    """What Ctrl-C does in a block."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def forget_typed() -> None:
    """What was typed before a question was there is no answer to it."""
    with suppress(ImportError):
        import termios  # noqa: PLC0415 - POSIX only

        if sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)


def choices(schema: Mapping[str, Any]) -> list[Any]:
    """The values that a schema allows, where it lists them."""
    listed = schema.get("enum") or [
        each.get("const") for each in schema.get("oneOf") or () if "const" in each
    ]
    return list(listed) or ([schema["const"]] if "const" in schema else [])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _resolved(schema: Any, whole: Mapping[str, Any]) -> dict[str, Any]:
    """A property with its `$ref` followed, and without the null of an optional one."""
    found: Any = schema if isinstance(schema, Mapping) else {}
    reference = found.get("$ref")
    if isinstance(reference, str):
        name = reference.rsplit("/", 1)[-1]
        target = (whole.get("$defs") or whole.get("definitions") or {}).get(name) or {}
        found = {**target, **{key: value for key, value in found.items() if key != "$ref"}}
    kinds = [each for each in found.get("anyOf") or () if each.get("type") != "null"]
    if len(kinds) == 1:
        found = {**_resolved(kinds[0], whole), **{k: v for k, v in found.items() if k != "anyOf"}}
    return dict(found)
