"""The scripted model of `toolwire run --scripted`, and the choice between it and the user's own CLI.

A line of the prompt that begins with the name of a tool calls it: `add a=15 b=27`, or `add {"a": 15, "b": 27}`.
Then the model repeats the results. Any other prompt gets an explanation with an example. A script file of the user
replaces these rules.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from toolwire._support.schema_structure import resolve
from toolwire.cli.shared.arguments import refuse_constant
from toolwire.errors import CLINotFoundError, UsageError
from toolwire.sessions.entries import list_blocks
from toolwire.testing.script import Answer, Block, Fault, Request, bare_name, call, say, turn
from toolwire.tools.names import full_name

_KEY: Final = re.compile(r"([A-Za-z_][\w.-]*)=")
_NEXT: Final = re.compile(r"\s+(?=[A-Za-z_][\w.-]*=)|\s*$")
_REMINDERS: Final = ("<system-reminder>", "[Request interrupted by user")
_REQUESTS: Final = 10_000  # a scripted CLI takes a list: more responses than any conversation needs
_PLAIN_WORD: Final = re.compile(r"[A-Za-z_][\w.-]*")

Schemas = dict[str, dict[str, Any]]
"""Full name of a tool (`mcp__calc__add`) -> the schema of its arguments."""


class LiteralModel:
    """A model that calls the tools that the prompt names. Called with a request, it returns the response."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def __call__(self, request: Request) -> Answer:
        """Return the response to a request."""
        prompt = last_prompt(request)
        if prompt is None:
            return say(self._report_results(request))
        schemas = self._find_tools(request)
        blocks: list[Block] = []
        for line in prompt.splitlines():
            word, _, rest = line.strip().partition(" ")
            name = find_tool(word, schemas)
            if name is not None:
                try:
                    blocks.append(call(name, parse_line(rest, schemas[name])))
                except ValueError as error:
                    shown = write_example(name, schemas[name])
                    return say(
                        f"I could not read the arguments of {word}: {error}.\nWrite for example: {shown}"
                    )
        return turn(*blocks) if blocks else say(introduce(schemas))

    def _find_tools(self, request: Request) -> Schemas:
        """Return the tools in the request; a scripted CLI leaves out their schemas."""
        listed = request.body.get("tools") or []
        return {
            tool["name"]: tool.get("input_schema") or self._schemas.get(tool["name"], {})
            for tool in listed
            if tool["name"].startswith("mcp__")
        }

    def _report_results(self, request: Request) -> str:
        used = {
            block["id"]: block["name"]
            for message in request.body.get("messages") or ()
            for block in list_blocks(message.get("content"))
            if block.get("type") == "tool_use"
        }
        lines = []
        for result in request.tool_results:
            name = bare_name(used.get(result.tool_use_id, "The tool"))
            lines.append(f"{name} {'failed' if result.is_error else 'returned'}: {result.text}")
        return "\n".join(lines)


def last_prompt(request: Request) -> str | None:
    """Return the user's last prompt; None if tool results came after it."""
    messages = [each for each in request.body.get("messages") or () if each.get("role") == "user"]
    texts: list[str] | None = []
    for block in list_blocks(messages[-1].get("content")) if messages else ():
        if block.get("type") == "tool_result":
            texts = None
        elif block.get("type") == "text" and not str(block["text"]).lstrip().startswith(_REMINDERS):
            texts = [*(texts or ()), str(block["text"])]
    return None if texts is None else "\n".join(texts)


def find_tool(word: str, tools: Sequence[str] | Schemas) -> str | None:
    """Find a tool by any of its names: `add`, `calc.add`, `mcp__calc__add`."""
    for name in tools:
        server, _, tool = name.removeprefix("mcp__").partition("__")
        if word in (name, tool, f"{server}.{tool}"):
            return name
    return None


def parse_line(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the arguments behind a tool's name. ValueError says why they cannot be parsed."""
    text = text.strip()
    if text.startswith("{"):
        try:
            whole = json.loads(text)
        except ValueError as error:
            raise ValueError(f"this is not JSON ({error})") from None
        return dict(whole)
    given: dict[str, Any] = {}
    while text:
        key = _KEY.match(text)
        if key is None:
            raise ValueError(f"{text.split()[0]!r} is not name=value")
        value, text = _parse_value(text[key.end() :], (schema.get("properties") or {}).get(key[1]))
        given[key[1]] = value
    return given


def _parse_value(text: str, schema: Any) -> tuple[Any, str]:
    """Return the first value in a text and the rest: the value is JSON, or all up to the next `name=`."""
    try:
        value, end = json.JSONDecoder(parse_constant=refuse_constant).raw_decode(text)
        gap = _NEXT.match(text, end)
        if gap is None:
            raise ValueError("more text follows")  # noqa: TRY301 - then it is text, not JSON
    except ValueError:
        gap = _NEXT.search(text)
        end = gap.start() if gap else len(text)
        value = text[:end].strip()
        if len(value) > 1 and value[0] == value[-1] == "'":
            value = value[1:-1]
    if isinstance(schema, dict) and schema.get("type") == "string" and not isinstance(value, str):
        value = text[:end]
    return value, text[gap.end() if gap else len(text) :]


def introduce(schemas: Schemas) -> str:
    """Explain the model, with an example."""
    lines = ["I am a scripted model, not Claude: I call the tool that a line begins with."]
    if not schemas:
        return f"{lines[0]} There are no tools."
    short = [bare_name(each) for each in schemas]
    full = [each.removeprefix("mcp__").replace("__", ".", 1) for each in schemas]
    shown = short if len(set(short)) == len(short) else full
    lines += [f"Tools: {', '.join(shown)}", "Write for example:"]
    name, schema = next(iter(schemas.items()))
    return "\n".join([*lines, f"  {write_example(name, schema)}"])


def write_example(name: str, schema: Mapping[str, Any]) -> str:
    """Write a line that calls a tool, with values that fit its schema."""
    needed = schema.get("required") or ()
    properties = schema.get("properties") or {}
    values = {key: _sample(properties.get(key) or {}, schema, place) for place, key in enumerate(needed, 1)}
    simple = all(_PLAIN_WORD.fullmatch(key) for key in values)
    if not simple:
        return f"{bare_name(name)} {json.dumps(values, ensure_ascii=False)}"
    return " ".join([bare_name(name), *(f"{key}={_write_value(value)}" for key, value in values.items())])


def _sample(schema: Mapping[str, Any], whole: Mapping[str, Any], place: int) -> Any:
    reference = str(schema.get("$ref", ""))
    if reference:
        target = resolve(reference, whole)
        schema = target if isinstance(target, Mapping) else {}
    for key in ("default", "const"):
        if schema.get(key) is not None:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _sample(schema[key][0], whole, place)
    if "properties" in schema:
        return {
            key: _sample(schema["properties"].get(key) or {}, whole, place)
            for key in schema.get("required") or ()
        }
    least = schema.get("minimum")
    samples = {"integer": place, "number": place, "boolean": True, "array": [], "object": {}, "null": None}
    found = samples.get(str(schema.get("type")), "text")
    return least if least is not None and isinstance(found, int) and found < least else found


def _write_value(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- a script of the user, and the CLI that runs it ---------------------------------------------------------


def load_script(path: Path) -> list[Any]:
    """Load the list `script` of a Python file. `UsageError` if it has none."""
    import runpy  # noqa: PLC0415 - few runs have a script

    if not path.is_file():
        raise UsageError(f"The script {path} does not exist.")
    try:
        found = runpy.run_path(str(path)).get("script")
    except Exception as error:
        raise UsageError(f"The script {path} failed: {type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise UsageError(f"The script {path} exited (exit code {error.code}).") from error
    if not isinstance(found, list | tuple):
        raise UsageError(
            f'The script {path} has no top-level list "script", such as script = [say("Hello.")], '
            "made of the steps in toolwire.testing."
        )
    for place, step in enumerate(found, 1):
        if not callable(step) and not isinstance(step, Answer | Fault):
            raise UsageError(f"Step {place} of the script {path} is not a step of toolwire.testing: {step!r}")
    return list(found)


async def choose_peer(
    stack: AsyncExitStack,
    servers: Mapping[str, Any],
    *,
    scripted: bool,
    script: list[Any] | None,
    record: Path | None,
    advice: str = "Use --scripted to try your tools without a CLI.",
) -> tuple[dict[str, Any], str]:
    """Return the options that choose the CLI and the model, and a line that describes them.

    `advice` is added to the error if there is no CLI.
    """
    from toolwire._transport.find_cli import find_cli  # noqa: PLC0415 - heavy

    if not scripted:
        try:
            return {"cli_path": find_cli(), "spawn_claude_code_process": _start_command(record)}, ""
        except CLINotFoundError as error:
            raise CLINotFoundError(f"{error}\n{advice}") from None
    from toolwire.testing import ClaudeEnvironment, ScriptedCLI, ScriptedModel  # noqa: PLC0415

    steps = [LiteralModel(await _list_schemas(servers, stack))] * _REQUESTS if script is None else script
    try:
        cli = None if any(isinstance(step, Fault) for step in steps) else find_cli()
    except CLINotFoundError:
        cli = None
    if cli is None:
        if record is not None:
            raise UsageError("--record needs a Claude Code CLI, and none was found.")
        description = "Scripted: a scripted CLI and a scripted model, no key, no network."
        return {"spawn_claude_code_process": ScriptedCLI(steps)}, description
    model = await stack.enter_async_context(ScriptedModel(steps))
    env = await stack.enter_async_context(ClaudeEnvironment(model))
    found = {"cli_path": cli, "spawn_claude_code_process": _start_command(record), **env.options_kwargs()}
    return found, "Scripted: the real Claude Code CLI and a scripted model, no key, no network."


def _start_command(record: Path | None) -> Callable[[Any], Any]:
    """Return a function that starts the CLI in its own session, so that Ctrl-C reaches only this program."""
    from toolwire._conversation.process_transport import ProcessTransport  # noqa: PLC0415
    from toolwire._transport.process import Command  # noqa: PLC0415
    from toolwire.testing.recording import Recorder  # noqa: PLC0415

    class OwnSession(Command):
        def popen_arguments(self, inherit: Sequence[int]) -> dict[str, Any]:
            return {**super().popen_arguments(inherit), "start_new_session": True}

    recorder = None if record is None else Recorder(record)

    def start(command: Command) -> Any:
        own = OwnSession(command.argv, command.env, command.cwd, command.user)
        return ProcessTransport(lambda: own) if recorder is None else recorder(own)

    return start


async def _list_schemas(servers: Mapping[str, Any], stack: AsyncExitStack) -> Schemas:
    """List the tools of the servers. The connections stay open, so that a lifespan runs only once."""
    from toolwire.mcp.direct_client import connect  # noqa: PLC0415 - heavy

    schemas: Schemas = {}
    for name, server in servers.items():
        client = await stack.enter_async_context(connect(server))
        for tool in await client.list_tools():
            schemas[full_name(name, tool.name)] = tool.input_schema
    return schemas
