"""The MCP clients that `toolwire config` knows: the file of each, and the form of an entry in it.

A new client is a row of `CLIENTS`. No file is read or written here.
"""

import json
import re
import shlex
import subprocess
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from toolwire._support.addresses import LOOPBACK
from toolwire.cli.shared.arguments import refuse_constant
from toolwire.errors import UsageError

Scope = Literal["project", "user"]
Document = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Client:
    """One program that can use MCP servers."""

    title: str
    key: str
    """The key of the servers in its file."""
    project: tuple[str, ...] | None
    """Its file in the folder of a project; None if it has none."""
    token: str | None
    """The form of a reference to a secret; None if its file cannot refer to one."""
    secret: str
    """How the user provides that secret."""
    after: str
    """The next step after a change of its file."""
    typed: bool = False
    """An entry needs a `type`."""


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-desktop": Client(
        title="Claude Desktop",
        key="mcpServers",
        project=None,
        token=None,
        secret="",
        after="Quit Claude Desktop and open it again.",
    ),
    "claude-code": Client(
        title="Claude Code",
        key="mcpServers",
        project=(".mcp.json",),
        token="${{{variable}}}",  # noqa: S106 - the form of a reference
        secret="Set the variable {variable} to the token where Claude Code is started.",  # noqa: S106
        after="Start `claude` in this folder: it asks once whether to use the server.",
        typed=True,
    ),
    "cursor": Client(
        title="Cursor",
        key="mcpServers",
        project=(".cursor", "mcp.json"),
        token="${{env:{variable}}}",  # noqa: S106
        secret="Set the variable {variable} to the token where Cursor is started.",  # noqa: S106
        after="Cursor shows the server under Settings, Tools & MCP.",
    ),
    "vscode": Client(
        title="VS Code",
        key="servers",
        project=(".vscode", "mcp.json"),
        token="${{input:{input}}}",  # noqa: S106
        secret="VS Code asks for the token when it starts the server, and keeps it.",  # noqa: S106
        after="Start the server with the button above its entry, or with `MCP: List Servers`.",
        typed=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A server in the form of a client's file."""

    name: str
    body: Document
    inputs: tuple[Document, ...] = ()
    """The inputs that VS Code asks the user for."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""


def legal_name(text: str) -> str:
    """Turn a text into a name that every client accepts: letters, digits, `-` and `_`."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-_")


def stdio_entry(  # noqa: PLR0917 - the parts of an entry
    client: Client,
    name: str,
    command: str,
    args: list[str],
    env: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
) -> Entry:
    """Make the entry of a server that the client starts. It must not contain the values of `secrets`."""
    kind = {"type": "stdio"} if client.typed else {}
    variables = dict(env or {})
    missing = [each for each in secrets if each not in variables]
    inputs: list[Document] = []
    for each in missing:
        if client.token is not None:
            words = {"variable": each, "input": each.lower().replace("_", "-")}
            variables[each] = client.token.format(**words)
            if "{input}" in client.token:
                inputs.append(_make_input(words["input"], each))
    notes = (_secrets_note(client, missing),) if missing else ()
    body = {**kind, "command": command, "args": args, **({"env": variables} if variables else {})}
    return Entry(name, body, tuple(inputs), notes)


def _secrets_note(client: Client, missing: list[str]) -> str:
    names = " and ".join(missing)
    if client.token is None:
        return f"It needs {names}: set them with --env NAME=VALUE, which writes the values into that file."
    if "{input}" in client.token:
        return f"{client.title} asks for {names} when it starts the server, and keeps them."
    return f"Set {names} where {client.title} is started."


def _make_input(name: str, description: str) -> Document:
    return {"type": "promptString", "id": name, "description": description, "password": True}


def http_entry(client: Client, name: str, url: str, token: str | None = None) -> Entry:
    """Make the entry of a running server. It refers to the token if the client can, and else contains it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"--http needs the URL of a running server, such as http://127.0.0.1:8000/mcp; got {url!r}"
        )
    if client.token is None:
        return _make_bridge(name, url, token)
    body: Document = {**({"type": "http"} if client.typed else {}), "url": url}
    if token is None:
        return Entry(name, body)
    words = {"variable": f"{re.sub('[^A-Z0-9_]', '_', name.upper())}_TOKEN", "input": f"{name}-token"}
    body["headers"] = {"Authorization": f"Bearer {client.token.format(**words)}"}
    inputs = (_make_input(words["input"], f"Token for {name}"),) if "{input}" in client.token else ()
    return Entry(name, body, inputs, (client.secret.format(**words),))


_BRIDGE: Final = (
    "The file of Claude Desktop only takes servers that it starts itself, so this entry starts the bridge "
    "`npx mcp-remote`, which needs Node.js. Alternatives: add a public server as a connector (Settings, "
    "Connectors), or, without a token, give the URL as the target: then toolwire is the bridge."
)


def _make_bridge(name: str, url: str, token: str | None) -> Entry:
    """Make an entry for a client that only starts processes: it starts a bridge to the URL."""
    notes = [_BRIDGE]
    args = ["-y", "mcp-remote", url]
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        args.append("--allow-http")
    if token is None:
        return Entry(name, {"command": "npx", "args": args}, notes=tuple(notes))
    # No space after the colon: Claude Desktop on Windows does not quote arguments.
    args += ["--header", "Authorization:${AUTH_HEADER}"]
    notes.append("Warning: this entry contains the token; do not share the file.")
    body = {"command": "npx", "args": args, "env": {"AUTH_HEADER": f"Bearer {token}"}}
    return Entry(name, body, notes=tuple(notes))


def snippet(client: Client, entry: Entry) -> Document:
    """Make the content of a file with only this server."""
    inputs = {"inputs": list(entry.inputs)} if entry.inputs else {}
    return {**inputs, client.key: {entry.name: entry.body}}


def place(client: Client, scope: Scope) -> Path | None:
    """Return the path of the client's file; None where only the client itself should write."""
    if client.project is None:
        from platformdirs import user_config_path  # noqa: PLC0415 - no other command needs it

        return user_config_path("Claude", appauthor=False, roaming=True) / "claude_desktop_config.json"
    if scope == "project":
        return Path.cwd().joinpath(*client.project)
    return Path.home().joinpath(*client.project) if client is CLIENTS["cursor"] else None


def user_command(client: Client, entry: Entry) -> list[str]:
    """Return the client's own command that adds a server for the user, where `place` returns None."""
    if client is CLIENTS["claude-code"]:
        return ["claude", "mcp", "add-json", entry.name, json.dumps(entry.body), "--scope", "user"]
    inputs = {"inputs": list(entry.inputs)} if entry.inputs else {}
    return ["code", "--add-mcp", json.dumps({"name": entry.name, **entry.body, **inputs})]


def user_removal(client: Client, name: str) -> list[str]:
    """Return the client's own command that removes a server of the user."""
    if client is CLIENTS["claude-code"]:
        return ["claude", "mcp", "remove", name, "--scope", "user"]
    way = "run `MCP: Open User Configuration` in VS Code, or name its file with --path"
    raise UsageError(f"VS Code has no command that removes {name!r} from the user's profile: {way}")


def quote_command(command: list[str], platform: str) -> str:
    """Quote a command for a POSIX shell, or for Windows."""
    return subprocess.list2cmdline(command) if platform == "win32" else shlex.join(command)


def parse(text: str, where: str) -> Document:
    """Parse a client's file. `UsageError` if it could not be written back without loss."""
    if not text.strip():
        return {}
    try:
        document = json.loads(text, object_pairs_hook=_reject_duplicates, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        if _is_jsonc(text):
            raise UsageError(
                f"{where} has comments or trailing commas (line {error.lineno}), which would be lost: edit it "
                "by hand (without --install the entry is printed)"
            ) from None
        raise UsageError(
            f"{where} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}. "
            "Nothing was changed; correct it and run this again"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} cannot be used: {error}. Nothing was changed") from None
    if not isinstance(document, dict):
        raise UsageError(f"{where} holds {_kind(document)}, not an object. Nothing was changed")
    return document


def to_text(document: Document, *, ascii_only: bool = False) -> str:
    """Format a document as text. Characters that UTF-8 cannot encode are escaped."""
    text = json.dumps(document, indent=2, ensure_ascii=ascii_only)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, indent=2)
    return text


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} occurs twice in one object, and one would be lost")
    return found


_INPUT: Final = re.compile(r"\$\{input:([^}]+)\}")
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING: Final = re.compile(r'("(?:\\.|[^"\\\n])*")|,(?=\s*[}\]])')


def _is_jsonc(text: str) -> bool:
    try:
        json.loads(_TRAILING.sub(r"\1", _COMMENT.sub(r"\1", text)))
    except ValueError:
        return False
    return True


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _part(document: Document, key: str, empty: T, where: str) -> T:
    found = document.get(key, empty)
    if not isinstance(found, type(empty)):
        raise UsageError(f"{where} has {_kind(found)} under {key!r}, not {_kind(empty)}. Nothing was changed")
    return found


def merge(document: Document, client: Client, entry: Entry, where: str, *, force: bool = False) -> Document:
    """Add the entry to a document. Everything else, and its order, is kept."""
    servers = _part(document, client.key, Document(), where)
    if entry.name in servers and servers[entry.name] != entry.body and not force:
        raise UsageError(
            f"{where} has another server called {entry.name!r}: choose another name with --name, or replace it "
            "with --force"
        )
    merged = {**document, client.key: {**servers, entry.name: entry.body}}
    if entry.inputs:
        inputs = _part(document, "inputs", list[Any](), where)
        known = {each.get("id") for each in inputs if isinstance(each, dict)}
        merged["inputs"] = [*inputs, *(each for each in entry.inputs if each["id"] not in known)]
    return merged


def remove(document: Document, client: Client, name: str, where: str) -> Document:
    """Remove an entry from a document, with the inputs that only it needed."""
    servers = _part(document, client.key, Document(), where)
    if name not in servers:
        there = f"it has {', '.join(servers)}" if servers else "it has none"
        raise UsageError(f"{where} has no server called {name!r}: {there}. Choose one with --name")
    left = {**document, client.key: {key: body for key, body in servers.items() if key != name}}
    if client is CLIENTS["vscode"] and "inputs" in document:
        rest = {key: value for key, value in left.items() if key != "inputs"}
        if gone := [*_find_inputs(servers[name]) - _find_inputs(rest)]:
            inputs = _part(document, "inputs", list[Any](), where)
            kept = [x for x in inputs if not (isinstance(x, dict) and x.get("id") in gone)]
            left = {**left, "inputs": kept} if kept else rest
    return left


def _find_inputs(value: Any) -> set[str]:
    """Find the ids of the inputs that a part of VS Code's file refers to."""
    return set(_INPUT.findall(json.dumps(value, ensure_ascii=False)))
