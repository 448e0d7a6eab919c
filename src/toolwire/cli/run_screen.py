"""Renders the messages of a conversation on a terminal, or as lines of JSON.

Text is written as it arrives; tool calls are shown with their times, progress as bars. Text of the model, tools and
servers is made safe first and never read as markup. It reads no input, and is used from one thread.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import IO, Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from toolwire import (
    ApiRetryMessage,
    AssistantMessage,
    InitMessage,
    McpLogMessage,
    McpProgressMessage,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from toolwire._support.words import count
from toolwire._support.words import plain as plain_text
from toolwire.cli.shared.printing import format_arguments, tool_name
from toolwire.errors import result_error_text

_RESULT_LINES: Final = 4
_SIGNS: Final = {"call": ("→", "->"), "good": ("✓", "ok"), "bad": ("✗", "failed"), "cut": ("…", "...")}


def plain(text: str) -> str:
    """Make a text safe for the terminal, with spaces in place of tabs."""
    return plain_text(text).replace("\t", "    ")


def join_lines(text: str) -> str:
    """Make a text safe for the terminal, on one line."""
    return " ".join(plain(text).split())


def shorten(text: str, width: int, mark: str) -> str:
    """Cut a text to `width` columns, with `mark` at the end if it was longer."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - len(mark), 0)) + mark


def result_text(content: str | list[dict[str, Any]] | None) -> str:
    """Return the result of a tool as text."""
    blocks = content if isinstance(content, list) else [{"text": content or ""}]
    return plain("\n".join(str(block.get("text", f"<{block.get('type')}>")) for block in blocks))


def summarize(result: ResultMessage) -> str:
    """Summarize a turn in a line: turns, time, tokens and cost."""
    usage = result.usage or {}
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens = sum(usage.get(name) or 0 for name in names)
    turns = count(result.num_turns, "turn")
    written = usage.get("output_tokens") or 0
    cost = f"${result.total_cost_usd or 0:.4f} as computed by the CLI"
    return f"{turns}, {result.duration_ms / 1000:.1f} s, {tokens} tokens in, {written} out, {cost}"


def describe_failure(result: ResultMessage) -> str | None:
    """Return why a turn failed, on one line; None if it did not."""
    return (
        join_lines(result_error_text(result.raw or dataclasses.asdict(result))) if result.is_error else None
    )


class Screen:
    """Shows messages on a console. `quiet` shows only the text of the model."""

    def __init__(self, console: Console, *, thinking: bool = False, quiet: bool = False) -> None:
        self._console = console
        self._thinking = thinking
        self._quiet = quiet
        self._written = ""  # of the block that is streaming
        self._open_line = False
        self._calls: dict[str, tuple[str, float]] = {}
        self._latest = ""  # the call that was made last
        self._bars = _Bars(console)

    def show(self, message: object, now: float) -> None:
        """Show a message that arrived at `now`."""
        match message:
            case StreamEvent(parent_tool_use_id=None):
                self._stream(message.event)
            case AssistantMessage():
                self._show_assistant(message, now)
            case UserMessage(content=list(content)):
                for block in content:
                    if isinstance(block, ToolResultBlock):
                        self._show_result(block, now)
            case ResultMessage():
                self._show_end(message)
            case _ if not self._quiet:
                self._show_notice(message)

    def resume(self, tool_use_id: str | None, now: float) -> None:
        """Start the clock of a call again, after the user was asked about it."""
        if tool_use_id in self._calls:
            self._calls[tool_use_id] = self._calls[tool_use_id][0], now

    def settle(self) -> None:
        """End the open line and remove the bars, before something else is written."""
        self._bars.clear()
        self._written = ""
        if self._open_line:
            self._console.out("")
            self._open_line = False

    def _stream(self, event: Mapping[str, Any]) -> None:
        delta = event.get("delta") or {}
        if event.get("type") in ("message_start", "content_block_start"):
            self.settle()
        elif delta.get("type") == "text_delta":
            self._write(str(delta.get("text", "")))
        elif delta.get("type") == "thinking_delta" and self._thinking and not self._quiet:
            self._write(str(delta.get("thinking", "")), "dim italic")

    def _write(self, text: str, style: str | None = None) -> None:
        self._bars.clear()
        self._written += text
        self._console.out(plain(text), style=style, end="", highlight=False)
        self._console.file.flush()
        self._open_line = not self._written.endswith("\n")

    def _show_assistant(self, message: AssistantMessage, now: float) -> None:
        for block in message.content:
            match block:
                case ToolUseBlock():
                    self._show_call(block, now, inner=message.parent_tool_use_id is not None)
                case TextBlock(text=text) if message.parent_tool_use_id is None and message.error is None:
                    self._finish_block(text)
                case ThinkingBlock(thinking=text) if message.parent_tool_use_id is None and self._thinking:
                    self._finish_block(text, "dim italic")

    def _finish_block(self, text: str, style: str | None = None) -> None:
        """Write the part of a complete block that was not streamed."""
        if style is not None and self._quiet:
            return
        if not text.startswith(self._written):
            self.settle()
        if rest := text[len(self._written) :]:
            self._write(rest, style)
        self.settle()

    def _show_call(self, block: ToolUseBlock, now: float, *, inner: bool) -> None:
        name = tool_name(block.name)
        self._calls[block.id] = name, now
        self._latest = block.id
        if self._quiet:
            return
        self.settle()
        before = "  " * inner + f"{self._sign('call')} "
        room = self._console.width - len(before) - len(name) - 2
        given = shorten(format_arguments(block.input), room, self._sign("cut"))
        self._line((before, "cyan"), (name, "bold cyan"), f"({given})")

    def _show_result(self, block: ToolResultBlock, now: float) -> None:
        only_call = len(self._calls) == 1 and self._latest == block.tool_use_id
        name, since = self._calls.pop(block.tool_use_id, ("", now))
        if self._quiet:
            return
        self.settle()
        sign, style = ("bad", "red") if block.is_error else ("good", "green")
        about = f"  {self._sign(sign)} " + ("" if only_call else f"{name} ") + f"{now - since:.2f} s"
        lines = result_text(block.content).strip().split("\n")
        more = len(lines) - _RESULT_LINES
        mark, room = self._sign("cut"), self._console.width - 4
        shown = [shorten(line, room, mark) for line in lines[:_RESULT_LINES]]
        short = len(shown) == 1 and len(about) + 2 + cell_len(shown[0]) <= self._console.width
        self._line((about, style), (f"  {shown[0]}" if short else "", style if block.is_error else ""))
        for line in [] if short else shown:
            self._line((f"    {line}", style if block.is_error else ""))
        if more > 0:
            self._line((f"    {mark} {more} more line{'s' * (more > 1)}", "dim"))

    def _show_notice(self, message: object) -> None:
        match message:
            case McpProgressMessage(tool_use_id=used) if used in self._calls or (
                used is None and self._calls
            ):
                self._bars.update(message, self._calls[used][0] if used else plain(message.server))
            case McpLogMessage():
                text = (
                    message.data if isinstance(message.data, str) else json.dumps(message.data, default=str)
                )
                level = "" if message.level == "info" else f"{message.level}: "
                self._aside(f"  {message.logger or message.server}: {level}{text}")
            case ApiRetryMessage():
                why = f"{message.error} {message.error_status or ''}".strip()
                self._aside(f"  API error ({why}), retry {message.attempt} of {message.max_retries} follows")
            case InitMessage():
                for server in message.mcp_servers:
                    if server.get("status") in ("failed", "needs-auth"):
                        self._aside(f"  server {server.get('name')}: {server.get('status')}", "yellow")

    def _aside(self, text: str, style: str = "dim") -> None:
        if self._open_line:
            self.settle()
        self._line((plain(text), style))

    def _show_end(self, result: ResultMessage) -> None:
        self.settle()
        self._calls.clear()
        if not self._quiet:
            self._line((summarize(result), "dim"))

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def _sign(self, name: str) -> str:
        return _SIGNS[name][not self._console.encoding.startswith("utf")]


class _Bars:
    """Progress bars of running tools. They are shown only on a terminal, and removed at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}

    def update(self, message: McpProgressMessage, name: str) -> None:
        """Show the progress that a tool reported."""
        if not self._console.is_terminal:
            return
        if self._progress is None:
            from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - heavy, and few tools report progress

            texts = [
                TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[count]")
            ]
            columns = (texts[0], BarColumn(bar_width=24), texts[1])
            self._progress = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
            self._progress.start()
        key = message.tool_use_id or message.server
        done, total = _number(message.progress) or 0, _number(message.total)
        amount = f"{done:g}" + ("" if total is None else f"/{total:g}")
        now = {
            "completed": done,
            "total": total,
            "count": f"{amount} {join_lines(str(message.message or ''))}",
        }
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(f"  {name}", **now)
        self._progress.update(self._tasks[key], refresh=True, **now)

    def clear(self) -> None:
        """Remove the bars from the screen."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._tasks.clear()


def _number(value: object) -> float | None:
    """Return a finite number, or None: a server may send anything."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


class JsonLines:
    """Writes each message as a line of JSON: the frame as the CLI sent it."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def show(self, message: Any, now: float) -> None:  # noqa: ARG002 - the signature of `Screen`
        """Write a message. Types that only toolwire has came in no frame, so their fields are written."""
        frame = message.data if isinstance(message, SystemMessage) else message.raw
        if frame is None:
            kind = "mcp_progress" if isinstance(message, McpProgressMessage) else "mcp_log"
            frame = {"type": kind, **{name: value for name, value in vars(message).items() if name != "raw"}}
        print(json.dumps(frame, default=str), file=self._file, flush=True)

    def resume(self, tool_use_id: str | None, now: float) -> None:
        """Do nothing: times are not shown."""

    def settle(self) -> None:
        """Do nothing: lines are always complete."""
