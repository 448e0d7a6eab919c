"""The model of `toolwire run --scripted`: a rule that anybody can follow, or a script of the user's own.

A line of the prompt that begins with the name of a tool calls it: `add a=15 b=27`, or `add {"a": 15, "b": 27}`.
Then the model says what came back. To a prompt without such a line it says what it is and shows one. Owns this
rule, the reading of a script file, and who is at the other end: a CLI of the user, or all of it scripted.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from toolwire.errors import CLINotFoundError, UsageError
from toolwire.testing.request import Request
from toolwire.testing.script import Answer, Block, call, say, turn

_KEY: Final = re.compile(r"([A-Za-z_][\w.-]*)=")
_NEXT: Final = re.compile(r"\s+(?=[A-Za-z_][\w.-]*=)|\s*$")
_REMINDERS: Final = ("<system-reminder>", "[Request interrupted by user")
_REQUESTS: Final = 10_000  # a scripted CLI plays a list; nobody types that many prompts
_PLAIN_WORD: Final = re.compile(r"[A-Za-z_][\w.-]*")

Schemas = dict[str, dict[str, Any]]
"""Full name of a tool (`mcp__calc__add`) -> the schema of its arguments."""


class StandIn:
    """A model that does what the prompt literally says. Called with a request, it gives the answer to it."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def __call__(self, request: Request) -> Answer:
        """What the model does next."""
        prompt = last_prompt(request)
        if prompt is None:
            return say(self._heard(request))
        schemas = self._offered(request)
        blocks: list[Block] = []
        for line in prompt.splitlines():
            word, _, rest = line.strip().partition(" ")
            name = named(word, schemas)
            if name is not None:
                try:
                    blocks.append(call(name, arguments(rest, schemas[name])))
                except ValueError as error:
                    shown = example(name, schemas[name])
                    return say(
                        f"I could not read the arguments of {word}: {error}.\nWrite for example: {shown}"
                    )
        return turn(*blocks) if blocks else say(introduction(schemas))

    def _offered(self, request: Request) -> Schemas:
        """The tools that the CLI offers now; a scripted one does not tell their schemas."""
        listed = request.body.get("tools") or []
        return {
            tool["name"]: tool.get("input_schema") or self._schemas.get(tool["name"], {})
            for tool in listed
            if tool["name"].startswith("mcp__")
        }

    def _heard(self, request: Request) -> str:
        used = {
            block["id"]: block["name"]
            for message in request.body.get("messages") or ()
            for block in _blocks(message)
            if block.get("type") == "tool_use"
        }
        said = []
        for result in request.tool_results:
            name = _short(used.get(result.tool_use_id, "The tool"))
            said.append(f"{name} {'failed' if result.is_error else 'returned'}: {result.text}")
        return "\n".join(said)


def last_prompt(request: Request) -> str | None:
    """What the user said last; None if tool results came after it."""
    messages = [each for each in request.body.get("messages") or () if each.get("role") == "user"]
    said: list[str] | None = []
    for block in _blocks(messages[-1]) if messages else ():
        if block.get("type") == "tool_result":
            said = None
        elif block.get("type") == "text" and not str(block["text"]).lstrip().startswith(_REMINDERS):
            said = [*(said or ()), str(block["text"])]
    return None if said is None else "\n".join(said)


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def named(word: str, tools: Sequence[str] | Schemas) -> str | None:
    """The tool that a word means: `add`, `calc.add`, `mcp__calc__add`."""
    for name in tools:
        server, _, tool = name.removeprefix("mcp__").partition("__")
        if word in (name, tool, f"{server}.{tool}"):
            return name
    return None


def arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as they are written behind a tool's name; ValueError says what cannot be read."""
    text = text.strip()
    if text.startswith("{"):
        try:
            whole = json.loads(text)
        except ValueError as error:
            raise ValueError(f"this is no JSON ({error})") from None
        return dict(whole)
    given: dict[str, Any] = {}
    while text:
        key = _KEY.match(text)
        if key is None:
            raise ValueError(f"{text.split()[0]!r} is not name=value")
        value, text = _value(text[key.end() :], (schema.get("properties") or {}).get(key[1]))
        given[key[1]] = value
    return given


def _value(text: str, schema: Any) -> tuple[Any, str]:
    """The first value in a text, and what follows it: JSON, or all up to the next `name=`."""
    try:
        value, end = json.JSONDecoder(parse_constant=_no_constant).raw_decode(text)
        gap = _NEXT.match(text, end)
        if gap is None:
            raise ValueError("more text follows")  # noqa: TRY301 - then it is no JSON, but words
    except ValueError:
        gap = _NEXT.search(text)
        end = gap.start() if gap else len(text)
        value = text[:end].strip()
        if len(value) > 1 and value[0] == value[-1] == "'":
            value = value[1:-1]
    if isinstance(schema, dict) and schema.get("type") == "string" and not isinstance(value, str):
        value = text[:end]
    return value, text[gap.end() if gap else len(text) :]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def introduction(schemas: Schemas) -> str:
    """What it says of itself."""
    lines = ["I am a scripted stand-in, not Claude: I call the tools that a line begins with."]
    if not schemas:
        return f"{lines[0]} There are none."
    short = [_short(each) for each in schemas]
    full = [each.removeprefix("mcp__").replace("__", ".", 1) for each in schemas]
    shown = short if len(set(short)) == len(short) else full
    lines += [f"Tools: {', '.join(shown)}", "Write for example:"]
    name, schema = next(iter(schemas.items()))
    return "\n".join([*lines, f"  {example(name, schema)}"])


def example(name: str, schema: Mapping[str, Any]) -> str:
    """A line that calls a tool, made from its schema."""
    needed = schema.get("required") or ()
    properties = schema.get("properties") or {}
    values = {key: _sample(properties.get(key) or {}, schema, place) for place, key in enumerate(needed, 1)}
    simple = all(_PLAIN_WORD.fullmatch(key) for key in values)
    if not simple:
        return f"{_short(name)} {json.dumps(values, ensure_ascii=False)}"
    return " ".join([_short(name), *(f"{key}={_written(value)}" for key, value in values.items())])


def _sample(schema: Mapping[str, Any], whole: Mapping[str, Any], place: int) -> Any:
    reference = str(schema.get("$ref", ""))
    if reference:
        schema = (whole.get("$defs") or {}).get(reference.rsplit("/", 1)[-1]) or {}
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


def _written(value: Any) -> str:
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _short(name: str) -> str:
    return name.split("__", 2)[-1] if name.startswith("mcp__") else name


# --- a script of the user's own, and who plays it ---------------------------------------------------------


def load_script(path: Path) -> list[Any]:
    """The list `script` of a Python file; `UsageError` if there is none."""
    import runpy  # noqa: PLC0415 - beside its only use

    from toolwire.testing.scripted_cli.book import Fault  # noqa: PLC0415

    if not path.is_file():
        raise UsageError(f"There is no script {path}.")
    try:
        found = runpy.run_path(str(path)).get("script")
    except Exception as error:
        raise UsageError(f"The script {path} failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, list | tuple):
        raise UsageError(
            f'The script {path} has no top-level list "script", such as script = [say("Hello.")], '
            "made of the steps in toolwire.testing."
        )
    for place, step in enumerate(found, 1):
        if not callable(step) and not isinstance(step, Answer | Fault):
            raise UsageError(f"Step {place} of the script {path} is not a step of toolwire.testing: {step!r}")
    return list(found)


async def peer(
    stack: AsyncExitStack,
    servers: Mapping[str, Any],
    *,
    scripted: bool,
    script: list[Any] | None,
    record: Path | None,
) -> tuple[dict[str, Any], str]:
    """Who is at the other end, as options, and a line that tells it. `CLINotFoundError` if it has to be there."""
    from toolwire._transport.find_cli import find_cli  # noqa: PLC0415 - beside its only use

    if not scripted:
        try:
            return {"cli_path": find_cli(), "spawn_claude_code_process": _apart(record)}, ""
        except CLINotFoundError as error:
            raise CLINotFoundError(f"{error}\nWithout one, --scripted tries your tools.") from None
    from toolwire.testing import ClaudeEnvironment, ScriptedCLI, ScriptedModel  # noqa: PLC0415
    from toolwire.testing.scripted_cli.book import Fault  # noqa: PLC0415

    steps = [StandIn(await _schemas(servers, stack))] * _REQUESTS if script is None else script
    try:
        cli = None if any(isinstance(step, Fault) for step in steps) else find_cli()
    except CLINotFoundError:
        cli = None
    if cli is None:
        if record is not None:
            raise UsageError("--record records a Claude Code CLI, and none was found.")
        told = "Scripted: a scripted CLI and a scripted model, no key, no network."
        return {"spawn_claude_code_process": ScriptedCLI(steps)}, told
    model = await stack.enter_async_context(ScriptedModel(steps))
    env = await stack.enter_async_context(ClaudeEnvironment(model))
    found = {"cli_path": cli, "spawn_claude_code_process": _apart(record), **env.options_kwargs()}
    return found, "Scripted: the real Claude Code CLI and a scripted model, no key, no network."


def _apart(record: Path | None) -> Callable[[Any], Any]:
    """Starts the CLI in a session of its own, so that Ctrl-C reaches this program only and it decides."""
    from toolwire._transport.process import Command  # noqa: PLC0415
    from toolwire.testing.recording.recorder import ProcessTransport, Recorder  # noqa: PLC0415

    class Apart(Command):
        def popen_arguments(self, inherit: Sequence[int]) -> dict[str, Any]:
            return {**super().popen_arguments(inherit), "start_new_session": True}

    start = ProcessTransport if record is None else Recorder(record)
    return lambda command: start(Apart(command.argv, command.env, command.cwd, command.user))


async def _schemas(servers: Mapping[str, Any], stack: AsyncExitStack) -> Schemas:
    """The tools of the servers. The connections stay open, so that a lifespan runs once, not twice."""
    from toolwire.testing import connect  # noqa: PLC0415

    schemas: Schemas = {}
    for name, server in servers.items():
        client = await stack.enter_async_context(connect(server))
        for tool in await client.list_tools():
            schemas[f"mcp__{name}__{re.sub(r'[^a-zA-Z0-9_-]', '_', tool.name)}"] = tool.input_schema
    return schemas


async def list_tools(servers: Mapping[str, Any]) -> list[str]:
    """A line for each tool."""
    from toolwire.cli.run_screen import one_line  # noqa: PLC0415
    from toolwire.testing import connect  # noqa: PLC0415

    lines = []
    for name, server in servers.items():
        async with connect(server) as client:
            found = await client.list_tools()
        lines += [one_line(f"{name}.{tool.name}: {tool.description.partition(chr(10))[0]}") for tool in found]
    return lines
