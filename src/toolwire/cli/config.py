"""`toolwire config`: prints the entry of a server in the file of an MCP client, or writes it there.

Owns the reading and writing of that file; its content is made in `config_clients`. Stdout gets only data, the
entry or a command to run, so that it can be piped; everything else goes to stderr.
"""

import os
import sys
from codecs import BOM_UTF8
from contextlib import redirect_stdout
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from toolwire._support.files import replace_file
from toolwire.cli import config_clients as _clients
from toolwire.cli.config_clients import Client, Document, Entry
from toolwire.cli.shared.target_options import CATALOG, OPENAPI
from toolwire.errors import ClaudeSDKError, UsageError

if TYPE_CHECKING:
    from toolwire.catalog.profile.model import Profile
    from toolwire.cli.shared.target import Target


class For(StrEnum):
    """The clients, as they are named on the command line."""

    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"


class Scopes(StrEnum):
    """Where the server is available."""

    PROJECT = "project"
    USER = "user"


def config(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="app.py, app.py:name, package.module:name, a URL, catalog:PROFILE or openapi:DOCUMENT.",
        ),
    ] = None,
    *,
    client: Annotated[For, typer.Option("--for", help="The MCP client that will use the server.")],
    install: Annotated[
        bool, typer.Option("--install", help="Write the entry into the client's file.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the entry from the client's file.")
    ] = False,
    scope: Annotated[
        Scopes | None,
        typer.Option(
            help="Install for this folder, or for the user. Default: this folder, if the client has such a file."
        ),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="URL", help="Use a server that already runs at this URL.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="With --http: the token of the server. It is written into the file only if the client needs that."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the entry. Default: the server's name.")] = None,
    path: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The client's file, if it is not the usual one.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="An environment variable for the server. Repeatable."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another server of the same name.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as a JSON object.")] = False,
) -> None:
    """Print or install the configuration of a server for Claude Desktop, Claude Code, Cursor or VS Code.

    Examples:

      toolwire config app.py:calc --for claude-desktop

      toolwire config app.py:calc --for claude-code --install

      toolwire config app.py --for vscode --http http://127.0.0.1:8000/mcp --token "$TOKEN"

      toolwire config catalog:agentpmt --for claude-desktop

      toolwire config app.py:calc --for claude-code --remove
    """
    if install and remove:
        raise UsageError("--install and --remove exclude each other")
    if http is None and token is not None:
        raise UsageError("--token only applies with --http: a server that the client starts needs no token")
    if http is not None and env:
        raise UsageError(
            "--env does not apply with --http: only a server that the client starts gets variables"
        )
    chosen = _clients.CLIENTS[client]
    where = _find_file(chosen, scope, path)
    by_name = name is not None and (http is not None or remove)  # then no target is needed
    found = None if by_name else find_server(target)
    entry_name = _choose_name(found, name)
    if remove:
        done = _remove(chosen, entry_name, where)
    else:
        if http is not None:
            entry = _clients.http_entry(chosen, entry_name, http, token)
        else:
            python = os.path.abspath(sys.executable)  # noqa: PTH100 - a venv's Python is a link, and must stay one
            assert found is not None  # noqa: S101 - it is needed here
            args, variables = _start_command(found)
            variables.update(_parse_variables(env or []))
            entry = _clients.stdio_entry(chosen, entry_name, python, args, variables, secret_variables(found))
        done = _install(chosen, entry, where, force=force) if install else _show(chosen, entry, where)
    if json:
        file = where and str(where)
        facts = {
            "client": chosen.title,
            "name": entry_name,
            "file": file,
            "action": done.action,
            **done.facts,
        }
        _print(facts)
        return
    _print(done.data)
    for line in done.words:
        typer.echo(line, err=True)


class Done(NamedTuple):
    """The outcome: `data` for stdout, `words` for stderr, `action` and `facts` for --json."""

    data: str | Document
    words: list[str]
    action: str
    facts: dict[str, Any]


def _find_file(client: Client, scope: Scopes | None, path: Path | None) -> Path | None:
    if client.project is None and scope is Scopes.PROJECT:
        raise UsageError(f"{client.title} has no file for a project: leave --scope out")
    if path is not None:
        if path.is_dir():
            raise UsageError(f"--path {path} is a folder: name the file in it")
        return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - a link is followed when written
    return _clients.place(client, "user" if scope is Scopes.USER else "project")


def find_server(target: str | None) -> "Target":
    """Find the server, so that a wrong target is reported."""
    if target is None:
        raise UsageError(
            "no target given: name one, such as shop.py:server (with --http or --remove, --name is enough)"
        )
    from toolwire.cli.shared.target import Target, resolve  # noqa: PLC0415 - heavy

    if target.startswith(CATALOG):  # only its profile is read: the keys are not needed here
        from toolwire.catalog.tools.definitions import slug  # noqa: PLC0415

        profile = _profile(target)
        file = Path(target.removeprefix(CATALOG))
        whole = f"{CATALOG}{file.absolute()}" if file.suffix else target
        return Target(whole, slug(profile.name), None)
    with redirect_stdout(sys.stderr):  # prints of the user's file are not part of the entry
        return resolve(target)


def _profile(target: str) -> "Profile":
    from toolwire.catalog.profile.model import Profile  # noqa: PLC0415 - heavy

    return Profile.find(target.removeprefix(CATALOG))


def secret_variables(found: "Target", *, all_of_them: bool = False) -> list[str]:
    """List the environment variables with the secrets of a target. Their values must not be written into a file.

    An OpenAPI document may accept several kinds of credentials: only the variables that are set here are listed, or
    all of them with `all_of_them`.
    """
    if found.text.startswith(OPENAPI):
        return _document_variables(found, all_of_them=all_of_them)
    if not found.text.startswith(CATALOG):
        return []
    profile = _profile(found.text)
    names = [profile.network.proxy_variable] if profile.network.proxy_variable else []
    for secret in profile.secrets.values():
        parts = [each.variable for each in secret.parts]
        in_parts = not secret.variable or (bool(parts) and all(os.environ.get(each) for each in parts))
        # Prefer the variables that are set here, and otherwise the secret's own.
        names += (
            parts
            if in_parts and not os.environ.get(secret.variable)
            else [secret.variable] * bool(secret.variable)
        )
    return names


def _document_variables(found: "Target", *, all_of_them: bool) -> list[str]:
    """List the variables with the credentials of an OpenAPI document: all, or those that are set here."""
    try:
        found.server.load()
    except UsageError:  # the document is at a URL, and is read later
        return []
    names = [each.variable for each in found.server.schemes.values()]
    return [name for name in names if all_of_them or os.environ.get(name)]


def _choose_name(found: "Target | None", given: str | None) -> str:
    """Choose the name of the entry."""
    text = given if given is not None or found is None else found.name
    name = _clients.legal_name(text or "")
    if given is not None and name != given:
        hint = f", such as {name!r}" if name else ""
        raise UsageError(f"--name {given!r}: a name may only have letters, digits, - and _{hint}")
    if not name:
        raise UsageError(f"no client accepts the server's name {text!r}: choose another with --name")
    return name


def _start_command(found: "Target") -> tuple[list[str], dict[str, str]]:
    """Return the arguments and variables that start the server from any folder."""
    # -P: clients start it in the project's folder, where a file called email.py would hide Python's own.
    serve = ["-P", "-m", "toolwire", "serve"]
    head, _, attribute = found.text.rpartition(":")
    if found.path is None or found.text.endswith(".py"):
        return [*serve, str(found.path or found.text)], {}  # a URL is the same everywhere
    if head.endswith(".py"):
        return [*serve, f"{found.path}:{attribute}"], {}
    root = _import_root(head or found.text)
    return [*serve, found.text], {"PYTHONPATH": root} if root else {}


def _import_root(module: str) -> str | None:
    """Return the folder to put on PYTHONPATH for a module; None if it is installed."""
    try:
        spec = find_spec(module.partition(".")[0])
    except ValueError:  # a module without a spec
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or []) or [spec.origin or ""]
    ours = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]  # noqa: PTH109
    known = {os.path.realpath(each) for each in ours if each}
    roots = [str(Path(each).parent) for each in places]
    return next((each for each in roots if os.path.realpath(each) in known), None)


def _parse_variables(given: list[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each or each.startswith("="):
            raise UsageError(f"--env {each!r}: write NAME=value")
    return dict(each.split("=", 1) for each in given)


def _show(client: Client, entry: Entry, where: Path | None) -> Done:
    if where is None:
        return _own_command(client, entry)
    document = _clients.snippet(client, entry)
    hint = f"Add this to {where}, or run the same command with --install."
    return Done(document, [hint, *entry.notes], "shown", {"entry": document, "notes": entry.notes})


def _own_command(client: Client, entry: Entry) -> Done:
    """Return the client's own command that adds a server, for files that only the client should write."""
    command = _clients.user_command(client, entry)
    hint = f"Not installed yet: {client.title} itself must add a server for the user. Run this command."
    facts = {"entry": _clients.snippet(client, entry), "command": command, "notes": entry.notes}
    return Done(_clients.quote_command(command, sys.platform), [hint, *entry.notes], "command", facts)


def _install(client: Client, entry: Entry, where: Path | None, *, force: bool) -> Done:
    if where is None:
        return _own_command(client, entry)
    document, mark = _read(where)
    merged = _clients.merge(document, client, entry, str(where), force=force)
    facts = {"entry": _clients.snippet(client, entry), "notes": entry.notes}
    if merged == document:
        words = [f"{entry.name} is already in {where}; nothing was changed.", *entry.notes]
        return Done("", words, "unchanged", facts)
    backup = _save(where, merged, mark, fresh=0o600 if client.token is None else 0o666)  # it may hold a token
    words = [f"{entry.name} is now in {where}{_mention(backup)}.", client.after, *entry.notes]
    return Done("", words, "installed", {"backup": backup, **facts})


def _remove(client: Client, name: str, where: Path | None) -> Done:
    if where is None:
        command = _clients.user_removal(client, name)
        hint = f"Not removed yet: {client.title} itself must remove a server of the user. Run this command."
        return Done(_clients.quote_command(command, sys.platform), [hint], "command", {"command": command})
    if not where.exists():
        raise UsageError(f"{where} does not exist, so there is nothing to remove")
    document, mark = _read(where)
    backup = _save(where, _clients.remove(document, client, name, str(where)), mark)
    words = [f"{name} is no longer in {where}{_mention(backup)}."]
    return Done("", words, "removed", {"backup": backup})


def _read(where: Path) -> tuple[Document, bool]:
    """Read a client's file, and whether it begins with a byte order mark. A missing file is empty."""
    try:
        raw = where.read_bytes()
        return _clients.parse(raw.decode("utf-8-sig"), str(where)), raw.startswith(BOM_UTF8)
    except FileNotFoundError:
        return {}, False
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 text (byte {error.start}). Nothing was changed") from None
    except OSError as error:
        raise ClaudeSDKError(f"cannot read {where}: {error.strerror}") from error


def _save(where: Path, document: Document, mark: bool, fresh: int = 0o666) -> str | None:
    """Write the file atomically, through a link if it is one. Returns the path of the backup."""
    text = (BOM_UTF8 if mark else b"") + _clients.to_text(document).encode() + b"\n"
    real = where.resolve()
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        if not real.exists():
            replace_file(real, [text], mode=fresh, use_umask=True)
            return None
        mode = S_IMODE(real.stat().st_mode)
        backup = where.with_name(f"{where.name}.bak")
        replace_file(backup, [real.read_bytes()], mode=mode)
        replace_file(real, [text], mode=mode)
    except OSError as error:
        reason = f"cannot write {error.filename or where}: {error.strerror}. {where} is unchanged"
        raise ClaudeSDKError(reason) from error
    return str(backup)


def _mention(backup: str | None) -> str:
    return f" (backup: {backup})" if backup else ""


def _print(data: str | Document) -> None:
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    if data:
        typer.echo(data if isinstance(data, str) else _clients.to_text(data, ascii_only=plain))
