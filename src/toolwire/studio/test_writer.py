"""Turns a run into a pytest file that passes as written, with the run's prompts, model responses and tool results.

The model is scripted from its responses in the run; the tools are those of the target. Owns which parts of a run
can be replayed, and the layout of the file, which matches `ruff format`. Text of the run only appears as literals
and in one-line comments, so that nothing in it can ever become code.

These parts are left out, each with a comment in its place: subagents, built-in tools, tools of other servers, calls
that were interrupted or that asked the user for something, and turns without a prompt. Hooks are not in the test,
but a call that a hook denied is denied again. Results that are not only text, or that the CLI shortened, are not
compared.
"""

import keyword
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

from toolwire.sessions.entries import shorten
from toolwire.studio.timeline import DENIED, INTERRUPTED, Span, Timeline, read_text
from toolwire.tools.names import full_name, wire_name

_WIDTH: Final = 88  # the default of ruff and black
_MAX_DEPTH: Final = 40  # of arguments; Python's parser fails at 200 nested brackets
_MAX_QUOTED: Final = 60
_FILE: Final = re.compile(r"(?P<path>.+\.py)(?::(?P<name>[^/\\:]*))?", re.DOTALL)
_MODULE: Final = re.compile(r"(?P<path>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>.*)", re.DOTALL)
_OTHERS: Final = ("http:", "https:", "catalog:", "openapi:")
_FACTORY: Final = ("make_", "create_")
_CUT: Final = ("<persisted-output>", "Output has been saved to", "<scrubbed>")
"""Texts that show that the CLI or the recorder has replaced a result."""
_NOT_COMPARED: Final = "Not compared: the result is not only text, or was replaced in the recording."


@dataclass
class _Node:
    """A piece of code; with `parts`, they stand between `head` and `tail`, separated by commas."""

    head: str
    parts: "Sequence[_Node | _Comment] | None" = None
    tail: str = ""


@dataclass
class _Comment:
    text: str


@dataclass
class _Call:
    """A call of one of the target's tools."""

    name: str
    arguments: dict[str, Any]
    text: str | None
    """The text of the result; None if the result is not compared."""
    failed: bool


def write_test(
    timeline: Timeline,
    target: str,
    *,
    server: str | None = None,
    name: str = "test_run",
    folder: str | os.PathLike[str] | None = None,
) -> str:
    """Return the source of a pytest file for a run. Raises ValueError if the run has nothing to replay.

    `target`: the user's server, as `app.py`, `app.py:name` or `package.module:name`. `server`: the server's name in
    the run; required if the run used several. `name`: the name of the test function. `folder`: where the file will
    be saved, by default the current directory.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is not a valid name for a test function; use a name such as test_run")
    imports, loading = _load_target(target, folder)
    key = server if server is not None else _find_server(timeline)
    script = _Script(timeline, key)
    if not script.calls:
        raise ValueError(
            f"no tool of {key} was called in this run, so there is nothing to test"
            + ("; a test cannot replay built-in tools, subagents or other servers" if script.left_out else "")
        )
    return _write(script, key, name, imports, loading)


# --- the target ---


def _load_target(target: str, folder: str | os.PathLike[str] | None) -> tuple[list[str], list[str]]:
    """Return the imports and the lines that load the user's server as `server`."""
    if (file := _FILE.fullmatch(target)) is not None:
        return _load_file(Path(file["path"]), file["name"], Path(folder or os.curdir))
    module = None if target.startswith(_OTHERS) else _MODULE.fullmatch(target)
    if module is not None:
        _check_name(module["name"], target)
        if module["name"].startswith(_FACTORY):
            return [f"from {module['path']} import {module['name']}"], [f"server = {module['name']}()"]
        return [f"from {module['path']} import {module['name']} as server"], []
    raise ValueError(
        f"a test can only be written for a server in Python code, and {target!r} is not one; "
        "use a target such as app.py:name or package.module:name"
    )


def _load_file(path: Path, name: str | None, folder: Path) -> tuple[list[str], list[str]]:
    try:
        relative = PurePath(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        relative = path.absolute().as_posix()
    alias = re.sub(r"\W", "_", path.stem) + "_under_test"
    alias = alias if alias.isidentifier() else f"_{alias}"
    lines = [
        *_lay_out(_Node("FILE = Path(__file__).parent.joinpath(", [_literal(relative)], ")"), 0),
        "sys.path.append(str(FILE.parent))  # for imports from its folder",
        *_lay_out(
            _Node("spec = importlib.util.spec_from_file_location(", [_literal(alias), _Node("FILE")], ")"), 0
        ),
        "module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)",
        "spec.loader.exec_module(module)",
    ]
    if name is None:
        lines.append("server = next(each for each in vars(module).values() if isinstance(each, ToolServer))")
    else:
        _check_name(name, str(path))
        lines.append(f"server = module.{name}{'()' if name.startswith(_FACTORY) else ''}")
    return ["import importlib.util", "import sys", "from pathlib import Path"], lines


def _check_name(name: str, target: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            f"{name!r} in {target} is not a valid name of a server; use a target such as app.py:calc"
        )


def _find_server(timeline: Timeline) -> str:
    """Return the name of the in-process server that the run used."""
    names = _list_servers(timeline)
    called = [each for each in names if any(_belongs_to(span.name, each) for span in timeline.spans)]
    found = called or names
    if not found:
        raise ValueError("the run used no in-process server, so there is nothing to test")
    if len(found) > 1:
        raise ValueError(f"the run used the servers {', '.join(found)}; choose one of them with server=")
    return found[0]


def _list_servers(timeline: Timeline) -> list[str]:
    """Return the servers that the CLI sent requests to; in a history, those whose tools were called."""
    requests = [each.frame.get("request") for each in timeline.frames if each.direction == "in"]
    sent = [each for each in requests if isinstance(each, dict) and each.get("subtype") == "mcp_message"]
    found = [name for each in sent if isinstance(name := each.get("server_name"), str)]
    if not found:
        parts = [span.name.split("__", 2) for span in timeline.spans if span.kind == "tool"]
        found = [each[1] for each in parts if len(each) == 3 and each[0] == "mcp"]  # noqa: PLR2004
    return list(dict.fromkeys(found))


def _belongs_to(tool: str, server: str) -> bool:
    """True for a tool of a server. The CLI replaces characters that names of tools cannot contain."""
    return tool.startswith(full_name(server, ""))


# --- the run ---


class _Script:
    """The contents of the test: what can be replayed of a run."""

    def __init__(self, timeline: Timeline, server: str) -> None:
        self.prompts: list[str] = []
        self.steps: list[_Node | _Comment] = []
        self.calls: list[_Call] = []
        self.decisions: list[_Node] = []
        self.names: set[str] = set()
        """The names to import from toolwire.testing."""
        self.left_out = False
        self._timeline = timeline
        self._server = server
        self._parts = timeline.parts()
        for turn in self._parts.get(None, []):
            if turn.kind == "turn":
                self._read_turn(turn)

    def _leave_out(self, what: str) -> None:
        self.left_out = True
        self.steps.append(_Comment(f"Left out: {what}."))

    def _read_turn(self, turn: Span) -> None:
        prompt = _read_prompt(turn.input)
        if not prompt.strip() or turn.name:
            self._leave_out(f"a turn without a prompt ({_show(turn.title)})")
            return
        parts = self._parts.get(turn.number, [])
        tools = [each for each in parts if each.kind == "tool"]
        made = len(self.steps)
        ended = False
        for model in parts:
            if model.kind == "model" and not (model.failed or model.name == "<synthetic>"):
                blocks = _list_blocks(self._timeline, model)
                if blocks:
                    ended = self._read_response(blocks, tools)
        if not any(isinstance(each, _Node) for each in self.steps[made:]):
            self._leave_out(f"the prompt {_show(prompt)}, which got no response")
            return
        if not ended:
            self.names.add("say")
            self.steps.append(_Comment("In the run, the turn ended here without a response."))
            self.steps.append(_Node('say("")'))
        self.prompts.append(prompt)

    def _read_response(self, blocks: list[dict[str, Any]], tools: list[Span]) -> bool:
        """Add one response of the model. Returns True if the turn ends with it."""
        calls = [each for each in blocks if each.get("type") == "tool_use"]
        made: list[_Node] = []
        kept = 0
        for block in blocks:
            if block.get("type") == "text":
                if isinstance(text := block.get("text"), str) and text:
                    made.append(_call_function("say", [_literal(text)]))
                continue
            span = next((each for each in tools if _is_call(each, block)), None)
            if span is not None:
                tools.remove(span)
            why = self._find_obstacle(block, span)
            if why is not None or span is None:
                self._leave_out(f"a call of {_show(str(block.get('name')))}, {why}")
                continue
            kept += 1
            made.append(_write_call(span.name, span.input))
            self._record_call(span)
        if calls and not kept:  # a response without calls would end the turn
            return False
        if len(made) > 1:
            self.names.add("turn")
            self.steps.append(_call_function("turn", made))
        elif made:
            self.steps += made
        self.names.update(each.head.partition("(")[0] for each in made)
        return bool(made) and not calls

    def _find_obstacle(self, block: dict[str, Any], span: Span | None) -> str | None:
        """Return why a call cannot be in the test; None if it can."""
        name = block.get("name")
        if span is None or not isinstance(name, str):
            return "about which the run has no further information"
        parts = {each.kind for each in self._parts.get(span.number, [])}
        interrupted = span.failed is not None and span.failed.startswith(INTERRUPTED)
        reasons = {
            "which started a subagent": "subagent" in parts,
            "a built-in tool of Claude Code": not name.startswith("mcp__"),
            "a tool of another server": not _belongs_to(name, self._server),
            "which asked the user for something": "elicitation" in parts,
            "which was interrupted": interrupted,
            "which had no result": span.end is None or span.output is None,
            "whose arguments cannot be written as Python": not isinstance(span.input, dict)
            or not _is_shallow(span.input),
        }
        return next((why for why, holds in reasons.items() if holds), None)

    def _record_call(self, span: Span) -> None:
        """Record a call with its result and its permission decision."""
        parts = self._parts.get(span.number, [])
        text = _read_result(span.output)
        if text is not None and any(mark in text for mark in _CUT):
            text = None
        self.calls.append(_Call(span.name, span.input, text, span.failed is not None))
        asked = [each.output for each in parts if each.kind == "permission" and isinstance(each.output, dict)]
        ran = [each.input for each in parts if each.kind == "mcp" and isinstance(each.input, dict)]
        decision: _Node | None = None
        if span.failed is not None and span.failed.startswith(DENIED) and not ran:
            message = asked[-1].get("message") if asked else None
            why = message if isinstance(message, str) else text or ""
            decision = _call_function("PermissionResultDeny", [_literal(why, "message=")])
        elif ran and ran[-1] != span.input and _is_shallow(ran[-1]):
            decision = _call_function("PermissionResultAllow", [_literal(ran[-1], "updated_input=")])
        elif asked:
            decision = _Node("PermissionResultAllow()")
        if decision is not None:
            self.decisions.append(_Node("(", [_literal(span.name), _literal(span.input), decision], ")"))


def _read_prompt(given: Any) -> str:
    """Return the text of a prompt, or the joined texts of several prompts that were answered together."""
    if isinstance(given, list) and not any(isinstance(each, dict) for each in given):
        return "\n".join(read_text(each) for each in given)
    return read_text(given)


def _list_blocks(timeline: Timeline, model: Span) -> list[dict[str, Any]]:
    """Return the texts and tool calls of one response of the model."""
    found = []
    for number in model.frames:
        frame = timeline.frames[number].frame
        message = frame.get("message") if frame.get("type") == "assistant" else None
        content = message.get("content") if isinstance(message, dict) else None
        found += [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    return [each for each in found if each.get("type") in ("text", "tool_use")]


def _is_call(span: Span, block: dict[str, Any]) -> bool:
    return span.name == block.get("name") and span.input == block.get("input")


def _read_result(content: Any) -> str | None:
    """Return the text of a result, as in `Reply.tool_calls`; None if there is other content."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [each.get("text") for each in content if isinstance(each, dict) and each.get("type") == "text"]
    known = [each for each in texts if isinstance(each, str)]
    return "\n".join(known) if len(known) == len(content) else None


# --- the file ---


def _write(script: _Script, server: str, name: str, imports: list[str], loading: list[str]) -> str:
    several = len(script.prompts) > 1
    names = {"ClaudeAgentOptions", *(("ClaudeSDKClient", "Reply") if several else ("run",))}
    if script.decisions:
        names.add("PermissionResultAllow")
        denied = any("PermissionResultDeny" in str(_join(each)) for each in script.decisions)
        names.update({"PermissionResultDeny"} if denied else ())
    if any("ToolServer" in each for each in loading):
        names.add("ToolServer")
    lines = [
        '"""A recorded run as a test: the model is scripted, the tools are real.',
        "",
        "If a result differs from run to run, such as a time, replace its text with",
        "`unittest.mock.ANY`.",
        '"""',
        "",
        *_write_imports(script, names, imports),
        *(["", *loading] if loading else []),
    ]
    marks = ["@pytest.mark.anyio", '@pytest.mark.parametrize("anyio_backend", ["asyncio"])']
    lines += ["", "", *marks, f"async def {name}(scripted_cli):"]
    body = ['"""The tools return what they returned in the run."""']
    body += _lay_out(_Node("scripted_cli.script(", script.steps, ")"), 4)
    if script.decisions:
        body += _lay_out(_Node("decisions = [", script.decisions, "]"), 4) + _DECIDE
    permit = (
        _Node("can_use_tool=decide")
        if script.decisions
        else _Node(f"allowed_tools=[{_quote(f'mcp__{wire_name(server)}')}]")
    )
    servers = _Node("mcp_servers={", [_Node(f"{_quote(server)}: server")], "}")
    given = [servers, permit, _Node("**scripted_cli.options_kwargs()")]
    body += _lay_out(_Node("options = ClaudeAgentOptions(", given, ")"), 4)
    if several:
        body += ["reply = Reply()", "async with ClaudeSDKClient(options) as client:"]
        prompts = _Node("for prompt in [", [_literal(each) for each in script.prompts], "]:")
        body += [f"    {each}" for each in _lay_out(prompts, 8)] + _CONVERSE
    else:
        prompt = [_literal(script.prompts[0]), _Node("options=options")]
        body += _lay_out(_Node("reply = await run(", prompt, ")"), 4)
    expected: list[_Node | _Comment] = []
    for each in script.calls:
        if each.text is None:
            expected.append(_Comment(_NOT_COMPARED))
        text = _Node("ANY") if each.text is None else _literal(each.text)
        row = [_literal(each.name), _literal(each.arguments), text, _Node(str(each.failed))]
        expected.append(_Node("(", row, ")"))
    body += ["# Name, arguments, text of the result, and whether it failed.", *_CALLS]
    body += _lay_out(_Node("assert calls == [", expected, "]"), 4)
    return "\n".join([*lines, *(f"    {each}".rstrip() for each in body)]) + "\n"


def _write_imports(script: _Script, names: set[str], imports: list[str]) -> list[str]:
    """Return the import lines, sorted: standard library, installed packages, the project."""
    standard = [each for each in imports if each.startswith(("import ", "from pathlib"))]
    if any(each.text is None for each in script.calls):
        standard.append("from unittest.mock import ANY")
    installed = {
        "toolwire": _import("toolwire", sorted(names, key=_import_order)),
        "toolwire.testing": _import("toolwire.testing", sorted(script.names)),
    }
    own: list[str] = []
    for line in imports:
        module = line.split()[1]
        if line in standard:
            continue
        top = module.partition(".")[0]
        if any(Path(place, top + end).exists() for place in ("", "src") for end in ("", ".py")):
            own.append(line)
        else:
            installed[module] = [line]
    lines = [*standard, ""] if standard else []
    lines += ["import pytest", *(line for module in sorted(installed) for line in installed[module])]
    return [*lines, "", *own] if own else lines


_DECIDE: Final = [
    "",
    "async def decide(tool, arguments, _context):",
    '    """Decide as in the run; allow calls that needed no decision there."""',
    "    for each in decisions:",
    "        if each[:2] == (tool, arguments):",
    "            decisions.remove(each)",
    "            return each[2]",
    "    return PermissionResultAllow()",
    "",
]
_CONVERSE: Final = [
    "        await client.query(prompt)",
    "        async for message in client.receive_response():",
    "            reply.add(message)",
]
_CALLS: Final = [
    "calls = [",
    "    (each.name, each.input, each.text, bool(each.is_error))",
    "    for each in reply.tool_calls",
    "]",
]


def _import_order(name: str) -> tuple[bool, str]:
    return not name[0].isupper(), name


def _import(module: str, names: list[str]) -> list[str]:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _WIDTH:
        return [line]
    return [f"from {module} import (", *(f"    {each}," for each in names), ")"]


def _show(text: str) -> str:
    """Quote a text of the run for a comment, on one line and shortened."""
    return _quote(shorten(text, _MAX_QUOTED))


def _write_call(name: str, arguments: dict[str, Any]) -> _Node:
    plain = all(
        each.isascii() and each.isidentifier() and not keyword.iskeyword(each) and each != "id"
        for each in arguments
    )  # Python would normalize other names, and `id` is the id of the call
    named = [_literal(value, f"{each}=") for each, value in arguments.items()]
    given = named if plain else [_literal(arguments)]
    return _call_function("call", [_literal(name), *given])


def _call_function(name: str, given: Sequence[_Node]) -> _Node:
    return _Node(f"{name}(", given, ")")


def _is_shallow(value: Any, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(_is_shallow(each, depth + 1) for each in value.values())
    return not isinstance(value, list) or all(_is_shallow(each, depth + 1) for each in value)


def _literal(value: Any, head: str = "") -> _Node:
    """Return a JSON value as a Python literal."""
    if isinstance(value, str):
        return _Node(head + _quote(value))
    if isinstance(value, dict):
        parts = [_literal(each, f"{_quote(str(key))}: ") for key, each in value.items()]
        return _Node(f"{head}{{", parts, "}") if parts else _Node(f"{head}{{}}")
    if isinstance(value, list):
        return _Node(f"{head}[", [_literal(each) for each in value], "]") if value else _Node(f"{head}[]")
    if isinstance(value, float) and not math.isfinite(value):
        return _Node(f'{head}float("{value}")')
    return _Node(head + repr(value))


def _quote(text: str) -> str:
    """Return a text as a one-line literal of printable characters, with the quotes that ruff prefers."""
    body = "".join(each if each in ("'", '"') else repr(each)[1:-1] for each in re.split("(['\"])", text))
    quote = '"' if body.count('"') <= body.count("'") else "'"
    return quote + body.replace(quote, f"\\{quote}") + quote


def _lay_out(node: _Node | _Comment, indent: int, comma: str = "") -> list[str]:
    """Return the lines of a piece of code: one line if it fits, otherwise one line for each part."""
    if isinstance(node, _Comment):
        return [f"# {node.text}"]
    line = _join(node)
    if line is not None and (node.parts is None or indent + _measure(line + comma) <= _WIDTH):
        return [line + comma]
    lines = [node.head]
    for part in node.parts or ():
        lines += [f"    {each}" for each in _lay_out(part, indent + 4, ",")]
    return [*lines, node.tail + comma]


def _measure(line: str) -> int:
    """Return the maximum width of a line in columns."""
    return len(line) if line.isascii() else sum(1 if each.isascii() else 2 for each in line)


def _join(node: _Node) -> str | None:
    """Return the code on one line; None if it contains a comment."""
    if node.parts is None:
        return node.head
    parts = []
    for part in node.parts:
        text = None if isinstance(part, _Comment) else _join(part)
        if text is None:
            return None
        parts.append(text)
    return f"{node.head}{', '.join(parts)}{node.tail}"
