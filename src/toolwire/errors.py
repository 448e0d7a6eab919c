"""The exception and warning classes of toolwire.

    ClaudeSDKError
    ├── CLIConnectionError            the CLI could not be started or reached
    │   ├── CLINotFoundError          the CLI was not found
    │   ├── CLITimeoutError           it was started and did not respond in time (also a TimeoutError)
    │   └── LiveStartError            a test would have started the real CLI with the user's account
    ├── ProcessError                  the CLI failed: exit code, last lines of stderr
    │   └── ResultError               it ended after reporting a failed run; has that report
    ├── ControlRequestError           the CLI refused a control request
    │   └── UnsupportedRequestError   this CLI does not know that control request
    ├── OptionsError                  options that contradict each other or have a wrong type
    ├── McpError                      a JSON-RPC error of MCP, with its code
    ├── ToolError                     raised by a tool: the model gets its text unchanged
    ├── ResourceNotFoundError         raised by a resource's function: there is nothing at that address
    ├── ToolDefinitionError           a tool or server that cannot work, raised where it is defined
    ├── UsageError                    a target, file or value on the command line that cannot be used
    ├── CatalogError                  a catalogue that cannot be read or paid: the API, the network, the budget
    ├── BatchError                    a batch that cannot be opened or continued: its database, its queue, an item
    ├── SessionRunningError           a session that cannot be deleted while a CLI has it open
    ├── SessionStoreError             a session store failed, or its file cannot be read
    ├── NotSupportedError             an official feature that toolwire does not have yet
    ├── OutputValidationError         the structured output does not fit `output_type`
    ├── CLIJSONDecodeError            kept for code that catches it; toolwire skips bad lines instead
    └── MessageParseError             kept for code that catches it; toolwire keeps incomplete messages instead

`ClaudeSDKError`, `CLIConnectionError`, `CLINotFoundError`, `ProcessError`, `ResultError`, `CLIJSONDecodeError` and
`MessageParseError` have the names, arguments and attributes of `claude_agent_sdk`. `ToolCancelled` is defined in
`toolwire.tools.context`. This module imports nothing from toolwire.
"""

from typing import Any


class ClaudeSDKError(Exception):
    """The base class of all errors of toolwire."""


class CLIConnectionError(ClaudeSDKError):
    """The CLI could not be started, or is not connected."""


class CLINotFoundError(CLIConnectionError):
    """The Claude Code CLI was not found in any of the places that were searched."""

    def __init__(self, message: str = "Claude Code not found", cli_path: str | None = None) -> None:
        super().__init__(f"{message}: {cli_path}" if cli_path else message)


class CLITimeoutError(CLIConnectionError, TimeoutError):
    """The CLI is running but did not respond in time."""


class LiveStartError(CLIConnectionError):
    """A test would have started the real CLI: the test kit is in use, but its options were not used."""


class SessionRunningError(ClaudeSDKError):
    """A session cannot be deleted, because a CLI has it open and would write its file again."""


class SessionStoreError(ClaudeSDKError, RuntimeError):
    """A session store failed, or this version of toolwire cannot read its file."""


class ProcessError(ClaudeSDKError):
    """The CLI process failed.

    `stderr` holds the last lines that it wrote there, or None if there were none.
    """

    def __init__(self, message: str, exit_code: int | None = None, stderr: str | None = None) -> None:
        self.exit_code = exit_code
        self.stderr = stderr
        text = message if exit_code is None else f"{message} (exit code: {exit_code})"
        super().__init__(f"{text}\nError output: {stderr}" if stderr else text)


class ResultError(ProcessError):
    """The run ended with a result that reports a failure.

    `data` is that result as the CLI sent it; the attributes are its fields, None where it has none.
    `reply` is the reply that `run()` had collected until then, None outside `run()`.
    """

    def __init__(
        self,
        message: str,
        data: dict[str, Any] | None = None,
        exit_code: int | None = None,
        stderr: str | None = None,
    ) -> None:
        # One positional argument is enough, so that copy and pickle can rebuild it from `args`.
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}
        self.subtype: str | None = self._field("subtype", str)
        self.errors: list[str] = result_errors(self.data)
        self.result: str | None = self._field("result", str)
        self.api_error_status: int | None = self._field("api_error_status", int)
        self.terminal_reason: str | None = self._field("terminal_reason", str)
        self.session_id: str | None = self._field("session_id", str)
        self.reply: Any = None
        super().__init__(message, exit_code=exit_code, stderr=stderr)

    def _field(self, name: str, kind: type) -> Any:
        value = self.data.get(name)
        return value if isinstance(value, kind) else None


class ControlRequestError(ClaudeSDKError):
    """The CLI answered a control request with an error."""

    def __init__(self, message: str, subtype: str | None = None, error_code: str | None = None) -> None:
        self.subtype = subtype
        self.error_code = error_code
        super().__init__(message)


class UnsupportedRequestError(ControlRequestError):
    """This version of the CLI does not know the control request."""


class OptionsError(ClaudeSDKError, ValueError, TypeError):
    """`ClaudeAgentOptions` that cannot work. `option` names the invalid field.

    It is a ValueError and a TypeError, because the official SDK raises one or the other for the same mistakes.
    """

    def __init__(self, message: str, option: str | None = None) -> None:
        self.option = option
        super().__init__(message)


class McpError(ClaudeSDKError):
    """A JSON-RPC error. Raise it to refuse a request; `Context` raises it if the client refuses one."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class ToolError(ClaudeSDKError):
    """Raised by a tool that cannot do its work, with a text for the model.

    Any exception in a tool becomes an error result. The text of this one is sent unchanged, and no traceback is
    logged.
    """


class ResourceNotFoundError(ClaudeSDKError, LookupError):
    """Raised by a resource's function for an address that matches its template but does not exist.

    The client gets the error "not found", with this text if there is one.
    """


class ToolDefinitionError(ClaudeSDKError, TypeError, ValueError):
    """A tool or server that cannot work. Raised where it is defined."""


class UsageError(ClaudeSDKError):
    """A target, file, address or setting, of the command line or of a serve function, cannot be used."""


class CatalogError(ClaudeSDKError):
    """A catalogue of remote tools cannot be fetched or used, because of the API, the network or a limit."""


class BatchError(ClaudeSDKError):
    """A batch cannot be opened or continued, because of its database, its queue or an item."""


class NotSupportedError(ClaudeSDKError, NotImplementedError):
    """A feature of the official SDK that toolwire does not have yet."""


class OutputValidationError(ClaudeSDKError):
    """The structured output of a run does not fit the requested `output_type`.

    `output` is the output, `reply` the whole reply, `__cause__` the error of the validator.
    """

    def __init__(self, message: str, output: Any = None, reply: Any = None) -> None:
        self.output = output
        self.reply = reply
        super().__init__(message)


class CLIJSONDecodeError(ClaudeSDKError):
    """A line of the CLI that is not JSON. toolwire never raises it: such lines are counted and skipped."""

    def __init__(self, line: str, original_error: Exception) -> None:
        self.line = line
        self.original_error = original_error
        super().__init__(f"Failed to decode JSON: {line[:100]}...")


class MessageParseError(ClaudeSDKError):
    """A message without a required field. toolwire never raises it: such messages keep the fields they have."""

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        self.data = data
        super().__init__(message)


class ToolwireWarning(UserWarning):
    """A value has an unusual form and was accepted; the text says what it means and how to write it instead."""


class CanUseToolShadowedWarning(UserWarning):
    """`can_use_tool` is set, and other options approve some or all tools before it is called."""


def message_of(error: BaseException) -> str:
    """Return the text of an exception, "" if its own `__str__` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the `__str__` of a user's class
        return ""


def result_errors(data: dict[str, Any]) -> list[str]:
    """Return the error texts of a result frame, without those that are blank or not text."""
    raw = data.get("errors")
    listed = [raw] if isinstance(raw, str) else raw if isinstance(raw, list) else []
    return [text.strip() for text in listed if isinstance(text, str) and text.strip()]


def result_error_text(data: dict[str, Any]) -> str:
    """Return the best description of the failure in a result frame.

    The CLI's own errors are in `errors`; an API failure arrives as subtype "success" with the text in `result`.
    """
    if errors := result_errors(data):
        return "; ".join(errors)
    result = data.get("result")
    if isinstance(result, str) and result.strip():
        return result.strip()
    subtype = data.get("subtype")
    if isinstance(subtype, str) and subtype not in ("", "success"):
        return subtype
    status = data.get("api_error_status")
    return "no reason given" if status is None else f"API error (HTTP {status})"
